"""The table `jobs` of rows of JSON, some rows at a time: column by column, and by its different values."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import astuple, fields

from heeler.slurm import jobvalues
from heeler.slurm.errors import ParseError
from heeler.slurm.jobcolumns import Columns, Memo
from heeler.slurm.jobrow import ExitCode, JobRow, Resources, plain_all
from heeler.slurm.jobs import (
    AnyJob,
    Gpus,
    Waiting,
    detail_of,
    exclusive_of,
    flag_of,
    gpus_of,
    id_of,
    is_whole,
    node_order,
)
from heeler.slurm.jobvalues import MIB, NS
from heeler.slurm.jsonnumbers import NO_VAL32, epoch_ns, identifier, integer, number
from heeler.slurm.rows import MAX_TEXT, Row, free_text
from heeler.slurm.state import JobFlags

SHARES = {"shard": "shards_allocated", "mps": "mps_allocated"}
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
_INTEGERS, _FLAGS, _WORDS = frozenset((int,)), frozenset((bool, type(None))), frozenset((str,))
_NUMERIC, _TEXTUAL = frozenset((int, float, str, type(None))), frozenset((str, type(None)))
_FIELDS = tuple(field.name for field in fields(JobRow))
# By job: looking for equal ones is no use.
_DIFFERENT = frozenset(("name", "command", "current_working_directory", "nodes"))
_NULL_BEGINS = frozenset(("", "(", "N", "n"))
ASKS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")


class Rows:
    """Rows of JSON that have an id, and their table's columns. Structs or maps; `said` gives a column of either."""

    def __init__(self, rows: Sequence[Any], ids: Sequence[str], now_ns: int, memo: Memo | None = None) -> None:
        """Read all columns. `memo`: what was made of the values of rows before."""
        self.rows, self.ids, self._now_ns = rows, ids, now_ns
        self._structs = set(map(type, rows)) == {JobRow}
        self._said: dict[str, Sequence[Any]] = {}
        if self._structs:
            self._said = dict(zip(_FIELDS, zip(*map(astuple, rows), strict=True), strict=True))
        self.columns = Columns(len(rows), Memo() if memo is None else memo)
        self.gpus: dict[int, Gpus] = {}  # of the rows that have nodes
        self.tasks: dict[int, str] = {}  # of the rows that are an array's
        self._read()

    def jobs(self) -> list[AnyJob]:
        """Return all rows as JobEvents need them, where all could be read."""
        columns = self.columns
        failed = self._failed
        waiting = zip(self.ids, columns.states, columns.found["restarts"], failed, strict=True)
        return [
            Waiting(*about) if wait else columns.job(at, self.gpus[at], self.tasks.get(at), failed[at])
            for at, (wait, about) in enumerate(zip(columns.waits, waiting, strict=True))
        ]

    def said(self, key: str) -> Sequence[Any]:
        """Return a field of all rows."""
        return self._said[key] if self._structs else [row.get(key) for row in self.rows]

    def numbers(self, key: str, read: Callable[[Any], Any]) -> list[Any]:
        """Return a field of all rows as `read` has it."""
        values = plain_all(self.said(key))
        # True equals 1 and is no number, so a column with a yes or no is read one by one.
        plain = _NUMERIC.issuperset(map(type, values))
        return self.columns.read(values, read) if plain else self.columns.each(values, read)

    def whole(self, key: str) -> list[Any]:
        """Return a field of whole numbers."""
        values = plain_all(self.said(key))
        return list(values) if _are_usual(values, 1 << 31) else self.numbers(key, _whole)

    def stamps(self, key: str) -> list[Any]:
        """Return a field of times."""
        values = plain_all(self.said(key))
        if _are_usual(values, NO_VAL32):
            return [value * NS if value else None for value in values]
        return self.numbers(key, _stamp)

    def texts(self, key: str) -> list[Any]:
        """Return a field of texts."""
        return self._texts(key, _optional)

    def free_texts(self, key: str) -> list[Any]:
        """Return a field that people write."""
        return self._texts(key, _free)

    def _texts(self, key: str, read: Callable[[Any], Any]) -> list[Any]:
        values = self.said(key)
        if key in _DIFFERENT and self._structs and None not in values and "".join(values).isascii():
            short = max(map(len, values), default=0) <= MAX_TEXT
            return [value if short and value[:1] not in _NULL_BEGINS else read(value) for value in values]
        # Structs have nothing but texts.
        plain = self._structs or _TEXTUAL.issuperset(map(type, values))
        return self.columns.read(values, read) if plain else self.columns.each(values, read)

    def flags(self, key: str) -> list[Any]:
        """Return a field of yes and no."""
        values = plain_all(self.said(key))
        return list(values) if _FLAGS.issuperset(map(type, values)) else self.columns.each(values, flag_of)

    def _read(self) -> None:
        columns, found = self.columns, self.columns.found
        for keys, read in (
            (TEXTS, self.texts),
            (FREE_TEXTS, self.free_texts),
            (STAMPS, self.stamps),
            (NUMBERS, self.whole),
        ):
            found |= {name: read(key) for name, key in keys.items()}
        found |= {name: self.numbers(key, _mib) for name, key in MEMORY.items()}
        by_node, by_cpu = found["memory_per_node_bytes"], found["memory_per_cpu_bytes"]
        found["min_memory_bytes"] = [a if b is None else b for a, b in zip(by_node, by_cpu, strict=True)]
        found["nice"] = self.numbers("nice", _signed)
        comments = self.said("comment")
        textual = _TEXTUAL.issuperset(map(type, comments))
        found["comment"] = columns.read(comments, _free) if textual else columns.each(comments, _comment)
        found |= {"requeue": self.flags("requeue"), "batch": self.flags("batch_flag")}
        wholes = [False if one is None else is_whole(one) for one in self._resources()]
        found["exclusive"] = [
            "none" in said if type(said) is list and not whole else exclusive_of(said, whole=whole)
            for said, whole in zip(self.said("shared"), wholes, strict=True)
        ]
        for key in ("scheduled_nodes", "required_nodes", "excluded_nodes"):
            found[key] = columns.read(self.texts(key), jobvalues.nodes_of, keep=False)
        columns.set_states(_hashable(self.said("job_state")), self.texts("state_reason"), self.whole("priority"))
        held = zip(self.said("hold"), found["hold"], strict=True)
        found["hold"] = [old if new is None else bool(new) for new, old in held]
        self._set_elapsed()
        columns.set_times(self._now_ns, self.numbers("time_limit", _minutes))
        waits = columns.waits
        had = [None if wait else text for wait, text in zip(waits, self.texts("tres_alloc_str"), strict=True)]
        asks = [self.texts(key) for key in ASKS]
        columns.set_resources(self.texts("tres_req_str"), had, (*asks, found["node_count"], found["tasks"]))
        self._set_ids()
        nodes = [None if wait else text for wait, text in zip(waits, self.texts("nodes"), strict=True)]
        found["nodes"] = columns.read(nodes, jobvalues.nodes_of, keep=False)
        self._set_gpus()
        self._set_exits()
        self._failed = self.texts("failed_node")

    def _resources(self) -> Sequence[Any]:
        """Return the resources of jobs that have some; those of most waiting jobs are as empty as none."""
        said = self.said("job_resources")
        return [None if type(one) is Resources and one.nodes is None else one for one in said]

    def _at(self, at: int, read: Callable[[Any], Any]) -> Any:
        """Return what `read` has of a row; None where that can't be read, which makes the row unreadable."""
        try:
            return read(self.rows[at])
        except ParseError as err:
            self.columns.bad.setdefault(at, str(err))
            return None

    def _set_elapsed(self) -> None:
        columns = self.columns
        found = columns.found
        elapsed: list[Any] = [0] * columns.rows
        found["elapsed_s"] = elapsed
        for at, (wait, state) in enumerate(zip(columns.waits, columns.states, strict=True)):
            if not wait:
                start_ns, end_ns = found["start_ts"][at], found["end_ts"][at]
                resumed_ns = found["suspended_ts"][at]
                elapsed[at] = self._at(
                    at, partial(_elapsed, state, self._now_ns, start_ns=start_ns, end_ns=end_ns, resumed_ns=resumed_ns)
                )

    def _set_exits(self) -> None:
        found, rows = self.columns.found, self.columns.rows
        codes: list[Any] = [None] * rows
        signals: list[Any] = [None] * rows
        found["exit_code"], found["exit_signal"] = codes, signals
        for at, state in enumerate(self.columns.states):
            if state.ended and (two := self._at(at, _exit)):
                codes[at], signals[at] = two

    def _set_ids(self) -> None:
        """Make the columns that say what jobs are part of: from the id that people write, and what else is told."""
        columns, found = self.columns, self.columns.found
        refs, arrays, hets = list(self.ids), self.whole("array_job_id"), self.whole("het_job_id")
        parts = [at for at, two in enumerate(zip(arrays, hets, strict=True)) if any(two)]
        tasks: Sequence[Any] = ()
        if parts:
            tasks, texts = self.whole("array_task_id"), self.texts("array_task_string")
            throttles, offsets = self.whole("array_max_tasks"), self.whole("het_job_offset")
        for at in parts:
            array, het = arrays[at], hets[at]
            if array and texts[at]:
                refs[at] = f"{array}_[{texts[at]}]"
            elif array and tasks[at] is not None:
                refs[at] = f"{array}_{tasks[at]}"
            if het and offsets[at] is not None:
                refs[at] = f"{het}+{offsets[at]}"
        columns.set_ids(list(self.ids), refs)
        for at in parts:
            array, het = arrays[at], hets[at]
            found["array_job_id"][at] = str(array) if array else None
            found["array_throttle"][at] = found["array_throttle"][at] or (throttles[at] if array else None) or None
            found["het_job_id"][at], found["het_job_offset"][at] = (str(het), offsets[at]) if het else (None, None)
            if array and tasks[at] is not None:
                self.tasks[at] = str(tasks[at])

    def _set_gpus(self) -> None:
        """Make the columns of GPUs by node, and what they tell beyond the counts."""
        columns, found = self.columns, self.columns.found
        found["gres_detail"], found["gpu_indices"] = [None] * columns.rows, [None] * columns.rows
        for at, (wait, nodes) in enumerate(zip(columns.waits, found["nodes"], strict=True)):
            if not wait and nodes is not None:
                self._set_gpus_at(at, self.rows[at], tuple(nodes))

    def _set_gpus_at(self, at: int, row: Row, nodes: tuple[str, ...]) -> None:
        found = self.columns.found
        counts, types, sources = found["gpus_allocated"], found["gpus_allocated_by_type"], found["gpus_source"]
        gpus = self.gpus[at] = gpus_of(row, nodes)
        detail = detail_of(row, nodes)
        if detail is not None and _WORDS.issuperset(map(type, detail)):
            by_node = gpus.by_node or {}
            order = tuple(by_node) if len(by_node) == len(nodes) else node_order(row, nodes)
            found["gres_detail"][at] = [f"{node}={text}" for node, text in zip(order, detail, strict=True)]
            if gpus.source != "unknown" and not types[at]:
                types[at] = _by_type(detail)
            _set_shares(found, at, detail)
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


