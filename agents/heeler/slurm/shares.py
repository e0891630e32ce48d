"""Fair shares: the tree of accounts and users with usage, from ``sshare`` or slurmrestd."""

from collections.abc import Mapping
from math import inf
from typing import Any

from heeler.slurm import jsonfix
from heeler.slurm.associations import of_parent
from heeler.slurm.associations import shares as raw_shares
from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.fields import MIB, NOT_TOLD, finite, header_rows, tres_text, word
from heeler.slurm.jsonnumbers import integer, number
from heeler.slurm.rows import Unreadable, map_in, name_in, read_each, version_of, words

NAME = "shares"
FORMAT = (
    "Account,User,Partition,Cluster,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,"
    "GrpTRESMins,TRESRunMins"
)
BIGGEST = 1 << 63
HEADINGS = {
    "partition": "Partition",
    "slurm_cluster": "Cluster",
    "shares": "RawShares",
    "shares_of_parent": "RawShares",
    "normalized_shares": "NormShares",
    "usage": "RawUsage",
    "normalized_usage": "NormUsage",
    "effective_usage": "EffectvUsage",
    "fairshare": "FairShare",
    "level_fairshare": "LevelFS",
    "level_fairshare_infinite": "LevelFS",
    "group_tres_minutes": "GrpTRESMins",
    "tres_run_minutes": "TRESRunMins",
}


async def collect(clients: Clients) -> Table:
    """Ask for the whole tree."""
    return await clients.ask(
        NAME,
        (
            Way("rest", ("slurm", "shares"), parse_json),
            Way("json", ("sshare", "--all"), parse_json),
            Way("text", ("sshare", "--all", "--parsable2", "--format", FORMAT), parse_text),
        ),
    )


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    value = jsonfix.loads(data).value
    if value.get("errors"):
        raise ParseError("Slurm reports errors", value["errors"])
    inside = value.get("shares")
    found = inside.get("shares") if isinstance(inside, dict) else None
    if not isinstance(found, list):
        raise ParseError("no list of shares in the answer", sorted(map(str, value))[:20])
    rows, unreadable = read_each(found, _from_json, name_in)
    return table_of(NAME, rows, unreadable=unreadable, version=version_of(value))


def _from_json(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict) or not word(row.get("name")):
        raise ParseError("a share without a name", row)
    kinds = words(row.get("type"))
    is_user = "USER" in kinds
    fair, tres = map_in(row, "fairshare"), map_in(row, "tres")
    name, parent = word(row["name"]), word(row.get("parent"))
    if not kinds or (is_user and not parent):
        raise ParseError("neither an account's share nor a user's", row)
    minutes = {key: seconds / 60 for key, seconds in _tres(tres.get("run_seconds")).items()}
    by_parent = of_parent(row.get("shares"))
    return {
        # A user's row has the account as its parent.
        "account": parent if is_user else name,
        "user": name if is_user else None,
        "partition": word(row.get("partition")),
        "parent": parent,
        "slurm_cluster": word(row.get("cluster")),
        "shares": raw_shares(row.get("shares")),
        "shares_of_parent": by_parent,
        # The tree's root has none.
        "normalized_shares": finite(row.get("shares_normalized")) if parent else None,
        "usage": finite(row.get("usage")),
        "normalized_usage": finite(row.get("usage_normalized")),
        "effective_usage": finite(row.get("effective_usage")),
        "fairshare": finite(fair.get("factor", row.get("fairshare"))) if is_user else None,
        **_level(None if by_parent else number(fair.get("level"))),
        "group_tres_minutes": _tres(tres.get("group_minutes")) or None,
        "tres_run_minutes": minutes,
    }


def _tres(value: Any) -> dict[str, float]:
    """Return the resources of ``[{"name", "value"}]``, mem in bytes; without those that have no limit."""
    found: dict[str, float] = {}
    for entry in value if isinstance(value, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ParseError("not a TRES", entry)
        amount = finite(entry.get("value"))
        if amount is not None:
            found[entry["name"]] = _bytes(amount) if entry["name"] == "mem" else amount
    return found


def _bytes(mib: float) -> float:
    # Jobs without a limit of time count for 2^32 minutes: with their memory this leaves what an int64 can hold.
    found = mib * MIB
    return float(found) if found >= BIGGEST else found


def _minutes(text: str) -> dict[str, float]:
    """Return the resources of ``cpu=60,mem=1024``: plain numbers, memory in MiB. Raises ParseError."""
    found: dict[str, float] = {}
    for part in filter(None, text.strip().split(",")):
        name, equals, told = part.strip().partition("=")
        amount = finite(told) if equals and name else None
        if amount is None:
            raise ParseError("not a TRES", part)
        found[name] = _bytes(amount) if name == "mem" else amount
    return found


def _level(found: float | None) -> dict[str, Any]:
    return {
        "level_fairshare": None if found in (None, inf, -inf) else found,
        "level_fairshare_infinite": None if found is None else found == inf,
    }


def parse_text(data: bytes) -> Table:
    """Return the table of ``sshare --parsable2``. Raises ParseError.

    The spaces before an account say how deep it is.
    """
    headings, lines, unreadable = header_rows(data, "Account")
    rows: list[dict[str, Any]] = []
    above: list[str] = []  # the accounts from the root to the present one
    for line in lines:
        row = dict(zip(headings, line, strict=True))
        account, user = row["Account"].strip(), word(row.get("User", "").strip())
        if not user:
            depth = len(row["Account"]) - len(row["Account"].lstrip(" "))
            above = [*above[:depth], account]
        parent = account if user else above[-2] if len(above) > 1 else None
        try:
            rows.append(_from_text(row, account, user, parent))
        except ParseError as err:
            unreadable.append(Unreadable(account or None, str(err)))
    absent = {column: NOT_TOLD for column, heading in HEADINGS.items() if heading not in headings}
    return table_of(NAME, rows, absent=absent, unreadable=unreadable)


def _from_text(row: Mapping[str, str], account: str, user: str | None, parent: str | None) -> dict[str, Any]:
    if not account:
        raise ParseError("a share without an account", "|".join(row.values()))
    return {
        "account": account,
        "user": user,
        "partition": word(row.get("Partition", "")),
        "parent": parent,
        "slurm_cluster": word(row.get("Cluster", "")),
        "shares": raw_shares(row.get("RawShares")),
        "shares_of_parent": of_parent(row.get("RawShares")),
        "normalized_shares": finite(row.get("NormShares")) if parent else None,
        "usage": integer(row.get("RawUsage")),
        "normalized_usage": finite(row.get("NormUsage")),
        "effective_usage": finite(row.get("EffectvUsage")),
        "fairshare": finite(row.get("FairShare")),
        **_level(number(row.get("LevelFS"))),
        "group_tres_minutes": tres_text(row.get("GrpTRESMins", "")),
        "tres_run_minutes": _minutes(row.get("TRESRunMins", "")),
    }


COLLECTOR = Collector(NAME, 600.0, collect)
