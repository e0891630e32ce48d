"""One rail of one node that carries far less than the same rail of the other nodes of its job.

Rails of a node differ by design: pipelines use some of them, and storage has its own. The same rail of all nodes of a
job carries alike, so only that is compared, and only where the node's other rails are busy as usual. A slow rail
slows all rails of a ring down, so little traffic is a suspicion of wrong routing, never a reason to drain.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heeler.detect.arrival import Arrival
from heeler.detect.findings import SECOND_NS, Book, Draft, duration, of_jobs
from heeler.detect.ib import AHEAD_NS, LATE_NS
from heeler.detect.marks import Marks, Patience
from heeler.detect.thresholds import RailThresholds
from heeler.engine import NOTHING, Event, Inbound

KIND = "rail_slow"
TOLD_BY = ("ib_down", "ib_flap", "rail_degraded")
COUNTERS = ("port_xmit_data", "port_rcv_data")
EVERY_NS = 30 * SECOND_NS
FRESH_NS = 90 * SECOND_NS
SPAN_NS = 120 * SECOND_NS  # that rates are taken over
LIKE = 0.25  # nodes within this of the median carry alike
MOST_GBPS = 3200.0  # more than any port has: a counter that leapt
Floats = NDArray[np.float64]


@dataclass(slots=True)
class Node:
    """What one node's ports carry."""

    arrival: Arrival = field(default_factory=Arrival)
    names: list[str] = field(default_factory=list)
    read: deque[tuple[int, list[float | None]]] = field(default_factory=deque)  # (time, counters)
    heard_ns: int = 0

    def rates(self, least_ns: int) -> list[float]:
        """Return bytes/s of each port over the time remembered, NaN where not known; nothing where that is short.

        Steps take up to a minute, and their traffic comes in bursts: a window alone says nothing.
        """
        if not self.read or self.read[-1][0] - self.read[0][0] < least_ns:
            return []
        (first_ts, first), (last_ts, last) = self.read[0], self.read[-1]
        return [_rate(now, before, (last_ts - first_ts) / SECOND_NS) for now, before in zip(last, first, strict=True)]


