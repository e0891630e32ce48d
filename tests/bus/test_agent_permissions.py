"""The permissions in deploy/nats are enough for the real agent, and let it do nothing else."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from fake_nvml import FakeNvml
from natsserver import NatsServer
from needs import need
from nodeagent import agent_command
from waiting import until

from heeler.bus import Bus, BusSettings, decode, snapshot
from heeler.bus.admin import init

TEMPLATE = Path(__file__).resolve().parents[2] / "deploy/nats/agent-permissions.conf"
SUBJECTS = Path(__file__).resolve().parents[2] / "schemas/subjects.yaml"

pytestmark = [pytest.mark.bus, pytest.mark.timeout(120)]


def permissions() -> str:
    """Return the template for node n1 of cluster north."""
    return TEMPLATE.read_text().replace("CLUSTER", "north").replace("NODE", "n1")


@pytest.fixture
def guarded(tmp_path: Path) -> NatsServer:
    """A server with one user that may do all, and the agent's."""
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats/agent.conf").write_text(permissions())
    users = '{ user: "all", password: "all" }\n { user: "agent", password: "secret", include "agent.conf" }'
    return NatsServer(tmp_path / "nats", f"authorization {{ users: [ {users} ] }}")


async def test_the_agent_does_all_it_has_to(
    tmp_path: Path, guarded: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("agent")
    guarded.start()
    monkeypatch.setenv("HEELER_NATS_USER", "agent")
    monkeypatch.setenv("HEELER_NATS_PASSWORD", "secret")
    fake = FakeNvml(tmp_path)
    argv = agent_command(tmp_path, cluster="north", node="n1", url=guarded.url, library=fake.library)
    log = tmp_path / "agent.log"
    settings = BusSettings(servers=(guarded.url.replace("nats://", "nats://all:all@"),), cluster="north")
    bus = await Bus.connect(settings, "test")
    try:
        await init(bus, scale=0.002)
        with log.open("ab") as out:
            agent = subprocess.Popen(argv, env=os.environ | fake.env(), stdout=out, stderr=out)
        try:
            with (tmp_path / "kmsg").open("a") as lines:
                lines.write("4,2,2000,-;NVRM: Xid (PCI:0000:0a:00): 31, pid=1, name=a, words\n")

            async def all_has_come() -> bool:
                kinds = {
                    delivery.subject.removeprefix("heeler.v1.north.")
                    for stream in ("SAMPLES", "EVENTS", "AGENTS")
                    for delivery in await snapshot(bus, stream, (">",), start=1)
                }
                return kinds >= {
                    "gpu.sample.n1", "host.sample.n1", "kernel.event.n1", "agent.status.n1", "agent.inventory.n1",
                }  # fmt: skip

            await until(all_has_come, "all of the agent's messages")

            async def clock_known() -> bool:
                found = await snapshot(bus, "AGENTS", ("agent.status.n1",), start=1)
                return any(
                    decode("AgentStatus", delivery.data).get("clock_offset_ns") is not None for delivery in found
                )

            await until(clock_known, "the offset of the clocks")
        finally:
            agent.terminate()
            assert agent.wait(20) == 0
        assert "ermission" not in log.read_text()
        assert "Violation" not in guarded.log.read_text()
    finally:
        await bus.close()
        guarded.kill()


async def test_it_may_do_nothing_else(guarded: NatsServer) -> None:
    guarded.start()
    settings = BusSettings(servers=(guarded.url.replace("nats://", "nats://agent:secret@"),), cluster="north")
    bus = await Bus.connect(settings, "test")
    try:
        for subject in (
            "heeler.v1.north.gpu.sample.n2",
            "heeler.v1.north.drain.action.n1",
            "$JS.API.STREAM.INFO.EVENTS",
        ):
            await bus.client.publish(subject, b"x")
        await bus.client.flush()
        await asyncio.sleep(0.2)
        refused = guarded.log.read_text()
        assert refused.count("Publish Violation") == 3, refused
    finally:
        await bus.close()
        guarded.kill()


def test_every_subject_that_an_agent_writes_is_there() -> None:
    """A new message of the agent, or one that it passes on, needs a line in the template."""
    allowed = set(re.findall(r'"heeler\.v1\.north\.(\w+\.\w+)\.n1"', permissions()))
    messages = yaml.safe_load(SUBJECTS.read_text())["messages"].values()
    written = {
        m["subject"].removesuffix(".<node>") for m in messages if {"heeler-agent", "heeler-health"} & set(m["writers"])
    }
    assert allowed == written
