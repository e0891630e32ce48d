"""Nodes: from `sinfo --json`, `scontrol show nodes --json` (v0.0.38 to v0.0.42) and `scontrol show node -o`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from math import inf
from typing import Any

from heeler.slurm import jsonfix, nodecolumns
from heeler.slurm.collect import Table
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS, gpu_count, parse_gres
from heeler.slurm.jsonnumbers import cpu_load, epoch_ns, number
from heeler.slurm.rows import Unreadable, free_text, is_node_name, optional, rows_of, version_of, words
from heeler.slurm.state import NodeFlags, parse_node_state
from heeler.slurm.tablebuilder import TableBuilder
from heeler.slurm.times import parse_timestamp
from heeler.slurm.tres import parse_tres

_TEXT_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z_]*)=")
_SIGNED = re.compile(r" \[([^\[\]@\s]+)@(\d{4}-\d\d-\d\dT[\d:.]+|\d{6,10}|Unknown|None|N/A)\]")
# What scontrol prints behind the reason.
_BEHIND_REASON = re.compile(r"\s(?=(?:Comment|Extra|InstanceId|InstanceType|ReservationName)=)")
_FREE_TEXT = (" Comment=", " Extra=")


@dataclass(frozen=True, slots=True)
class Node:
    """What Slurm says of one node. None is not known; a reason that is not set is None too."""

    name: str
    state: NodeFlags
    reason: str | None = None
    reason_user: str | None = None
    reason_ts_ns: int | None = None
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gres: str | None = None
    gres_used: str | None = None
    gpus_total: int | None = None
    gpus_used: int | None = None
    cpu_load: float | None = None
    boot_ts_ns: int | None = None
    reservation: str | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """The state's flags."""
        return self.state.flags


@dataclass(frozen=True, slots=True)
class NodesAnswer:
    """A complete answer: every node that Slurm listed is in one of the two."""

    nodes: tuple[Node, ...]
    unreadable: tuple[Unreadable, ...] = ()
    version: str | None = None
    table: Table | None = None  # all columns of all nodes, where they were asked for
    source: str | None = None


def parse_nodes_json(answer: str | bytes | Mapping[str, Any], *, with_table: bool = False) -> NodesAnswer:
    """Return the nodes of a JSON answer, as a table too where asked for.

    Raises ParseError where the answer is no list of nodes, or lists errors.
    """
    value = jsonfix.loads(answer).value if isinstance(answer, str | bytes) else answer
    rows = rows_of(value, "nodes")
    nodes: list[Node] = []
    unreadable: list[Unreadable] = []
    builder = TableBuilder("nodes") if with_table else None
    for row in rows:
        try:
            node = parse_node_json(row)
            if builder is not None:
                builder.add(_columns(node, nodecolumns.from_json(row)))
            nodes.append(node)
        except ParseError as err:
            unreadable.append(Unreadable(_name_of(row), str(err)))
    return _answer(nodes, unreadable, version_of(value), builder)


def parse_node_json(row: Any) -> Node:
    """Return one node of a JSON answer. Raises ParseError."""
    name = _name_of(row)
    if name is None:
        raise ParseError("a node without a name", row)
    reason = free_text(row, "reason")
    return Node(
        name=name,
        state=parse_node_state(row.get("state"), row.get("state_flags") or ()),
        reason=reason,
        # An author without a reason is left over from an earlier one.
        reason_user=optional(row, "reason_set_by_user") if reason else None,
        reason_ts_ns=epoch_ns(row.get("reason_changed_at")) if reason else None,
        partitions=words(row.get("partitions")),
        features=words(row.get("active_features") or row.get("features")),
        gres=optional(row, "gres"),
        gres_used=optional(row, "gres_used"),
        gpus_total=_gpus(row.get("gres")),
        gpus_used=_gpus(
            row.get("gres_used"), row.get("tres"), (row.get("tres_used") or "") if "tres_used" in row else None
        ),
        cpu_load=cpu_load(row.get("cpu_load")),
        boot_ts_ns=epoch_ns(row.get("boot_time")),
        reservation=optional(row, "reservation"),
    )


def parse_nodes_text(text: str, zone: tzinfo, *, with_table: bool = False) -> NodesAnswer:
    """Return the nodes of `scontrol show node -o` (one a line); `zone` is the controller's. Never raises.

    Lines that are no node (warnings) are unreadable ones without a name.
    """
    nodes: list[Node] = []
    unreadable: list[Unreadable] = []
    builder = TableBuilder("nodes") if with_table else None
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            node = parse_node_text(line, zone)
            if builder is not None:
                builder.add(_columns(node, nodecolumns.from_text(_split_line(line)[0], zone)))
            nodes.append(node)
        except ParseError as err:
            match = re.match(r"NodeName=(\S+)", line)
            unreadable.append(Unreadable(match[1] if match and is_node_name(match[1]) else None, str(err)))
    return _answer(nodes, unreadable, None, builder)


