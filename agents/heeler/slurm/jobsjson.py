"""Jobs from JSON (``squeue --json``, slurmrestd; v0.0.38 to v0.0.42): what JobEvents need, and all columns.

An answer of a hundred thousand jobs is half a gigabyte, of which most is not read. So the fields that are read stand in
a struct, and msgspec skips the others. What it can't decode (bare Infinity, raw newlines, warnings before the answer, a
row that is no object) goes the slower way through `jsonfix`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from heeler.slurm import jobvalues, jsonfix
from heeler.slurm.errors import ParseError
from heeler.slurm.jobcolumns import Columns, Growing
from heeler.slurm.jobs import Job, JobsAnswer, flag, gpus_of, id_of, is_exclusive, node_order, parse_job_json
from heeler.slurm.jobvalues import MIB, NS
from heeler.slurm.jsonnumbers import NO_VAL32, epoch_ns, identifier, integer, number
from heeler.slurm.rows import MAX_TEXT, Row, Unreadable, free_text, optional, rows_of, version_of
from heeler.slurm.state import JobFlags

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
    jobs: list[msgspec.Raw] | None = None
    errors: Any = None
    warnings: Any = None
    meta: Any = None


_answer = msgspec.json.Decoder(_Answer)
_row = msgspec.json.Decoder(JobRow)
CHUNK = 2000  # rows that are read at a time: what is not needed of them goes before the next


def parse_jobs_json(
    answer: str | bytes | Mapping[str, Any], *, now_ns: int = 0, with_table: bool = False
) -> JobsAnswer:
    """Return the jobs of a JSON answer, with the table `jobs` as of `now_ns` where asked for.

    Raises ParseError where the answer is no list of jobs, or lists errors.
    """
    rows, value = _rows(answer)
    said = [Unreadable(None, f"Slurm warns: {text}") for text in warnings_of(value) if _PARTIAL.search(text)]
    jobs: list[Job] = []
    unreadable = list(said)
    version = version_of(value)
    table = Growing({}, said, version) if with_table else None
    for at in range(0, len(rows), CHUNK):
        some = [_decoded(row) for row in rows[at : at + CHUNK]]
        for row in some:
            try:
                jobs.append(parse_job_json(row))
            except ParseError as err:
                unreadable.append(Unreadable(id_of(row), str(err)))
        if table is not None:
            named = [row for row in some if id_of(row) is not None]
            table.unreadable += [
                Unreadable(None, str(ParseError("a job without an id", row))) for row in some if id_of(row) is None
            ]
            table.add(_columns(named, now_ns))
    return JobsAnswer(tuple(jobs), tuple(unreadable), version, table.table() if table is not None else None)


def _decoded(row: Any) -> Any:
    """Return a row as a struct; as what it is where it is none."""
    if not isinstance(row, msgspec.Raw):
        return row
    try:
        return _row.decode(row)
    except msgspec.DecodeError:
        return bytes(row)[:400].decode(errors="replace")


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


TEXTS = {
    "user": "user_name",
    "group": "group_name",
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "wckey": "wckey",
    "batch_host": "batch_host",
    "licenses": "licenses",
    "features": "features",
    "dependency": "dependency",
    "reservation": "resv_name",
    "container": "container",
    "command": "command",
    "work_dir": "current_working_directory",
}
FREE_TEXTS = {
    "name": "name",
    "reason_detail": "state_description",
    "admin_comment": "admin_comment",
    "system_comment": "system_comment",
}
STAMPS = {
    "submit_ts": "submit_time",
    "eligible_ts": "eligible_time",
    "accrue_ts": "accrue_time",
    "start_ts": "start_time",
    "end_ts": "end_time",
    "deadline_ts": "deadline",
    "suspended_ts": "suspend_time",
    "preempt_ts": "preempt_time",
    "last_sched_eval_ts": "last_sched_evaluation",
}
NUMBERS = {
    "user_id": "user_id",
    "restarts": "restart_cnt",
    "node_count": "node_count",
    "cpus": "cpus",
    "tasks": "tasks",
    "cpus_per_task": "cpus_per_task",
    "min_cpus_per_node": "minimum_cpus_per_node",
}
MEMORY = {
    "memory_per_node_bytes": "memory_per_node",
    "memory_per_cpu_bytes": "memory_per_cpu",
    "min_tmp_disk_bytes": "minimum_tmp_disk_per_node",
}
ASKS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")


def _columns(rows: Sequence[Any], now_ns: int) -> Columns:
    """Return all columns of rows that have an id."""
    columns = Columns(len(rows))
    found = columns.found
    structs = all(type(row) is JobRow for row in rows)

    def said(key: str) -> list[Any]:
        return list(map(attrgetter(key), rows)) if structs else [row.get(key) for row in rows]

    def texts(key: str, read: Callable[[Any], Any] = _optional) -> list[Any]:
        values = said(key)
        plain = {str, type(None)}.issuperset(map(type, values))
        return columns.read(values, read) if plain else columns.each(values, read)

    for name, key in TEXTS.items():
        found[name] = texts(key)
    for name, key in FREE_TEXTS.items():
        found[name] = texts(key, _free)
    for name, key in STAMPS.items():
        found[name] = columns.each(said(key), _stamp)
    for name, key in NUMBERS.items():
        found[name] = columns.each(said(key), _whole)
    for name, key in MEMORY.items():
        found[name] = columns.each(said(key), _mib)
    by_node, by_cpu = found["memory_per_node_bytes"], found["memory_per_cpu_bytes"]
    found["min_memory_bytes"] = [a if b is None else b for a, b in zip(by_node, by_cpu, strict=True)]
    found["nice"] = columns.each(said("nice"), lambda value: value if value == 0 else integer(value, signed=True))
    found["comment"] = columns.each(rows, _comment)
    for name, key in (("requeue", "requeue"), ("batch", "batch_flag")):
        found[name] = columns.each(rows, partial(flag, key=key))
    found["exclusive"] = columns.each(rows, is_exclusive)
    for key in ("scheduled_nodes", "required_nodes", "excluded_nodes"):
        found[key] = columns.read(texts(key), jobvalues.nodes_of)
    states = [tuple(state) if type(state) is list else state for state in said("job_state")]
    columns.set_states(_hashable(states), texts("state_reason"), columns.each(said("priority"), _whole))
    found["hold"] = [old if new is None else bool(new) for new, old in zip(said("hold"), found["hold"], strict=True)]
    waits = columns.waits
    found["elapsed_s"] = columns.each(
        zip(rows, columns.states, strict=True), lambda two: _elapsed(two[0], two[1], now_ns)
    )
    limits = columns.each(said("time_limit"), _minutes)
    columns.set_times(now_ns, limits)
    had = [None if wait else text for wait, text in zip(waits, texts("tres_alloc_str"), strict=True)]
    asks = [texts(key) for key in ASKS]
    columns.set_resources(texts("tres_req_str"), had, (*asks, found["node_count"], found["tasks"]))
    _set_ids(columns, rows)
    nodes = [None if wait else text for wait, text in zip(waits, texts("nodes"), strict=True)]
    found["nodes"] = columns.read(nodes, jobvalues.nodes_of)
    _set_gpus(columns, rows)
    codes = columns.each(zip(said("exit_code"), columns.states, strict=True), lambda two: _exit(*two))
    found["exit_code"] = [code[0] if code else None for code in codes]
    found["exit_signal"] = [code[1] if code else None for code in codes]
    return columns


def _set_ids(columns: Columns, rows: Sequence[Any]) -> None:
    """Make the columns that say what jobs are part of: from the id that people would write, and what else is told."""
    ids = [id_of(row) or "" for row in rows]
    told = columns.each(zip(rows, ids, strict=True), lambda two: _reference(*two))
    refs = [job_id if one is None else one[0] for one, job_id in zip(told, ids, strict=True)]
    columns.set_ids(ids, refs)
    found = columns.found
    for at, one in enumerate(told):
        if one is not None:
            _, array, throttle, het, offset = one
            found["array_job_id"][at] = array
            found["array_throttle"][at] = found["array_throttle"][at] or throttle
            found["het_job_id"][at], found["het_job_offset"][at] = het, offset


def _reference(row: Row, job_id: str) -> tuple[str, str | None, int | None, str | None, int | None] | None:
    """Return a job's name, array, throttle, het job and offset in it; None for a job that is part of nothing."""
    array, het = _whole(row.get("array_job_id")) or None, _whole(row.get("het_job_id")) or None
    if array is None and het is None:
        return None
    ref, throttle, offset = job_id, None, None
    if array is not None:
        throttle = integer(row.get("array_max_tasks")) or None
        text, task = optional(row, "array_task_string"), integer(row.get("array_task_id"))
        if text:
            ref = f"{array}_[{text}]"
        elif task is not None:
            ref = f"{array}_{task}"
    if het is not None:
        offset = integer(row.get("het_job_offset"))
        ref = ref if offset is None else f"{het}+{offset}"
    return ref, None if array is None else str(array), throttle, None if het is None else str(het), offset


