"""Jobs from JSON (``squeue --json``, slurmrestd; v0.0.38 to v0.0.42): what JobEvents need, and all columns.

An answer of a hundred thousand jobs is half a gigabyte, of which most is not read. So the fields that are read stand in
a struct, and msgspec skips the others. What it can't decode (bare Infinity, raw newlines, warnings before the answer, a
row that is no object) goes the slower way through `jsonfix`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heeler.slurm import jobvalues, jsonfix
from heeler.slurm.collect import Table
from heeler.slurm.errors import ParseError
from heeler.slurm.jobs import Job, JobsAnswer, flag, gpus_of, id_of, is_exclusive, node_order, parse_job_json
from heeler.slurm.jobvalues import MIB, NS, Requests
from heeler.slurm.jsonnumbers import epoch_ns, identifier, integer, number
from heeler.slurm.rows import Row, Unreadable, free_text, optional, rows_of, version_of
from heeler.slurm.state import JobFlags
from heeler.slurm.tablebuilder import TableBuilder

_PARTIAL = re.compile(r"truncat|partial|incomplete|not all|omitt", re.IGNORECASE)


class _Host(msgspec.Struct):
    name: Any = None
    nodename: Any = None


class _Hosts(msgspec.Struct):
    whole: Any = None
    allocation: list[_Host] = []


class _Resources(msgspec.Struct):
    nodes: _Hosts | str | None = None
    allocated_nodes: list[_Host] | None = None


_resources = msgspec.json.Decoder(_Resources)


class JobRow(msgspec.Struct, gc=False):
    """The fields of a job that are read. Their types differ between versions."""

    account: Any = None
    accrue_time: Any = None
    admin_comment: Any = None
    array_job_id: Any = None
    array_max_tasks: Any = None
    array_task_id: Any = None
    array_task_string: Any = None
    batch_flag: Any = None
    batch_host: Any = None
    command: Any = None
    comment: Any = None
    container: Any = None
    cpus: Any = None
    cpus_per_task: Any = None
    current_working_directory: Any = None
    deadline: Any = None
    dependency: Any = None
    eligible_time: Any = None
    end_time: Any = None
    excluded_nodes: Any = None
    exit_code: Any = None
    features: Any = None
    gres_detail: Any = None
    group_name: Any = None
    het_job_id: Any = None
    het_job_offset: Any = None
    hold: Any = None
    job_id: Any = None
    job_resources: msgspec.Raw = msgspec.Raw()
    job_state: Any = None
    last_sched_evaluation: Any = None
    licenses: Any = None
    memory_per_cpu: Any = None
    memory_per_node: Any = None
    minimum_cpus_per_node: Any = None
    minimum_tmp_disk_per_node: Any = None
    name: Any = None
    nice: Any = None
    node_count: Any = None
    nodes: Any = None
    partition: Any = None
    pre_sus_time: Any = None
    preempt_time: Any = None
    priority: Any = None
    qos: Any = None
    requeue: Any = None
    required_nodes: Any = None
    restart_cnt: Any = None
    resv_name: Any = None
    scheduled_nodes: Any = None
    shared: Any = None
    start_time: Any = None
    state_description: Any = None
    state_reason: Any = None
    submit_time: Any = None
    suspend_time: Any = None
    system_comment: Any = None
    tasks: Any = None
    time_limit: Any = None
    tres_alloc_str: Any = None
    tres_per_job: Any = None
    tres_per_node: Any = None
    tres_per_socket: Any = None
    tres_per_task: Any = None
    tres_req_str: Any = None
    user_id: Any = None
    user_name: Any = None
    wckey: Any = None

    def get(self, key: str, default: Any = None, /) -> Any:
        """Return a field, as a map would."""
        return self._hosts() if key == "job_resources" else getattr(self, key, default)

    def _hosts(self) -> Any:
        """Return a job's resources without the cores of its nodes, or None where they are not as expected."""
        raw = bytes(self.job_resources)
        try:
            return msgspec.to_builtins(_resources.decode(raw)) if raw else None
        except msgspec.DecodeError:
            return None


class _Answer(msgspec.Struct):
    jobs: list[JobRow] | None = None
    errors: Any = None
    warnings: Any = None
    meta: Any = None


_answer = msgspec.json.Decoder(_Answer)


def parse_jobs_json(
    answer: str | bytes | Mapping[str, Any], *, now_ns: int = 0, with_table: bool = False
) -> JobsAnswer:
    """Return the jobs of a JSON answer, with the table `jobs` as of `now_ns` where asked for.

    Raises ParseError where the answer is no list of jobs, or lists errors.
    """
    rows, value = _rows(answer)
    unreadable = [Unreadable(None, f"Slurm warns: {text}") for text in warnings_of(value) if _PARTIAL.search(text)]
    jobs: list[Job] = []
    builder = TableBuilder("jobs", unreadable=list(unreadable)) if with_table else None
    for row in rows:
        try:
            jobs.append(parse_job_json(row))
        except ParseError as err:
            unreadable.append(Unreadable(id_of(row), str(err)))
        if builder is not None:
            try:
                builder.add(columns_of(row, now_ns))
            except ParseError as err:
                builder.unreadable.append(Unreadable(id_of(row), str(err)))
    version = version_of(value)
    table: Table | None = builder.build(version) if builder is not None else None
    return JobsAnswer(tuple(jobs), tuple(unreadable), version, table)


