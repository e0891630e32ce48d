"""Whose turn it is: what is due when, spread so that not all comes at once, slower while Slurm is away."""

import random
import time
from dataclasses import dataclass

from heeler.slurm.collect import Collector, Lane

SPREAD_S = 60.0  # tables asked for first within so long after the start


@dataclass(slots=True)
class Turn:
    """One thing to ask for: when it is due, and how it went."""

    name: str
    interval_s: float
    due_s: float = 0.0
    failures: int = 0
    success_ts_ns: int | None = None
    why: str | None = None
    jitter: float = 0.1
    unreadable: int = 0
    collector: Collector | None = None  # of a table; jobs and nodes are the feed's own
    table_due_s: float = 0.0
    stats_due_s: float = 0.0
    asked_s: float = 0.0

    @property
    def lane(self) -> Lane:
        """Who has to answer."""
        return "slurmctld" if self.collector is None else self.collector.lane

    def wait_s(self, max_backoff_s: float) -> float:
        """Return how long to wait before the next try: the interval with jitter, longer while Slurm is away."""
        if not self.failures:
            return self.interval_s * random.uniform(1 - self.jitter, 1 + self.jitter)
        # What is asked for once a day is tried again after a minute, then ever more seldom.
        base = min(self.interval_s, max_backoff_s)
        longest = min(base * 2.0 ** min(self.failures, 16), max(max_backoff_s, self.interval_s))
        return random.uniform(base / 2, longest)

    def first_s(self) -> float:
        """Return when a table is due after a start."""
        return time.monotonic() + random.uniform(0.0, min(self.interval_s, SPREAD_S))
