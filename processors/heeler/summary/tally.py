"""Sums over GPU seconds: pure. What was not observed is in none of them, so it can't be taken for idle."""

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

IDLE_BELOW = 0.05  # utilisation of a window: a kernel or two of a monitor are no work
BUSY_FROM = 0.5
MEANS = ("util_ratio", "sm_active_ratio", "tensor_active_ratio", "dram_active_ratio", "power_w", "fb_used_bytes")
TOPS = ("power_w", "temp_c", "fb_used_bytes")
LEAST_S = 1e-3
GONE = frozenset(("lost", "hung"))


@dataclass(slots=True)
class Tally:
    """GPU seconds by what they were, energy, and what means are made of."""

    active_s: float = 0.0
    busy_s: float = 0.0  # of the active ones
    idle_s: float = 0.0
    lost_s: float = 0.0  # of those that are neither
    energy_j: float = 0.0
    energy_s: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    tops: dict[str, float] = field(default_factory=dict)

    @property
    def observed_s(self) -> float:
        """GPU seconds of which it is known what they were."""
        return self.active_s + self.idle_s

    def add(self, other: "Tally") -> None:
        """Add what another has."""
        self.active_s += other.active_s
        self.busy_s += other.busy_s
        self.idle_s += other.idle_s
        self.lost_s += other.lost_s
        self.energy_j += other.energy_j
        self.energy_s += other.energy_s
        for column, value in other.sums.items():
            self.sums[column] = self.sums.get(column, 0.0) + value
            self.seconds[column] = self.seconds.get(column, 0.0) + other.seconds[column]
        for column, value in other.tops.items():
            self.tops[column] = max(value, self.tops.get(column, value))

    def add_window(self, sample: Mapping[str, Any], rows: Sequence[int], seconds: float) -> None:
        """Add some seconds of some rows of a sample."""
        mean, states = sample["mean"], sample.get("state") or ()
        util, active = mean.get("util_ratio") or (), mean.get("sm_active_ratio") or ()
        power = mean.get("power_w") or ()
        for row in rows:
            if row < len(states) and states[row] in GONE:
                self.lost_s += seconds
                continue
            # NVML has no utilisation of a MIG device; the share of cycles with work on an SM says as much.
            self._add_use(_at(util, row) if _at(util, row) is not None else _at(active, row), seconds)
            if (watts := _at(power, row)) is not None:
                self.energy_j += watts * seconds
                self.energy_s += seconds
            self._add_columns(mean, row, seconds)

    def _add_use(self, use: float | None, seconds: float) -> None:
        if use is None:
            return
        if use < IDLE_BELOW:
            self.idle_s += seconds
            return
        self.active_s += seconds
        if use >= BUSY_FROM:
            self.busy_s += seconds

    def _add_columns(self, mean: Mapping[str, Sequence[float | None]], row: int, seconds: float) -> None:
        for column in MEANS:
            if (value := _at(mean.get(column) or (), row)) is not None:
                self.sums[column] = self.sums.get(column, 0.0) + value * seconds
                self.seconds[column] = self.seconds.get(column, 0.0) + seconds
        for column in TOPS:
            if (value := _at(mean.get(column) or (), row)) is not None:
                self.tops[column] = max(value, self.tops.get(column, value))


def _at(values: Sequence[float | None], row: int) -> float | None:
    return values[row] if row < len(values) else None


def whole_rows(sample: Mapping[str, Any], rows: Sequence[int]) -> list[int]:
    """Return the rows that count: of a divided GPU its MIG devices, never it and them."""
    parents = set(sample["gpu"].get("parent") or ()) - {None}
    if not parents:
        return list(rows)
    uuids = sample["gpu"]["uuid"]
    return [row for row in rows if uuids[row] not in parents]


@dataclass(slots=True)
class Coverage:
    """Which spans of a time have been counted, so that a twin, or a window that overlaps another, counts once."""

    spans: list[tuple[int, int]] = field(default_factory=list)

    def take(self, start: int, end: int) -> int:
        """Count a span; return how much of it was new."""
        if start >= end:
            return 0
        if self.spans and self.spans[-1][1] == start:  # almost always: the next window
            self.spans[-1] = (self.spans[-1][0], end)
            return end - start
        before = self.total()
        insort(self.spans, (start, end))
        self.spans = list(_joined(self.spans))
        return self.total() - before

    def total(self) -> int:
        """Return how much is counted."""
        return sum(end - start for start, end in self.spans)


def _joined(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    first, last = spans[0]
    for start, end in spans[1:]:
        if start > last:
            yield first, last
            first, last = start, end
        else:
            last = max(last, end)
    yield first, last


def amounts(tally: Tally, allocated_s: float | None) -> dict[str, Any]:
    """Return the amounts of a JobSummary: allocated = active + idle + unknown, whatever was observed.

    What was observed beyond what Slurm gave (a job on GPUs that are not its own) is told apart, since nobody
    granted it; active and idle keep their proportion.
    """
    seen = tally.observed_s
    share = 1.0 if allocated_s is None or seen <= allocated_s or seen == 0 else allocated_s / seen
    active, idle = tally.active_s * share, tally.idle_s * share
    found: dict[str, Any] = {
        "active_gpu_s": active,
        "busy_gpu_s": tally.busy_s * share,
        "idle_gpu_s": idle,
        "lost_gpu_s": tally.lost_s,
        "energy_gpu_s": tally.energy_s,
        "means": {column: value / tally.seconds[column] for column, value in tally.sums.items()},
        "mean_gpu_s": dict(tally.seconds),
        "max": dict(tally.tops),
    }
    if tally.energy_s > 0:
        found["energy_j"] = tally.energy_j
    if allocated_s is not None:
        unknown = max(0.0, allocated_s - active - idle)
        found |= {"allocated_gpu_s": active + idle + unknown, "unknown_gpu_s": unknown}
        found["lost_gpu_s"] = min(tally.lost_s, unknown)
        found["beyond_gpu_s"] = max(0.0, seen - allocated_s)
    return found


def tally_of(summary: Mapping[str, Any]) -> tuple[Tally, float | None]:
    """Return the tally that a summary was made from, and what was allocated, to go on from there."""
    allocated, beyond = summary.get("allocated_gpu_s"), summary.get("beyond_gpu_s", 0.0)
    active, idle = summary["active_gpu_s"], summary["idle_gpu_s"]
    share = 1.0 + beyond / (active + idle) if active + idle > LEAST_S else 1.0
    if share == 1.0 and beyond:  # nothing was granted: what it was is not told, only how much
        active += beyond
    seconds = {column: float(value) for column, value in summary.get("mean_gpu_s", {}).items()}
    means = summary.get("means", {})
    tally = Tally(
        active * share,
        summary.get("busy_gpu_s", 0.0) * share,
        idle * share,
        summary.get("lost_gpu_s", 0.0),
        summary.get("energy_j", 0.0),
        summary.get("energy_gpu_s", 0.0),
        {column: means[column] * value for column, value in seconds.items() if column in means},
        {column: value for column, value in seconds.items() if column in means},
        dict(summary.get("max", {})),
    )
    return tally, allocated
