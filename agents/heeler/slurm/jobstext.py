"""Jobs from text, for a Slurm without JSON: ``squeue -O`` with fields of any length and marks of our own.

A name or a comment may hold any character, newlines too. So what stands between two fields and after the last is a mark
with a random word that is made for each question: nobody can have put it into a name. Times are asked for as seconds
since the epoch (SLURM_TIME_FORMAT), so that no zone is needed.

squeue's text does not tell the indices of GPUs. A field that an old version lacks comes out empty: not known.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from itertools import islice, repeat
from math import inf

from heeler.slurm.errors import ParseError
from heeler.slurm.gcpause import gc_paused
from heeler.slurm.gres import NULLS
from heeler.slurm.jobcolumns import Columns, Growing, Memo, job_number
from heeler.slurm.jobs import AnyJob, Gpus, JobsAnswer, Waiting, per_node
from heeler.slurm.jobvalues import NS, exit_of, nodes_of
from heeler.slurm.jsonnumbers import integer
from heeler.slurm.rows import MAX_TEXT, Unreadable
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
CHUNK = 1000  # rows that are read at a time
PIECE = 1 << 19  # bytes that are taken at a time
TEXTS = (
    "user",
    "group",
    "account",
    "partition",
    "qos",
    "wckey",
    "batch_host",
    "licenses",
    "features",
    "dependency",
    "reservation",
    "container",
    "command",
    "work_dir",
    "admin_comment",
    "system_comment",
    "comment",
)
OWN_STAMPS = frozenset(("submit_ts", "eligible_ts"))  # differ by job: looking for equal ones is no use
MORE_STAMPS = ("preempt_ts", "last_sched_eval_ts")
ABSENT = {
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


class JobsTextReader:
    """Takes an answer in pieces of any size. What is wrong with it is said at its end, with `result`."""

    def __init__(self, marks: Marks, zone: tzinfo, *, now_ns: int = 0, with_table: bool = False) -> None:
        """Begin before the answer; `with_table`: the table `jobs` as of `now_ns` too.

        `zone` is the controller's, for times that are not seconds since the epoch.
        """
        self._marks, self._end, self._now_ns = marks, f"{marks.row}\n".encode(), now_ns
        self._memo, self._stamp = Memo(), partial(_stamp, zone)
        self._buffer, self._any, self._enough = bytearray(), False, PIECE
        self._jobs: list[AnyJob] = []
        self._unreadable: list[Unreadable] = []
        self._table = Growing(ABSENT, ()) if with_table else None

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next piece."""
        self._buffer += data
        if len(self._buffer) >= self._enough:
            self._take_rows()
            # What has no end of a row is not looked through again with each piece.
            self._enough = max(PIECE, 2 * len(self._buffer))

    def result(self) -> JobsAnswer:
        """Return the jobs. Raises ParseError for what is no answer."""
        self._take_rows()
        rest = self._buffer.decode(errors="replace")
        cut: list[Unreadable] = []
        if rest.strip():
            # Something after the last mark: squeue was cut off, or wrote no rows of ours at all.
            if not self._any:
                raise ParseError("no row in the answer", rest)
            cut.append(Unreadable(None, f"the answer ends within a row: {rest[:200]!r}"))
        if self._table is not None:
            self._table.unreadable[:0] = cut
        table = self._table.table() if self._table is not None else None
        return JobsAnswer(tuple(self._jobs), (*cut, *self._unreadable), None, table)

    def _take_rows(self) -> None:
        """Take all whole rows."""
        whole = self._buffer.rfind(self._end)
        if whole < 0:
            return
        self._any = True
        text = self._buffer[: whole + len(self._end)].decode(errors="replace")
        del self._buffer[: whole + len(self._end)]
        records = _records(text, self._end.decode())
        while some := list(islice(records, CHUNK)):
            self._read(some)

    def _read(self, records: Sequence[str]) -> None:
        rows, lost = _split(records, self._marks)
        columns = _columns(rows, self._memo, self._stamp, self._now_ns)
        self._jobs.extend(_jobs(columns))
        self._unreadable += [*lost, *columns.unreadable()]
        if self._table is not None:
            self._table.add(columns)
            self._table.unreadable += lost


@gc_paused()
def parse_jobs_text(
    text: str | bytes, marks: Marks, zone: tzinfo, *, now_ns: int = 0, with_table: bool = False
) -> JobsAnswer:
    """Return the jobs of an answer, with the table `jobs` as of `now_ns` where asked for.

    `zone` is the controller's, for times that are not seconds since the epoch. Raises ParseError for what is no answer.
    """
    reader = JobsTextReader(marks, zone, now_ns=now_ns, with_table=with_table)
    data = memoryview(text.encode(errors="replace") if isinstance(text, str) else text)
    for at in range(0, len(data), PIECE):
        reader.feed(data[at : at + PIECE])
    return reader.result()


def _records(text: str, end: str) -> Iterator[str]:
    """Yield what stands before each end: never a second copy of all."""
    at = 0
    while (found := text.find(end, at)) >= 0:
        yield text[at:found]
        at = found + len(end)


