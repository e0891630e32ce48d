"""A job whose GPUs all stand still is found; checkpoints, evaluation, idle allocations and endings are not."""

from typing import Any

import numpy as np
import pytest
from samples import (
    DDP_SMALL,
    OFFLOAD,
    SERVING_IDLE,
    STAGE_0,
    STAGE_1,
    T0,
    Columns,
    Inbound,
    Job,
    Played,
    S,
    job_event,
    job_samples,
    kernel_event,
    merged,
    play,
    put,
    stands,
)

from heeler.detect import DetectStep

JOB = Job(nodes=4)
START = job_event(JOB, ts_ns=T0 - 3600 * S)


def run(*change: Any, windows: int = 150, job: Job = JOB, more: list[Inbound] | None = None) -> Played:
    return play(DetectStep(), merged([START], job_samples(job, windows=windows, change=change), more or []))


def seconds(finding: dict[str, Any], since: int) -> float:
    """Return how long after the last working window something was said."""
    return float((finding["ts"] - T0) / S - since * 10)


def test_a_job_that_spins_is_suspected_after_two_minutes_and_sure_after_ten() -> None:
    played = run(stands(since=40))
    (opened,) = played.opened()
    assert (opened["kind"], opened["severity"], opened["advice"], opened["job_id"]) == (
        "hang",
        "warning",
        "observe",
        JOB.id,
    )
    assert 120 <= seconds(opened, 40) <= 150
    assert opened["confidence"] == 0.6
    assert opened["summary"] == (
        "Job 81234 seems to hang: nothing moves on its 32 GPUs for 2 min, utilisation says 100 %."
    )
    sure = next(f for f in played.of("hang") if f["severity"] == "critical")
    assert 600 <= seconds(sure, 40) <= 630
    assert (sure["advice"], sure["id"], sure["confidence"]) == ("person", opened["id"], 0.95)


def test_a_job_stuck_on_the_host_is_suspected_after_five_minutes() -> None:
    (opened,) = run(stands(since=40, spins=False)).opened()
    assert 300 <= seconds(opened, 40) <= 330
    assert opened["confidence"] == 0.5
    assert "they are idle and hold their memory" in opened["summary"]


def test_the_ranks_that_do_not_spin_are_named() -> None:
    (opened,) = run(stands(since=40), stands(since=40, spins=False, node=2, gpu=5)).opened()
    (odd,) = [e for e in opened["evidence"] if e["metric"] == "gpus_not_spinning"]
    assert (odd["value"], odd["text"]) == (1, "n0002 GPU 5")


def test_a_broken_gpu_is_named_as_the_cause() -> None:
    line = kernel_event(JOB.node(1), 95, ts_ns=T0 + 398 * S, seq=1, uuid=JOB.uuid(1, 3), jobs=[JOB.id])
    played = run(stands(since=40), more=[line])
    (opened,) = played.opened("hang")
    assert opened["cause"] == "gpu_fault"
    assert "XID 95 on n0001" in opened["summary"]
    assert played.opened("xid")[0]["id"] in [e["value"] for e in opened["evidence"]]


def test_an_error_of_long_ago_is_no_cause() -> None:
    line = kernel_event(JOB.node(1), 48, ts_ns=T0 + 20 * S, seq=1, uuid=JOB.uuid(1, 3), jobs=[JOB.id])
    (opened,) = run(stands(since=80), more=[line], windows=110).opened("hang")
    assert opened["cause"] == "unknown"


def test_a_silent_node_is_named_as_the_cause() -> None:
    messages = job_samples(JOB, windows=70, change=stands(since=40))
    kept = [m for m in messages if m.data["node"] != "n0003" or m.ts_ns < T0 + 400 * S]
    (opened,) = play(DetectStep(), merged([START], kept)).opened("hang")
    assert opened["cause"] == "node_silent"
    assert "no samples from n0003" in opened["summary"]


def test_nothing_is_said_where_most_nodes_are_silent() -> None:
    messages = job_samples(JOB, windows=90, change=stands(since=40))
    kept = [m for m in messages if m.data["node"] == "n0000" or m.ts_ns < T0 + 400 * S]
    assert not play(DetectStep(), merged([START], kept)).of("hang")


@pytest.mark.parametrize("until", [50, 51])
def test_a_checkpoint_of_less_than_two_minutes_is_none(until: int) -> None:
    assert not run(stands(since=40, until=until)).findings


def test_a_checkpoint_of_four_idle_minutes_is_none() -> None:
    assert not run(stands(since=40, until=64, spins=False)).of("hang")


