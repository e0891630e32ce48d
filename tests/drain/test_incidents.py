"""One cause on several nodes: soft drains of its nodes wait, hard evidence does not, and nothing is drained sooner."""

from typing import Any

import pytest
from drainworld import CLUSTER, T0, Cluster, S, lag, told, xid
from hypothesis import given, settings
from hypothesis import strategies as st

MINUTE = 60 * S
PORT = {
    "kind": "ib_down",
    "entity": {"type": "port", "node": "n002", "port": "mlx5_0/1"},
    "cause": "link_down",
    "impact": {"job_slowdown_ratio": None},
}


def incident(*members: str, ts: int = T0, **more: Any) -> dict[str, Any]:
    """A switch that took links of several nodes down."""
    return {
        "v": 1,
        "cluster": CLUSTER,
        "id": "incident-1",
        "kind": "incident",
        "state": "update",
        "severity": "critical",
        "confidence": 0.9,
        "entity": {"type": "switch", "places": ["switch:leaf1"], "members": list(members), "nodes_total": 16},
        "cause": "links_lost",
        "first_ts": ts - 600 * S,
        "ts": ts,
        "data_ts": ts,
        "evidence": [{"metric": "nodes", "value": 16}],
        "advice": "person",
        "summary": "16 nodes behind switch leaf1 lost InfiniBand or Ethernet links within 4 s.",
        **more,
    }


def port(ts: int = T0, **more: Any) -> dict[str, Any]:
    return lag(ts=ts, id="ib_down-n002", **{**PORT, **more})


def test_without_an_incident_such_a_port_drains_its_node() -> None:
    assert told(Cluster().say("Finding", port())) == [("n002", "proposed", "soft_evidence")]


def test_a_finding_that_names_its_incident_is_held() -> None:
    (action,) = Cluster().say("Finding", port(incident="incident-1"))
    assert (action["verdict"], action["rule"], action["why"]) == ("refused", "shared_cause", "part of incident-1")


def test_a_finding_that_the_incident_names_is_held_even_before_it_says_so_itself() -> None:
    cluster = Cluster()
    assert cluster.say("Finding", incident("ib_down-n001", "ib_down-n002")) == []
    (action,) = cluster.say("Finding", port())
    assert (action["verdict"], action["rule"]) == ("refused", "shared_cause")
    assert "16 nodes behind switch leaf1" in action["why"]


def test_others_of_that_time_are_not_held() -> None:
    cluster = Cluster()
    cluster.say("Finding", incident("ib_down-n007"))
    assert told(cluster.say("Finding", port())) == [("n002", "proposed", "soft_evidence")]


def test_when_the_incident_is_over_what_is_left_is_the_nodes_own() -> None:
    cluster = Cluster()
    cluster.say("Finding", incident("ib_down-n002"))
    assert told(cluster.say("Finding", port())) == [("n002", "refused", "shared_cause")]
    cluster.say("Finding", incident("ib_down-n002", ts=T0 + 10 * S, state="closed", close_reason="over"))
    late = cluster.say("Finding", incident("ib_down-n002", ts=T0 + 5 * S), at=T0 + 11 * S)  # opens nothing
    said = late + cluster.say("Finding", port(T0 + 12 * S))
    assert told(said) == [("n002", "proposed", "soft_evidence")]


@pytest.mark.parametrize("told_by", ["finding", "incident"])
def test_hard_evidence_is_not_held(told_by: str) -> None:
    cluster, named = Cluster(), dict[str, Any](incident="incident-1") if told_by == "finding" else {}
    cluster.say("Finding", incident("xid-n001-79"))
    assert told(cluster.say("Finding", xid(**named))) == [("n001", "proposed", "hard_evidence")]


@pytest.mark.parametrize("advice", ["person", "drain_now", "drain_after_job"])
def test_an_incident_itself_leads_to_nothing_whatever_it_asks_for(advice: str) -> None:
    cluster = Cluster()
    assert cluster.say("Finding", incident("ib_down-n002", advice=advice)) == []
    assert cluster.say("Finding", incident(ts=T0 + S, advice=advice, node="n005")) == []
    assert cluster.pass_to(T0 + MINUTE) == []


FINDINGS = st.sampled_from(
    [
        xid(),
        xid(code=31),
        xid(kind="gpu_lost"),
        lag(),
        lag(advice="observe"),
        port(),
        port(kind="ib_flap", impact={"job_slowdown_ratio": 1.5}),
        lag(kind="thermal"),
        lag(kind="gpu_missing", cause="missing"),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    FINDINGS,
    st.sampled_from(["person", "none", "drain_now", "observe"]),
    st.sampled_from(["update", "closed", "unknown"]),
    st.booleans(),
    st.booleans(),
)
def test_an_incident_never_makes_a_drain_more_likely(
    finding: dict[str, Any], advice: str, state: str, member: bool, marked: bool
) -> None:
    def proposed(*said: dict[str, Any]) -> set[str]:
        cluster = Cluster(nodes=20)
        made = [action for one in said for action in cluster.say("Finding", one)] + cluster.pass_to(T0 + MINUTE)
        return {action["node"] for action in made if action["verdict"] in ("proposed", "approved")}

    around = incident(*([finding["id"]] if member else []), advice=advice, state=state)
    mine = {**finding, "incident": "incident-1"} if marked else finding
    assert proposed(around, mine) <= proposed(finding)
    assert proposed(mine, around) <= proposed(finding)
