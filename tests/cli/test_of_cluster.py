"""Several clusters on one bus: `--cluster` of `heeler events`, `why` and `top`."""

import json
import time
from typing import Any

import pytest
from consolekit import finding, node_state
from heelercli import heeler
from natsserver import NatsServer
from waiting import until_sync

from heeler.bus import Bus, TokenError, encode, prefix_of, subjects

NOW = time.time_ns()
CLUSTERS = ("north", "south.b")  # the second one's name is escaped in subjects


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test begin now, not when all tests were collected: what is asked for ends an hour ago."""
    monkeypatch.setitem(globals(), "NOW", time.time_ns())


async def fill(bus: Bus) -> None:
    """Say the same things of the same node on two clusters."""
    for cluster in CLUSTERS:
        whose: dict[str, Any] = {"cluster": cluster}
        found = finding("f1", ts=NOW, first_ts=NOW - 10**9, summary=f"GPU 0 on n1 of {cluster} is gone", **whose)
        bad: dict[str, Any] = {
            **whose, "v": 1, "node": "n1", "boot": "b", "ts": NOW, "seq": 1, "run": "r", "check": "gpu_ecc",
            "outcome": "bad", "phase": "periodic", "why": f"on {cluster}",
        }  # fmt: skip
        for kind, subject, message in (
            ("Finding", subjects.finding(cluster, "gpu_lag", "n1", "f1"), found),
            ("HealthResult", subjects.health_result(cluster, "n1"), bad),
            ("NodeState", subjects.node_state(cluster, "n1"), node_state("n1", ts=NOW, reason=cluster, **whose)),
        ):
            await bus.publish_acked(subject, kind, encode(kind, message), f"{kind}{cluster}")


@pytest.mark.bus
async def test_each_cluster_can_be_asked_for_alone_and_none_hides_what_another_says(
    bus: Bus, nats_server: NatsServer
) -> None:
    await fill(bus)
    url = nats_server.url

    def why(*args: str) -> Any:
        return json.loads(heeler("why", "node", "n1", "--json", *args, url=url).stdout)

    # streams of newest values are filled a moment later
    until_sync(lambda: bool(len(why()["open_findings"]) == 2 and why("--cluster", "south.b")["node"]))
    assert "  of clusters north, south.b together: --cluster NAME asks about one" in why()["answer"]
    every = [json.loads(line)["data"]["cluster"] for line in heeler("events", "--json", url=url).stdout.splitlines()]
    assert sorted(every) == sorted(CLUSTERS * 2)  # a finding and a check each, though names and outcomes are the same
    of_south = heeler("events", "--cluster", "south.b", url=url).stdout
    assert "on south.b" in of_south
    assert "north" not in of_south
    assert heeler("events", "--cluster", "east", url=url).stdout == ""

    south = why("--cluster", "south.b")
    assert [one["cluster"] for one in south["open_findings"]] == ["south.b"]
    assert [one["reason"] for one in south["node"]] == ["south.b"]
    told = heeler("why", "node", "n1", "--cluster", "south.b", url=url).stdout
    assert "heeler events --node n1 --since 1d --cluster south.b" in told
    assert "not known on this bus" in heeler("why", "node", "n1", "--cluster", "east", url=url, code=3).stdout

    top = json.loads(heeler("top", "--json", "--cluster", "south.b", url=url).stdout)
    assert [row["reason"] for row in top["node_rows"]] == ["south.b"]


def test_what_is_no_name_of_a_cluster_is_refused_and_never_a_pattern() -> None:
    for command in (("events",), ("why", "node", "n1"), ("top",), ("report", "user")):
        assert "not the name of a cluster" in heeler(*command, "--cluster", "", code=2).stderr
    assert prefix_of("*") == "heeler.v1.=2A."
    assert prefix_of(None) == "heeler.v1.*."
    with pytest.raises(TokenError):
        prefix_of("a\nb")
