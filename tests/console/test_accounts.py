"""GPU time as a budget needs it: nothing counts twice, nothing unknown is idle."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.console.accounts import Loss, Run, Sums, clipped, concerns, loss_of, lost_share, report, run_of

S = 1_000_000_000
H = 3600 * S
T0 = 1_800_000_000 * S

AMOUNTS = st.floats(0, 1e6)
TIMES = st.integers(0, 100).map(lambda hour: T0 + hour * H)


@st.composite
def runs(draw: Any) -> Run:
    start = draw(TIMES)
    end = start + draw(st.integers(0, 50)) * H
    record = {
        "job_id": str(draw(st.integers(1, 9))), "run": str(start // S), "start_ts": start, "end_ts": end, "ts": end,
        "state": draw(st.sampled_from(["COMPLETED", "NODE_FAIL"])), "user": draw(st.sampled_from(["ada", "bob", None])),
        "gpus": draw(st.integers(0, 64)), "elapsed_s": (end - start) / S, "node_count": 2,
    }  # fmt: skip
    summary = None
    if draw(st.booleans()):
        summary = {**record, "until_ts": end, "active_gpu_s": draw(AMOUNTS), "idle_gpu_s": draw(AMOUNTS)}
        summary["busy_gpu_s"] = summary["active_gpu_s"] / 2
    found = run_of(record if draw(st.booleans()) or summary is None else None, summary)
    assert found is not None
    return found


@st.composite
def findings(draw: Any) -> dict[str, Any]:
    first = draw(TIMES)
    return {
        "id": str(draw(st.integers(0, 20))), "kind": draw(st.sampled_from(["hang", "xid", "gpu_lag"])),
        "state": draw(st.sampled_from(["open", "closed"])), "severity": draw(st.sampled_from(["critical", "warning"])),
        "entity": {"type": draw(st.sampled_from(["gpu", "node", "job"]))}, "job_id": str(draw(st.integers(1, 9))),
        "first_ts": first, "ts": first + draw(st.integers(0, 20)) * H,
        "impact": {"job_slowdown_ratio": draw(st.sampled_from([None, 0.9, 1.0, 2.0, 1e9]))},
    }  # fmt: skip


@given(st.lists(runs(), max_size=12), st.lists(findings(), max_size=12), TIMES, TIMES)
def test_allocated_is_active_and_idle_and_unknown_in_every_sum(
    some: list[Run], found: list[dict[str, Any]], since: int, until: int
) -> None:
    told = report("user", some, found, since, until, T0 + 500 * H)
    for sums in (told.total, *told.groups.values(), *(one for _, one in told.runs)):
        assert sums.active_s + sums.idle_s + sums.unknown_s == pytest.approx(sums.allocated_s)
        assert min(sums.active_s, sums.idle_s, sums.unknown_s, sums.lost_s) >= 0
        assert sums.busy_s <= sums.active_s + 1e-6
        assert sums.lost_s <= sums.allocated_s * (1 + 1e-9) + 1e-6
        assert sums.node_fail_s <= sums.allocated_s + 1e-6


@given(st.lists(runs(), max_size=12), st.sampled_from(["job", "user", "account", "partition"]))
def test_groups_and_runs_add_up_to_the_total(some: list[Run], kind: str) -> None:
    told = report(kind, some, [], T0, T0 + 1000 * H, T0)
    for parts in (list(told.groups.values()), [one for _, one in told.runs]):
        for name in ("runs", "allocated_s", "active_s", "idle_s", "unknown_s", "energy_j"):
            assert sum(getattr(one, name) for one in parts) == pytest.approx(getattr(told.total, name))


@given(runs(), st.lists(st.tuples(TIMES, TIMES, st.floats(0, 2)), max_size=5), TIMES)
def test_two_windows_side_by_side_hold_what_one_holds(
    run: Run, spans: list[tuple[int, int, float]], middle: int
) -> None:
    losses = [Loss(min(a, b), max(a, b), share) for a, b, share in spans]
    left, right, whole = (
        clipped(run, since, until, losses)
        for since, until in ((T0, middle), (middle, T0 + 1000 * H), (T0, T0 + 1000 * H))
    )
    left.add(right)
    for name in ("allocated_s", "active_s", "idle_s", "unknown_s", "lost_s"):
        assert getattr(left, name) == pytest.approx(getattr(whole, name), abs=1e-3)


def record(**more: Any) -> dict[str, Any]:
    return {
        "job_id": "7", "run": str(T0 // S), "start_ts": T0, "end_ts": T0 + 10 * H, "ts": T0 + 11 * H, "gpus": 8,
        "elapsed_s": 36_000.0, "state": "COMPLETED", "user": "ada", "node_count": 2, **more,
    }  # fmt: skip


def summary(**more: Any) -> dict[str, Any]:
    return {"job_id": "7", "run": str(T0 // S), "start_ts": T0, "end_ts": T0 + 10 * H, "until_ts": T0 + 10 * H,
            "active_gpu_s": 200_000.0, "idle_gpu_s": 40_000.0, "energy_j": 1e8, "energy_gpu_s": 240_000.0,
            **more}  # fmt: skip


def only(*args: Any) -> Run:
    found = run_of(*args)
    assert found is not None
    return found


def test_what_only_accounting_knows_is_unknown_and_not_idle() -> None:
    sums = clipped(only(record(), None), 0, T0 + 100 * H)
    assert (sums.allocated_s, sums.idle_s, sums.unknown_s) == (288_000.0, 0.0, 288_000.0)
    assert sums.as_json()["energy_kwh"] is None


def test_the_parts_of_a_resized_run_do_not_overlap() -> None:
    first = record(run=f"{T0 // S}r1", end_ts=T0 + 4 * H, elapsed_s=4 * 3600.0, state="RESIZING")
    last = record(part_start_ts=T0 + 4 * H, elapsed_s=6 * 3600.0, gpus=2)
    whole = [clipped(only(one, None), 0, T0 + 100 * H) for one in (first, last)]
    assert [one.allocated_s for one in whole] == [8 * 4 * 3600.0, 2 * 6 * 3600.0]
    early = [clipped(only(one, None), 0, T0 + 2 * H) for one in (first, last)]
    assert [one.allocated_s for one in early] == [8 * 2 * 3600.0, 0.0]


def test_accounting_says_what_was_allocated_and_samples_what_was_done() -> None:
    sums = clipped(only(record(), summary(allocated_gpu_s=280_000.0)), 0, T0 + 100 * H)
    assert (sums.allocated_s, sums.active_s, sums.idle_s, sums.unknown_s) == (288_000.0, 200_000.0, 40_000.0, 48_000.0)


def test_more_observed_than_allocated_keeps_its_proportion() -> None:
    run = only(record(gpus=4), summary())
    assert (run.active_s, run.idle_s) == (120_000.0, 24_000.0)


def test_a_site_that_does_not_account_for_gpus_has_them_from_the_feed() -> None:
    assert only(record(gpus=0), summary(allocated_gpu_s=280_000.0, gpus=8)).allocated_s == 280_000.0
    assert only(record(gpus=0), None).allocated_s == 0.0
    bare = record()
    del bare["gpus"]
    unknown = clipped(only(bare, None), 0, T0 + 100 * H)
    assert (unknown.runs, unknown.runs_unknown, unknown.allocated_s) == (1, 1, 0.0)


def test_time_suspended_is_not_allocated() -> None:
    assert only(record(elapsed_s=18_000.0), None).allocated_s == 8 * 18_000.0


def test_a_run_that_goes_on_counts_up_to_when_something_is_known_of_it() -> None:
    going = record(state="RUNNING", ts=T0 + 2 * H)
    del going["end_ts"]
    assert only(going, None).allocated_s == 8 * 7200.0
    later = summary(until_ts=T0 + 3 * H)
    del later["end_ts"]
    assert only(going, later).allocated_s == 8 * 3 * 3600.0


def test_a_job_that_never_started_is_no_run() -> None:
    assert run_of({"job_id": "7", "run": "s1", "state": "CANCELLED"}, None) is None


def finding(**more: Any) -> dict[str, Any]:
    return {
        "id": "f1", "kind": "xid", "state": "closed", "severity": "critical", "entity": {"type": "gpu"}, "job_id": "7",
        "first_ts": T0 + 2 * H, "ts": T0 + 4 * H, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "gpu_hours"),
    [
        ({}, 2.0),
        ({"entity": {"type": "node"}}, 8.0),
        ({"kind": "hang", "severity": "warning", "entity": {"type": "job"}}, 16.0),
        ({"kind": "gpu_lag", "severity": "warning", "impact": {"job_slowdown_ratio": 1.6}}, 6.0),
        ({"kind": "gpu_lag", "severity": "warning", "impact": {"job_slowdown_ratio": None}}, 0.0),
        ({"severity": "warning"}, 0.0),
        ({"entity": {"type": "switch"}}, 0.0),
        ({"state": "open", "ts": T0 + 3 * H, "kind": "hang"}, 64.0),
        ({"job_id": "8"}, 0.0),
        ({"job_id": None, "jobs": ["7", "8"]}, 2.0),
        ({"first_ts": T0 + 20 * H, "ts": T0 + 21 * H}, 0.0),
    ],
)
def test_what_a_fault_took_at_least(more: dict[str, Any], gpu_hours: float) -> None:
    told = report("user", [only(record(), None)], [finding(**more)], 0, T0 + 100 * H, T0 + 50 * H)
    assert told.total.lost_s / 3600 == pytest.approx(gpu_hours)


def test_faults_at_the_same_time_do_not_take_the_same_hours_twice() -> None:
    run = only(record(), None)
    losses = [Loss(T0, T0 + 4 * H, 0.25), Loss(T0 + 2 * H, T0 + 6 * H, 0.5), Loss(T0 + 3 * H, T0 + 4 * H, 0.125)]
    assert lost_share(run, losses, T0, T0 + 10 * H) == pytest.approx((2 * 0.25 + 4 * 0.5) / 10)


def test_a_finding_counts_once_in_a_sum_however_many_runs_it_touches() -> None:
    some = [only(record(), None), only(record(run="2", start_ts=T0 + H), None)]
    told = report("user", some, [finding()], 0, T0 + 100 * H, T0 + 50 * H)
    assert told.total.findings == {"critical": 1}
    assert told.groups["ada"].findings == {"critical": 1}
    assert [sums.findings for _, sums in told.runs] == [{"critical": 1}] * 2


def test_a_finding_of_another_cluster_is_about_another_job() -> None:
    run = only(record(cluster="north"), None)
    assert concerns(finding(cluster="north"), run)
    assert not concerns(finding(cluster="south"), run)


def test_a_run_that_a_node_ended_is_told_as_such() -> None:
    sums = clipped(only(record(state="NODE_FAIL"), None), 0, T0 + 100 * H)
    assert (sums.node_fail_runs, sums.node_fail_s) == (1, 288_000.0)


def test_only_the_part_in_the_window_counts() -> None:
    run = only(record(), summary())
    half = clipped(run, T0 + 5 * H, T0 + 100 * H)
    assert (half.allocated_s, half.active_s, half.energy_j) == (144_000.0, 100_000.0, 5e7)
    assert clipped(run, T0 + 10 * H, T0 + 100 * H) == Sums()
    assert not concerns(finding(first_ts=T0 + 11 * H, ts=T0 + 12 * H), run)
    assert loss_of(finding(), replace(run, gpus=None), T0) is None
