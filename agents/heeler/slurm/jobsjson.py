"""Jobs from JSON (``squeue --json``, slurmrestd; v0.0.38 to v0.0.42): what JobEvents need, and all columns.

An answer of a hundred thousand jobs is half a gigabyte, of which most is not read. So it is taken in pieces as it
comes, the fields that are read stand in a struct (`jobrow`), and of each thousand rows only packed columns are kept.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from heeler.slurm.errors import ParseError
from heeler.slurm.gcpause import gc_paused
from heeler.slurm.jobcolumns import Growing, Memo
from heeler.slurm.jobrow import decode_rows
from heeler.slurm.jobs import AnyJob, JobsAnswer, id_of, parse_job_json
from heeler.slurm.jobsjsoncolumns import Rows, ids_of
from heeler.slurm.jsonstream import PIECE, ListReader
from heeler.slurm.rows import Unreadable, rows_of, version_of

_PARTIAL = re.compile(r"truncat|partial|incomplete|not all|omitt", re.IGNORECASE)
CHUNK = 250  # rows that are read at a time: what is not needed of them goes before the next


class JobsReader:
    """Takes an answer in pieces of any size. What is wrong with it is said at its end, with `result`."""

    def __init__(self, *, now_ns: int = 0, with_table: bool = False) -> None:
        """Begin before the answer; `with_table`: the table `jobs` as of `now_ns` too."""
        self._now_ns, self._list = now_ns, ListReader("jobs", decode_rows, self._take)
        self._rows: list[Any] = []
        self._jobs: list[AnyJob] = []
        self._unreadable: list[Unreadable] = []
        self._table = Growing({}, ()) if with_table else None
        self._memo = Memo()
        self._fault: ParseError | None = None

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next piece."""
        if self._fault is None:
            try:
                self._list.feed(data)
            except ParseError as err:
                self._fault = err

    def result(self) -> JobsAnswer:
        """Return the jobs. Raises ParseError where the answer was no list of jobs, or lists errors."""
        if self._fault is not None:
            raise self._fault
        value = self._list.end()
        rows_of(value, "jobs")  # its errors
        return self._answer(value)

    def of_rows(self, answer: Mapping[str, Any]) -> JobsAnswer:
        """Return the jobs of an answer that is decoded already. Raises ParseError."""
        self._take(rows_of(answer, "jobs"))
        return self._answer(answer)

    def _answer(self, value: Mapping[str, Any]) -> JobsAnswer:
        self._flush(0)
        said = [Unreadable(None, f"Slurm warns: {text}") for text in warnings_of(value) if _PARTIAL.search(text)]
        version, table = version_of(value), None
        if self._table is not None:
            self._table.unreadable[:0] = said
            self._table.version = version
            table = self._table.table()
        return JobsAnswer(tuple(self._jobs), (*said, *self._unreadable), version, table)

    def _take(self, rows: Sequence[Any]) -> None:
        self._rows += rows
        self._flush(CHUNK - 1)

    def _flush(self, most: int) -> None:
        """Read rows, some at a time, until at most so many wait."""
        while len(self._rows) > most:
            some = self._rows[:CHUNK]
            del self._rows[:CHUNK]
            if self._table is None:
                self._read_jobs(some)
            else:
                self._read_table(some, self._table)

    def _read_jobs(self, rows: Sequence[Any]) -> None:
        for row in rows:
            try:
                self._jobs.append(parse_job_json(row))
            except ParseError as err:
                self._unreadable.append(Unreadable(id_of(row), str(err)))

    def _read_table(self, rows: Sequence[Any], table: Growing) -> None:
        ids = ids_of(rows)
        if None in ids:
            nameless = [row for row, job_id in zip(rows, ids, strict=True) if job_id is None]
            self._read_jobs(nameless)
            table.unreadable += [Unreadable(None, str(ParseError("a job without an id", row))) for row in nameless]
            rows = [row for row, job_id in zip(rows, ids, strict=True) if job_id is not None]
        found = Rows(rows, [job_id for job_id in ids if job_id is not None], self._now_ns, self._memo)
        if found.columns.bad:  # perhaps of a field that only the table has
            self._read_jobs(found.rows)
        else:
            self._jobs += found.jobs()
        table.add(found.columns)


@gc_paused()
def parse_jobs_json(
    answer: str | bytes | Mapping[str, Any], *, now_ns: int = 0, with_table: bool = False
) -> JobsAnswer:
    """Return the jobs of a JSON answer, with the table `jobs` as of `now_ns` where asked for.

    Raises ParseError where the answer is no list of jobs, or lists errors.
    """
    reader = JobsReader(now_ns=now_ns, with_table=with_table)
    if not isinstance(answer, str | bytes):
        return reader.of_rows(answer)
    whole = memoryview(answer.encode(errors="replace") if isinstance(answer, str) else answer)
    for at in range(0, len(whole), PIECE):
        reader.feed(whole[at : at + PIECE])
    return reader.result()


def warnings_of(value: Mapping[str, Any]) -> list[str]:
    """Return the words of Slurm's own warnings."""
    found = value.get("warnings")
    if not isinstance(found, list):
        return []
    return [str(item.get("description") or item) if isinstance(item, dict) else str(item) for item in found]
