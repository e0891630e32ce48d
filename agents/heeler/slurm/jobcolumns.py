"""The table `jobs`, column by column: what JSON and text have in common.

A hundred thousand jobs have some hundred different users, limits, states and requests: so each different value is read
once, and a column is a look-up for each job. A value that can't be read makes its job unreadable, and no other: `bad`
says which and why, and such jobs are left out of all columns at the end.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from math import inf
from typing import Any

from heeler.bus.tables_gen import TABLES
from heeler.slurm import jobvalues
from heeler.slurm.collect import Table
from heeler.slurm.errors import ParseError
from heeler.slurm.jobid import MAX_ID, MAX_TASKS, parse_job_id
from heeler.slurm.jobs import Gpus, Job
from heeler.slurm.jobvalues import NS, PRIORITY_ONE, Requests
from heeler.slurm.packed import PackedColumns
from heeler.slurm.rows import Unreadable
from heeler.slurm.state import JobFlags

Column = list[Any]
ASKED = (
    "tres_requested",
    "tres_per_node",
    "tres_per_job",
    "tres_per_task",
    "tres_per_socket",
    "gpus_requested",
    "gpus_requested_by_type",
    "gpus_per_node_requested",
    "shards_requested",
    "mps_requested",
)
HAD = (
    "tres_allocated",
    "cpus_allocated",
    "memory_allocated_bytes",
    "nodes_allocated",
    "billing_allocated",
    "gpus_allocated",
    "gpus_allocated_by_type",
    "gpus_source",
    "shards_allocated",
    "mps_allocated",
)
PACKED = 1000  # rows that are packed at a time: they make a part of the table
MOST_KNOWN = 4096  # different values of a column that are kept
_NOT_TOLD = object()


@dataclass(slots=True)
class Memo:
    """What was made of the values of an answer, by the function that reads them."""

    _known: dict[Callable[[Any], Any], tuple[dict[Any, Any], dict[Any, str]]] = field(default_factory=dict)

    def of(self, read: Callable[[Any], Any]) -> tuple[dict[Any, Any], dict[Any, str]]:
        """Return what is known of values, and why some can't be read."""
        found = self._known.get(read)
        if found is None or len(found[0]) > MOST_KNOWN:
            found = self._known[read] = {}, {}
        return found