def test_one_gpu_that_works_is_enough() -> None:
    rest: Any = slice(1, None)
    assert not run(stands(since=40, node=rest), stands(since=40, node=0, gpu=rest)).of("hang")


@pytest.mark.parametrize("level", [DDP_SMALL, OFFLOAD, SERVING_IDLE, [STAGE_0, STAGE_0, STAGE_1, STAGE_1]])
def test_jobs_that_do_little_do_not_hang(level: Any) -> None:
    assert not run(job=Job(nodes=4, level=level)).findings


def test_a_job_that_never_worked_does_not_hang() -> None:
    assert not run(stands(since=0, spins=False)).of("hang")
    assert not run(stands(since=0)).of("hang")


def test_a_notebook_that_comes_and_goes_does_not_hang() -> None:
    bursts = [stands(since=at + 3, until=at + 10, spins=False) for at in range(0, 60, 10)]
    assert not run(*bursts, stands(since=60, spins=False)).of("hang")


def test_processes_that_ended_do_not_hang() -> None:
    assert not run(stands(since=40, spins=False), put("fb_used_bytes", 4e6, since=40)).of("hang")


def test_a_job_that_draws_its_power_works_though_its_counters_are_blank() -> None:
    blank = [put("tensor_active_ratio", 0.0, since=40), put("sm_active_ratio", 0.0, since=40)]
    assert not run(*blank).of("hang")


@pytest.mark.parametrize(
    ("name", "value"),
    [("dram_active_ratio", 0.2), ("nvlink_tx_bytes_per_s", 2e9), ("pcie_rx_bytes_per_s", 4e9)],
)
def test_bytes_that_move_are_work(name: str, value: float) -> None:
    def change(window: int, c: Columns) -> None:
        c[name] = np.full(c["power_w"].shape, value)

    assert not run(stands(since=40), change).of("hang")


def test_readings_that_are_missing_are_no_stillness() -> None:
    gone = [put(name, np.nan, since=40) for name in ("util_ratio", "power_w", "sm_active_ratio", "tensor_active_ratio")]
    assert not run(*gone).of("hang")


def test_full_utilisation_without_any_other_reading_says_nothing() -> None:
    gone = [put(name, np.nan) for name in ("power_w", "sm_active_ratio", "tensor_active_ratio")]
    assert not run(*gone).of("hang")


def test_without_profiling_the_power_tells_a_hang() -> None:
    gone = [put(name, np.nan) for name in ("sm_active_ratio", "tensor_active_ratio")]
    (opened,) = run(stands(since=40), *gone, windows=60).opened()
    assert opened["kind"] == "hang"


def test_impossible_readings_are_no_work() -> None:
    (opened,) = run(stands(since=40), put("tensor_active_ratio", 7e13, since=40), windows=60).opened()
    assert opened["kind"] == "hang"


def test_a_hang_closes_when_the_job_works_again_for_a_minute() -> None:
    played = run(stands(since=40, until=60))
    closed = played.of("hang", state="closed")
    assert [f["close_reason"] for f in closed] == ["the job works again"]
    assert 60 <= seconds(closed[0], 60) <= 90


def test_a_sign_of_life_does_not_close_it() -> None:
    played = run(stands(since=40, until=60), stands(since=62), windows=120)
    assert len(played.opened("hang")) == 1
    assert not played.of("hang", state="closed")


def test_a_hang_closes_with_its_job() -> None:
    end = job_event(JOB, "ended", ts_ns=T0 + 700 * S)
    played = run(stands(since=40), windows=90, more=[end])
    assert [f["state"] for f in played.of("hang")][-1] == "closed"
    assert played.of("hang")[-1]["close_reason"] == "the job ended"


def test_a_hang_closes_when_its_processes_are_gone() -> None:
    played = run(stands(since=40), stands(since=60, spins=False), put("fb_used_bytes", 4e6, since=60), windows=80)
    assert played.of("hang")[-1]["close_reason"] == "the processes let go of the GPUs"


def test_a_hang_without_any_more_data_closes() -> None:
    messages = merged([START], job_samples(JOB, windows=60, change=stands(since=40)))
    played = play(DetectStep(), messages, until_ns=T0 + 1300 * S)
    assert played.of("hang")[-1]["close_reason"] == "no more data"


def test_a_job_beside_another_on_the_same_node_is_judged_alone() -> None:
    other = Job(id="99", nodes=1, gpus=8)
    messages = job_samples(other, windows=90, change=stands(since=40, gpu=slice(0, 4)))
    for message in messages:
        message.data["job"] = ["7"] * 4 + ["99"] * 4
    (opened,) = play(DetectStep(), messages).opened("hang")
    assert (opened["job_id"], opened["entity"]["node"]) == ("7", "n0000")
