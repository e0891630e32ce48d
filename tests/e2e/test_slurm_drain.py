"""The whole road on real parts: a fault on a node of a real Slurm job ends in that node's drain, with our reason.

Real Slurm, real nats-server, the real node agent on a fake NVML library, the real processes. Dry run is off.
"""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml
from natsserver import NatsServer
from needs import need
from nodeagent import agent_command
from slurmfixture import slurm, slurm_cluster
from slurmsandbox import Sandbox
from waiting import until

from heeler.bus import Bus, BusSettings, admin, snapshot
from heeler.console.facts import Facts, checked

__all__ = ["slurm", "slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.bus, pytest.mark.e2e, pytest.mark.timeout(240)]

HEELER = Path(sys.executable).parent / "heeler"
CLUSTER = "sandbox"
OPERATOR = "ADMIN: psu swap, do not touch"


class Site:
    """Everything that runs on this small cluster, by name."""

    def __init__(self, folder: Path, server: NatsServer, slurm: Sandbox) -> None:
        self.folder, self.server, self.slurm = folder, server, slurm
        self.nvml: dict[str, FakeNvml] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kmsg_seq = 100

    def start(self, name: str, *argv: str | Path, env: dict[str, str] | None = None) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **(env or {})})

    def config(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def kernel_log(self, node: str) -> Path:
        return self.folder / node / "kmsg"

    def start_agent(self, node: str) -> None:
        """Start the node's agent on eight busy fake GPUs and a kernel log that is a file."""
        folder = self.folder / node
        folder.mkdir()
        self.nvml[node] = FakeNvml(folder)
        self.nvml[node].write(f"gpus 8\nseed {node}\nall busy\n")
        command = agent_command(
            folder, cluster=CLUSTER, node=node, url=self.server.url, library=self.nvml[node].library
        )
        self.start(f"agent-{node}", *command, env=self.nvml[node].env())

    def bus_table(self) -> str:
        return f'[bus]\nservers = ["{self.server.url}"]\ncluster = "{CLUSTER}"\n'

    def start_processor(self, name: str, text: str = "") -> None:
        self.start(name, HEELER, "run", name, "--config", self.config(name, self.bus_table() + text))

    def start_all(self) -> None:
        feed = f'[slurm]\nbin_dir = "/usr/bin"\nconf = "{self.slurm.conf}"\njobs_interval_s = 0.5\n'
        config = self.config("feed", self.bus_table() + feed + "nodes_interval_s = 0.5\n")
        self.start("feed", HEELER.with_name("heeler-slurm"), "--config", config)
        for node in self.slurm.names:
            self.start_agent(node)
        for name in ("enrich", "detect"):
            self.start_processor(name)
        self.start_processor(
            "drain",
            "[drain]\ndry_run = false\nallow_root = true\nallow_anonymous_bus = true\ntick_s = 0.5\n"
            f'scontrol = "/usr/bin/scontrol"\nslurm_conf = "{self.slurm.conf}"\n'
            "[drain.limits]\nsettle_s = 2.0\ndrained_min = 2\n",
        )

    async def lose(self, bus: Bus, node: str, gpu: int) -> None:
        """Let a GPU fall off the bus: the driver's line in the kernel log, and NVML that no longer finds it."""
        samples: list[dict[str, Any]] = []

        async def sampled() -> bool:
            samples[:] = await held(bus, "SAMPLES", f"gpu.sample.{node}")
            return bool(samples)

        await until(sampled, f"{node} sends samples")
        pci = samples[0]["gpu"]["pci"][gpu]
        self.nvml[node].add(f"{gpu} lost")
        self.kmsg_seq += 1
        with self.kernel_log(node).open("a") as log:
            text = f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
            log.write(f"4,{self.kmsg_seq},{self.kmsg_seq * 1000},-;{text}\n")

    def tail(self) -> str:
        """The end of each log, for when a test fails."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    bus = await Bus.connect(BusSettings(servers=(nats_server.url,), cluster=CLUSTER), "test")
    await admin.init(bus, scale=0.002)
    yield bus
    await bus.close()


@pytest.fixture
def site(tmp_path: Path, bus: Bus, nats_server: NatsServer, slurm: Sandbox) -> Iterator[Site]:
    need("agent")
    made = Site(tmp_path, nats_server, slurm)
    yield made
    made.end()


async def held(bus: Bus, stream: str, pattern: str) -> list[dict[str, Any]]:
    """Return what a stream holds of a pattern, the newest first."""
    found = await snapshot(bus, stream, (pattern,), start=1)
    return [dict(message) for message in checked(Facts(time.time_ns()), found)]


async def test_a_lost_gpu_drains_its_node_and_an_operators_reason_stays(bus: Bus, slurm: Sandbox, site: Site) -> None:
    slurm.drain("n003", OPERATOR)
    job = slurm.submit("sleep 300", "-N2", "--gres=gpu:8", "-w", "n001,n002")
    slurm.wait_job(job, "RUNNING")
    site.start_all()
    try:
        for node in ("n001", "n002"):

            async def attributed(node: str = node) -> bool:
                samples = await held(bus, "JOBSAMPLES", f"job.sample.*.{node}")
                return bool(samples) and samples[0]["job"] == [job] * 8

            await until(attributed, f"the GPUs of {node} belong to job {job}", timeout_s=60)

        await site.lose(bus, "n002", 3)  # a node of the job
        await site.lose(bus, "n003", 5)  # a node that a person has taken out

        async def drained() -> bool:
            return {"DRAIN"} <= set(slurm.node("n002").flags)

        await until(drained, "n002 drains", timeout_s=60)

        async def reported() -> bool:
            verdicts = {a["verdict"] for a in await held(bus, "DRAIN", "drain.action.n002")}
            refusals = {a["verdict"] for a in await held(bus, "DRAIN", "drain.action.n003")}
            return "verified" in verdicts and "refused" in refusals

        await until(reported, "both decisions are on the bus", timeout_s=60)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{site.tail()}") from error

    shown = slurm.run("scontrol", "show", "node", "n002", "-o")
    assert "DRAIN" in shown
    assert "Reason=heeler:" in shown
    assert slurm.job_state(job) == "RUNNING", "a drain lets the job finish"
    assert slurm.node("n003").reason == OPERATOR
    assert "DRAIN" not in slurm.node("n001").flags

    [finding] = [f for f in await held(bus, "FINDINGS_LAST", "finding.*.n002.*") if f["state"] != "closed"]
    assert finding["kind"] == "xid"
    assert finding["code"] == 79
    assert finding["job_id"] == job
    assert finding["entity"]["gpu_index"] == 3
    [action] = [a for a in await held(bus, "DRAIN", "drain.action.n002") if a["verdict"] == "verified"]
    assert action["dry_run"] is False
    assert action["finding_id"] == finding["id"]
    assert action["reason"] in shown
    refused = (await held(bus, "DRAIN", "drain.action.n003"))[0]
    assert refused["why"]
    answer = subprocess.run(
        [HEELER, "why", "node", "n002", "--url", site.server.url], capture_output=True, text=True, check=True
    ).stdout
    assert "79" in answer
    assert "drain verified" in answer
