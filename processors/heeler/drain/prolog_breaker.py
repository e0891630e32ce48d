"""The breaker of prologs: many nodes that fail at once are one fault of a check, a driver or a file system, not many.

Each failed prolog drains a node. When more nodes fail within ten minutes than can be chance, enforcement goes off on
all nodes, and stays off until an operator has looked and resets it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """When it opens: more nodes than both the number and the share of the fleet, within the window."""

    window_s: float = 600.0
    nodes: int = 2
    ratio: float = 0.02

    def most(self, fleet: int | None) -> int:
        """Return how many nodes may fail. A fleet whose size is not known counts as a small one."""
        return max(self.nodes, int(self.ratio * (fleet or 0)))


@dataclass(frozen=True, slots=True)
class Breaker:
    """What all nodes are told."""

    state: Literal["closed", "open"]
    why: str
    ts_ns: int  # since when


def judge(
    standing: Breaker | None, failures: Mapping[str, int], fleet: int | None, now_ns: int, limits: Limits | None = None
) -> Breaker:
    """Return the breaker, given each node's latest failed prolog (ns since the epoch). An open one stays open.

    Only prologs that failed because they are enforced count, one a node however often it failed.
    """
    limits = limits or Limits()
    if standing is not None and standing.state == "open":
        return standing
    since = now_ns - int(limits.window_s * NS)
    nodes = sorted(node for node, ts_ns in failures.items() if ts_ns > since)
    most = limits.most(fleet)
    if len(nodes) > most:
        shown = ", ".join(nodes[:8]) + (", ..." if len(nodes) > 8 else "")
        size = f"a fleet of {fleet}" if fleet else "a fleet of unknown size"
        why = f"prologs failed on {len(nodes)} nodes of {size} within {limits.window_s / 60:g} min, {most} may: {shown}"
        return Breaker("open", why, now_ns)
    if standing is not None:
        return standing
    return Breaker("closed", "no more prologs fail than may", now_ns)


def reset(actor: str, now_ns: int) -> Breaker:
    """Return the breaker closed again by an operator. Failures from before it must not be counted again."""
    return Breaker("closed", f"reset by {actor}", now_ns)


def counted(failures: Mapping[str, int], breaker: Breaker | None) -> dict[str, int]:
    """Return the failures since the last reset: those before it were seen by a person."""
    since = breaker.ts_ns if breaker is not None and breaker.state == "closed" else 0
    return {node: ts_ns for node, ts_ns in failures.items() if ts_ns > since}