def ids_of(rows: Sequence[Any]) -> list[str | None]:
    """Return the job ids of rows, None for one that has none that can be."""
    if set(map(type, rows)) == {JobRow}:
        numbers = [row.job_id for row in rows]
        if set(map(type, numbers)) == _INTEGERS and min(numbers) > 0 and max(numbers) < NO_VAL32:
            return list(map(str, numbers))
    return [id_of(row) for row in rows]


def _are_usual(values: Sequence[Any], limit: int) -> bool:
    """Whether all are whole numbers from 0 to below the limit, or none at all: what nine of ten columns hold."""
    some = values
    types = set(map(type, values))
    if type(None) in types:
        types.discard(type(None))
        some = list(filter(None, values))
    return types <= _INTEGERS and (not some or (min(some) >= 0 and max(some) < limit))


def _hashable(values: Sequence[Any]) -> list[Any]:
    """Return states in a form that can be looked up; what can't is no state."""
    if set(map(type, values)) == {list}:
        words = list(map(tuple, values))
        if _WORDS.issuperset(map(type, chain.from_iterable(words))):
            return words
    return [value if type(value) is str else _words(value) for value in values]


def _words(value: Any) -> Any:
    if type(value) is not list:
        return repr(value)
    words = tuple(value)
    return words if _WORDS.issuperset(map(type, words)) else repr(words)


