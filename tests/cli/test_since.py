"""How far back."""

import pytest

from heeler.cli.since import since_ns

NOW = 1_800_000_000_000_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("30min", 1800), ("1h", 3600), ("1.5h", 5400), ("7d", 604800), ("2 w", 1209600)],
)
def test_a_span_is_before_now(text: str, seconds: float) -> None:
    assert since_ns(text, NOW) == NOW - seconds * 10**9


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("2026-12-03T06:00:00Z", 1796277600),
        ("2026-12-03 06:00", 1796277600),
        ("2026-12-03T07:00:00+01:00", 1796277600),
        ("2026-12-03", 1796256000),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, at_s: int) -> None:
    assert since_ns(text, NOW) == at_s * 10**9


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1 year", "yesterday", "1h30", "٣h\n", "nan s"])
def test_other_words_mean_nothing(text: str) -> None:
    assert since_ns(text, NOW) is None
