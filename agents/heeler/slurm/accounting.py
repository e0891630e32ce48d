"""Accounting on the bus: what ended, from where the last question stopped, and what runs, now and then.

Runs appear in accounting late and are filled in at their end, so each question goes back an hour before the last one
that the stream has stored. While slurmdbd is away nothing moves on: the next question takes in what was missed.
The same run twice is one subject, and the same content one message id.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from heeler.bus import escape, subjects
from heeler.slurm import progress
from heeler.slurm.clients import Clients
from heeler.slurm.collect import Collector, Messages
from heeler.slurm.errors import CommandTimeoutError, OutputTooLargeError
from heeler.slurm.publication import Publication
from heeler.slurm.sacct import NS, Sacct, Window
from heeler.slurm.sacct_text import Records
from heeler.slurm.statjobs import Ends

log = structlog.get_logger("heeler.slurm")

RECORDS, RUNNING, ENDS = "records", "records_running", "ends"
OVERLAP_S = 3600
FIRST_S = 24 * 3600  # how far back a feed without a state goes
ENDS_S = 3600  # no more than the overlap: each answer has all of it
ENDS_OLD_S = 600
MAX_STEP_S, MIN_STEP_S = 6 * 3600, 60


def publications(cluster: str, records: Records, now_ns: int) -> list[Publication]:
    """Return a record's message for each; the id is of what is in it."""
    return [
        _publication(cluster, {**record, "cluster": cluster, "ts": now_ns, **_about(records)})
        for record in records.records
    ]


def _about(records: Records) -> dict[str, str]:
    about = {"source": records.source, "slurm_version": records.version}
    return {key: value for key, value in about.items() if value is not None}


def digest(record: Mapping[str, Any]) -> str:
    """Return a digest of what a record says, without when it was asked for."""
    content = {key: value for key, value in record.items() if key not in ("ts", "source", "slurm_version")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _publication(cluster: str, message: dict[str, Any]) -> Publication:
    job, run = message["job_id"], message["run"]
    msg_id = f"JobRecord.{escape(cluster)}.{escape(job)}.{escape(run)}.{digest(message)}"
    return Publication("JobRecord", subjects.job_record(cluster, job, run), msg_id, message)


@dataclass(slots=True)
class Cursor:
    """Up to when ended runs are on the bus, and what of the overlap was published as it is.

    `path`: a file that keeps it over restarts; without one a feed begins a day back.
    """

    done_s: int
    path: Path | None = None
    step_s: int = MAX_STEP_S
    known: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)  # run -> digest, end

    @classmethod
    def load(cls, path: Path | None, now_s: int) -> "Cursor":
        """Return the cursor of a file, or one a day back."""
        found = None if path is None else progress.load(path)
        done = found.get("done_s") if isinstance(found, dict) else None
        usable = isinstance(done, int) and 0 < done <= now_s
        return cls(done if usable and isinstance(done, int) else now_s - FIRST_S, path)

    def window(self, now_s: int) -> Window:
        """Return what to ask for next."""
        start = max(self.done_s - OVERLAP_S, 0)
        return Window(start, max(min(self.done_s + self.step_s, now_s), start + 1))

    def new(self, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the records that were not published as they are."""
        return [r for r in records if self.known.get((r["job_id"], r["run"]), ("", 0))[0] != digest(r)]

    def stored(self, window: Window, records: Iterable[dict[str, Any]]) -> None:
        """Move on: the stream has all of a window."""
        for record in records:
            self.known[record["job_id"], record["run"]] = (digest(record), record.get("end_ts", 0) // NS)
        self.done_s = window.end_s
        self.step_s = min(self.step_s * 2, MAX_STEP_S)
        keep = self.done_s - OVERLAP_S
        self.known = {run: about for run, about in self.known.items() if about[1] >= keep}
        if self.path is not None:
            progress.save(self.path, {"done_s": self.done_s})

    def shrink(self) -> None:
        """Ask for less next time."""
        self.step_s = max(self.step_s // 2, MIN_STEP_S)


def state_path(clients: Clients, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return where the cursor is kept: in the state folder that systemd made, if any."""
    folder = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(folder) / f"accounting-{escape(clients.settings.feed)}.json" if folder else None


async def collect_ended(clients: Clients) -> Messages:
    """Ask for the runs that ended since the last answer that the stream has."""
    now_ns = time.time_ns()
    now_s = now_ns // NS
    cursor = clients.memory.get(RECORDS)
    if not isinstance(cursor, Cursor):
        cursor = clients.memory[RECORDS] = Cursor.load(state_path(clients), now_s)
    window = cursor.window(now_s)
    try:
        records = await _sacct(clients).ended(window)
    except (CommandTimeoutError, OutputTooLargeError):
        cursor.shrink()
        raise
    clients.memory[ENDS] = _ends(records, window, now_s)
    new = cursor.new(records.records)

    def done() -> None:
        try:
            cursor.stored(window, new)
        except OSError as err:
            log.warning("state_not_saved", path=str(cursor.path), error=str(err))

    fresh = Records(tuple(new), records.unreadable, records.version, records.source)
    return Messages(publications(clients.cluster, fresh, now_ns), done, records.unreadable, records.version)


def _ends(records: Records, window: Window, now_s: int) -> "KnownEnds | None":
    """Return the ends of the last hour, where an answer has all of them."""
    since_s = window.end_s - ENDS_S
    if records.unreadable or window.end_s < now_s or window.start_s > since_s:
        return None
    runs = [
        (record["state"], record.get("partition"), record.get("account"))
        for record in records.records
        if record["end_ts"] >= since_s * NS
    ]
    return KnownEnds(now_s, Ends(ENDS_S, tuple(runs)))


@dataclass(frozen=True, slots=True)
class KnownEnds:
    """The runs that ended within the hour before accounting was asked, for the table `stats`."""

    asked_s: int
    ends: Ends


def recent_ends(clients: Clients, now_s: int) -> Ends | None:
    """Return what accounting said last of the last hour; None where that is old, or was not all."""
    known = clients.memory.get(ENDS)
    return known.ends if isinstance(known, KnownEnds) and now_s - known.asked_s <= ENDS_OLD_S else None


async def collect_running(clients: Clients) -> Messages:
    """Ask for what runs now."""
    now_ns = time.time_ns()
    records = await _sacct(clients).running(now_ns // NS)
    return Messages(publications(clients.cluster, records, now_ns), None, records.unreadable, records.version)


def _sacct(clients: Clients) -> Sacct:
    found = clients.memory.get("sacct")
    if not isinstance(found, Sacct):
        found = clients.memory["sacct"] = Sacct(clients, clients.settings.accounting_timeout_s)
    return found


ENDED_COLLECTOR = Collector(RECORDS, 60.0, collect_ended, lane="slurmdbd")
RUNNING_COLLECTOR = Collector(RUNNING, 3600.0, collect_running, lane="slurmdbd")