@dataclass(slots=True)
class Columns:
    """Columns under way, and the rows that can't be read."""

    rows: int
    memo: Memo = field(default_factory=Memo)
    found: dict[str, Column] = field(default_factory=dict)
    bad: dict[int, str] = field(default_factory=dict)
    states: list[JobFlags] = field(default_factory=list)
    waits: list[bool] = field(default_factory=list)

    def read(self, values: Sequence[Any], read: Callable[[Any], Any], *, keep: bool = True) -> Column:
        """Return each value as `read` has it; equal values are read once. Values must have a hash.

        `keep`: what `read` made of a value is kept for later columns of the answer; not what is large.
        """
        some = values
        if values and values[0] == values[-1] and values.count(values[0]) == len(values):
            some = values[:1]  # to compare is cheaper than to hash
        known, why = (self.memo if keep else Memo()).of(read)
        try:
            out = list(map(known.__getitem__, some))
        except KeyError:
            for value in set(some) - known.keys():
                try:
                    known[value] = read(value)
                except ParseError as err:
                    known[value], why[value] = None, str(err)
            out = list(map(known.__getitem__, some))
        if some is not values:
            out *= len(values)
        if why:
            for at, value in enumerate(values):
                if value in why:
                    self.bad.setdefault(at, why[value])
        return out

    def each(self, values: Iterable[Any], read: Callable[[Any], Any]) -> Column:
        """Return each value as `read` has it, for values that differ or have no hash."""
        out: Column = []
        for at, value in enumerate(values):
            try:
                out.append(read(value))
            except ParseError as err:
                self.bad.setdefault(at, str(err))
                out.append(None)
        return out

    def set_states(self, values: Sequence[Any], reasons: Column, priorities: Column) -> None:
        """Make the columns of states and of places in the queue."""
        states = self.read(values, jobvalues.state_of)
        unknown = JobFlags("UNKNOWN")
        self.states = [unknown if state is None else state for state in states]
        told = {id(state): state for state in self.states}
        waits = {key: not (state.holds or state.ended) for key, state in told.items()}
        flags = {key: list(state.flags) for key, state in told.items()}
        holds = {key: state.holds for key, state in told.items()}
        keys = [id(state) for state in self.states]
        self.waits = [waits[key] for key in keys]
        names = [state.name for state in self.states]
        found = self.found
        found["state"] = names
        found["state_flags"] = [flags[key] for key in keys]
        found["state_raw"] = [state.raw for state in self.states]
        found["holds_nodes"] = [holds[key] for key in keys]
        found["reason"] = [None if reason == "None" else reason for reason in reasons]
        found["pending_for_resources"] = [
            name == "PENDING" and reason in jobvalues.FOR_RESOURCES for name, reason in zip(names, reasons, strict=True)
        ]
        found["priority"] = priorities
        found["priority_normalized"] = [None if one is None else one / PRIORITY_ONE for one in priorities]
        found["hold"] = [
            None if one is None else one == 0 and name == "PENDING" for one, name in zip(priorities, names, strict=True)
        ]

    def set_times(self, now_ns: int, limits_s: Column) -> None:
        """Make the columns that follow from submit_ts, start_ts, elapsed_s and limits."""
        found, waits = self.found, self.waits
        starts, elapsed = found["start_ts"], found["elapsed_s"]
        found["start_expected"] = [wait and start is not None for wait, start in zip(waits, starts, strict=True)]
        until = [now_ns if wait else start for wait, start in zip(waits, starts, strict=True)]
        found["pending_s"] = [
            None if one is None or at is None else max(at - one, 0) / NS
            for one, at in zip(found["submit_ts"], until, strict=True)
        ]
        limit = [None if one == inf else one for one in limits_s]
        found["time_limit_s"] = limit
        found["time_unlimited"] = [None if one is None else one == inf for one in limits_s]
        found["time_left_s"] = [
            None if one is None or used is None else one - used for one, used in zip(limit, elapsed, strict=True)
        ]

    def set_resources(
        self, asked: Sequence[str | None] | None, had: Sequence[str | None], asks: Sequence[Column]
    ) -> None:
        """Make the columns of what jobs ask for and have.

        `asked`, `had`: TRES as text; without `asked`, a waiting job has it under `had`. `asks`: what `Requests` takes.
        """
        told = repeat(_NOT_TOLD) if asked is None else asked
        keys = list(zip(self.waits, told, had, *asks, strict=False))
        nothing = (None,) * (len(ASKED) + len(HAD))
        rows = [nothing if row is None else row for row in self.read(keys, _resources)]
        columns = zip(*rows, strict=True) if rows else repeat(())
        for name, column in zip((*ASKED, *HAD), columns, strict=False):
            self.found[name] = list(column)

    def set_ids(self, job_ids: Column, refs: Sequence[str]) -> None:
        """Make the columns that say what a job is part of, from ids as people write them."""
        array: Column = [None] * self.rows
        task, ranges, count, throttle, het, offset = (list(array) for _ in range(6))
        for at, (job_id, ref) in enumerate(zip(job_ids, refs, strict=True)):
            if ref == job_id:
                continue
            parent, _, number = ref.partition("_")
            if number.isdecimal() and parent.isdecimal() and ref.isascii() and len(ref) < 18:
                array[at], task[at] = parent, int(number)
                if not 0 < int(parent) <= MAX_ID or task[at] >= MAX_TASKS:
                    self.bad.setdefault(at, str(ParseError("not a job id", ref)))
                continue
            try:
                found = parse_job_id(ref)
            except ParseError as err:
                self.bad.setdefault(at, str(err))
                continue
            if found.tasks:
                array[at], throttle[at] = str(found.job), found.throttle
                ranges[at] = ref.partition("[")[2].rstrip("]").partition("%")[0]
                count[at] = None if found.truncated else found.task_count
            elif found.het_offset is not None:
                het[at], offset[at] = str(found.job), found.het_offset
        self.found |= {
            "job_id": job_ids,
            "job_ref": list(refs),
            "array_job_id": array,
            "array_task_id": task,
            "array_tasks": ranges,
            "array_task_count": count,
            "array_throttle": throttle,
            "het_job_id": het,
            "het_job_offset": offset,
        }

    def job(self, at: int, gpus: Gpus, task: str | None, failed_node: str | None = None) -> Job:
        """Return a row as JobEvents need it; what the columns don't tell is given."""
        found, state = self.found, self.states[at]
        return Job(
            id=found["job_id"][at],
            state=state,
            submit_ts_ns=found["submit_ts"][at],
            start_ts_ns=found["start_ts"][at],
            end_ts_ns=found["end_ts"][at] if state.ended else None,
            restarts=found["restarts"][at],
            nodes=tuple(found["nodes"][at]),
            gpus=gpus,
            array_job_id=found["array_job_id"][at],
            array_task_id=task,
            het_job_id=found["het_job_id"][at],
            user=found["user"][at],
            account=found["account"][at],
            partition=found["partition"][at],
            qos=found["qos"][at],
            name=found["name"][at],
            exclusive=found["exclusive"][at],
            requeueable=found["requeue"][at],
            batch=found["batch"][at],
            failed_node=failed_node,
        )

    def readable(self) -> tuple[int, dict[str, Column]]:
        """Return how many jobs could be read, and their columns."""
        if not self.bad:
            return self.rows, self.found
        keep = [at not in self.bad for at in range(self.rows)]
        return sum(keep), {name: list(compress(column, keep)) for name, column in self.found.items()}

    def unreadable(self) -> list[Unreadable]:
        """Return the jobs that could not be read."""
        return [Unreadable(self.found["job_id"][at], why) for at, why in sorted(self.bad.items())]