def _split(records: Sequence[str], marks: Marks) -> tuple[list[list[str]], list[Unreadable]]:
    """Return rows as fields, and what is no row."""
    rows, lost = [], []
    for record in records:
        row = record.split(marks.field)
        if len(row) == len(KEYS):
            rows.append(row)
        else:
            why = ParseError(f"a row of {len(row)} fields, not {len(KEYS)}", "|".join(row))
            lost.append(Unreadable(_name(row), str(why)))
    return rows, lost


def _name(values: Sequence[str]) -> str | None:
    word = values[0].rpartition("\n")[2]
    return word if word.isdecimal() and word.isascii() else None


def _columns(rows: Sequence[Sequence[str]], memo: Memo, stamp: Callable[[str], int | None], now_ns: int) -> Columns:
    """Return all columns of rows."""
    said: dict[str, list[str]] = {
        key: list(column) for key, column in zip(KEYS, zip(*rows, strict=True) if rows else repeat(()), strict=False)
    }
    columns = Columns(len(rows), memo)
    found = columns.found

    # Warnings that stand before a row end in newlines.
    ids = columns.each((text.rpartition("\n")[2] for text in said["job_id"]), job_number)
    columns.set_ids(ids, said["job_ref"])
    for key in TEXTS:
        found[key] = columns.read(said[key], _text)
    found["name"] = [text[:MAX_TEXT] or None for text in said["name"]]
    for key in ("submit_ts", "eligible_ts", "accrue_ts", "start_ts", "end_ts", "deadline_ts", *MORE_STAMPS):
        found[key] = columns.each(said[key], stamp) if key in OWN_STAMPS else columns.read(said[key], stamp)
    for key in ("user_id", "restarts", "cpus", "tasks", "cpus_per_task", "min_cpus_per_node"):
        found[key] = columns.read(said[key], _whole)
    found["nice"] = columns.read(said["nice"], _signed)
    found["node_count"] = columns.read(said["node_count"], _first)
    found["min_memory_bytes"] = columns.read(said["min_memory"], _bytes)
    found["min_tmp_disk_bytes"] = columns.read(said["min_tmp_disk"], _bytes)
    for key in ("requeue", "batch"):
        found[key] = columns.read(said[key], _flag)
    found["exclusive"] = columns.read(said["oversubscribe"], _SHARED.get)
    for key in ("scheduled_nodes", "required_nodes"):
        found[key] = columns.read(said[key], nodes_of, keep=False)
    # 22.05 does not know the field under any name, and leaves it empty.
    found["excluded_nodes"] = columns.read(said["excluded_nodes"], _nodes_if_told, keep=False)
    columns.set_states(said["state"], columns.read(said["reason"], _text), columns.read(said["priority"], _whole))
    waits = columns.waits
    nodes = ["" if wait else text for wait, text in zip(waits, said["nodes"], strict=True)]
    found["nodes"] = columns.read(nodes, nodes_of, keep=False)
    elapsed = ["0:00" if wait else text for wait, text in zip(waits, said["elapsed"], strict=True)]
    found["elapsed_s"] = columns.read(elapsed, _duration)
    columns.set_times(now_ns, columns.read(said["limit"], _duration))
    asks = [columns.read(said[key], _text) for key in ("per_node", "per_job", "per_task", "per_socket")]
    # squeue shows as allocated what a waiting job asks for, and what any other has.
    columns.set_resources(None, said["tres"], (*asks, found["node_count"], found["tasks"]))
    exits = columns.read(said["exit_code"], exit_of)
    ends = [two if two and state.ended else (None, None) for two, state in zip(exits, columns.states, strict=True)]
    found["exit_code"], found["exit_signal"] = [status for status, _ in ends], [signal for _, signal in ends]
    return columns


def _jobs(columns: Columns) -> Iterator[AnyJob]:
    """Yield what JobEvents need. The indices of GPUs are not told, so only how many on each node."""
    found = columns.found
    for at, state in enumerate(columns.states):
        if at in columns.bad:
            continue
        if columns.waits[at]:
            yield Waiting(found["job_id"][at], state, found["restarts"][at])
            continue
        nodes, task = found["nodes"][at], found["array_task_id"][at]
        per_node = _per_node(found["gpus_allocated"][at], found["tres_allocated"][at], nodes)
        yield columns.job(at, Gpus(found["gpus_source"][at], None, per_node), None if task is None else str(task))


def _per_node(gpus: int | None, tres: Mapping[str, float] | None, nodes: Sequence[str]) -> int | None:
    count = (tres or {}).get("node")
    return per_node(gpus, None if count is None else int(count), nodes) if gpus else None


def _duration(text: str) -> float | None:
    """Return seconds; infinity for no limit; None for words such as INVALID. Raises ParseError."""
    return 0 if text == "0:00" else parse_duration(text)


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


def _stamp(zone: tzinfo, text: str) -> int | None:
    seconds = text.isdecimal() and text.isascii() and 6 <= len(text) <= 10
    return int(text) * NS if seconds else parse_timestamp(text, zone)


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else integer(text)


def _signed(text: str) -> int | None:
    return integer(text, signed=True)


def _flag(text: str) -> bool | None:
    return _FLAGS.get(text.lower())


def _nodes_if_told(text: str) -> list[str] | None:
    return nodes_of(text) if text else None


def _first(text: str) -> int | None:
    """Return the first number of ``2-4``: a waiting job may take more."""
    return _whole(text.partition("-")[0])


def _text(text: str) -> str | None:
    return None if text.lower() in NULLS else text[:MAX_TEXT]
