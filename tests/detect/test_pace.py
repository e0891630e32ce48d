"""How much slower a job became: by its own pace before the trouble, and unknown where it had none."""

from typing import Any

import numpy as np
import pytest
from samples import (
    DDP_SMALL,
    T0,
    Change,
    Columns,
    Job,
    Played,
    S,
    cold_twin,
    job_event,
    job_samples,
    merged,
    play,
    put,
    scale,
    thermal,
)

from heeler.detect import DetectStep
from heeler.detect.pace import Pace, words
from heeler.detect.thresholds import PaceThresholds

JOB = Job(nodes=8, level=DDP_SMALL)
FAULT = 30


def run(*change: Change, windows: int = 60, job: Job = JOB) -> Played:
    return play(DetectStep(), merged([job_event(job)], job_samples(job, windows=windows, change=change)))


def ratios(played: Played) -> list[float | None]:
    return [f["impact"].get("job_slowdown_ratio") for f in played.of("gpu_lag", "job_slow") if f["state"] != "closed"]


@pytest.mark.parametrize("ratio", [0.9, 0.8, 0.6, 0.4])
def test_a_clock_that_holds_all_up_makes_the_job_slower_by_as_much(ratio: float) -> None:
    found = ratios(run(thermal(node=2, gpu=3, ratio=ratio, since=FAULT)))
    assert found or ratio == 0.9
    assert found == pytest.approx([1 / ratio] * len(found), rel=0.03)


def test_the_baseline_is_kept_though_its_minutes_are_long_gone() -> None:
    found = ratios(run(thermal(node=2, gpu=3, ratio=0.7, since=FAULT), windows=300))
    assert found[-1] == pytest.approx(1 / 0.7, rel=0.03)


def slow_alone(*, node: int, gpu: int, ratio: float, since: int) -> Change:
    """A GPU that is throttled while the others do not wait for it: replicas of a server."""

    def change(window: int, c: Columns) -> None:
        if window >= since:
            c["sm_clock_mhz"][node, gpu] *= ratio
            c["power_w"][node, gpu] *= ratio
            c["clock_event_reasons"][node, gpu] = 0x60

    return change


def test_a_victim_that_nobody_waits_for_makes_the_job_no_slower() -> None:
    found = ratios(run(slow_alone(node=2, gpu=3, ratio=0.6, since=FAULT)))
    assert found == pytest.approx([1.0] * len(found), abs=0.03)
    assert found


def test_trouble_from_the_beginning_leaves_nothing_to_compare_with() -> None:
    assert set(ratios(run(thermal(node=2, gpu=3, ratio=0.6)))) == {None}


def test_less_than_a_minute_before_the_trouble_is_no_baseline() -> None:
    job = Job(nodes=8, level=DDP_SMALL, start_ns=T0)  # the first five minutes are not judged
    found = ratios(run(thermal(node=2, gpu=3, ratio=0.6, since=34), windows=60, job=job))
    assert set(found) == {None}


def test_a_pace_that_was_never_steady_is_no_baseline() -> None:
    def ragged(window: int, c: Columns) -> None:
        if window < FAULT:
            c["tensor_active_ratio"] *= 1.0 if window % 2 else 0.6

    assert set(ratios(run(ragged, thermal(node=2, gpu=3, ratio=0.6, since=FAULT)))) == {None}


def test_a_checkpoint_in_between_is_no_part_of_the_pace() -> None:
    quiet = [scale("tensor_active_ratio", 0.05, since=45, until=48), scale("sm_active_ratio", 0.1, since=45, until=48)]
    low = scale("power_w", 0.3, since=45, until=48)
    found = ratios(run(thermal(node=2, gpu=3, ratio=0.7, since=FAULT), *quiet, low, windows=70))
    assert found[-1] == pytest.approx(1 / 0.7, rel=0.03)
    assert not [r for r in found if r is not None and r > 2]


def test_without_tensor_cores_the_sms_say_it() -> None:
    played = run(thermal(node=2, gpu=3, ratio=0.7, since=FAULT), put("tensor_active_ratio", 0.0))
    impact = played.of("gpu_lag")[-1]["impact"]
    assert impact["measure"] == "sm_cycles_per_s"
    assert impact["job_slowdown_ratio"] == pytest.approx(1 / 0.7, rel=0.03)


@pytest.mark.parametrize("unread", [("tensor_active_ratio", "sm_active_ratio"), ("sm_clock_mhz",)])
def test_what_was_not_read_leaves_the_slowdown_unknown(unread: tuple[str, ...]) -> None:
    columns = [put(name, np.nan) for name in unread]
    found = ratios(run(scale("power_w", 0.6, node=2, gpu=3, since=FAULT), *columns))
    assert set(found) <= {None}


def test_a_job_that_slows_down_as_a_whole_says_so_too() -> None:
    def all_slow(window: int, c: Columns) -> None:
        if window >= FAULT:
            c["sm_clock_mhz"] *= 0.7
            c["clock_event_reasons"][:] = 0x60

    played = run(all_slow, windows=70)
    (kind,) = played.kinds() - {"thermal"}
    assert kind == "job_slow"
    assert ratios(played)[-1] == pytest.approx(1 / 0.7, rel=0.03)
    assert "takes 1.4 times as long per step" in played.of("job_slow")[-1]["summary"]


def test_a_job_that_recovers_is_no_slower_any_more_while_the_finding_waits_to_close() -> None:
    played = run(thermal(node=2, gpu=3, ratio=0.7, since=FAULT, until=50), windows=52)
    assert ratios(played)[-1] == pytest.approx(1 / 0.7, rel=0.05)


@pytest.mark.parametrize("cut", range(330, 690, 47))
def test_a_cold_start_knows_the_baseline_that_the_finding_bears(cut: int) -> None:
    messages = merged(
        [job_event(JOB)],
        job_samples(JOB, windows=70, change=thermal(node=1, gpu=3, ratio=0.7, since=FAULT)),
    )
    warm = play(DetectStep(), messages)
    last = messages[-1].ts_ns
    said = [f for f in cold_twin(DetectStep(), messages, warm, T0 + cut * S) if f["ts"] <= last]
    assert said == [f for f in warm.of() if T0 + cut * S < f["ts"] <= last]


def test_what_a_finding_bears_that_is_no_baseline_is_none() -> None:
    pace = Pace(PaceThresholds())
    for said in ({}, {"measure": 3, "baseline_per_s": 1.0}, {"measure": "tensor_cycles_per_s"}):
        impact: dict[str, Any] = pace.impact(T0, T0 + S, said)
        assert impact == {"job_slowdown_ratio": None}


def test_hardly_slower_is_not_worth_a_word() -> None:
    assert words({"job_slowdown_ratio": 1.02}, 1.05) == ""
    assert words({"job_slowdown_ratio": None}, 1.05) == ""
    assert words({"job_slowdown_ratio": 1.6}, 1.05) == " takes 1.6 times as long per step"


def test_memory_is_some_minutes() -> None:
    pace = Pace(PaceThresholds())
    median = np.full(5, 0.5)
    for at in range(1000):
        pace.note(T0 + at * 10 * S, median)
    assert len(pace.rates) == 42
