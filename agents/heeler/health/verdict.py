"""What the results of a run come to: a pure function of results, policy, job and breaker.

A prolog or epilog fails only where all of this holds: a check says bad on hardware evidence (or unknown, where the site
wants that to fail), the policy makes that outcome fail and enforces the check in this phase, the evidence is about the
GPUs of this job or about the node as a whole, and the breaker is known to be closed. Otherwise it would have failed,
which is told, and the job goes on.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from heeler.health.breaker import Breaker
from heeler.health.judging import Result
from heeler.health.model import Outcome, Phase
from heeler.health.policy import Action, Policy

Enforcement = Literal["on", "off", "breaker_open", "breaker_unknown", "not_ours"]
RunVerdict = Literal["pass", "fail", "would_fail"]
AROUND_JOBS = (Phase.PROLOG, Phase.EPILOG)
_RANK: tuple[Action, ...] = ("ignore", "warn", "unknown", "fail")
NAGIOS: dict[Action, int] = {"ignore": 0, "warn": 1, "fail": 2, "unknown": 3}


@dataclass(frozen=True, slots=True)
class Judged:
    """A result and what the policy makes of it."""

    result: Result
    action: Action

    @property
    def fails(self) -> bool:
        """Whether the outcome fails a run by policy."""
        return self.action == "fail"


@dataclass(frozen=True, slots=True)
class Run:
    """What a run came to. `culprit` is the check that an enforced failure rests on."""

    verdict: RunVerdict
    why: str
    enforcement: Enforcement
    results: tuple[Judged, ...]
    culprit: Result | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks whose outcome fails a run."""
        return tuple(judged.result.check.name for judged in self.results if judged.fails)

    @property
    def worst(self) -> Action:
        """The worst action of all, unknown below fail and above warn."""
        return max((judged.action for judged in self.results), key=_RANK.index, default="ignore")


def decide(
    results: Sequence[Result], policy: Policy, phase: Phase, job_gpus: Sequence[str] | None, breaker: Breaker
) -> Run:
    """Return what the results come to.

    `job_gpus`: UUIDs of the job's GPUs; None where there is a job and they are not known, or where there is no job.
    """
    judged = tuple(Judged(result, policy.action(result)) for result in results)
    counts = dict(Counter(result.verdict.outcome.value for result in results))
    failing = [one.result for one in judged if one.fails]
    if not failing:
        return Run("pass", _well(counts), "off" if phase in AROUND_JOBS else "on", judged, None, counts)
    said = f"{failing[0].check.name}: {failing[0].verdict.why}"
    if len(failing) > 1:
        said += f" (and {len(failing) - 1} more)"
    if phase not in AROUND_JOBS:
        return Run("fail", said, "on", judged, failing[0], counts)
    enforced = [result for result in failing if has_evidence(result) and policy.enforces(result.check.name, phase)]
    ours = [result for result in enforced if concerns(result, job_gpus)]
    if ours:
        said = f"{ours[0].check.name}: {ours[0].verdict.why}"
    held = _held_back(bool(enforced), bool(ours), breaker)
    if held is not None:
        return Run("would_fail", f"{said}; {held[1]}", held[0], judged, None, counts)
    return Run("fail", said, "on", judged, ours[0], counts)


def _held_back(enforced: bool, ours: bool, breaker: Breaker) -> tuple[Enforcement, str] | None:
    """Return why a failure does not count, or None where it does."""
    if not enforced:
        return "off", "not enforced"
    if not ours:
        return "not_ours", "not about this job's GPUs"
    if breaker.state == "open":
        return "breaker_open", f"the breaker is open: {breaker.why}"
    if breaker.state != "closed":
        return "breaker_unknown", f"the breaker is not known: {breaker.why}"
    return None


def concerns(result: Result, job_gpus: Sequence[str] | None) -> bool:
    """Say whether a result is about the node as a whole, or about GPUs of the job."""
    gpus = result.verdict.gpus
    if not gpus:
        # A check of GPUs that names none speaks of the node: fewer GPUs than there should be.
        return True
    return job_gpus is not None and not set(gpus).isdisjoint(job_gpus)


def has_evidence(result: Result) -> bool:
    """Say whether an outcome may count against a node: bad on hardware, or an unknown that the site lets fail."""
    if result.verdict.outcome is Outcome.BAD:
        return result.check.hardware
    return result.verdict.outcome is Outcome.UNKNOWN


def _well(counts: dict[str, int]) -> str:
    asked = sum(count for outcome, count in counts.items() if outcome != "off")
    rest = ", ".join(f"{counts[name]} {name}" for name in ("warn", "bad", "unknown", "off") if counts.get(name))
    return f"{counts.get('ok', 0)} of {asked} checks ok" + (f", {rest}" if rest else "")
