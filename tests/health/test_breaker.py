"""The breaker of prologs: when it opens, that it stays open, and that a node which heard nothing enforces nothing."""

import json
from pathlib import Path

import pytest

from heeler.drain.hand import Switch
from heeler.drain.node import NodeView
from heeler.drain.prolog_breaker import (
    NS,
    Breaker,
    Kept,
    Limits,
    count,
    drained_by,
    drained_since,
    judge,
    ordered,
    when,
)
from heeler.drain.settings import load_policy
from heeler.health.breaker import read_breaker

NOW = 1_800_000_000 * NS
MINUTE = 60 * NS


def reset(actor: str, at_ns: int) -> Breaker:
    """The breaker after an operator's reset."""
    closed = ordered(Breaker("open", "many", 1), Switch(at_ns, on=False, actor=actor, why="looked at"))
    assert closed is not None
    return closed


def failed(count: int, ago_ns: int = MINUTE) -> dict[str, int]:
    return {f"n{number:05d}": NOW - ago_ns for number in range(count)}


@pytest.mark.parametrize(
    ("fleet", "most"),
    [(None, 2), (0, 2), (1, 2), (4, 2), (100, 2), (149, 2), (150, 3), (1000, 20), (12_500, 250)],
)
def test_it_opens_above_two_nodes_and_two_percent(fleet: int | None, most: int) -> None:
    assert judge(None, failed(most), fleet, NOW).state == "closed"
    opened = judge(None, failed(most + 1), fleet, NOW)
    assert (opened.state, opened.since_ns) == ("open", NOW)
    assert f"{most + 1} nodes" in opened.why


def test_one_node_that_fails_ten_times_is_one_node() -> None:
    assert judge(None, {"n1": NOW, "n2": NOW}, 4, NOW).state == "closed"


def test_failures_of_more_than_ten_minutes_ago_do_not_count() -> None:
    old, fresh = failed(50, 10 * MINUTE), {"x1": NOW, "x2": NOW - 9 * MINUTE}
    assert judge(None, old | fresh, 100, NOW).state == "closed"
    assert judge(None, old | fresh | {"x3": NOW}, 100, NOW).state == "open"


def test_an_open_breaker_stays_open_until_an_operator_resets_it() -> None:
    opened = judge(None, failed(3), 4, NOW)
    later = NOW + 86_400 * NS
    assert judge(opened, {}, 4, later) == opened
    closed = reset("jane", later)
    assert (closed.state, closed.why) == ("closed", "looked at, by jane")
    # What led to it is not counted again, what comes after it is.
    assert judge(reset("jane", NOW + 1), failed(3, 0), 4, NOW + 2).state == "closed"
    again = {f"m{number}": later + 2 * NS for number in range(3)}
    assert judge(closed, again, 4, later + 3 * NS).state == "open"


def test_the_packaged_policy_has_the_same_limits() -> None:
    assert Limits.of(load_policy().limits) == Limits()
    assert Limits.of(load_policy(limits={"health_failed_min": 7}).limits).failed_min == 7


@pytest.mark.parametrize(("fleet", "most"), [(None, 2), (4, 2), (60, 3), (1000, 50)])
def test_it_opens_when_too_many_stand_drained_however_slowly_it_came(fleet: int | None, most: int) -> None:
    closed = Breaker("closed", "", NOW - 86_400 * NS)
    slowly = {f"n{number:05d}": NOW - (number + 1) * 15 * MINUTE for number in range(most)}
    assert judge(closed, {}, fleet, NOW, drained=slowly).state == "closed"
    opened = judge(closed, {}, fleet, NOW, drained=slowly | {"x": NOW - 12 * MINUTE})
    assert opened.state == "open"
    assert f"{most + 1} nodes" in opened.why
    assert "stand drained" in opened.why
    # A person has seen them: they are not counted again, however long they stand.
    assert judge(reset("jane", NOW), {}, fleet, NOW + NS, drained=slowly | {"x": NOW - 12 * MINUTE}).state == "closed"


def test_drains_from_before_there_was_a_breaker_are_history() -> None:
    old = failed(50, 60 * MINUTE)
    first = judge(None, {}, 100, NOW, drained=old)
    assert first.state == "closed"
    assert judge(first, {}, 100, NOW + NS, drained=old).state == "closed"


def test_a_node_that_failed_and_stands_drained_is_one_node_and_a_lost_word_does_not_hide_it() -> None:
    closed = Breaker("closed", "", NOW - 86_400 * NS)
    both = failed(2)
    assert judge(closed, both, 4, NOW, drained=both).state == "closed"
    assert judge(closed, both, 4, NOW, drained=both | {"x": NOW - MINUTE}).state == "open"
    assert count(closed, both, both, 4, NOW, Limits()).failed == ("n00000", "n00001")


