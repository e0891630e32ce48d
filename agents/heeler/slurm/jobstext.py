"""Jobs from text, for a Slurm without JSON: ``squeue -O`` with fields of any length and marks of our own.

A name or a comment may hold any character, newlines too. So what stands between two fields and after the last is a mark
with a random word that is made for each question: nobody can have put it into a name. Times are asked for as seconds
since the epoch (SLURM_TIME_FORMAT), so that no zone is needed.

squeue's text does not tell the indices of GPUs. A field that an old version lacks comes out empty: not known.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import lru_cache
from math import inf
from typing import Any

from heeler.slurm import jobvalues
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS
from heeler.slurm.jobid import JobId, parse_job_id
from heeler.slurm.jobs import Gpus, Job, JobsAnswer
from heeler.slurm.jobvalues import Requests
from heeler.slurm.jsonnumbers import integer
from heeler.slurm.rows import MAX_TEXT, Unreadable
from heeler.slurm.state import JobFlags
from heeler.slurm.tablebuilder import TableBuilder
from heeler.slurm.times import parse_duration, parse_timestamp

# What is asked for, and its name here. Free text goes last, so that a fixed mark would do as well for all but that.
FIELDS: Mapping[str, str] = {
    "JobID": "job_id",
    "JobArrayID": "job_ref",
    "ArrayJobID": "array_job_id",
    "HetJobID": "het_job_id",
    "HetJobOffset": "het_job_offset",
    "UserName": "user",
    "UserID": "user_id",
    "GroupName": "group",
    "Account": "account",
    "Partition": "partition",
    "QOS": "qos",
    "WCKey": "wckey",
    "State": "state",
    "Reason": "reason",
    "PriorityLong": "priority",
    "Nice": "nice",
    "SubmitTime": "submit_ts",
    "EligibleTime": "eligible_ts",
    "AccrueTime": "accrue_ts",
    "StartTime": "start_ts",
    "EndTime": "end_ts",
    "Deadline": "deadline_ts",
    "PreemptTime": "preempt_ts",
    "LastSchedEval": "last_sched_eval_ts",
    "TimeUsed": "elapsed",
    "TimeLimit": "limit",
    "RestartCnt": "restarts",
    "Requeue": "requeue",
    "BatchFlag": "batch",
    "OverSubscribe": "oversubscribe",
    "NodeList": "nodes",
    "NumNodes": "node_count",
    "SchedNodes": "scheduled_nodes",
    "ReqNodes": "required_nodes",
    "ExcNodes": "excluded_nodes",
    "BatchHost": "batch_host",
    "NumCPUs": "cpus",
    "NumTasks": "tasks",
    "cpus-per-task": "cpus_per_task",
    "MinCPUs": "min_cpus_per_node",
    "MinMemory": "min_memory",
    "MinTmpDisk": "min_tmp_disk",
    "tres-alloc": "tres",
    "tres-per-node": "per_node",
    "tres-per-job": "per_job",
    "tres-per-task": "per_task",
    "tres-per-socket": "per_socket",
    "exit_code": "exit_code",
    "Licenses": "licenses",
    "Feature": "features",
    "Dependency": "dependency",
    "Reservation": "reservation",
    "Container": "container",
    "Command": "command",
    "WorkDir": "work_dir",
    "admin_comment": "admin_comment",
    "system_comment": "system_comment",
    "Comment": "comment",
    "Name": "name",
}
KEYS = tuple(FIELDS.values())
ABSENT = {
    "exit_signal": "not told in text",
    "gpu_indices": "not told in squeue's text",
    "gres_detail": "not told in squeue's text",
    "memory_per_cpu_bytes": "squeue's text does not say whether memory is by node or processor",
    "memory_per_node_bytes": "squeue's text does not say whether memory is by node or processor",
    "reason_detail": "not told in squeue's text",
    "suspended_ts": "not told in squeue's text",
}
_SHARED = {"NO": True, "YES": False, "OK": False, "USER": False, "MCS": False, "TOPO": False}
_FLAGS = {"1": True, "0": False, "yes": True, "no": False}
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGTPE", start=1)}


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands after each field, and after the last of a row."""

    field: str
    row: str


def new_marks() -> Marks:
    """Return marks that nobody can know before. They begin with no digit: squeue would take that for a width."""
    word = secrets.token_hex(4)
    return Marks(f"|{word}#", f"|{word}.")


def argv(marks: Marks) -> tuple[str, ...]:
    """Return the question."""
    *others, last = FIELDS
    asked = [f"{name}:{marks.field}" for name in others] + [f"{last}:{marks.row}"]
    return ("squeue", "--all", "--states=all", "--noheader", "--Format", ",".join(asked))


ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s"}


