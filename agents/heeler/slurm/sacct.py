"""Ask accounting: one sacct, any window, times in UTC whatever the controller's zone.

sacct reads ``-S`` and ``-E`` as local time of its own process and takes no offset ("-07:00" is read as a time of day).
So it runs with TZ=UTC, and prints times as seconds since the epoch: no hour is missing or doubled by summer time.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from heeler.slurm.clients import Clients, environment
from heeler.slurm.command import Completed, run_slurm_async
from heeler.slurm.errors import CommandFailedError, ParseError
from heeler.slurm.sacct_rows import FREE
from heeler.slurm.sacct_text import Records, parse_sacct_text

NS = 1_000_000_000
# Each state with an end. Without states sacct also gives whatever runs or waits in the window.
# A job that was resized has a row for each size that it had before, which ends with the change.
ENDED = ("BF", "CA", "CD", "DL", "F", "NF", "OOM", "PR", "RQ", "RS", "TO", "RV")
RUNNING = ("R", "S")
TIMEOUT_S = 120.0
_TROUBLE = ("error: Problem talking to the database", "error: slurm_persist_conn", "error: Sending PersistInit")


@dataclass(frozen=True, slots=True)
class Window:
    """From a time up to another, which no longer belongs to it; seconds since the epoch."""

    start_s: int
    end_s: int

    def __str__(self) -> str:
        """Return it in UTC."""
        return f"{_stamp(self.start_s)}Z/{_stamp(self.end_s)}Z"


def _stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


def ended_argv(window: Window, fields: Sequence[str], delimiter: str) -> tuple[str, ...]:
    """Return the question for runs that ended in a window."""
    return _argv(ENDED, window.start_s, window.end_s, fields, delimiter)


def running_argv(now_s: int, fields: Sequence[str], delimiter: str) -> tuple[str, ...]:
    """Return the question for what runs now."""
    return _argv(RUNNING, now_s - 1, now_s, fields, delimiter)


def _argv(states: Sequence[str], start_s: int, end_s: int, fields: Sequence[str], delimiter: str) -> tuple[str, ...]:
    return (
        "sacct",
        "--allusers",
        "--duplicates",  # each run of a requeued job
        "--noconvert",
        f"--state={','.join(states)}",
        f"--starttime={_stamp(start_s)}",
        f"--endtime={_stamp(end_s)}",
        "--parsable",
        f"--delimiter={delimiter}",
        f"--format={','.join(fields)}",
    )


def order_of(helpformat: str) -> tuple[str, ...]:
    """Return the fields of `sacct --helpformat`, ids first, what people write last. Raises ParseError."""
    names = list(dict.fromkeys(helpformat.split()))
    lower = {name.lower() for name in names}
    if not {"jobid", "jobidraw", "state", "start", "submit"} <= lower:
        raise ParseError("not a list of sacct's fields", helpformat)
    first = [name for name in names if name.lower() in ("jobidraw", "jobid")]
    free = [name for name in names if name.lower() in FREE]
    return (*first, *(name for name in names if name not in {*first, *free}), *free)


def ended_in(records: Records, window: Window) -> Records:
    """Return the runs that ended in a window: sacct's own ends take in both seconds."""
    inside = [
        record for record in records.records if window.start_s * NS <= record.get("end_ts", -1) < window.end_s * NS
    ]
    return replace(records, records=tuple(inside))


@dataclass(slots=True)
class Sacct:
    """Asks accounting; who calls waits, so there is never more than one sacct."""

    clients: Clients
    timeout_s: float = TIMEOUT_S
    _fields: tuple[str, ...] = ()

    async def ended(self, window: Window) -> Records:
        """Return what ended in a window. Raises SlurmError: no answer is not an empty one."""
        return ended_in(await self._ask(ended_argv, window), window)

    async def running(self, now_s: int) -> Records:
        """Return what runs now. Raises SlurmError."""
        return await self._ask(running_argv, now_s)

    async def _ask(self, argv_of: Any, when: Any) -> Records:
        if not self._fields:
            self._fields = order_of((await self.clients.run(("sacct", "--helpformat"))).text)
        # Nobody who names a job can know it, so no name can look like a field.
        delimiter = f"\x1f{secrets.token_hex(2)}"
        env = {**environment(self.clients.settings), "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
        done = await run_slurm_async(argv_of(when, self._fields, delimiter), self.timeout_s, env)
        return replace(parse_answer(done, delimiter), source="sacct")


def parse_answer(done: Completed, delimiter: str) -> Records:
    """Return the records of an ended sacct. Raises SlurmError also where it says 0 and had no database."""
    done.check()
    if any(words in done.error_text for words in _TROUBLE):
        raise CommandFailedError(done.argv, done.rc, done.error_text)
    return parse_sacct_text(done.stdout, zone=UTC, delimiter=delimiter)