def warnings_of(value: Mapping[str, Any]) -> list[str]:
    """Return the words of Slurm's own warnings."""
    found = value.get("warnings")
    if not isinstance(found, list):
        return []
    return [str(item.get("description") or item) if isinstance(item, dict) else str(item) for item in found]


def _rows(answer: str | bytes | Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return an answer's rows, and the answer without them."""
    if isinstance(answer, str | bytes):
        try:
            found = _answer.decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            answer = jsonfix.loads(answer).value
        else:
            rest = {"errors": found.errors, "warnings": found.warnings, "meta": found.meta}
            if found.jobs is not None or found.errors:
                rows_of({**rest, "jobs": []}, "jobs")  # its errors
                return found.jobs or [], rest
            answer = rest
    return rows_of(answer, "jobs"), answer


def columns_of(row: Any, now_ns: int) -> dict[str, Any]:
    """Return the columns of one job. Raises ParseError."""
    job_id = id_of(row)
    if job_id is None:
        raise ParseError("a job without an id", row)
    state = jobvalues.state_of(row.get("job_state"))
    waits = not (state.holds or state.ended)
    start_ns, end_ns = _stamp(row, "start_time"), _stamp(row, "end_time")
    submit_ns = _stamp(row, "submit_time")
    limit = number(row.get("time_limit"))
    per_node, per_cpu = _mib(row, "memory_per_node"), _mib(row, "memory_per_cpu")
    reason = optional(row, "state_reason")
    asks = Requests(
        per_node=optional(row, "tres_per_node"),
        per_job=optional(row, "tres_per_job"),
        per_task=optional(row, "tres_per_task"),
        per_socket=optional(row, "tres_per_socket"),
        nodes=_whole(row.get("node_count")),
        tasks=_whole(row.get("tasks")),
    )
    values: dict[str, Any] = {
        "job_id": job_id,
        "name": free_text(row, "name"),
        "user": optional(row, "user_name"),
        "user_id": _whole(row.get("user_id")),
        "group": optional(row, "group_name"),
        "account": optional(row, "account"),
        "partition": optional(row, "partition"),
        "qos": optional(row, "qos"),
        "wckey": optional(row, "wckey"),
        "reason_detail": free_text(row, "state_description"),
        "nice": integer(row.get("nice"), signed=True),
        "submit_ts": submit_ns,
        "eligible_ts": _stamp(row, "eligible_time"),
        "accrue_ts": _stamp(row, "accrue_time"),
        "start_ts": start_ns,
        "end_ts": end_ns,
        "deadline_ts": _stamp(row, "deadline"),
        "suspended_ts": _stamp(row, "suspend_time"),
        "preempt_ts": _stamp(row, "preempt_time"),
        "last_sched_eval_ts": _stamp(row, "last_sched_evaluation"),
        "restarts": _whole(row.get("restart_cnt")),
        "requeue": flag(row, "requeue"),
        "batch": flag(row, "batch_flag"),
        "exclusive": is_exclusive(row),
        "node_count": asks.nodes,
        "scheduled_nodes": jobvalues.nodes_of(optional(row, "scheduled_nodes")),
        "required_nodes": jobvalues.nodes_of(optional(row, "required_nodes")),
        "excluded_nodes": jobvalues.nodes_of(optional(row, "excluded_nodes")),
        "batch_host": optional(row, "batch_host"),
        "cpus": _whole(row.get("cpus")),
        "tasks": asks.tasks,
        "cpus_per_task": _whole(row.get("cpus_per_task")),
        "min_cpus_per_node": _whole(row.get("minimum_cpus_per_node")),
        "memory_per_node_bytes": per_node,
        "memory_per_cpu_bytes": per_cpu,
        "min_memory_bytes": per_node if per_cpu is None else per_cpu,
        "min_tmp_disk_bytes": _mib(row, "minimum_tmp_disk_per_node"),
        "licenses": optional(row, "licenses"),
        "features": optional(row, "features"),
        "dependency": optional(row, "dependency"),
        "reservation": optional(row, "resv_name"),
        "container": optional(row, "container"),
        "command": optional(row, "command"),
        "work_dir": optional(row, "current_working_directory"),
        "comment": _comment(row),
        "admin_comment": free_text(row, "admin_comment"),
        "system_comment": free_text(row, "system_comment"),
    }
    values |= jobvalues.status(state, None if reason == "None" else reason, _whole(row.get("priority")))
    if (hold := row.get("hold")) is not None:
        values["hold"] = hold
    values |= jobvalues.times(
        state,
        now_ns,
        submit_ns=submit_ns,
        start_ns=start_ns,
        elapsed_s=_elapsed(row, state, start_ns, end_ns, now_ns),
        limit_s=None if limit is None else limit * 60,
    )
    values |= jobvalues.requested(asks, jobvalues.tres_of(optional(row, "tres_req_str")))
    values |= _ids(row, job_id)
    if waits:
        values |= {**jobvalues.NOTHING, "nodes": []}
    else:
        values |= _had(row, asks)
    if state.ended:
        values["exit_code"], values["exit_signal"] = _exit(row.get("exit_code"))
    return values


def _had(row: Row, asks: Requests) -> dict[str, Any]:
    """Return the columns of what a job has or had."""
    nodes = jobvalues.nodes_of(optional(row, "nodes"))
    values = {"nodes": nodes, **jobvalues.allocated(jobvalues.tres_of(optional(row, "tres_alloc_str")), asks)}
    gpus = gpus_of(row, tuple(nodes))
    detail = row.get("gres_detail")
    if isinstance(detail, list) and len(detail) == len(nodes) and detail:
        order = node_order(row, tuple(nodes))
        values["gres_detail"] = [f"{node}={text}" for node, text in zip(order, detail, strict=True)]
        if gpus.source != "unknown" and not values.get("gpus_allocated_by_type"):
            values["gpus_allocated_by_type"] = _by_type(detail)
    if gpus.by_node:
        values["gpu_indices"] = [f"{node}={jobvalues.index_text(found)}" for node, found in gpus.by_node.items()]
        if values.get("gpus_allocated") is None and len(gpus.by_node) == len(nodes):
            values["gpus_allocated"] = sum(map(len, gpus.by_node.values()))
    if gpus.source == "none" and values.get("gpus_allocated") is None:
        values["gpus_allocated"] = 0
    if values.get("gpus_source") != "none":
        values["gpus_source"] = gpus.source
    return values


def _by_type(detail: Sequence[str]) -> dict[str, int] | None:
    """Return the GPUs of all nodes by type; None where one has no type."""
    found: dict[str, int] = {}
    for gres in (gres for text in detail for gres in jobvalues.gres_of(text) if gres.name == "gpu" and gres.count):
        if gres.type is None:
            return None
        found[gres.type] = found.get(gres.type, 0) + gres.count
    return found or None


def _ids(row: Row, job_id: str) -> dict[str, Any]:
    """Return the columns that say what a job is part of."""
    array, task = identifier(row.get("array_job_id")), integer(row.get("array_task_id"))
    het, text = identifier(row.get("het_job_id")), optional(row, "array_task_string")
    values: dict[str, Any] = {"job_ref": job_id}
    if array is not None:
        throttle = integer(row.get("array_max_tasks")) or None
        values |= {"array_job_id": str(array), "array_throttle": throttle}
        if text:
            tasks, count, said = jobvalues.array_tasks(text)
            values |= {"array_tasks": tasks, "array_task_count": count, "array_throttle": said or throttle}
            values["job_ref"] = f"{array}_[{text}]"
        elif task is not None:
            values |= {"array_task_id": task, "job_ref": f"{array}_{task}"}
    if het is not None:
        offset = integer(row.get("het_job_offset"))
        values |= {"het_job_id": str(het), "het_job_offset": offset}
        if offset is not None:
            values["job_ref"] = f"{het}+{offset}"
    return values


def _elapsed(row: Row, state: JobFlags, start_ns: int | None, end_ns: int | None, now_ns: int) -> float | None:
    """Return how long a job ran, without the time that it was suspended, as Slurm counts it."""
    if not (state.holds or state.ended):
        return 0
    if start_ns is None:
        return None
    before = integer(row.get("pre_sus_time")) or 0
    if state.name == "SUSPENDED":
        return before
    over = end_ns is not None and (state.ended or state.name == "COMPLETING") and end_ns <= now_ns
    until = end_ns if over and end_ns is not None else now_ns
    resumed = _stamp(row, "suspend_time")
    return max(until - (start_ns if resumed is None else resumed), 0) / NS + (0 if resumed is None else before)


def _comment(row: Row) -> str | None:
    value = row.get("comment")
    return free_text(value, "job") if isinstance(value, dict) else free_text(row, "comment")


def _exit(value: Any) -> tuple[int | None, int | None]:
    """Return exit status and signal; older versions have wait's word for both."""
    if isinstance(value, dict):
        signal = value.get("signal")
        signal = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else None
        return integer(value.get("return_code")), identifier(signal)
    word = integer(value)
    return (None, None) if word is None else (word >> 8, word & 0x7F or None)


def _stamp(row: Row, key: str) -> int | None:
    value = row.get(key)
    if type(value) is dict:
        whole = value.get("number")
        if type(whole) is int and 0 < whole < 1 << 32 and value.get("set") is True and value.get("infinite") is False:
            return whole * NS
    return epoch_ns(value)


def _whole(value: Any) -> int | None:
    if type(value) is dict:
        whole = value.get("number")
        if type(whole) is int and 0 <= whole < 1 << 31 and value.get("set") is True and value.get("infinite") is False:
            return whole
    elif type(value) is int and 0 <= value < 1 << 31:
        return value
    return integer(value)


def _mib(row: Row, key: str) -> int | None:
    found = _whole(row.get(key))
    return None if found is None else found * MIB
