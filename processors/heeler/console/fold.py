"""Findings of several nodes that have one cause, under their incident: pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Message = Mapping[str, Any]

KIND = "incident"


def incidents_of(findings: Iterable[Message]) -> dict[str, str]:
    """Return, by id, the incident of each open finding: as the incident lists it, or as it says itself.

    An incident that is not among the findings has none: what nobody shows can hold nothing.
    """
    opened = [one for one in findings if one["state"] != "closed"]
    incidents = {one["id"]: one["entity"].get("members") or () for one in opened if one["kind"] == KIND}
    found = {one["id"]: one["incident"] for one in opened if one.get("incident") in incidents}
    listed = {member: ident for ident, members in incidents.items() for member in members}
    return {one["id"]: listed[one["id"]] for one in opened if one["id"] in listed} | found


def folded(rows: Iterable[Message], *, unfold: bool) -> Iterator[dict[str, Any]]:
    """Yield rows of findings in their order, those of an incident behind it, or counted by it where they are not shown.

    Rows have `id` and `incident` (None: of none). Adds `members`, of an incident: how many there are, and `inside`.
    """
    rows = list(rows)
    inside: dict[str, list[Message]] = {}
    shown = {row["id"] for row in rows}
    for row in rows:
        if row["incident"] in shown:
            inside.setdefault(row["incident"], []).append(row)
    for row in rows:
        if row["incident"] not in shown:
            members = inside.get(row["id"], [])
            yield {**row, "members": len(members), "inside": False}
            if unfold:
                yield from ({**one, "members": 0, "inside": True} for one in members)