def parse_jobs_text(text: str, marks: Marks, zone: tzinfo, *, now_ns: int = 0, with_table: bool = False) -> JobsAnswer:
    """Return the jobs of an answer, with the table `jobs` as of `now_ns` where asked for.

    `zone` is the controller's, for times that are not seconds since the epoch. Raises ParseError for what is no answer.
    """
    jobs: list[Job] = []
    unreadable: list[Unreadable] = []
    builder = TableBuilder("jobs", ABSENT) if with_table else None
    times = _Times(zone)
    *records, rest = text.split(f"{marks.row}\n")
    if rest.strip():
        # Something after the last mark: squeue was cut off, or wrote no rows of ours at all.
        if not records:
            raise ParseError("no row in the answer", rest)
        unreadable.append(Unreadable(None, f"the answer ends within a row: {rest[:200]!r}"))
    for record in records:
        values = record.split(marks.field)
        try:
            row = _row(values)
            job, columns = _read(row, times, now_ns)
            jobs.append(job)
            if builder is not None:
                builder.add(columns)
        except ParseError as err:
            unreadable.append(Unreadable(_name(values), str(err)))
    table = None
    if builder is not None:
        builder.unreadable += unreadable
        table = builder.build()
    return JobsAnswer(tuple(jobs), tuple(unreadable), None, table)


def _row(values: Sequence[str]) -> dict[str, str]:
    if len(values) != len(KEYS):
        raise ParseError(f"a row of {len(values)} fields, not {len(KEYS)}", "|".join(values))
    row = dict(zip(KEYS, values, strict=True))
    # Warnings that stand before a row end in newlines.
    row["job_id"] = row["job_id"].rpartition("\n")[2]
    return row


def _name(values: Sequence[str]) -> str | None:
    word = values[0].rpartition("\n")[2]
    return word if word.isdecimal() and word.isascii() else None