def _set_gpus(columns: Columns, rows: Sequence[Any]) -> None:
    """Make the columns of GPUs by node, and what they tell beyond the counts."""
    found = columns.found
    found["gres_detail"], found["gpu_indices"] = [None] * columns.rows, [None] * columns.rows
    counts, types, sources = found["gpus_allocated"], found["gpus_allocated_by_type"], found["gpus_source"]
    for at, row in enumerate(rows):
        if columns.waits[at] or found["nodes"][at] is None:
            continue
        nodes, detail = tuple(found["nodes"][at]), row.get("gres_detail")
        gpus = gpus_of(row, nodes)
        if isinstance(detail, list) and len(detail) == len(nodes) and detail:
            order = node_order(row, nodes)
            found["gres_detail"][at] = [f"{node}={text}" for node, text in zip(order, detail, strict=True)]
            if gpus.source != "unknown" and not types[at]:
                types[at] = _by_type(detail)
        if gpus.by_node:
            found["gpu_indices"][at] = [
                f"{node}={jobvalues.index_text(indices)}" for node, indices in gpus.by_node.items()
            ]
            if counts[at] is None and len(gpus.by_node) == len(nodes):
                counts[at] = sum(map(len, gpus.by_node.values()))
        if gpus.source == "none" and counts[at] is None:
            counts[at] = 0
        if sources[at] != "none":
            sources[at] = gpus.source


