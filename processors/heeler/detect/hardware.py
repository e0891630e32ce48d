"""What the GPUs of a node say of themselves, whatever their jobs do: one finding for each kind and node.

A rule looks at a whole sample first, which for a healthy node is a few comparisons, and only then at single GPUs.
What one GPU says must last, or add up, before it is said; it is over when it has been good for long enough.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.divided import jobs_at
from heeler.detect.findings import SECOND_NS, Book, Draft, Evidence, duration, of_jobs
from heeler.detect.gpu_rule import Reading, Rule, RuleSet, Sight
from heeler.detect.marks import Marks
from heeler.detect.node_context import NodeContext
from heeler.engine import NOTHING, Event, Inbound

ORPHAN_NS = 1200 * SECOND_NS  # shorter than samples are kept, so that a cold start knows it too
LATE_NS = 120 * SECOND_NS
MOST_OTHERS = 64


@dataclass(slots=True)
class Part:
    """GPUs whose samples come together: those of one node, or of one job of several on it."""

    uuids: list[str]
    boot: str
    ts: int
    server_ns: int
    last: Mapping[str, Any]
    shown: list[Any] | None = None  # what hardly ever changes, while nothing of it is odd


@dataclass(slots=True)
class Watched:
    """What one rule remembers of a node."""

    marks: dict[str, Marks] = field(default_factory=dict)  # by GPU
    seen: dict[str, tuple[int, Sight, int | None, str]] = field(default_factory=dict)  # newest sight: time, index, job
    members: set[str] = field(default_factory=set)  # GPUs of the open finding


class Hardware:
    """The GPUs of one node."""

    def __init__(self, rules: RuleSet, slow: Mapping[str, Mapping[str, Any]]) -> None:
        self.set = rules
        self.rules = [(rule, Watched()) for rule in rules.rules]
        self.busy = False  # something is or may be wrong: every sample is looked at
        self.parts: dict[str, Part] = {}
        self.slow = slow  # by job: what is said of all of it
        self.others: dict[str, Mapping[str, Any]] = {}  # findings of other rules that may tell of the same

    def same(self, sample: Mapping[str, Any], now_ns: int) -> bool:
        """Say whether a sample shows what the one before it did when all was well, and move on to it then."""
        uuids = sample["gpu"]["uuid"]
        part = self.parts.get(uuids[0]) if uuids and not self.busy else None
        if part is None or part.shown is None or part.shown != self.set.shown(sample) or self.set.is_hot(sample):
            return False
        self._step(part, sample, now_ns)
        return True

    def on(self, book: Book, node: NodeContext, message: Inbound, *, calm: bool) -> Sequence[Event]:
        """Take a sample in. `calm`: nobody else who looks at these states has anything to say."""
        reading = self._reading(node, message.data, message.ts_ns)
        if reading is None:
            return NOTHING
        events, odd = self._ask(book, reading)
        self.busy = any(watched.marks or watched.members for _, watched in self.rules)
        quiet = calm and not odd and not self.busy
        self.parts[message.data["gpu"]["uuid"][0]].shown = self.set.shown(message.data) if quiet else None
        return events

    @staticmethod
    def _step(part: Part, sample: Mapping[str, Any], now_ns: int) -> bool:
        """Move on to a sample; False for a twin or an old one."""
        if now_ns <= part.server_ns or sample["ts"] <= part.ts:
            return False
        part.ts, part.server_ns, part.last = sample["ts"], now_ns, sample["last"]
        return True

    def _ask(self, book: Book, reading: Reading) -> tuple[list[Event], bool]:
        """Return what the rules say, and whether anything is odd: that may have to wait for a load to be judged."""
        events: list[Event] = []
        some = False
        for rule, watched in self.rules:
            odd = rule.odd(reading)
            some |= odd
            if odd or watched.marks or watched.members:
                events += self._apply(book, rule, watched, reading)
        return events, some

    def _reading(self, node: NodeContext, sample: Mapping[str, Any], now_ns: int) -> Reading | None:
        """Return the sample with the one before it; None for a twin, an old one, or one without GPUs."""
        uuids, ts = sample["gpu"]["uuid"], sample["ts"]
        if not uuids:
            return None
        part = self.parts.get(uuids[0])
        if part is None or part.uuids != uuids or part.boot != sample["boot"]:
            if part is not None and now_ns <= part.server_ns:
                return None
            self.parts = {k: p for k, p in self.parts.items() if set(p.uuids).isdisjoint(uuids)}
            self.parts[uuids[0]] = Part(uuids, sample["boot"], ts, now_ns, sample["last"])
            return Reading(sample, None, 0, node, now_ns)
        reading = Reading(sample, part.last, ts - part.ts, node, now_ns)
        late = now_ns - ts > LATE_NS and part.server_ns - part.ts <= LATE_NS
        return reading if self._step(part, sample, now_ns) and not late else None

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Learn from a finding of the bus: one of ours names its GPUs, another's may tell of the same trouble."""
        kind = finding["kind"]
        if kind in self.set.kinds:
            watched = next(w for r, w in self.rules if r.kind == kind)
            gpus = finding["entity"].get("gpus")
            # What this instance has seen itself is newer than what it reads back.
            if finding["state"] != "closed" and not watched.members and isinstance(gpus, list):
                watched.members.update(map(str, gpus))
                self.busy = True
        elif kind in ("gpu_lag", "xid", "gpu_lost"):
            # Closed ones too: a cold start that reads back what was then must see what told of it then.
            self.others[finding["id"]] = finding
            if len(self.others) > MOST_OTHERS:
                del self.others[min(self.others, key=lambda ident: (self.others[ident]["ts"], ident))]

    def tick(self, book: Book, now_ns: int) -> list[Event]:
        """Close what nobody will say more about."""
        heard = max((part.server_ns for part in self.parts.values()), default=0)
        return [
            event
            for found in book.of_kind(*self.set.kinds)
            if now_ns - max(heard, found.message.get("data_ts", 0)) > ORPHAN_NS
            for event in book.close(found.key, now_ns, "no more data")
        ]

    def told(self, kind: str, uuid: str, jobs: Sequence[str], now_ns: int) -> str | None:
        """Return the id of another finding that tells of the same trouble of a GPU at a time."""
        for job in jobs:
            if job in self.slow and _tells(self.slow[job], kind, now_ns):
                return str(self.slow[job]["id"])
        for ident, finding in self.others.items():
            entity = finding["entity"]
            # A lagging node is told of once, with its GPUs.
            same = entity.get("gpu_uuid") == uuid or (finding["kind"] == "gpu_lag" and entity["type"] == "node")
            same = same or (finding["kind"] == "xid" and uuid in (entity.get("gpus") or ()))
            if same and _tells(finding, kind, now_ns):
                return ident
        return None

    def forget(self) -> None:
        """Begin anew after a reboot."""
        self.parts.clear()
        for _, watched in self.rules:
            watched.marks.clear()

    # One rule.

    def _apply(self, book: Book, rule: Rule, watched: Watched, reading: Reading) -> Sequence[Event]:
        key = f"{rule.kind}|{rule.kind}"
        known = book.get(key)
        if known is None and watched.members:  # closed meanwhile
            watched.members.clear()
        after_ns, window_ns = book.closed_ns(key), reading.sample["window_ns"]
        began: list[int] = []
        bad = False
        for at, uuid in enumerate(reading.sample["gpu"]["uuid"]):
            sight = rule.look(reading, at)
            if sight is None or sight is True:
                continue
            bad |= self._mark(rule, watched, reading, at, uuid, sight)
            marks = watched.marks.get(uuid)
            if marks is None:
                continue
            if sight and uuid not in watched.members:
                since = marks.since(rule.patience, window_ns, after_ns)
                if (
                    since is not None
                    and self.told(rule.kind, uuid, jobs_at(reading.sample, at), reading.now_ns) is None
                ):
                    watched.members.add(uuid)
                    began.append(since)
            elif uuid in watched.members and marks.clear(rule.patience, reading.now_ns):
                watched.members.discard(uuid)
            if not marks.all:
                del watched.marks[uuid]
        return self._conclude(book, rule, watched, reading, began, bad=bad)

    def _mark(self, rule: Rule, watched: Watched, reading: Reading, at: int, uuid: str, sight: Sight | bool) -> bool:
        """Remember what was seen of one GPU; say whether it was bad."""
        amount = sight.amount if isinstance(sight, Sight) else 0.0
        marks = watched.marks.get(uuid)
        if marks is None:
            if not amount and uuid not in watched.members:
                return False
            marks = watched.marks[uuid] = Marks()
        marks.add(reading.now_ns, amount, rule.patience, watched=uuid in watched.members)
        if isinstance(sight, Sight):
            index = reading.sample["gpu"].get("index")
            job = next(iter(jobs_at(reading.sample, at)), "")
            watched.seen[uuid] = (reading.now_ns, sight, None if index is None else index[at], job)
        return amount > 0

    def _conclude(
        self, book: Book, rule: Rule, watched: Watched, reading: Reading, began: Sequence[int], *, bad: bool
    ) -> Sequence[Event]:
        key, now_ns = f"{rule.kind}|{rule.kind}", reading.now_ns
        known = book.get(key)
        told = {
            uuid: self.told(rule.kind, uuid, (watched.seen[uuid][3],) if uuid in watched.seen else (), now_ns)
            for uuid in watched.members
        }
        members = {uuid for uuid, other in told.items() if other is None}
        if not members:
            if known is None:
                return NOTHING
            other = next(iter(told.values()), None)
            why = f"see {other}" if other else "in order again"
            watched.members.clear()
            return book.close(key, now_ns, why)
        if not bad and known is not None:
            return NOTHING
        first = known.first_ts if known is not None else min(began, default=now_ns)
        since = now_ns - int(rule.patience.memory_s * SECOND_NS)
        fresh = {u: watched.seen[u] for u in sorted(members) if u in watched.seen and watched.seen[u][0] > since}
        if not fresh:
            return NOTHING
        return book.report(self._draft(rule, reading, members, fresh, first), now_ns)

    def _draft(
        self,
        rule: Rule,
        reading: Reading,
        members: set[str],
        fresh: Mapping[str, tuple[int, Sight, int | None, str]],
        first: int,
    ) -> Draft:
        node, now_ns = reading.node, reading.now_ns
        sights = [sight for _, sight, _, _ in fresh.values()]
        worst = max(sights, key=lambda s: (s.severity == "critical", s.confidence, s.drains))
        jobs = sorted({job for _, _, _, job in fresh.values() if job})
        gpus = sum(len(part.uuids) for part in self.parts.values())
        entity: dict[str, Any] = {"type": "node", "node": node.name, "gpus": sorted(members)}
        indices = [index for _, _, index, _ in fresh.values() if index is not None]
        if len(members) == 1:
            (uuid,) = members
            entity |= {"type": "gpu", "gpu_uuid": uuid}
            entity |= {"gpu_index": indices[0]} if indices else {}
            who = f"GPU {indices[0] if indices else uuid} on {node.name}"
        else:
            who = f"{len(members)} GPUs on {node.name}"
        lasted = now_ns - first
        evidence: list[Evidence] = []
        for uuid, (_, sight, index, _) in fresh.items():
            named: Evidence = {"gpu_uuid": uuid} | ({} if index is None else {"gpu_index": index})
            evidence += [{**item, **named} for item in sight.evidence]
        return Draft(
            kind=rule.kind,
            ident=rule.kind,
            entity=entity,
            severity=worst.severity,
            confidence=worst.confidence,
            advice=rule.advice(lasted / SECOND_NS, sights, gpus),
            cause=worst.cause,
            summary=f"{who}: {worst.words}, for {duration(lasted)}{of_jobs(jobs)}.",
            first_ts=first,
            data_ts=now_ns,
            evidence=evidence,
            jobs=jobs,
        )


SAME = {
    "thermal": frozenset(("thermal_slowdown",)),
    "power": frozenset(("power_brake", "hw_slowdown")),
    "pcie_degraded": frozenset(("pcie_degraded",)),
    "nvlink_errors": frozenset(("nvlink_errors",)),
}
NVLINK_XIDS = frozenset((74, 121, 136, 137, *range(144, 151), 155))


def _tells(finding: Mapping[str, Any], kind: str, now_ns: int) -> bool:
    """Say whether a finding of another rule tells of this kind of trouble at a time."""
    if finding["first_ts"] > now_ns or (finding["state"] == "closed" and finding["ts"] < now_ns):
        return False
    if finding["kind"] in ("gpu_lag", "job_slow"):
        return finding.get("cause") in SAME.get(kind, ())
    if kind in ("nvlink_degraded", "nvlink_errors"):
        return finding.get("code") in NVLINK_XIDS and finding["advice"] != "none"
    return kind == "gpu_silent" and (finding["kind"] == "gpu_lost" or finding.get("code") == 79)
