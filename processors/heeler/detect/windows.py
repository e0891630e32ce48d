"""The samples of a job as windows: one column a GPU, one row a metric, closed when all nodes have reported.

A step of a job takes seconds, so shorter samples scatter by what the job does just then: several make a window.

The only work on a message is one small array into its place; everything else happens once a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heeler.detect.arrival import Arrival
from heeler.detect.divided import whole_gpus
from heeler.detect.findings import SECOND_NS
from heeler.detect.thresholds import LagThresholds

Floats = NDArray[np.float64]

FAR = 1 << 62

MEANS = (
    "power_w",
    "sm_clock_mhz",
    "sm_active_ratio",
    "tensor_active_ratio",
    "util_ratio",
    "temp_c",
    "fb_used_bytes",
)
COUNTERS = ("violation_thermal_ns", "violation_power_ns")
# These hardly ever change: where a node's are as in its last sample, they are not converted again.
STEADY = (
    "clock_event_reasons",
    "pcie_gen",
    "pcie_width",
    "pcie_gen_max",
    "pcie_width_max",
    "power_limit_w",
    "sm_clock_max_mhz",
    "ecc_uncorrected_volatile",
    "ecc_corrected_volatile",
    "nvlink_recovery_errors",
    "nvlink_crc_errors",
)
ROWS = (*MEANS, *COUNTERS, *STEADY)
POWER, CLOCK, SM, TENSOR, UTIL, TEMP, MEMORY = range(7)
THERMAL_NS, BRAKE_NS, REASONS, GEN, WIDTH, GEN_MAX, WIDTH_MAX, LIMIT, CLOCK_MAX = range(7, 16)
ECC_BAD, ECC_FIXED, NVL_RECOVERY, NVL_CRC = range(16, 20)
MOVING = len(MEANS) + len(COUNTERS)  # rows that are converted every time
LEAST_SHARE = 0.3  # of a window's samples that a mean needs

# What a reading can be at most; anything else is a broken reading, which is no reading.
MOST_RATIO, MOST_C, MOST_BYTES = 1.001, 200, 1e13
MOST: Floats = np.array(
    [
        3e3,
        6e3,
        MOST_RATIO,
        MOST_RATIO,
        MOST_RATIO,
        MOST_C,
        MOST_BYTES,
        1e19,
        1e19,
        2**53,
        16,
        64,
        16,
        64,
        3e3,
        6e3,
        1e18,
        1e18,
        1e18,
        1e18,
    ]
)[:, None]


def mend(window: Floats) -> None:
    """Make readings that can't be true missing ones, in place. The rows are the first ones of a window."""
    most = MOST[: len(window)]
    window[~((window >= 0) & (window <= most))] = np.nan


@dataclass(slots=True)
class Node:
    """Where a node's GPUs of this job stand in the arrays."""

    name: str
    uuids: list[str]
    columns: slice | NDArray[np.intp]
    arrival: Arrival = field(default_factory=Arrival)
    newest: int = -(1 << 62)  # the newest window it reported
    none: list[None] = field(default_factory=list)  # a column that was not read
    steady: list[Any] = field(default_factory=list)  # as in the last sample
    steady_rows: Floats = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(slots=True)
class Gpu:
    """One column."""

    uuid: str
    node: str
    index: int | None
    pci: str | None
    model: str


@dataclass(slots=True)
class Open:
    """A window that still waits for nodes."""

    slot: int
    missing: set[str]  # nodes that should still report
    timed: bool  # nobody knows who should: only time closes it

    @property
    def complete(self) -> bool:
        """Whether nobody is waited for."""
        return not self.missing and not self.timed


