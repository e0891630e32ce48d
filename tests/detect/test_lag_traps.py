"""What is healthy, or nobody's fault, is never blamed: levels and oddities measured on healthy jobs."""

from collections.abc import Sequence

import numpy as np
import pytest
from samples import (
    DDP,
    DDP_SMALL,
    OFFLOAD,
    SERVING_IDLE,
    STAGE_0,
    STAGE_1,
    T0,
    Change,
    Columns,
    Inbound,
    Job,
    Played,
    S,
    job_event,
    job_samples,
    merged,
    play,
    put,
    scale,
    thermal,
)

from heeler.detect import DetectStep

NAN = float("nan")


def run(job: Job, change: Change | Sequence[Change] = (), windows: int = 60) -> Played:
    return play(DetectStep(), merged([job_event(job)], job_samples(job, windows=windows, change=change)))


@pytest.mark.parametrize("level", [DDP, DDP_SMALL, OFFLOAD, SERVING_IDLE])
def test_healthy_levels_make_no_finding(level: object) -> None:
    for seed in range(3):
        assert not run(Job(nodes=8, level=level, seed=seed)).findings  # type: ignore[arg-type]


def test_pipeline_stages_differ_by_half_and_are_healthy() -> None:
    assert not run(Job(nodes=2, level=[STAGE_0, STAGE_1])).findings
    assert not run(Job(nodes=8, level=[STAGE_0] * 6 + [STAGE_1] * 2)).findings


def test_a_last_stage_of_one_node_among_eight_is_a_role() -> None:
    assert not run(Job(nodes=8, level=[STAGE_0] * 7 + [STAGE_1])).findings


def test_rank_0_with_ten_percent_less_sm_activity_is_a_quirk() -> None:
    job = Job(nodes=2, level=STAGE_0)
    assert not run(job, scale("sm_active_ratio", 0.894, node=0, gpu=0)).findings


def test_one_metric_that_differs_alone_is_told_with_doubt_and_no_drain() -> None:
    job = Job(nodes=4)
    played = run(job, scale("tensor_active_ratio", 0.75, node=0, gpu=0), windows=90)
    (finding,) = played.opened()
    assert finding["entity"]["gpu_uuid"] == job.uuid(0, 0)
    assert (finding["cause"], finding["confidence"]) == ("unknown", 0.4)
    assert {f["advice"] for f in played.of()} == {"observe"}


def test_the_power_cap_bit_is_normal_at_full_load() -> None:
    played = run(Job(nodes=4, level=DDP))
    assert not played.findings


def test_a_power_capped_gpu_with_a_lower_clock_is_normal() -> None:
    """Stage 1 works harder, so its clocks are lower at the same power: not its fault."""
    job = Job(nodes=4, level=DDP)
    changes = [scale("sm_clock_mhz", 0.8, node=3), put("power_w", 699.0, node=3), put("clock_event_reasons", 4, node=3)]
    assert not run(job, changes).findings


def test_temperatures_of_58_to_72_degrees_in_one_job_are_healthy() -> None:
    job = Job(nodes=1)
    spread = np.linspace(57.9, 72.3, 8)

    def change(_window: int, c: Columns) -> None:
        c["temp_c"][0] = spread

    assert not run(job, change).findings


def test_two_jobs_on_one_node_are_never_compared() -> None:
    """Four GPUs at full load and four nearly idle ones: different jobs, so nobody lags."""
    busy, idle = Job(id="1", nodes=1, level=DDP), Job(id="2", nodes=1, level=SERVING_IDLE)
    mixed: list[Inbound] = []
    for mine, theirs in zip(job_samples(busy, windows=60), job_samples(idle, windows=60), strict=True):
        for group in ("mean", "last"):
            for name, column in mine.data[group].items():
                column[4:] = theirs.data[group][name][4:]
        mine.data["job"] = ["1"] * 4 + ["2"] * 4
        mixed.append(mine)
    assert not play(DetectStep(), merged([job_event(busy), job_event(idle)], mixed)).findings


def test_gpus_without_a_job_are_not_judged() -> None:
    samples = job_samples(Job(nodes=1), windows=50, change=thermal(node=0, gpu=3, ratio=0.5))
    for message in samples:
        message.data["job"] = [None] * 8
    assert not play(DetectStep(), samples).of("gpu_lag", "job_slow")


def test_a_warm_up_is_not_judged() -> None:
    job = Job(nodes=4, start_ns=T0)
    assert not run(job, thermal(node=1, gpu=1, ratio=0.5, until=29), windows=60).of("gpu_lag", "job_slow")


def test_a_checkpoint_drops_all_ranks_together() -> None:
    def change(window: int, c: Columns) -> None:
        if window % 20 in (5, 6, 7, 8):
            # One node writes for all: it goes on working while the others wait.
            for name in ("tensor_active_ratio", "sm_active_ratio", "power_w"):
                keep = c[name][0].copy()
                c[name] *= 0.1
                c[name][0] = keep * 0.6

    assert not run(Job(nodes=8), change, windows=100).findings


