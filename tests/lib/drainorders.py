"""Orders of operators, as the bus delivers them to the drainer's step."""

from typing import Any

from drainworld import CLUSTER, T0, Cluster

from heeler.bus import encode, subjects
from heeler.engine import Inbound, intake


def order(what: str, at: int = T0, ident: str = "c1", actor: str = "jane", **more: Any) -> Inbound:
    """A command as the bus delivers it."""
    data = {"v": 1, "cluster": CLUSTER, "ts": at, "id": ident, "command": what, **more}
    return intake(subjects.drain_command(CLUSTER, actor), None, encode("DrainCommand", data), at)


def give(cluster: Cluster, message: Inbound, at: int | None = None) -> list[dict[str, Any]]:
    """Deliver a command; returns the actions that it led to."""
    moved = message if at is None else Inbound(message.kind, message.subject, message.data, at, message.payload)
    return cluster._keep([event for _, event in cluster.keyed.on(moved)])
