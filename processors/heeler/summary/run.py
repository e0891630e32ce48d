"""One run of a job while it is counted: pure.

Time is cut into slices. A slice is closed some minutes after its end, when what the agents had kept during a short
outage has come; a closed slice is in the sums, and the sums are published. So whoever starts anew goes on from the
newest summary and reads again only what came since.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.summary.tally import Coverage, Tally, amounts, tally_of, whole_rows

S = 1_000_000_000
SLICE_NS = 600 * S
SETTLE_NS = 300 * S  # a slice is closed so long after its end
END_NS = 120 * S  # a run is closed so long after its end: the last windows are there, and people wait
MOST_SLICES = 8  # that wait for Slurm to name the run
INFO = ("user", "account", "partition", "qos", "name")


@dataclass(slots=True)
class Slice:
    """What came of one span of time."""

    tally: Tally = field(default_factory=Tally)
    covered: dict[str, Coverage] = field(default_factory=dict)  # by node


@dataclass(slots=True)
class Run:
    """A run, as far as it is known."""

    cluster: str
    job: str
    start_ns: int | None = None  # None until Slurm has named it
    end_ns: int | None = None
    until_ns: int = 0  # closed up to here
    final: bool = False  # has been published for the last time
    gpus: int | None = None
    sizes: list[tuple[int, int]] = field(default_factory=list)  # GPUs that it had before, and until when
    nodes: int | None = None
    state: str | None = None
    info: dict[str, str] = field(default_factory=dict)
    total: Tally = field(default_factory=Tally)
    allocated_s: float | None = 0.0
    slices: dict[int, Slice] = field(default_factory=dict)  # by number
    heard_ns: int = 0

    @property
    def name(self) -> str:
        """Which run it is, as accounting names it."""
        return str((self.start_ns or 0) // S)

    @property
    def offset_ns(self) -> int:
        """Where slices begin: not all jobs are published in the same minute."""
        return zlib.crc32(self.job.encode()) % 10 * 60 * S

    def sample(self, data: Mapping[str, Any]) -> None:
        """Count a window of a node."""
        rows = whole_rows(data, [row for row, job in enumerate(data["job"]) if job == self.job])
        end = min(data["ts"], self.end_ns or data["ts"])
        start = max(data["ts"] - min(data["window_ns"], SLICE_NS), self.until_ns, self.start_ns or 0)
        for number, first, last in self._cut(start, end):
            part = self.slices.setdefault(number, Slice())
            fresh = part.covered.setdefault(data["node"], Coverage()).take(first, last)
            if fresh:
                part.tally.add_window(data, rows, fresh / S)
        while self.start_ns is None and len(self.slices) > MOST_SLICES:
            del self.slices[min(self.slices)]

    def _cut(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the parts of a span by slice."""
        while start < end:
            number = (start - self.offset_ns) // SLICE_NS
            border = min(end, (number + 1) * SLICE_NS + self.offset_ns)
            yield number, start, border
            start = border

    def learn(self, event: Mapping[str, Any]) -> None:
        """Take over what Slurm says of the run."""
        if self.start_ns is None:
            self.start_ns = event["start_ts"]
            self.until_ns = max(self.until_ns, event["start_ts"])
            self.slices = {n: part for n, part in self.slices.items() if self._end_of(n) > event["start_ts"]}
        self.state = event.get("state", self.state)
        self.info |= {key: event[key] for key in INFO if key in event}
        if event["event"] == "ended":
            self.end_ns = event.get("end_ts") or event["ts"]
        if event["nodes"] and not event.get("released"):  # one that has ended may name none, one that completes a part
            gpus = gpus_of(event)
            if self.gpus is not None and gpus != self.gpus:
                self.sizes.append((event["ts"], self.gpus))
            self.gpus, self.nodes = gpus, len(event["nodes"])

    def _end_of(self, number: int) -> int:
        return (number + 1) * SLICE_NS + self.offset_ns

    def border(self, now_ns: int) -> int | None:
        """Return up to when the run can be closed now; None where there is nothing to close."""
        if self.start_ns is None or self.final:
            return None
        if self.end_ns is not None and now_ns >= self.end_ns + END_NS:
            return self.end_ns
        ripe = now_ns - SETTLE_NS - self.offset_ns
        border = ripe - ripe % SLICE_NS + self.offset_ns
        border = min(border, self.end_ns or border)
        return border if border > self.until_ns else None

    def close(self, until_ns: int) -> None:
        """Put what came up to a time into the sums; the rest of that time is allocated, and unknown."""
        for number in sorted(self.slices):
            if self._end_of(number) <= until_ns or until_ns == self.end_ns:
                self.total.add(self.slices.pop(number).tally)
        self._allocate(max(until_ns, self.until_ns))
        self.until_ns = max(self.until_ns, until_ns)
        self.final = self.end_ns is not None and until_ns >= self.end_ns

    def _allocate(self, until_ns: int) -> None:
        """Add what Slurm gave since the last time; where it was not known before, that of the whole run."""
        if self.gpus is None:
            self.allocated_s = None if until_ns > self.until_ns else self.allocated_s
            return
        since_ns = self.until_ns if self.allocated_s is not None else (self.start_ns or until_ns)
        given_ns = 0
        for changed_ns, gpus in self.sizes:
            border_ns = max(since_ns, min(changed_ns, until_ns))
            given_ns += gpus * (border_ns - since_ns)
            since_ns = border_ns
        self.sizes = [size for size in self.sizes if size[0] > until_ns]
        given_ns += self.gpus * max(0, until_ns - since_ns)
        self.allocated_s = (self.allocated_s or 0.0) + given_ns / S

    def adopt(self, summary: Mapping[str, Any]) -> None:
        """Go on from what has been published: by another instance, or before a restart."""
        self.start_ns, self.until_ns = summary["start_ts"], summary["until_ts"]
        self.total, self.allocated_s = tally_of(summary)
        self.final = summary["final"]
        self.end_ns = summary.get("end_ts", self.end_ns)
        self.slices = {n: part for n, part in self.slices.items() if self._end_of(n) > self.until_ns}
        if self.gpus is None:
            self.gpus, self.nodes = summary.get("gpus"), summary.get("node_count")
        self.info = {key: summary[key] for key in INFO if key in summary} | self.info

    def without_gpus(self) -> bool:
        """Say whether nothing is known of GPUs of the run: it was given none, or nobody knows, and none was seen."""
        return not self.gpus and not self.total.observed_s and not self.total.lost_s

    def message(self, now_ns: int) -> dict[str, Any]:
        """Return the run's JobSummary."""
        found: dict[str, Any] = {
            "v": 1, "cluster": self.cluster, "ts": now_ns, "job_id": self.job, "run": self.name, "final": self.final,
            "until_ts": self.until_ns, "state": self.state, "start_ts": self.start_ns, "end_ts": self.end_ns,
            **self.info, "node_count": self.nodes, "gpus": self.gpus, **amounts(self.total, self.allocated_s),
        }  # fmt: skip
        return {key: value for key, value in found.items() if value is not None}


def gpus_of(event: Mapping[str, Any]) -> int | None:
    """Return how many GPUs Slurm gave a job; None where it is not known for all of its nodes."""
    nodes, lists = event["nodes"], event.get("gpus", {})
    if event.get("gpus_source") == "none":
        return 0
    if lists and all(node in lists for node in nodes):
        return sum(len(lists[node]) for node in nodes)
    if "gpus_per_node" in event:
        return int(event["gpus_per_node"]) * len(nodes)
    return None
