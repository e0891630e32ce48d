"""Budgets of parts of a cluster: how many nodes of a partition or a rack may be drained by us at once. Pure."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from heeler.drain.fleet import Fleet, racks_of
from heeler.drain.node import NodeView
from heeler.drain.settings import Limits

No = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A partition or a rack: how many of its nodes are drained by us, and how many may be."""

    kind: str
    name: str
    drained: int
    allowed: int
    size: int
    limit: str


def partition_spent(fleet: Fleet, node: NodeView, ours: Collection[str], limits: Limits) -> No | None:
    """Return why no more nodes of one of a node's partitions may be drained, or None."""
    return _spent(partitions(fleet, node, ours, limits))


def rack_spent(fleet: Fleet, node: NodeView, ours: Collection[str], limits: Limits) -> No | None:
    """Return why no more nodes of a node's rack may be drained, or None. A node without a known rack has none."""
    return _spent(racks(fleet, node, ours, limits))


def partitions(fleet: Fleet, node: NodeView, ours: Collection[str], limits: Limits) -> list[Part]:
    """Return a node's partitions with what is drained in them."""
    return _parts(
        ("partition", node.partitions or (), lambda view: view.partitions or ()),
        (limits.partition_drained_min, limits.partition_drained_ratio),
        fleet,
        ours,
    )


def racks(fleet: Fleet, node: NodeView, ours: Collection[str], limits: Limits) -> list[Part]:
    """Return a node's racks with what is drained in them; none where its rack is not known."""
    patterns = limits.rack_features
    return _parts(
        ("rack", racks_of(node, patterns), lambda view: racks_of(view, patterns)),
        (limits.rack_drained_min, limits.rack_drained_ratio),
        fleet,
        ours,
    )


def _parts(
    what: tuple[str, Collection[str], Callable[[NodeView], Collection[str]]],
    limit: tuple[int, float],
    fleet: Fleet,
    ours: Collection[str],
) -> list[Part]:
    kind, names, of = what
    least, ratio = limit
    found = []
    for name in names:
        size = fleet.size_of(kind, name)
        drained = [one for one in ours if (view := fleet.nodes.get(one)) is not None and name in of(view)]
        allowed = max(least, int(ratio * size))
        found.append(Part(kind, name, len(drained), allowed, size, f"max({least}, {ratio:.0%})"))
    return found


def _spent(parts: Collection[Part]) -> No | None:
    for part in parts:
        if part.drained >= part.allowed:
            return f"{part.kind}_drained", (
                f"{part.drained} nodes of {part.kind} {part.name} are drained by us, at most {part.allowed} of "
                f"{part.size} may be ({part.limit})"
            )
    return None
