"""`heeler events` on a real bus."""

import asyncio
import json
import subprocess
import time
from typing import Any

import pytest
from heelercli import HEELER, environment, heeler
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, encode, subjects

S = 1_000_000_000
NOW = time.time_ns()
WHO = {"v": 1, "cluster": "north", "node": "n1", "boot": "b"}


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test begin now, not when all tests were collected: what is asked for ends an hour ago."""
    monkeypatch.setitem(globals(), "NOW", time.time_ns())


async def publish(bus: Bus, kind: str, subject: str, data: dict[str, Any], msg_id: str) -> None:
    await bus.publish_acked(subject, kind, encode(kind, data), msg_id)


async def kernel(bus: Bus, seq: int, *, jobs: list[str] | None, **more: Any) -> None:
    data = {**WHO, "ts": NOW - 60 * S + seq, "seq": seq, "kind": "xid", "code": 79, "text": f"line {seq}", **more}
    if jobs is None:
        await publish(bus, "KernelEvent", subjects.kernel_event("north", "n1"), data, f"k{seq}")
    else:
        data |= {"jobs": jobs, "shard": 3}
        await publish(bus, "JobKernelEvent", subjects.job_kernel_event("north", "3", "n1"), data, f"j{seq}")


async def finding(bus: Bus, name: str, node: str, age_s: int, **more: Any) -> None:
    data = {
        "v": 1, "cluster": "north", "id": name, "kind": "xid", "state": "open", "severity": "critical",
        "confidence": 0.9, "entity": {"type": "gpu", "node": node}, "node": node, "first_ts": NOW - age_s * S,
        "ts": NOW - age_s * S, "evidence": [], "advice": "drain_now", "summary": f"GPU 0 on {node} is gone", **more,
    }  # fmt: skip
    await publish(bus, "Finding", subjects.finding("north", "xid", node, name), data, f"{name}.{data['state']}")


@pytest.mark.bus
async def test_what_happened_is_told_once_and_in_order_of_its_own_time(bus: Bus, nats_server: NatsServer) -> None:
    await kernel(bus, 1, jobs=None)
    await kernel(bus, 1, jobs=["7"])
    await finding(bus, "f1", "n1", 50, job_id="7")
    await finding(bus, "late", "n2", 120)  # stored after the others, happened before
    await finding(bus, "old", "n2", 7200)
    action = {"v": 1, "cluster": "north", "id": "a", "node": "n1", "ts": NOW - 40 * S, "verdict": "refused",
              "dry_run": True, "why": "no second signal", "actor": "drain-1"}  # fmt: skip
    await publish(bus, "DrainAction", subjects.drain_action("north", "n1"), action, "a")
    bad = {**WHO, "ts": NOW - 30 * S, "seq": 1, "run": "r", "check": "gpu_ecc", "outcome": "bad", "phase": "periodic",
           "why": "evil\x1b[2J\nname"}  # fmt: skip
    await publish(bus, "HealthResult", subjects.health_result("north", "n1"), bad, "h")
    await bus.client.publish(subjects.health_run("north", "n1"), b"\xc1")
    await bus.client.flush()

    done = heeler("events", url=nats_server.url)
    lines = [line.split("  ", 1)[1] for line in done.stdout.splitlines()]
    assert lines == [
        "finding  GPU 0 on n2 is gone (critical, advice drain now).",
        "kernel   The kernel of n1 reports xid 79 (job 7): line 1.",
        "finding  GPU 0 on n1 is gone (critical, advice drain now, job 7).",
        "drain    The drainer does not drain n1 (dry run): no second signal.",
        "check    Check gpu_ecc on n1 is bad (periodic): evil?[2J?name.",
    ]
    assert "(1 messages could not be read)" in done.stderr

    assert len(heeler("events", "--since", "3h", url=nats_server.url).stdout.splitlines()) == 6
    of_node = heeler("events", "--node", "n[2-3]", url=nats_server.url).stdout
    assert [line.split()[1] for line in of_node.splitlines()] == ["finding"]
    of_job = heeler("events", "--job", "7", url=nats_server.url).stdout
    assert [line.split()[1] for line in of_job.splitlines()] == ["kernel", "finding"]
    assert heeler("events", "--kind", "job", url=nats_server.url).stdout == ""
    newest = heeler("events", "--last", "2", url=nats_server.url)
    assert [line.split()[1] for line in newest.stdout.splitlines()] == ["drain", "check"]
    assert "(3 earlier events are left out: --last 0 shows all)" in newest.stderr
    found = [json.loads(line) for line in heeler("events", "--json", url=nats_server.url).stdout.splitlines()]
    assert [one["kind"] for one in found] == ["finding", "kernel", "finding", "drain", "check"]
    assert found[1]["jobs"] == ["7"]
    assert found[1]["data"]["text"] == "line 1"
    assert found[4]["data"]["why"] == "evil\x1b[2J\nname"


@pytest.mark.bus
async def test_follow_tells_what_comes_says_that_the_bus_is_away_and_goes_on(bus: Bus, nats_server: NatsServer) -> None:
    await kernel(bus, 1, jobs=["7"])
    follow = subprocess.Popen(
        [HEELER, "events", "--follow", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**environment(nats_server.url), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert follow.stdout is not None
    assert follow.stderr is not None
    try:
        line = await asyncio.to_thread(follow.stdout.readline)
        assert json.loads(line)["data"]["seq"] == 1
        await kernel(bus, 2, jobs=None)
        await kernel(bus, 2, jobs=["7"])
        found = json.loads(await asyncio.to_thread(follow.stdout.readline))
        assert (found["data"]["seq"], found["jobs"]) == (2, ["7"])
        nats_server.kill()
        assert b"the bus is away" in await asyncio.to_thread(follow.stderr.readline)
        nats_server.start()
        assert b"the bus is back" in await asyncio.to_thread(follow.stderr.readline)
        await until(lambda: bus.client.is_connected)
        await kernel(bus, 3, jobs=["7"])
        found = json.loads(await asyncio.to_thread(follow.stdout.readline))
        assert found["data"]["seq"] == 3
        follow.terminate()
        assert await asyncio.to_thread(follow.wait, 15) == 0
    finally:
        follow.kill()
        follow.wait()


@pytest.mark.bus
def test_a_bus_without_streams_and_wrong_words_are_one_line(nats_server: NatsServer) -> None:
    assert "the bus does not answer" in heeler("events", url=nats_server.url, code=1).stderr
    assert "neither a span" in heeler("events", "--since", "soon", code=2).stderr
    assert "n[1" in heeler("events", "--node", "n[1", code=2).stderr
