"""What an incident amounts to: how bad, how sure, what to do. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from heeler.detect.incident import Incident, Seen
from heeler.detect.thresholds import XidThresholds
from heeler.detect.xid_table import Row, XidTable


@dataclass(frozen=True, slots=True)
class Past:
    """A code in a finding of the last day, open or closed."""

    gpu: str
    code: int
    place: str
    jobs: tuple[str, ...]
    episodes: int
    last_ts: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an incident amounts to."""

    code: int
    severity: str
    confidence: float
    advice: str
    cause: str
    words: str


SOFT_CAUSES = {"APP": "application", "INFO": "information"}
HARD_CAUSES = {"HW": "hardware", "RST": "needs_reset"}


def judge(incident: Incident, past: Sequence[Past], table: XidTable, t: XidThresholds) -> Judgement:
    """Return what an incident amounts to, with what the same node had in the last day."""
    worst = incident.worst()
    code, row = worst.code, worst.row
    if incident.test:
        words = f"{row.meaning}, {incident.test}: no real event"
        return Judgement(code, "info", 0.2, "none", incident.test, words)
    if incident.confirmed:
        how = "lost" if incident.lost else "hung"
        return Judgement(code, "critical", 0.99, "drain_now", "gpu_lost", f"{row.meaning}, confirmed {how}")
    if incident.recovery is not None:
        return _by_driver(incident.recovery, code, row, table)
    return _by_table(incident, worst, past, t)


def _by_table(incident: Incident, worst: Seen, past: Sequence[Past], t: XidThresholds) -> Judgement:
    code, row = worst.code, worst.row
    if row.drain == "yes":
        return _hard(incident, code, row)
    if row.drain == "pending":
        return Judgement(code, "warning", 0.95, "drain_after_job", "pending_reset", row.meaning)
    if row.drain == "repeat" and (why := _repeated(incident, worst, past, t)):
        # Programs that fail alike on one GPU may be one user's: a person decides.
        advice = "person" if row.class_ == "APP" and not row.location else "drain_after_job"
        return Judgement(code, "warning", 0.8, advice, why[0], f"{row.meaning}, {why[1]}")
    soft = row.class_ in SOFT_CAUSES
    advice = "none" if soft and row.drain != "recovery" else "observe"
    cause = SOFT_CAUSES.get(row.class_, "unknown")
    return Judgement(code, "info" if soft else "warning", 0.9 if soft else 0.6, advice, cause, row.meaning)


def _by_driver(action: int, code: int, row: Row, table: XidTable) -> Judgement:
    recovery = table.recovery_of(action)
    words = f"{row.meaning}; the driver says: {recovery.meaning}"
    if recovery.advice == "none":
        return Judgement(code, "info", 0.9, "none", "driver_verdict", words)
    severity = "critical" if recovery.advice == "drain_now" else "warning"
    return Judgement(code, severity, 0.95, recovery.advice, "driver_verdict", words)


def _hard(incident: Incident, code: int, row: Row) -> Judgement:
    if row.confirm and len(incident.witnesses) < 2:
        sure, words = 0.7, "not confirmed yet"
        if incident.fine:
            sure, words = 0.3, "but it answers"
        elif incident.hung:
            words = "one reading hung"
        return Judgement(code, "warning", sure, "observe", "gpu_lost", f"{row.meaning}, {words}")
    sure = 0.95 if row.class_ in HARD_CAUSES else 0.85
    return Judgement(code, "critical", sure, "drain_now", HARD_CAUSES.get(row.class_, "link"), row.meaning)


def _repeated(incident: Incident, worst: Seen, past: Sequence[Past], t: XidThresholds) -> tuple[str, str] | None:
    """Say why repetition makes a code a matter of the hardware: (cause, words), None when it does not."""
    alike = [p for p in past if p.code == worst.code]
    mine = [p for p in alike if p.gpu == incident.gpu and p.last_ts < incident.first_ts]
    # A job that has the error on several GPUs has a bug.
    elsewhere = {job for p in alike if p.gpu != incident.gpu for job in p.jobs}
    if worst.row.location:
        jobs = {job for p in mine if p.place == worst.place for job in p.jobs} | set(incident.jobs)
        jobs -= elsewhere
        if worst.place and len(jobs) >= t.location_jobs:
            return "repeated_place", f"at {worst.place} in {len(jobs)} different jobs"
        return None
    if worst.row.class_ == "APP":
        jobs = ({job for p in mine for job in p.jobs} | set(incident.jobs)) - elsewhere
        return ("repeated", f"in {len(jobs)} different jobs") if len(jobs) >= t.repeat_count else None
    times = sum(p.episodes for p in mine) + worst.episodes
    return ("repeated", f"{times} times") if times >= t.repeat_count else None
