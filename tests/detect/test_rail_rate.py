"""Ports that are active at a lower rate than they had, or than their siblings have."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from samples import T0, Inbound, Job, Played, S, ib_sample, job_event, merged, node_state, play

from heeler.detect import DetectStep

JOB = Job(nodes=4)
NODE = JOB.node(0)
Ports = Callable[[int, int], list[dict[str, Any]]]


def stream(ports: Ports, *, nodes: int = 4, count: int = 60) -> list[Inbound]:
    return [
        ib_sample(JOB.node(node), ports(node, at), ts_ns=T0 + (at + 1) * 10 * S + node, seq=at)
        for at in range(count)
        for node in range(nodes)
    ]


def run(ports: Ports, *more: Inbound, nodes: int = 4, count: int = 60) -> Played:
    return play(DetectStep(), merged([job_event(JOB, ts_ns=T0 - S)], stream(ports, nodes=nodes, count=count), more))


def eight(*, low: float = 200.0, node: int = 0, port: int = 3, when: Iterable[int] = range(1000)) -> Ports:
    """Eight ports of 400 Gbit/s, of which one is slower at times."""

    def ports(on: int, at: int) -> list[dict[str, Any]]:
        slow = on == node and at in when
        return [{"rate_gbps": low if slow and p == port else 400.0, "link_layer": "infiniband"} for p in range(8)]

    return ports


def test_a_port_whose_rate_falls_is_found_and_named() -> None:
    (opened,) = run(eight(when=range(20, 1000))).opened()
    assert (opened["kind"], opened["cause"], opened["entity"]["port"]) == ("rail_degraded", "rate_fell", "mlx5_3/1")
    assert "runs at 200 of 400 Gbit/s" in opened["summary"]
    assert opened["jobs"] == [JOB.id]
    assert 50 <= (opened["ts"] - T0) / S - 210 <= 80


def test_a_port_that_was_slow_from_the_beginning_is_found_by_its_siblings_here_and_elsewhere() -> None:
    (opened,) = run(eight()).opened()
    assert (opened["cause"], opened["evidence"][0]["peers"]) == ("rate_below_siblings", 3)


def test_a_drain_is_advised_only_after_minutes() -> None:
    played = run(eight(when=range(20, 1000)))
    assert played.opened()[0]["advice"] == "observe"
    (first,) = [f for f in played.of() if f["advice"] == "drain_after_job"][:1]
    assert 230 <= (first["ts"] - T0) / S - 210 <= 260


def test_a_storage_adapter_that_is_slower_everywhere_is_none() -> None:
    def ports(_node: int, _at: int) -> list[dict[str, Any]]:
        return [{"rate_gbps": 400.0, "link_layer": "infiniband"}] * 8 + [
            {"rate_gbps": 200.0, "link_layer": "infiniband"}
        ]

    assert not run(ports).findings


def test_ethernet_for_management_is_no_sibling_of_infiniband() -> None:
    def ports(node: int, _at: int) -> list[dict[str, Any]]:
        slow = {"rate_gbps": 25.0, "link_layer": "ethernet"}
        return [{"rate_gbps": 400.0, "link_layer": "infiniband"}] * 8 + ([slow] if node else [])

    assert not run(ports).findings


def test_nodes_of_two_generations_are_not_compared() -> None:
    def ports(node: int, _at: int) -> list[dict[str, Any]]:
        return [{"rate_gbps": 400.0 if node < 2 else 200.0, "link_layer": "infiniband"}] * 8

    assert not run(ports).findings


def test_with_too_few_nodes_to_ask_a_slower_sibling_is_none() -> None:
    assert not run(eight(), nodes=2).findings


def test_a_port_that_is_not_active_shows_any_rate() -> None:
    def ports(node: int, at: int) -> list[dict[str, Any]]:
        down = node == 0 and at >= 20
        return [{"rate_gbps": 10.0 if down else 400.0, "state": "down" if down else "active"}] + [
            {"rate_gbps": 400.0}
        ] * 7

    assert run(ports).kinds() == {"ib_down"}


def test_some_seconds_at_a_lower_rate_after_training_are_none() -> None:
    assert not run(eight(when=range(20, 24))).findings


def test_a_rate_that_was_not_read_is_none() -> None:
    assert not run(lambda _n, at: [{"rate_gbps": 400.0} if at < 20 or p else {} for p in range(8)]).findings


def test_it_is_over_when_the_rate_is_back() -> None:
    played = run(eight(when=range(20, 40)), count=90)
    assert [f["close_reason"] for f in played.of(state="closed")] == ["at its rate again"]


def test_all_ports_of_a_node_at_once_are_no_single_link() -> None:
    def ports(node: int, at: int) -> list[dict[str, Any]]:
        return [{"rate_gbps": 200.0 if node == 0 and at >= 20 else 400.0}] * 8

    played = run(ports, count=80)
    assert {f["advice"] for f in played.of()} == {"observe"}


def test_an_operator_who_resumes_the_node_puts_up_with_the_rate() -> None:
    states = [node_state(NODE, ts_ns=T0 + at * S, flags=flags) for at, flags in ((0, []), (400, ["DRAIN"]), (420, []))]
    played = run(eight(when=range(20, 1000)), *states, count=120)
    assert [f["state"] for f in played.of() if f["state"] != "update"] == ["open", "closed"]


def test_less_than_what_was_put_up_with_is_said_again() -> None:
    states = [node_state(NODE, ts_ns=T0 + at * S, flags=flags) for at, flags in ((0, []), (400, ["DRAIN"]), (420, []))]

    def ports(node: int, at: int) -> list[dict[str, Any]]:
        rate = 400.0 if at < 20 else 200.0 if at < 70 else 100.0
        return [{"rate_gbps": rate if node == 0 and p == 3 else 400.0} for p in range(8)]

    played = run(ports, *states, count=120)
    assert [f["state"] for f in played.of() if f["state"] != "update"] == ["open", "closed", "open"]


@pytest.mark.parametrize("late_s", [300, 3600])
def test_a_backlog_says_nothing_of_now(late_s: int) -> None:
    fresh = stream(eight(when=()), count=40)
    old = [ib_sample(NODE, eight()(0, 0), ts_ns=T0 - (late_s - at * 10) * S, seq=900 + at) for at in range(20)]
    late = [type(m)(m.kind, m.subject, m.data, T0 + 200 * S + at * S) for at, m in enumerate(old)]
    assert not play(DetectStep(), merged(fresh, late)).findings
