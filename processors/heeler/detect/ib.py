"""InfiniBand and RoCE ports: links that go down again and again, and links that stay down.

A port is expected once it has been seen active; spare ports that are down by design never are. Counters may stand
at the top of their width or be reset: then they say nothing and the states and the other counters are asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.arrival import Arrival
from heeler.detect.findings import SECOND_NS, Book, Draft, duration, of_jobs
from heeler.detect.node_context import NodeContext
from heeler.detect.thresholds import IbThresholds
from heeler.engine import NOTHING, Event, Inbound

KINDS = ("ib_flap", "ib_down")
UP = frozenset(("active", "active_defer"))
DOWN = frozenset(("nop", "down", "init", "armed"))
COUNTERS = ("link_downed", "carrier_down_count")
MOST_FLAPS = 20  # of one sample: a counter that leapt says little more
AHEAD_NS, LATE_NS = 5 * SECOND_NS, 60 * SECOND_NS


@dataclass(slots=True)
class Port:
    """One port as last seen."""

    name: str
    seen: tuple[Any, ...] = ()  # state and counters, to skip what has not changed
    state: str = ""
    counters: dict[str, int] = field(default_factory=dict)  # the usable ones
    expected: bool = False
    down_since: int = 0
    flaps: list[int] = field(default_factory=list)


class Ib:
    """The ports of one node."""

    def __init__(self, t: IbThresholds) -> None:
        self.t = t
        self.ports: dict[str, Port] = {}
        self.arrival = Arrival()
        self.boot = ""
        self.waiting = 0  # expected ports that are down

    def on(self, book: Book, node: NodeContext, message: Inbound) -> Sequence[Event]:
        """Take a sample in."""
        sample, now_ns = message.data, message.ts_ns
        if self.arrival.accept(sample["boot"], sample["ts"], now_ns, AHEAD_NS, LATE_NS) != "ok":
            return NOTHING
        if sample["boot"] != self.boot:
            self._rebooted(sample["boot"])
        changed = self._read(sample, now_ns)
        if changed or self.waiting:
            self.waiting = sum(p.down_since > 0 for p in self.ports.values() if p.expected)
        if changed or self.waiting or book.all:
            return self._judge(book, node, now_ns)
        return NOTHING

    def _read(self, sample: Mapping[str, Any], now_ns: int) -> bool:
        """Take the ports in; say whether any has changed. Most never do."""
        changed = False
        present = set()
        for told in sample["ports"]:
            number = told["port"]
            ident = f"{told.get('guid') or told['device']}/{number}"
            present.add(ident)
            port = self.ports.get(ident)
            if port is None:
                port = self.ports[ident] = Port("")
            counters = told.get("counters") or {}
            seen = (told.get("state"), counters.get(COUNTERS[0]), counters.get(COUNTERS[1]), told.get("saturated"))
            if seen != port.seen:
                port.name, port.seen = f"{told['device']}/{number}", seen
                self._port(port, told, counters, now_ns)
                changed = True
        absent = sample.get("absent") or {}
        if len(present) < len(self.ports) and "ports" not in absent:
            changed |= self._gone(present, absent, now_ns)
        return changed

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Learn from a finding that was read back that its port is expected."""
        if finding["kind"] not in KINDS or finding["state"] == "closed":
            return
        ident = finding["entity"].get("ident")
        if isinstance(ident, str):
            port = self.ports.setdefault(ident, Port(str(finding["entity"].get("port", ident))))
            port.expected = True

    def _rebooted(self, boot: str) -> None:
        self.boot = boot
        for port in self.ports.values():
            port.counters, port.seen, port.state, port.down_since = {}, (), "", 0

    def _port(self, port: Port, told: Mapping[str, Any], counters: Mapping[str, int], now_ns: int) -> None:
        usable = {name: counters[name] for name in COUNTERS if name in counters}
        for name in told.get("saturated") or ():
            usable.pop(name, None)
        grown = [usable[n] - port.counters[n] for n in usable if n in port.counters]
        state = told.get("state") or "unknown"
        if port.expected or state in UP:
            flaps = max([0, *grown])
            # Without a counter to go by, a link that is back after being down went down once.
            if not grown and state in UP and port.down_since:
                flaps = 1
            port.flaps += [now_ns] * min(flaps, MOST_FLAPS)
        port.counters = usable
        if state in UP:
            port.expected, port.down_since = True, 0
        elif state in DOWN and port.expected:
            port.down_since = port.down_since or now_ns
        port.state = state

    def _gone(self, present: set[str], absent: Mapping[str, str], now_ns: int) -> bool:
        """Take a port that is no longer listed for down, once it was seen active, unless it just could not be read."""
        changed = False
        for ident, port in self.ports.items():
            unread = port.name in absent or port.name.partition("/")[0] in absent
            if ident not in present and port.expected and not port.down_since and not unread:
                port.down_since, port.state, port.seen = now_ns, "gone", ()
                changed = True
        return changed

    def tick(self, book: Book, node: NodeContext, now_ns: int) -> Sequence[Event]:
        """Ports that stay down, and flaps that grow old."""
        return self._judge(book, node, now_ns) if self.waiting or book.of_kind(*KINDS) else NOTHING

    def _judge(self, book: Book, node: NodeContext, now_ns: int) -> Sequence[Event]:
        since = now_ns - int(max(self.t.flap_span_s, self.t.flap_clear_s) * SECOND_NS)
        events: list[Event] = []
        for ident, port in self.ports.items():
            if not port.flaps and not port.down_since and not book.all:
                continue
            if port.flaps and port.flaps[0] <= since:
                port.flaps = [ts for ts in port.flaps if ts > since]
            events += self._flapping(book, node, ident, port, now_ns)
            events += self._down(book, node, ident, port, now_ns)
        return events

    def _flapping(self, book: Book, node: NodeContext, ident: str, port: Port, now_ns: int) -> Sequence[Event]:
        key = f"ib_flap|{ident}"
        known = book.get(key)
        recent = [ts for ts in port.flaps if ts > now_ns - self.t.flap_span_s * SECOND_NS]
        ripe = (known is not None and known.message["advice"] != "observe") or self._ripe(port, now_ns)
        if known is not None:
            last = max([known.message.get("data_ts", 0), *port.flaps])
            if now_ns - last >= self.t.flap_clear_s * SECOND_NS:
                return book.close(key, now_ns, f"no link loss for {duration(now_ns - last)}")
            waits = known.message["advice"] == "observe" and ripe
            if not recent or (recent[-1] <= known.message.get("data_ts", 0) and not waits):
                return NOTHING
        else:
            recent = [ts for ts in recent if ts > book.closed_ns(key)]
            if len(recent) < self.t.flap_count or node.quiet:
                return NOTHING
        first = known.first_ts if known is not None else recent[0]
        jobs = node.running()
        words = f"went down {len(recent)} times in {duration(recent[-1] - recent[0])}"
        return book.report(
            Draft(
                kind="ib_flap",
                ident=ident,
                entity={"type": "port", "node": node.name, "port": port.name},
                severity="warning",
                confidence=0.85,
                advice="drain_after_job" if ripe else "observe",
                cause="link_flap",
                summary=f"Port {port.name} on {node.name} {words}{of_jobs(jobs)}.",
                first_ts=first,
                data_ts=recent[-1],
                evidence=[
                    {"metric": "link_losses", "value": len(recent), "unit": "1", "text": words},
                    *({"metric": name, "value": value, "unit": "1"} for name, value in port.counters.items()),
                    {"metric": "state", "value": port.state},
                ],
                jobs=jobs,
                count=len(recent),
            ),
            now_ns,
        )

    def _ripe(self, port: Port, now_ns: int) -> bool:
        """Say whether it is long enough ago that ports of other nodes would have shown the same by now."""
        at = port.flaps[: self.t.flap_count]
        return len(at) < self.t.flap_count or now_ns - at[-1] >= self.t.flap_alone_s * SECOND_NS

    def _down(self, book: Book, node: NodeContext, ident: str, port: Port, now_ns: int) -> Sequence[Event]:
        key = f"ib_down|{ident}"
        known = book.get(key)
        if not port.down_since or not port.expected:
            if known is not None and port.state in UP:
                return book.close(key, now_ns, "the port is active again")
            return NOTHING
        down_ns = now_ns - port.down_since
        jobs = node.running()
        long = down_ns >= self.t.down_drain_s * SECOND_NS
        flapping = book.get(f"ib_flap|{ident}") is not None
        soon = bool(jobs) and not flapping and down_ns >= self.t.down_job_s * SECOND_NS
        if known is None and (node.quiet or not (long or soon)):
            return NOTHING
        first = known.first_ts if known is not None else port.down_since
        gone = port.state == "gone"
        words = "is gone" if gone else f"is {port.state}"
        return book.report(
            Draft(
                kind="ib_down",
                ident=ident,
                entity={"type": "port", "node": node.name, "port": port.name},
                severity="critical" if jobs else "warning",
                confidence=0.7 if gone else 0.9,
                advice="drain_after_job" if long else "observe",
                cause="port_gone" if gone else "link_down",
                summary=f"Port {port.name} on {node.name} {words} for {duration(now_ns - first)}{of_jobs(jobs)}.",
                first_ts=first,
                data_ts=now_ns if self._fresh(now_ns) else self.arrival.server_ns,
                evidence=[
                    {"metric": "state", "value": port.state},
                    {"metric": "down_s", "value": round(down_ns / SECOND_NS, 1), "unit": "s"},
                ],
                jobs=jobs,
            ),
            now_ns,
        )

    def _fresh(self, now_ns: int) -> bool:
        return now_ns - self.arrival.server_ns < LATE_NS
