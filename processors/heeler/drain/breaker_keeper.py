"""Keeping the breaker of prologs: every instance hears of failed runs, the active one judges and tells the nodes.

What stands in the bucket is changed by compare-and-set only, so a former holder that wakes up changes nothing. The
failures themselves are not kept: each instance reads those of the window from the stream.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from heeler.bus import Bus, escape
from heeler.bus.claims import Claim, Claims
from heeler.bus.client import RETRYABLE
from heeler.drain.fleet import Fleet
from heeler.drain.hand import PROLOG, Switch
from heeler.drain.prolog_breaker import (
    NS,
    Breaker,
    Count,
    Kept,
    Limits,
    count,
    drained_by,
    drained_since,
    judge,
    ordered,
    when,
)

log = structlog.get_logger("heeler.drain")

BUCKET = "breakers"
SHOWN = 50
REFRESH_NS = 30 * NS  # half of what nodes may expect


def key_of(cluster: str, name: str = PROLOG) -> str:
    """Return the key of a breaker: several clusters may share a bus."""
    return f"{escape(cluster)}.{name}"


@dataclass(slots=True)
class BreakerKeeper:
    """The breaker of one cluster. Times are the bus server's."""

    bus: Bus
    limits: Limits
    actor: str
    fleet: Callable[[], Fleet]
    now_ns: Callable[[], int]
    switched: Callable[[], Switch | None] = lambda: None  # what an operator ordered last
    kept: Kept | None = None
    failures: dict[str, int] = field(default_factory=dict)  # node -> its latest run that drained it
    counts: Counter[str] = field(default_factory=Counter)
    _claims: Claims | None = None
    _claim: Claim | None = None
    _read: bool = False  # what stands in the bucket is known
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def breaker(self) -> Breaker | None:
        """What stands, as far as is known here."""
        return self.kept.breaker if self.kept is not None else None

    def heard(self, run: Mapping[str, Any], stamped_ns: int) -> bool:
        """Take in a HealthRun; says whether it counts. The same run again changes nothing."""
        if not drained_by(run):
            return False
        node, ts_ns = str(run["node"]), when(run, stamped_ns)
        if ts_ns <= self.now_ns() - int(self.limits.window_s * NS):
            self.counts["breaker_runs_late_total"] += 1
            return False
        self.failures[node] = max(ts_ns, self.failures.get(node, 0))
        return True

    def forget(self) -> None:
        """Leave the bucket to another instance: what stands there has to be read again."""
        self._read = False

    async def keep(self) -> None:
        """Judge, and tell the nodes if something has changed or it is time. Only for the active instance.

        Never raises for what the bus does: the next call tries again.
        """
        try:
            async with self._busy:
                if not self._read:
                    await self._look()
                if self._read:
                    await self._judge()
        except RETRYABLE as error:
            self.forget()  # whether it was written can't be told
            log.warning("breaker_not_kept", error=f"{type(error).__name__}: {error}")

    async def _look(self) -> None:
        """Read what stands in the bucket."""
        if self._claims is None:
            self._claims = await Claims.open(self.bus, BUCKET)
        self._claim = await self._claims.get(key_of(self.bus.cluster))
        self.kept = None
        self._read = True
        if self._claim is None:
            return
        try:
            self.kept = Kept.unpack(self._claim.value)
        except ValueError as err:
            # What can't be read may have been open. An operator has to look.
            log.error("breaker_unreadable", error=str(err))  # noqa: TRY400 - its words say it all
            self.kept = Kept(Breaker("open", f"what stood in the bucket is {err}", self.now_ns()), "", "", 0)
        if self.kept.cluster not in ("", self.bus.cluster):
            self._read, theirs, self.kept = False, self.kept.cluster, None
            log.error("breaker_of_another_cluster", ours=self.bus.cluster, theirs=theirs)

    async def _judge(self) -> None:
        now_ns = self.now_ns()
        oldest_ns = now_ns - int(self.limits.window_s * NS)
        self.failures = {node: ts_ns for node, ts_ns in self.failures.items() if ts_ns > oldest_ns}
        standing = ordered(self.breaker, self.switched())
        new = judge(standing, self.failures, self._size, now_ns, self.limits, self._drained)
        if new != self.breaker or self.kept is None or now_ns - self.kept.ts_ns >= REFRESH_NS:
            await self.put(new)

    async def put(self, new: Breaker) -> bool:
        """Put a breaker in the place of the one that is known; False where another stands there by now."""
        assert self._claims is not None
        old, now_ns = self.breaker, self.now_ns()
        claim = await self._claims.set(
            key_of(self.bus.cluster), new.pack(self.bus.cluster, self.actor, now_ns), self._claim
        )
        if claim is None:
            self.forget()
            return False
        self._claim, self.kept = claim, Kept(new, self.bus.cluster, self.actor, now_ns)
        if old is None or old.state != new.state:
            self.counts[f"breaker_changes_total.{new.state}"] += 1
            say = log.error if new.state == "open" else log.warning
            say(f"breaker_{new.state}", breaker=PROLOG, why=new.why, person_needed=new.state == "open")
        return True

    @property
    def count(self) -> Count:
        """What is held against the limits now."""
        return count(self.breaker, self.failures, self._drained, self._size, self.now_ns(), self.limits)

    @property
    def _size(self) -> int | None:
        return self.fleet().size or None

    @property
    def _drained(self) -> dict[str, int]:
        fleet = self.fleet()
        return drained_since(fleet.nodes[name] for name in fleet.marked)

    def plain(self) -> dict[str, Any]:
        """Return how it stands, for JSON."""
        if self.kept is None:
            return {"state": "unknown", "why": "it was not read yet, or nothing that can be read stands there"}
        held, breaker = self.count, self.kept.breaker
        return {
            "state": breaker.state,
            "why": breaker.why,
            "since_ns": breaker.since_ns,
            "actor": breaker.actor or None,
            "keeper": self.kept.keeper or None,
            "kept_ns": self.kept.ts_ns,
            "failed": {"used": len(held.failed), "limit": held.failed_most, "nodes": list(held.failed[:SHOWN])},
            "drained": {"used": len(held.drained), "limit": held.drained_most, "nodes": list(held.drained[:SHOWN])},
        }

    def metrics(self) -> dict[str, float]:
        """Return what this part counts, by metric name."""
        found: dict[str, float] = {name: float(number) for name, number in self.counts.items()}
        if self.breaker is not None:
            found["breaker_open"] = float(self.breaker.state == "open")
        held = self.count
        return found | {"breaker_nodes_failed": len(held.failed), "breaker_nodes_drained": len(held.drained)}
