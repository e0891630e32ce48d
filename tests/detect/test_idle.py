"""GPUs that a job holds and does not use."""

from typing import Any

import numpy as np
import pytest
from samples import DDP_SMALL, T0, Change, Inbound, Job, Played, S, cold_twin, job_event, job_samples, merged, play, put

from heeler.bus import ConfigError
from heeler.detect import DetectStep
from heeler.detect.thresholds import from_tables

JOB = Job(nodes=1, level=DDP_SMALL, window_s=60.0)


def unused(*, gpu: Any = slice(None), since: int = 0, until: int = 1 << 30) -> list[Change]:
    quiet = {"util_ratio": 0.0, "power_w": 118.0, "tensor_active_ratio": 0.0, "sm_active_ratio": 0.0}
    return [put(name, value, gpu=gpu, since=since, until=until) for name, value in quiet.items()]


def run(*change: Change, windows: int = 60, job: Job = JOB, more: list[Inbound] | None = None) -> Played:
    started = [job_event(job, ts_ns=T0 - 60 * S)]
    return play(DetectStep(), merged(started, job_samples(job, windows=windows, change=change), more or []))


def test_a_job_that_never_used_its_gpus_is_said_after_25_minutes_as_information() -> None:
    (opened,) = run(*unused()).opened()
    assert (opened["kind"], opened["severity"], opened["advice"]) == ("idle_allocation", "info", "none")
    assert (opened["entity"]["type"], opened["job_id"]) == ("job", JOB.id)
    assert opened["summary"] == "Job 81234 holds 8 GPUs and has not used 8 of them for 25 min."
    assert 1500 <= (opened["ts"] - T0) / S - 60 <= 1620


def test_after_four_hours_a_person_may_want_to_ask_and_nothing_is_drained() -> None:
    played = run(*unused(), windows=280)
    assert {f["advice"] for f in played.of()} == {"none", "person"}
    person = next(f for f in played.of() if f["advice"] == "person")
    assert 14_400 <= (person["ts"] - T0) / S - 60 <= 14_520
    hours = next(e["value"] for e in person["evidence"] if e["metric"] == "gpu_hours_idle")
    assert 32 <= hours <= 33


def test_a_program_that_uses_one_gpu_of_eight_wastes_seven() -> None:
    (opened,) = run(*unused(gpu=slice(1, 8))).opened()
    assert "has not used 7 of them" in opened["summary"]


def test_one_gpu_of_eight_is_too_little_to_speak_of() -> None:
    assert not run(*unused(gpu=7)).findings


def test_one_of_two_gpus_is_said() -> None:
    assert run(*unused(gpu=1), job=Job(nodes=1, gpus=2, level=DDP_SMALL, window_s=60.0)).opened()


def test_a_burst_now_and_then_is_use() -> None:
    bursts = [put("util_ratio", 0.4, since=at, until=at + 1) for at in range(0, 60, 20)]
    assert not run(*unused(), *bursts).findings


def test_data_that_is_loaded_for_twenty_minutes_is_none() -> None:
    assert not run(*unused(until=20)).findings


def test_what_could_not_be_read_is_not_unused() -> None:
    assert not run(*unused(), put("util_ratio", np.nan)).findings


@pytest.mark.parametrize("state", ["SUSPENDED", "PREEMPTED"])
def test_a_job_that_slurm_stopped_is_not_asked(state: str) -> None:
    stopped = job_event(JOB, "changed", ts_ns=T0 + 61 * S, state=state)
    assert not run(*unused(), more=[stopped]).findings


def test_gpus_of_other_jobs_are_no_matter() -> None:
    messages = job_samples(JOB, windows=60, change=unused(gpu=slice(4, 8)))
    for message in messages:
        message.data["job"] = [JOB.id] * 4 + ["7"] * 2 + [None] * 2
    played = play(DetectStep(), merged([job_event(JOB)], messages))
    assert [f["job_id"] for f in played.opened()] == ["7"]


def test_it_is_over_when_the_gpus_are_used() -> None:
    played = run(*unused(until=40))
    assert [f["close_reason"] for f in played.of(state="closed")] == ["its GPUs are used"]


def test_it_is_over_when_the_job_ends_and_does_not_come_back() -> None:
    played = run(*unused(), more=[job_event(JOB, "ended", ts_ns=T0 + 2400 * S)])
    assert [f["state"] for f in played.of() if f["state"] != "update"] == ["open", "closed"]


def test_a_job_that_stopped_working_is_said_to_hang_and_not_to_be_idle_besides() -> None:
    job = Job(nodes=2, level=DDP_SMALL)
    kinds = run(*unused(since=120), job=job, windows=330).kinds()
    assert kinds == {"hang"}


@pytest.mark.parametrize("cut", range(100, 4000, 311))
def test_a_cold_start_says_what_a_warm_instance_says(cut: int) -> None:
    change = [*unused(gpu=slice(2, 8), since=5, until=50), *unused(gpu=3, since=50)]
    messages = merged([job_event(JOB, ts_ns=T0 - 60 * S)], job_samples(JOB, windows=70, change=change))
    warm = play(DetectStep(), messages)
    assert warm.opened("idle_allocation")
    last = messages[-1].ts_ns
    said = [f for f in cold_twin(DetectStep(), messages, warm, T0 + cut * S) if f["ts"] <= last]
    assert said == [f for f in warm.of() if T0 + cut * S < f["ts"] <= last]


def test_more_than_samples_are_kept_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="after_s"):
        from_tables({"detect": {"idle": {"after_s": 7200.0}}})
