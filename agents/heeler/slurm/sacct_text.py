"""JobRecords from `sacct` as text: any fields, any version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from math import isinf
from typing import Any

from heeler.slurm import times
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS
from heeler.slurm.jobid import JobId, parse_job_id
from heeler.slurm.memory import parse_request, parse_size
from heeler.slurm.rows import MAX_TEXT, Unreadable
from heeler.slurm.sacct_rows import split_sacct
from heeler.slurm.state import ENDED, parse_job_state
from heeler.slurm.usage import Amounts, amounts, used

Row = Mapping[str, str]
_NO_NAMES = NULLS | {"none assigned", "unknown"}
# What a step's row repeats of its job.
OF_THE_JOB = frozenset(
    ("jobid", "jobidraw", "user", "uid", "group", "gid", "account", "partition", "cluster", "associd", "dbindex")
) | {"submit", "eligible", "sluid"}
LIVE = frozenset(("PENDING", "RUNNING", "SUSPENDED"))
CODES = frozenset(("exit_code", "signal", "derived_exit_code"))
MAX_STEPS = 500  # of a record: one with hundreds of thousands would fit no message


@dataclass(frozen=True, slots=True)
class Records:
    """A complete answer: each run of each job, and what could not be read."""

    records: tuple[dict[str, Any], ...]
    unreadable: tuple[Unreadable, ...] = ()
    version: str | None = None
    source: str | None = None


def parse_sacct_text(
    text: str | bytes, *, zone: tzinfo = UTC, delimiter: str = "|", fields: Sequence[str] = ()
) -> Records:
    """Return the records of a text answer, without cluster and time of the question. `zone`: of its times.

    Steps follow their job, as sacct prints them. Raises ParseError where it is no answer of sacct.
    """
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    found = split_sacct(text, delimiter=delimiter, fields=fields)
    records: list[dict[str, Any]] = []
    unreadable = list(found.unreadable)
    last: tuple[str, dict[str, Any] | None] = ("", None)  # a job's id, and its record where that can be read
    for row in found.rows:
        cells = _Cells(row, zone)
        shown = cells.raw("jobid") or cells.raw("jobidraw") or ""
        try:
            identity = parse_job_id(shown)
            raw = parse_job_id(cells.raw("jobidraw") or shown)
            name = _job_name(raw)
            if identity.step is None:
                last = (name, None)
                last = (name, _job(cells, identity, name))
                records.append(last[1] or {})
            elif last[0] != name:
                raise ParseError("a step without its job", shown)  # noqa: TRY301 - it is counted as a row below
            elif last[1] is not None:
                last[1].setdefault("steps", []).append(_step(cells, identity.step))
        except ParseError as err:
            unreadable.append(Unreadable(shown.partition(".")[0] or None, str(err)))
    for record in records:
        cut_steps(record)
    return Records(tuple(records), tuple(unreadable))


def cut_steps(record: dict[str, Any]) -> None:
    """Leave out a record's steps above 500, and say how many."""
    steps = record.get("steps", [])
    if len(steps) > MAX_STEPS:
        record["steps"] = steps[:MAX_STEPS]
        record["steps_left_out"] = len(steps) - MAX_STEPS


def _job_name(identity: JobId) -> str:
    """Return the id of a job without its step; an array's task where its own number is not told stays a task."""
    het = "" if identity.het_offset is None else f"+{identity.het_offset}"
    return f"{identity.job}{het}" if identity.task is None else f"{identity.job}_{identity.task}{het}"


