"""What nodes share: a switch or block of Slurm's topology, a rack that a feature of the node names.

Slurm's topology comes as a table in parts. Only a whole one counts; what was known stays until the next is whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

TABLE = "topology"
MOST_PARTS = 256
WORDS = {
    "switch": ("behind switch", "behind {} switches"),
    "block": ("of block", "of {} blocks"),
    "rack": ("in rack", "in {} racks"),
    "fabric": ("of NVLink domain", "of {} NVLink domains"),
    "job": ("of job", "of {} jobs"),
}


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Something that several nodes have in common."""

    kind: str  # switch, block, rack, fabric, job
    name: str

    @property
    def key(self) -> str:
        """Return it as one text."""
        return f"{self.kind}:{self.name}"


def place_of(key: str) -> Place:
    """Return the place that `Place.key` named."""
    kind, _, name = key.partition(":")
    return Place(kind, name)


def words_of(places: Sequence[Place]) -> str:
    """Return places as part of a sentence."""
    if not places:
        return ""
    kinds = {place.kind for place in places}
    one, several = WORDS.get(places[0].kind, ("at", "at {} places"))
    if len(places) == 1:
        return f" {one} {places[0].name}"
    return " " + (several if len(kinds) == 1 else "at {} places").format(len(places))


@dataclass(slots=True)
class _Parts:
    """A table on its way."""

    snapshot: str = ""
    ts: int = 0
    parts: dict[int, Mapping[str, Any]] = field(default_factory=dict)


class Places:
    """Where the nodes of a cluster are. `rack_features`: patterns of those features that name a rack."""

    def __init__(self, rack_features: Sequence[str] = ()) -> None:
        self.rack_features = tuple(rack_features)
        self.racks: dict[str, tuple[Place, ...]] = {}
        self.fabrics: dict[str, Place] = {}
        self.topology: dict[str, tuple[Place, ...]] = {}
        self.sizes: dict[Place, int] = {}  # nodes, of what the topology names
        self._ts = 0
        self._coming: dict[str, _Parts] = {}  # by feed

    @property
    def known(self) -> bool:
        """Say whether anything is."""
        return bool(self.topology or self.racks or self.fabrics)

    def of(self, node: str) -> tuple[Place, ...]:
        """Return the places of a node, those of Slurm's topology first."""
        fabric = self.fabrics.get(node)
        return (*self.topology.get(node, ()), *self.racks.get(node, ()), *((fabric,) if fabric else ()))

    def node(self, state: Mapping[str, Any]) -> None:
        """Learn from Slurm's word on a node in which rack it is."""
        if not self.rack_features:
            return
        names = [n for n in state.get("features") or () if any(fnmatchcase(n, p) for p in self.rack_features)]
        self.racks.pop(state["node"], None)
        if names and state.get("event") != "gone":
            self.racks[state["node"]] = tuple(Place("rack", name) for name in names)

    def table(self, message: Mapping[str, Any]) -> None:
        """Take a part of a table in."""
        if message["table"] != TABLE or message["parts"] > MOST_PARTS:
            return
        coming = self._coming.setdefault(message["feed"], _Parts())
        if message["snapshot"] != coming.snapshot:
            if message["ts"] < coming.ts:
                return  # what an older, longer table left behind
            coming = self._coming[message["feed"]] = _Parts(message["snapshot"], message["ts"])
        coming.parts[message["part"]] = message["columns"]
        if len(coming.parts) == max(1, message["parts"]) and coming.ts >= self._ts:
            self._ts = coming.ts
            self._learn(coming.parts.values())
            coming.parts = {}

    def _learn(self, parts: Iterable[Mapping[str, Any]]) -> None:
        self.topology, self.sizes = {}, {}
        for columns in parts:
            none = [None] * len(columns.get("name", ()))
            for name, kind, level, nodes in zip(
                *(columns.get(column, none) for column in ("name", "kind", "level", "nodes")), strict=True
            ):
                # Switches above the first hold many nodes for which nothing follows from one of them.
                leaf = kind == "block" or (kind == "switch" and level == 0)
                if not leaf or not name or not nodes:
                    continue
                place = Place(kind, name)
                self.sizes[place] = len(nodes)
                for node in nodes:
                    self.topology[node] = (*self.topology.get(node, ()), place)
