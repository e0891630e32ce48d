"""GPUs that a node should have and of which no sample has a row."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from samples import (
    T0,
    Inbound,
    Job,
    Played,
    S,
    inbound,
    inventory,
    job_event,
    job_samples,
    kernel_event,
    merged,
    node_state,
    play,
)

from heeler.detect import DetectStep

JOB = Job(nodes=1, gpus=8)
NODE = JOB.node(0)
ALL = range(8)


def rows(message: Inbound, kept: Iterable[int]) -> Inbound:
    """The same sample with some of its rows only."""
    at, data = list(kept), message.data

    def cut(columns: dict[str, Any]) -> dict[str, Any]:
        return {name: [column[row] for row in at] for name, column in columns.items()}

    lists: dict[str, Any] = {
        name: [data[name][row] for row in at] for name in ("job", "job_source", "state") if name in data
    }
    groups = {name: cut(data[name]) for name in ("gpu", "mean", "last")}
    return replace(message, data={**data, **groups, **lists})


def samples(kept: Callable[[int], Iterable[int]], windows: int = 60) -> list[Inbound]:
    return [rows(m, kept(at)) for at, m in enumerate(job_samples(JOB, windows=windows))]


def told_inventory(gpus: Iterable[int] = ALL, at_s: float = 0.0, **more: Any) -> Inbound:
    whole = inventory(JOB, 0, ts_ns=T0 + int(at_s * S)).data
    named = [{**gpu, **more} for gpu in whole["gpus"] if gpu["index"] in set(gpus)]
    return inbound("Inventory", f"heeler.v1.test.agent.inventory.{NODE}", {**whole, "gpus": named}, T0 + int(at_s * S))


def without(*gone: int, since: int = 10, until: int = 1 << 30) -> Callable[[int], list[int]]:
    return lambda window: [gpu for gpu in ALL if gpu not in gone or not since <= window < until]


def run(*streams: Iterable[Inbound]) -> Played:
    return play(DetectStep(), merged(*streams))


def slurm(gpus: int = 8, at_s: float = 0.0, **more: Any) -> Inbound:
    return node_state(NODE, ts_ns=T0 + int(at_s * S), gpus_total=gpus, **more)


def test_seven_rows_of_eight_are_a_finding_that_names_the_eighth() -> None:
    played = run([told_inventory(), job_event(JOB)], samples(without(5)))
    (opened,) = played.opened()
    assert (opened["kind"], opened["cause"], opened["advice"]) == ("gpu_missing", "row_missing", "observe")
    assert (opened["entity"]["gpu_uuid"], opened["entity"]["gpu_index"]) == (JOB.uuid(0, 5), 5)
    assert "7 of 8 GPUs are there, without GPU 5" in opened["summary"]
    assert 110 <= (opened["ts"] - T0) / S - 110 <= 140
    assert opened["jobs"] == [JOB.id]


def test_the_next_job_would_be_given_it_so_a_drain_is_advised_after_ten_minutes() -> None:
    played = run([told_inventory()], samples(without(5), windows=90))
    (first,) = [f for f in played.of() if f["advice"] == "drain_after_job"][:1]
    assert 590 <= (first["ts"] - T0) / S - 110 <= 620


def test_a_gpu_that_fell_off_before_the_agent_began_is_missed_by_what_slurm_counts() -> None:
    played = run([told_inventory(range(7)), slurm(8)], samples(lambda _w: range(7)))
    (opened,) = played.opened()
    assert (opened["kind"], opened["cause"]) == ("gpu_missing", "fewer_than_slurm")
    assert "gpu_uuid" not in opened["entity"]


def test_an_inventory_that_shrinks_does_not_make_the_gpu_forgotten() -> None:
    played = run([told_inventory(), told_inventory(range(7), 105.0)], samples(without(7)))
    (opened,) = played.opened()
    assert opened["entity"]["gpu_index"] == 7


@pytest.mark.parametrize("state", ["lost", "hung"])
def test_a_gpu_that_does_not_answer_has_a_row_and_another_finding(state: str) -> None:
    messages = job_samples(JOB, windows=60, states=lambda w, _n: ["ok"] * 7 + [state if w > 9 else "ok"])
    assert run([told_inventory()], messages).kinds() == {"gpu_lost"}


def test_a_gpu_of_which_the_kernel_said_that_it_is_gone_is_said_once() -> None:
    line = kernel_event(NODE, 79, ts_ns=T0 + 105 * S, seq=1, uuid=JOB.uuid(0, 5), gpu_state="lost", jobs=[JOB.id])
    assert run([told_inventory(), line], samples(without(5))).kinds() == {"xid"}


def test_two_that_are_missing_and_one_of_them_told_leave_one() -> None:
    line = kernel_event(NODE, 79, ts_ns=T0 + 105 * S, seq=1, uuid=JOB.uuid(0, 5), gpu_state="lost", jobs=[JOB.id])
    (opened,) = run([told_inventory(), line], samples(without(5, 6))).opened("gpu_missing")
    assert opened["entity"]["missing"] == [JOB.uuid(0, 6)]


def test_some_missing_windows_are_none() -> None:
    assert not run([told_inventory()], samples(without(5, until=20))).findings


def test_rows_of_two_jobs_come_in_two_messages_and_nothing_is_missing() -> None:
    both = [rows(m, part) for m in job_samples(JOB, windows=60) for part in (range(4), range(4, 8))]
    spread = [replace(m, ts_ns=m.ts_ns + at % 2) for at, m in enumerate(both)]
    assert not run([told_inventory(), slurm(8)], spread).findings


def test_the_one_gpu_of_a_job_that_goes_silent_alone_is_missing() -> None:
    parts = [
        rows(m, part)
        for window, m in enumerate(job_samples(JOB, windows=60))
        for part in (range(7), range(7, 8))
        if window < 10 or len(part) > 1
    ]
    spread = [replace(m, ts_ns=m.ts_ns + at) for at, m in enumerate(parts)]
    (opened,) = run([told_inventory()], spread).opened()
    assert opened["entity"]["gpu_index"] == 7


def test_how_rows_are_split_may_change_at_any_time() -> None:
    parts: list[Inbound] = []
    for window, m in enumerate(job_samples(JOB, windows=80)):
        cut = (window // 5) % 8
        parts += [replace(rows(m, part), ts_ns=m.ts_ns + at) for at, part in enumerate((ALL[:cut], ALL[cut:])) if part]
    assert not run([told_inventory(), slurm(8)], parts).findings


def test_mig_devices_are_no_gpus_and_slurm_counts_them_otherwise() -> None:
    divided = told_inventory(mig=True)
    assert not run([divided, slurm(56)], job_samples(JOB, windows=60)).findings


def test_a_node_without_an_inventory_or_slurm_misses_nothing() -> None:
    assert not run(samples(without(5))).findings


def test_slurm_that_counts_on_fewer_is_no_matter() -> None:
    assert not run([told_inventory(), slurm(4)], job_samples(JOB, windows=60)).findings


@pytest.mark.parametrize("flags", [["DRAIN"], ["MAINTENANCE"]])
def test_a_node_that_someone_works_on_is_not_judged(flags: list[str]) -> None:
    assert not run([told_inventory(), slurm(flags=flags)], samples(without(5))).findings


def test_a_driver_that_is_unloaded_for_some_minutes_is_none() -> None:
    assert not run([told_inventory()], samples(without(*ALL, until=50), windows=70)).findings


def test_a_node_that_has_no_gpu_left_for_long_is_said_without_advice_to_drain() -> None:
    played = run([told_inventory()], samples(without(*ALL), windows=160))
    assert played.opened()[0]["cause"] == "all_missing"
    assert {f["advice"] for f in played.of()} == {"observe"}


def test_it_is_over_when_all_are_there_again() -> None:
    played = run([told_inventory()], samples(without(5, until=40), windows=60))
    assert [f["close_reason"] for f in played.of(state="closed")] == ["all GPUs are there again"]


def test_an_operator_who_resumes_the_node_puts_up_with_what_is_missing_and_not_with_more() -> None:
    states = [slurm(7), slurm(7, 300, flags=["DRAIN"]), slurm(7, 400)]
    two = run([told_inventory()], states, samples(lambda w: without(5)(w) if w < 60 else without(5, 6)(w), windows=90))
    assert [f["state"] for f in two.of() if f["state"] != "update"] == ["open", "closed", "open"]
    same = run([told_inventory()], states, samples(without(5), windows=90))
    assert [f["state"] for f in same.of()][-1] == "closed"