@pytest.mark.parametrize(
    ("run", "counts"),
    [
        ({"phase": "prolog", "verdict": "fail", "enforcement": "on"}, True),
        ({"phase": "prolog", "verdict": "fail"}, True),
        ({"phase": "epilog", "verdict": "fail", "enforcement": "on"}, True),
        ({"phase": "prolog", "verdict": "would_fail", "enforcement": "breaker_open"}, True),
        ({"phase": "epilog", "verdict": "would_fail", "enforcement": "breaker_unknown"}, True),
        ({"phase": "prolog", "verdict": "would_fail", "enforcement": "off"}, False),
        ({"phase": "prolog", "verdict": "would_fail", "enforcement": "not_ours"}, False),
        ({"phase": "prolog", "verdict": "pass", "enforcement": "off"}, False),
        ({"phase": "periodic", "verdict": "fail", "reason": "heeler:periodic:ecc: two errors"}, True),
        ({"phase": "periodic", "verdict": "fail", "enforcement": "breaker_open"}, True),
        ({"phase": "periodic", "verdict": "fail", "enforcement": "on"}, False),
        ({"phase": "app", "verdict": "fail", "enforcement": "on"}, False),
        ({"phase": "nagios", "verdict": "fail", "enforcement": "on"}, False),
        ({"phase": "request", "verdict": "refused"}, False),
        ({"phase": "unknown", "verdict": "unknown", "enforcement": "unknown"}, False),
    ],
)
def test_a_run_counts_if_it_drained_its_node_or_only_the_breaker_kept_it_from_that(
    run: dict[str, str], *, counts: bool
) -> None:
    assert drained_by(run) is counts


def test_a_run_counts_for_when_it_was_and_never_later_than_it_came() -> None:
    assert when({"ts": 5}, 9) == 5
    assert when({"ts": 9}, 5) == 5


def test_only_reasons_of_health_checks_on_nodes_that_drain_are_counted() -> None:
    def view(name: str, reason: str | None, *flags: str, at: int | None = 7) -> NodeView:
        return NodeView(name, "idle", frozenset(flags), 9, reason, "root", at)

    views = [
        view("a", "heeler:prolog:ecc: two errors", "DRAIN"),
        view("b", "heeler:epilog:ecc: two errors", "DRAIN", at=None),
        view("c", "heeler:xid:xid-c-79 fell off the bus", "DRAIN"),
        view("d", "psu swap", "DRAIN"),
        view("e", "heeler:prolog:ecc: two errors"),
        view("f", None, "DRAIN"),
    ]
    assert drained_since(views) == {"a": 7, "b": 9}


def test_what_stands_in_the_bucket_comes_back_whole() -> None:
    opened = Breaker("open", "many", 5, "heeler-drain/x")
    assert Kept.unpack(opened.pack("north", "heeler-drain/x", 9)) == Kept(opened, "north", "heeler-drain/x", 9)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b"null", b'{"state": "ajar", "why": "", "ts_ns": 1, "since_ns": 1}', b"[" * 100_000]
)
def test_what_is_no_breaker_is_said_to_be_none(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a breaker"):
        Kept.unpack(value)


def test_limits_are_data() -> None:
    assert judge(None, failed(1), 1000, NOW, Limits(failed_min=0, failed_ratio=0.0)).state == "open"


def cached(folder: Path, value: object) -> Path:
    path = folder / "breaker.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_fresh_closed_breaker_is_closed(tmp_path: Path) -> None:
    path = cached(tmp_path, {"state": "closed", "why": "", "ts_ns": NOW - 14 * MINUTE})
    assert read_breaker(path, NOW).state == "closed"


def test_an_open_breaker_is_open_however_old(tmp_path: Path) -> None:
    path = cached(tmp_path, {"state": "open", "why": "3 nodes", "ts_ns": NOW - 3600 * 24 * NS})
    found = read_breaker(path, NOW)
    assert (found.state, found.why) == ("open", "3 nodes")


@pytest.mark.parametrize(
    "value",
    [
        {"state": "closed", "ts_ns": NOW - 16 * MINUTE},
        {"state": "closed", "ts_ns": NOW + 5 * MINUTE},
        {"state": "closed", "ts_ns": None},
        {"state": "closed", "ts_ns": True},
        {"state": "closed", "ts_ns": 1.8e18},
        {"state": "closed"},
        {"state": "CLOSED", "ts_ns": NOW},
        {"state": "half", "ts_ns": NOW},
        {"ts_ns": NOW},
        [],
        None,
        "",
        "closed",
        '{"state": "closed", "ts_ns": ',
        "[" * 5000,
        "\udcff".encode("utf-8", "surrogateescape").decode("latin1"),
    ],
)
def test_whatever_else_the_file_says_is_unknown(tmp_path: Path, value: object) -> None:
    assert read_breaker(cached(tmp_path, value), NOW).state == "unknown"


def test_no_file_or_no_right_to_read_it_is_unknown(tmp_path: Path) -> None:
    missing = read_breaker(tmp_path / "breaker.json", NOW)
    assert (missing.state, "No such file" in missing.why) == ("unknown", True)
    assert read_breaker(tmp_path, NOW).state == "unknown"


def test_what_the_bus_side_decides_is_what_the_node_reads(tmp_path: Path) -> None:
    for breaker in (judge(None, failed(3), 4, NOW), judge(None, {}, 4, NOW)):
        assert isinstance(breaker, Breaker)
        path = cached(tmp_path, {"state": breaker.state, "why": breaker.why, "ts_ns": breaker.since_ns})
        assert read_breaker(path, NOW).state == breaker.state
