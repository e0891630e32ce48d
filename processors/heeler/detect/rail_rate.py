"""InfiniBand and RoCE ports that are active at a lower rate than they should be: half the lanes, or a slower speed.

What a port should have is what it has had, or what its siblings on the node have where the same port of other nodes
does not say that it was built so: storage and management adapters are slower by design. A port that is not active
shows any rate, and says nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.arrival import Arrival
from heeler.detect.findings import SECOND_NS, Book, Draft, Evidence, duration, of_jobs
from heeler.detect.ib import AHEAD_NS, LATE_NS, UP
from heeler.detect.marks import Marks, Patience
from heeler.detect.node_context import RESUMED, NodeContext
from heeler.detect.thresholds import RailThresholds
from heeler.engine import NOTHING, Event, Inbound

KIND = "rail_degraded"
ORPHAN_NS = 1200 * SECOND_NS
LEAST_OTHERS = 2  # nodes, to say how a port was built
MOST_NODES = 65_536
Place = tuple[str, float]  # a port, and the usual rate of its siblings


class FleetRates:
    """What rate each port has on every node of a cluster, so that what was built so is no fault."""

    def __init__(self) -> None:
        self.of_node: dict[str, dict[Place, float]] = {}
        self.counts: dict[Place, Counter[float]] = {}

    def put(self, node: str, rates: Mapping[Place, float]) -> None:
        """Learn the rates of a node's ports."""
        for place, rate in self.of_node.pop(node, {}).items():
            self._count(place, rate, -1)
        if len(self.of_node) < MOST_NODES:
            self.of_node[node] = dict(rates)
            for place, rate in rates.items():
                self._count(place, rate, 1)

    def _count(self, place: Place, rate: float, change: int) -> None:
        counts = self.counts.setdefault(place, Counter())
        counts[rate] += change
        if not counts[rate]:
            del counts[rate]

    def faster(self, node: str, place: Place, rate: float) -> tuple[int, int]:
        """Return on how many other nodes this port is faster than that, and how many have it."""
        counts = Counter(self.counts.get(place, {}))
        own = self.of_node.get(node, {}).get(place)
        if own is not None:
            counts[own] -= 1
        return sum(times for other, times in counts.items() if other > rate), counts.total()


@dataclass(slots=True)
class Low:
    """A port below what it should have."""

    rate: float
    best: float
    cause: str
    peers: int = 0


@dataclass(slots=True)
class Watched:
    """One port."""

    name: str = ""
    best: float = 0.0  # that it has had
    accepted: float = 0.0  # that someone has put up with ...
    accepted_ns: int = 0  # ... since then
    marks: Marks = field(default_factory=Marks)


