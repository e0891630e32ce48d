"""States of nodes and jobs, in every spelling; unknown words break nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.slurm.errors import ParseError
from heeler.slurm.state import NODE_SUFFIXES, Partition, parse_job_state, parse_node_state, parse_partition


@pytest.mark.parametrize(
    ("text", "base", "flags", "available"),
    [
        ("idle*", "IDLE", ("NOT_RESPONDING",), False),
        ("mixed-", "MIXED", ("PLANNED",), True),
        ("idle~", "IDLE", ("POWERED_DOWN",), False),
        ("idle#", "IDLE", ("POWERING_UP",), False),
        ("alloc$", "ALLOCATED", ("MAINTENANCE",), False),
        ("down%", "DOWN", ("POWERING_DOWN",), False),
        ("idle!", "IDLE", ("POWER_DOWN",), False),
        ("mixed@", "MIXED", ("REBOOT_REQUESTED",), False),
        ("idle^", "IDLE", ("REBOOT_ISSUED",), False),
        ("IDLE", "IDLE", (), True),
        ("ALLOCATED", "ALLOCATED", (), True),
        ("IDLE+MAINT+DRAIN+RESERVED", "IDLE", ("DRAIN", "MAINTENANCE", "RESERVED"), False),
        ("IDLE+CLOUD+POWERED_DOWN+PLANNED", "IDLE", ("CLOUD", "PLANNED", "POWERED_DOWN"), False),
        ("DOWN+NOT_RESPONDING", "DOWN", ("NOT_RESPONDING",), False),
        ("down*", "DOWN", ("NOT_RESPONDING",), False),
        ("FUTURE", "FUTURE", (), False),
        ("unk*", "UNKNOWN", ("NOT_RESPONDING",), False),
        ("UNKNOWN", "UNKNOWN", (), None),
        ("maint", "UNKNOWN", ("MAINTENANCE",), False),
    ],
)
def test_a_node_has_a_base_state_and_flags(text: str, base: str, flags: tuple[str, ...], available: Any) -> None:
    found = parse_node_state(text)
    assert (found.base, found.flags, found.available) == (base, flags, available)
    assert not found.unknown_flags
    assert not found.unparsed


@pytest.mark.parametrize(
    ("text", "drained", "draining"),
    [
        ("IDLE+DRAIN", True, False),
        ("DOWN+DRAIN", True, False),
        ("MIXED+DRAIN", False, True),
        ("ALLOCATED+DRAIN", False, True),
        ("IDLE+DRAIN+COMPLETING", False, True),
        ("MIXED+DRAIN+COMPLETING", False, True),
        ("drained", True, False),
        ("drained*", True, False),
        ("draining", False, True),
        ("drng", False, True),
        ("IDLE", False, False),
    ],
)
def test_a_node_with_jobs_drains_and_one_without_is_drained(text: str, drained: bool, draining: bool) -> None:
    found = parse_node_state(text)
    assert (found.drained, found.draining) == (drained, draining)


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (["MIXED", "DRAIN"], ()),
        (["DRAIN", "MIXED"], ()),
        ("mixed", ["DRAIN"]),
        ("MIXED+DRAIN", ()),
    ],
)
def test_all_versions_say_the_same(value: Any, flags: Any) -> None:
    found = parse_node_state(value, flags)
    assert (found.base, found.flags, found.draining) == ("MIXED", ("DRAIN",), True)


def test_an_unknown_flag_is_kept_and_listed_and_takes_no_node_away() -> None:
    found = parse_node_state("IDLE+DYNAMIC_NORM+FROBNICATED")
    assert found.flags == ("DYNAMIC_NORM", "FROBNICATED")
    assert found.unknown_flags == ("FROBNICATED",)
    assert found.available is True


@pytest.mark.parametrize("text", ["IDLE$DRAIN", "IDLE,DRAIN", "IDLE|DRAIN", "idle?"])
def test_a_node_whose_state_is_half_understood_is_not_called_available(text: str) -> None:
    found = parse_node_state(text)
    assert (found.base, found.available) == ("IDLE", None)
    assert found.unparsed == text[4:]


def test_a_text_half_understood_keeps_the_rest() -> None:
    found = parse_node_state("DOWN$NOT_RESPONDING")
    assert (found.base, found.unparsed, found.available) == ("DOWN", "$NOT_RESPONDING", False)
    assert parse_node_state("BOGUS").unparsed == "BOGUS"
    assert parse_node_state("BOGUS").available is None


@pytest.mark.parametrize("value", ["", "  ", [], None, 5, ["IDLE", 3], {"a": 1}])
def test_no_state_at_all_is_an_error(value: Any) -> None:
    with pytest.raises(ParseError):
        parse_node_state(value)


@given(st.text(max_size=30) | st.lists(st.text(max_size=8), max_size=4))
def test_any_text_gives_a_node_state_or_a_parse_error(value: Any) -> None:
    try:
        found = parse_node_state(value)
    except ParseError:
        return
    assert not (found.available and "DRAIN" in found.flags)


@given(st.sampled_from(["idle", "mixed", "down"]), st.lists(st.sampled_from(sorted(NODE_SUFFIXES)), max_size=3))
def test_every_mark_becomes_its_flag(base: str, marks: list[str]) -> None:
    assert set(parse_node_state(base + "".join(marks)).flags) == {NODE_SUFFIXES[mark] for mark in marks}


@pytest.mark.parametrize(
    ("value", "name", "holds", "ended"),
    [
        ("RUNNING", "RUNNING", True, False),
        ("R", "RUNNING", True, False),
        (["RUNNING"], "RUNNING", True, False),
        ("SUSPENDED", "SUSPENDED", True, False),
        ("COMPLETING", "COMPLETING", True, False),
        (["COMPLETED", "COMPLETING"], "COMPLETING", True, False),
        (["RUNNING", "CONFIGURING"], "CONFIGURING", True, False),
        ("CF", "CONFIGURING", True, False),
        ("PENDING", "PENDING", False, False),
        (["PENDING", "REQUEUED"], "PENDING", False, False),
        ("RD", "RESV_DEL_HOLD", False, False),
        ("NODE_FAIL", "NODE_FAIL", False, True),
        ("OUT_OF_ME+", "OUT_OF_MEMORY", False, True),
        ("CANCELLED+", "CANCELLED", False, True),
        ("SPECIAL_EXIT", "SPECIAL_EXIT", False, False),
        ("COMPLETED", "COMPLETED", False, True),
        ("BOGUS", "UNKNOWN", False, False),
        ("RE+", "UNKNOWN", False, False),
        ("+", "UNKNOWN", False, False),
        (["RUNNING", "BOGUS"], "RUNNING", True, False),
        (["BOGUS", "COMPLETED"], "COMPLETED", False, True),
        (["PENDING", "BOGUS", "REQUEUED"], "PENDING", False, False),
        (["BOGUS", "REQUEUED"], "UNKNOWN", False, False),
        (["RUNNING", "COMPLETED"], "UNKNOWN", False, False),
        ("RUNNING,COMPLETING", "COMPLETING", True, False),
        ("RUNNING+CONFIGURING", "CONFIGURING", True, False),
        ("PENDING,REQUEUED", "PENDING", False, False),
        ("CANCELLED by alice", "CANCELLED", False, True),
        ("CANCELLED by", "CANCELLED", False, True),
    ],
)
def test_a_job_state_is_known_by_name_code_and_cut_name(value: Any, name: str, holds: bool, ended: bool) -> None:
    found = parse_job_state(value)
    assert (found.name, found.holds, found.ended) == (name, holds, ended)


def test_what_a_job_state_adds_is_kept() -> None:
    assert parse_job_state("CANCELLED by 1001").cancelled_by_uid == 1001
    assert parse_job_state("CANCELLED by 1001").name == "CANCELLED"
    assert parse_job_state("BOGUS").raw == "BOGUS"
    assert parse_job_state(["RUNNING", "BOGUS"]).unknown_flags == ("BOGUS",)
    assert parse_job_state(["RUNNING", "BOGUS"]).raw == "RUNNING+BOGUS"


@pytest.mark.parametrize("value", ["", [], None, 3, [""], ["RUNNING", None]])
def test_no_job_state_at_all_is_an_error(value: Any) -> None:
    with pytest.raises(ParseError):
        parse_job_state(value)


def test_the_star_of_the_default_partition_is_not_its_name() -> None:
    assert parse_partition("gpu*") == Partition("gpu", default=True)
    assert parse_partition("gpu") == Partition("gpu")
    for text in ("", "*", "a b", "g*u"):
        with pytest.raises(ParseError):
            parse_partition(text)
