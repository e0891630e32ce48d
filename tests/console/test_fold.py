"""Findings of one cause stand under their incident, and none is hidden by what nobody shows."""

from typing import Any

from consolekit import finding, incident

from heeler.console.fold import folded, incidents_of


def row(name: str, of: str | None = None) -> dict[str, Any]:
    return {"id": name, "incident": of}


def test_members_are_those_that_the_incident_lists_and_those_that_say_so() -> None:
    found = [incident("i1", "a"), finding("a"), finding("b", incident="i1"), finding("c")]
    assert incidents_of(found) == {"a": "i1", "b": "i1"}


def test_an_incident_that_is_over_or_not_known_holds_nothing() -> None:
    over = incident("i1", "a", state="closed")
    assert incidents_of([over, finding("a", incident="i1"), finding("b", incident="i2")]) == {}


def test_a_finding_that_is_closed_belongs_to_none() -> None:
    assert incidents_of([incident("i1", "a"), finding("a", state="closed")]) == {}


def test_folded_rows_are_counted_by_their_incident_and_none_is_lost() -> None:
    rows = [row("a", "i"), row("x"), row("i"), row("b", "i")]
    assert [(one["id"], one["members"]) for one in folded(rows, unfold=False)] == [("x", 0), ("i", 2)]
    shown = list(folded(rows, unfold=True))
    assert [(one["id"], one["inside"]) for one in shown] == [("x", False), ("i", False), ("a", True), ("b", True)]


def test_a_row_whose_incident_has_no_row_is_shown() -> None:
    assert [one["id"] for one in folded([row("a", "gone")], unfold=False)] == ["a"]
