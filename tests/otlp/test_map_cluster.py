"""From ClusterState to points."""

from typing import Any

import pytest

from heeler.otlp.map_cluster import cluster_points

TS = 1_796_000_000 * 10**9


def told(**changes: Any) -> dict[str, Any]:
    """Return the values of a ClusterState by metric, and of the states that hold."""
    data = {"v": 1, "cluster": "north", "feed": "slurm", "ts": TS, "controller": "up", **changes}
    (made,) = cluster_points(data)
    points = list(made.flat())
    assert all(p["attributes"]["heeler.cluster"] == "north" for p in points)
    states = [p for p in points if p["metric"] == "heeler.slurm.controller.state"]
    assert len(states) == 3
    (holds,) = [p["attributes"]["heeler.slurm.controller"] for p in states if p["value"]]
    return {p["metric"]: p["value"] for p in points if p not in states} | {"controller": holds}


def test_a_controller_that_answers() -> None:
    found = told(last_success_ts=TS, jobs=7, nodes=2, duration_ns=250_000_000, unreadable={"jobs": 1, "nodes": 2})
    assert found == {
        "controller": "up",
        "heeler.slurm.controller.last_success": pytest.approx(1_796_000_000),
        "heeler.slurm.controller.jobs": 7,
        "heeler.slurm.controller.nodes": 2,
        "heeler.slurm.controller.poll.duration": pytest.approx(0.25),
        "heeler.slurm.outages": 0,
        "heeler.slurm.unreadable": 3,
    }


def test_what_was_never_answered_has_no_age_and_no_counts() -> None:
    found = told(controller="down", outages={"jobs": "connect failure", "nodes": "connect failure"})
    assert found == {"controller": "down", "heeler.slurm.outages": 2, "heeler.slurm.unreadable": 0}


def test_a_newer_word_for_the_controller_is_unknown() -> None:
    assert told(controller="resting")["controller"] == "unknown"
