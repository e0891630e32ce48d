"""Memory that nobody's job holds, and GPUs that say nothing while their siblings do."""

from typing import Any

import numpy as np
import pytest
from samples import T0, Change, Inbound, Job, Played, S, job_samples, merged, node_state, play, put

from heeler.detect import DetectStep

JOB = Job(nodes=1, gpus=4)
NODE = JOB.node(0)
IDLE = [put("util_ratio", 0.0), put("power_w", 118.0), put("tensor_active_ratio", 0.0), put("sm_active_ratio", 0.0)]
SPOKEN = ("power_w", "temp_c", "util_ratio", "sm_clock_mhz", "fb_used_bytes")


def unheld(*change: Change, windows: int = 160, jobs: Any = (None,) * 4, state: Inbound | None = None) -> Played:
    messages = job_samples(JOB, windows=windows, change=[*IDLE, *change])
    for message in messages:
        message.data["job"] = list(jobs)
    told = [state or node_state(NODE, ts_ns=T0, state="idle")]
    return play(DetectStep(), merged(told, messages))


def only_third(value: float, *, since: int = 10, until: int = 1 << 30) -> list[Change]:
    return [put("fb_used_bytes", 6e8), put("fb_used_bytes", value, gpu=3, since=since, until=until)]


def test_memory_without_a_job_is_said_after_ten_minutes_and_is_for_a_person_after_twenty() -> None:
    played = unheld(*only_third(4e9))
    (opened,) = played.opened()
    assert (opened["kind"], opened["entity"]["gpu_index"], opened["advice"]) == ("leftover", 3, "observe")
    assert 580 <= (opened["ts"] - T0) / S - 100 <= 620
    assert "3.7 GiB in use without a job" in opened["summary"]
    person = [f for f in played.of() if f["advice"] == "person"]
    assert (person[0]["ts"] - T0) / S - 100 >= 1180


@pytest.mark.parametrize("value", [6e8, np.nan, 1e18])
def test_what_a_service_keeps_and_what_could_not_be_read_is_none(value: float) -> None:
    assert not unheld(*only_third(value)).findings


def test_memory_of_a_job_is_none() -> None:
    assert not unheld(*only_third(4e9), jobs=(None, None, None, "7")).of("leftover")


def test_an_epilog_has_its_time() -> None:
    assert not unheld(*only_third(4e9, until=60)).findings


@pytest.mark.parametrize("flags", [["DRAIN"], ["MAINTENANCE"]])
def test_a_node_that_someone_works_on_is_not_judged(flags: list[str]) -> None:
    assert not unheld(*only_third(4e9), state=node_state(NODE, ts_ns=T0, state="idle", flags=flags)).findings


def test_a_node_that_slurm_never_spoke_of_is_not_judged() -> None:
    other = node_state("n0099", ts_ns=T0, state="idle")
    assert not unheld(*only_third(4e9), state=other).findings


def test_it_is_over_when_the_memory_is_free() -> None:
    played = unheld(*only_third(4e9, until=90))
    assert [f["close_reason"] for f in played.of(state="closed")] == ["in order again"]


def silent(*, gpu: Any = 3, since: int = 10, until: int = 1 << 30) -> list[Change]:
    return [put(name, np.nan, gpu=gpu, since=since, until=until) for name in SPOKEN]


def test_a_gpu_that_says_nothing_alone_is_a_gap_and_no_verdict() -> None:
    played = play(DetectStep(), job_samples(JOB, windows=60, change=silent()))
    (opened,) = played.opened()
    assert (opened["kind"], opened["cause"], opened["advice"]) == ("gpu_silent", "telemetry_gap", "observe")
    assert 105 <= (opened["ts"] - T0) / S - 100 <= 130


def test_three_missing_samples_are_no_gap() -> None:
    assert not play(DetectStep(), job_samples(JOB, windows=60, change=silent(until=13))).findings


def test_a_node_whose_gpus_are_all_silent_is_another_matter() -> None:
    everyone: Any = slice(None)
    assert not play(DetectStep(), job_samples(JOB, windows=60, change=silent(gpu=everyone))).findings


def test_one_broken_sensor_is_no_silence() -> None:
    assert not play(DetectStep(), job_samples(JOB, windows=60, change=put("power_w", np.nan, gpu=3))).findings


def test_a_lost_gpu_has_a_finding_of_its_own() -> None:
    samples = job_samples(
        JOB, windows=60, change=silent(), states=lambda w, _n: ["ok"] * 3 + ["lost" if w > 9 else "ok"]
    )
    assert play(DetectStep(), samples).kinds() == {"gpu_lost"}


def test_it_is_over_when_the_gpu_answers_again() -> None:
    played = play(DetectStep(), job_samples(JOB, windows=80, change=silent(until=40)))
    (closed,) = played.of(state="closed")
    assert 50 <= (closed["ts"] - T0) / S - 400 <= 80
