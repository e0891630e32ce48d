"""From a finding to a node that works again, on real parts: Slurm, its feed, the bus, the drainer and health services.

Only detect is played: what it would say of a lost GPU is published as it would. All else runs as in production, but for
shorter times.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from drainsite import Process
from drainworld import inbound, xid
from fake_nvml import FakeNvml
from nats.js.api import KeyValueConfig
from natsserver import NatsServer
from slurmfixture import slurm, slurm_cluster
from slurmsandbox import Sandbox
from waiting import Reader, reading, until

from heeler.bus import Bus, BusSettings, ConsumerSpec, decode, encode
from heeler.bus.admin import init

__all__ = ["slurm", "slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.bus, pytest.mark.e2e, pytest.mark.timeout(300)]

BIN = Path(sys.executable).parent
CHECKS = ["gpu_count", "gpu_reachable"]
LIMITS = "drained_min = 4\npartition_drained_min = 4\nunavailable_min = 4\nmass_nodes = 9\nretry_after_s = 1.0"
LIFE = (
    f"[drain.lifecycle]\nundrain = true\nchecks = {json.dumps(CHECKS)}\ncheck_passes = 1\ncheck_attempts = 2\n"
    "check_interval_s = 0.5\ncheck_timeout_s = 30.0\n"
    '[[drain.rules]]\nkind = "xid"\naction = "{action}"\nevidence = "hard"\n'
)
OPERATOR = "ADMIN: psu swap, do not touch"


class Site:
    """A small cluster whose nodes have fake GPUs, and the processes around it."""

    def __init__(self, bus: Bus, actions: Reader, slurm: Sandbox, folder: Path, url: str) -> None:
        self.bus, self.reader, self.slurm, self.folder, self.url = bus, actions, slurm, folder, url
        self.nvml: dict[str, FakeNvml] = {}
        self.stack = ExitStack()
        self.count = 0

    def run(self, name: str, *argv: str | Path, env: dict[str, str] | None = None) -> None:
        """Run a process until the test ends."""
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **(env or {})})
        self.stack.callback(child.wait)
        self.stack.callback(child.terminate)

    def bus_table(self) -> str:
        return f'[bus]\nservers = ["{self.url}"]\ncluster = "north"\n'

    def feed(self) -> None:
        """Run the Slurm feed."""
        config = self.folder / "feed.toml"
        times = "jobs_interval_s = 0.5\nnodes_interval_s = 0.5\n"
        config.write_text(f'{self.bus_table()}[slurm]\nbin_dir = "/usr/bin"\nconf = "{self.slurm.conf}"\n{times}')
        self.run("feed", BIN / "heeler-slurm", "--config", config)

    def drainer(self, action: str = "drain_now") -> Process:
        """Run an armed drainer."""
        drain = f'allow_root = true\nallow_anonymous_bus = true\nslurm_conf = "{self.slurm.conf}"'
        life = LIFE.replace("{action}", action)
        process = Process(
            self.folder / "drain", self.url, Path("/usr/bin/scontrol"), drain, LIMITS, life, timeout_s=5.0
        )
        self.stack.callback(process.close)
        return process

    def serve(self, node: str) -> FakeNvml:
        """Run a node's health service on GPUs of its own."""
        folder = self.folder / node
        folder.mkdir()
        self.nvml[node] = fake = FakeNvml(folder)
        fake.write("gpus 8\n")
        policy, config = folder / "health.toml", folder / "serve.toml"
        policy.write_text(
            f'cluster = "north"\noutbox = "{folder}/outbox"\ncache = "{folder}/cache"\n'
            f"request = {json.dumps(CHECKS)}\n[checks.gpu_count]\nexpected = 8\n"
        )
        config.write_text(f'{self.bus_table()}[serve]\npolicy = "{policy}"\nnode = "{node}"\ninterval_s = 0\n')
        self.run(f"serve-{node}", BIN / "heeler-health", "serve", "--config", config, env=fake.env())
        return fake

    async def say(self, node: str, state: str = "update", **more: Any) -> None:
        """Say what detect would of a lost GPU of a node."""
        self.count += 1
        data = xid(node, ts=time.time_ns(), state=state, **more)
        message = inbound("Finding", data)
        await self.bus.publish_acked(message.subject, "Finding", encode("Finding", data), f"F.{self.count}")

    async def drains(self, *nodes: str, **more: Any) -> None:
        """Say that GPUs are lost, again and again as detect does, until their nodes are drained and that is told."""

        async def told() -> bool:
            for node in nodes:
                await self.say(node, **more)
            await asyncio.sleep(0.2)
            return all(("drain", "verified") in self.told(node) for node in nodes)

        await self.until(told, f"{nodes} are drained")

    async def until(self, condition: Any, what: str) -> None:
        try:
            await until(condition, what, timeout_s=90)
        except AssertionError as error:
            told = {node: self.told(node) for node in self.slurm.names}
            raise AssertionError(f"{error}\n{told}\n{self.tails()}") from error

    def actions(self, node: str) -> list[dict[str, Any]]:
        found = (decode("DrainAction", payload) for payload in self.reader.data)
        return [action for action in found if action["node"] == node]

    def told(self, node: str) -> list[tuple[str, str]]:
        """Step and verdict of what the drainer has said of a node."""
        return [(action.get("step", "drain"), action["verdict"]) for action in self.actions(node)]

    def action(self, node: str, step: str, verdict: str) -> dict[str, Any]:
        return next(a for a in self.actions(node) if (a.get("step", "drain"), a["verdict"]) == (step, verdict))

    def audit(self, node: str) -> list[tuple[str, str]]:
        """Step and verdict of the drainer's log about a node."""
        lines = [json.loads(line) for line in (self.folder / "drain/log").read_text().splitlines() if line[:1] == "{"]
        found = [line for line in lines if line.get("event") == "drain_action" and line.get("node") == node]
        return [(line.get("step") or "drain", line["verdict"]) for line in found]

    def tails(self) -> str:
        return "\n".join(f"== {path}\n{path.read_text()[-1500:]}" for path in self.folder.glob("**/*log"))


