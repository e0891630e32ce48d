"""Laws that hold whatever comes: twins, order within a window, absent readings, and hostile values change nothing."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import (
    CLUSTER,
    T0,
    Columns,
    Inbound,
    Job,
    S,
    job_event,
    job_samples,
    kernel_event,
    merged,
    play,
    thermal,
)

from heeler.bus import ROUTES
from heeler.detect import DetectStep
from heeler.detect.step import JobKey
from heeler.engine import Keyed

JOB = Job(nodes=6, gpus=4)
FAULT = thermal(node=2, gpu=1, ratio=0.6, since=5)
SAMPLES = job_samples(JOB, windows=22, change=FAULT)
HEALTHY = job_samples(JOB, windows=22)
START = job_event(JOB)
EXPECTED = play(DetectStep(), merged([START], SAMPLES)).of()
NAMES = ("power_w", "sm_clock_mhz", "sm_active_ratio", "tensor_active_ratio", "util_ratio", "clock_event_reasons")
LAWS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_there_is_something_to_keep() -> None:
    assert EXPECTED[0]["state"] == "open"


@LAWS
@given(st.lists(st.tuples(st.integers(0, len(SAMPLES) - 1), st.integers(0, 40)), max_size=60))
def test_redelivery_changes_nothing(again: list[tuple[int, int]]) -> None:
    """A message comes again, at once or much later, with the server's stamp of its first time."""
    messages = list(enumerate(SAMPLES))
    twins = [(min(at + after, len(SAMPLES) - 1) + 0.5, SAMPLES[at]) for at, after in again]
    mixed = [m for _, m in sorted([*messages, *twins], key=lambda item: item[0])]
    assert play(DetectStep(), [START, *mixed]).of() == EXPECTED


@LAWS
@given(st.lists(st.integers(0, len(SAMPLES) - 1), max_size=40), st.integers(1, 20 * S))
def test_a_twin_published_again_changes_nothing(again: list[int], later_ns: int) -> None:
    """The agent sends a sample twice: the server stamps it anew."""
    twins = [replace(SAMPLES[at], ts_ns=SAMPLES[at].ts_ns + later_ns) for at in again]
    last = SAMPLES[-1].ts_ns
    assert play(DetectStep(), merged([START], SAMPLES, [t for t in twins if t.ts_ns < last])).of() == EXPECTED


@LAWS
@given(st.randoms(use_true_random=False))
def test_the_order_of_nodes_within_a_window_changes_nothing(rng: random.Random) -> None:
    shuffled: list[Inbound] = []
    for window in range(22):
        batch = SAMPLES[window * JOB.nodes : (window + 1) * JOB.nodes]
        stamps = [m.ts_ns for m in batch]
        rng.shuffle(batch)
        shuffled += [replace(m, ts_ns=ts) for m, ts in zip(batch, stamps, strict=True)]
    assert play(DetectStep(), [START, *shuffled]).of() == EXPECTED


@LAWS
@given(st.sets(st.tuples(st.integers(0, 21), st.integers(0, 5), st.integers(0, 3), st.sampled_from(NAMES))))
def test_absent_readings_never_make_a_finding(gone: set[tuple[int, int, int, str]]) -> None:
    def change(window: int, c: Columns) -> None:
        for at, node, gpu, name in gone:
            if at == window:
                c[name][node, gpu] = np.nan

    assert not play(DetectStep(), merged([START], job_samples(JOB, windows=22, change=change))).findings


@LAWS
@given(st.sets(st.tuples(st.integers(0, 21), st.integers(0, 5))), st.sets(st.sampled_from(NAMES)))
def test_lost_samples_and_absent_columns_never_make_a_finding(lost: set[tuple[int, int]], columns: set[str]) -> None:
    kept = []
    for message in job_samples(JOB, windows=22):
        window = (message.data["ts"] - T0) // (10 * S) - 1
        if (window, int(message.data["node"][1:])) in lost:
            continue
        for name in columns:
            message.data["mean"].pop(name, None)
            message.data["last"].pop(name, None)
        kept.append(message)
    assert not play(DetectStep(), [START, *kept]).of("gpu_lag", "job_slow")


