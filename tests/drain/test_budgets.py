"""Budgets of partitions, racks and jobs, and the rows of the packaged policy."""

import re
from pathlib import Path
from typing import Any

import pytest
from drainworld import T0, Cluster, S, lag, node, told, xid

from heeler.drain.settings import load_policy

FINDINGS = Path(__file__).parents[2] / "docs/findings.md"
ROOMY: dict[str, Any] = {"drained_ratio": 1.0, "unavailable_ratio": 1.0, "hard_per_hour_min": 99, "mass_nodes": 99}


def drained(cluster: Cluster, *names: str, **more: Any) -> list[tuple[str, str, str]]:
    """What is said to one hard finding after another."""
    said = []
    for second, name in enumerate(names):
        said += cluster.say("Finding", xid(name, T0 + second * S, **more))
    return told(said)


def verdicts(said: list[tuple[str, str, str]]) -> list[str]:
    return [rule for _, _, rule in said]


@pytest.mark.parametrize(
    ("limits", "passes"),
    [
        ({"partition_drained_min": 1, "partition_drained_ratio": 0.0}, 1),
        ({"partition_drained_min": 2, "partition_drained_ratio": 0.1}, 2),
        ({"partition_drained_min": 1, "partition_drained_ratio": 0.3}, 3),
        ({"partition_drained_min": 0, "partition_drained_ratio": 0.0}, 0),
    ],
)
def test_no_more_nodes_of_a_partition_than_may(limits: dict[str, Any], passes: int) -> None:
    cluster = Cluster(40, **ROOMY, hard_per_job=0, **limits)
    for n in range(1, 11):
        cluster.say("NodeState", node(f"n{n:03d}", T0 - 90 * S, partitions=["small", "train"]))
    rules = verdicts(drained(cluster, *[f"n{n:03d}" for n in range(1, 6)]))
    assert rules == ["hard_evidence"] * passes + ["partition_drained"] * (5 - passes)


def test_the_partition_and_its_numbers_are_named() -> None:
    cluster = Cluster(10, **ROOMY)
    cluster.say("Finding", xid("n001"))
    (action,) = cluster.say("Finding", xid("n002", T0 + S))
    assert action["why"] == "1 nodes of partition train are drained by us, at most 1 of 10 may be (max(1, 10%))"


def test_no_more_nodes_of_a_rack_than_may_and_a_node_without_a_rack_has_no_such_limit() -> None:
    cluster = Cluster(0, **ROOMY, partition_drained_ratio=1.0, rack_features=["rack-*"], hard_per_job=0)
    for n in range(1, 41):
        features = ["h100", f"rack-{(n - 1) // 8}"] if n <= 24 else ["h100"]
        cluster.say("NodeState", node(f"n{n:03d}", T0 - 90 * S, features=features))
    said = drained(cluster, "n001", "n002", "n003", "n009", "n030", "n031", "n032")
    assert verdicts(said) == [*["hard_evidence"] * 2, "rack_drained", *["hard_evidence"] * 4]


def test_a_node_that_leaves_and_comes_back_counts_once() -> None:
    cluster = Cluster(10)
    for state, flags in (("idle", ()), ("idle", ("POWERED_DOWN",)), ("idle", ())):
        cluster.say("NodeState", node("n010", T0, state, flags))
    assert cluster.world.fleet.size_of("partition", "train") == 10
    cluster.say("NodeState", {**node("n010", T0), "event": "gone"})
    assert cluster.world.fleet.size_of("partition", "train") == 9


@pytest.mark.parametrize(("most", "passes"), [(1, 1), (3, 3), (0, 5)])
def test_no_more_nodes_of_a_job_in_an_hour_than_may(most: int, passes: int) -> None:
    cluster = Cluster(60, **ROOMY, partition_drained_ratio=1.0, hard_per_job=most)
    names = [f"n{n:03d}" for n in range(1, 6)]
    rules = verdicts(drained(cluster, *names, job_id="81234"))
    assert rules == ["hard_evidence"] * passes + ["per_job"] * (5 - passes)
    assert verdicts(drained(cluster, "n020", job_id="9")) == ["hard_evidence"]


# Rules.


def test_each_kind_that_detect_tells_of_has_its_row_in_the_policy() -> None:
    rows = {rule.kind for rule in load_policy().rules}
    text = FINDINGS.read_text()
    kinds = {
        kind
        for line in text.splitlines()
        if line.startswith("| `")
        for kind in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert len(kinds) > 15
    assert kinds - rows == set()


@pytest.mark.parametrize(
    ("kind", "advice", "verdict", "rule"),
    [
        ("thermal", "drain_after_job", "refused", "slowdown_unknown"),
        ("pcie_degraded", "drain_after_job", "refused", "slowdown_unknown"),
        ("nvlink_degraded", "drain_after_job", "refused", "slowdown_unknown"),
        ("ib_down", "drain_after_job", "proposed", "soft_evidence"),
        ("gpu_missing", "drain_after_job", "refused", "needs_approval"),
        ("gpu_missing", "person", "refused", "person"),
        ("leftover", "person", "refused", "person"),
        ("hang", "person", "refused", "person"),
        ("idle_allocation", "person", "refused", "observe"),
        ("gpu_silent", "drain_now", "refused", "observe"),
    ],
)
def test_newer_kinds_are_answered_by_their_rows(kind: str, advice: str, verdict: str, rule: str) -> None:
    (action,) = Cluster().say("Finding", lag(kind=kind, advice=advice, impact={"job_slowdown_ratio": None}))
    assert (action["verdict"], action["rule"]) == (verdict, rule)


def test_a_slower_job_makes_a_slow_link_a_reason() -> None:
    (action,) = Cluster().say("Finding", lag(kind="pcie_degraded"))
    assert (action["verdict"], action["rule"]) == ("proposed", "soft_evidence")


def test_a_persons_matter_is_the_drainers_only_by_a_rule_that_says_so() -> None:
    own = {"kind": "hang", "action": "drain_and_requeue", "needs_cause": False, "needs_slowdown": False}
    finding = lag(kind="hang", advice="person", cause=None)
    finding.pop("cause")
    (action,) = Cluster(found=load_policy(rules=[own])).say("Finding", finding)
    assert action["rule"] == "person"
    (action,) = Cluster(found=load_policy(rules=[{**own, "advice": ["person"]}])).say("Finding", finding)
    assert (action["verdict"], action["action"], action["jobs"]) == ("proposed", "drain_and_requeue", ["81234"])


@pytest.mark.parametrize("action", ["drain_and_requeue", "reset", "reboot", "drain_now", "drain_after_job"])
def test_each_action_that_drains_says_what_follows(action: str) -> None:
    rule = {"kind": "xid", "action": action, "evidence": "hard"}
    (said,) = Cluster(found=load_policy(rules=[rule])).say("Finding", xid())
    assert (said["verdict"], said["action"], said["advice"]) == ("proposed", action, "reboot")
