"""A GPU that is up but slow is found within a minute, with the right cause, and named in one sentence."""

import re
from itertools import pairwise

import pytest
from samples import (
    DDP_SMALL,
    STAGE_0,
    STAGE_1,
    T0,
    Job,
    S,
    agent_status,
    job_event,
    job_samples,
    kernel_event,
    merged,
    play,
    put,
    scale,
    thermal,
)

from heeler.detect import DetectStep

FAULT = 20  # window in which a fault begins: 200 s


def seconds(ts_ns: int) -> float:
    return (ts_ns - T0) / S


@pytest.mark.parametrize("ratio", [0.8, 0.7, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_a_thermal_slowdown_is_found_within_60_s_with_its_cause(ratio: float, seed: int) -> None:
    job = Job(nodes=16, seed=seed, level=DDP_SMALL)
    fault = thermal(node=seed, gpu=3, ratio=ratio, since=FAULT)
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=32, change=fault)))
    (finding,) = played.opened()
    assert (finding["kind"], finding["cause"]) == ("gpu_lag", "thermal_slowdown")
    assert finding["entity"]["gpu_uuid"] == job.uuid(seed, 3)
    assert seconds(finding["ts"]) - FAULT * 10 <= 60
    assert finding["first_ts"] == T0 + FAULT * 10 * S
    assert finding["advice"] == "observe"
    assert finding["severity"] == "warning"
    assert finding["impact"]["job_slowdown_ratio"] == pytest.approx(1 / ratio, rel=0.03)


def test_the_sentence_says_who_how_much_why_and_which_job() -> None:
    job = Job(nodes=64, level=DDP_SMALL)
    fault = thermal(node=5, gpu=3, ratio=1155 / 1980, since=FAULT)
    messages = merged([job_event(job)], job_samples(job, windows=26, change=fault))
    last = play(DetectStep(), messages).of("gpu_lag")[-1]
    assert re.fullmatch(
        r"GPU 3 \(GPU-00000005…\) on n0005 runs at 1,1\d\d MHz while its 511 peers run at 1,\d\d\d: "
        r"thermal slowdown for \d\d s; job 81234 takes 1\.7 times as long per step\.",
        last["summary"],
    )
    clock = last["evidence"][0]
    assert clock["metric"] == "sm_clock_mhz"
    assert clock["peers"] == 511
    assert clock["deviation_ratio"] == pytest.approx(-0.417, abs=0.01)
    reasons = next(item for item in last["evidence"] if item["metric"] == "clock_event_reasons")
    assert "thermal" in reasons["text"]
    temperature = next(item for item in last["evidence"] if item["metric"] == "temp_c")
    assert "peers_median" not in temperature


def test_a_drain_is_advised_only_after_four_minutes_of_20_percent_with_a_physical_signal() -> None:
    job = Job(nodes=16)
    fault = thermal(node=2, gpu=1, ratio=0.6, since=FAULT)
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=60, change=fault)))
    advised = [f for f in played.of("gpu_lag") if f["advice"] == "drain_after_job"]
    assert 240 <= seconds(advised[0]["ts"]) - FAULT * 10 <= 260
    assert advised[0]["severity"] == "critical"
    assert advised[0]["confidence"] >= 0.9


def test_no_drain_is_advised_below_20_percent() -> None:
    job = Job(nodes=16)
    fault = thermal(node=2, gpu=1, ratio=0.83, since=FAULT)
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=80, change=fault)))
    assert played.opened("gpu_lag")
    assert {f["advice"] for f in played.of()} == {"observe"}


def test_ten_percent_is_nobodys_fault() -> None:
    job = Job(nodes=16)
    fault = thermal(node=2, gpu=1, ratio=0.9, since=FAULT)
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=60, change=fault)))
    assert not played.of("gpu_lag", "job_slow")


def test_clocks_that_were_set_low_are_named_so() -> None:
    job = Job(nodes=8, level=DDP_SMALL)
    changes = [
        put("sm_clock_mhz", 1200.0, node=3, gpu=6, since=FAULT),
        put("clock_event_reasons", 0x2, node=3, gpu=6, since=FAULT),
    ]
    (finding,) = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=30, change=changes))).opened()
    assert finding["cause"] == "clocks_locked"


def test_a_low_clock_without_a_stated_reason_never_advises_a_drain() -> None:
    job = Job(nodes=8, level=DDP_SMALL)
    change = put("sm_clock_mhz", 1200.0, node=3, gpu=6, since=FAULT)
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=80, change=change)))
    (finding,) = played.opened()
    assert finding["cause"] == "low_clock"
    assert {f["advice"] for f in played.of()} == {"observe"}


def test_a_power_limit_below_the_peers_is_no_normal_power_cap() -> None:
    job = Job(nodes=8)
    changes = [
        put("sm_clock_mhz", 1300.0, node=1, gpu=0, since=FAULT),
        put("power_limit_w", 450.0, node=1, gpu=0, since=FAULT),
        put("power_w", 449.0, node=1, gpu=0, since=FAULT),
    ]
    (finding,) = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=30, change=changes))).opened()
    assert finding["cause"] == "power_limit_low"