class Windows:
    """The open windows of one job, and the last closed ones."""

    __slots__ = (
        "ahead_ns",
        "closed",
        "counts",
        "due",
        "gpus",
        "grace_ns",
        "late_ns",
        "least_ns",
        "nodes",
        "open",
        "parts",
        "place",
        "ring",
        "sample_ns",
        "slots",
        "stamps",
        "taken",
        "window_ns",
    )

    def __init__(self, t: LagThresholds) -> None:
        self.grace_ns = int(t.grace_s * SECOND_NS)
        self.late_ns = int(t.late_s * SECOND_NS)
        self.least_ns = int(t.window_s * SECOND_NS)
        self.sample_ns = self.window_ns = self.ahead_ns = 0
        self.parts = 1  # samples that make a window
        self.nodes: dict[str, Node] = {}
        self.gpus: list[Gpu] = []
        self.place: dict[str, int] = {}
        self.open: dict[int, Open] = {}
        self.due = FAR  # when the oldest open window must close, in server time
        self.closed = -(1 << 62)  # number of the newest closed window
        self.slots = 0
        self.ring: Floats = np.empty((0, len(ROWS), 0))
        self.taken: Floats = np.empty((0, len(MEANS), 0))  # with several samples a window: readings in each mean
        self.stamps: list[int] = []  # window number in each slot
        self.counts: dict[str, int] = {}  # samples that did not count, by reason

    def add(self, sample: Mapping[str, Any], job: str, server_ns: int) -> bool:
        """Put a sample in its place; say whether it counted."""
        window_ns = sample["window_ns"]
        if window_ns <= 0 or not sample["reads"]:
            return self._ignore("empty")
        if window_ns != self.sample_ns:
            self._resize(window_ns)
        found = self._node(sample, job)
        if found is None:
            return self._ignore("divided")
        mine, node = found
        ts = sample["ts"]
        verdict = node.arrival.accept(sample["boot"], ts, server_ns, self.ahead_ns, window_ns + self.late_ns)
        if verdict != "ok":
            return self._ignore(verdict)
        # The window that the middle of the sample lies in.
        at_ns = ts + node.arrival.offset_ns + self.window_ns - self.sample_ns // 2
        number = at_ns // self.window_ns
        if number <= self.closed:
            node.newest = max(number, node.newest)  # from now on it is waited for
            return self._ignore("late")
        window = self.open.get(number) or self._begin(number)
        if self.parts > 1:
            self._add_part(window, number, node, mine, sample, last=(at_ns + window_ns) // self.window_ns > number)
            return True
        window.missing.discard(node.name)
        node.newest = max(number, node.newest)
        self._fill(self.ring[window.slot], node, mine, sample)
        return True

    def _add_part(
        self, window: Open, number: int, node: Node, mine: list[int] | None, sample: Mapping[str, Any], *, last: bool
    ) -> None:
        """Take one of several samples into the means of a window. The `last` one makes the node's part complete."""
        for other, waiting in self.open.items():
            if other < number or (last and other == number):
                waiting.missing.discard(node.name)
        node.newest = max(number if last else number - 1, node.newest)
        there, means = self.ring[window.slot], len(MEANS)
        before = there[:means, node.columns].copy()
        self._fill(there, node, mine, sample)
        fresh = there[:means, node.columns]
        mend(fresh)
        read = ~np.isnan(fresh)
        count = self.taken[window.slot][:, node.columns] + read
        self.taken[window.slot][:, node.columns] = count
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(count > 1, before + (fresh - before) / count, fresh)
        there[:means, node.columns] = np.where(read, mean, before)

    def _fill(self, window: Floats, node: Node, mine: list[int] | None, sample: Mapping[str, Any]) -> None:
        mean, last, none = sample["mean"], sample["last"], repeat(node.none)
        rows: Floats = np.array([*map(mean.get, MEANS, none), *map(last.get, COUNTERS, none)], dtype=np.float64)
        steady = [*map(last.get, STEADY, none)]
        if steady != node.steady:
            node.steady, node.steady_rows = steady, np.array(steady, dtype=np.float64)
        fixed = node.steady_rows
        if mine is not None:
            rows, fixed = rows[:, mine], fixed[:, mine]
        window[:MOVING, node.columns] = rows
        window[MOVING:, node.columns] = fixed

    def _ignore(self, why: str) -> bool:
        self.counts[why] = self.counts.get(why, 0) + 1
        return False

    def _node(self, sample: Mapping[str, Any], job: str) -> tuple[list[int] | None, Node] | None:
        """Return which of a sample's GPUs are the job's (None: all) and the node; None where none can be compared."""
        everyone = uuids = sample["gpu"]["uuid"]
        jobs = sample["job"]
        mine, whole = None, whole_gpus(sample)
        if whole is not None or jobs.count(job) != len(jobs):
            mine = [i for i, holder in enumerate(jobs) if holder == job and (whole is None or whole[i])]
            if not mine:
                return None
            uuids = [everyone[i] for i in mine]
        node = self.nodes.get(sample["node"])
        if node is None or node.uuids != uuids or len(node.none) != len(everyone):
            node = self._place(sample, uuids, range(len(uuids)) if mine is None else mine)
            node.none, node.steady = [None] * len(everyone), []
        return mine, node

    def _place(self, sample: Mapping[str, Any], uuids: list[str], mine: Sequence[int]) -> Node:
        """Give a node's GPUs their columns; a GPU that was seen before keeps its own."""
        gpu, name = sample["gpu"], sample["node"]
        for uuid, at in zip(uuids, mine, strict=True):
            known = Gpu(uuid, name, _at(gpu, "index", at), _at(gpu, "pci", at), _at(gpu, "model", at) or "")
            if uuid in self.place:
                self.gpus[self.place[uuid]] = known
            else:
                self.place[uuid] = len(self.gpus)
                self.gpus.append(known)
        self._grow()
        places = [self.place[uuid] for uuid in uuids]
        run = places == list(range(places[0], places[0] + len(places)))
        columns = slice(places[0], places[0] + len(places)) if run else np.array(places)
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name, uuids, columns)
        node.uuids, node.columns = uuids, columns
        return node

    def _grow(self) -> None:
        have = self.ring.shape[2]
        if len(self.gpus) > have:
            wider = np.full((self.slots, len(ROWS), max(8, len(self.gpus), 2 * have)), np.nan)
            wider[:, :, :have] = self.ring
            self.ring = wider
            if self.parts > 1:
                taken = np.zeros((self.slots, len(MEANS), wider.shape[2]))
                taken[:, :, :have] = self.taken
                self.taken = taken

    def _resize(self, window_ns: int) -> None:
        """Begin anew with another length; a sample shorter than the job's others fills or helps to fill a window."""
        if self.sample_ns and window_ns < self.sample_ns:
            return
        self.sample_ns, self.ahead_ns = window_ns, max(window_ns // 2, SECOND_NS)
        self.parts = -(-self.least_ns // window_ns)
        self.window_ns = self.parts * window_ns
        self.slots = 4 + (self.grace_ns + self.window_ns // 2) // self.window_ns
        self.ring = np.full((self.slots, len(ROWS), self.ring.shape[2]), np.nan)
        self.taken = np.zeros((self.slots, len(MEANS), self.ring.shape[2] if self.parts > 1 else 0))
        self.stamps = [-1] * self.slots
        self.open, self.due = {}, FAR
        self.closed = -(1 << 62)
        for node in self.nodes.values():
            node.newest = -(1 << 62)
        self._grow()

    def _begin(self, number: int) -> Open:
        slot = number % self.slots
        self.open.pop(self.stamps[slot], None)  # after a leap in time nobody closed it
        self.ring[slot] = np.nan
        if self.parts > 1:
            self.taken[slot] = 0.0
        self.stamps[slot] = number
        alive = {name: node.newest for name, node in self.nodes.items() if node.newest >= number - 3}
        missing = {name for name, newest in alive.items() if newest < number}
        # At a job's first windows nobody knows who will report.
        window = self.open[number] = Open(slot, missing, timed=not alive)
        self._plan(list(self.open))
        return window

    def ripe(self, now_ns: int) -> Sequence[int]:
        """Return the numbers of the windows to close now, in order, and mark them closed."""
        if now_ns < self.due:
            for window in self.open.values():
                if window.complete:
                    break
            else:
                return ()
        done = [n for n, w in self.open.items() if w.complete]
        until = (now_ns - self.grace_ns - self.sample_ns // 2) // self.window_ns
        until = max([until, max(self.open, default=until) - self.slots + 2, *done])
        numbers = sorted(n for n in self.open if n <= until)
        if numbers:
            self.closed = numbers[-1]
            self._plan([n for n in self.open if n > until])
        return numbers

    def _plan(self, numbers: Sequence[int]) -> None:
        """Remember when the oldest of some windows must close whoever is missing."""
        oldest = min(numbers, default=None)
        self.due = FAR if oldest is None else oldest * self.window_ns + self.sample_ns // 2 + self.grace_ns

    def take(self, number: int) -> tuple[Floats, Floats | None]:
        """Return a closed window and the one before it (None when that is gone), (rows, GPUs) each."""
        window = self.open.pop(number)
        count = len(self.gpus)
        current = self.ring[window.slot][:, :count]
        if self.parts > 1:
            current[: len(MEANS)][self.taken[window.slot][:, :count] < LEAST_SHARE * self.parts] = np.nan
        before = (number - 1) % self.slots
        earlier = self.ring[before][:, :count] if self.stamps[before] == number - 1 else None
        return current, earlier

    def end_ns(self, number: int) -> int:
        """Return the end of a window in stream time."""
        return number * self.window_ns


def _at(columns: Mapping[str, Any], name: str, at: int) -> Any:
    column = columns.get(name)
    return column[at] if isinstance(column, list) else None
