"""Partitions: from ``scontrol show partition`` as JSON or text to the table `partitions`."""

from collections.abc import Mapping
from math import isinf
from typing import Any

from heeler.slurm import jsonfix
from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jsonnumbers import integer, number
from heeler.slurm.rows import Unreadable, optional, rows_of, version_of
from heeler.slurm.times import parse_duration
from heeler.slurm.tres import parse_tres

NAME = "partitions"


async def collect(clients: Clients) -> Table:
    """Ask for all partitions."""
    return await clients.ask(
        NAME,
        (
            Way("rest", ("slurm", "partitions"), parse_json),
            Way("json", ("scontrol", "--all", "show", "partitions"), parse_json),
            Way("text", ("scontrol", "--all", "--oneliner", "show", "partitions"), parse_text),
        ),
    )


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    value = jsonfix.loads(data).value
    rows: list[dict[str, Any]] = []
    unreadable: list[Unreadable] = []
    for row in rows_of(value, NAME):
        try:
            rows.append(_from_json(row))
        except ParseError as err:
            unreadable.append(Unreadable(row.get("name") if isinstance(row, dict) else None, str(err)))
    told = any(row["is_default"] is not None for row in rows)
    absent = {} if told or not rows else {"is_default": "not told in JSON"}
    return table_of(NAME, rows, absent=absent, unreadable=unreadable, version=version_of(value))


def parse_text(data: bytes) -> Table:
    """Return the table of ``scontrol --oneliner show partitions``."""
    rows: list[dict[str, Any]] = []
    unreadable: list[Unreadable] = []
    for line in data.decode(errors="replace").splitlines():
        if not line.strip() or line.startswith("No partitions"):
            continue
        try:
            rows.append(_from_text(line))
        except ParseError as err:
            unreadable.append(Unreadable(None, str(err)))
    return table_of(NAME, rows, unreadable=unreadable)


def _from_json(row: Any) -> dict[str, Any]:
    name = row.get("name") if isinstance(row, dict) else None
    if not isinstance(name, str) or not name:
        raise ParseError("a partition without a name", row)
    # v0.0.39 and later keep related values in maps of their own.
    nodes, limits = _map(row, "nodes"), _map(row, "maximums")
    minutes = number(limits.get("time", row.get("max_time_limit")))
    state = _map(row, "partition").get("state", row.get("state"))
    flags = row.get("flags")
    return {
        "partition": name,
        "is_default": "default" in (word.lower() for word in flags) if isinstance(flags, list) else None,
        "state": "+".join(state) if isinstance(state, list) else state,
        "nodes": list(expand_set(nodes.get("configured"))) if nodes else list(expand_set(optional(row, "nodes"))),
        "node_count": integer(nodes.get("total", row.get("total_nodes"))),
        "cpus": integer(_map(row, "cpus").get("total", row.get("total_cpus"))),
        "max_time_s": None if minutes is None or isinf(minutes) else minutes * 60,
        "time_unlimited": None if minutes is None else isinf(minutes),
        "tres": parse_tres(_map(row, "tres").get("configured")).values or None,
    }


def _from_text(line: str) -> dict[str, Any]:
    found = dict(word.split("=", 1) for word in line.split() if "=" in word)
    name = found.get("PartitionName")
    if not name:
        raise ParseError("not a partition", line)
    limit = parse_duration(found["MaxTime"]) if "MaxTime" in found else None
    return {
        "partition": name,
        "is_default": {"YES": True, "NO": False}.get(found.get("Default", "")),
        "state": found.get("State"),
        "nodes": list(expand_set(found.get("Nodes"))),
        "node_count": integer(found.get("TotalNodes")),
        "cpus": integer(found.get("TotalCPUs")),
        "max_time_s": None if limit is None or isinf(limit) else limit,
        "time_unlimited": None if limit is None else isinf(limit),
        "tres": parse_tres(found.get("TRES")).values or None,
    }


def _map(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


COLLECTOR = Collector(NAME, 300.0, collect)
