"""An agent that says nothing is found; a node that Slurm knows to be away, and a cut bus, are not held against it."""

from collections.abc import Callable

import pytest
from samples import T0, Inbound, Job, S, agent_status, job_samples, merged, node_state, play

from heeler.detect import DetectStep


def statuses(nodes: int, silent: Callable[[int, int], bool], count: int = 40, interval_s: int = 30) -> list[Inbound]:
    return merged(
        [
            agent_status(f"n{n:04d}", ts_ns=T0 + k * interval_s * S + n * S // nodes, interval_s=interval_s)
            for k in range(count)
            for n in range(nodes)
            if not silent(n, k)
        ]
    )


def test_an_agent_that_stops_is_named_after_three_of_its_intervals_and_closed_when_it_is_back() -> None:
    played = play(DetectStep(), statuses(8, lambda n, k: n == 2 and 10 <= k < 25))
    (opened,) = played.opened("agent_silent")
    assert opened["node"] == "n0002"
    assert opened["entity"]["type"] == "agent"
    assert opened["advice"] == "observe"
    last_heard = T0 + 9 * 30 * S
    assert 90 <= (opened["ts"] - last_heard) / S <= 100
    assert opened["first_ts"] - last_heard < S
    (closed,) = played.of(state="closed")
    assert closed["close_reason"] == "the agent is heard again"


def test_an_agents_own_interval_counts() -> None:
    played = play(DetectStep(), statuses(8, lambda n, k: n == 2 and k in (10, 11), count=20, interval_s=300))
    assert not played.findings


def test_samples_are_signs_of_life() -> None:
    job = Job(nodes=4)
    samples = job_samples(job, windows=40)
    alive = [agent_status(job.node(n), ts_ns=T0 + S) for n in range(4)]
    assert not play(DetectStep(), merged(samples, alive)).findings


def test_the_only_agent_of_a_cluster_is_missed_too() -> None:
    messages = statuses(1, lambda _n, _k: False, count=5)
    played = play(DetectStep(), messages, until_ns=T0 + 600 * S)
    assert len(played.opened("agent_silent")) == 1


@pytest.mark.parametrize(
    ("state", "flags"),
    [
        ("down", []),
        ("idle", ["POWERED_DOWN"]),
        ("idle", ["POWERING_UP"]),
        ("idle", ["NOT_RESPONDING"]),
        ("idle", ["REBOOT_ISSUED"]),
    ],
)
def test_a_node_that_slurm_knows_to_be_away_is_not_missed(state: str, flags: list[str]) -> None:
    away = node_state("n0002", ts_ns=T0 + 200 * S, state=state, flags=flags)
    played = play(DetectStep(), merged(statuses(8, lambda n, k: n == 2 and k >= 5), [away]))
    assert not played.findings


def test_a_finding_closes_when_slurm_learns_that_the_node_is_away() -> None:
    away = node_state("n0002", ts_ns=T0 + 600 * S, state="down")
    played = play(DetectStep(), merged(statuses(8, lambda n, k: n == 2 and k >= 5), [away]))
    assert [f["state"] for f in played.last().values()] == ["closed"]


def test_a_node_that_comes_back_has_time_to_speak() -> None:
    away = node_state("n0002", ts_ns=T0 + 160 * S, flags=["POWERED_DOWN"], state="idle")
    back = node_state("n0002", ts_ns=T0 + 900 * S, state="idle")
    played = play(DetectStep(), merged(statuses(8, lambda n, k: n == 2 and 5 <= k < 32), [away, back]))
    assert not played.findings


def test_a_draining_node_is_still_missed() -> None:
    draining = node_state("n0002", ts_ns=T0 + 100 * S, flags=["DRAIN"])
    played = play(DetectStep(), merged(statuses(8, lambda n, k: n == 2 and k >= 5), [draining]))
    assert len(played.opened("agent_silent")) == 1


def test_many_that_fall_silent_at_once_are_one_finding_that_names_nobody() -> None:
    played = play(DetectStep(), statuses(20, lambda n, k: n >= 8 and 10 <= k < 25))
    (opened,) = played.opened()
    assert "node" not in opened
    assert opened["cause"] == "many_silent"
    assert opened["advice"] == "person"
    assert [f["state"] for f in played.last().values()] == ["closed"]


def test_a_bus_that_was_away_for_ten_minutes_blames_nobody() -> None:
    played = play(DetectStep(), statuses(20, lambda _n, k: 10 <= k < 30))
    assert not played.findings


def test_a_node_that_was_never_heard_is_not_missed() -> None:
    states = [node_state(f"x{n}", ts_ns=T0 + n * S) for n in range(50)]
    assert not play(DetectStep(), states, until_ns=T0 + 3600 * S).findings
