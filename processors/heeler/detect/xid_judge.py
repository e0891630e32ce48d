"""What an incident amounts to: how bad, how sure, what to do. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heeler.detect import ecc
from heeler.detect.incident import Incident, Seen, Where
from heeler.detect.thresholds import XidThresholds
from heeler.detect.xid_table import Row, XidTable


@dataclass(frozen=True, slots=True)
class Past:
    """A code in a finding of the last day, open or closed."""

    gpu: str
    code: int
    places: Mapping[str, Where]
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
GRAVITY = ("none", "observe", "person", "drain_after_job", "reset", "reboot", "rma", "drain_now")
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
    if ecc.FAILED in incident.codes:
        words = f"{ecc.ROWS[ecc.FAILED].meaning}: replace the GPU"
        return Judgement(ecc.FAILED, "critical", 0.95, "rma", "remap_failed", words)
    if incident.recoveries:
        actions = sorted(incident.recoveries.values())
        worst_action = max(actions, key=lambda action: GRAVITY.index(table.recovery_of(action).advice))
        return _by_driver(worst_action, code, row, table)
    return _by_table(incident, worst, past, t)


def _by_table(incident: Incident, worst: Seen, past: Sequence[Past], t: XidThresholds) -> Judgement:
    code, row = worst.code, worst.row
    if row.drain == "yes":
        often = _often_at_one_place(incident, worst, past)
        if often:
            return Judgement(
                code, "critical", 0.9, "rma", "repeated_place", f"{row.meaning}, {often}: replace the part"
            )
        return _hard(incident, code, row)
    if row.drain == "pending":
        return Judgement(code, "warning", 0.95, "drain_after_job", "pending_reset", row.meaning)
    if row.drain == "repeat" and (why := _repeated(incident, worst, past, t)):
        # Programs that fail alike on one GPU may be one user's: a person decides.
        advice = "person" if row.class_ == "APP" and why[0] != "repeated_place" else "drain_after_job"
        return Judgement(code, "warning", 0.8, advice, why[0], f"{row.meaning}, {why[1]}")
    soft = row.class_ in SOFT_CAUSES or row.drain == "never"
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
        return _one_place(worst, mine, elsewhere, t)
    if worst.row.class_ == "APP":
        jobs = ({job for p in mine for job in p.jobs} | set(incident.jobs)) - elsewhere
        return ("repeated", f"in {len(jobs)} different jobs") if len(jobs) >= t.repeat_count else None
    times = sum(p.episodes for p in mine) + worst.episodes
    return ("repeated", f"{times} times") if times >= (worst.row.repeat or t.repeat_count) else None


def _one_place(worst: Seen, mine: Sequence[Past], elsewhere: set[str], t: XidThresholds) -> tuple[str, str] | None:
    """Say whether different jobs had it at one place of the chip."""
    told = [worst.places, *(p.places for p in mine)]
    jobs_at: dict[str, set[str]] = {}
    for places in told:
        for place, where in places.items():
            jobs_at.setdefault(place, set()).update(where.jobs)
    # A program's bug shows wherever its kernel runs, a broken part at its own place.
    often = Counter(job for jobs in jobs_at.values() for job in jobs)
    scattered = {job for job, times in often.items() if times > t.location_most}
    found = [(len(jobs_at[place] - elsewhere - scattered), place) for place in worst.places]
    jobs, place = max(found, default=(0, ""))
    if jobs < t.location_jobs:
        return None
    users = {user for places in told if place in places for user in places[place].users}
    if len(users) == 1 and "" not in users:  # whose program may do the same at the same place each time
        return "repeated_by_user", f"at {place} in {jobs} different jobs of one user"
    return "repeated_place", f"at {place} in {jobs} different jobs"


def _often_at_one_place(incident: Incident, worst: Seen, past: Sequence[Past]) -> str:
    """Return how often a code came at one place, where that is so often that the part has to go; else nothing."""
    if not worst.row.rma_after:
        return ""
    mine = [p for p in past if p.code == worst.code and p.gpu == incident.gpu and p.last_ts < incident.first_ts]
    for place, where in worst.places.items():
        times = where.times + sum(p.places[place].times for p in mine if place in p.places)
        if times >= worst.row.rma_after:
            return f"{times} times at {place}"
    return ""