@dataclass(slots=True)
class _Cells:
    """A row's values by field, in any spelling; what was not asked for stays for `fields`."""

    row: Row
    zone: tzinfo
    taken: set[str] = field(default_factory=set)
    by_name: dict[str, tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = {name.lower(): (name, value) for name, value in self.row.items()}

    def raw(self, *names: str) -> str | None:
        """Return the first of some fields that is there and not empty."""
        found = None
        for name in names:
            if name in self.by_name:
                self.taken.add(name)
                found = found or self.by_name[name][1].strip() or None
        return found

    def text(self, name: str) -> str | None:
        """Return what people wrote, as they wrote it."""
        value = self.raw(name)
        return None if value is None else _clean(value)

    def word(self, name: str) -> str | None:
        """Return a name; the spellings of none are none."""
        value = self.text(name)
        return None if value is None or value.lower() in _NO_NAMES else value

    def number(self, *names: str) -> int | None:
        """Return a whole number that is not one of Slurm's marks for "not set"."""
        value = self.raw(*names)
        if value is None or value.lower() in _NO_NAMES:
            return None
        if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdecimal() or len(value) > 20:
            raise ParseError(f"{names[0]} is not a number", value)
        found = int(value)
        if not 0 <= found < 1 << 63 or found in (0xFFFFFFFE, 0xFFFFFFFF):
            return None
        return found

    def time(self, name: str) -> int | None:
        """Return a time."""
        value = self.raw(name)
        return None if value is None else times.parse_timestamp(value, self.zone)

    def span(self, name: str) -> float | None:
        """Return seconds of a duration."""
        value = self.raw(name)
        if value is None or value.startswith("-"):
            return None
        found = times.parse_duration(value if ":" in value or not value.isdecimal() else f"0:{value}")
        return None if found is None or isinf(found) else found

    def code(self, name: str) -> tuple[int | None, int | None]:
        """Return exit status and signal of ``1:0``."""
        value = self.raw(name)
        if value is None or value.lower() in _NO_NAMES:
            return None, None
        status, colon, signal = value.partition(":")
        signal = signal.partition(":")[0] or "0"
        if not (status.isdecimal() and signal.isdecimal() and (colon or status)):
            raise ParseError(f"{name} is no exit status", value)
        return int(status), int(signal)

    def tres(self, name: str) -> Amounts | None:
        """Return resources."""
        value = self.raw(name)
        return None if value is None else amounts(value)

    def rest(self) -> dict[str, str] | None:
        """Return all other fields that say something, as they were printed."""
        left = {
            name: _clean(value.strip())
            for lower, (name, value) in self.by_name.items()
            if lower not in self.taken and value.strip()
        }
        return left or None


def _clean(value: str) -> str:
    return value[:MAX_TEXT] if value.isascii() else value[:MAX_TEXT].encode(errors="replace").decode()


def _state(cells: _Cells) -> dict[str, Any]:
    raw = cells.raw("state")
    if raw is None:
        raise ParseError("a row without a state", cells.raw("jobid"))
    word, _, by = raw.partition(" by ")
    return {"state": parse_job_state(word).name, "state_raw": raw, "cancelled_by": by or None}


def _elapsed(cells: _Cells) -> float | None:
    plain = cells.span("elapsed")
    seconds = cells.number("elapsedraw")
    return plain if seconds is None else seconds


def _job(cells: _Cells, shown: JobId, name: str) -> dict[str, Any]:
    text = cells.raw("jobid") or name
    status, signal = cells.code("exitcode")
    submit, eligible, start = cells.time("submit"), cells.time("eligible"), cells.time("start")
    allocated, asked = cells.tres("alloctres"), cells.tres("reqtres")
    state = _state(cells)
    record: dict[str, Any] = {
        "v": 1,
        "job_id": name,
        "run": run_of(start, submit, text, resized_ns=cells.time("end") if state["state"] == "RESIZING" else None),
        "shown_id": text,
        **_arrays(shown, text),
        "slurm_cluster": cells.word("cluster"),
        **state,
        "reason": _reason(cells),
        "flags": [flag for flag in (cells.word("flags") or "").split(",") if flag] or None,
        "user": cells.word("user"),
        "uid": cells.number("uid"),
        "group": cells.word("group"),
        "gid": cells.number("gid"),
        "account": cells.word("account"),
        "partition": cells.word("partition"),
        "qos": cells.word("qos"),
        "name": cells.text("jobname"),
        "work_dir": cells.text("workdir"),
        "submit_line": cells.text("submitline"),
        "comment": cells.text("comment"),
        "admin_comment": cells.text("admincomment"),
        "system_comment": cells.text("systemcomment"),
        "wckey": cells.word("wckey"),
        "container": cells.word("container"),
        "constraints": cells.word("constraints"),
        "reservation": cells.word("reservation"),
        "submit_ts": submit,
        "eligible_ts": eligible,
        "start_ts": start,
        "end_ts": cells.time("end"),
        **own_time(start, submit, _elapsed(cells), cells.span("suspended")),
        "suspended_s": cells.span("suspended"),
        "wait_s": wait_s(submit, eligible, start),
        **_limit(cells),
        "exit_code": status,
        "signal": signal,
        "derived_exit_code": cells.code("derivedexitcode")[0],
        "nodes": cells.word("nodelist"),
        "node_count": _some(cells.number("nnodes"), cells.number("allocnodes")),
        "cpus": _some(cells.number("alloccpus"), cells.number("ncpus")),
        "req_tres": _asked(cells, asked),
        **resources(allocated, asked),
        "priority": cells.number("priority"),
        "restarts": cells.number("restarts"),
        "energy_j": cells.number("consumedenergyraw"),
        "user_cpu_s": cells.span("usercpu"),
        "system_cpu_s": cells.span("systemcpu"),
    }
    if not start:
        # Before a start Slurm shows in these what was asked for.
        record |= {"nodes": None, "node_count": None, "cpus": None}
    record["fields"] = cells.rest()
    return known(record)


def _step(cells: _Cells, step: str) -> dict[str, Any]:
    status, signal = cells.code("exitcode")
    allocated = cells.tres("alloctres")
    state = _state(cells)
    cells.taken |= OF_THE_JOB
    record = {
        "step": step,
        "name": cells.text("jobname"),
        "state": state["state"],
        "exit_code": status,
        "signal": signal,
        "start_ts": cells.time("start"),
        "end_ts": cells.time("end"),
        "elapsed_s": _elapsed(cells),
        "suspended_s": cells.span("suspended"),
        "tasks": cells.number("ntasks"),
        "nodes": cells.word("nodelist"),
        "node_count": _some(cells.number("nnodes"), cells.number("allocnodes")),
        "cpus": _some(cells.number("alloccpus"), cells.number("ncpus")),
        "alloc_tres": None if allocated is None else allocated.values,
        "user_cpu_s": cells.span("usercpu"),
        "system_cpu_s": cells.span("systemcpu"),
        "max_rss_bytes": _size(cells, "maxrss"),
        "max_vmsize_bytes": _size(cells, "maxvmsize"),
        "energy_j": cells.number("consumedenergyraw"),
        "usage_in_tot": _used(cells, "tresusageintot"),
        "usage_out_tot": _used(cells, "tresusageouttot"),
    }
    record["fields"] = cells.rest()
    return known(record)


def known(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a run or step. It has no exit status before its end: what Slurm prints there is 0:0."""
    state, end = record["state"], record.get("end_ts")
    ended = state in ENDED or (end is not None and state not in LIVE)
    out = {key: value for key, value in record.items() if value is not None}
    return out if ended else {key: value for key, value in out.items() if key not in CODES}


def run_of(start_ns: int | None, submit_ns: int | None, job: str, *, resized_ns: int | None = None) -> str:
    """Return which run of an id it is. Raises ParseError where neither time is known: two runs can't be told apart.

    `resized_ns`: of a part of a run that ended by a change of its size. Slurm gives all parts the start of the run.
    """
    if start_ns:
        return f"{start_ns // times.NS}" + (f"r{resized_ns // times.NS}" if resized_ns else "")
    if submit_ns:
        return f"s{submit_ns // times.NS}"
    raise ParseError("neither start nor submission is told", job)


def own_time(
    start_ns: int | None, submit_ns: int | None, elapsed_s: float | None, suspended_s: float | None
) -> dict[str, Any]:
    """Return when a part of a run began that was resized before, and how long it lasted; of others how long they did.

    Slurm gives such a part the start of the run, and counts its time from there; its submission is the change of size.
    Whether it was suspended before that or since, nobody says.
    """
    if not start_ns or not submit_ns or submit_ns <= start_ns:
        return {"elapsed_s": elapsed_s}
    before_s = (submit_ns - start_ns) // times.NS
    own_s = None if elapsed_s is None or suspended_s else max(elapsed_s - before_s, 0)
    return {"part_start_ts": submit_ns, "elapsed_s": own_s}


def wait_s(submit_ns: int | None, eligible_ns: int | None, start_ns: int | None) -> float | None:
    """Return how long a run waited from when it could run; None where it did not start, or that is not known."""
    since = max((ts for ts in (submit_ns, eligible_ns) if ts), default=None)
    if since is None or not start_ns or start_ns < since:
        return None
    return (start_ns - since) / times.NS


def resources(allocated: Amounts | None, asked: Amounts | None) -> dict[str, Any]:
    """Return what a job has, and how many GPUs it asked for."""
    return {
        "alloc_tres": None if allocated is None else allocated.values,
        "gpus": None if allocated is None else allocated.gpus,
        "gpus_by_type": None if allocated is None else allocated.gpus_by_type,
        "gpus_requested": None if asked is None else asked.gpus,
    }


def _arrays(shown: JobId, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if shown.task is not None or shown.tasks:
        found["array_job_id"] = str(shown.job)
        found["array_task_id"] = (
            str(shown.task) if shown.task is not None else text.partition("_")[2].partition("+")[0].strip("[]")
        )
    if shown.het_offset is not None:
        found |= {"het_job_id": str(shown.job), "het_offset": shown.het_offset}
    return found


def _reason(cells: _Cells) -> str | None:
    value = cells.text("reason")
    return None if value is None or value.lower() in ("none", "(null)") else value


def _limit(cells: _Cells) -> dict[str, Any]:
    raw = cells.raw("timelimitraw")
    text = cells.raw("timelimit")
    if raw is not None and raw.isdecimal():
        return {"time_limit_s": int(raw) * 60, "time_unlimited": False}
    limit = times.parse_duration(text or raw or "")
    if limit is None:
        return {}
    return {"time_unlimited": True} if isinf(limit) else {"time_limit_s": limit, "time_unlimited": False}


def _asked(cells: _Cells, asked: Amounts | None) -> dict[str, int] | None:
    """Return what was asked for; older versions say the memory only in ReqMem."""
    values = dict(asked.values) if asked is not None else {}
    value = (cells.by_name.get("reqmem") or ("", ""))[1].strip().rstrip("?")
    request = parse_request(value) if value and "mem" not in values else None
    if request is not None:
        size, per = request
        count = 1 if per == "job" else cells.number("nnodes" if per == "node" else "reqcpus")
        if count and size:
            values["mem"] = size * count
    return values or None


def _size(cells: _Cells, name: str) -> int | None:
    value = cells.raw(name)
    return None if value is None else parse_size(value)


def _used(cells: _Cells, name: str) -> dict[str, float] | None:
    value = cells.raw(name)
    return None if value is None else used(value)


def _some(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