@pytest.fixture
async def site(tmp_path: Path, nats_server: NatsServer, slurm: Sandbox) -> AsyncIterator[Site]:
    bus = await Bus.connect(BusSettings(servers=(nats_server.url,), cluster="north"), "test")
    await bus.js.create_key_value(KeyValueConfig(bucket="drain_lease", ttl=18.0, history=1))
    await init(bus, scale=0.002)
    async with reading(bus, ConsumerSpec("DRAIN", ("drain.action.*",), start=1)) as actions:
        made = Site(bus, actions, slurm, tmp_path, nats_server.url)
        made.feed()
        yield made
        made.stack.close()
    await bus.close()


async def test_a_job_is_moved_off_its_broken_node_and_the_node_is_given_back_once_it_is_well(
    site: Site, slurm: Sandbox
) -> None:
    job = slurm.submit("sleep 300", "-N1", "--gres=gpu:8", "--requeue")
    slurm.wait_job(job, "RUNNING")
    node = slurm.run("squeue", "-h", "-o", "%N", "-j", job).strip()
    site.drainer("drain_and_requeue")
    fake = site.serve(node)
    fake.add("3 lost")
    await site.drains(node, job_id=job, jobs=[job])

    await site.until(lambda: ("requeue", "verified") in site.told(node), "the job is requeued")
    await asyncio.to_thread(slurm.wait_job, job, "RUNNING")
    shown = slurm.run("scontrol", "show", "job", job)
    assert "Restarts=1" in shown
    assert f"NodeList={node}\n" not in shown
    assert f"AdminComment=heeler: requeued off {node} (finding xid-{node}-79)" in shown

    await site.until(lambda: ("wait", "done") in site.told(node), "its jobs have ended")
    assert "DRAIN" in slurm.node(node).flags, "the GPU is still lost, and the finding open"
    fake.write("gpus 8\n")
    await site.say(node, "closed")
    await site.until(lambda: ("undrain", "undrained") in site.told(node), "it is given back")

    # Slurm asks the node itself first: until it has answered it bears NOT_RESPONDING.
    await site.until(lambda: (slurm.node(node).state.base, slurm.node(node).flags) == ("IDLE", ()), "it is idle")
    assert slurm.node(node).reason is None
    road = [
        *(("drain", "approved"), ("drain", "done"), ("drain", "verified")),
        *(("requeue", "approved"), ("requeue", "verified"), ("wait", "done")),
        *(("check", "approved"), ("check", "done"), ("undrain", "approved"), ("undrain", "undrained")),
    ]
    assert [told for told in site.told(node) if told[1] not in ("waiting", "held")] == road
    assert [line for line in site.audit(node) if line in road] == road, "each step has its line in the log"
    asked = site.action(node, "check", "done")["answer"]["checks"]
    assert asked == dict.fromkeys(CHECKS, "ok"), "the node itself has said so"
    assert slurm.job_state(job) == "RUNNING"


async def test_a_node_that_is_not_well_stays_and_one_that_an_operator_took_over_is_left_alone(
    site: Site, slurm: Sandbox
) -> None:
    site.drainer()
    site.serve("n002").add("3 lost")
    site.serve("n003")
    await site.drains("n002", "n003")
    slurm.drain("n003", OPERATOR)
    set_at = slurm.node("n003").reason_ts_ns
    for node in ("n002", "n003"):
        await site.say(node, "closed")
    await site.until(lambda: site.told("n002").count(("check", "failed")) == 2, "it was checked twice")
    await site.until(lambda: ("person", "held") in site.told("n002"), "it is left to a person")
    await site.until(lambda: ("person", "held") in site.told("n003"), "it is the operator's")

    held = [action for action in site.actions("n002") if action["verdict"] == "held"][-1]
    assert (held["rule"], held["next"]) == ("check_bad", "reboot")
    assert "gpu" in site.action("n002", "check", "failed")["why"]
    assert str(slurm.node("n002").reason).startswith("heeler:xid:xid-n002-79")
    assert [a["rule"] for a in site.actions("n003") if a["verdict"] == "held"] == ["foreign_reason"]
    assert (slurm.node("n003").reason, slurm.node("n003").reason_ts_ns) == (OPERATOR, set_at)
    for node in ("n002", "n003"):
        assert "DRAIN" in slurm.node(node).flags
        assert "undrain" not in {step for step, _ in site.told(node)}
