"""JobRecords from `sacct --json` and slurmrestd's slurmdb: dbv0.0.38 to data_parser v0.0.42."""

from math import isinf
from typing import Any

from heeler.slurm import jsonfix
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS
from heeler.slurm.jsonnumbers import epoch_ns, identifier, integer, number
from heeler.slurm.rows import Unreadable, free_text, map_in, optional, rows_of, version_of
from heeler.slurm.sacct_text import Records, cut_steps, known, own_time, resources, run_of, wait_s
from heeler.slurm.state import parse_job_state
from heeler.slurm.usage import Amounts, amounts_json

Map = dict[str, Any]
_NO_NODES = NULLS | {"none assigned", "unknown"}


def parse_sacct_json(data: str | bytes) -> Records:
    """Return the records of a JSON answer. Raises ParseError where it is no list of jobs, or lists errors."""
    value = jsonfix.loads(data).value
    records: list[dict[str, Any]] = []
    unreadable: list[Unreadable] = []
    old = isinstance(plugin := map_in(value, "meta").get("plugin"), dict) and "v0.0.38" in str(plugin.get("type"))
    for row in rows_of(value, "jobs"):
        try:
            record = _job(row)
            if old:
                _doubt_codes(record)
            records.append(record)
        except ParseError as err:
            found = row.get("job_id") if isinstance(row, dict) else None
            unreadable.append(Unreadable(None if found is None else str(found), str(err)))
    return Records(tuple(records), tuple(unreadable), version_of(value))


def _job(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict) or (job_id := identifier(row.get("job_id"))) is None:
        raise ParseError("a job without an id", row)
    clock, state, comment = map_in(row, "time"), map_in(row, "state"), map_in(row, "comment")
    allocated, asked = _tres(row, "allocated"), _tres(row, "requested")
    submit, eligible = epoch_ns(clock.get("submission")), epoch_ns(clock.get("eligible"))
    start, end = epoch_ns(clock.get("start")), epoch_ns(clock.get("end"))
    name = parse_job_state(state.get("current") or "").name
    status, signal = _code(row, "exit_code")
    record: dict[str, Any] = {
        "v": 1,
        "job_id": str(job_id),
        "run": run_of(start, submit, str(job_id), resized_ns=end if name == "RESIZING" else None),
        **_ids(row, job_id),
        "slurm_cluster": optional(row, "cluster"),
        "state": name,
        "state_raw": _joined(state.get("current")),
        "cancelled_by": optional(row, "kill_request_user"),
        "reason": _reason(state),
        "flags": row.get("flags") or None,
        "user": optional(row, "user") or optional(map_in(row, "association"), "user"),
        "group": optional(row, "group"),
        "account": optional(row, "account"),
        "partition": optional(row, "partition"),
        "qos": optional(row, "qos"),
        "name": free_text(row, "name"),
        "work_dir": free_text(row, "working_directory"),
        "submit_line": free_text(row, "submit_line"),
        "comment": free_text(comment, "job"),
        "admin_comment": free_text(comment, "administrator"),
        "system_comment": free_text(comment, "system"),
        "wckey": optional(map_in(row, "wckey"), "wckey"),
        "container": optional(row, "container"),
        "constraints": optional(row, "constraints"),
        "reservation": _named(map_in(row, "reservation").get("name")),
        "submit_ts": submit,
        "eligible_ts": eligible,
        "start_ts": start,
        "end_ts": end,
        **own_time(start, submit, _finite(clock.get("elapsed")), _finite(clock.get("suspended"))),
        "suspended_s": _finite(clock.get("suspended")),
        "wait_s": wait_s(submit, eligible, start),
        **_limit(clock),
        "exit_code": status,
        "signal": signal,
        "derived_exit_code": _code(row, "derived_exit_code")[0],
        "nodes": _nodes(row.get("nodes")) if start else None,
        "node_count": integer(row.get("allocation_nodes")) if start else None,
        "cpus": None if allocated is None or not start else allocated.values.get("cpu"),
        "req_tres": None if asked is None else asked.values,
        **resources(allocated, asked),
        "priority": _finite(row.get("priority")),
        "restarts": integer(row.get("restart_cnt")),
        "energy_j": None if allocated is None else allocated.values.get("energy"),
        "user_cpu_s": _cpu(clock, "user"),
        "system_cpu_s": _cpu(clock, "system"),
        "steps": [_step(step) for step in row.get("steps") or ()] or None,
        "fields": _rest(row),
    }
    cut_steps(record) if record["steps"] else None
    return known(record)


def _doubt_codes(record: dict[str, Any]) -> None:
    """Take away exit statuses that v0.0.38 does not know: it says SUCCESS and 0 for jobs that ended with 3."""
    for part in (record, *record.get("steps", ())):
        if part["state"] not in ("COMPLETED", "RUNNING", "PENDING") and part.get("signal") == 0:
            for key in ("exit_code", "signal", "derived_exit_code"):
                part.pop(key, None)


