"""Users of the accounting: default account, rights, and the accounts that they coordinate. One question for all."""

from typing import Any

from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table
from heeler.slurm.errors import ParseError
from heeler.slurm.fields import TEXT, Field, Kind, from_json_answer, from_text, names, word

NAME = "users"


def level(value: Any) -> str | None:
    """Return None, Operator or Administrator as Slurm's word. Raises ParseError."""
    return "+".join(names(value)) if isinstance(value, list) else word(value)


def coordinated(value: Any) -> list[str]:
    """Return the names of accounts. Raises ParseError."""
    if not isinstance(value, list):
        return sorted(names(value))
    found = []
    for entry in value:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ParseError("not an account", entry)
        found.append(entry["name"])
    return sorted(found)


FIELDS = (
    Field("user", "User", ("name",), TEXT),
    Field("admin_level", "Admin", ("administrator_level",), Kind(word, level)),
    Field("default_account", "Def Acct", ("default", "account"), TEXT),
    Field("coordinates", "Coord Accounts", ("coordinators",), Kind(coordinated, coordinated)),
    Field("default_wckey", "Def WCKey", ("default", "wckey"), TEXT),
)
FORMAT = "format=User,AdminLevel,DefaultAccount,Coordinators,DefaultWCKey"


async def collect(clients: Clients) -> Table:
    """Ask for all of them."""
    return await clients.ask(
        NAME,
        (
            Way("rest", ("slurmdb", "users", "/?with_assocs=true&with_coords=true"), parse_json),
            Way("json", ("sacctmgr", "show", "users", "withcoord"), parse_json),
            Way("text", ("sacctmgr", "--parsable2", "show", "users", "withcoord", FORMAT), parse_text),
        ),
    )


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    return from_json_answer(NAME, FIELDS, data)


def parse_text(data: bytes) -> Table:
    """Return the table of ``sacctmgr --parsable2 show users withcoord``. Raises ParseError."""
    return from_text(NAME, FIELDS, data)


COLLECTOR = Collector(NAME, 3600.0, collect, lane="slurmdbd")
