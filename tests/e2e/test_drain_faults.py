"""The drainer's faults on a real Slurm and a real bus: whatever dies or freezes, there is one drain, told once.

A program in front of the real scontrol kills or freezes the drainer that has called it, or waits, at the step that the
test names. Everything else is as in production, but for a shorter lease.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cutproxy import cut_proxy
from drainsite import Process
from drainworld import controller, inbound, node, xid
from nats.js.api import KeyValueConfig
from natsserver import NatsServer
from slurmfixture import slurm, slurm_cluster
from slurmsandbox import Sandbox
from waiting import Reader, reading, until

from heeler.bus import Bus, BusSettings, ConsumerSpec, decode, encode
from heeler.bus.admin import init

__all__ = ["slurm", "slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.bus, pytest.mark.e2e, pytest.mark.timeout(300)]

TTL_S = 9.0
SHIM = """#!{python} -IS
import fcntl, json, os, pathlib, signal, subprocess, sys, time
home = pathlib.Path({home!r})
what = "update" if sys.argv[1] == "update" else sys.argv[1]
with (home / "calls").open("a+") as calls:
    fcntl.flock(calls, fcntl.LOCK_EX)
    calls.seek(0)
    number = sum(json.loads(line)[0] == what for line in calls) + 1
    calls.write(json.dumps([what, sys.argv[2:]]) + "\\n")
plan = json.loads((home / "plan").read_text())
def strike(when):
    if plan and (plan["call"], plan["number"], plan["when"]) == (what, number, when):
        if "signal" in plan:
            os.kill(os.getppid(), getattr(signal, plan["signal"]))
            return
        (home / "held").touch()
        while not (home / "go").exists():
            time.sleep(0.01)