def _step(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ParseError("not a step", row)
    clock, about, nodes = map_in(row, "time"), map_in(row, "step"), map_in(row, "nodes")
    allocated, used = _tres(row, "allocated"), map_in(map_in(row, "tres"), "consumed")
    status, signal = _code(row, "exit_code")
    step = {
        "step": _step_name(about),
        "name": free_text(about, "name"),
        "state": parse_job_state(row.get("state") or "").name,
        "exit_code": status,
        "signal": signal,
        "start_ts": epoch_ns(clock.get("start")),
        "end_ts": epoch_ns(clock.get("end")),
        "elapsed_s": _finite(clock.get("elapsed")),
        "suspended_s": _finite(clock.get("suspended")),
        "tasks": integer(map_in(row, "tasks").get("count")),
        "nodes": _nodes(nodes.get("range")),
        "node_count": integer(nodes.get("count")),
        "cpus": None if allocated is None else allocated.values.get("cpu"),
        "alloc_tres": None if allocated is None else allocated.values,
        "user_cpu_s": _cpu(clock, "user"),
        "system_cpu_s": _cpu(clock, "system"),
        "max_rss_bytes": _largest(used, "mem"),
        "max_vmsize_bytes": _largest(used, "vmem"),
        "energy_j": _energy(row),
    }
    return known(step)


def _step_name(about: Map) -> str:
    """Return batch, extern, a number ...: 22.05 gives it alone, later versions behind the job's id."""
    value = about.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise ParseError("a step without an id", dict(about))
    return value.rpartition(".")[2]


def _ids(row: Map, job_id: int) -> dict[str, Any]:
    array, het = map_in(row, "array"), map_in(row, "het")
    leader, first = identifier(array.get("job_id")), identifier(het.get("job_id"))
    offset = integer(het.get("job_offset"))
    if leader is not None:
        task = integer(array.get("task_id"))
        span = array.get("task")
        tasks = str(task) if task is not None else span if isinstance(span, str) and span else None
        shown = f"{leader}_{task}" if task is not None else f"{leader}_[{tasks}]" if tasks else str(job_id)
        return {"shown_id": shown, "array_job_id": str(leader), "array_task_id": tasks}
    if first is not None:
        return {"shown_id": f"{first}+{offset or 0}", "het_job_id": str(first), "het_offset": offset}
    return {"shown_id": str(job_id)}


def _tres(row: Map, key: str) -> Amounts | None:
    return amounts_json(map_in(row, "tres").get(key)) if key == "allocated" or "job_id" in row else None


def _code(row: Map, key: str) -> tuple[int | None, int | None]:
    value = map_in(row, key)
    if "return_code" not in value:
        return None, None
    inner = value.get("signal") or {}
    signal = inner.get("id", inner.get("signal_id")) if isinstance(inner, dict) else None
    status = integer(value.get("return_code"))
    found = integer(signal)
    if status is None and found:
        status = 0  # what Slurm keeps, and prints as text, of a process that a signal ended
    return status, found if found is not None else None if status is None else 0


def _limit(clock: Map) -> dict[str, Any]:
    minutes = number(clock.get("limit"))
    if minutes is None:
        return {}
    return {"time_unlimited": True} if isinf(minutes) else {"time_limit_s": minutes * 60, "time_unlimited": False}


def _cpu(clock: Map, key: str) -> float | None:
    value = map_in(clock, key)
    seconds, micro = integer(value.get("seconds")), integer(value.get("microseconds"))
    return None if seconds is None else seconds + (micro or 0) / 1e6


def _largest(used: Map, name: str) -> int | None:
    found = [row for row in used.get("max") or () if isinstance(row, dict) and row.get("type") == name]
    return integer(found[0].get("count")) if found else None


def _energy(row: Map) -> float | None:
    return _finite(map_in(map_in(row, "statistics"), "energy").get("consumed"))


def _reason(state: Map) -> str | None:
    value = free_text(state, "reason")
    return None if value is None or value.lower() == "none" else value


def _rest(row: Map) -> dict[str, str] | None:
    """Return further texts under the names that sacct gives them."""
    names = {"block": "BlockID", "extra": "Extra", "failed_node": "FailedNode", "licenses": "Licenses"}
    names |= {"stdout": "StdOut", "stderr": "StdErr", "stdin": "StdIn", "qosreq": "QOSREQ"}
    found = {name: text for key, name in names.items() if isinstance(text := row.get(key), str) and text}
    if isinstance(label := map_in(row, "mcs").get("label"), str) and label:
        found["McsLabel"] = label
    return found or None


def _nodes(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip().lower() not in _NO_NODES else None


def _named(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _joined(value: Any) -> str | None:
    return "+".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else None


def _finite(value: Any) -> float | None:
    found = number(value)
    return None if found is None or isinf(found) or found < 0 else found
