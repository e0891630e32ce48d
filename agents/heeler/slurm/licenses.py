"""Licences: how many there are, and how many are in use: from ``scontrol show licenses`` or slurmrestd."""

from collections.abc import Mapping
from typing import Any

from heeler.slurm import oneliner
from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table
from heeler.slurm.errors import ParseError
from heeler.slurm.fields import INT, TEXT, Field, Kind, from_json_answer
from heeler.slurm.jsonnumbers import integer

NAME = "licenses"


def _flag(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    found = {"yes": True, "no": False}.get(str(value).lower())
    if found is None:
        raise ParseError("neither yes nor no", value)
    return found


FIELDS = (
    Field("license", "LicenseName", ("LicenseName",), TEXT),
    Field("total", "Total", ("Total",), INT),
    Field("used", "Used", ("Used",), INT),
    Field("free", "Free", ("Free",), INT),
    Field("reserved", "Reserved", ("Reserved",), INT),
    Field("is_remote", "Remote", ("Remote",), Kind(_flag, _flag)),
)


async def collect(clients: Clients) -> Table:
    """Ask for all of them."""
    return await clients.ask(
        NAME,
        (
            Way("rest", ("slurm", "licenses"), parse_json),
            Way("json", ("scontrol", "show", "licenses"), parse_json),
            Way("text", ("scontrol", "--oneliner", "show", "licenses"), parse_text),
        ),
    )


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    return from_json_answer(NAME, FIELDS, data)


def parse_text(data: bytes) -> Table:
    """Return the table of ``scontrol --oneliner show licenses``. Raises ParseError."""
    return oneliner.table(NAME, data, "LicenseName", _from_text, "No licenses")


def _from_text(row: Mapping[str, str]) -> dict[str, Any]:
    if not row["LicenseName"]:
        raise ParseError("a licence without a name", str(row))
    counts = {column: integer(row.get(key)) for column, key in (("total", "Total"), ("used", "Used"), ("free", "Free"))}
    return {
        "license": row["LicenseName"],
        **counts,
        "reserved": integer(row.get("Reserved")),
        "is_remote": _flag(row.get("Remote")),
    }


COLLECTOR = Collector(NAME, 60.0, collect)
