"""Clocks of nodes that are off against the bus server's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from samples import T0, Inbound, Played, S, agent_status, cold_twin, ib_sample, merged, play

from heeler.bus import Bus, Delivery, encode
from heeler.detect import DetectStep
from heeler.engine.live import Live

Offset = Callable[[int], float | None]


def statuses(
    offset: Offset, *, node: int = 0, count: int = 30, error_s: float = 0.01, lag_s: float = 0.1
) -> list[Inbound]:
    """Statuses of an agent that has measured its clock; without an offset it has not."""
    found = []
    for at in range(count):
        message, seen = agent_status(f"n{node:04d}", ts_ns=T0 + at * 30 * S + node), offset(at)
        measured: dict[str, Any] = {}
        if seen is not None:
            measured = {"clock_offset_ns": int(seen * S), "clock_offset_error_ns": int(error_s * S)}
        found.append(replace(message, data={**message.data, **measured}, ts_ns=message.data["ts"] + int(lag_s * S)))
    return found


def healthy(nodes: range) -> list[list[Inbound]]:
    return [statuses(lambda _at: 0.002, node=node) for node in nodes]


def run(*streams: list[Inbound], until_s: int = 900) -> Played:
    return play(DetectStep(), merged(*streams), until_ns=T0 + until_s * S)


@pytest.mark.parametrize(("offset", "way"), [(7.5, "ahead of"), (-7.5, "behind")])
def test_a_clock_that_is_off_in_two_statuses_is_said(offset: float, way: str) -> None:
    (opened,) = run(statuses(lambda at: offset if at >= 5 else 0.0), *healthy(range(1, 8))).opened()
    assert (opened["kind"], opened["node"], opened["advice"]) == ("clock_skew", "n0000", "observe")
    assert opened["summary"] == f"The clock of n0000 is 7.5 s {way} the bus server's."
    assert (opened["evidence"][0]["value"], opened["confidence"]) == (offset, 0.9)
    assert 180 <= (opened["ts"] - T0) / S <= 190


def test_a_minute_off_is_for_a_person_since_slurm_will_refuse_the_node() -> None:
    assert {f["advice"] for f in run(statuses(lambda _at: 90.0)).of()} == {"person"}


@pytest.mark.parametrize("offset", [0.0, 0.4, -1.9])
def test_less_than_two_seconds_are_none(offset: float) -> None:
    assert not run(statuses(lambda _at: offset)).findings


def test_one_odd_measurement_is_none() -> None:
    assert not run(statuses(lambda at: 9.0 if at % 3 == 0 else 0.0)).findings


def test_a_measurement_that_may_be_wrong_by_as_much_is_none() -> None:
    assert not run(statuses(lambda _at: 5.0, error_s=4.0)).findings


def test_two_that_contradict_each_other_are_none() -> None:
    assert not run(statuses(lambda at: 6.0 if at % 2 else -6.0)).findings


def test_without_a_measurement_the_time_of_arrival_counts() -> None:
    ahead = [replace(m, data={**m.data, "ts": m.data["ts"] + 40 * S}) for m in statuses(lambda _at: None)]
    (opened,) = run(ahead, *healthy(range(1, 8))).opened()
    assert (opened["confidence"], opened["evidence"][0]["value"]) == (0.7, 39.9)


def test_statuses_that_a_slow_bus_delays_each_by_another_time_are_none() -> None:
    late = [replace(m, ts_ns=m.ts_ns + (at % 4) * 6 * S) for at, m in enumerate(statuses(lambda _at: None))]
    assert not run(late).findings


def test_many_at_once_are_the_servers_clock_and_no_node_is_named() -> None:
    off = [statuses(lambda at: 5.0 if at >= 5 else 0.0, node=node) for node in range(6)]
    (opened,) = run(*off, *healthy(range(6, 10))).opened()
    assert (opened["cause"], opened["advice"], "node" in opened) == ("many_off", "person", False)
    assert "6 of 10 clocks" in opened["summary"]


def test_it_is_over_when_two_thirds_of_it_are_gone_and_not_while_it_wavers() -> None:
    wavers = run(statuses(lambda at: 2.2 if at % 2 else 1.5))
    assert not wavers.of(state="closed")
    over = run(statuses(lambda at: 5.0 if at < 15 else 0.1))
    assert [f["close_reason"] for f in over.of(state="closed")] == ["the clock is right again"]


def test_an_agent_that_says_nothing_any_more_leaves_no_finding_for_ever() -> None:
    played = run(statuses(lambda _at: 5.0, count=10), *healthy(range(1, 8)), until_s=5000)
    assert [f["close_reason"] for f in played.of("clock_skew", state="closed")] == ["no more data"]


@pytest.mark.parametrize("cut", range(100, 800, 53))
def test_a_cold_start_says_what_a_warm_instance_says(cut: int) -> None:
    wave = statuses(lambda at: 3.0 if 5 <= at < 12 else 1.5 if 12 <= at < 16 else 0.0)
    messages = merged(wave, *healthy(range(1, 8)))
    warm = play(DetectStep(), messages)
    last = messages[-1].ts_ns
    said = [f for f in cold_twin(DetectStep(), messages, warm, T0 + cut * S) if f["ts"] <= last]
    assert said == [f for f in warm.of() if T0 + cut * S < f["ts"] <= last]


async def test_an_agent_whose_clock_is_an_hour_ahead_is_heard_and_not_called_silent() -> None:
    ahead = [replace(m, data={**m.data, "ts": m.data["ts"] + 3600 * S}) for m in statuses(lambda _at: 3600.0)]
    unmeasured = [replace(m, data={**m.data, "ts": m.data["ts"] + 900 * S}) for m in statuses(lambda _at: None, node=1)]
    # What of it the engine lets through to the step; nothing here asks for a bus.
    live = Live(cast("Bus", None), DetectStep(), "a")
    heard = [m for m in merged(ahead, unmeasured) if await live.take(delivery(m)) is not None]
    played = run(heard, *healthy(range(2, 10)))
    assert played.kinds() == {"clock_skew"}
    assert {f["node"]: f["summary"] for f in played.opened()} == {
        "n0000": "The clock of n0000 is 60 min ahead of the bus server's.",
        "n0001": "The clock of n0001 is 15 min ahead of the bus server's.",
    }
    assert {f["advice"] for f in played.of()} == {"person"}


async def test_samples_of_such_a_clock_do_not_count() -> None:
    live = Live(cast("Bus", None), DetectStep(), "a")
    sample = ib_sample("n0000", [{}], ts_ns=T0)
    late = replace(sample, ts_ns=T0 - 3600 * S)
    assert await live.take(delivery(sample)) is not None
    assert await live.take(delivery(late)) is None
    assert live.counters.reasons == {"future": 1}


def delivery(m: Inbound) -> Delivery:
    reply = f"$JS.ACK.AGENTS.detect.1.1.1.{m.ts_ns}.0"
    return Delivery(None, Msg(cast("Client", None), m.subject, reply, encode(m.kind, m.data)))