class RailRate:
    """The ports of one node."""

    def __init__(self, t: RailThresholds, fleet: FleetRates) -> None:
        self.t, self.fleet = t, fleet
        self.patience = Patience(t.after_s, t.clear_s, 2 * t.after_s)
        self.ports: dict[str, Watched] = {}
        self.arrival = Arrival()
        self.seen: list[tuple[Any, Any]] = []
        self.busy = False
        self.unsure = False  # too few nodes were heard to know how it was built
        self.heard_ns = 0

    def on(self, book: Book, node: NodeContext, message: Inbound) -> Sequence[Event]:
        """Take a sample in."""
        sample, now_ns = message.data, message.ts_ns
        if self.arrival.accept(sample["boot"], sample["ts"], now_ns, AHEAD_NS, LATE_NS) != "ok":
            return NOTHING
        self.heard_ns = now_ns
        told = sample["ports"]
        seen = [(port.get("state"), port.get("rate_gbps")) for port in told]
        if seen == self.seen and not (self.busy or self.unsure):
            return NOTHING
        self.seen, self.unsure = seen, False
        return self._judge(book, node, told, sample.get("window_ns") or 10 * SECOND_NS, now_ns)

    def _judge(
        self, book: Book, node: NodeContext, told: Sequence[Mapping[str, Any]], window_ns: int, now_ns: int
    ) -> Sequence[Event]:
        rates = {_ident(p): float(p["rate_gbps"]) for p in told if p.get("state") in UP and p.get("rate_gbps")}
        names = {_ident(p): _name(p) for p in told}
        usual = _usual(told, rates)
        self.fleet.put(node.name, {(names[i], usual[i]): rate for i, rate in rates.items() if i in usual})
        low = {ident: self._low(node.name, ident, names[ident], rate, usual) for ident, rate in rates.items()}
        bad = sum(one is not None for one in low.values())
        events: list[Event] = []
        for ident, one in low.items():
            port = self.ports.setdefault(ident, Watched())
            port.name = names[ident]
            events += self._port(book, node, ident, one, window_ns, now_ns, few=bad <= max(1, len(rates) // 4))
            if now_ns > port.accepted_ns:
                port.best = max(port.best, rates[ident])
                port.accepted = port.accepted if rates[ident] <= port.accepted else 0.0
        self.busy = bool(book.of_kind(KIND)) or any(port.marks.all for port in self.ports.values())
        return events or NOTHING

    def _low(self, node: str, ident: str, name: str, rate: float, usual: Mapping[str, float]) -> Low | None:
        """Return how far a port is below what it should have; None where it is not, or nobody can say."""
        port = self.ports.get(ident)
        if port is not None and rate == port.accepted:
            return None
        if port is not None and rate < port.best:
            return Low(rate, port.best, "rate_fell")
        siblings = usual.get(ident)
        if siblings is None or rate >= siblings:
            return None
        faster, others = self.fleet.faster(node, (name, siblings), rate)
        self.unsure |= others < LEAST_OTHERS
        sure = others >= LEAST_OTHERS and 2 * faster > others
        return Low(rate, siblings, "rate_below_siblings", faster) if sure else None

    def _port(
        self, book: Book, node: NodeContext, ident: str, low: Low | None, window_ns: int, now_ns: int, *, few: bool
    ) -> Sequence[Event]:
        key, port = f"{KIND}|{ident}", self.ports[ident]
        known = book.get(key)
        if known is None and low is None and not port.marks.all:
            return NOTHING
        port.marks.add(now_ns, 1.0 if low else 0.0, self.patience, watched=known is not None)
        if low is None:
            if known is not None and port.marks.clear(self.patience, now_ns):
                return book.close(key, now_ns, "at its rate again")
            return NOTHING
        since = port.marks.since(self.patience, window_ns, book.closed_ns(key))
        if known is None and (since is None or node.quiet or now_ns <= port.accepted_ns):
            return NOTHING
        first = known.first_ts if known is not None else since or now_ns
        return book.report(self._draft(node, ident, low, first, now_ns, few=few), now_ns)

    def _draft(self, node: NodeContext, ident: str, low: Low, first: int, now_ns: int, *, few: bool) -> Draft:
        name, jobs, lasted = self.ports[ident].name, node.running(), now_ns - first
        drain = few and lasted >= self.t.drain_after_s * SECOND_NS
        item: Evidence = {"metric": "rate_gbps", "value": low.rate, "unit": "Gbit/s", "best": low.best}
        if low.peers:
            item |= {"peers_median": low.best, "peers": low.peers}
        return Draft(
            kind=KIND,
            ident=ident,
            entity={"type": "port", "node": node.name, "port": name, "rate_gbps": low.rate, "best_gbps": low.best},
            severity="critical" if drain and jobs else "warning",
            confidence=0.9 if low.cause == "rate_fell" else 0.8,
            advice="drain_after_job" if drain else "observe",
            cause=low.cause,
            summary=f"Port {name} on {node.name} runs at {low.rate:g} of {low.best:g} Gbit/s for "
            f"{duration(lasted)}{of_jobs(jobs)}.",
            first_ts=first,
            data_ts=now_ns,
            evidence=[item],
            jobs=jobs,
        )

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Learn from a finding that was read back what its port should have, or that someone puts up with it."""
        entity = finding["entity"]
        ident, best = entity.get("ident"), entity.get("best_gbps")
        if finding["kind"] != KIND or not isinstance(ident, str):
            return
        port = self.ports.setdefault(ident, Watched(str(entity.get("port", ""))))
        if finding["state"] != "closed" and isinstance(best, int | float):
            port.best = max(port.best, float(best))
            self.busy = True
        elif finding.get("close_reason") == RESUMED and finding["ts"] > port.accepted_ns:
            self._accept(port, entity, finding["ts"])

    def resumed(self, book: Book, now_ns: int) -> list[Event]:
        """Put up with what an operator has seen."""
        events: list[Event] = []
        for found in book.of_kind(KIND):
            entity = found.message["entity"]
            self._accept(self.ports.setdefault(str(entity.get("ident")), Watched()), entity, now_ns)
            events += book.close(found.key, now_ns, RESUMED)
        return events

    @staticmethod
    def _accept(port: Watched, entity: Mapping[str, Any], now_ns: int) -> None:
        rate = entity.get("rate_gbps")
        port.accepted, port.accepted_ns = float(rate) if isinstance(rate, int | float) else 0.0, now_ns
        port.best = port.accepted
        port.marks.all.clear()

    def tick(self, book: Book, now_ns: int) -> list[Event]:
        """Close what nobody will say more about."""
        return [
            event
            for found in book.of_kind(KIND)
            if now_ns - max(self.heard_ns, found.message.get("data_ts", 0)) > ORPHAN_NS
            for event in book.close(found.key, now_ns, "no more data")
        ]


def _ident(port: Mapping[str, Any]) -> str:
    return f"{port.get('guid') or port['device']}/{port['port']}"


def _name(port: Mapping[str, Any]) -> str:
    return f"{port['device']}/{port['port']}"


def _usual(told: Sequence[Mapping[str, Any]], rates: Mapping[str, float]) -> dict[str, float]:
    """Return the rate that most of a port's siblings of its link layer have; nothing where they differ."""
    usual: dict[str, float] = {}
    layers: dict[str, list[str]] = {}
    for port in told:
        if _ident(port) in rates:
            layers.setdefault(str(port.get("link_layer") or ""), []).append(_ident(port))
    for members in layers.values():
        rate, times = Counter(rates[ident] for ident in members).most_common(1)[0]
        if times >= 3 and 2 * times > len(members):
            usual |= dict.fromkeys(members, rate)
    return usual