def test_a_narrow_pcie_link_under_load_is_the_cause_of_gaps_in_the_utilisation() -> None:
    job = Job(nodes=8)
    changes = [
        put("pcie_width", 4, node=1, gpu=2, since=FAULT),
        scale("util_ratio", 0.75, node=1, gpu=2, since=FAULT),
        scale("power_w", 0.8, node=1, gpu=2, since=FAULT),
    ]
    (finding,) = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=30, change=changes))).opened()
    assert finding["cause"] == "pcie_degraded"
    width = next(item for item in finding["evidence"] if item["metric"] == "pcie_width")
    assert (width["value"], width["peers_median"]) == (4, 16)


def test_a_link_stuck_at_a_low_generation_under_load_is_found_without_any_lag() -> None:
    job = Job(nodes=4)
    change = put("pcie_gen", 2, node=1, gpu=2, since=FAULT)
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=80, change=change)))
    (finding,) = played.opened()
    assert (finding["kind"], finding["cause"]) == ("gpu_lag", "pcie_degraded")
    assert finding["confidence"] <= 0.6
    assert {f["advice"] for f in played.of()} == {"observe"}


def test_the_busy_one_among_waiters_is_suspected_not_condemned() -> None:
    """Seven draw 310 W with a third of their SMs active and one 560 W with all of them: it is late."""
    job = Job(nodes=1)
    changes = [
        put("power_w", 310.0, since=FAULT),
        put("sm_active_ratio", 0.35, since=FAULT),
        put("power_w", 560.0, gpu=4, since=FAULT),
        put("sm_active_ratio", 0.9, gpu=4, since=FAULT),
    ]
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=80, change=changes)))
    (finding,) = played.opened()
    assert finding["entity"]["gpu_uuid"] == job.uuid(0, 4)
    assert finding["cause"] == "unknown"
    assert finding["confidence"] <= 0.5
    assert {f["advice"] for f in played.of()} == {"observe"}


def test_a_power_brake_of_a_node_is_one_finding_of_the_node() -> None:
    job = Job(nodes=8, level=DDP_SMALL)
    changes = [
        scale("sm_clock_mhz", 0.5, node=3, since=FAULT),
        put("clock_event_reasons", 0x88, node=3, since=FAULT),
        scale("power_w", 0.45, node=3, since=FAULT),
    ]
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=60, change=changes)))
    (finding,) = played.opened()
    assert (finding["entity"]["type"], finding["node"], finding["cause"]) == ("node", "n0003", "power_brake")
    assert "0, 1, 2, 3, 4, 5, 6, 7" in finding["summary"]
    assert played.of()[-1]["advice"] == "drain_after_job"


def test_half_a_job_that_says_that_it_is_throttled_is_compared_with_the_other_half() -> None:
    job = Job(nodes=2, level=DDP_SMALL)
    changes = [
        scale("sm_clock_mhz", 0.5, node=1, since=FAULT),
        put("clock_event_reasons", 0x80, node=1, since=FAULT),
    ]
    (finding,) = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=40, change=changes))).opened()
    assert (finding["kind"], finding["node"], finding["cause"]) == ("gpu_lag", "n0001", "power_brake")


def test_a_pair_of_gpus_has_no_peers_but_what_they_say_themselves_counts() -> None:
    job = Job(nodes=1, gpus=2, level=DDP_SMALL)
    fault = thermal(node=0, gpu=1, ratio=0.5, since=FAULT)
    (finding,) = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=40, change=fault))).opened()
    assert finding["entity"]["gpu_uuid"] == job.uuid(0, 1)
    assert finding["cause"] == "thermal_slowdown"
    assert finding["confidence"] <= 0.7
    assert "peers" not in finding["summary"]


def test_a_victim_inside_a_pipeline_stage_is_found_among_its_own_stage() -> None:
    job = Job(nodes=4, level=[STAGE_0, STAGE_0, STAGE_1, STAGE_1])
    fault = thermal(node=2, gpu=7, ratio=0.65, since=FAULT)
    (finding,) = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=40, change=fault))).opened()
    assert finding["entity"]["gpu_uuid"] == job.uuid(2, 7)
    assert finding["cause"] == "thermal_slowdown"


def test_a_finding_closes_ten_minutes_after_its_gpu_is_healthy() -> None:
    job = Job(nodes=8)
    fault = thermal(node=1, gpu=3, ratio=0.6, since=FAULT, until=FAULT + 20)
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=110, change=fault)))
    (closed,) = played.of("gpu_lag", state="closed")
    assert 1000 <= seconds(closed["ts"]) <= 1020
    assert closed["close_reason"] == "healthy for 600 s"
    assert closed["id"] == played.opened()[0]["id"]


def test_a_finding_closes_with_its_job() -> None:
    job = Job(nodes=4)
    samples = job_samples(job, windows=40, change=thermal(node=1, gpu=3, ratio=0.6, since=FAULT))
    ended = job_event(job, "ended", ts_ns=samples[-1].ts_ns + S)
    played = play(DetectStep(), merged([job_event(job)], samples, [ended]))
    assert [(f["state"], f["close_reason"]) for f in played.of("gpu_lag", state="closed")] == [
        ("closed", "the job ended")
    ]


