"""What an answer to a check is worth: healthy only where nothing is left to doubt."""

from typing import Any

import pytest

from heeler.drain.checking import judge, request, run_id

ASKED = request("north", "n001", ("gpu_count", "gpu_xid"), "drain-1", "drained", 1_000, 60.0)


def run(*outcomes: str, **more: Any) -> dict[str, Any]:
    names = ("gpu_count", "gpu_xid", "disk_usage")
    results = [{"check": name, "outcome": outcome, "why": "so"} for name, outcome in zip(names, outcomes, strict=False)]
    return {
        "cluster": "north",
        "node": "n001",
        "run": "drain-1",
        "verdict": "pass",
        "why": "so",
        "results": results,
        **more,
    }


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (run("ok", "ok"), "healthy"),
        (run("ok", "bad"), "bad"),
        (run("ok", "warn"), "bad"),
        (run("unknown", "bad"), "bad"),
        (run("ok", "unknown"), "unknown"),
        (run("ok", "off"), "unknown"),
        (run("ok"), "unknown"),
        (run(), "unknown"),
        (run("ok", "ok", "bad"), "bad"),
        (run("ok", "ok", "unknown"), "unknown"),
        (run("ok", "ok", verdict="refused"), "unknown"),
        (run("ok", "ok", verdict="would_fail"), "unknown"),
        (run("ok", "ok", verdict="unknown"), "unknown"),
        (run("ok", "ok", run="drain-0"), "unknown"),
        (run("ok", "ok", node="n002"), "unknown"),
        (run("ok", "ok", cluster="south"), "unknown"),
        (run(results=None), "unknown"),
        (None, "unknown"),
    ],
)
def test_only_a_pass_of_all_that_was_asked_is_healthy(answer: dict[str, Any] | None, health: str) -> None:
    found = judge(answer, ASKED)
    assert found.health == health
    assert found.why
    assert (found.verdict == "done") == (health == "healthy")


def test_a_request_names_its_checks_and_its_deadline() -> None:
    assert ASKED["checks"] == ["gpu_count", "gpu_xid"]
    assert ASKED["deadline_ts"] == 1_000 + 60_000_000_000


def test_each_question_has_an_id_of_its_own_that_a_node_takes() -> None:
    ids = {run_id("xid:n001/79", number, now) for number in range(3) for now in range(3)}
    assert len(ids) == 9
    assert all(one.replace("-", "").isalnum() for one in ids)
