"""Nodes whose clock is off against the bus server's: their windows meet nobody's, and Slurm refuses them in the end.

The agent measures it and says how sure it is; where it has not, the time that its status bears is held against the
time at which it arrived. Two statuses in a row must say the same. Where many are off at once, the server's own clock
or the time service is, and no node is named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heeler.detect.findings import SECOND_NS, Book, Draft, duration
from heeler.detect.thresholds import ClockThresholds
from heeler.engine import NOTHING, Event, Inbound

KIND = "clock_skew"
ALL = "clock_skew|all"
STEADY_NS = SECOND_NS  # two late statuses of a wrong clock are late by the same; of a slow bus they are not
APART = 3  # of the agent's intervals: more between two statuses says nothing


@dataclass(slots=True)
class Off:
    """The clock of one node: ahead of the server's is positive."""

    offset_ns: int
    error_ns: int
    measured: bool
    server_ns: int
    interval_ns: int
    sure: bool = False  # two in a row
    since_ns: int = 0

    @property
    def least_ns(self) -> int:
        """How far off it is at least."""
        return abs(self.offset_ns) - self.error_ns


class ClockSkew:
    """The clocks of a cluster; only those that are off, by half of what is said, are remembered."""

    def __init__(self, t: ClockThresholds, nodes: Mapping[str, Any]) -> None:
        self.t, self.nodes = t, nodes
        self.off: dict[str, Off] = {}

    def on(self, message: Inbound) -> None:
        """Take a status in."""
        node, now, before = message.data["node"], _read(message), self.off.get(message.data["node"])
        if before is not None and now.server_ns <= before.server_ns:  # redelivered
            return
        least_ns, limit_ns = self.t.skew_s * SECOND_NS / 2, self.t.skew_s * SECOND_NS
        if now.least_ns < least_ns:
            self.off.pop(node, None)
            return
        now.since_ns = now.server_ns
        if before is not None and _goes_on(before, now):
            now.sure = before.sure or min(before.least_ns, now.least_ns) >= limit_ns
            now.since_ns = before.since_ns
        self.off[node] = now

    def tick(self, book: Book, now_ns: int) -> Sequence[Event]:
        """Say what has been said twice, and close what is in order."""
        if not self.off and not book.of_kind(KIND):
            return NOTHING
        since = now_ns - int(self.t.orphan_s * SECOND_NS)
        for node in [node for node, off in self.off.items() if off.server_ns <= since]:
            del self.off[node]
        sure = {node: off for node, off in self.off.items() if off.sure}
        many = len(sure) > max(self.t.mass_nodes, self.t.mass_share * len(self.nodes))
        events = list(self._mass(book, sure, now_ns) if many else book.close(ALL, now_ns, "few clocks are off"))
        for node, off in self.off.items():
            if (off.sure and not many) or book.get(f"{KIND}|{node}") is not None:
                events += self._say(book, node, off, now_ns)
        for found in book.of_kind(KIND):
            name = found.message["entity"].get("node")
            if found.message.get("data_ts", 0) <= since:
                events += book.close(found.key, now_ns, "no more data")
            elif name is not None and name not in self.off and name in self.nodes:
                events += book.close(found.key, now_ns, "the clock is right again")
        return events

    def _say(self, book: Book, node: str, off: Off, now_ns: int) -> Sequence[Event]:
        known = book.get(f"{KIND}|{node}")
        far = abs(off.offset_ns) >= self.t.person_s * SECOND_NS
        way = "ahead of" if off.offset_ns > 0 else "behind"
        return book.report(
            Draft(
                kind=KIND,
                ident=node,
                entity={"type": "node", "node": node},
                severity="warning",
                confidence=0.9 if off.measured else 0.7,
                advice="person" if far else "observe",
                cause="clock_off",
                summary=f"The clock of {node} is {_span(off.offset_ns)} {way} the bus server's.",
                first_ts=known.first_ts if known is not None else off.since_ns,
                data_ts=off.server_ns,
                evidence=[
                    {
                        "metric": "clock_offset_s",
                        "value": round(off.offset_ns / SECOND_NS, 3),
                        "unit": "s",
                        "error_s": round(off.error_ns / SECOND_NS, 3),
                        "text": "measured by the agent" if off.measured else "by the arrival of its messages",
                    }
                ],
            ),
            now_ns,
        )

    def _mass(self, book: Book, sure: Mapping[str, Off], now_ns: int) -> Sequence[Event]:
        known = book.get(ALL)
        offsets = sorted(off.offset_ns for off in sure.values())
        first = min(off.since_ns for off in sure.values())
        return book.report(
            Draft(
                kind=KIND,
                ident="all",
                entity={"type": "agent"},
                severity="warning",
                confidence=0.7,
                advice="person",
                cause="many_off",
                summary=f"{len(sure)} of {len(self.nodes)} clocks are off against the bus server's: its own clock or "
                "the time service.",
                first_ts=known.first_ts if known is not None else first,
                data_ts=max(off.server_ns for off in sure.values()),
                evidence=[
                    {
                        "metric": "clock_offset_s",
                        "value": round(offsets[len(offsets) // 2] / SECOND_NS, 3),
                        "unit": "s",
                        "peers": len(sure),
                        "text": ", ".join(sorted(sure)[:10]),
                    }
                ],
            ),
            now_ns,
        )


def _read(message: Inbound) -> Off:
    """Return what a status says of its node's clock."""
    data = message.data
    interval_ns = data.get("interval_ns") or 30 * SECOND_NS
    offset = data.get("clock_offset_ns")
    if offset is not None:
        return Off(offset, data.get("clock_offset_error_ns") or 0, True, message.ts_ns, interval_ns)
    return Off(data["ts"] - message.ts_ns, 0, False, message.ts_ns, interval_ns)


def _goes_on(before: Off, now: Off) -> bool:
    """Say whether two statuses in a row say the same."""
    near = now.server_ns - before.server_ns <= APART * max(before.interval_ns, now.interval_ns)
    same = before.measured == now.measured and (before.offset_ns > 0) == (now.offset_ns > 0)
    return near and same and (now.measured or abs(now.offset_ns - before.offset_ns) <= STEADY_NS)


def _span(offset_ns: int) -> str:
    return f"{abs(offset_ns) / SECOND_NS:.1f} s" if abs(offset_ns) < 60 * SECOND_NS else duration(abs(offset_ns))
