"""The service of a node: a request gets the checks that the policy allows and nothing else, over a real bus."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, BusSettings, decode, encode, subjects
from heeler.bus.claims import Claims
from heeler.health.caches import breaker_file, node_file
from heeler.health.model import Check, Probe, ok
from heeler.health.policy import Profile, make_policy
from heeler.health.requests import answer_of, grant

CHECKS = tuple(Check(name, "x.", Probe("p", lambda _c, _a: 1), lambda _f, _s, _c: ok("x")) for name in ("one", "two"))
POLICY = make_policy({"request": ["one"]}, "n1", CHECKS, {"periodic": Profile(("one",))})
NOW = 1_000


def asked(**changes: Any) -> dict[str, Any]:
    return {"v": 1, "cluster": "c", "node": "n1", "ts": NOW, "checks": ["one"], **changes}


def test_what_the_policy_allows_is_granted_once_each() -> None:
    assert grant(asked(checks=["one", "one"]), POLICY, "n1", NOW, busy=False).names == ("one",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"checks": ["two"]}, "not allowed by the policy: two"),
        ({"checks": ["one", "rm -rf /"]}, "not allowed by the policy: rm -rf /"),
        ({"checks": ["--policy"]}, "not allowed"),
        ({"checks": []}, "0 checks"),
        ({"checks": [f"c{n}" for n in range(200)]}, "200 checks"),
        ({"node": "n2"}, "this is n1, not n2"),
        ({"deadline_ts": NOW}, "the deadline has passed"),
    ],
)
def test_all_else_is_refused_as_a_whole(changes: dict[str, Any], words: str) -> None:
    found = grant(asked(**changes), POLICY, "n1", NOW, busy=False)
    assert found.names == ()
    assert words in (found.why or "")


def test_a_second_run_at_the_same_time_is_refused() -> None:
    assert grant(asked(), POLICY, "n1", NOW, busy=True).why == "busy: another run is under way"


@pytest.mark.parametrize(("output", "rc"), [(b"", 3), (b"nonsense", 0), (b"[1]", 0), (b'{"check":"x"}', None)])
def test_a_run_without_a_word_is_a_refusal(output: bytes, rc: int | None) -> None:
    head = {"v": 1, "cluster": "c", "boot": "b", "seq": 1, "run": "r", "phase": "request"}
    found = answer_of(head, output, rc, "n1", NOW)
    assert found["verdict"] == "refused"
    assert encode("HealthRun", found)


def test_the_breaker_file_has_the_keeper_s_time() -> None:
    value = {"state": "open", "why": "many", "ts_ns": 7, "cluster": "north", "more": 1}
    assert breaker_file(json.dumps(value).encode(), "north") == {"state": "open", "why": "many", "ts_ns": 7}
    assert breaker_file(json.dumps(value).encode(), "south") is None, "two clusters may share a bus"
    for key, bad in (("state", "ajar"), ("ts_ns", None), ("ts_ns", "1"), ("cluster", None), ("cluster", "")):
        assert breaker_file(json.dumps({**value, key: bad}).encode(), "north") is None
    for text in (b"", b"[]", b'{"state": "open", "ts_ns": 7, "why": "whose is not said"}'):
        assert breaker_file(text, "north") is None


def test_the_node_file_has_the_state_as_slurm_writes_it() -> None:
    found = node_file({"state": "idle", "flags": ["DRAIN"], "reason": "fan"}, 5)
    assert found == {"state": "IDLE+DRAIN", "reason": "fan", "ts_ns": 5}


# On a real bus


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[tuple[NatsServer, Bus, Path]]:
    server = NatsServer(tmp_path)
    server.start()
    await asyncio.to_thread(server.init_bus, 0.01)
    (tmp_path / "outbox").mkdir()
    (tmp_path / "health.toml").write_text(
        f'cluster = "north"\noutbox = "{tmp_path}/outbox"\ncache = "{tmp_path}/cache"\nrequest = ["uptime"]\n'
        '[profiles.periodic]\nchecks = ["uptime"]\n'
    )
    bus = await Bus.connect(BusSettings(servers=(server.url,), cluster="north"), "test")
    yield server, bus, tmp_path
    await bus.close()
    server.stop()


@asynccontextmanager
async def serving(
    server: NatsServer, folder: Path, interval_s: float = 0.0
) -> AsyncIterator[asyncio.subprocess.Process]:
    config = folder / "serve.toml"
    config.write_text(f'[serve]\npolicy = "{folder}/health.toml"\nnode = "n1"\ninterval_s = {interval_s}\n')
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "heeler.health.cli",
        "serve",
        "--config",
        str(config),
        env={**os.environ, "HEELER_NATS_URL": server.url, "HEELER_CLUSTER": "north"},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), 15) == 0


async def ask(bus: Bus, *checks: str, timeout_s: float = 10.0, **more: Any) -> dict[str, Any] | None:
    request = {"v": 1, "cluster": "north", "node": "n1", "ts": time.time_ns(), "checks": list(checks), **more}
    subject = subjects.health_request("north", "n1")
    found = await bus.request(subject, "HealthRequest", encode("HealthRequest", request), timeout_s=timeout_s)
    return None if found is None else decode("HealthRun", found)


async def answers(bus: Bus, *checks: str, **more: Any) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def has() -> bool:
        answer = await ask(bus, *checks, **more)
        found.extend([answer] if answer else [])
        return bool(found)

    await until(has)
    return found[-1]


async def test_a_request_is_answered_with_results_and_they_go_to_the_outbox(site: tuple[NatsServer, Bus, Path]) -> None:
    server, bus, folder = site
    async with serving(server, folder):
        run = await answers(bus, "uptime", id="mine")
        assert (run["run"], run["phase"], run["node"]) == ("mine", "request", "n1")
        assert [result["check"] for result in run["results"]] == ["uptime"]
        assert len(list((folder / "outbox").glob("*HealthResult.msg"))) == 1


async def test_what_is_not_on_the_list_is_refused_and_nobody_answers_for_others(
    site: tuple[NatsServer, Bus, Path],
) -> None:
    server, bus, folder = site
    async with serving(server, folder):
        assert (await answers(bus, "uptime"))["verdict"] == "pass"
        refused = await answers(bus, "mounts")
        assert (refused["verdict"], refused["why"]) == ("refused", "not allowed by the policy: mounts")
        assert "results" not in refused
        odd = await answers(bus, "uptime", id="../x y")
        assert odd["verdict"] == "refused"
        assert odd["run"] != "../x y"
        assert "'../x y'" in odd["why"]
        late = await answers(bus, "uptime", deadline_ts=1)
        assert late["verdict"] == "refused"
        # No request at all gets no answer, and the service goes on.
        await bus.publish(subjects.health_request("north", "n1"), "HealthRequest", b"\xc1")
        assert (await answers(bus, "uptime"))["verdict"] == "pass"
    assert await ask(bus, "uptime", timeout_s=1.0) is None


async def test_a_broken_policy_is_said_in_the_answer(site: tuple[NatsServer, Bus, Path]) -> None:
    server, bus, folder = site
    async with serving(server, folder):
        await answers(bus, "uptime")
        (folder / "health.toml").write_text("clutser = 1\n")
        broken = await answers(bus, "uptime")
        assert broken["verdict"] == "refused"
        assert "clutser: unknown key" in broken["why"]


def breaker(state: str, cluster: str = "north", why: str = "") -> bytes:
    return json.dumps({"state": state, "why": why, "ts_ns": time.time_ns(), "cluster": cluster}).encode()


async def test_the_breaker_reaches_the_node_s_file_at_once(site: tuple[NatsServer, Bus, Path]) -> None:
    server, bus, folder = site
    claims = await Claims.open(bus, "breakers")
    first = await claims.set("north.prolog", breaker("closed"), None)
    path = folder / "cache/breaker.json"
    async with serving(server, folder):
        await until(path.exists, "what stood there before is read")
        assert json.loads(path.read_text())["state"] == "closed"
        await answers(bus, "uptime")
        before = time.monotonic()
        await claims.set("south.prolog", breaker("open", "south"), None)
        await claims.set("prolog", breaker("open"), None)  # as the key was before it named its cluster
        await claims.set("north.prolog", breaker("open", why="3 nodes"), first)
        await until(lambda: json.loads(path.read_text())["state"] == "open")
        assert time.monotonic() - before < 5
        assert json.loads(path.read_text())["why"] == "3 nodes"


async def test_the_node_s_state_in_slurm_is_kept_and_told_with_results(site: tuple[NatsServer, Bus, Path]) -> None:
    server, bus, folder = site
    state = {"v": 1, "cluster": "north", "node": "n1", "ts": 1, "state": "mixed", "flags": ["DRAIN"], "reason": "fan"}
    subject = subjects.node_state("north", "n1")
    await bus.publish_acked(subject, "NodeState", encode("NodeState", state), "1")
    async with serving(server, folder):
        await until((folder / "cache/node.json").exists)
        assert json.loads((folder / "cache/node.json").read_text())["state"] == "MIXED+DRAIN"


async def test_periodic_runs_leave_their_results(site: tuple[NatsServer, Bus, Path]) -> None:
    server, _, folder = site
    async with serving(server, folder, interval_s=5.0):
        await until(lambda: bool(list((folder / "outbox").glob("*HealthRun.msg"))), timeout_s=30)
