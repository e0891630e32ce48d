"""Reservations: from ``scontrol show reservations`` as JSON or text, or slurmrestd."""

from collections.abc import Mapping
from datetime import tzinfo
from functools import partial
from typing import Any

from heeler.slurm import jsonfix, oneliner
from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jsonnumbers import epoch_ns, integer
from heeler.slurm.oneliner import value
from heeler.slurm.rows import name_in, optional, read_each, rows_of, version_of, words
from heeler.slurm.times import parse_timestamp
from heeler.slurm.tres import parse_tres

NAME = "reservations"


async def collect(clients: Clients) -> Table:
    """Ask for all of them."""
    return await clients.ask(
        NAME,
        (
            Way("rest", ("slurm", "reservations"), parse_json),
            Way("json", ("scontrol", "show", "reservations"), parse_json),
            Way(
                "text",
                ("scontrol", "--oneliner", "show", "reservations"),
                partial(parse_text, zone=clients.zone),
            ),
        ),
    )


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    answer = jsonfix.loads(data).value
    rows, unreadable = read_each(rows_of(answer, NAME), _from_json, name_in)
    return table_of(
        NAME,
        rows,
        absent={"state": "not told in JSON: see start_ts and end_ts"},
        unreadable=unreadable,
        version=version_of(answer),
    )


def _from_json(row: Any) -> dict[str, Any]:
    name = row.get("name") if isinstance(row, dict) else None
    if not isinstance(name, str) or not name:
        raise ParseError("a reservation without a name", row)
    return {
        "reservation": name,
        "start_ts": epoch_ns(row.get("start_time")),
        "end_ts": epoch_ns(row.get("end_time")),
        "nodes": list(expand_set(optional(row, "node_list"))),
        "node_count": integer(row.get("node_count")),
        "cores": integer(row.get("core_count")),
        "partition": optional(row, "partition"),
        "features": optional(row, "features"),
        "flags": list(words(row.get("flags"))),
        "tres": parse_tres(optional(row, "tres")).values or None,
        "users": list(words(row.get("users"))),
        "groups": list(words(row.get("groups"))),
        "accounts": list(words(row.get("accounts"))),
        "licenses": _licenses(optional(row, "licenses")),
        "burst_buffer": optional(row, "burst_buffer"),
        "max_start_delay_s": integer(row.get("max_start_delay")) or None,
    }


def parse_text(data: bytes, zone: tzinfo) -> Table:
    """Return the table of ``scontrol --oneliner show reservations``; `zone` is the controller's. Raises ParseError."""
    return oneliner.table(NAME, data, "ReservationName", partial(_from_text, zone=zone), "No reservations")


def _from_text(row: Mapping[str, str], zone: tzinfo) -> dict[str, Any]:
    if not row["ReservationName"]:
        raise ParseError("a reservation without a name", str(row))
    return {
        "reservation": row["ReservationName"],
        "start_ts": parse_timestamp(row.get("StartTime", ""), zone),
        "end_ts": parse_timestamp(row.get("EndTime", ""), zone),
        "state": value(row, "State"),
        "nodes": list(expand_set(value(row, "Nodes"))),
        "node_count": integer(row.get("NodeCnt")),
        "cores": integer(row.get("CoreCnt")),
        "partition": value(row, "PartitionName"),
        "features": value(row, "Features"),
        "flags": list(words(value(row, "Flags"))),
        "tres": parse_tres(row.get("TRES")).values or None,
        "users": list(words(value(row, "Users"))),
        "groups": list(words(value(row, "Groups"))),
        "accounts": list(words(value(row, "Accounts"))),
        "licenses": _licenses(value(row, "Licenses")),
        "burst_buffer": value(row, "BurstBuffer"),
        "max_start_delay_s": integer(row.get("MaxStartDelay")),
    }


def _licenses(text: str | None) -> dict[str, int] | None:
    """Return counts by licence of ``matlab:2,ansys``: one where no number is said."""
    found: dict[str, int] = {}
    for word in words(text):
        name, colon, count = word.rpartition(":")
        if not colon:
            name, count = word, "1"
        number = integer(count)
        if number is None or not name:
            raise ParseError("not a licence", word)
        found[name] = number
    return found or None


COLLECTOR = Collector(NAME, 60.0, collect)
