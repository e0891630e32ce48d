"""Ports that flap or stay down are found; spare ports, saturated and reset counters make no finding."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from samples import T0, Inbound, Job, Played, S, ib_sample, job_event, merged, node_state, play

from heeler.detect import DetectStep

JOB = Job(nodes=1)
NODE = JOB.node(0)
Ports = Callable[[int], list[dict[str, Any]]]


def stream(ports: Ports, count: int = 60, first: int = 0) -> list[Inbound]:
    return [ib_sample(NODE, ports(at), ts_ns=T0 + (at + 1) * 10 * S, seq=at) for at in range(first, count)]


def run(ports: Ports, *more: Inbound, count: int = 60, job: bool = True, until_s: int = 0) -> Played:
    start = [job_event(JOB, ts_ns=T0 - S)] if job else []
    until = T0 + until_s * S if until_s else None
    return play(DetectStep(), merged(start, stream(ports, count), more), until_ns=until)


def flapping(*moments: int, name: str = "link_downed") -> Ports:
    return lambda at: [{"counters": {name: 7 + sum(at >= m for m in moments)}}, {}]


@pytest.mark.parametrize("name", ["link_downed", "carrier_down_count"])
def test_three_losses_within_an_hour_are_a_flap(name: str) -> None:
    played = run(flapping(5, 20, 40, name=name))
    (finding,) = played.opened()
    assert (finding["kind"], finding["entity"]["port"], finding["count"]) == ("ib_flap", "mlx5_0/1", 3)
    assert finding["job_id"] == JOB.id
    assert finding["summary"] == "Port mlx5_0/1 on n0000 went down 3 times in 6 min; job 81234."
    assert finding["first_ts"] == T0 + 60 * S + S // 10


def test_two_losses_are_events_and_no_finding() -> None:
    assert not run(flapping(5, 20)).findings


def test_losses_hours_apart_are_no_flap() -> None:
    assert not run(flapping(5, 300, 600), count=620).findings


def test_losses_of_two_ports_do_not_add_up() -> None:
    def ports(at: int) -> list[dict[str, Any]]:
        return [{"counters": {"link_downed": int(at >= 5) + int(at >= 9)}}, {"counters": {"link_downed": int(at >= 7)}}]

    assert not run(ports).findings


def test_one_outage_seen_by_counter_and_state_counts_once() -> None:
    def ports(at: int) -> list[dict[str, Any]]:
        outages = [range(5, 8), range(20, 22)]
        down = any(at in outage for outage in outages)
        return [
            {
                "state": "down" if down else "active",
                "counters": {
                    "link_downed": sum(at >= o.start for o in outages),
                    "carrier_down_count": sum(at >= o.start for o in outages),
                },
            }
        ]

    assert not run(ports, job=False).findings


def test_states_count_where_the_counter_stands_at_its_top() -> None:
    def ports(at: int) -> list[dict[str, Any]]:
        state = "down" if at in (5, 15, 25) else "active"
        return [{"state": state, "counters": {"link_downed": 255}, "saturated": ["link_downed"]}]

    (finding,) = run(ports).opened()
    assert finding["kind"] == "ib_flap"


def test_a_counter_that_was_reset_is_no_loss() -> None:
    def ports(at: int) -> list[dict[str, Any]]:
        return [{"counters": {"link_downed": 200 if at < 20 else 0}}]

    assert not run(ports).findings


def test_a_first_sample_is_no_growth() -> None:
    assert not run(lambda _at: [{"counters": {"link_downed": 250}}]).findings


def test_spare_ports_that_were_never_active_are_healthy() -> None:
    def ports(_at: int) -> list[dict[str, Any]]:
        return [{}] * 8 + [{"state": "down", "phys_state": "polling"}] * 10

    assert not run(ports, count=100).findings


def test_a_port_that_stays_down_under_a_job_is_critical_and_drains_only_after_four_minutes() -> None:
    played = run(lambda at: [{"state": "active" if at < 10 else "down"}, {}])
    (finding,) = played.opened()
    assert (finding["kind"], finding["severity"], finding["advice"]) == ("ib_down", "critical", "observe")
    assert 30 <= (finding["ts"] - T0) / S - 110 <= 40
    drains = [f for f in played.of() if f["advice"] == "drain_after_job"]
    assert (drains[0]["ts"] - T0) / S - 110 >= 240


def test_a_port_that_heals_within_40_s_never_advises_a_drain() -> None:
    played = run(lambda at: [{"state": "down" if 10 <= at < 14 else "active"}, {}])
    assert {f["advice"] for f in played.of()} <= {"observe"}
    assert all(f["state"] == "closed" for f in played.last().values())


def test_a_port_that_is_down_without_a_job_waits_for_four_minutes() -> None:
    played = run(lambda at: [{"state": "active" if at < 10 else "down"}, {}], job=False)
    (finding,) = played.opened()
    assert finding["severity"] == "warning"
    assert (finding["ts"] - T0) / S - 110 >= 240


def test_a_state_that_is_not_known_is_not_down() -> None:
    assert not run(lambda at: [{"state": "active" if at < 10 else "unknown"}, {}]).findings


def test_a_device_that_vanishes_is_down() -> None:
    played = run(lambda at: [{}, {}] if at < 10 else [{}])
    (finding,) = played.opened()
    assert (finding["kind"], finding["cause"], finding["entity"]["port"]) == ("ib_down", "port_gone", "mlx5_1/1")


def test_ports_that_could_not_be_read_are_not_gone() -> None:
    def without(message: Inbound) -> Inbound:
        if message.ts_ns > T0 + 100 * S:
            message.data["ports"], message.data["absent"] = [], {"ports": "error"}
        return message

    samples = [without(m) for m in stream(lambda _at: [{}, {}])]
    assert not play(DetectStep(), merged([job_event(JOB, ts_ns=T0 - S)], samples)).of("ib_down", "ib_flap")


@pytest.mark.parametrize(
    ("absent", "missed"), [("mlx5_1/1", False), ("mlx5_1", False), ("irdma0", True), ("bonds", True)]
)
def test_what_else_could_not_be_read_hides_no_device_that_vanishes(absent: str, missed: bool) -> None:
    def told(message: Inbound) -> Inbound:
        message.data["absent"] = {absent: "not_present"}
        return message

    samples = [told(m) for m in stream(lambda at: [{}, {}] if at < 10 else [{}])]
    played = play(DetectStep(), merged([job_event(JOB, ts_ns=T0 - S)], samples))
    assert bool(played.of("ib_down")) == missed


@pytest.mark.parametrize("flags", [["POWERED_DOWN"], ["MAINTENANCE"], ["REBOOT_ISSUED"]])
def test_a_node_that_slurm_has_taken_away_may_lose_its_links(flags: list[str]) -> None:
    away = node_state(NODE, ts_ns=T0 + 50 * S, flags=flags)
    assert not run(lambda at: [{"state": "active" if at < 10 else "down"}], away).findings


def test_a_flap_that_goes_on_raises_its_count_and_keeps_its_id() -> None:
    played = run(flapping(5, 20, 40, 45, 50), count=100)
    assert played.of("ib_flap")[-1]["count"] == 5
    assert len(played.last("ib_flap")) == 1


def test_a_flapping_port_closes_after_an_hour_of_peace() -> None:
    played = run(flapping(5, 20, 40), count=420)
    (closed,) = played.of("ib_flap", state="closed")
    assert (closed["ts"] - T0) / S >= 410 + 3600


def test_a_redelivered_or_reordered_sample_changes_nothing() -> None:
    messages = stream(flapping(5, 20), count=60)
    mixed = [m for message, later in pairwise(messages) for m in (message, later, message)]
    assert not play(DetectStep(), mixed).of("ib_flap")


def test_a_reboot_brings_new_counters() -> None:
    def after(message: Inbound, at: int) -> Inbound:
        message.data["boot"] = "one" if at < 20 else "two"
        return message

    samples = [
        after(m, at) for at, m in enumerate(stream(lambda at: [{"counters": {"link_downed": 0 if at < 20 else 9}}]))
    ]
    assert not play(DetectStep(), samples).of("ib_flap")


def test_a_renamed_device_is_the_same_port() -> None:
    def ports(at: int) -> list[dict[str, Any]]:
        name = "mlx5_0" if at < 15 else "ibp24s0"
        return [{"device": name, "guid": "0xa", "counters": {"link_downed": sum(at >= m for m in (5, 15, 25))}}]

    (finding,) = run(ports).opened()
    assert finding["entity"]["port"] == "ibp24s0/1"