strike("before")
done = subprocess.run(["/usr/bin/scontrol", *sys.argv[1:]])
strike("after")
sys.exit(done.returncode)
"""


class Site:
    """A bus, a Slurm, and drainers that act on it through the shim."""

    def __init__(self, bus: Bus, actions: Reader, slurm: Sandbox, home: Path, url: str) -> None:
        self.bus, self.reader, self.slurm, self.home, self.url = bus, actions, slurm, home, url
        self.shim = home / "scontrol"
        self.shim.write_text(SHIM.format(python=sys.executable, home=str(home)))
        self.shim.chmod(0o755)
        self.plan(None)
        self.count = 0
        self.stack = ExitStack()

    def plan(self, plan: dict[str, Any] | None) -> None:
        """What happens to the drainer at which call; without a signal the call waits for the file `go`."""
        (self.home / "plan").write_text(json.dumps(plan))

    def spawn(self, name: str, url: str | None = None) -> Process:
        drain = f'allow_root = true\nallow_anonymous_bus = true\nslurm_conf = "{self.slurm.conf}"'
        limits = "retry_after_s = 1.0\nattempts = 9\nmass_nodes = 9"
        process = Process(self.home / name, url or self.url, self.shim, drain, limits, timeout_s=3.0)
        self.stack.callback(process.close)
        return process

    async def say(self, kind: str, data: dict[str, Any]) -> None:
        self.count += 1
        message = inbound(kind, data)
        await self.bus.publish_acked(message.subject, kind, encode(kind, data), f"{kind}.{self.count}.{data['ts']}")

    async def feed(self) -> None:
        """What the Slurm feed would say now."""
        await self.say("ClusterState", controller(time.time_ns()))
        for name in self.slurm.names:
            found = self.slurm.node(name)
            facts: dict[str, Any] = {"partitions": list(found.partitions or ()), "reason": found.reason}
            facts |= {"reason_user": found.reason_user, "reason_ts": found.reason_ts_ns}
            more = {key: value for key, value in facts.items() if value is not None}
            state = found.state.base.lower()
            await self.say("NodeState", node(name, time.time_ns(), state, tuple(found.state.flags), **more))

    async def confirm(self, until_told: str, timeout_s: float = 90.0) -> None:
        """Say again and again that the GPU is lost, as detect does, until the drainer says something."""
        end = time.monotonic() + timeout_s
        while until_told not in self.verdicts and time.monotonic() < end:
            await self.say("Finding", xid(ts=time.time_ns(), state="update"))
            await self.say("ClusterState", controller(time.time_ns()))
            await asyncio.sleep(0.5)
        assert until_told in self.verdicts, f"{self.verdicts}\n{self.tails()}"

    @property
    def actions(self) -> list[dict[str, Any]]:
        return [decode("DrainAction", payload) for payload in self.reader.data]

    @property
    def verdicts(self) -> list[str]:
        return [action["verdict"] for action in self.actions if action.get("step", "drain") == "drain"]

    @property
    def updates(self) -> list[str]:
        """Nodes that were to be drained, one for each command that began."""
        path = self.home / "calls"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [argv[0] for what, argv in calls if what == "update"]

    def tails(self) -> str:
        return "\n".join(f"== {path.parent.name}\n{path.read_text()[-1500:]}" for path in self.home.glob("*/log"))

    async def one_effect(self, *, commands: int = 1) -> None:
        """The node is drained by us, that is said once, and nothing more is done."""
        found = self.slurm.node("n001")
        assert "DRAIN" in found.state.flags
        assert str(found.reason).startswith("heeler:xid:xid-n001-79")
        set_at = found.reason_ts_ns
        await self.feed()
        for _ in range(4):
            await self.say("Finding", xid(ts=time.time_ns(), state="update"))
            await asyncio.sleep(0.5)
        assert self.verdicts.count("verified") == 1, self.verdicts
        assert self.updates == ["nodename=n001"] * commands
        assert self.slurm.node("n001").reason_ts_ns == set_at
        assert all("DRAIN" not in self.slurm.node(name).state.flags for name in self.slurm.names[1:])


@pytest.fixture
async def site(tmp_path: Path, nats_server: NatsServer, slurm: Sandbox) -> AsyncIterator[Site]:
    bus = await Bus.connect(BusSettings(servers=(nats_server.url,), cluster="north"), "test")
    await bus.js.create_key_value(KeyValueConfig(bucket="drain_lease", ttl=TTL_S, history=1))
    await init(bus, scale=0.002)
    async with reading(bus, ConsumerSpec("DRAIN", ("drain.action.*",), start=1)) as actions:
        made = Site(bus, actions, slurm, tmp_path, nats_server.url)
        await made.feed()
        yield made
        made.stack.close()
    await bus.close()


# The calls of a drain: show, update, show.
STEPS = [
    ("show", 1, "before", 1),
    ("show", 1, "after", 1),
    ("update", 1, "before", None),
    ("update", 1, "after", 1),
    ("show", 2, "before", 1),
    ("show", 2, "after", 1),
]


@pytest.mark.parametrize(("call", "number", "when", "commands"), STEPS)
async def test_a_drainer_that_is_killed_at_a_step_leaves_one_drain(
    site: Site, call: str, number: int, when: str, commands: int | None
) -> None:
    site.plan({"call": call, "number": number, "when": when, "signal": "SIGKILL"})
    first = site.spawn("first")
    await first.is_active()
    site.spawn("second")
    await site.say("Finding", xid(ts=time.time_ns()))
    assert await first.ends() == -signal.SIGKILL
    await site.confirm("verified")
    # Killed just before the command runs: the command, which is on its way, may be done all the same.
    await site.one_effect(commands=len(site.updates) if commands is None else commands)
    assert len(site.updates) in (1, 2)


@pytest.mark.parametrize(("call", "number", "when", "commands"), STEPS)
async def test_a_drainer_that_freezes_beyond_its_lease_at_a_step_leaves_one_drain(
    site: Site, call: str, number: int, when: str, commands: int | None
) -> None:
    site.plan({"call": call, "number": number, "when": when, "signal": "SIGSTOP"})
    first = site.spawn("first")
    await first.is_active()
    second = site.spawn("second")
    await site.say("Finding", xid(ts=time.time_ns()))
    await second.is_active()
    await site.confirm("verified")
    first.signal(signal.SIGCONT)
    await until(lambda: '"standing_by"' in first.log.read_text(), "the first stands by")
    await site.one_effect(commands=len(site.updates) if commands is None else commands)
    assert len(site.updates) in (1, 2)


async def test_a_drainer_cut_off_from_the_bus_does_nothing_while_another_drains(
    site: Site, nats_server: NatsServer
) -> None:
    with cut_proxy(nats_server.port) as way:
        first = site.spawn("first", way.url)
        await first.is_active()
        second = site.spawn("second")
        way.cut()
        await second.is_active()
        assert '"standing_by"' in first.log.read_text(), "its own clock ends the lease before the server's does"
        await site.say("Finding", xid(ts=time.time_ns()))
        await site.confirm("verified")
        way.heal()
        second.signal(signal.SIGTERM)
        await until(lambda: first.log.read_text().count('"active"') == 2, "the first has its turn again")
        await site.one_effect()
        told = [action for action in site.actions if action.get("step", "drain") == "drain"]
        assert {action["actor"] for action in told} == {told[0]["actor"]}, "the second has done it, and nobody else"


async def test_a_drainer_cut_off_between_claim_and_command_drains_once_and_the_other_reports_it(
    site: Site, nats_server: NatsServer
) -> None:
    site.plan({"call": "show", "number": 1, "when": "before"})
    with cut_proxy(nats_server.port) as way:
        first = site.spawn("first", way.url)
        await first.is_active()
        second = site.spawn("second")
        await site.say("Finding", xid(ts=time.time_ns()))
        await until((site.home / "held").exists, "it is about to look at the node")
        way.cut()
        (site.home / "go").touch()
        await until(lambda: site.updates == ["nodename=n001"], "it drains within its lease")
        assert site.verdicts == ["approved"], "and can tell nobody"
        await second.is_active()
        await site.confirm("verified")
        way.heal()  # now its own words about it arrive
        second.signal(signal.SIGTERM)
        await until(lambda: first.log.read_text().count('"active"') == 2, "the first has its turn again")
        await site.one_effect()


async def test_a_bus_that_restarts_in_the_middle_leaves_one_drain(site: Site, nats_server: NatsServer) -> None:
    first = site.spawn("first")
    await first.is_active()
    site.spawn("second")
    await site.say("Finding", xid(ts=time.time_ns()))
    nats_server.restart()
    await site.confirm("verified")
    await site.one_effect()


async def test_a_controller_that_is_away_for_a_while_leaves_one_drain(site: Site) -> None:
    first = site.spawn("first")
    await first.is_active()
    await asyncio.to_thread(site.slurm.save_nodes)
    site.slurm.kill_controller()
    await site.say("Finding", xid(ts=time.time_ns()))
    await until(lambda: "refused" in site.verdicts, "it could not be read")
    assert site.updates == []
    site.slurm.start_controller()
    await site.confirm("verified")
    await site.one_effect()


async def test_both_restart_at_once_and_there_is_one_drain(site: Site, nats_server: NatsServer) -> None:
    first = site.spawn("first")
    await first.is_active()
    await site.say("Finding", xid(ts=time.time_ns()))
    await until(lambda: "verified" in site.verdicts, "verified")
    await asyncio.to_thread(site.slurm.save_nodes)
    site.slurm.kill_controller()
    nats_server.restart()
    first.signal(signal.SIGKILL)
    site.slurm.start_controller()
    second = site.spawn("second")
    await second.is_active()
    await site.confirm("verified")
    await site.one_effect()