def _resources(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the columns of what a job asks for and has. Raises ParseError."""
    wait, tres_asked, tres_had, *rest = key
    requests = Requests(*rest)
    wanted = None
    if tres_asked is not _NOT_TOLD:
        wanted = jobvalues.tres_of(tres_asked)
    elif wait:
        wanted = jobvalues.tres_of(tres_had)
    one = jobvalues.requested(requests, wanted)
    other = jobvalues.NOTHING if wait else jobvalues.allocated(jobvalues.tres_of(tres_had), requests)
    return (*(one.get(name) for name in ASKED), *(other.get(name) for name in HAD))


class Growing:
    """A table that takes columns some rows at a time, so that what rows were made of is gone before the next come."""

    def __init__(self, absent: Mapping[str, str], unreadable: Sequence[Unreadable], version: str | None = None) -> None:
        self.unreadable = list(unreadable)
        self.version = version
        self._absent = dict(absent)
        self._packed = PackedColumns("jobs", tuple(name for name in TABLES["jobs"].columns if name not in absent))
        self._rows = 0
        self._columns: dict[str, Column] = {name: [] for name in self._packed.names}

    def add(self, columns: Columns) -> None:
        """Add rows."""
        rows, found = columns.readable()
        for name, column in self._columns.items():
            column.extend(found.get(name) or repeat(None, rows))
        self._rows += rows
        self.unreadable += columns.unreadable()
        if self._rows >= PACKED:
            self._pack()

    def _pack(self) -> None:
        self._packed.add(self._columns, self._rows)
        self._columns = {name: [] for name in self._packed.names}
        self._rows = 0

    def table(self) -> Table:
        """Return the table."""
        if self._rows:
            self._pack()
        return Table(self._packed, self._packed.rows, self._absent, tuple(self.unreadable), self.version)


def job_number(text: str) -> str:
    """Return a job's number. Raises ParseError."""
    if text.isdecimal() and text.isascii() and 0 < int(text) <= MAX_ID:
        return str(int(text))
    raise ParseError("not a job id", text)
