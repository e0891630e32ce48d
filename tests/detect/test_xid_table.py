"""The table of XIDs is data: complete, consistent, replaceable, and every fault of a replacement is said at once."""

from pathlib import Path

import pytest
from samples import T0, S, kernel_event, play

from heeler.bus import ConfigError
from heeler.detect import DetectStep
from heeler.detect.thresholds import shipped
from heeler.detect.xid_links import is_fatal, number, registers_of
from heeler.detect.xid_table import CLASSES, DRAINS, load_table

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


def span(*parts: int | tuple[int, int]) -> set[int]:
    return {code for part in parts for code in (range(part[0], part[1] + 1) if isinstance(part, tuple) else (part,))}


# Every number that the driver's catalogue and header name; the rest up to 185 was never used.
XIDS = span(
    8, 11, 13, 25, 31, 32, (37, 41), (43, 46), 48, 54, (56, 58), (60, 72), (74, 86), 88, 89, (92, 110), (119, 137),
    (139, 176), 185,
)  # fmt: skip
SXIDS = span(
    (10001, 10005), 11001, 11004, 11009, 11012, 11013, (11018, 11023), 12001, 12002, (12020, 12028), (12030, 12032),
    14017, 15001, 15006, (15008, 15013), (19047, 19049), (19054, 19071), 19084, 20001, 20009, 20012, 20034, 22003,
    22011, 22012, 22013, (23001, 23017), (24001, 24007),
)  # fmt: skip


def test_every_code_of_the_catalogue_has_a_row_and_no_other() -> None:
    assert {code for row in TABLE.xid for code in row.codes} == XIDS
    assert {code for row in TABLE.sxid for code in row.codes} == SXIDS


@pytest.mark.parametrize("kind", ["xid", "sxid"])
def test_one_event_of_each_code_advises_what_its_row_says(kind: str) -> None:
    allowed = {
        "yes": {"drain_now"},
        "pending": {"drain_after_job"},
        "repeat": {"none", "observe"},
        "recovery": {"none", "observe"},
        "never": {"none"},
    }
    for code in sorted(XIDS if kind == "xid" else SXIDS):
        event = kernel_event("n1", code, ts_ns=T0 + S, seq=1, kind=kind, uuid="GPU-1", gpu_state="lost", jobs=["7"])
        if code != 79:
            event.data.pop("gpu_state")
        row = TABLE.judge(event.data)
        said = play(DetectStep(), [event]).of()
        if row.follower:
            assert not said
            continue
        (finding,) = said
        assert finding["advice"] in allowed[row.drain], code
        assert finding["evidence"][0]["meaning"] == row.meaning
        assert row.action


@pytest.mark.parametrize("code", [1, 12, 87, 111, 138, 177, 186, 900, 9999])
def test_a_code_that_stands_nowhere_is_seen_and_asks_for_nothing_at_once(code: int) -> None:
    (finding,) = play(DetectStep(), [kernel_event("n1", code, ts_ns=T0 + S, seq=1)]).of()
    assert (finding["code"], finding["severity"], finding["advice"]) == (code, "info", "observe")


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
