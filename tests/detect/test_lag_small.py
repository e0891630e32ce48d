"""Jobs of one and two nodes as they are: samples of a second, steps, pauses, rank 0 that differs, all of them slow."""

from collections.abc import Sequence

import numpy as np
import pytest
from samples import (
    DDP,
    DDP_SMALL,
    STAGE_0,
    STAGE_1,
    T0,
    Change,
    Columns,
    Job,
    Level,
    Played,
    S,
    job_event,
    job_samples,
    merged,
    play,
    put,
    scale,
)

from heeler.detect import DetectStep
from heeler.detect.traits import Traits

ACTIVITY = ("tensor_active_ratio", "sm_active_ratio")
BUSY = Level(power_w=600.0, util=0.99, sm=0.76, tensor=0.42, clock_mhz=1900.0, reasons=0, own=0.03)


def run(job: Job, changes: Sequence[Change], windows: int) -> Played:
    return play(DetectStep(), merged([job_event(job)], job_samples(job, windows=windows, change=changes)))


def steps(step_s: float = 3.1, waits: float = 0.3) -> Change:
    """In each step all ranks work, and then exchange what they have computed."""

    def change(second: int, c: Columns) -> None:
        at = (second + np.arange(20) / 20) % step_s / step_s
        works = float(np.mean(at < 1 - waits))
        for name in ACTIVITY:
            c[name] *= 0.1 + 0.9 * works
        c["power_w"] *= 0.5 + 0.5 * works

    return change


def pauses(every_s: int = 240, lasts_s: int = 12) -> Change:
    """A checkpoint: all ranks stand still, and rank 0 comes back last."""

    def change(second: int, c: Columns) -> None:
        into = second % every_s
        if into < lasts_s:
            c["tensor_active_ratio"][:] = c["sm_active_ratio"][:] = c["util_ratio"][:] = 0.0
            c["power_w"][:] = 120.0
        elif into < lasts_s + 6:
            c["tensor_active_ratio"][:] = 0.0
            c["util_ratio"][0, 0] = c["sm_active_ratio"][0, 0] = 0.05

    return change


def slower(times: float, *, since: int, gpu: int = 3) -> Change:
    """All ranks wait for one whose clock is so much lower."""

    def change(window: int, c: Columns) -> None:
        if window < since:
            return
        for name in (*ACTIVITY, "sm_clock_mhz"):
            others = c[name][0, gpu]
            c[name] /= 1.0 if name == "sm_clock_mhz" else times
            c[name][0, gpu] = others / times if name == "sm_clock_mhz" else others
        c["power_w"][:] = 230.0
        c["power_w"][0, gpu] = 140.0

    return change


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("window_s", [1.0, 2.0, 5.0])
def test_short_samples_of_healthy_jobs_make_no_finding(nodes: int, window_s: float) -> None:
    job = Job(nodes=nodes, level=BUSY, window_s=window_s)
    rank0 = scale("sm_active_ratio", 0.894, node=0, gpu=0)
    assert not run(
        job, [rank0, steps(), pauses(int(240 / window_s), int(12 / window_s))], int(1200 / window_s)
    ).findings


@pytest.mark.parametrize("name", ["tensor_active_ratio", "power_w", "sm_active_ratio"])
@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_less_is_found_within_a_minute_in_samples_of_a_second(name: str, seed: int) -> None:
    job = Job(nodes=1, level=BUSY, window_s=1.0, seed=seed)
    played = run(job, [steps(), scale(name, 0.78, gpu=5, since=400)], 520)
    (opened,) = played.opened()
    assert opened["entity"]["gpu_uuid"] == job.uuid(0, 5)
    assert (opened["ts"] - T0) / S - 400 <= 60


def test_a_lost_second_costs_nothing_and_few_of_a_window_say_nothing() -> None:
    job = Job(nodes=1, level=BUSY, window_s=1.0)
    samples = job_samples(job, windows=520, change=[steps(), scale("power_w", 0.7, gpu=5, since=400)])
    some = [m for m in samples if m.data["seq"] % 5]
    assert len(play(DetectStep(), merged([job_event(job)], some)).opened()) == 1
    few = [m for m in samples if m.data["seq"] % 10 == 1]
    assert not play(DetectStep(), merged([job_event(job)], few)).findings


@pytest.mark.parametrize("times", [4.0, 6.0])
@pytest.mark.parametrize("bits", [0x60, 0])
def test_a_gpu_many_times_slower_is_found_though_the_whole_job_does_little(times: float, bits: int) -> None:
    changes = [slower(times, since=30), put("clock_event_reasons", bits, gpu=3, since=30)]
    job = Job(nodes=1, level=DDP_SMALL)
    (opened,) = run(job, changes, 40).opened()
    assert opened["entity"]["gpu_uuid"] == job.uuid(0, 3)
    assert opened["cause"] == ("thermal_slowdown" if bits else "low_clock")


def test_rank_0_that_has_always_differed_in_one_metric_has_another_role() -> None:
    def wanders(window: int, c: Columns) -> None:
        c["sm_active_ratio"][0, 0] *= 0.89 if window < 40 else 0.84

    assert not run(Job(nodes=2, level=DDP), [wanders], 90).findings


