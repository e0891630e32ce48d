"""GPUs that a job holds and does not use: held for hours, without a kernel on them. A matter for people, never a fault.

How long a GPU has been idle is known from the last minutes of samples; the finding that was opened then keeps the
time from there on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.divided import whole_gpus
from heeler.detect.findings import SECOND_NS, Book, Draft, Evidence, duration
from heeler.detect.thresholds import IdleThresholds
from heeler.engine import NOTHING, Event, Inbound

KIND = "idle_allocation"
KEY = f"{KIND}|{KIND}"
EVERY_NS = 60 * SECOND_NS
FRESH_NS = 180 * SECOND_NS
AWAY = frozenset(("SUSPENDED", "STOPPED", "PREEMPTED"))  # Slurm has taken its processors, not its GPUs
MOST_SHOWN = 16


@dataclass(slots=True)
class Node:
    """The job's GPUs on one node."""

    ts: int = 0
    heard_ns: int = 0
    gpus: int = 0
    idle: dict[str, int] = field(default_factory=dict)  # by UUID: since when
    power_w: float | None = None  # of the idle ones together


class IdleAllocation:
    """The GPUs of one job."""

    def __init__(self, job: str, t: IdleThresholds) -> None:
        self.job, self.t = job, t
        self.nodes: dict[str, Node] = {}
        self.number = 0
        self.event_ts = 0
        self.away = self.ended = False
        self.start_ns = 0
        self.busy_since = 0

    def on(self, book: Book, message: Inbound) -> Sequence[Event]:
        """Take a message in."""
        if message.kind == "JobSample":
            return NOTHING if self.ended else self._sample(book, message.data, message.ts_ns)
        if message.kind == "JobEvent":
            return self._job_event(book, message.data, message.ts_ns)
        return NOTHING

    def _job_event(self, book: Book, event: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        if event["ts"] < self.event_ts:
            return NOTHING
        start, ended = event.get("start_ts", 0), event["event"] == "ended"
        anew = ended or self.ended or bool(self.start_ns and start and start != self.start_ns)
        self.event_ts, self.start_ns, self.ended = event["ts"], start or self.start_ns, ended
        self.away = event.get("state") in AWAY
        if anew or self.away:
            self.nodes.clear()
        return book.close(KEY, now_ns, "the job ended") if anew else NOTHING

    def _sample(self, book: Book, sample: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        node = self.nodes.get(sample["node"])
        if node is None:
            node = self.nodes[sample["node"]] = Node()
        if self.away or sample["ts"] <= node.ts or now_ns <= node.heard_ns:  # redelivered, or stepped over
            return NOTHING
        node.ts, node.heard_ns = sample["ts"], now_ns
        self._read(node, sample, now_ns)
        number = now_ns // EVERY_NS
        if number <= self.number:
            return NOTHING
        self.number = number
        return self._judge(book, now_ns)

    def _read(self, node: Node, sample: Mapping[str, Any], now_ns: int) -> None:
        """Remember since when each GPU has been idle; of most jobs none is, which is quick to see."""
        util, holders = sample["mean"].get("util_ratio"), sample["job"]
        if util is None:
            return
        if not node.idle and None not in util and min(util) >= self.t.util_ratio:
            node.gpus = holders.count(self.job)
            return
        whole, uuids = whole_gpus(sample), sample["gpu"]["uuid"]
        mine = [at for at, holder in enumerate(holders) if holder == self.job and (whole is None or whole[at])]
        idle: dict[str, int] = {}
        for at in mine:
            known = node.idle.get(uuids[at])
            if util[at] is None:  # nobody knows: neither busy nor longer idle than it was
                idle |= {} if known is None else {uuids[at]: known}
            elif util[at] < self.t.util_ratio:
                idle[uuids[at]] = known or now_ns
        power = sample["mean"].get("power_w")
        watts = [] if power is None else [power[at] for at in mine if uuids[at] in idle and power[at] is not None]
        node.gpus, node.idle, node.power_w = len(mine), idle, sum(watts) if watts else None

    def _judge(self, book: Book, now_ns: int) -> Sequence[Event]:
        known = book.get(KEY)
        nodes = {name: n for name, n in self.nodes.items() if now_ns - n.heard_ns <= FRESH_NS}
        self.nodes = nodes
        since = sorted(ts for node in nodes.values() for ts in node.idle.values())
        if not since and known is None:
            return NOTHING
        held = sum(node.gpus for node in nodes.values())
        needed = max(1, math.ceil(self.t.idle_share * held))
        if len(since) < needed:
            return self._busy(book, now_ns)
        self.busy_since = 0
        if known is not None:
            return book.report(self._draft(nodes, len(since), held, known.first_ts, now_ns), now_ns)
        # So many have been idle at once since then.
        first = max(since[needed - 1], book.closed_ns(KEY))
        if now_ns - first < self.t.after_s * SECOND_NS or book.get("hang|hang") is not None:
            return NOTHING
        return book.report(self._draft(nodes, len(since), held, first, now_ns), now_ns)

    def _busy(self, book: Book, now_ns: int) -> Sequence[Event]:
        self.busy_since = self.busy_since or now_ns
        if now_ns - self.busy_since < self.t.clear_s * SECOND_NS:
            return NOTHING
        return book.close(KEY, now_ns, "its GPUs are used")

    def tick(self, book: Book, now_ns: int) -> Sequence[Event]:
        """Close what nobody will say more about."""
        known = book.get(KEY)
        if known is None:
            return NOTHING
        if self.ended:
            return book.close(KEY, now_ns, "the job ended")
        heard = max([known.message.get("data_ts", 0), *(node.heard_ns for node in self.nodes.values())])
        return book.close(KEY, now_ns, "no more data") if now_ns - heard > self.t.orphan_s * SECOND_NS else NOTHING

    def _draft(self, nodes: Mapping[str, Node], idle: int, held: int, first: int, now_ns: int) -> Draft:
        lasted = now_ns - first
        long = lasted >= self.t.person_after_s * SECOND_NS
        watts = [node.power_w for node in nodes.values() if node.power_w is not None]
        names = sorted(name for name, node in nodes.items() if node.idle)
        evidence: list[Evidence] = [
            {"metric": "gpus_idle", "value": idle, "unit": "1", "peers": held},
            {"metric": "idle_s", "value": round(lasted / SECOND_NS), "unit": "s"},
            {"metric": "gpu_hours_idle", "value": round(idle * lasted / SECOND_NS / 3600, 1), "unit": "h"},
            {"metric": "nodes", "value": len(names), "unit": "1", "text": ", ".join(names[:MOST_SHOWN])},
        ]
        evidence += [{"metric": "power_w", "value": round(sum(watts)), "unit": "W"}] if watts else []
        return Draft(
            kind=KIND,
            ident=KIND,
            entity={"type": "job", "job_id": self.job},
            severity="warning" if long else "info",
            confidence=0.9,
            advice="person" if long else "none",
            cause="unused",
            summary=f"Job {self.job} holds {held} GPUs and has not used {idle} of them for {duration(lasted)}.",
            first_ts=first,
            data_ts=now_ns,
            evidence=evidence,
            jobs=[self.job],
        )
