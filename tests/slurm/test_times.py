"""Durations, timestamps, numbers and JSON as Slurm writes them."""

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.slurm.errors import ParseError
from heeler.slurm.jsonfix import loads
from heeler.slurm.jsonnumbers import cpu_load, epoch_ns, identifier, integer, number
from heeler.slurm.times import NS, parse_duration, parse_timestamp, utc_text

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784),
        ("02:03", 123),
        ("4:00", 240),
        ("2-12", 216000),
        ("1-02:03", 93780),
        ("10 (limit)", 600),
        ("10", 600),
        ("01:00:00", 3600),
        ("365-00:00:00", 31536000),
        ("100:00:00", 360000),
        ("0:00", 0),
        ("00:01.500", 1.5),
        ("UNLIMITED", inf),
        ("N/A", None),
        ("INVALID", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_a_duration_is_in_seconds(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["1:60", "1:2:60", "1-24", "1-2:60", "-5", "1.5", "1:2:3:4", "x", "1-", "1e3", "\u0663:\u0660\u0660"]
)
def test_what_is_no_duration_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_duration(text)


@given(st.integers(0, 10**8))
def test_a_duration_that_slurm_would_print_comes_back(seconds: int) -> None:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{minutes:02d}:{rest:02d}" if not (days or hours) else f"{hours:02d}:{minutes:02d}:{rest:02d}"
    assert parse_duration(f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}" if days else text) == seconds


@pytest.mark.parametrize(
    "text",
    ["NONE", "N/A", "Unknown", "None", "(null)", "0", "", "4294967294", "18446744073709551614", "1970-01-01T00:00:00"],
)
def test_no_time_is_none_however_it_is_spelt(text: str) -> None:
    assert parse_timestamp(text, UTC) is None


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-03-01T08:00:00", "2026-03-01T07:00:00Z"),
        ("2026-07-01T08:00:00", "2026-07-01T06:00:00Z"),
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00Z"),
        ("2026-03-01T08:00:00+00:00", "2026-03-01T08:00:00Z"),
        ("2026-03-01T08:00:00Z", "2026-03-01T08:00:00Z"),
        ("1772352000", "2026-03-01T08:00:00Z"),
    ],
)
def test_a_time_is_the_controllers_until_it_says_otherwise(text: str, utc: str) -> None:
    stamp = parse_timestamp(text, BERLIN)
    assert stamp is not None
    assert utc_text(stamp) == utc


@pytest.mark.parametrize(
    "text",
    [
        "2026-13-01T00:00:00",
        "2026-02-30T00:00:00",
        "08:00:00",
        "yesterday",
        "1969-01-01T00:00:00",
        "9999-12-31T23:59:59x",
    ],
)
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_timestamp(text, BERLIN)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-12, 14))  # noqa: DTZ001 - naive as printed
def test_a_time_that_slurm_would_print_comes_back(moment: datetime, hours: int) -> None:
    moment = moment.replace(microsecond=0)
    stamp = parse_timestamp(moment.isoformat(), UTC)
    assert stamp == int(moment.replace(tzinfo=UTC).timestamp()) * NS
    zone = (UTC if not hours else datetime.now(UTC).astimezone().tzinfo) or UTC
    assert parse_timestamp(moment.isoformat(), zone) is not None


def test_a_time_before_the_first_day_is_an_error_in_any_zone() -> None:
    from datetime import timezone

    with pytest.raises(ParseError):
        parse_timestamp("1970-01-01T00:00:00", timezone(timedelta(hours=5)))
    with pytest.raises(ParseError):
        parse_timestamp("0001-01-01T00:00:00", timezone(timedelta(hours=5)))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"set": True, "infinite": False, "number": 5}, 5),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": False, "infinite": True, "number": 0}, inf),
        ({"set": True, "infinite": False, "number": 0}, 0),
        ({"set": False}, None),
        ({"infinite": True}, inf),
        ({"set": True, "infinite": False, "number": 4294967294}, None),
        (5, 5),
        ("5", 5),
        ("5.5", 5.5),
        (None, None),
        (0, 0),
        (4294967294, None),
        (4294967295, inf),
        (18446744073709551614, None),
        (18446744073709551615, inf),
        (-2, None),
        (65534, 65534),
        (inf, inf),
        (float("nan"), None),
        ("UNLIMITED", inf),
        ("N/A", None),
    ],
)
def test_a_number_is_itself_infinite_or_not_set(value: Any, wanted: float | None) -> None:
    assert number(value) == wanted