def test_a_fall_of_the_gpu_that_differs_is_a_change() -> None:
    def falls(window: int, c: Columns) -> None:
        c["sm_active_ratio"][0, 0] *= 0.89 if window < 40 else 0.68

    (opened,) = run(Job(nodes=2, level=DDP), [falls], 60).opened()
    assert (opened["entity"]["gpu_index"], opened["confidence"]) == (0, 0.4)


def test_a_victim_and_a_rank_0_that_differs_are_no_role_of_two() -> None:
    job = Job(nodes=1, level=DDP)
    rank0 = scale("sm_active_ratio", 0.88, gpu=0)
    (opened,) = run(job, [rank0, scale("sm_active_ratio", 0.7, gpu=6, since=40)], 60).opened()
    assert opened["entity"]["gpu_index"] == 6


FOUR = Job(nodes=1, gpus=4, level=DDP_SMALL)


@pytest.mark.parametrize(
    ("names", "ratio"),
    [(("tensor_active_ratio", "power_w"), 0.8), (("util_ratio", "power_w"), 0.75), (("sm_clock_mhz",), 0.8)],
)
def test_of_four_gpus_one_that_has_changed_beside_the_others_is_found(names: Sequence[str], ratio: float) -> None:
    changes = [scale(name, ratio, gpu=2, since=60) for name in names]
    (opened,) = run(FOUR, changes, 80).opened()
    assert opened["entity"]["gpu_index"] == 2
    assert (opened["ts"] - T0) / S - 600 <= 60
    assert "usual" in opened["evidence"][0]
    assert "usual" in opened["summary"]
    assert opened["confidence"] <= 0.7


def test_a_stage_of_four_gpus_hides_nobody() -> None:
    job = Job(nodes=2, gpus=4, level=[STAGE_0, STAGE_1])
    changes = [scale(name, 0.75, node=1, gpu=1, since=60) for name in ("tensor_active_ratio", "power_w")]
    (opened,) = run(job, changes, 80).opened()
    assert opened["entity"]["gpu_uuid"] == job.uuid(1, 1)


def test_it_is_open_until_it_is_again_what_it_was() -> None:
    falls = [scale(name, 0.75, gpu=2, since=60, until=240) for name in ("tensor_active_ratio", "power_w")]
    played = run(FOUR, falls, 330)
    assert len(played.opened()) == 1
    (closed,) = [f for f in played.of() if f["state"] == "closed"]
    assert 2990 <= (closed["ts"] - T0) / S <= 3030


@pytest.mark.parametrize("gpus", [2, 3, 4])
@pytest.mark.parametrize("level", [DDP, DDP_SMALL, BUSY, STAGE_1])
def test_few_healthy_gpus_make_no_finding(gpus: int, level: Level) -> None:
    for seed in range(3):
        assert not run(Job(nodes=1, gpus=gpus, level=level, seed=seed), [], 200).findings


def test_a_load_that_wanders_over_four_servers_is_nobodys_fault() -> None:
    rng = np.random.default_rng(3)
    load = np.full(4, 0.75)

    def requests(_window: int, c: Columns) -> None:
        load[:] = np.clip(load + rng.normal(0, 0.12, 4) - 0.3 * (load - 0.75), 0.1, 1.2)
        for name in (*ACTIVITY, "util_ratio"):
            c[name][0] = np.clip(c[name][0] * load, 0, 1)
        c["power_w"][0] *= 0.5 + 0.5 * load

    assert not run(FOUR, [requests], 720).findings


def test_all_of_four_that_do_something_else_are_no_lag() -> None:
    evaluation = [scale(name, 0.6, since=60, until=75) for name in (*ACTIVITY, "power_w")]
    assert not run(FOUR, evaluation, 100).findings


def test_a_gpu_that_misses_some_looks_has_not_changed_where_the_median_jumps_between_two_stages() -> None:
    traits, stages = Traits(600 * S), np.array([[0.107] * 8 + [0.156] * 8] * 5)
    for look in range(9):
        seen = stages.copy()
        seen[:, [0, 1] if look % 2 else [8, 9]] = np.nan  # the other stage has more GPUs each time
        if look % 2:
            seen[:, 15] = np.nan
        traits.note(look * 60 * S, seen * (0.8 if look == 3 else 1.0))
    usual = traits.usual(9 * 60 * S, 16)
    assert [usual.beside(3, at, stages) for at in range(16)] == pytest.approx([1.0] * 16)
    stages[3, 15] *= 0.8
    assert usual.beside(3, 15, stages) == pytest.approx(0.8)


@pytest.mark.parametrize("seed", range(3))
def test_stages_of_which_samples_are_missing_are_no_change(seed: int) -> None:
    """The median over the job jumps from one stage to the other, and who misses which looks differs by node."""
    job = Job(nodes=4, level=[STAGE_0, STAGE_0, STAGE_1, STAGE_1], seed=seed)
    rng = np.random.default_rng(seed)
    samples = [m for m in job_samples(job, windows=500) if rng.random() < 0.75]
    assert not play(DetectStep(), merged([job_event(job)], samples)).findings
