"""How fast a job works, by what its own GPUs get done, and how much slower that became since trouble began.

The cycles that tensor cores work in a second (their active share times the clock) are the job's own throughput: a step
needs as many of them whatever the clocks are, so half as many a second are steps of twice the length, for the GPUs
that wait too. That is held against the same job's minutes before the trouble began. A job without such minutes, or
whose pace is not steady, has no baseline, and then nothing is known. Checkpoints, evaluations and the first minutes
are left out.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from heeler.detect.findings import SECOND_NS
from heeler.detect.thresholds import PaceThresholds
from heeler.detect.windows import CLOCK, SM, TENSOR, Floats

MEASURES = {TENSOR: "tensor_cycles_per_s", SM: "sm_cycles_per_s"}
LEAST_ACTIVE = {TENSOR: 0.01, SM: 0.05}  # below, a share of it means nothing
MHZ = 1e6
LEAST_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Rate:
    """What a typical GPU of the job got done in one window."""

    end_ns: int
    measure: str
    per_s: float


class Pace:
    """The last minutes of one job."""

    __slots__ = ("rates", "t")

    def __init__(self, t: PaceThresholds) -> None:
        self.t = t
        self.rates: deque[Rate] = deque()

    def note(self, end_ns: int, median: Floats) -> None:
        """Take a window in: the medians of the compared rows over the GPUs that are busy."""
        since = end_ns - int((self.t.baseline_s + self.t.reach_s) * SECOND_NS)
        while self.rates and self.rates[0].end_ns <= since:
            self.rates.popleft()
        clock = float(median[CLOCK])
        for row, measure in MEASURES.items():
            share = float(median[row])
            if share >= LEAST_ACTIVE[row] and clock > 0:
                # Of GPUs in step the product of medians is the median of products, at a fraction of its price.
                self.rates.append(Rate(end_ns, measure, share * clock * MHZ))
                return

    def impact(self, first_ts: int, end_ns: int, said: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what trouble since `first_ts` costs the job. `said`: what its finding says already."""
        if said is not None:
            measure, base = said.get("measure"), said.get("baseline_per_s")
        else:
            measure, base = self._baseline(first_ts)
        nothing: dict[str, Any] = {"job_slowdown_ratio": None}
        if not isinstance(measure, str) or not isinstance(base, int | float):
            return nothing
        nothing |= {"measure": measure, "baseline_per_s": base}
        since = max(first_ts, end_ns - int(self.t.now_s * SECOND_NS))
        now = [rate.per_s for rate in self.rates if rate.end_ns > since and rate.measure == measure]
        if len(now) < LEAST_WINDOWS:
            return nothing
        rate = float(np.median(now))
        return nothing | {"per_s": round(rate), "job_slowdown_ratio": round(base / rate, 3)}

    def _baseline(self, first_ts: int) -> tuple[str, int] | tuple[None, None]:
        """Return what the job did before, where it did so steadily."""
        # The window in which the trouble was first seen may have begun before it.
        until, since = first_ts - self.t.margin_s * SECOND_NS, first_ts - self.t.baseline_s * SECOND_NS
        before = [rate for rate in self.rates if since < rate.end_ns <= until]
        if len(before) < LEAST_WINDOWS or len({rate.measure for rate in before}) > 1:
            return None, None
        if before[-1].end_ns - before[0].end_ns < self.t.least_s * SECOND_NS:
            return None, None
        values = np.array([rate.per_s for rate in before])
        usual = float(np.median(values))
        if float(np.median(np.abs(values - usual))) > self.t.steady_ratio * usual:
            return None, None
        return before[0].measure, round(usual)


def words(impact: Mapping[str, Any], least: float) -> str:
    """Return how much longer a step takes, as the end of a sentence; empty where it takes hardly longer."""
    ratio = impact.get("job_slowdown_ratio")
    return f" takes {ratio:.1f} times as long per step" if ratio is not None and ratio >= least else ""
