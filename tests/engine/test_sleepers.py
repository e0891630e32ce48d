"""Ticks skip keys that wait for nothing, and forget them all the same."""

from collections.abc import Iterable
from typing import Any

from heeler.engine import NOTHING, Event, Inbound, Input, Result
from heeler.engine.memory import EVERYONE, Keyed

S = 1_000_000_000


class Naps:
    """A state counts its ticks; odd ones are asleep, and after 100 s everything is forgotten."""

    name = "naps"
    inputs = (Input("AgentStatus"),)
    tick_s = 1.0
    memory_s = 0.0

    def keys(self, message: Inbound) -> Iterable[str]:
        return (f"node:{message.data['node']}",)

    def on(self, key: str, state: Any, message: Inbound, now_ns: int) -> Result:
        return {"asleep": message.data["asleep"], "since": now_ns, "ticks": state["ticks"] if state else 0}, NOTHING

    def tick(self, key: str, state: Any, now_ns: int) -> Result:
        if now_ns - state["since"] > 100 * S:
            return None, (Event("AgentStatus", "gone", {"node": key}),)
        state["ticks"] += 1
        return state, NOTHING

    def asleep(self, state: Any) -> bool:
        return state is not None and bool(state["asleep"])


def told(keyed: Keyed, node: str, at_s: int, *, asleep: bool) -> None:
    keyed.on(Inbound("AgentStatus", "s", {"node": node, "asleep": asleep}, at_s * S))


def test_only_keys_that_are_awake_are_ticked() -> None:
    keyed = Keyed(Naps())
    told(keyed, "a", 1000, asleep=False)
    told(keyed, "b", 1000, asleep=True)
    keyed.advance(1010 * S)
    assert (keyed.states["node:a"]["ticks"], keyed.states["node:b"]["ticks"]) == (10, 0)
    told(keyed, "a", 1010, asleep=True)
    told(keyed, "b", 1010, asleep=False)
    keyed.advance(1013 * S)
    assert (keyed.states["node:a"]["ticks"], keyed.states["node:b"]["ticks"]) == (11, 3)


def test_a_sleeping_key_is_forgotten() -> None:
    keyed = Keyed(Naps())
    told(keyed, "b", 1000, asleep=True)
    events = [event for at in range(1001, 1000 + 3 * EVERYONE) for event in keyed.advance(at * S)]
    assert len(events) == 1
    assert keyed.states == {}


def test_a_step_without_sleepers_ticks_states_that_were_put_there() -> None:
    class Wakeful(Naps):
        asleep = None  # type: ignore[assignment]

    keyed = Keyed(Wakeful())
    keyed.states["node:x"] = {"asleep": True, "since": 1000 * S, "ticks": 0}
    keyed.advance(1000 * S)
    keyed.advance(1005 * S)
    assert keyed.states["node:x"]["ticks"] == 5