def _hashable(values: list[Any]) -> list[Any]:
    """Return states in a form that can be looked up; what can't is no state."""
    return [value if isinstance(value, str) or _is_words(value) else repr(value) for value in values]


def _is_words(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(word, str) for word in value)


def _by_type(detail: Sequence[str]) -> dict[str, int] | None:
    """Return the GPUs of all nodes by type; None where one has no type."""
    found: dict[str, int] = {}
    for gres in (gres for text in detail for gres in jobvalues.gres_of(text) if gres.name == "gpu" and gres.count):
        if gres.type is None:
            return None
        found[gres.type] = found.get(gres.type, 0) + gres.count
    return found or None


def _elapsed(row: Row, state: JobFlags, now_ns: int) -> float | None:
    """Return how long a job ran, without the time that it was suspended, as Slurm counts it."""
    if not (state.holds or state.ended):
        return 0
    start_ns, end_ns = _stamp(row.get("start_time")), _stamp(row.get("end_time"))
    if start_ns is None:
        return None
    before = integer(row.get("pre_sus_time")) or 0
    if state.name == "SUSPENDED":
        return before
    over = end_ns is not None and (state.ended or state.name == "COMPLETING") and end_ns <= now_ns
    until = end_ns if over and end_ns is not None else now_ns
    resumed = _stamp(row.get("suspend_time"))
    return max(until - (start_ns if resumed is None else resumed), 0) / NS + (0 if resumed is None else before)


def _comment(row: Row) -> str | None:
    value = row.get("comment")
    return free_text(value, "job") if isinstance(value, dict) else free_text(row, "comment")


def _exit(value: Any, state: JobFlags) -> tuple[int | None, int | None] | None:
    """Return exit status and signal of an ended job; older versions have wait's word for both."""
    if not state.ended:
        return None
    if isinstance(value, dict):
        signal = value.get("signal")
        signal = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else None
        return integer(value.get("return_code")), identifier(signal)
    word = integer(value)
    return (None, None) if word is None else (word >> 8, word & 0x7F or None)


def _plain(value: Any) -> Any:
    """Return the number of an object that holds one, None for one that is not set; all else as it is.

    The objects are nine of ten values; what is odd about the others `jsonnumbers` finds out.
    """
    if type(value) is dict and value.get("infinite") is False:
        if value.get("set") is True:
            return value.get("number", value)
        if value.get("set") is False:
            return None
    return value


def _minutes(value: Any) -> float | None:
    value = _plain(value)
    found = None if value is None else number(value)
    return None if found is None else found * 60


def _stamp(value: Any) -> int | None:
    value = _plain(value)
    if value is None or value == 0:
        return None
    return value * NS if type(value) is int and 0 < value < NO_VAL32 else epoch_ns(value)


def _whole(value: Any) -> int | None:
    value = _plain(value)
    return value if value is None or (type(value) is int and 0 <= value < 1 << 31) else integer(value)


def _mib(value: Any) -> int | None:
    found = _whole(value)
    return None if found is None else found * MIB


def _free(value: Any) -> str | None:
    """Return a text that people write. Raises ParseError for another type."""
    if not value:
        if value is None or value == "":
            return None
    elif type(value) is str and len(value) <= MAX_TEXT and value.isascii():
        return value
    return free_text({"text": value}, "text")


def _optional(value: Any) -> str | None:
    found = _free(value)
    return None if found is None or (found[0] in "(Nn" and found.lower() in ("(null)", "n/a")) else found
