"""The step over sequences of messages: twins, order, restarts, clusters, and the road through a capture."""

from typing import Any

import pytest
from drainworld import CLUSTER, T0, Cluster, S, controller, inbound, lag, node, told, xid

from heeler.bus import encode
from heeler.drain.program import make_step
from heeler.drain.step import DrainStep
from heeler.engine import Pipeline, Step, run

MINUTE, HOUR, DAY = 60 * S, 3600 * S, 86_400 * S


def test_it_is_a_step() -> None:
    step: Step = DrainStep()
    assert step.memory_s > 7 * 86_400
    assert {(item.kind, item.mode) for item in step.inputs} >= {("Finding", "last"), ("DrainAction", "work")}


def test_the_same_refusal_is_said_once_and_a_new_reason_is_said_again() -> None:
    cluster = Cluster()
    said = cluster.say("Finding", lag(first_ts=T0))
    for second in range(10, 100, 10):
        said += cluster.alive(T0 + second * S)
        said += cluster.say("Finding", lag(ts=T0 + second * S, first_ts=T0))
    assert told(said) == [("n002", "refused", "too_young")]
    said = cluster.say("Finding", lag(ts=T0 + 100 * S, first_ts=T0, advice="person"))
    assert told(said) == [("n002", "refused", "person")]


def test_advice_that_gets_worse_is_answered_when_it_does() -> None:
    cluster = Cluster()
    assert cluster.say("Finding", xid(advice="observe")) == []
    assert told(cluster.say("Finding", xid(ts=T0 + S, state="update"))) == [("n001", "proposed", "hard_evidence")]


def test_advice_that_is_taken_back_ends_the_case() -> None:
    cluster = Cluster(slurm_age_s=1.0)
    cluster.say("Finding", xid(ts=T0 + 2 * S))
    cluster.say("Finding", xid(ts=T0 + 3 * S, advice="observe", state="update"))
    assert cluster.pass_to(T0 + 10 * S) == []
    assert cluster.world.cases == {}


def test_a_close_with_the_same_time_as_the_last_word_closes() -> None:
    cluster = Cluster()
    cluster.say("Finding", xid())
    cluster.say("Finding", xid(state="closed"))
    assert cluster.world.cases == {}
    assert cluster.say("Finding", xid()) == []


def test_an_old_redelivery_after_a_newer_word_is_no_confirmation() -> None:
    cluster = Cluster(hard_confirmations=2)
    cluster.say("Finding", xid(ts=T0 + S, first_ts=T0))
    assert cluster.say("Finding", xid(), at=T0 + 2 * S) == []
    assert cluster.world.cases["xid-n001-79"].confirmations == 1


@pytest.mark.parametrize(
    "twisted",
    [
        {"entity": {"type": "gpu", "node": "n002"}},
        {"node": None, "entity": {"type": "job", "job_id": "1"}},
        {"entity": {"type": "gpu", "node": "n001\x00"}},
        {"node": "n001", "entity": {"type": "gpu", "node": ""}},
    ],
)
def test_a_finding_that_does_not_name_one_node_moves_nothing(twisted: dict[str, Any]) -> None:
    assert Cluster().say("Finding", xid(**twisted)) == []


def test_a_finding_on_another_nodes_subject_moves_nothing() -> None:
    cluster = Cluster()
    message = inbound("Finding", xid())
    forged = type(message)("Finding", message.subject.replace("n001", "n002"), message.data, message.ts_ns)
    assert cluster.keyed.on(forged) == []


def test_two_clusters_know_nothing_of_each_other() -> None:
    cluster = Cluster()
    said = cluster.say("Finding", xid(cluster="south"))
    assert said == []  # south has only just begun
    cluster.say("ClusterState", {**controller(T0 + 60 * S), "cluster": "south"})
    said = cluster.say("Finding", xid(cluster="south", ts=T0 + 61 * S, state="update"))
    assert [(action["cluster"], action["rule"]) for action in said] == [("south", "node_unknown")]


def test_an_older_word_about_a_node_does_not_undo_a_newer_one() -> None:
    cluster = Cluster()
    cluster.say("NodeState", node("n001", T0, "idle", ("DRAIN",), reason="ops"))
    cluster.say("NodeState", node("n001", T0 - S), at=T0 - S)
    assert told(cluster.say("Finding", xid(ts=T0 + S))) == [("n001", "refused", "already_drained")]


def test_nothing_is_decided_before_it_has_settled() -> None:
    step = DrainStep()
    begin = [
        inbound("ClusterState", controller(T0)),
        inbound("NodeState", node("n001")),
        inbound("NodeState", node("n2")),
    ]
    events = run(step, [*begin, inbound("Finding", xid(ts=T0 + S))], until_ns=T0 + 29 * S)
    assert events == []
    events = run(step, [*begin, inbound("Finding", xid(ts=T0 + S))], until_ns=T0 + 31 * S)
    assert [event.data["verdict"] for event in events if not isinstance(event.data, bytes)] == ["proposed"]


def test_a_dry_runs_proposals_bind_a_dry_run_but_not_an_armed_drainer() -> None:
    dry, armed = Cluster(), Cluster(dry_run=False)
    (proposal,) = dry.say("Finding", xid())
    fresh = Cluster()
    assert fresh.say("DrainAction", proposal) == []
    assert fresh.say("Finding", xid(ts=T0 + S)) == []
    assert armed.say("DrainAction", proposal) == []
    assert told(armed.say("Finding", xid(ts=T0 + S))) == [("n001", "approved", "hard_evidence")]


