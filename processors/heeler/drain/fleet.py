"""All nodes of a cluster and what can be asked of them together, kept up to date one node at a time."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from heeler.drain.node import Condition, NodeView, condition
from heeler.drain.ownership import PREFIX

UNAVAILABLE: frozenset[Condition] = frozenset({"broken", "drained", "unknown"})
NOT_COUNTED: frozenset[Condition] = frozenset({"powered_down", "planned"})


def racks_of(view: NodeView, patterns: Collection[str]) -> list[str]:
    """Return a node's racks: its features that fit one of these patterns."""
    return [name for name in view.features if any(fnmatchcase(name, pattern) for pattern in patterns)]


@dataclass(slots=True)
class Fleet:
    """Nodes by name, with counts."""

    benign: frozenset[str] = frozenset()
    nodes: dict[str, NodeView] = field(default_factory=dict)
    marked: set[str] = field(default_factory=set)  # drained under a reason of Heeler's form, whoever wrote it
    _conditions: Counter[Condition] = field(default_factory=Counter)
    _up_in: Counter[str] = field(default_factory=Counter)
    rack_features: tuple[str, ...] = ()
    _sizes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def put(self, view: NodeView) -> None:
        """Take in a newer view of a node."""
        self.drop(view.name)
        if view.state == "future":  # only defined, not there
            return
        self.nodes[view.name] = view
        self._count(view, 1)
        if view.draining and (view.reason or "").startswith(PREFIX):
            self.marked.add(view.name)

    def drop(self, name: str) -> None:
        """Forget a node."""
        old = self.nodes.pop(name, None)
        if old is not None:
            self._count(old, -1)
            self.marked.discard(name)

    def _count(self, view: NodeView, by: int) -> None:
        found = condition(view, self.benign)
        self._conditions[found] += by
        if found not in NOT_COUNTED:
            for partition in view.partitions or ():
                self._sizes["partition", partition] += by
            for rack in racks_of(view, self.rack_features):
                self._sizes["rack", rack] += by
        if found == "up":
            for partition in view.partitions or ():
                self._up_in[partition] += by

    def size_of(self, kind: str, name: str) -> int:
        """Return how many nodes that count a partition or a rack has."""
        return self._sizes[kind, name]

    def is_up(self, name: str) -> bool:
        """Say whether a node takes jobs now, as far as is known."""
        view = self.nodes.get(name)
        return view is not None and condition(view, self.benign) == "up"

    @property
    def size(self) -> int:
        """Nodes that count: not powered down and not in planned maintenance."""
        return len(self.nodes) - sum(self._conditions[kind] for kind in NOT_COUNTED)

    def unavailable(self, claimed: Collection[str] = ()) -> int:
        """Return how many nodes that count take no jobs; claimed ones that still look up are counted too."""
        return sum(self._conditions[kind] for kind in UNAVAILABLE) + sum(map(self.is_up, claimed))

    def others_up(self, node: NodeView, partition: str, claimed: Collection[str] = ()) -> int:
        """Return how many other nodes of a partition take jobs, claimed ones left out."""
        gone = {name for name in claimed if name != node.name and self._is_up_in(name, partition)}
        return self._up_in[partition] - len(gone) - (1 if self._is_up_in(node.name, partition) else 0)

    def _is_up_in(self, name: str, partition: str) -> bool:
        return self.is_up(name) and partition in (self.nodes[name].partitions or ())
