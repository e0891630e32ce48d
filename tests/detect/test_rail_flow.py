"""A rail of one node that carries far less than the same rail of the job's other nodes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from samples import T0, Inbound, Job, Played, S, ib_sample, job_event, merged, play

from heeler.detect import DetectStep
from heeler.detect.rail_flow import odd_rails
from heeler.detect.thresholds import RailThresholds

JOB = Job(nodes=8)
GB = 1e9
Rates = Callable[[int, int, int], float | None]  # node, rail, window: bytes/s


def stream(rates: Rates, *, nodes: int = 8, rails: int = 8, count: int = 120, state: Any = None) -> list[Inbound]:
    rng = np.random.default_rng(1)
    total = np.zeros((nodes, rails))
    found = []
    for at in range(count):
        for node in range(nodes):
            ports = []
            for rail in range(rails):
                rate = rates(node, rail, at)
                total[node, rail] += 0 if rate is None else 10 * rate * rng.normal(1, 0.02)
                half = int(total[node, rail] / 2)
                counters = {} if rate is None else {"port_xmit_data": half, "port_rcv_data": half}
                ports.append({"counters": counters, "state": state(node, rail, at) if state else "active"})
            found.append(ib_sample(JOB.node(node), ports, ts_ns=T0 + (at + 1) * 10 * S + node * S // 10, seq=at))
    return found


def run(rates: Rates, *more: Inbound, job: Job = JOB, **how: Any) -> Played:
    return play(DetectStep(), merged([job_event(job, ts_ns=T0 - S)], stream(rates, **how), more))


def one(node: int = 2, rail: int = 5, share: float = 0.3, since: int = 20, until: int = 1 << 30) -> Rates:
    return lambda n, r, at: 2 * GB * (share if (n, r) == (node, rail) and since <= at < until else 1.0)


def test_a_rail_that_carries_a_third_of_what_it_carries_elsewhere_is_suspected() -> None:
    (opened,) = run(one()).opened()
    assert (opened["kind"], opened["entity"]["node"], opened["entity"]["port"]) == ("rail_slow", "n0002", "mlx5_5/1")
    assert (opened["advice"], opened["severity"], opened["job_id"]) == ("observe", "warning", JOB.id)
    assert "on the 7 other nodes" in opened["summary"]
    assert 290 <= (opened["ts"] - T0) / S - 210 <= 460


@pytest.mark.parametrize("share", [0.97, 0.7])
def test_a_little_less_is_healthy(share: float) -> None:
    assert not run(one(share=share)).findings


def test_a_pipeline_that_uses_two_of_eight_rails_is_healthy() -> None:
    def rates(node: int, rail: int, _at: int) -> float:
        return 3 * GB if rail in ((0, 4) if node % 2 else (1, 5)) else 0.0

    assert not run(rates).findings


def test_a_node_that_does_less_altogether_is_not_a_rail() -> None:
    assert not run(lambda n, _r, _at: 2 * GB * (0.3 if n == 2 else 1.0)).findings


def test_a_first_stage_with_other_rails_than_the_rest_is_healthy() -> None:
    def rates(node: int, rail: int, _at: int) -> float:
        return 2 * GB if node or rail < 4 else 0.1 * GB

    assert not run(rates).findings


def test_bursts_that_each_node_samples_at_another_moment_are_healthy() -> None:
    def rates(node: int, _rail: int, at: int) -> float:
        return 8 * GB if (at + node) % 4 == 0 else 0.0

    assert not run(rates).findings


def test_an_idle_job_is_not_judged() -> None:
    assert not run(lambda n, r, _at: 1e6 * (0.1 if (n, r) == (2, 5) else 1.0)).findings


def test_a_job_of_three_nodes_has_too_few_to_compare() -> None:
    assert not run(one(), job=Job(nodes=3), nodes=3).findings


def test_nodes_that_two_jobs_share_are_not_compared() -> None:
    other = job_event(Job(id="9", nodes=8), ts_ns=T0 - S)
    assert not run(one(), other).findings


def test_counters_that_are_missing_or_begin_anew_make_no_finding() -> None:
    assert not run(lambda n, r, at: None if (n, r) == (2, 5) and at > 20 else 2 * GB).findings
    zeroed = stream(lambda *_: 2 * GB)
    for m in zeroed:
        if m.data["node"] == "n0002" and m.data["seq"] % 15 == 14:
            m.data["ports"][5]["counters"] = {"port_xmit_data": 0, "port_rcv_data": 0}
    assert not play(DetectStep(), merged([job_event(JOB, ts_ns=T0 - S)], zeroed)).findings


def test_a_port_that_is_down_has_a_finding_of_its_own() -> None:
    def state(node: int, rail: int, at: int) -> str:
        return "down" if (node, rail) == (2, 5) and at >= 20 else "active"

    assert run(one(share=0.0), state=state).kinds() == {"ib_down"}


def test_it_is_over_when_the_rail_carries_as_much_again() -> None:
    played = run(one(until=90), count=160)
    assert [f["close_reason"] for f in played.of(state="closed")] == ["carries as much as the others"]


def test_it_is_over_when_the_job_ends() -> None:
    ended = job_event(JOB, "ended", ts_ns=T0 + 1000 * S)
    assert [f["close_reason"] for f in run(one(), ended).of(state="closed")] == ["the job ended"]


def test_many_nodes_at_once_are_the_load_or_the_fabric() -> None:
    assert not run(lambda n, r, at: 2 * GB * (0.3 if n in (2, 3) and r == 5 and at > 20 else 1.0)).findings


def test_what_is_not_known_is_never_slow() -> None:
    rates = np.full((8, 8), 2 * GB)
    rates[5, 2], rates[3] = np.nan, np.nan
    _, slow, judged = odd_rails(rates, RailThresholds())
    assert not slow.any()
    assert not judged[5, 2]
    assert not judged[3].any()
