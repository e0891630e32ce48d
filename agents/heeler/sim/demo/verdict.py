"""What was expected of a run and what came: pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.engine import Inbound
from heeler.otlp.points import Points

Label = Mapping[str, Any]

# Fault -> kinds of findings that name it, and the answers of the drainer that are right.
EXPECTED: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "thermal": (frozenset(("gpu_lag",)), frozenset(("proposed",))),
    "ib_flap": (frozenset(("ib_flap",)), frozenset(("proposed", "refused"))),
    "gpu_lost": (frozenset(("xid", "gpu_lost")), frozenset(("proposed",))),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """How a fault was answered. Times are seconds after the fault, by the server's clock; None: not at all."""

    label: Label
    finding: Inbound | None = None
    action: Inbound | None = None

    @property
    def finding_s(self) -> float | None:
        """Seconds from fault to finding."""
        return _seconds(self.label, self.finding)

    @property
    def action_s(self) -> float | None:
        """Seconds from fault to the drainer's word."""
        return _seconds(self.label, self.action)

    def report(self) -> dict[str, Any]:
        """Return the answer for the JSON line."""
        keys = ("kind", "node", "gpu_index", "port", "job_id")
        out: dict[str, Any] = {key: self.label[key] for key in keys if self.label.get(key) is not None}
        out["finding_s"], out["action_s"] = self.finding_s, self.action_s
        if self.finding_s is not None and self.action_s is not None:
            out["finding_to_action_s"] = round(self.action_s - self.finding_s, 3)
        if self.finding is not None:
            data = self.finding.data
            out["finding"] = {"id": data["id"], "kind": data["kind"], "cause": data.get("cause")}
        if self.action is not None:
            data = self.action.data
            out["action"] = {key: data[key] for key in ("verdict", "dry_run", "rule", "why") if key in data}
        return out


@dataclass(slots=True)
class Exported:
    """What should have reached the sink, and what did: metric name ("logs", "spans") -> count."""

    expected: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    faulty: int = 0

    def expect(self, made: Iterable[Points]) -> None:
        """Count what a message becomes."""
        for points in made:
            for metric, values in points.columns:
                self.expected[metric.name] += len(values) - values.count(None)

    @staticmethod
    def points(counted: Counter[str]) -> int:
        """Return how many of these are points."""
        return counted.total() - counted["logs"] - counted["spans"]

    def differences(self) -> list[str]:
        """Return every metric of which the sink has fewer or more points than were published."""
        names = sorted(self.expected | self.received)
        return [
            f"{name}: {self.received[name]} of {self.expected[name]}"
            for name in names
            if self.received[name] != self.expected[name]
        ]


def _seconds(label: Label, message: Inbound | None) -> float | None:
    return None if message is None else round((message.ts_ns - label["at_ns"]) / 1e9, 3)


def concerns(label: Label, finding: Mapping[str, Any]) -> bool:
    """Say whether a finding is about the part that a fault has hit."""
    entity = finding["entity"]
    if entity.get("node", finding.get("node")) != label["node"]:
        return False
    if "gpu_uuid" in label:
        return bool(entity.get("gpu_uuid") == label["gpu_uuid"])
    if "port" in label:
        return bool(entity.get("port") == label["port"])
    return True


def names(label: Label, finding: Mapping[str, Any]) -> bool:
    """Say whether a finding names a fault: right part, right kind."""
    kinds, _ = EXPECTED[label["kind"]]
    if label["kind"] == "gpu_lost" and finding.get("code", 79) != 79:
        return False
    return finding["kind"] in kinds and concerns(label, finding)


def follows(label: Label, finding: Mapping[str, Any]) -> bool:
    """Say whether a finding is of what a fault leads to: a job that has lost a GPU hangs, seconds later."""
    lost = label["kind"] == "gpu_lost" and finding["kind"] == "hang"
    return bool(lost and label.get("job_id") and finding["entity"].get("job_id") == label["job_id"])


def answer(label: Label, findings: Iterable[Inbound], actions: Iterable[Inbound]) -> Answer:
    """Return how a fault was answered: its first finding, and the drainer's first right word on it."""
    opened = [f for f in findings if f.data["state"] != "closed" and names(label, f.data)]
    if not opened:
        return Answer(label)
    ids = {f.data["id"] for f in opened}
    _, verdicts = EXPECTED[label["kind"]]
    said = [a for a in actions if a.data.get("finding_id") in ids and a.data["verdict"] in verdicts]
    return Answer(label, opened[0], said[0] if said else None)


def problems_of(answers: Sequence[Answer]) -> list[str]:
    """Return what is missing or wrong in the answers."""
    problems = []
    for one in answers:
        what = f"{one.label['kind']} on {one.label['node']}"
        if one.finding is None:
            problems.append(f"{what}: no finding")
        elif one.action is None:
            problems.append(f"{what}: the drainer gave no expected word")
        elif not one.action.data["dry_run"]:
            problems.append(f"{what}: the drainer's {one.action.data['verdict']} is not a dry run")
    return problems


def strangers(labels: Sequence[Label], findings: Iterable[Inbound]) -> list[str]:
    """Return the findings that no fault explains, and those that were opened more than once."""
    opened = [f.data for f in findings if f.data["state"] == "open"]
    problems = [
        f"unexplained finding {data['id']}: {data['summary']}"
        for data in opened
        if not any(concerns(label, data) or follows(label, data) for label in labels)
    ]
    twice = [fid for fid, count in Counter(data["id"] for data in opened).items() if count > 1]
    return problems + [f"finding {fid} was opened more than once" for fid in twice]


@dataclass(slots=True)
class Passage:
    """Samples on their way through enrich: which went in, which came out, GPU by GPU."""

    into: dict[tuple[str, str, int], int] = field(default_factory=dict)  # (node, boot, seq) -> GPUs
    out: dict[tuple[str, str, int], dict[int, int]] = field(default_factory=dict)  # ... -> shard -> GPUs
    twins: int = 0

    def sample(self, data: Mapping[str, Any]) -> None:
        """Take a GpuSample."""
        self.into[data["node"], data["boot"], data["seq"]] = len(data["gpu"]["uuid"])

    def job_sample(self, data: Mapping[str, Any]) -> None:
        """Take a JobSample. A twin is allowed: its readers know it by node, boot and number."""
        shards = self.out.setdefault((data["node"], data["boot"], data["seq"]), {})
        self.twins += data["shard"] in shards
        shards[data["shard"]] = len(data["gpu"]["uuid"])

    def lost(self) -> int:
        """Return how many samples did not come out whole."""
        return sum(gpus != sum(self.out.get(key, {}).values()) for key, gpus in self.into.items())
