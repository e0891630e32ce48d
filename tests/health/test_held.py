"""What may heal by itself drains no node: how long a check has been bad, over runs, boots and gaps."""

from pathlib import Path

import pytest

from heeler.bus import ConfigError
from heeler.health.held import APART_NS, NS, remember, since
from heeler.health.policy import make_policy
from heeler.health.table import CHECKS, PROFILES

T = 1_800_000_000 * NS
MINUTE = 60 * NS


def test_a_check_is_bad_since_the_first_run_that_said_so() -> None:
    first = since({}, ["ib_links"], [], 0, T)
    assert first == {"ib_links": T}
    assert since(first, ["ib_links", "mce"], [], T, T + 5 * MINUTE) == {"ib_links": T, "mce": T + 5 * MINUTE}


def test_one_that_was_well_between_begins_anew() -> None:
    healed = since({"ib_links": T}, [], ["ib_links"], T, T + MINUTE)
    assert healed == {}
    assert since(healed, ["ib_links"], [], T + MINUTE, T + 2 * MINUTE) == {"ib_links": T + 2 * MINUTE}


def test_one_that_cannot_be_told_or_was_not_asked_neither_counts_nor_clears() -> None:
    unknown = since({"ib_links": T}, [], ["uptime"], T, T + MINUTE)
    assert unknown == {"ib_links": T}


@pytest.mark.parametrize("now_ns", [T + APART_NS + 1, T - 1])
def test_runs_that_are_far_apart_and_clocks_that_went_back_begin_anew(now_ns: int) -> None:
    assert since({"ib_links": T}, ["ib_links"], [], T, now_ns) == {"ib_links": now_ns}


def test_it_is_kept_for_the_next_run_of_this_boot_alone(tmp_path: Path) -> None:
    path = tmp_path / "held.json"
    remember(path, "boot-1", ["ib_links"], [], T)
    assert remember(path, "boot-1", ["ib_links"], [], T + MINUTE) == {"ib_links": T}
    assert remember(path, "boot-2", ["ib_links"], [], T + MINUTE) == {"ib_links": T + MINUTE}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"boot": "b"}', '{"boot": "b", "since_ns": [], "last_ns": 1}']
)
def test_what_cannot_be_read_begins_now(tmp_path: Path, text: str) -> None:
    path = tmp_path / "held.json"
    path.write_text(text)
    assert remember(path, "b", ["ib_links"], [], T) == {"ib_links": T}


def test_a_folder_that_cannot_be_written_holds_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "file/held.json"
    (tmp_path / "file").touch()
    for minutes in (0, 5, 10):
        assert remember(path, "b", ["ib_links"], [], T + minutes * MINUTE) == {"ib_links": T + minutes * MINUTE}


def test_links_may_heal_and_a_site_may_say_what_else() -> None:
    table = {"checks": {"ib_links": {"ports": ["*"]}, "mce": {"hold_s": 60}}}
    rules = make_policy(table, "n1", CHECKS, PROFILES).rules
    assert (rules["ib_links"].hold_s, rules["mce"].hold_s, rules["gpu_xid"].hold_s) == (240.0, 60, 0.0)
    with pytest.raises(ConfigError, match="hold_s: -1 is not a number of seconds"):
        make_policy({"checks": {"mce": {"hold_s": -1}}}, "n1", CHECKS, PROFILES)