class RailFlow:
    """The nodes of one job."""

    def __init__(self, job: str, t: RailThresholds) -> None:
        self.job, self.t = job, t
        self.patience = Patience(t.slow_after_s, t.clear_s, 2 * t.slow_after_s)
        self.nodes: dict[str, Node] = {}
        self.marks: dict[tuple[str, str], Marks] = {}  # by node and port
        self.number = 0
        self.told: set[tuple[str, str]] = set()  # ports that have a finding of their own

    def on(self, book: Book, message: Inbound) -> Sequence[Event]:
        """Take a message in."""
        if message.kind == "Finding":
            self._learn(message.data)
            return NOTHING
        if message.kind == "JobEvent":
            if message.data["event"] == "ended":
                self.nodes.clear()
                self.marks.clear()
                return book.close_kinds((KIND,), message.ts_ns, "the job ended")
            return NOTHING
        if message.kind != "IbSample":
            return NOTHING
        self._read(message.data, message.ts_ns)
        number = message.ts_ns // EVERY_NS
        if number <= self.number:
            return NOTHING
        first, self.number = self.number == 0, number
        return NOTHING if first else self._judge(book, message.ts_ns)

    def _learn(self, finding: Mapping[str, Any]) -> None:
        entity = finding["entity"]
        if finding["kind"] in TOLD_BY:
            place = (str(entity.get("node", "")), str(entity.get("port", "")))
            (self.told.discard if finding["state"] == "closed" else self.told.add)(place)

    def _read(self, sample: Mapping[str, Any], now_ns: int) -> None:
        node = self.nodes.setdefault(sample["node"], Node())
        if node.arrival.accept(sample["boot"], sample["ts"], now_ns, AHEAD_NS, LATE_NS) != "ok":
            return
        names = [f"{port['device']}/{port['port']}" for port in sample["ports"]]
        now = [_carried(port) for port in sample["ports"]]
        broken = names != node.names or (
            node.read and any(_fell(a, b) for a, b in zip(now, node.read[-1][1], strict=True))
        )
        if broken or (node.read and sample["ts"] - node.read[-1][0] > FRESH_NS):
            node.read.clear()
        node.names, node.heard_ns = names, now_ns
        node.read.append((sample["ts"], now))
        while len(node.read) > 2 and sample["ts"] - node.read[1][0] >= SPAN_NS:
            node.read.popleft()

    def _judge(self, book: Book, now_ns: int) -> Sequence[Event]:
        self.nodes = {name: n for name, n in self.nodes.items() if now_ns - n.heard_ns <= FRESH_NS}
        found = {name: own for name, n in self.nodes.items() if (own := n.rates(SPAN_NS))}
        fresh = {name: self.nodes[name] for name in found}
        if len(fresh) < self.t.least_nodes:
            return self._orphans(book, now_ns)
        ports = sorted({port for node in fresh.values() for port in node.names})
        rows = {port: at for at, port in enumerate(ports)}
        rates = np.full((len(ports), len(fresh)), np.nan)
        for column, (name, node) in enumerate(fresh.items()):
            rates[[rows[port] for port in node.names], column] = found[name]
        usual, slow, judged = odd_rails(rates, self.t)
        events: list[Event] = []
        names = list(fresh)
        asked = slow | (judged & self._watched(names, ports))
        for at_row, at_column in zip(*asked.nonzero(), strict=True):
            row, column = int(at_row), int(at_column)
            value, median = float(rates[row, column]), float(usual[row])
            seen = (value, median, int(judged[row].sum()) - 1)
            events += self._port(book, names[column], ports[row], seen, now_ns, bad=bool(slow[row, column]))
        return [*events, *self._orphans(book, now_ns)]

    def _watched(self, nodes: Sequence[str], ports: Sequence[str]) -> NDArray[np.bool_]:
        """Return which are marked already: they are asked whether they are good again."""
        found = np.zeros((len(ports), len(nodes)), np.bool_)
        if self.marks:
            rows, columns = {p: at for at, p in enumerate(ports)}, {n: at for at, n in enumerate(nodes)}
            for node, port in self.marks:
                if node in columns and port in rows:
                    found[rows[port], columns[node]] = True
        return found

    def _port(
        self, book: Book, node: str, port: str, seen: tuple[float, float, int], now_ns: int, *, bad: bool
    ) -> Sequence[Event]:
        ident = f"{node}:{port}"
        known = book.get(f"{KIND}|{ident}")
        if (node, port) in self.told:
            self.marks.pop((node, port), None)
            return NOTHING if known is None else book.close(known.key, now_ns, "its port has a finding of its own")
        marks = self.marks.setdefault((node, port), Marks())
        marks.add(now_ns, float(bad), self.patience, watched=known is not None)
        if not marks.all:
            del self.marks[node, port]
            return NOTHING
        if not bad:
            clear = known is not None and marks.clear(self.patience, now_ns)
            return book.close(f"{KIND}|{ident}", now_ns, "carries as much as the others") if clear else NOTHING
        since = marks.since(self.patience, EVERY_NS, book.closed_ns(f"{KIND}|{ident}"))
        if known is None and since is None:
            return NOTHING
        first = known.first_ts if known is not None else since or now_ns
        return book.report(self._draft(node, port, ident, seen, first, now_ns), now_ns)

    def _draft(
        self, node: str, port: str, ident: str, seen: tuple[float, float, int], first: int, now_ns: int
    ) -> Draft:
        value, median, peers = seen
        return Draft(
            kind=KIND,
            ident=ident,
            entity={"type": "port", "node": node, "port": port, "job_id": self.job},
            severity="warning",
            confidence=0.5,
            advice="observe",
            cause="unknown",
            summary=f"Port {port} on {node} carries {value / 1e9:.2f} GB/s while it carries {median / 1e9:.2f} on the "
            f"{peers} other nodes, for {duration(now_ns - first)}{of_jobs([self.job])}.",
            first_ts=first,
            data_ts=now_ns,
            evidence=[
                {
                    "metric": "port_bytes_per_s",
                    "value": round(value),
                    "unit": "By/s",
                    "peers_median": round(median),
                    "peers": peers,
                    "deviation_ratio": round(value / median - 1.0, 4),
                }
            ],
            jobs=[self.job],
        )

    def _orphans(self, book: Book, now_ns: int) -> list[Event]:
        orphan_ns = int(self.t.orphan_s * SECOND_NS)
        return [
            event
            for found in book.of_kind(KIND)
            if now_ns - found.message.get("data_ts", 0) > orphan_ns
            for event in book.close(found.key, now_ns, "no more traffic to compare")
        ]

    def tick(self, book: Book, now_ns: int) -> list[Event]:
        """Close what nobody will say more about."""
        return self._orphans(book, now_ns)


def odd_rails(rates: Floats, t: RailThresholds) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the median of each rail, which carry far less, and which were judged; all of (rails, nodes)."""
    known = ~np.isnan(rates)
    nothing = np.zeros(rates.shape, np.bool_)
    enough = known.sum(axis=1) >= t.least_nodes
    usual = np.full(len(rates), np.nan)
    usual[enough] = np.nanmedian(rates[enough], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = rates / np.where(usual >= t.floor_bytes_per_s, usual, np.nan)[:, None]
        alike = (np.abs(share - 1.0) <= LIKE).sum(axis=1) >= t.alike_share * (known.sum(axis=1) - 1)
        share[~alike] = np.nan  # nodes use this rail in different ways
        judged = ~np.isnan(share)
        several = judged.sum(axis=0) >= 2  # else no other rail says how busy the node is
        if not several.any():
            return usual, nothing, nothing
        level = np.full(rates.shape[1], np.nan)
        level[several] = np.nanmedian(share[:, several], axis=0)
        slow = (share < t.slow_share) & (level >= 1.0 - LIKE)[None, :]
    most = max(1, int(t.few_share * rates.shape[1]))
    if np.count_nonzero(slow.any(axis=0)) > most:
        slow = nothing
    return usual, slow, judged


def _carried(port: Mapping[str, Any]) -> float | None:
    counters, saturated = port.get("counters") or {}, port.get("saturated") or ()
    values = [counters.get(name) for name in COUNTERS]
    if port.get("state") not in ("active", "active_defer") or not {*COUNTERS}.isdisjoint(saturated):
        return None
    return None if None in values else float(sum(v for v in values if v is not None))


def _rate(now: float | None, before: float | None, passed_s: float) -> float:
    if now is None or before is None or now < before:
        return float("nan")
    rate = (now - before) / passed_s
    return rate if rate * 8 <= MOST_GBPS * 1e9 else float("nan")


def _fell(now: float | None, before: float | None) -> bool:
    return now is not None and before is not None and now < before