def test_an_evaluation_of_minutes_is_not_judged_against_training() -> None:
    def change(window: int, c: Columns) -> None:
        if 30 <= window < 50:
            c["tensor_active_ratio"] *= 0.2
            c["sm_active_ratio"] *= 0.3
            c["power_w"] *= 0.6

    assert not run(Job(nodes=4), change, windows=90).findings


def test_a_dying_job_blames_nobody() -> None:
    """Ranks end one after the other; the last ones spin in a collective."""

    def change(window: int, c: Columns) -> None:
        gone = max(0, window - 40)
        for name in ("util_ratio", "sm_active_ratio", "tensor_active_ratio"):
            c[name][:gone] = 0.0
        c["power_w"][:gone] = 71.0
        if gone:
            c["tensor_active_ratio"][gone:] = 0.0
            c["power_w"][gone:] *= 0.3

    assert not run(Job(nodes=16), change, windows=58).findings


def test_a_hang_with_one_idle_rank_is_no_lag() -> None:
    changes = [
        put("tensor_active_ratio", 0.0, since=30),
        put("power_w", 120.0, since=30),
        put("util_ratio", 0.0, node=1, gpu=1, since=30),
        put("power_w", 71.0, node=1, gpu=1, since=30),
    ]
    assert not run(Job(nodes=4), changes, windows=80).findings


def test_all_nodes_throttled_is_a_matter_of_the_room_not_of_a_gpu() -> None:
    job = Job(nodes=8)
    changes = [scale("sm_clock_mhz", 0.6, since=30), put("clock_event_reasons", 0x60, since=30)]
    played = run(job, changes)
    assert played.kinds() == {"job_slow"}
    (finding,) = played.opened()
    assert (finding["entity"]["type"], finding["cause"]) == ("job", "thermal_slowdown")
    assert {f["advice"] for f in played.of()} == {"observe"}


def test_a_brake_of_all_nodes_is_one_finding_of_a_job_that_is_hardly_busy_too() -> None:
    changes = [scale("sm_clock_mhz", 0.7, since=30), put("clock_event_reasons", 0x88, since=30)]
    (finding,) = run(Job(nodes=8, level=OFFLOAD), changes).opened()
    assert (finding["kind"], finding["cause"], finding["entity"]["type"]) == ("job_slow", "power_brake", "job")


def test_three_nodes_of_sixteen_at_once_are_workload_or_fabric() -> None:
    job = Job(nodes=16)

    def change(window: int, c: Columns) -> None:
        if window >= 30:
            for node in (2, 7, 11):
                c["power_w"][node, 3] *= 0.6
                c["sm_active_ratio"][node, 3] *= 0.6

    played = run(job, change, windows=70)
    assert played.kinds() == {"job_slow"}


def test_a_whole_job_that_slows_down_blames_nobody() -> None:
    changes = [scale(name, 0.6, since=30) for name in ("power_w", "sm_active_ratio", "tensor_active_ratio")]
    assert not run(Job(nodes=8), changes).findings


@pytest.mark.parametrize("nodes", [2, 8])
def test_a_node_starved_by_its_host_does_not_blame_its_gpus(nodes: int) -> None:
    changes = [scale(name, 0.7, node=1, since=30) for name in ("power_w", "util_ratio")]
    played = run(Job(nodes=nodes), changes, windows=90)
    (finding,) = played.opened()
    assert (finding["entity"]["type"], finding["node"], finding["cause"]) == ("node", "n0001", "host_starved")
    assert {f["advice"] for f in played.of()} == {"observe"}


def stutters(pattern: str, *, gpu: int | slice = slice(None)) -> Change:
    """A data loader that stutters: in some windows (`x`) the GPUs of a node get their data late."""

    def change(window: int, c: Columns) -> None:
        at = window % len(pattern)
        if pattern[at] == "x":
            for name in ("power_w", "util_ratio", "sm_active_ratio", "tensor_active_ratio"):
                c[name][1, gpu] *= 0.7
            c["pcie_gen"][1, gpu] = 5 if pattern[at - 1] == "x" else 1  # read while the link sleeps

    return change


@pytest.mark.parametrize("gpu", [slice(None), 2])
@pytest.mark.parametrize("pattern", ["." * 40 + "xxx.x", "." * 40 + "xx.xx.xx", "." * 40 + "xx."])
def test_a_loader_that_stutters_and_catches_up_is_no_lag(pattern: str, gpu: int | slice) -> None:
    assert not run(Job(nodes=2, level=DDP_SMALL), stutters(pattern, gpu=gpu), windows=200).findings


def test_a_loader_that_never_catches_up_is_a_slow_host_though_its_link_sleeps_at_times() -> None:
    late = [scale(name, 0.7, node=1, since=30) for name in ("power_w", "util_ratio")]
    sleeps = [put("pcie_gen", 1, node=1, gpu=3, since=at, until=at + 1) for at in range(31, 60, 3)]
    (finding,) = run(Job(nodes=2), [*late, *sleeps], windows=60).opened()
    assert (finding["entity"]["type"], finding["node"], finding["cause"]) == ("node", "n0001", "host_starved")
    assert (finding["ts"] - T0) / S - 300 <= 60


