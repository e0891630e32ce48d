"""The breaker of prologs: when it opens, that it stays open, and that a node which heard nothing enforces nothing."""

import json
from pathlib import Path

import pytest

from heeler.drain.prolog_breaker import NS, Breaker, Limits, counted, judge, reset
from heeler.health.breaker import read_breaker

NOW = 1_800_000_000 * NS
MINUTE = 60 * NS


def failed(count: int, ago_ns: int = MINUTE) -> dict[str, int]:
    return {f"n{number:05d}": NOW - ago_ns for number in range(count)}


@pytest.mark.parametrize(
    ("fleet", "most"),
    [(None, 2), (0, 2), (1, 2), (4, 2), (100, 2), (149, 2), (150, 3), (1000, 20), (12_500, 250)],
)
def test_it_opens_above_two_nodes_and_two_percent(fleet: int | None, most: int) -> None:
    assert judge(None, failed(most), fleet, NOW).state == "closed"
    opened = judge(None, failed(most + 1), fleet, NOW)
    assert (opened.state, opened.ts_ns) == ("open", NOW)
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
    assert (closed.state, closed.why) == ("closed", "reset by jane")
    # What led to it is not counted again, what comes after it is.
    seen = counted(failed(3, 0), reset("jane", NOW + 1))
    assert judge(reset("jane", NOW + 1), seen, 4, NOW + 2).state == "closed"
    again = {f"m{number}": NOW + 2 * NS for number in range(3)}
    assert judge(closed, again, 4, NOW + 3 * NS).state == "open"


def test_limits_are_data() -> None:
    assert judge(None, failed(1), 1000, NOW, Limits(nodes=0, ratio=0.0)).state == "open"


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
        path = cached(tmp_path, {"state": breaker.state, "why": breaker.why, "ts_ns": breaker.ts_ns})
        assert read_breaker(path, NOW).state == breaker.state