class _Times:
    """Reads times; the same ones come again and again."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._known: dict[str, int | None] = {}

    def __call__(self, text: str) -> int | None:
        """Return nanoseconds since the epoch, None for no time. Raises ParseError."""
        if text in self._known:
            return self._known[text]
        found = parse_timestamp(text, self._zone)
        if len(self._known) < 1 << 18:
            self._known[text] = found
        return found


def _read(row: Mapping[str, str], times: _Times, now_ns: int) -> tuple[Job, dict[str, Any]]:
    """Return a job, and its columns. Raises ParseError."""
    raw, ref = _id(row["job_id"]), _id(row["job_ref"])
    job_id = str(raw.job)
    state = jobvalues.state_of(row["state"])
    waits = not (state.holds or state.ended)
    submit_ns, start_ns, end_ns = times(row["submit_ts"]), times(row["start_ts"]), times(row["end_ts"])
    nodes = [] if waits else jobvalues.nodes_of(row["nodes"])
    tres = jobvalues.tres_of(row["tres"])
    asks = Requests(
        per_node=_text(row["per_node"]),
        per_job=_text(row["per_job"]),
        per_task=_text(row["per_task"]),
        per_socket=_text(row["per_socket"]),
        nodes=_first(row["node_count"]),
        tasks=_whole(row["tasks"]),
    )
    reason = _text(row["reason"])
    columns: dict[str, Any] = {
        "job_id": job_id,
        "user_id": _whole(row["user_id"]),
        "nice": integer(row["nice"], signed=True),
        "submit_ts": submit_ns,
        "eligible_ts": times(row["eligible_ts"]),
        "accrue_ts": times(row["accrue_ts"]),
        "start_ts": start_ns,
        "end_ts": end_ns,
        "deadline_ts": times(row["deadline_ts"]),
        "preempt_ts": times(row["preempt_ts"]),
        "last_sched_eval_ts": times(row["last_sched_eval_ts"]),
        "restarts": _whole(row["restarts"]),
        "requeue": _FLAGS.get(row["requeue"].lower()),
        "batch": _FLAGS.get(row["batch"].lower()),
        "exclusive": _SHARED.get(row["oversubscribe"]),
        "nodes": nodes,
        "node_count": asks.nodes,
        "scheduled_nodes": jobvalues.nodes_of(row["scheduled_nodes"]),
        "required_nodes": jobvalues.nodes_of(row["required_nodes"]),
        # 22.05 does not know the field under any name, and leaves it empty.
        "excluded_nodes": jobvalues.nodes_of(row["excluded_nodes"]) if row["excluded_nodes"] else None,
        "cpus": _whole(row["cpus"]),
        "tasks": asks.tasks,
        "cpus_per_task": _whole(row["cpus_per_task"]),
        "min_cpus_per_node": _whole(row["min_cpus_per_node"]),
        "min_memory_bytes": _bytes(row["min_memory"]),
        "min_tmp_disk_bytes": _bytes(row["min_tmp_disk"]),
        **_texts(row),
        **_ids(row, ref),
        **jobvalues.status(state, reason, _whole(row["priority"])),
        **jobvalues.times(
            state,
            now_ns,
            submit_ns=submit_ns,
            start_ns=start_ns,
            elapsed_s=0 if waits else _duration(row["elapsed"]),
            limit_s=_duration(row["limit"]),
        ),
        # squeue shows under this name what a waiting job asks for, and what any other has.
        **jobvalues.requested(asks, tres if waits else None),
        **(jobvalues.NOTHING if waits else jobvalues.allocated(tres, asks)),
    }
    if state.ended:
        columns["exit_code"] = _whole(row["exit_code"])
    return _job(columns, state), columns


def _job(columns: Mapping[str, Any], state: JobFlags) -> Job:
    """Return what JobEvents need. The indices of its GPUs are not told, so only how many on each node."""
    if not (state.holds or state.ended):
        return Job(columns["job_id"], state, restarts=columns["restarts"])
    gpus, nodes = columns.get("gpus_allocated"), columns["nodes"]
    even = gpus is not None and bool(gpus and nodes) and gpus % len(nodes) == 0
    task = columns.get("array_task_id")
    return Job(
        id=columns["job_id"],
        state=state,
        submit_ts_ns=columns["submit_ts"],
        start_ts_ns=columns["start_ts"],
        end_ts_ns=columns["end_ts"] if state.ended else None,
        restarts=columns["restarts"],
        nodes=tuple(nodes),
        gpus=Gpus("none" if gpus == 0 else "unknown", None, gpus // len(nodes) if gpus and even else None),
        array_job_id=columns.get("array_job_id"),
        array_task_id=None if task is None else str(task),
        het_job_id=columns.get("het_job_id"),
        user=columns["user"],
        account=columns["account"],
        partition=columns["partition"],
        qos=columns["qos"],
        name=columns["name"],
        exclusive=columns["exclusive"],
        requeueable=columns["requeue"],
        batch=columns["batch"],
    )


def _texts(row: Mapping[str, str]) -> dict[str, str | None]:
    short = ("user", "group", "account", "partition", "qos", "wckey", "licenses", "features", "dependency")
    more = ("reservation", "container", "command", "work_dir", "admin_comment", "system_comment", "comment")
    values = {key: _text(row[key]) for key in (*short, *more)}
    return {**values, "name": _clean(row["name"]) or None, "batch_host": _text(row["batch_host"])}


def _ids(row: Mapping[str, str], ref: JobId) -> dict[str, Any]:
    """Return the columns that say what a job is part of."""
    values: dict[str, Any] = {"job_ref": row["job_ref"]}
    if ref.task is not None or ref.tasks:
        values |= {"array_job_id": str(ref.job), "array_task_id": ref.task, "array_throttle": ref.throttle}
    if ref.tasks:
        ranges = row["job_ref"].partition("[")[2].rstrip("]").partition("%")[0]
        values |= {"array_tasks": ranges, "array_task_count": None if ref.truncated else ref.task_count}
    if ref.het_offset is not None:
        values |= {"het_job_id": str(ref.job), "het_job_offset": ref.het_offset}
    return values


_id = lru_cache(1 << 10)(parse_job_id)


@lru_cache(1 << 12)
def _duration(text: str) -> float | None:
    """Return seconds; infinity for no limit; None for words such as INVALID. Raises ParseError."""
    return 0 if text == "0:00" else parse_duration(text)


@lru_cache(1 << 12)
def _bytes(text: str) -> int | None:
    """Return bytes of ``4G``; a bare number is MiB. Raises ParseError."""
    word = text.strip().removesuffix("c").removesuffix("n")
    if word.lower() in NULLS:
        return None
    scale = _UNITS.get(word[-1:].upper())
    number = word[:-1] if scale else word
    try:
        found = float(number) * (scale or 1 << 20)
    except ValueError:
        raise ParseError("not an amount of memory", text) from None
    if not 0 <= found < 1 << 63 or found == inf:
        raise ParseError("not an amount of memory", text)
    return round(found)


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else integer(text)


def _first(text: str) -> int | None:
    """Return the first number of ``2-4``: a waiting job may take more."""
    return _whole(text.partition("-")[0])


def _text(text: str) -> str | None:
    return None if text.lower() in NULLS else _clean(text)


def _clean(text: str) -> str:
    return text[:MAX_TEXT]
