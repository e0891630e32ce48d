"""Which samples count, whatever clocks and networks do."""

import pytest
from samples import T0, S

from heeler.detect.arrival import Arrival

W = 10 * S
AHEAD, LATE = W // 2, W + 30 * S


def take(arrival: Arrival, ts_s: float, lag_s: float = 0.3, boot: str = "b") -> str:
    ts = T0 + int(ts_s * S)
    return arrival.accept(boot, ts, ts + int(lag_s * S), AHEAD, LATE)


def test_a_steady_source_is_heard() -> None:
    arrival = Arrival()
    assert {take(arrival, at) for at in range(10, 200, 10)} == {"ok"}


def test_twins_and_what_was_overtaken_are_not() -> None:
    arrival = Arrival()
    assert [take(arrival, at) for at in (10, 20, 20, 10, 30)] == ["ok", "ok", "twin", "twin", "ok"]


@pytest.mark.parametrize("error_s", [420.0, -420.0, 86_400.0, -86_400.0, 31.0, 8.0])
def test_a_clock_that_is_wrong_by_a_steady_amount_is_corrected(error_s: float) -> None:
    arrival = Arrival()
    said = [take(arrival, at + error_s, 0.3 - error_s) for at in range(10, 100, 10)]
    assert said[1:] == ["ok"] * 8
    assert abs(arrival.offset_ns / S + error_s) <= 31 or arrival.offset_ns == 0


def test_one_sample_of_another_time_does_not_count() -> None:
    arrival = Arrival()
    take(arrival, 10)
    assert arrival.accept("b", T0 - 3600 * S, T0 + 15 * S, AHEAD, LATE) in ("late", "twin")
    assert arrival.accept("b", T0 + 7200 * S, T0 + 16 * S, AHEAD, LATE) == "future"
    assert take(arrival, 20) == "ok"


def test_a_backlog_that_comes_at_once_does_not_count_when_it_is_old() -> None:
    arrival = Arrival()
    take(arrival, 10)
    now = T0 + 1000 * S
    said = [arrival.accept("b", T0 + at * S, now + at, AHEAD, LATE) for at in range(20, 1000, 10)]
    assert set(said[:-4]) == {"late"}
    assert said[-1] == "ok"


def test_a_clock_that_is_set_right_is_followed_at_once() -> None:
    arrival = Arrival()
    for at in (10, 20, 30):
        take(arrival, at + 420, 0.3 - 420)
    assert take(arrival, 40) == "ok"
    assert arrival.offset_ns == 0


def test_a_reboot_begins_anew_and_the_old_boot_is_over() -> None:
    arrival = Arrival()
    take(arrival, 10, boot="one")
    assert take(arrival, 20, boot="two") == "ok"
    assert take(arrival, 30, boot="one") == "old_boot"
    assert take(arrival, 40, boot="two") == "ok"
