"""The GPUs of a fleet as arrays, one cell each: pure.

A node's cells lie side by side, so that a page can draw it as a strip and what has changed can be told by node.
A cell is never moved, but for a node that turns out to have more GPUs than it had room for: then all are laid out
anew, and `epoch` says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SECOND_NS = 1_000_000_000
ROOM = 8  # cells of a new node: most have as many GPUs
MOST_CELLS = 64  # of a node
MOST_PARTS = 16  # of a node: a sample comes in a part for each shard of its jobs
HELD_BACK_NS = 120 * SECOND_NS  # a sample older than that on arrival is told late: its age counts from its own time

UNKNOWN, OK, LOST, HUNG, STALE, NO_CELL = 0, 1, 2, 3, 4, 255
STATES = {"ok": OK, "lost": LOST, "hung": HUNG}
STATE_NAMES = ("unknown", "ok", "lost", "hung", "stale")
UNREAD = 255  # of a value

JOB_UNKNOWN, JOB_NONE, JOB_SEVERAL, FIRST_JOB = 0, 1, 2, 3

# What is read of a sample, by group; the order is that of the rows of `raw`.
READ: tuple[tuple[str, str], ...] = (
    ("mean", "sm_active_ratio"),
    ("mean", "util_ratio"),
    ("mean", "temp_c"),
    ("mean", "power_w"),
    ("mean", "sm_clock_mhz"),
    ("mean", "fb_used_bytes"),
    ("mean", "fb_total_bytes"),
    ("mean", "tensor_active_ratio"),
    ("last", "power_limit_w"),
    ("last", "sm_clock_max_mhz"),
)
ROW = {name: at for at, (_, name) in enumerate(READ)}

# What is shown as colours: name, row, row that it is divided by, steps for 1.
SHOWN: tuple[tuple[str, int, int | None, float], ...] = (
    ("activity", ROW["sm_active_ratio"], None, 200.0),
    ("utilisation", ROW["util_ratio"], None, 200.0),
    ("temperature", ROW["temp_c"], None, 1.0),
    ("power", ROW["power_w"], ROW["power_limit_w"], 200.0),
    ("clock", ROW["sm_clock_mhz"], ROW["sm_clock_max_mhz"], 200.0),
    ("memory", ROW["fb_used_bytes"], ROW["fb_total_bytes"], 200.0),
)
LAYERS = ("state", "severity", *(name for name, *_ in SHOWN))

Bytes = NDArray[np.uint8]
Cells = NDArray[np.intp] | slice


@dataclass(slots=True)
class Node:
    """Where a node's cells are, and what is known of them."""

    number: int
    start: int
    room: int
    uuids: list[str | None]
    indices: list[int | None]
    parts: list[tuple[Any, Cells]] = field(default_factory=list)  # GPUs of its last samples, and where they are
    model: str | None = None


