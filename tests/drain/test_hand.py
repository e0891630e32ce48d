"""What operators say: the newest word counts, in whatever order it comes, and nothing is done twice or late."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drainorders import give, order
from drainstay import REASON, verified
from drainworld import CLUSTER, T0, Cluster, S, lag, node, told, xid
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from heeler.bus import subjects
from heeler.drain.actions import message_of
from heeler.drain.command import STALE_NS
from heeler.drain.hand import BREAKERS, Hand, Pause, Switch
from heeler.drain.hand_keeper import kept_hand
from heeler.drain.prolog_breaker import Breaker
from heeler.engine import Event, Inbound

SCHEMA = Path(__file__).resolve().parents[2] / "schemas/buckets/breakers.v1.schema.json"
MINUTE, HOUR, DAY = 60 * S, 3600 * S, 86_400 * S


def one(actions: Sequence[dict[str, Any]]) -> tuple[str, str]:
    assert len(actions) == 1, told(list(actions))
    return actions[0]["verdict"], actions[0]["rule"]


def stopped(cluster: Cluster) -> None:
    """Too many nodes go down, and a finding meets that."""
    for n in range(20, 40):
        cluster.say("NodeState", node(f"n{n:03d}", state="down"))
    cluster.say("Finding", xid())
    for n in range(20, 40):
        cluster.say("NodeState", node(f"n{n:03d}", T0 + S))


def test_an_action_names_who_commanded_by_the_subject_alone() -> None:
    cluster = Cluster()
    message = order("trip_breaker", breaker="drain", actor="jürgen@ops.example", why="racks")
    (action,) = give(cluster, message)
    assert (action["actor"], action["node"], action["verdict"]) == ("jürgen@ops.example", "*", "ordered")
    assert action["why"] == "the breaker of the drainer is opened: racks"
    forged = order("reset_breaker", ident="c2", breaker="drain")
    forged.data["actor"] = "jane"
    (action,) = give(cluster, Inbound("DrainCommand", subjects.drain_command(CLUSTER, "eve"), forged.data, T0))
    assert action["actor"] == "eve"


@pytest.mark.parametrize(
    ("message", "at", "rule"),
    [
        (order("trip_breaker", breaker="drain"), T0 + STALE_NS + S, "stale"),
        (order("trip_breaker", T0 + 10 * MINUTE, breaker="drain"), T0, "stale"),
        (order("trip_breaker", breaker="drain", deadline_ts=T0 + S), T0 + 2 * S, "stale"),
        (order("trip_breaker"), T0, "unknown_breaker"),
        (order("trip_breaker", breaker="toaster"), T0, "unknown_breaker"),
        (order("reset_breaker"), T0, "unknown_breaker"),
        (order("reset_breaker", breaker="drain"), T0, "nothing_to_do"),
        (order("reset_breaker", breaker="prolog"), T0, "nothing_to_do"),
        (order("make_coffee"), T0, "unknown_command"),
    ],
)
def test_what_is_old_unknown_or_done_already_is_refused_with_its_reason(message: Inbound, at: int, rule: str) -> None:
    cluster = Cluster()
    before = cluster.world.hand.pack()
    assert one(give(cluster, message, at)) == ("refused", rule)
    assert cluster.world.hand.pack() == before


def test_a_standby_answers_nobody() -> None:
    cluster = Cluster()
    cluster.world.active_ns = None
    assert give(cluster, order("trip_breaker", breaker="drain")) == []
    assert cluster.world.hand.pack() == Hand().pack()


def test_an_id_is_used_once_by_each_operator_whatever_it_holds() -> None:
    cluster = Cluster()
    for ident in ("c1", "a b\r\nNats-Msg-Id: x", "x" * 5000, "☃"):
        for actor in ("jane", "joe"):
            message = order("trip_breaker", ident=ident, actor=actor, breaker="prolog")
            (action,) = give(cluster, message)
            assert set(action["id"]) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
            assert give(cluster, message) == [], "the same again says nothing"
    assert len({event.id for event in cluster.events if isinstance(event, Event)}) == 8


def test_the_breaker_stays_open_when_the_nodes_are_back_and_opens_again_only_for_a_new_reason() -> None:
    cluster = Cluster()
    stopped(cluster)
    (action,) = cluster.say("Finding", xid("n002", T0 + 2 * S))
    assert action["rule"] == "breaker"
    assert "open until an operator resets it" in action["why"]
    (reset,) = give(cluster, order("reset_breaker", T0 + 3 * S, breaker="drain", why="looked"))
    assert reset["why"] == "the breaker of the drainer is closed: looked"
    assert ("n002", "proposed", "hard_evidence") in told(
        cluster.say("Finding", xid("n002", T0 + 4 * S, state="update"))
    ) + told(cluster.pass_to(T0 + 6 * S))
    assert cluster.world.hand.tripped(dry_run=True) is None


def test_a_reset_while_the_nodes_are_still_out_says_so_and_the_next_finding_opens_it_again() -> None:
    cluster = Cluster()
    for n in range(20, 40):
        cluster.say("NodeState", node(f"n{n:03d}", state="down"))
    cluster.say("Finding", xid())
    (reset,) = give(cluster, order("reset_breaker", T0 + S, breaker="drain"))
    assert "still 20 of 100 nodes are unavailable, 10 may be" in reset["why"]
    actions = cluster.say("Finding", xid("n002", T0 + 2 * S)) + cluster.pass_to(T0 + 4 * S)
    assert [action["verdict"] for action in actions].count("tripped") == 1


def test_a_dry_run_that_tripped_does_not_bind_an_armed_drainer() -> None:
    dry = Cluster(dry_run=True)
    stopped(dry)
    armed = Cluster(dry_run=False)
    armed.world.hand.merge(Hand.unpack(json.loads(json.dumps(dry.world.hand.pack()))))
    assert told(armed.say("Finding", xid()))[0][1] == "approved"
    bound = Cluster(dry_run=True)
    bound.world.hand.merge(dry.world.hand)
    assert told(bound.say("Finding", xid())) == [("n001", "refused", "breaker")]


def test_neither_a_pause_nor_an_open_breaker_lets_anything_follow_a_drain_that_hurts() -> None:
    cluster = Cluster(dry_run=False)
    mine = {"action": "drain_and_requeue", "job_id": "7", "jobs": ["7"]}
    cluster.say("DrainAction", {**verified(**mine), "ts": T0})
    about: dict[str, Any] = {"flags": ("DRAIN",), "reason": REASON, "reason_user": "heeler", "reason_ts": T0}
    cluster.say("NodeState", node("n001", T0 + S, **about))
    cluster.say("Finding", xid(ts=T0 + S))
    give(cluster, order("trip_breaker", T0 + S, "c1", breaker="drain"))
    cluster.pass_to(T0 + MINUTE)
    assert steps(cluster) == ["wait"], "a job is there, and is left alone"
    give(cluster, order("pause", T0 + 61 * S, "c2"))
    give(cluster, order("reset_breaker", T0 + 61 * S, "c3", breaker="drain"))
    cluster.pass_to(T0 + 2 * MINUTE)
    assert steps(cluster) == ["wait"]
    cluster.say("Finding", xid(ts=T0 + 120 * S, state="update"))
    give(cluster, order("resume", T0 + 121 * S, "c4"))
    cluster.pass_to(T0 + 3 * MINUTE)
    assert steps(cluster) == ["wait", "requeue"]


def steps(cluster: Cluster) -> list[str]:
    """What has followed the drain."""
    return [action["step"] for action in map(message_of, cluster.events) if "step" in action]


def test_prologs_breaker_is_reset_only_where_it_is_open() -> None:
    cluster = Cluster()
    cluster.world.prologs = Breaker("open", "3 nodes", T0 - S)
    assert one(give(cluster, order("trip_breaker", breaker="prolog"))) == ("refused", "nothing_to_do")
    assert one(give(cluster, order("reset_breaker", ident="c2", breaker="prolog"))) == ("ordered", "reset_breaker")
    assert cluster.world.hand.breakers["prolog"].on is False
    assert told(cluster.say("Finding", lag()))[0][1] == "proposed", "it is not the drainer's own"


def test_a_yes_is_for_the_trouble_that_was_there_and_not_for_the_next_of_the_same_id() -> None:
    cluster = Cluster()
    policy = cluster.step.policy
    cluster.step.policy = replace(policy, rules=tuple(replace(rule, approval=True) for rule in policy.rules))
    assert told(cluster.say("Finding", xid())) == [("n001", "refused", "needs_approval")]
    (yes,) = give(cluster, order("approve", T0 + S, finding_id="xid-n001-79", why="seen the LED"))
    assert (yes["verdict"], yes["node"], yes["finding_id"]) == ("ordered", "n001", "xid-n001-79")
    cluster.say("Finding", xid(ts=T0 + S, state="closed"))  # before anything was done
    later = xid(ts=T0 + 10 * S)
    assert cluster.say("Finding", later) == [], "refused again, which was said"
    assert cluster.pass_to(T0 + 20 * S) == []
    (yes,) = give(cluster, order("approve", T0 + 20 * S, "c2", finding_id="xid-n001-79"))
    assert told(cluster.pass_to(T0 + 22 * S)) == [("n001", "proposed", "hard_evidence")]
    assert one(give(cluster, order("approve", T0 + 23 * S, "c3", finding_id="xid-n001-79"))) == ("refused", "acted")


@pytest.mark.parametrize(("finding", "rule"), [("xid-n001-79", "nothing_to_do"), ("xid-n009-79", "unknown_finding")])
def test_a_yes_that_nobody_asked_for_is_refused(finding: str, rule: str) -> None:
    cluster = Cluster()
    cluster.say("Finding", xid())
    (no,) = give(cluster, order("approve", finding_id=finding))
    assert (no["verdict"], no["rule"], "finding_id" in no) == ("refused", rule, False)
    assert cluster.world.history.of("xid-n001-79", dry_run=True).state == "standing", "a refused order undoes nothing"


@pytest.mark.parametrize("for_s", [0.0, 1e12])
def test_a_pause_of_no_time_or_of_a_thousand_years_is_refused(for_s: float) -> None:
    assert one(give(Cluster(), order("pause", for_s=for_s))) == ("refused", "bad_time")


PAUSES = st.builds(Pause, st.integers(0, 4), st.booleans(), st.just("x"), st.just(""), st.none() | st.integers(0, 9))
SWITCHES = st.tuples(
    st.sampled_from(BREAKERS), st.builds(Switch, st.integers(0, 4), st.booleans(), st.just("x"), st.just(""))
)


@given(st.lists(PAUSES | SWITCHES, max_size=12), st.randoms(use_true_random=False), st.integers(0, 12))
def test_words_in_any_order_twice_or_by_way_of_the_bucket_come_to_the_same(
    words: list[Any], random: Any, cut: int
) -> None:
    def hear(hand: Hand, some: list[Any]) -> Hand:
        for word in some:
            if isinstance(word, Pause):
                hand.set_pause(word)
            else:
                hand.switch(*word)
        return hand

    straight = hear(Hand(), words)
    mixed = [*words, *words[: cut // 2]]
    random.shuffle(mixed)
    bucket = hear(Hand(), mixed[:cut])
    other = hear(Hand(), mixed[cut:])
    other.merge(Hand.unpack(json.loads(json.dumps(bucket.pack()))))
    assert _stops(other) == _stops(straight)


def _stops(hand: Hand) -> Any:
    pause = hand.pause and (hand.pause.at_ns, hand.pause.on)
    return pause, {name: (one.at_ns, one.on) for name, one in hand.breakers.items()}


def test_what_is_kept_is_what_the_bucket_s_schema_says() -> None:
    hand = Hand(Pause(T0, True, "jane", "x", T0 + HOUR), {"drain": Switch(T0, True, "d", "y", dry_run=True)})
    value = {"v": 1, "cluster": "north", "keeper": "d", "ts_ns": T0, **hand.pack()}
    schema = json.loads(SCHEMA.read_text())
    for name, found in (("drain", value), ("prolog", json.loads(Breaker("open", "w", 1, "a").pack("north", "k", 2)))):
        Draft202012Validator({**schema["$defs"][name], "$schema": schema["$schema"]}).validate(found)
    again, _ = kept_hand(json.dumps(value).encode(), "north")
    assert again.pack() == hand.pack()


SWITCH: dict[str, Any] = {"at_ns": 1, "on": True, "actor": "a", "why": "", "dry_run": False}
PAUSE: dict[str, Any] = {"at_ns": 1, "on": True, "actor": "a", "why": "", "until_ns": None}


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": "south"},
        {"cluster": None},
        {"pause": {}},
        {"pause": {**PAUSE, "on": 1}},
        {"pause": {**PAUSE, "until_ns": "1"}},
        {"breakers": None},
        {"breakers": {"drain": {"at_ns": 1, "on": True}}},
        {"breakers": {"drain": {**SWITCH, "at_ns": "1"}}},
        {"breakers": {"drain": {**SWITCH, "actor": 7}}},
    ],
)
def test_what_is_not_kept_by_a_drainer_of_ours_is_not_believed(changes: dict[str, Any]) -> None:
    good = {"cluster": "north", "pause": PAUSE, "breakers": {"drain": SWITCH, "of a later version": SWITCH}}
    assert kept_hand(json.dumps(good).encode(), "north")[0].breakers == {"drain": Switch(**SWITCH)}
    with pytest.raises(ValueError, match="not "):
        kept_hand(json.dumps({**good, **changes}).encode(), "north")


@pytest.mark.parametrize("value", [b"", b"[]", b'{"cluster": "north"}', b"\xc1"])
def test_what_is_no_value_at_all_is_not_believed(value: bytes) -> None:
    with pytest.raises(ValueError, match="not "):
        kept_hand(value, "north")
