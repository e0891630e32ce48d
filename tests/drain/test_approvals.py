"""What waits for a person's yes in the packaged policy, how that is shown, and what is said of other findings."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from drainhand import Operator
from drainorders import give, order
from drainsite import Instance, Site
from drainworld import T0, Cluster, S, inbound, lag, xid
from natsserver import NatsServer
from waiting import until

from heeler.cli import draintext
from heeler.drain.explain import explain_untracked
from heeler.drain.settings import load_policy
from heeler.drain.standing import approvals


@pytest.fixture
def operator(tmp_path: Path, nats_server: NatsServer) -> Operator:
    return Operator.at(tmp_path, nats_server.url)


Start = Callable[..., Awaitable[Instance]]


def shown(cluster: Cluster, at: int) -> dict[str, Any]:
    return approvals(cluster.step.policy, cluster.world, at)


def test_by_default_a_lag_with_a_cause_needs_no_approval_and_one_without_does() -> None:
    assert {rule.kind for rule in load_policy().rules if rule.approval} == {"gpu_lag", "gpu_missing"}
    assert all(rule.evidence == "soft" for rule in load_policy().rules if rule.approval)
    [action] = Cluster().say("Finding", lag())
    assert action["verdict"] == "proposed"
    [action] = Cluster().say("Finding", lag(cause="unknown"))
    assert (action["verdict"], action["rule"]) == ("refused", "needs_approval")


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"first_ts": T0 - 10 * S}, "too_young"),
        ({"impact": {}}, "slowdown_unknown"),
        ({"impact": {"job_slowdown_ratio": 1.01}}, "job_not_slower"),
        ({"confidence": 0.5}, "confidence"),
    ],
)
def test_a_person_is_not_asked_about_what_the_rest_of_the_policy_refuses(more: dict[str, Any], rule: str) -> None:
    cluster = Cluster()
    [action] = cluster.say("Finding", lag(**{"cause": "unknown", **more}))
    assert (action["verdict"], action["rule"]) == ("refused", rule)
    assert shown(cluster, T0)["waiting"] == []


def test_what_waits_and_what_was_given_is_shown_with_its_times() -> None:
    cluster = Cluster()
    cluster.say("Finding", lag(cause="unknown"))
    [one] = shown(cluster, T0 + S)["waiting"]
    assert (one["finding_id"], one["node"], one["kind"]) == ("gpu_lag-n002", "n002", "gpu_lag")
    assert (one["since_ns"], one["until_ns"]) == (T0 - 600 * S, T0 + 120 * S)
    give(cluster, order("pause", T0 + S, "c0"))
    give(cluster, order("approve", T0 + S, finding_id="gpu_lag-n002"))
    found = shown(cluster, T0 + 2 * S)
    assert found["waiting"] == []
    [yes] = found["given"]
    assert (yes["actor"], yes["until_ns"]) == ("jane", T0 + S + 3600 * S)
    give(cluster, order("resume", T0 + 2 * S, "c2"))
    assert [a["verdict"] for a in cluster.pass_to(T0 + 4 * S)] == ["proposed"]
    assert shown(cluster, T0 + 5 * S)["given"] == [], "it was used"


def test_an_approval_of_what_is_confirmed_no_more_drains_nothing_and_nothing_waits() -> None:
    cluster = Cluster()
    cluster.say("Finding", lag(cause="unknown"))
    cluster.pass_to(T0 + 200 * S)
    assert shown(cluster, T0 + 200 * S)["waiting"] == []


# Findings that the drainer does not follow.


@pytest.mark.parametrize(
    ("more", "rule", "words"),
    [
        ({"advice": "observe"}, "no_advice", "advises observe: nothing is done for it"),
        ({"state": "closed"}, "closed", "the finding is closed: nothing is done for it"),
        ({"state": "closed", "advice": "observe"}, "closed", "the finding is closed: nothing is done for it"),
    ],
)
def test_a_finding_that_asks_for_no_drain_is_explained(more: dict[str, Any], rule: str, words: str) -> None:
    cluster = Cluster()
    answer = explain_untracked(cluster.step.policy, cluster.world, inbound("Finding", xid(**more)), T0 + S)
    [case] = answer["cases"]
    assert (answer["outcome"], case["verdict"], case["rule"]) == ("done", "hold", rule)
    assert words in case["why"]
    assert answer["node"]["name"] == "n001"
    text = "\n".join(draintext.explained(answer))
    assert "nothing is done now" in text
    assert words in text


def test_a_finding_about_no_node_and_one_that_led_to_a_drain_are_explained() -> None:
    cluster = Cluster()
    job = xid(kind="job_slow", advice="observe", entity={"type": "job", "job_id": "7"})
    job.pop("node")
    answer = explain_untracked(cluster.step.policy, cluster.world, inbound("Finding", job), T0)
    assert "node" not in answer
    assert "on no node" in "\n".join(draintext.explained(answer))
    cluster.say("Finding", xid())
    closed = inbound("Finding", xid(ts=T0 + S, state="closed"))
    [case] = explain_untracked(cluster.step.policy, cluster.world, closed, T0 + 2 * S)["cases"]
    assert "it has led to a drain of n001, which is standing" in case["why"]


@pytest.mark.bus
async def test_an_operator_sees_what_waits_says_yes_and_hears_of_what_is_not_followed(
    site: Site, start: Start, operator: Operator
) -> None:
    await start()
    now = time.time_ns()
    slow = lag("n004", now, cause="unknown", id="slow-1")
    await site.say("Finding", slow)
    await site.say("Finding", xid("n005", now, id="seen-1", advice="observe"))
    await until(lambda: ("n004", "refused", "needs_approval") in site.told, f"it is asked for, heard {site.told}")
    status = await operator("status")
    assert "waits for a person's yes: 1" in status.out
    assert "n004 slow-1, for 10 min: GPU 5 on n004" in status.out
    assert "heeler drain approve slow-1   (can be given for" in status.out
    explained = await operator("explain", "seen-1")
    assert explained.status == 0, explained
    assert "the finding advises observe: nothing is done for it" in explained.out
    unknown = await operator("explain", "seen-2")
    assert (unknown.status, "refused (unknown_name)" in unknown.err) == (3, True)
    yes = await operator("approve", "slow-1", "--why", "looked at it")
    assert yes.status == 0, yes
    await until(lambda: ("n004", "verified", "soft_evidence") in site.told, f"it drains, heard {site.told}")
    assert "waits for a person's yes: none" in (await operator("status")).out
