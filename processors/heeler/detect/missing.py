"""GPUs that a node should have and of which no sample has a row: fewer than its inventory, or than Slurm counts on.

A GPU that does not answer keeps its row and is `gpu_lost`. One that fell off before the agent began has none, and
nothing that the other rows say tells of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.findings import SECOND_NS, Book, Draft, Evidence, duration, of_jobs
from heeler.detect.node_context import RESUMED, NodeContext
from heeler.detect.thresholds import MissingThresholds
from heeler.engine import NOTHING, Event, Inbound

KIND = "gpu_missing"
KEY = "gpu_missing|gpu_missing"
TOLD_BY = ("xid", "gpu_lost")
ORPHAN_NS = 1200 * SECOND_NS
MOST_PARTS = 64


@dataclass(slots=True)
class Part:
    """Rows that come together: all of a node, or those of some of its jobs."""

    uuids: list[str]
    server_ns: int


@dataclass(slots=True)
class Short:
    """What is missing now."""

    expected: int
    present: int
    names: dict[str, int | None] = field(default_factory=dict)  # those known by name, with their index
    by_slurm: bool = False  # only Slurm counts on more

    @property
    def count(self) -> int:
        """How many."""
        return max(0, self.expected - self.present)


class GpuMissing:
    """The GPUs of one node."""

    def __init__(self, t: MissingThresholds) -> None:
        self.t = t
        self.parts: dict[str, Part] = {}  # by first GPU
        self.names: dict[str, int | None] = {}  # of the fullest inventory: index by UUID
        self.most = 0  # GPUs that an inventory, or an open finding, has named
        self.slurm: int | None = None
        self.divided = False  # MIG: Slurm counts parts
        self.since = self.fine_since = 0
        self.accepted = 0  # as many has an operator put up with ...
        self.accepted_ns = 0  # ... since then
        self.changed = False

    def on(self, book: Book, node: NodeContext, message: Inbound) -> Sequence[Event]:
        """Take a sample in."""
        sample, now_ns = message.data, message.ts_ns
        uuids = sample["gpu"]["uuid"]
        first = uuids[0] if uuids else ""
        part = self.parts.get(first)
        if part is None or part.uuids != uuids:
            if part is not None and now_ns <= part.server_ns:
                return NOTHING
            self._note(first, uuids, sample, now_ns)
        elif now_ns > part.server_ns:
            part.server_ns = now_ns
        if self.changed or self.since or len(self.parts) > 1 or book.get(KEY) is not None:
            self.changed = False
            return self._judge(book, node, sample, now_ns)
        return NOTHING

    def _note(self, first: str, uuids: list[str], sample: Mapping[str, Any], now_ns: int) -> None:
        self.changed = True
        parents = sample["gpu"].get("parent")
        self.divided = self.divided or (parents is not None and any(parents))
        self.parts[first] = Part(uuids, now_ns)
        if len(self.parts) > MOST_PARTS:
            del self.parts[min(self.parts, key=lambda name: (self.parts[name].server_ns, name))]

    def inventory(self, data: Mapping[str, Any]) -> None:
        """Learn which GPUs there should be."""
        names = {gpu["uuid"]: gpu.get("index") for gpu in data["gpus"]}
        self.divided = any(gpu.get("mig") or gpu.get("mig_devices") for gpu in data["gpus"])
        self.changed = True
        if len(names) >= self.most:
            self.names, self.most = names, len(names)

    def node_state(self, state: Mapping[str, Any]) -> None:
        """Learn how many Slurm counts on."""
        if state.get("gpus_total") is not None:
            self.changed = self.changed or self.slurm != state["gpus_total"]
            self.slurm = state["gpus_total"]

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Learn from a finding that was read back what was expected, or put up with."""
        entity = finding["entity"]
        if finding["kind"] != KIND or not isinstance(entity.get("expected"), int):
            return
        resumed = finding.get("close_reason") == RESUMED
        if finding["state"] == "closed" and not resumed:
            return
        self.most = max(self.most, 0 if entity.get("by_slurm") else entity["expected"])
        for uuid in entity.get("missing") or ():
            self.names.setdefault(str(uuid), None)
        if resumed and isinstance(entity.get("missing_count"), int) and finding["ts"] > self.accepted_ns:
            self.accepted, self.accepted_ns = entity["missing_count"], finding["ts"]

    def resumed(self, book: Book, now_ns: int) -> Sequence[Event]:
        """Put up with what an operator has seen."""
        known = book.get(KEY)
        if known is None:
            return NOTHING
        self.accepted = int(known.message["entity"].get("missing_count", 0))
        self.accepted_ns, self.since = now_ns, 0
        return book.close(KEY, now_ns, RESUMED)

    def tick(self, book: Book, now_ns: int) -> Sequence[Event]:
        """Close what nobody will say more about."""
        known = book.get(KEY)
        heard = max((part.server_ns for part in self.parts.values()), default=0)
        if known is None or now_ns - max(heard, known.message.get("data_ts", 0)) <= ORPHAN_NS:
            return NOTHING
        return book.close(KEY, now_ns, "no more data")

    def _short(self, now_ns: int, window_ns: int) -> Short:
        since = now_ns - max(3 * window_ns, 30 * SECOND_NS)
        self.parts = {first: part for first, part in self.parts.items() if part.server_ns > since}
        present = {uuid for part in self.parts.values() for uuid in part.uuids if not uuid.startswith("MIG-")}
        slurm = self.slurm if self.slurm is not None and not self.divided else 0
        expected = max(self.most, slurm)
        if len(present) >= expected:
            return Short(expected, len(present))
        names = {uuid: index for uuid, index in self.names.items() if uuid not in present}
        names = dict(list(names.items())[: expected - len(present)])
        return Short(expected, len(present), names, by_slurm=slurm > self.most)

    def _judge(self, book: Book, node: NodeContext, sample: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        short, known = self._short(now_ns, sample["window_ns"]), book.get(KEY)
        if now_ns <= self.accepted_ns:  # history, read again
            return NOTHING
        self.accepted = min(self.accepted, short.count)
        told = self._told(book, node)
        names = {uuid: index for uuid, index in short.names.items() if uuid not in told}
        if short.count - (len(short.names) - len(names)) <= self.accepted:
            self.since = 0
            return self._fine(book, now_ns) if known is not None else NOTHING
        self.fine_since = 0
        self.since = self.since or now_ns
        if known is not None:
            return book.report(self._draft(node, short, names, known.first_ts, now_ns), now_ns)
        # All at once are a driver that someone unloads, as a rule.
        after_s = self.t.after_s if short.present else self.t.all_after_s
        if now_ns - max(self.since, book.closed_ns(KEY)) < after_s * SECOND_NS or node.quiet or node.drained:
            return NOTHING
        return book.report(self._draft(node, short, names, self.since, now_ns), now_ns)

    @staticmethod
    def _told(book: Book, node: NodeContext) -> set[str]:
        """Return the GPUs that another finding says are gone."""
        found = [open_.message for open_ in book.of_kind(*TOLD_BY)]
        gone = [m["entity"] for m in found if m["kind"] == "gpu_lost" or m.get("code") == 79]
        return {str(e.get("gpu_uuid") or node.uuid_of_pci.get(str(e.get("pci", "")), "")) for e in gone}

    def _fine(self, book: Book, now_ns: int) -> Sequence[Event]:
        self.fine_since = self.fine_since or now_ns
        if now_ns - self.fine_since < self.t.clear_s * SECOND_NS:
            return NOTHING
        return book.close(KEY, now_ns, "all GPUs are there again")

    def _draft(
        self, node: NodeContext, short: Short, names: Mapping[str, int | None], first: int, now_ns: int
    ) -> Draft:
        jobs = node.running()
        lasted = now_ns - first
        which = ", ".join(f"GPU {index}" if index is not None else uuid for uuid, index in names.items())
        evidence: list[Evidence] = [
            {"metric": "gpus_present", "value": short.present, "unit": "1", "expected": short.expected}
        ]
        evidence += [
            {"metric": "gpu_row", "value": None, "gpu_uuid": uuid} | ({} if index is None else {"gpu_index": index})
            for uuid, index in names.items()
        ]
        entity: dict[str, Any] = {"type": "node", "node": node.name, "expected": short.expected}
        entity |= {"present": short.present, "missing_count": short.count, "missing": sorted(names)}
        entity |= {"by_slurm": short.by_slurm}
        if len(names) == 1 and short.count == 1:
            ((uuid, index),) = names.items()
            entity |= {"type": "gpu", "gpu_uuid": uuid} | ({} if index is None else {"gpu_index": index})
        drain = short.present > 0 and lasted >= self.t.drain_after_s * SECOND_NS
        words = f"{short.present} of {short.expected} GPUs are there" + (f", without {which}" if which else "")
        return Draft(
            kind=KIND,
            ident=KIND,
            entity=entity,
            severity="critical" if drain else "warning",
            confidence=0.85 if short.present and names else 0.7,
            advice="observe" if not drain else "person" if short.by_slurm else "drain_after_job",
            cause="fewer_than_slurm" if short.by_slurm else "row_missing" if short.present else "all_missing",
            summary=f"{node.name}: {words}, for {duration(lasted)}{of_jobs(jobs)}.",
            first_ts=first,
            data_ts=now_ns,
            evidence=evidence,
            jobs=jobs,
        )
