"""What is said of a finding or a node: each check of the policy, with its numbers, and the decision that follows."""

from typing import Any

import pytest
from drainstay import REASON, verified
from drainworld import T0, Cluster, S, lag, node, policy, xid

from heeler.bus import encode
from heeler.cli import draintext
from heeler.drain.explain import NUMBERS, explain, name_of
from heeler.drain.hand import Pause
from heeler.drain.policy import CHECKS
from heeler.drain.world import World


def told(cluster: Cluster, name: str, at: int = T0) -> dict[str, Any]:
    answer = explain(cluster.step.policy, cluster.world, name, at)
    envelope = {"v": 1, "cluster": "north", "ts": at, "id": "q", "by": "one"}
    assert encode("DrainAnswer", {**envelope, **answer}), "it can go over the bus"
    return answer


def checks(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    [case] = answer["cases"]
    return {one["check"]: one for one in case["checks"]}


def test_every_check_of_the_policy_has_words_for_its_numbers() -> None:
    assert [name_of(check) for check in CHECKS] == list(NUMBERS)


@pytest.mark.parametrize("name", ["xid-n001-79", "n001"])
def test_a_finding_that_leads_to_a_drain_passes_every_check(name: str) -> None:
    cluster = Cluster()
    cluster.step.dry_run = cluster.world.dry_run = False
    cluster.world.active_ns = T0  # it settles still, so nothing is done yet
    cluster.say("Finding", xid(ts=T0 + S))
    [case] = told(cluster, name, T0 + 2 * S)["cases"]
    assert (case["verdict"], case["rule"]) == ("hold", "settling")
    [case] = told(cluster, name, T0 + 40 * S)["cases"]
    assert (case["verdict"], case["rule"]) == ("approved", "hard_evidence")
    found = {one["check"]: one["why"] for one in case["checks"]}
    assert {one["ok"] for one in case["checks"]} == {True}
    assert found["stale"] == "last confirmed 39 s ago, at most 120 s"
    assert found["table"] == ("the policy's rule for xid: drain_now on hard evidence; confidence 0.97, at least 0.90")
    assert found["mass"] == "1 nodes began to fail within 60 s, at most 4"
    assert found["breaker"] == "closed; 0 of 100 nodes are unavailable, at most 10"
    assert found["drained_at_once"] == "0 nodes are drained by us, 2 of 100 may be with this one"
    assert found["per_hour"] == "0 drains for hard evidence in the last hour, 3 may be with this one"
    assert found["last_in_partition"] == "of its partitions train has 99 others that take jobs"
    assert found["life"] == "not asked of hard evidence"


def test_soft_evidence_is_told_with_its_own_numbers() -> None:
    cluster = Cluster()
    cluster.say("Finding", lag())
    found = {name: one["why"] for name, one in checks(told(cluster, "n002")).items()}
    assert found["life"] == "the trouble is 600 s old, at least 240 s"
    assert found["slower"] == "the job's steps take 1.60 times as long, at least 1.1"
    assert found["second_signal"] == "a physical cause was found: thermal_slowdown"
    assert found["per_job"] == "job 81234 had no drain for soft evidence in the last 1800 s"
    assert found["approved"] == "the policy asks for no approval"


def test_all_that_stands_in_the_way_is_told_not_only_the_first() -> None:
    cluster = Cluster()
    for n in range(20, 40):
        cluster.say("NodeState", node(f"n{n:03d}", state="down"))
    cluster.say("NodeState", node("n001", flags=("DRAIN",), reason="ADMIN: psu swap", reason_user="ops"))
    cluster.say("Finding", xid(confidence=0.5))
    answer = told(cluster, "n001", T0 + 200 * S)
    wrong = {name: one["rule"] for name, one in checks(answer).items() if one["ok"] is False}
    assert wrong == {
        "stale": "stale",
        "table": "confidence",
        "controller": "slurm_unknown",
        "touchable": "already_drained",
        "breaker": "breaker",
    }
    assert answer["cases"][0]["rule"] == "stale", "the first of them decides"
    assert answer["node"]["reason"] == "ADMIN: psu swap"
    assert "already drained" in answer["node"]["left_alone"]


def test_a_node_of_which_slurm_has_said_nothing_is_unknown_not_fine() -> None:
    cluster = Cluster(2)
    cluster.say("Finding", xid("stranger"))
    answer = told(cluster, "stranger")
    found = checks(answer)
    assert "node" not in answer
    assert (found["known"]["ok"], found["known"]["rule"]) == (False, "node_unknown")
    assert {found[name]["ok"] for name in ("opted_out", "touchable", "last_in_partition", "rack")} == {None}


def test_a_node_without_findings_and_a_name_that_nobody_knows() -> None:
    cluster = Cluster()
    cluster.say("Finding", xid())
    quiet = told(cluster, "n050")
    assert (quiet["outcome"], quiet["cases"], quiet["node"]["condition"]) == ("done", [], "up")
    assert quiet["why"] == "no open finding asks for a drain of n050"
    assert told(cluster, "nowhere")["rule"] == "unknown_name"
    cluster.say("Finding", xid(ts=T0 + S, state="closed"))
    assert "that finding was closed" in told(cluster, "xid-n001-79")["why"]


def test_a_drain_of_the_past_is_told_with_what_became_of_it() -> None:
    cluster = Cluster()
    cluster.say("Finding", xid())
    answer = told(cluster, "n001")
    assert (answer["cases"][0]["verdict"], answer["cases"][0]["rule"]) == ("hold", "acted")
    assert [(one["finding_id"], one["state"], one["dry_run"]) for one in answer["node"]["drains"]] == [
        ("xid-n001-79", "standing", True)
    ]


def test_a_node_that_we_have_drained_is_told_with_what_comes_next_and_what_keeps_it() -> None:
    cluster = Cluster(dry_run=False)
    cluster.say("DrainAction", {**verified(), "ts": T0})
    about: dict[str, Any] = {"flags": ("DRAIN",), "reason": REASON, "reason_user": "heeler", "reason_ts": T0}
    cluster.say("NodeState", node("n001", T0 + S, **about))
    stay = told(cluster, "n001", T0 + 2 * S)["node"]["stay"]
    assert (stay["finding_id"], stay["checks_passed"], stay["held"]) == ("xid-n001-79", 0, None)
    assert (stay["next"]["step"], stay["next"]["rule"]) == ("wait", "jobs_run")
    assert stay["stays"] == {"rule": "node_not_still", "why": "n001 is ALLOCATED+DRAIN"}
    cluster.world.hand.set_pause(Pause(T0, on=True, actor="jane", why="new driver"))
    stay = told(cluster, "n001", T0 + 2 * S)["node"]["stay"]
    assert (stay["next"], stay["stays"]) == (None, {"rule": "paused", "why": "paused by jane: new driver"})
    assert told(cluster, "n002")["node"]["stay"] is None
    lines = draintext.explained(told(cluster, "n001", T0 + 2 * S))
    assert "  not given back (paused): paused by jane: new driver" in lines


def test_nothing_is_known_before_anything_was_heard() -> None:
    answer = explain(policy(), World(True), "n001", T0)
    assert (answer["outcome"], answer["rule"]) == ("refused", "unknown_name")
