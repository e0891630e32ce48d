"""GPUs that say themselves that they are slowed down: one finding for a node, and none beside a lag that says why."""

from typing import Any

import numpy as np
import pytest
from samples import DDP_SMALL, T0, Change, Columns, Inbound, Job, Played, S, job_event, job_samples, merged, play, put

from heeler.detect import DetectStep

JOB = Job(nodes=1, level=DDP_SMALL)
ALONE = Job(nodes=1, gpus=4, level=DDP_SMALL)


def run(*change: Change, windows: int = 60, job: Job = ALONE, more: list[Inbound] | None = None) -> Played:
    return play(DetectStep(), merged([job_event(job)], job_samples(job, windows=windows, change=change), more or []))


def idle(*change: Change) -> Played:
    """Nobody's GPUs: there is no job that could lag."""
    messages = job_samples(ALONE, windows=60, change=change)
    for message in messages:
        message.data["job"] = [None] * 4
    return play(DetectStep(), messages)


def heat(bits: int = 0x20, *, gpu: Any = 3, since: int = 10, until: int = 1 << 30) -> Change:
    return put("clock_event_reasons", bits, gpu=gpu, since=since, until=until)


def grows(name: str, per_window: float, *, gpu: Any = 3, since: int = 10, until: int = 1 << 30) -> Change:
    """A counter of nanoseconds that grows."""

    def change(window: int, c: Columns) -> None:
        c[name] = np.zeros(c["power_w"].shape)
        c[name][0, gpu] = per_window * S * max(0, min(window, until) - since)

    return change


def slow(*, gpu: Any = 3, since: int = 10) -> Change:
    return put("sm_clock_mhz", 1100.0, gpu=gpu, since=since)


def test_heat_is_said_after_two_minutes() -> None:
    (opened,) = run(heat()).opened()
    assert (opened["kind"], opened["cause"], opened["advice"]) == ("thermal", "thermal_slowdown", "observe")
    assert opened["entity"]["gpu_index"] == 3
    assert 105 <= (opened["ts"] - T0) / S - 100 <= 130
    assert opened["summary"] == "GPU 3 on n0000: slowed down by software for heat, for 110 s; job 81234."
    assert {e["metric"] for e in opened["evidence"]} >= {"clock_event_reasons", "sm_clock_mhz", "temp_c"}


@pytest.mark.parametrize("name", ["violation_thermal_ns", "clock_event_hw_thermal_ns", "clock_event_sw_thermal_ns"])
def test_time_spent_slowed_down_is_heat_without_any_bit(name: str) -> None:
    (opened,) = run(grows(name, 2.0)).opened()
    assert opened["kind"] == "thermal"
    assert {"metric": "time_share", "value": 0.2, "unit": "1"}.items() <= opened["evidence"][1].items()


def test_a_little_time_is_none() -> None:
    assert not run(grows("violation_thermal_ns", 0.3)).findings


def test_one_slow_gpu_among_good_ones_drains_after_four_minutes_of_a_low_clock() -> None:
    played = idle(heat(0x40), slow())
    drains = [f for f in played.of("thermal") if f["advice"] == "drain_after_job"]
    assert (drains[0]["ts"] - T0) / S - 100 >= 230


def test_all_gpus_at_once_are_the_room_and_nobody_is_drained() -> None:
    everyone: Any = slice(None)
    played = idle(heat(0x60, gpu=everyone), slow(gpu=everyone))
    assert len(played.opened()) == 1
    assert played.opened()[0]["entity"]["type"] == "node"
    assert played.opened()[0]["summary"].startswith("4 GPUs on n0000: slowed down by hardware for heat")
    assert {f["advice"] for f in played.of()} == {"observe"}


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x2, 0x4, 0x10, 0x14])
def test_the_power_cap_and_idle_bits_are_normal(bits: int) -> None:
    assert not run(heat(bits)).findings


@pytest.mark.parametrize(("bits", "cause"), [(0x80, "power_brake"), (0x88, "power_brake"), (0x8, "hw_slowdown")])
def test_a_power_brake_is_its_own_kind(bits: int, cause: str) -> None:
    (opened,) = run(heat(bits)).opened()
    assert (opened["kind"], opened["cause"]) == ("power", cause)


def test_a_hardware_slowdown_for_heat_is_one_finding() -> None:
    assert run(heat(0x48)).kinds() == {"thermal"}


def test_time_under_a_power_brake_is_one_too() -> None:
    assert run(grows("clock_event_hw_power_brake_ns", 5.0)).kinds() == {"power"}


@pytest.mark.parametrize(("value", "found"), [(91.0, True), (86.0, False), (255.0, False)])
def test_a_temperature_is_compared_with_the_gpus_own_limit(value: float, found: bool) -> None:
    def limit(_window: int, c: Columns) -> None:
        c["temp_slowdown_c"] = np.full(c["power_w"].shape, 90.0)

    assert bool(run(put("temp_c", value, gpu=2, since=10), limit).findings) == found


def test_a_hot_gpu_without_a_limit_is_not_judged() -> None:
    assert not run(put("temp_c", 88.0, gpu=2)).findings


def test_moments_of_it_are_none() -> None:
    moments = [heat(0x40, since=at, until=at + 4) for at in range(5, 60, 12)]
    assert not run(*moments).findings


def test_some_readings_may_be_missing_or_good() -> None:
    gone = [put("clock_event_reasons", np.nan, since=13, until=15), heat(0x0, since=17, until=18)]
    assert run(heat(), *gone).kinds() == {"thermal"}


def test_missing_readings_say_nothing() -> None:
    everything = ("clock_event_reasons", "violation_thermal_ns", "temp_c", "sm_clock_mhz")
    assert not run(*(put(name, np.nan) for name in everything)).findings


def test_it_is_over_after_five_calm_minutes() -> None:
    played = run(heat(until=30), windows=80)
    (closed,) = played.of(state="closed")
    assert closed["close_reason"] == "in order again"
    assert 290 <= (closed["ts"] - T0) / S - 300 <= 320


def test_readings_that_stop_close_nothing_before_twenty_minutes() -> None:
    messages = merged([job_event(ALONE)], job_samples(ALONE, windows=30, change=heat()))
    assert not play(DetectStep(), messages, until_ns=T0 + 1000 * S).of("thermal", state="closed")
    (closed,) = play(DetectStep(), messages, until_ns=T0 + 2000 * S).of("thermal", state="closed")
    assert closed["close_reason"] == "no more data"


def test_beside_a_lag_that_says_why_nothing_is_said() -> None:
    played = run(heat(0x60, since=40), slow(since=40), windows=90, job=JOB)
    assert played.kinds() == {"gpu_lag"}


def test_a_whole_job_that_is_throttled_is_one_finding() -> None:
    job = Job(nodes=6, level=DDP_SMALL)
    change = [
        put("clock_event_reasons", 0x60, since=40),
        put("sm_clock_mhz", 1100.0, since=40),
    ]
    played = run(*change, windows=90, job=job)
    assert played.kinds() == {"job_slow"}
