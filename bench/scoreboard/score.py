"""Alarms against the truth: found in time, found late, missed, and false."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scoreboard.contenders import Alarm, Contender
from scoreboard.play import windows
from scoreboard.scenario import Scenario, Truth

IN_TIME_S = 60.0


@dataclass(slots=True)
class Outcome:
    """What one contender made of one scenario."""

    scenario: str
    truth: Truth | None
    gpu_hours: float
    found_s: float | None = None  # from the begin of the fault
    cause: str = ""
    drain: bool = False  # a drain of the victim was advised
    false: list[Alarm] = field(default_factory=list)
    false_drains: int = 0

    @property
    def in_time(self) -> bool:
        """Say whether the victim was named within a minute."""
        return self.found_s is not None and self.found_s <= IN_TIME_S


def run(scenario: Scenario, contenders: dict[str, Contender], *, ports: bool = True) -> dict[str, Outcome]:
    """Play a scenario to all contenders at once."""
    alarms: dict[str, list[Alarm]] = {name: [] for name in contenders}
    for contender in contenders.values():
        contender.begin(scenario)
    for step in windows(scenario, ports=ports):
        for name, contender in contenders.items():
            alarms[name] += contender.take(step)
    return {name: judge(scenario, found) for name, found in alarms.items()}


def judge(scenario: Scenario, alarms: Iterable[Alarm]) -> Outcome:
    """Return what the alarms are worth. What is said of the job as a whole blames nobody: neither right nor false."""
    truth = scenario.truth
    out = Outcome(scenario.name, truth, scenario.gpu_hours)
    named: set[tuple[int, int | None]] = set()
    for alarm in alarms:
        if alarm.node is None:
            continue
        drain = alarm.advice.startswith("drain")
        if truth is not None and alarm.at_s >= truth.begin_s and is_hit(truth, alarm):
            if out.found_s is None:
                out.found_s, out.cause = alarm.at_s - truth.begin_s, alarm.cause
            out.drain = out.drain or drain
            continue
        out.false_drains += drain
        if (alarm.node, alarm.gpu) not in named:
            named.add((alarm.node, alarm.gpu))
            out.false.append(alarm)
    return out


def is_hit(truth: Truth, alarm: Alarm) -> bool:
    """Say whether an alarm names the victim: the GPU itself or its node."""
    if alarm.node != truth.node:
        return False
    return truth.gpu is None or alarm.gpu is None or alarm.gpu == truth.gpu


@dataclass(frozen=True, slots=True)
class Score:
    """The sums over some outcomes."""

    faults: int
    in_time: int
    found: int
    false: int
    gpu_hours: float
    median_s: float | None

    @property
    def recall(self) -> float:
        """Share of faults whose victim was named within a minute."""
        return self.in_time / self.faults if self.faults else float("nan")

    @property
    def precision(self) -> float:
        """Share of named victims that were victims."""
        return self.found / (self.found + self.false) if self.found + self.false else float("nan")

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and the share of faults that were found at any time."""
        ever = self.found / self.faults if self.faults else float("nan")
        return 2 * ever * self.precision / (ever + self.precision) if ever + self.precision > 0 else 0.0


def add_up(outcomes: Sequence[Outcome], least: float = 0.0) -> Score:
    """Return the sums over faults of at least a severity, and the false alarms of all outcomes given."""
    faults = [o for o in outcomes if o.truth is not None and o.truth.severity >= least]
    times = [o.found_s for o in faults if o.found_s is not None]
    return Score(
        faults=len(faults),
        in_time=sum(o.in_time for o in faults),
        found=len(times),
        false=sum(len(o.false) for o in outcomes),
        gpu_hours=sum(o.gpu_hours for o in outcomes),
        median_s=float(np.median(times)) if times else None,
    )


def upper_bound(count: int, gpu_hours: float) -> float:
    """Return the one-sided 95 % upper bound of a rate per 1,000 GPU-hours, events being Poisson (Garwood 1936)."""
    # The mean at which so few events have a chance of 5 %, by bisection: no dependency for one quantile.
    low, high = float(count), 10.0 + 3.0 * count
    factorials = np.cumsum([0.0, *np.log(np.arange(1, count + 1))])
    for _ in range(60):
        middle = (low + high) / 2
        terms = np.arange(count + 1) * np.log(middle) - factorials - middle
        low, high = (middle, high) if float(np.exp(terms).sum()) > 0.05 else (low, middle)
    return 1000.0 * high / gpu_hours
