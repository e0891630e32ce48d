"""Checks of a plug-in that does not load: they say unknown, and cost no other check."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from heeler.health.model import Case, Check, Context, NotBuilt, Probe, Verdict, unknown


def stand_ins(table: Mapping[str, Any], known: Iterable[str], faults: Sequence[str]) -> tuple[Check, ...]:
    """Return a check for each name that a policy uses and nobody knows, while a plug-in does not load."""
    wanted = dict.fromkeys(_names(table))
    profiles = table.get("profiles")
    mine = {*known, *(profiles if isinstance(profiles, dict) else ())}
    why = "; ".join(faults)
    return tuple(
        Check(name, "Of a plug-in that does not load.", Probe("plugins", _nothing), partial(_unknown, why), NotBuilt)
        for name in wanted
        if name not in mine
    )


def _names(table: Mapping[str, Any]) -> Iterable[str]:
    groups = table.get("groups", [])
    for part in (table, *(groups if isinstance(groups, list) else ())):
        checks = part.get("checks") if isinstance(part, dict) else None
        yield from checks if isinstance(checks, dict) else ()
    profiles = table.get("profiles", {})
    lists = [table.get("request"), *(says.get("checks") for says in profiles.values() if isinstance(says, dict))]
    for names in lists:
        yield from (name for name in names or () if isinstance(name, str))


def _nothing(_context: Context, _asked: object) -> None:
    return None


def _unknown(why: str, _facts: object, _settings: object, _case: Case) -> Verdict:
    return unknown(why)