def parse_node_text(line: str, zone: tzinfo) -> Node:
    """Return the node of one line of `scontrol show node -o` (or `-d -o`). Raises ParseError."""
    if not line.startswith("NodeName="):
        raise ParseError("not a node", line)
    found, said = _split_line(line)
    if "State" not in found or not is_node_name(found["NodeName"]):
        raise ParseError("a node without a name or state", line)
    reason, user, stamp = split_reason(said)
    load = number(found.get("CPULoad"))
    return Node(
        name=found["NodeName"],
        state=parse_node_state(found["State"]),
        reason=reason,
        reason_user=user,
        reason_ts_ns=parse_timestamp(stamp, zone) if stamp else None,
        partitions=words(found.get("Partitions")),
        features=words(found.get("ActiveFeatures")),
        gres=_text(found.get("Gres")),
        gres_used=_text(found.get("GresUsed")),
        gpus_total=_gpus(found.get("Gres")),
        gpus_used=_gpus(found.get("GresUsed"), found.get("CfgTRES"), found.get("AllocTRES")),
        cpu_load=load if load is not None and 0 <= load < inf else None,
        boot_ts_ns=parse_timestamp(found.get("BootTime", ""), zone),
        reservation=_text(found.get("ReservationName")),
    )


def _answer(
    nodes: list[Node], unreadable: list[Unreadable], version: str | None, builder: TableBuilder | None
) -> NodesAnswer:
    table = None
    if builder is not None:
        builder.unreadable += unreadable
        table = builder.build(version)
    return NodesAnswer(tuple(nodes), tuple(unreadable), version, table)


def _columns(node: Node, more: dict[str, Any]) -> dict[str, Any]:
    """Return all columns of a node."""
    return {
        "node": node.name,
        "state": node.state.base,
        "flags": list(node.flags),
        "unknown_flags": list(node.state.unknown_flags),
        "state_unparsed": node.state.unparsed or None,
        "available": node.state.available,
        "drained": node.state.drained,
        "draining": node.state.draining,
        "reason": node.reason,
        "reason_user": node.reason_user,
        "reason_ts": node.reason_ts_ns,
        "partitions": list(node.partitions),
        "reservation": node.reservation,
        "features_active": list(node.features),
        "cpu_load": node.cpu_load,
        "gres": node.gres,
        "gres_used": node.gres_used,
        "gpus": node.gpus_total,
        "gpus_used": node.gpus_used,
        "boot_ts": node.boot_ts_ns,
        **nodecolumns.resources(node.gres if node.gres is not None else "", node.gres_used),
        **more,
        **nodecolumns.processors(more, node.state),
    }


def node_message(node: Node, *, cluster: str, event: str, ts_ns: int) -> dict[str, Any]:
    """Return the NodeState of a node, without keys that are not known."""
    message: dict[str, Any] = {
        "v": 1,
        "cluster": cluster,
        "node": node.name,
        "ts": ts_ns,
        "event": event,
        "state": node.state.base.lower(),
        "flags": list(node.flags),
        "unknown_flags": list(node.state.unknown_flags) or None,
        "available": node.state.available,
        "reason": node.reason,
        "reason_user": node.reason_user,
        "reason_ts": node.reason_ts_ns,
        "partitions": list(node.partitions),
        "features": list(node.features),
        "gres": node.gres,
        "gres_used": node.gres_used,
        "gpus_total": node.gpus_total,
        "gpus_used": node.gpus_used,
        "cpu_load": node.cpu_load,
        "boot_ts": node.boot_ts_ns,
        "reservation": node.reservation,
    }
    return {key: value for key, value in message.items() if value is not None}


def _split_line(line: str) -> tuple[dict[str, str], str]:
    """Return the fields of a line, and its reason with the author: free text, which may look like fields."""
    head, _, tail = line.partition(" Reason=")
    if any(mark in head for mark in _FREE_TEXT):
        return _fields(line), ""  # the words stand in somebody's comment: the reason comes before it
    signed = _SIGNED.search(tail)
    behind = _BEHIND_REASON.search(tail, signed.end() if signed else 0)
    if behind is None:
        return _fields(head), tail
    return _fields(head) | _fields(tail[behind.end() :]), tail[: behind.start()]


def split_reason(text: str) -> tuple[str | None, str | None, str | None]:
    """Split ``reason [user@time]`` into reason, user and time.

    A reason of several lines has its author after the first. Where a reason holds text that looks like an author and
    more follows the real one, who wrote it can't be told: then user and time are None.
    """
    text = text.strip()
    marks = list(_SIGNED.finditer(text))
    if not text or not marks:
        return None if text.lower() in NULLS else text, None, None
    last = marks[-1]
    if last.end() == len(text):
        return text[: last.start()], last[1], last[2]
    if len(marks) > 1:
        return text, None, None
    return f"{text[: last.start()]}\n{text[last.end() :].strip()}", last[1], last[2]


def _name_of(row: Any) -> str | None:
    name = row.get("name") if isinstance(row, dict) else None
    return name if isinstance(name, str) and is_node_name(name) else None


def _gpus(gres: Any, configured_tres: Any = None, tres: Any = None) -> int | None:
    """Return GPUs by the GRES string; without one by TRES, where the site accounts for GPUs; else None.

    What can't be read is not known, and no reason to lose the node.
    """
    try:
        if isinstance(gres, str):
            return gpu_count(parse_gres(gres))
        if isinstance(configured_tres, str) and isinstance(tres, str) and parse_tres(configured_tres).gpus:
            return parse_tres(tres).gpus
    except ParseError:
        pass
    return None


def _fields(text: str) -> dict[str, str]:
    marks = list(_TEXT_KEY.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        found.setdefault(mark[1], text[mark.end() : end].strip())
    return found


def _text(value: str | None) -> str | None:
    return None if value is None or value.lower() in NULLS else value