def test_a_finding_without_news_of_its_gpu_closes_in_the_end() -> None:
    job = Job(nodes=4)
    samples = job_samples(job, windows=40, change=thermal(node=1, gpu=3, ratio=0.6, since=FAULT))
    played = play(DetectStep(), merged([job_event(job)], samples), until_ns=samples[-1].ts_ns + 700 * S)
    assert played.of("gpu_lag")[-1]["close_reason"] == "no more data"


def test_an_open_finding_is_said_again_at_least_every_minute() -> None:
    job = Job(nodes=4)
    samples = job_samples(job, windows=60, change=thermal(node=1, gpu=3, ratio=0.6, since=FAULT))
    said = [f["ts"] for f in play(DetectStep(), merged([job_event(job)], samples)).of("gpu_lag")]
    assert max(b - a for a, b in pairwise(said)) <= 60 * S


def test_a_gpu_with_a_hard_fault_does_not_lag_as_well() -> None:
    job = Job(nodes=8)
    samples = job_samples(job, windows=50, change=thermal(node=1, gpu=3, ratio=0.6, since=FAULT))
    line = kernel_event(job.node(1), 119, ts_ns=T0 + 300 * S, seq=1, uuid=job.uuid(1, 3), jobs=[job.id])
    played = play(DetectStep(), merged([job_event(job)], samples, [line]))
    (closed,) = played.of("gpu_lag", state="closed")
    assert "hard fault" in closed["close_reason"]
    assert closed["ts"] < T0 + 301 * S
    assert len(played.opened("gpu_lag")) == 1
    assert len(played.opened("xid")) == 1


@pytest.mark.parametrize("named", [True, False])
def test_a_hard_fault_in_the_same_slot_of_another_node_changes_nothing(*, named: bool) -> None:
    job = Job(nodes=8)
    samples = job_samples(job, windows=50, change=thermal(node=1, gpu=3, ratio=0.6, since=FAULT))
    named_by = {"uuid": job.uuid(2, 3)} if named else {}
    line = kernel_event(job.node(2), 119, ts_ns=T0 + 300 * S, seq=1, jobs=[job.id], **named_by)
    played = play(DetectStep(), merged([job_event(job)], samples, [line]))
    assert played.opened("gpu_lag")[0]["entity"]["pci"] == line.data["pci"]
    assert not played.of("gpu_lag", state="closed")
    assert len(played.opened("xid")) == 1


def test_a_requeued_job_of_the_same_id_is_warmed_up_again() -> None:
    job = Job(nodes=4)
    fault = thermal(node=1, gpu=3, ratio=0.6, since=65)
    samples = job_samples(job, windows=120, change=fault)
    again = job_event(job, "started", ts_ns=T0 + 600 * S, start_ts=T0 + 600 * S, restarts=1)
    ended = job_event(job, "ended", ts_ns=T0 + 590 * S)
    (opened,) = play(DetectStep(), merged([job_event(job)], samples, [ended, again])).opened("gpu_lag")
    assert T0 + 900 * S <= opened["ts"] <= T0 + 960 * S


def test_a_node_whose_clock_is_seven_minutes_off_is_judged_like_the_others() -> None:
    job = Job(nodes=4)
    samples = []
    for message in job_samples(job, windows=45, change=thermal(node=1, gpu=3, ratio=0.6, since=FAULT)):
        if message.data["node"] == job.node(1):
            message.data["ts"] += 420 * S
        samples.append(message)
    (opened,) = play(DetectStep(), merged([job_event(job)], samples)).opened("gpu_lag")
    assert opened["node"] == job.node(1)
    assert seconds(opened["ts"]) <= FAULT * 10 + 60


def test_the_agent_of_a_silent_node_does_not_stop_the_judgement_of_the_others() -> None:
    job = Job(nodes=8)
    samples = job_samples(job, windows=45, change=thermal(node=1, gpu=3, ratio=0.6, since=FAULT))
    kept = [m for m in samples if m.data["node"] != job.node(5) or m.ts_ns < T0 + 180 * S]
    alive = [agent_status(job.node(5), ts_ns=T0 + at * S) for at in range(0, 450, 30)]
    (opened,) = play(DetectStep(), merged([job_event(job)], kept, alive)).opened()
    assert seconds(opened["ts"]) <= FAULT * 10 + 60


def test_a_node_that_joins_late_and_reports_last_is_judged_like_the_others() -> None:
    job = Job(nodes=4)
    last = job.node(3)
    samples = job_samples(job, windows=50, change=thermal(node=3, gpu=5, ratio=0.6, since=FAULT), delay_s=1.0)
    joined = [m for m in samples if m.data["node"] != last or m.ts_ns > T0 + 80 * S]
    (opened,) = play(DetectStep(), merged([job_event(job, ts_ns=T0 - 3600 * S)], joined)).opened("gpu_lag")
    assert (opened["entity"]["node"], opened["evidence"][0]["peers"]) == (last, 31)
