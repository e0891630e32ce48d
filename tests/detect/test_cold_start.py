"""A cold start that reads back a rule's memory says what a warm instance says, from then on, to the letter."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from samples import (
    DDP,
    DDP_SMALL,
    T0,
    Columns,
    Inbound,
    Job,
    Player,
    S,
    agent_status,
    cold_twin,
    ib_sample,
    inventory,
    job_event,
    job_samples,
    kernel_event,
    merged,
    node_state,
    put,
    stands,
    thermal,
)

from heeler.detect import DetectStep, Thresholds
from heeler.detect.thresholds import FindingThresholds, IbThresholds, LagThresholds, RailThresholds

JOB = Job(nodes=4, level=DDP)
SHORT = Thresholds(
    finding=FindingThresholds(reconfirm_s=30.0, tick_s=5.0),
    lag=LagThresholds(
        warmup_s=60.0,
        restart_idle_s=40.0,
        trailing_s=120.0,
        drain_after_s=80.0,
        clear_after_s=100.0,
        grace_s=3.0,
        late_s=10.0,
    ),
    ib=IbThresholds(flap_span_s=200.0, flap_clear_s=200.0, down_job_s=20.0, down_drain_s=60.0),
)


def differences(messages: list[Inbound], thresholds: Thresholds, cuts: range) -> list[str]:
    """Return where a cold start would say anything else, for starts at some seconds after T0."""
    player = Player(DetectStep(thresholds)).feed(messages)
    player.advance(messages[-1].ts_ns + 60 * S)
    warm = player.played
    assert warm.findings, "a test without findings shows nothing"
    found = []
    for cut in cuts:
        at_ns = T0 + cut * S
        said = cold_twin(DetectStep(thresholds), messages, warm, at_ns)
        last = messages[-1].ts_ns
        expected = [f.data for f in warm.findings if at_ns < f.data["ts"] <= last]
        said = [f for f in said if f["ts"] <= last]
        if said != expected:
            pairs = [(a, b) for a, b in zip(said, expected, strict=False) if a != b]
            where = pairs[0] if pairs else (len(said), len(expected))
            found.append(f"start at {cut} s: {where}")
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_lag_that_comes_and_goes(seed: int) -> None:
    job = Job(nodes=4, seed=seed)
    change = [
        thermal(node=1, gpu=3, ratio=0.6, since=40, until=70),
        thermal(node=2, gpu=5, ratio=0.7, since=100 + seed, until=130),
    ]
    messages = merged([job_event(job, ts_ns=T0 - 3600 * S)], job_samples(job, windows=170, change=change))
    assert not differences(messages, SHORT, range(SHORT_MEMORY, 1700, 73))


def test_a_throttled_job_as_a_whole() -> None:
    change = [put("clock_event_reasons", 0x60, since=50, until=90), put("sm_clock_mhz", 1100.0, since=50, until=90)]
    messages = merged([job_event(JOB, ts_ns=T0 - 3600 * S)], job_samples(JOB, windows=150, change=change))
    assert not differences(messages, SHORT, range(SHORT_MEMORY, 1500, 91))


def test_a_job_whose_start_nobody_said() -> None:
    messages = job_samples(JOB, windows=160, change=thermal(node=0, gpu=0, ratio=0.6, since=90, until=110))
    assert not differences(messages, SHORT, range(SHORT_MEMORY, 1500, 97))


def test_xids_of_all_classes_and_an_operator_who_resumes() -> None:
    uuid, node = JOB.uuid(0, 3), JOB.node(0)
    told: dict[str, Any] = {"uuid": uuid, "jobs": [JOB.id]}
    lines = [
        kernel_event(node, 31, ts_ns=T0 + 100 * S, seq=1, **told),
        kernel_event(node, 63, ts_ns=T0 + 300 * S, seq=2, **told),
        kernel_event(node, 48, ts_ns=T0 + 310 * S, seq=3, **told),
        kernel_event(node, 45, ts_ns=T0 + 311 * S, seq=4, **told),
        kernel_event(node, 45, ts_ns=T0 + 500 * S, seq=5, **told),
        kernel_event(node, 109, ts_ns=T0 + 1500 * S, seq=6, **told),
        kernel_event(node, 109, ts_ns=T0 + 1700 * S, seq=7, **told),
        kernel_event(node, 109, ts_ns=T0 + 1900 * S, seq=8, **told),
    ]
    states = [
        node_state(node, ts_ns=T0),
        node_state(node, ts_ns=T0 + 400 * S, flags=["DRAIN"]),
        node_state(node, ts_ns=T0 + 900 * S),
    ]
    alive = [agent_status(node, ts_ns=T0 + at * S) for at in range(0, 3600, 30)]
    messages = merged([inventory(JOB, 0)], lines, states, alive)
    assert not differences(messages, SHORT, range(50, 3600, 119))


def test_ports_that_flap_and_stay_down() -> None:
    node = JOB.node(0)
    samples = []
    for at in range(120):
        flaps = 1 + sum(at >= k for k in (20, 24, 29, 60))
        down = 70 <= at < 85
        ports: list[dict[str, Any]] = [
            {"counters": {"link_downed": flaps}},
            {"state": "down" if down else "active"},
            {"state": "down"},
        ]
        samples.append(ib_sample(node, ports, ts_ns=T0 + (at + 1) * 10 * S, seq=at))
    messages = merged([job_event(JOB, ts_ns=T0 - S)], samples)
    assert not differences(messages, SHORT, range(15, 1200, 57))


def test_agents_that_fall_silent() -> None:
    lines = [
        agent_status(f"n{n:04d}", ts_ns=T0 + k * 30 * S + n * S)
        for k in range(60)
        for n in range(12)
        if not (n == 2 and 10 < k < 30) and not (n > 3 and 40 < k < 50)
    ]
    messages = merged(lines)
    assert not differences(messages, SHORT, range(400, 1700, 61))


def test_a_finding_is_closed_though_it_was_resolved_while_nobody_looked() -> None:
    messages = merged(
        [job_event(JOB, ts_ns=T0 - 3600 * S)],
        job_samples(JOB, windows=60, change=thermal(node=1, gpu=3, ratio=0.6, since=40)),
    )
    warm = Player(DetectStep(SHORT)).feed(messages).played
    (opened,) = warm.opened("gpu_lag")
    ended = job_event(JOB, "ended", ts_ns=messages[-1].ts_ns + 100 * S)
    late = messages[-1].ts_ns + 3600 * S

    again = Player(DetectStep(SHORT))
    again.keyed.now_ns = late - int(SHORT.lag.memory_s * S)
    again.feed([warm.findings[-1], ended], context=True).advance(late)

    assert [(f["id"], f["state"]) for f in again.played.of()][-1] == (opened["id"], "closed")


def test_a_hard_fault_is_closed_by_a_reboot_that_nobody_saw() -> None:
    node = JOB.node(0)
    line = kernel_event(node, 79, ts_ns=T0 + S, seq=1, uuid=JOB.uuid(0, 3), gpu_state="lost")
    warm = Player(DetectStep()).feed([inventory(JOB, 0), line]).played
    again = Player(DetectStep())
    again.keyed.now_ns = T0 + 7200 * S
    again.feed([agent_status(node, ts_ns=T0 + 7000 * S, boot="another"), warm.findings[-1]], context=True)
    assert [f["state"] for f in again.played.of("xid")] == ["closed"]
    assert again.played.of("xid")[0]["id"] == warm.opened("xid")[0]["id"]


SHORT_MEMORY = int(SHORT.lag.memory_s) + 5


def test_errors_that_two_witnesses_sent_apart() -> None:
    node, uuid = JOB.node(0), JOB.uuid(0, 3)

    def word(at_s: float, *, nvml: bool) -> Inbound:
        seq = (1 << 62) + int(at_s * 1e6) if nvml else int(at_s)
        witness = ["nvml"] if nvml else ["kmsg"]
        ts_ns = T0 + int(at_s * S)
        return kernel_event(node, 31, ts_ns=ts_ns, seq=seq, uuid=uuid, witness=witness, jobs=[JOB.id])

    words = [(10.0, False), (12.0, True), (13.0, False), (16.0, True), (40.0, True), (43.0, False), (300.0, False)]
    messages = merged([inventory(JOB, 0)], [word(at_s, nvml=nvml) for at_s, nvml in words])
    player = Player(DetectStep(SHORT)).feed(messages).advance(T0 + 400 * S)
    (finding,) = player.played.last().values()
    assert finding["evidence"][0]["count"] == 4
    assert not differences(messages, SHORT, range(9, 60, 1))


@pytest.mark.parametrize("spins", [True, False])
def test_a_job_that_hangs_and_works_again(spins: bool) -> None:
    change = [stands(since=90, until=170, spins=spins), put("fb_used_bytes", 6e10, since=200)]
    messages = merged([job_event(JOB, ts_ns=T0 - 3600 * S)], job_samples(JOB, windows=210, change=change))
    assert not differences(messages, SHORT, range(10, 2100, 83))


def test_memory_that_fails_step_by_step_and_is_reset() -> None:
    def change(window: int, c: Columns) -> None:
        for name, since, until in (
            ("remap_pending", 20, 90),
            ("remap_failed", 40, 60),
            ("retired_pages_pending", 0, 0),
        ):
            c.setdefault(name, np.zeros(c["power_w"].shape))
            c[name][0, 3] = float(since <= window < until)
        c["ecc_uncorrected_volatile"][0, 3] = 2.0 * (15 <= window < 95)
        c["ecc_uncorrected_volatile"][0, 5] = 1.0 * (window >= 100)

    lines = [kernel_event(JOB.node(0), 63, ts_ns=T0 + 205 * S, seq=1, uuid=JOB.uuid(0, 3), jobs=[JOB.id])]
    messages = merged([inventory(JOB, 0)], job_samples(Job(nodes=1), windows=140, change=change), lines)
    assert not differences(messages, SHORT, range(10, 1400, 67))


def test_gpus_that_slow_down_and_links_that_fail() -> None:
    job = Job(nodes=1, gpus=4, level=DDP_SMALL)

    def change(window: int, c: Columns) -> None:
        c["clock_event_reasons"][0, 1] = 0x40 * (20 <= window < 60)
        c["clock_event_reasons"][0, 2] = 0x20 * (50 <= window < 90)
        c["pcie_width"][0, 3] = 4.0 if 30 <= window < 70 else 16.0
        c["nvlink_recovery_errors"][0, 0] = max(0.0, min(window, 100) - 80)

    messages = merged([job_event(job, ts_ns=T0 - 3600 * S)], job_samples(job, windows=180, change=change))
    assert not differences(messages, SHORT, range(10, 1800, 53))


def test_gpus_that_are_missing_and_come_back() -> None:
    job = Job(nodes=1)
    messages = []
    for window, m in enumerate(job_samples(job, windows=200)):
        gone = (20 <= window < 70) * [3] + (50 <= window < 110) * [6]
        kept = [gpu for gpu in range(8) if gpu not in gone]
        groups = {g: {n: [c[at] for at in kept] for n, c in m.data[g].items()} for g in ("gpu", "mean", "last")}
        lists: dict[str, Any] = {
            name: [m.data[name][at] for at in kept] for name in ("job", "job_source", "state") if name in m.data
        }
        messages.append(replace(m, data={**m.data, **groups, **lists}))
    states = [
        node_state(job.node(0), ts_ns=T0, gpus_total=8),
        node_state(job.node(0), ts_ns=T0 + 900 * S, gpus_total=8, flags=["DRAIN"]),
        node_state(job.node(0), ts_ns=T0 + 950 * S, gpus_total=8),
    ]
    assert not differences(merged([inventory(job, 0)], states, messages), SHORT, range(10, 2000, 61))


def test_ports_whose_rate_falls_and_rails_that_carry_little() -> None:
    job = Job(nodes=4)
    total = np.zeros((4, 4))
    samples = []
    for at in range(240):
        for node in range(4):
            total[node] += 2e10 * np.where((np.arange(4) == 2) & (node == 1) & (30 <= at < 120), 0.3, 1.0)
            slow = node == 3 and 60 <= at < 110
            ports: list[dict[str, Any]] = [
                {
                    "rate_gbps": 200.0 if slow and rail == 0 else 400.0,
                    "counters": {"port_xmit_data": int(total[node, rail]), "port_rcv_data": 0},
                }
                for rail in range(4)
            ]
            samples.append(ib_sample(job.node(node), ports, ts_ns=T0 + (at + 1) * 10 * S + node, seq=at))
    messages = merged([job_event(job, ts_ns=T0 - S)], samples)
    thresholds = replace(SHORT, rail=RailThresholds(slow_after_s=120.0, clear_s=120.0, after_s=60.0))
    warm = Player(DetectStep(thresholds)).feed(messages).played
    assert warm.kinds() == {"rail_slow", "rail_degraded"}
    assert not differences(messages, thresholds, range(10, 2400, 97))