class Fleet:
    """All cells."""

    def __init__(self, stale_ns: int, most_nodes: int) -> None:
        self.stale_ns, self.most_nodes = stale_ns, most_nodes
        self.names: list[str] = []
        self.nodes: list[Node] = []
        self.slurm: list[int] = []  # what Slurm says of each node, as a number of the model's; 0 not known
        self.number: dict[str, int] = {}
        self.cell_of: dict[str, int] = {}  # by UUID
        self.epoch = 0
        self.used = 0
        self.refused = 0  # nodes and GPUs beyond the bounds
        self._make(4096)

    def _make(self, size: int) -> None:
        self.state: Bytes = np.full(size, NO_CELL, np.uint8)
        self.severity: Bytes = np.zeros(size, np.uint8)
        self.raw = np.full((len(READ), size), np.nan)
        self.job = np.zeros(size, np.uint32)
        self.heard = np.zeros(size, np.int64)
        self.told = np.zeros(size, np.int64)
        self.window = np.zeros(size, np.int64)
        self.node = np.zeros(size, np.uint32)

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return (self.state, self.severity, self.raw, self.job, self.heard, self.told, self.window, self.node)

    def _grow(self, needed: int) -> None:
        if needed <= len(self.state):
            return
        old = self._arrays()
        self._make(max(needed, 2 * len(self.state)))
        new = self._arrays()
        for before, after in zip(old, new, strict=True):
            after[..., : before.shape[-1]] = before

    def add_node(self, name: str, gpus: int = ROOM) -> Node | None:
        """Return a node, made if it is new; None where there are too many."""
        number = self.number.get(name)
        if number is not None:
            return self.nodes[number]
        if len(self.nodes) >= self.most_nodes:
            self.refused += 1
            return None
        room = min(MOST_CELLS, max(ROOM, gpus))
        node = Node(len(self.nodes), self.used, room, [None] * room, [None] * room)
        self.used += room
        self._grow(self.used)
        self.node[node.start : self.used] = node.number
        self.number[name] = node.number
        self.names.append(name)
        self.nodes.append(node)
        self.slurm.append(0)
        return node

    def cells(self, sample: Mapping[str, Any], ts_ns: int) -> Cells | None:
        """Return where a sample's GPUs are, in its order; None where they don't fit. `take` may then be called."""
        gpu = sample["gpu"]
        uuids: list[str] = gpu["uuid"]
        node = self.add_node(sample["node"], len(uuids))
        if node is None:
            return None
        key = (uuids, gpu.get("index"))
        for known, cells in node.parts:  # almost always the same GPUs as before
            if known == key:
                return cells
        indices = key[1] or [None] * len(uuids)
        placed = []
        for uuid, index in zip(uuids, indices, strict=True):
            cell = self._place(node, uuid, index, ts_ns)
            if cell is None:
                return None
            placed.append(cell - node.start)
        # Making room for one may have moved the others.
        places = np.array(placed, np.intp) + node.start
        first = int(places[0]) if len(places) else 0
        together = bool((places == np.arange(first, first + len(places))).all())
        cells = slice(first, first + len(places)) if together else places
        node.parts = [*node.parts[-MOST_PARTS:], (key, cells)]
        return cells

    def _place(self, node: Node, uuid: str, index: int | None, ts_ns: int) -> int | None:
        at = self.cell_of.get(uuid)
        if at is None or not node.start <= at < node.start + node.room:
            at = self._new_cell(node, uuid, index, ts_ns)
        if at is not None:
            node.indices[at - node.start] = index
        return at

    def _new_cell(self, node: Node, uuid: str, index: int | None, ts_ns: int) -> int | None:
        """Return a cell for a GPU that was not here: its own place by index if that is free, or that of one gone."""
        free = [at for at, held in enumerate(node.uuids) if held is None]
        heard = self.heard[node.start : node.start + node.room].tolist()
        gone = [at for at, when in enumerate(heard) if when and ts_ns - when > self.stale_ns]
        places = [*([index] if index in free or index in gone else []), *free, *gone]
        if not places:
            if node.room >= MOST_CELLS:
                self.refused += 1
                return None
            self._widen(node)
            return self._new_cell(node, uuid, index, ts_ns)
        at = places[0]
        assert at is not None
        if (before := node.uuids[at]) is not None and self.cell_of.get(before) == node.start + at:
            del self.cell_of[before]
        node.uuids[at] = uuid
        node.parts = []
        cell = node.start + at
        self.cell_of[uuid] = cell
        self._clear(cell)
        return cell

    def _clear(self, cell: int) -> None:
        self.state[cell] = UNKNOWN
        self.severity[cell] = 0
        self.raw[:, cell] = np.nan
        self.job[cell] = JOB_UNKNOWN
        self.heard[cell] = self.told[cell] = 0

    def _widen(self, wide: Node) -> None:
        """Lay all cells out anew, with twice the room for one node."""
        room = min(MOST_CELLS, 2 * wide.room)
        old_of = np.concatenate([np.arange(node.start, node.start + node.room) for node in self.nodes])
        extra = room - wide.room
        end = wide.start + wide.room
        at = np.where(old_of < end, old_of, old_of + extra)
        self._grow(self.used + extra)
        for array, empty in zip(self._arrays(), (NO_CELL, 0, np.nan, 0, 0, 0, 0, wide.number), strict=True):
            moved = array[..., old_of].copy()
            array[..., end : self.used + extra] = empty
            array[..., at] = moved
        self.used += extra
        self.cell_of = {uuid: cell if cell < end else cell + extra for uuid, cell in self.cell_of.items()}
        for node in self.nodes[wide.number + 1 :]:
            node.start += extra
            node.parts = []
        wide.uuids += [None] * extra
        wide.indices += [None] * extra
        wide.parts = []
        wide.room = room
        self.epoch += 1

    def take(self, cells: Cells, sample: Mapping[str, Any], jobs: Sequence[int], ts_ns: int) -> bool:
        """Write a sample into its cells, unless a newer one is there. `ts_ns` is when the bus had it."""
        told = sample["ts"]
        if self.told[cells].max(initial=0) > told:
            return False
        for row, (group, name) in enumerate(READ):
            column = sample[group].get(name)
            self.raw[row, cells] = np.nan if column is None else column
        states = sample.get("state")
        self.state[cells] = UNKNOWN if states is None else [STATES.get(one, UNKNOWN) for one in states]
        self.job[cells] = jobs
        self.heard[cells] = ts_ns if ts_ns - told < HELD_BACK_NS else told
        self.told[cells] = told
        self.window[cells] = sample["window_ns"]
        return True

    def grow_stale(self, now_ns: int) -> None:
        """Mark the cells that nothing was heard of for too long. What they showed is no longer known."""
        used = slice(0, self.used)
        limit = np.maximum(self.stale_ns, 3 * self.window[used])
        old = (self.state[used] != NO_CELL) & (self.heard[used] > 0) & (now_ns - self.heard[used] > limit)
        self.state[used][old] = STALE
        self.raw[:, used][:, old] = np.nan

    def let_go(self, node: Node) -> None:
        """Empty the cells of a node that is gone, once it is silent as well."""
        cells = slice(node.start, node.start + node.room)
        if ((self.state[cells] == STALE) | (self.state[cells] == NO_CELL)).all():
            for cell in range(node.start, node.start + node.room):
                self._clear(cell)
                self.state[cell] = NO_CELL
            for uuid in node.uuids:
                if uuid is not None:
                    self.cell_of.pop(uuid, None)
            node.uuids, node.parts = [None] * node.room, []

    def layers(self) -> Bytes:
        """Return what is shown, a row for each of LAYERS, 255 where a value was not read."""
        out = np.full((len(LAYERS), self.used), UNREAD, np.uint8)
        out[0], out[1] = self.state[: self.used], self.severity[: self.used]
        with np.errstate(over="ignore"):  # a reading beyond all measure is the highest colour
            for at, (_, row, by, steps) in enumerate(SHOWN, 2):
                value = self.raw[row, : self.used]
                if by is not None:
                    below = self.raw[by, : self.used]
                    value = np.divide(value, below, out=np.full_like(value, np.nan), where=below > 0)
                known = ~np.isnan(value)
                out[at, known] = np.clip(np.rint(value[known] * steps), 0, 250).astype(np.uint8)
        return out

    def values(self, cell: int) -> dict[str, float | None]:
        """Return the readings of one GPU, None where not read."""
        column = self.raw[:, cell]
        return {name: None if np.isnan(column[at]) else float(column[at]) for at, (_, name) in enumerate(READ)}