@LAWS
@given(st.lists(st.tuples(st.integers(0, len(HEALTHY) - 1), st.integers(-(1 << 62), 1 << 62)), max_size=40))
def test_samples_with_any_time_never_make_a_finding(wild: list[tuple[int, int]]) -> None:
    sick = job_samples(JOB, windows=22, change=thermal(node=2, gpu=1, ratio=0.5))
    odd = [replace(sick[at], data={**sick[at].data, "ts": max(0, T0 + shift)}) for at, shift in wild]
    far = [m for m in odd if abs(m.data["ts"] - m.ts_ns) > 60 * S]
    # Two that are wrong by the same amount are a wrong clock, and count: here each is wrong in its own way.
    lags = {(m.ts_ns - m.data["ts"]) // (8 * S): m for m in far}
    assert not play(DetectStep(), merged([START], HEALTHY, lags.values())).of("gpu_lag", "job_slow")


@LAWS
@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0, 3000), st.booleans()), min_size=1, max_size=40))
def test_kernel_lines_of_any_code_in_any_order_never_break_and_soft_ones_never_drain(
    told: list[tuple[int, float, bool]],
) -> None:
    lines = [
        kernel_event("n0000", code, ts_ns=T0 + int(at * S), seq=seq, trusted=trusted, jobs=["1"])
        for seq, (code, at, trusted) in enumerate(told)
    ]
    table = DetectStep().table
    said = play(DetectStep(), merged(lines)).of("xid")
    for finding in said:
        if finding["advice"] in ("drain_now", "drain_after_job"):
            row = table.row("xid", finding["code"])
            assert row is not None
            assert row.drain in ("yes", "pending", "repeat")
            assert finding["entity"].get("test") is None


def test_memory_is_bounded_and_ended_jobs_are_forgotten() -> None:
    keyed = Keyed(DetectStep())
    for number in range(40):
        job = Job(id=str(number), nodes=1, gpus=2)
        messages = job_samples(job, windows=2)
        shift = number * 30 * S
        for message in [*messages, job_event(job, "ended", ts_ns=messages[-1].ts_ns)]:
            data = {**message.data, "ts": message.data["ts"] + shift}
            list(keyed.on(replace(message, ts_ns=message.ts_ns + shift, data=data)))
    list(keyed.advance(keyed.now_ns + 1300 * S))
    assert not [key for key in keyed.states if key.startswith("job:")]


def test_windows_of_a_job_are_a_ring() -> None:
    keyed = Keyed(DetectStep())
    sizes = []
    for message in job_samples(JOB, windows=80):
        list(keyed.on(message))
        state = keyed.states[f"job:{JOB.id}"]
        assert isinstance(state, JobKey)
        sizes.append((state.lag.windows.ring.nbytes, state.lag.history.bits.nbytes, len(state.lag.windows.open)))
    assert sizes[-1][:2] == sizes[len(sizes) // 2][:2]
    assert max(size[2] for size in sizes) <= 4
    assert len(state.lag.levels) <= 61


@pytest.mark.parametrize("job_id", ["a.b", "x>y", "job with space", "ü", "*"])
def test_a_job_of_any_name_makes_good_subjects(job_id: str) -> None:
    job = Job(id=job_id, nodes=6, gpus=4)
    played = play(DetectStep(), merged([job_event(job)], job_samples(job, windows=12, change=FAULT)))
    (opened,) = played.findings[:1]
    assert opened.subject.startswith(f"heeler.v1.{CLUSTER}.finding.gpu_lag.n0002.gpu_lag-")
    assert opened.data["jobs"] == [job_id]


def test_every_input_is_a_message_of_the_contract() -> None:
    for source in DetectStep.inputs:
        assert source.kind in ROUTES
        assert source.mode == "work" or ROUTES[source.kind].last or ROUTES[source.kind].stream == "AGENTS"


def test_what_is_not_ours_to_read_is_left_alone() -> None:
    step = DetectStep()
    other = {"v": 1, "cluster": CLUSTER, "kind": "lemon", "id": "x", "entity": {"type": "node", "node": "n1"}}
    message = Inbound("Finding", "heeler.v1.test.finding.lemon.n1.x", other, T0)
    assert list(step.keys(message)) == []


def test_the_step_says_the_same_twice() -> None:
    def once() -> list[tuple[str, Any]]:
        keyed = Keyed(DetectStep())
        return [(e.id, e.data) for m in [START, *SAMPLES] for _, e in keyed.on(m)]

    assert once() == once()
