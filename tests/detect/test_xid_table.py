"""The table of XIDs is data: complete, consistent, replaceable, and every fault of a replacement is said at once."""

from pathlib import Path

import pytest

from heeler.bus import ConfigError
from heeler.detect.thresholds import shipped
from heeler.detect.xid_table import CLASSES, DRAINS, is_fatal, load_table, number, registers_of

TABLE = load_table()


def test_the_packaged_table_says_where_it_comes_from() -> None:
    assert TABLE.source
    assert TABLE.date[:2] == "20"


@pytest.mark.parametrize(
    "code", [13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 137, 143, 149, 154, 156]
)
def test_the_codes_that_matter_are_known(code: int) -> None:
    row = TABLE.row("xid", code)
    assert row is not None
    assert row.meaning
    assert row.class_ in CLASSES
    assert row.drain in DRAINS


def test_all_recovery_actions_are_known() -> None:
    assert [TABLE.recovery_of(value).advice for value in range(6)] == [
        "none",
        "drain_after_job",
        "drain_now",
        "drain_after_job",
        "drain_now",
        "person",
    ]


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68])
def test_a_programs_error_is_never_hard(code: int) -> None:
    assert not TABLE.is_hard({"kind": "xid", "code": code})


def test_an_operators_table_replaces_ours(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        shipped("xid.toml").replace(
            'class = "APP"\ndrain = "never"\nmeaning = "GPU stopped processing, program',
            'class = "HW"\ndrain = "yes"\nmeaning = "GPU stopped processing, program',
        )
    )
    assert load_table(path).is_hard({"kind": "xid", "code": 43})


def test_every_fault_of_a_table_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'source = "me"\ndate = "today"\n'
        '[[xid]]\ncodes = [1, 2]\nclass = "ODD"\ndrain = "perhaps"\nmeaning = "x"\n'
        '[[xid]]\ncodes = [2]\nclass = "APP"\ndrain = "never"\nmeaning = "y"\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_table(path)
    text = str(caught.value)
    assert "ODD" in text
    assert "perhaps" in text
    assert "code 2 stands twice" in text


def test_an_unknown_key_of_a_table_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('source = "me"\ndate = "today"\n[[xid]]\ncodes = [1]\nmeaning = "x"\ndrian = "yes"\n')
    with pytest.raises(ConfigError, match="drian"):
        load_table(path)


@pytest.mark.parametrize(
    ("detail", "text", "fatal"),
    [
        ({"fatal": True}, "", True),
        ({"fatal": False}, "Fatal", False),
        ({"severity": "Non-fatal"}, "", False),
        ({"severity": "Link Fatal"}, "", True),
        ({}, "NETIR Fatal XC0", True),
        ({}, "RLW Nonfatal XC1", False),
        ({}, "", False),
    ],
)
def test_fatal_is_what_calls_itself_so(detail: dict[str, object], text: str, fatal: bool) -> None:
    assert is_fatal(detail, text) is fatal


def test_numbers_may_be_written_as_text() -> None:
    assert [number(v) for v in (16, "0x10", "16", "ten", None, True, 1.5)] == [16, 16, 16, None, None, None, None]
    assert registers_of({"registers": ["0x0", 18446744073709551615]}) == [0, 18446744073709551615]
    assert registers_of({"registers": ["0x0", "?"]}) == []
    assert registers_of({"registers": "0x0"}) == []