def test_half_the_nodes_or_more_at_a_lower_utilisation_are_a_role() -> None:
    changes = [scale(name, 0.7, node=slice(0, 5), since=30) for name in ("power_w", "util_ratio")]
    assert not [f for f in run(Job(nodes=8), changes).opened("gpu_lag") if f["cause"] == "host_starved"]


def test_a_profiler_that_returns_zero_while_the_gpu_works_is_a_broken_sensor() -> None:
    changes = [
        put("sm_active_ratio", 0.0, node=1, gpu=1, since=30),
        put("tensor_active_ratio", 0.0, node=1, gpu=1, since=30),
    ]
    assert not run(Job(nodes=4), changes).findings


@pytest.mark.parametrize("value", [NAN, 2147483632.0, 9.2e18, 140737488355328.0])
@pytest.mark.parametrize("name", ["power_w", "sm_clock_mhz", "sm_active_ratio", "tensor_active_ratio", "util_ratio"])
def test_a_blank_reading_is_no_reading(name: str, value: float) -> None:
    assert not run(Job(nodes=2), put(name, value, node=1, gpu=1, since=30), windows=50).findings


def test_a_mig_parent_without_utilisation_is_left_out() -> None:
    changes = [put("util_ratio", NAN, node=1, gpu=1), put("power_w", 80.0, node=1, gpu=1)]
    assert not run(Job(nodes=2), changes).findings


def test_idle_gpus_may_slow_their_links_and_clocks_down() -> None:
    job = Job(nodes=2, level=SERVING_IDLE)
    changes = [put("pcie_gen", 1, node=0, gpu=2), put("sm_clock_mhz", 345.0, node=0, gpu=2)]
    assert not run(job, changes).findings


def test_a_slot_that_is_narrow_for_every_gpu_is_how_the_machine_was_built() -> None:
    assert not run(Job(nodes=2), put("pcie_width", 8)).findings


def test_a_reset_counter_is_no_growth() -> None:
    job = Job(nodes=2)
    changes = [
        put("ecc_uncorrected_volatile", 12.0, until=30),
        put("violation_thermal_ns", 9e15, until=30),
        put("violation_thermal_ns", 0.0, since=30),
    ]
    assert not run(job, changes).findings


def test_a_short_burst_is_jitter() -> None:
    assert not run(Job(nodes=4), thermal(node=1, gpu=1, ratio=0.6, since=30, until=32)).findings


def test_a_job_that_was_restarted_is_warmed_up_again() -> None:
    """Idle for a minute with its memory let go, then compiling: ranks differ, and that is no fault."""

    def change(window: int, c: Columns) -> None:
        c["fb_used_bytes"] = np.full(c["power_w"].shape, 0.4e9 if 30 <= window < 36 else 70e9)
        if 30 <= window < 36:
            for name in ("util_ratio", "sm_active_ratio", "tensor_active_ratio"):
                c[name][:] = 0.0
            c["power_w"][:] = 71.0
        if 36 <= window < 60:
            c["power_w"][1, 1] *= 0.5
            c["sm_active_ratio"][1, 1] *= 0.5

    assert not run(Job(nodes=4), change, windows=80).findings


def test_a_checkpoint_is_no_restart() -> None:
    """Idle for a minute with its memory held: what lags afterwards is found at once."""

    def change(window: int, c: Columns) -> None:
        c["fb_used_bytes"] = np.full(c["power_w"].shape, 70e9)
        if 30 <= window < 36:
            for name in ("util_ratio", "sm_active_ratio", "tensor_active_ratio"):
                c[name][:] = 0.0

    lag = thermal(node=1, gpu=1, ratio=0.6, since=36)
    (opened,) = run(Job(nodes=4), [lag, change], windows=50).opened()
    assert opened["ts"] <= T0 + 420 * S


def test_late_samples_make_no_finding() -> None:
    job = Job(nodes=4)
    healthy = job_samples(job, windows=60)
    sick = job_samples(job, windows=60, change=thermal(node=1, gpu=1, ratio=0.5))
    # An hour of backlog that an agent sends at once when the bus is back.
    from dataclasses import replace

    late = [
        replace(m, data={**m.data, "ts": m.data["ts"] - 3600 * S}, ts_ns=T0 + 300 * S + at)
        for at, m in enumerate(m for m in sick if m.data["node"] == job.node(1))
    ]
    assert not play(DetectStep(), merged([job_event(job)], healthy, late)).findings


def test_samples_from_the_future_make_no_finding() -> None:
    job = Job(nodes=4)
    healthy = job_samples(job, windows=60)
    sick = job_samples(job, windows=40, change=thermal(node=1, gpu=1, ratio=0.5))
    odd = [m for at, m in enumerate(sick) if m.data["node"] == job.node(1) and at % 3 == 0]
    for at, message in enumerate(odd):
        message.data["ts"] += (4000 + 170 * (at % 7)) * S
    assert not play(DetectStep(), merged([job_event(job)], healthy, odd)).findings