def _by_type(detail: Sequence[str]) -> dict[str, int] | None:
    """Return the GPUs of all nodes by type; None where one has no type."""
    found: dict[str, int] = {}
    for text, times in Counter(detail).items():
        for gres in jobvalues.gres_of(text):
            if gres.name == "gpu" and gres.count:
                if gres.type is None:
                    return None
                found[gres.type] = found.get(gres.type, 0) + gres.count * times
    return found or None


def _set_shares(found: Mapping[str, list[Any]], at: int, detail: Sequence[str]) -> None:
    """Fill in the shards and MPS shares that a job has on all its nodes, where the site does not account for them."""
    for kind, name in SHARES.items():
        if found[name][at] is None:
            with suppress(ParseError):
                found[name][at] = sum(
                    gres.count for text in detail for gres in jobvalues.gres_of(text) if gres.name == kind
                )


def _elapsed(
    state: JobFlags, now_ns: int, row: Row, *, start_ns: int | None, end_ns: int | None, resumed_ns: int | None
) -> float | None:
    """Return how long a job ran, without the time that it was suspended, as Slurm counts it."""
    if start_ns is None:
        return None
    before = _whole(row.get("pre_sus_time")) or 0
    if state.name == "SUSPENDED":
        return before
    over = end_ns is not None and (state.ended or state.name == "COMPLETING") and end_ns <= now_ns
    until = end_ns if over and end_ns is not None else now_ns
    return max(until - (start_ns if resumed_ns is None else resumed_ns), 0) / NS + (0 if resumed_ns is None else before)


def _comment(value: Any) -> str | None:
    return free_text(value if isinstance(value, dict) else {"job": value}, "job")


def _exit(row: Row) -> tuple[int | None, int | None]:
    """Return exit status and signal; older versions have wait's word for both."""
    value = row.get("exit_code")
    if type(value) is ExitCode:
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        signal = value.get("signal")
        signal = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else None
        return integer(value.get("return_code")), identifier(signal)
    word = integer(value)
    return (None, None) if word is None else jobvalues.exit_of_word(word)


def _minutes(value: Any) -> float | None:
    found = None if value is None else number(value)
    return None if found is None else found * 60


def _stamp(value: Any) -> int | None:
    if value is None or value == 0:
        return None
    return value * NS if type(value) is int and 0 < value < NO_VAL32 else epoch_ns(value)


def _whole(value: Any) -> int | None:
    return value if value is None or (type(value) is int and 0 <= value < 1 << 31) else integer(value)


def _signed(value: Any) -> int | None:
    return integer(value, signed=True)


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
