"""The breaker of prologs: many nodes that fail at once are one fault of a check, a driver or a file system, not many.

Each failed prolog drains a node. When more nodes fail within ten minutes than can be chance, or more stand drained so
than may, enforcement goes off on all nodes, and stays off until an operator has looked and resets it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heeler.drain.hand import Switch
from heeler.drain.node import NodeView
from heeler.drain.settings import Limits as PolicyLimits

NS = 1_000_000_000
AROUND_JOBS = ("prolog", "epilog")
HELD = ("breaker_open", "breaker_unknown")
REASONS = ("heeler:prolog:", "heeler:epilog:", "heeler:periodic:")
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """When it opens: more nodes than both the number and the share of the fleet."""

    window_s: float = 600.0
    failed_min: int = 2
    failed_ratio: float = 0.02
    drained_min: int = 2
    drained_ratio: float = 0.05

    @classmethod
    def of(cls, limits: PolicyLimits) -> "Limits":
        """Return what a policy says of the breaker."""
        return cls(
            limits.health_window_s,
            limits.health_failed_min,
            limits.health_failed_ratio,
            limits.health_drained_min,
            limits.health_drained_ratio,
        )

    def most_failed(self, fleet: int | None) -> int:
        """Return how many nodes may fail within the window. A fleet of unknown size counts as a small one."""
        return max(self.failed_min, int(self.failed_ratio * (fleet or 0)))

    def most_drained(self, fleet: int | None) -> int:
        """Return how many nodes may stand drained by health checks at once."""
        return max(self.drained_min, int(self.drained_ratio * (fleet or 0)))


@dataclass(frozen=True, slots=True)
class Breaker:
    """What all nodes are told, and since when."""

    state: Literal["closed", "open"]
    why: str
    since_ns: int
    actor: str = ""  # who opened or closed it

    def pack(self, cluster: str, keeper: str, now_ns: int) -> bytes:
        """Return the bytes for the bucket. `ts_ns` tells nodes how long ago a keeper was there."""
        value = {"state": self.state, "why": self.why, "ts_ns": now_ns, "since_ns": self.since_ns}
        return json.dumps(value | {"actor": self.actor, "cluster": cluster, "keeper": keeper}).encode()


@dataclass(frozen=True, slots=True)
class Kept:
    """A breaker as it stands in the bucket: who kept it last, and when."""

    breaker: Breaker
    cluster: str
    keeper: str
    ts_ns: int

    @classmethod
    def unpack(cls, value: bytes) -> "Kept":
        """Return what stands in the bucket. Raises ValueError."""
        try:
            found = json.loads(value)
            state, ts_ns, since_ns = found["state"], found["ts_ns"], found["since_ns"]
            words = [found[name] for name in ("why", "actor", "cluster", "keeper")]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"not a breaker: {value[:100]!r}") from None
        whole = type(ts_ns) is int and type(since_ns) is int and all(isinstance(word, str) for word in words)
        if state not in ("open", "closed") or not whole:
            raise ValueError(f"not a breaker: {value[:100]!r}")
        why, actor, cluster, keeper = words
        return cls(Breaker(state, why, since_ns, actor), cluster, keeper, ts_ns)


def drained_by(run: Mapping[str, Any]) -> bool:
    """Say whether a HealthRun drained its node, or would have were it not for the breaker.

    A run that is not enforced drains nothing, whatever it found, and a periodic one only where it has set a reason.
    """
    held = run.get("enforcement") in HELD
    if run["phase"] in AROUND_JOBS:
        return run["verdict"] == "fail" or (run["verdict"] == "would_fail" and held)
    return run["phase"] == "periodic" and (held or str(run.get("reason", "")).startswith(REASONS))


def when(run: Mapping[str, Any], stamped_ns: int) -> int:
    """Return when a run was, by its own clock, but not after the bus had it.

    What was kept back during an outage, or is replayed, so counts for the time at which it happened.
    """
    return min(int(run["ts"]), stamped_ns)


def drained_since(views: Iterable[NodeView]) -> dict[str, int]:
    """Return node -> since when, of the nodes that stand drained under the reason of a health check."""
    return {
        view.name: view.reason_ts_ns or view.seen_ns
        for view in views
        if view.draining and (view.reason or "").startswith(REASONS)
    }


@dataclass(frozen=True, slots=True)
class Count:
    """What is held against the limits now: nodes that failed within the window, nodes that stand drained."""

    failed: tuple[str, ...]
    drained: tuple[str, ...]
    failed_most: int
    drained_most: int


def count(
    standing: Breaker | None,
    failures: Mapping[str, int],
    drained: Mapping[str, int],
    fleet: int | None,
    now_ns: int,
    limits: Limits,
) -> Count:
    """Return the nodes that count, one each however often it failed.

    A node that Slurm shows as drained by a check has failed too: its own word of it may have been lost. What was before
    the last reset has been seen by a person. Drains from before there was a breaker are history.
    """
    seen_ns = standing.since_ns if standing is not None and standing.state == "closed" else 0
    since_ns = max(now_ns - int(limits.window_s * NS), seen_ns)
    failed = {node for times in (failures, drained) for node, ts_ns in times.items() if ts_ns > since_ns}
    stand = {node for node, ts_ns in drained.items() if ts_ns > seen_ns} if standing is not None else set()
    most = limits.most_failed(fleet), limits.most_drained(fleet)
    return Count(tuple(sorted(failed)), tuple(sorted(stand)), *most)


def judge(
    standing: Breaker | None,
    failures: Mapping[str, int],
    fleet: int | None,
    now_ns: int,
    limits: Limits | None = None,
    drained: Mapping[str, int] | None = None,
) -> Breaker:
    """Return the breaker, given each node's latest failed run and standing drain (ns since the epoch).

    An open one stays open.
    """
    limits = limits or Limits()
    if standing is not None and standing.state == "open":
        return standing
    found = count(standing, failures, drained or {}, fleet, now_ns, limits)
    size = f"a fleet of {fleet}" if fleet else "a fleet of unknown size"
    if len(found.failed) > found.failed_most:
        what = f"health checks drained or would have drained {len(found.failed)} nodes of {size} within "
        why = f"{what}{limits.window_s / 60:g} min, {found.failed_most} may: {_names(found.failed)}"
        return Breaker("open", why, now_ns)
    if len(found.drained) > found.drained_most:
        what = f"{len(found.drained)} nodes of {size} stand drained by health checks"
        return Breaker("open", f"{what}, {found.drained_most} may: {_names(found.drained)}", now_ns)
    if standing is not None:
        return standing
    return Breaker("closed", "no more nodes fail than may", now_ns)


def ordered(standing: Breaker | None, switch: Switch | None) -> Breaker | None:
    """Return the breaker after what an operator ordered last, which may be long ago and done already."""
    if switch is None or (standing is not None and switch.at_ns <= standing.since_ns):
        return standing
    if standing is not None and (standing.state == "open") == switch.on:
        return standing
    return Breaker(
        "open" if switch.on else "closed", f"{switch.why}, by {switch.actor}"[:500], switch.at_ns, switch.actor
    )


def _names(nodes: tuple[str, ...]) -> str:
    return ", ".join(nodes[:SHOWN]) + (", ..." if len(nodes) > SHOWN else "")