def test_sixteen_bit_sentinels_count_only_in_sixteen_bit_fields() -> None:
    assert number(65534, bits16=True) is None
    assert number(65535, bits16=True) == inf
    assert number(65535) == 65535


def test_a_signed_field_may_be_negative() -> None:
    assert number(-2, signed=True) == -2
    assert number(4294967294, signed=True) is None


@pytest.mark.parametrize("value", [True, [], {}, {"number": {"number": 1}}, "x", "1_000", "5 GB", "9" * 5000, object()])
def test_what_is_no_number_is_an_error(value: Any) -> None:
    with pytest.raises(ParseError):
        number(value)


def test_a_load_in_json_is_times_a_hundred() -> None:
    assert cpu_load(1234) == 12.34
    assert cpu_load(4294967294) is None
    assert cpu_load({"set": True, "infinite": False, "number": 25}) == 0.25


def test_ids_and_times_have_no_zero() -> None:
    assert identifier(0) is None
    assert identifier({"set": True, "infinite": False, "number": 3}) == 3
    assert epoch_ns(0) is None
    assert epoch_ns(1796187109) == 1796187109 * NS
    assert integer({"set": False, "infinite": True, "number": 0}) is None
    for wrong in (-5, 1 << 40, 1.5):
        with pytest.raises(ParseError):
            epoch_ns(wrong)


def test_bare_infinities_are_read_and_strings_left_alone() -> None:
    found = loads(
        '{"a":Infinity,"b":inf,"c":-inf,"d":NaN,"e":nan,"f":[inf, 1],"name":"inf, NaN: \\"nan\\" test"}'
    ).value
    assert (found["a"], found["b"], found["c"]) == (inf, inf, -inf)
    assert (found["d"], found["e"], found["f"]) == (None, None, [inf, 1])
    assert found["name"] == 'inf, NaN: "nan" test'


def test_warnings_before_the_answer_are_kept_apart() -> None:
    found = loads('warning: conf differs\n\nslurm_load: {odd}\n {"jobs": []}\n')
    assert found.value == {"jobs": []}
    assert found.unparsed == ("warning: conf differs", "slurm_load: {odd}")


def test_raw_control_characters_and_bytes_that_are_not_utf8_do_not_lose_the_answer() -> None:
    assert loads(b'{"name": "a\nb\t\xff"}').value == {"name": "a\nb\t\ufffd"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "<html>502 Bad Gateway</html>",
        "[1]",
        "{",
        '{"a": ',
        "{" * 100_000,
        '{"a": information}',
        "null",
        '{"a":1} x',
    ],
)
def test_what_is_no_answer_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        loads(text)


@given(st.text(max_size=60) | st.text('{}[]":,inf NaNty0-\\', max_size=40))
def test_any_text_gives_an_object_or_a_parse_error(text: str) -> None:
    try:
        found = loads(text)
    except ParseError:
        return
    assert isinstance(found.value, dict)


@given(st.text(max_size=20))
def test_any_text_gives_a_time_or_a_parse_error(text: str) -> None:
    for parse in (parse_duration, lambda word: parse_timestamp(word, BERLIN), number):
        try:
            found = parse(text)
        except ParseError:
            continue
        assert found is None or found >= 0 or text.strip().startswith("-")


@pytest.mark.parametrize("value", [-3, -3.0, 1.5, 2.0**64, 1 << 63])
def test_a_whole_number_out_of_range_is_an_error(value: float) -> None:
    with pytest.raises(ParseError):
        integer(value)