def test_a_restart_that_reads_its_history_decides_as_if_it_had_never_stopped() -> None:
    first, second = Cluster(dry_run=False), Cluster(dry_run=False)
    (approval,) = first.say("Finding", xid())
    second.say("DrainAction", approval)
    for cluster in (first, second):
        cluster.say("NodeState", node("n001", T0 + S, flags=("DRAIN",), reason=approval["reason"]))
        cluster.alive(T0 + 50 * S)
    for message in (
        xid(ts=T0 + 60 * S, state="update"),
        xid("n001", T0 + 61 * S, code=48),
        xid("n003", T0 + 62 * S),
        xid("n004", T0 + 63 * S),
        lag(ts=T0 + 64 * S),
    ):
        assert told(first.say("Finding", message)) == told(second.say("Finding", message))


def test_an_operator_who_resumes_is_not_overruled_by_the_old_finding() -> None:
    cluster = Cluster(dry_run=False)
    (approval,) = cluster.say("Finding", xid(id="E1"))
    cluster.say("NodeState", node("n001", T0 + 10 * S, flags=("DRAIN",), reason=approval["reason"]))
    cluster.say("NodeState", node("n001", T0 + 600 * S))
    cluster.alive(T0 + 601 * S)
    assert cluster.say("Finding", xid(id="E1", ts=T0 + 601 * S, state="update")) == []
    cluster.say("Finding", xid(id="E1", ts=T0 + 602 * S, state="closed"))
    cluster.alive(T0 + 25 * HOUR)
    assert cluster.say("Finding", xid(id="E1", ts=T0), at=T0 + 25 * HOUR) == []
    assert told(cluster.say("Finding", xid(id="E2", ts=T0 + 25 * HOUR))) == [("n001", "approved", "hard_evidence")]


def test_one_bad_rule_does_not_drain_the_fleet() -> None:
    cluster = Cluster(200, dry_run=False)
    said = []
    for n in range(1, 61):
        ts = T0 + n * 5 * S
        said += cluster.alive(ts)
        fresh = cluster.say("Finding", xid(f"n{n:03d}", ts))
        said += fresh
        for action in fresh:
            if action["verdict"] == "approved":
                said += cluster.say(
                    "NodeState", node(action["node"], ts + S, flags=("DRAIN",), reason=action["reason"])
                )
    said += cluster.pass_to(T0 + 400 * S)
    assert len([action for action in said if action["verdict"] == "approved"]) == 3
    rules = {rule for _, verdict, rule in told(said) if verdict == "refused"}
    assert {"mass_failure"} <= rules
    # An operator's resume goes on as ever, and frees nothing while the mass lasts.
    cluster.say("NodeState", node("n001", T0 + 401 * S))
    assert [a for a in cluster.pass_to(T0 + 420 * S) if a["verdict"] == "approved"] == []


def test_a_port_that_was_down_for_a_moment_drains_nothing() -> None:
    flap = lag(kind="ib_flap", id="ib", first_ts=T0 - 40 * S, cause="link_down")
    assert told(Cluster().say("Finding", flap)) == [("n002", "refused", "too_young")]


def test_one_application_error_drains_nothing() -> None:
    assert Cluster().say("Finding", xid(code=31, advice="none", severity="info")) == []


def test_a_long_silence_of_slurm_leaves_no_pile_of_actions() -> None:
    cluster = Cluster(dry_run=False)
    cluster.say("ClusterState", controller(T0, "down"))
    for minute in range(31):
        for n in (1, 2, 3):
            cluster.say("Finding", xid(f"n{n:03d}", T0 + (minute * 60 + n * 15) * S, first_ts=T0 + n * 15 * S))
    said = cluster.pass_to(T0 + 31 * MINUTE)
    assert [action["verdict"] for action in said].count("approved") <= 2


def test_what_is_long_over_is_forgotten_but_not_what_is_still_open() -> None:
    cluster = Cluster(confirm_within_s=1e9, slurm_age_s=1e9)
    cluster.say("Finding", xid("n001"))
    cluster.say("Finding", xid("n002", ts=T0 + S, id="done"))
    cluster.say("Finding", xid("n002", ts=T0 + 2 * S, id="done", state="closed"))
    cluster.pass_to(T0 + 9 * DAY)
    cluster.keyed.advance(T0 + 9 * DAY + 2 * MINUTE)
    assert set(cluster.world.history.effects) == {("xid-n001-79", True)}
    assert cluster.world.closed == {}
    assert len(cluster.world.history.said) <= 1


def test_a_capture_goes_through_it_as_the_live_stream_would() -> None:
    pipeline = Pipeline([make_step({"drain": {"limits": {"settle_s": 5}}})])
    messages = [
        ("ClusterState", controller(T0)),
        *[("NodeState", node(f"n{n:03d}", T0)) for n in range(1, 11)],
        ("Finding", xid(ts=T0 + 10 * S)),
        ("Finding", lag(ts=T0 + 11 * S)),
        ("Finding", xid(ts=T0 + 40 * S, state="update")),
    ]
    made = []
    for kind, data in messages:
        message = inbound(kind, data)
        made += list(pipeline.feed(message.subject, None, encode(kind, data), message.ts_ns))
    made += list(pipeline.finish(T0 + 60 * S))
    assert [(m.kind, m.data["node"], m.data["verdict"], m.data["rule"]) for m in made] == [
        ("DrainAction", "n001", "proposed", "hard_evidence"),
        ("DrainAction", "n002", "refused", "drained_at_once"),
    ]
    assert CLUSTER in made[0].subject
