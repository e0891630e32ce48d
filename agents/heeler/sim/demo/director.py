"""The course of a run: watch a healthy fleet, break three things, kill two processors, and judge."""

import asyncio
import json
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import SHARDS, Bus, BusSettings, shard_of
from heeler.bus.lease import open_bucket
from heeler.engine import Inbound
from heeler.sim.demo import verdict
from heeler.sim.demo.cluster import DETECTORS, FEED, FLEET, Cluster
from heeler.sim.demo.screen import Screen
from heeler.sim.demo.settings import DemoError
from heeler.sim.demo.story import Story, sink_line
from heeler.sim.demo.supervisor import Child
from heeler.sim.demo.watch import OVERTAKEN, Watch

BASELINE_S = 10.0
HEALTHY_S = 25.0
FINDING_S = 45.0
ACTION_S = 50.0
SETTLE_S = 25.0
FLAPS = {"count": 3, "down_s": 2.5, "every_s": 5.0}


@dataclass(slots=True)
class Director:
    """Runs the play and collects what the verdict needs."""

    cluster: Cluster
    screen: Screen
    bus: Bus
    story: Story = field(default_factory=Story)
    labels: list[dict[str, Any]] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)
    watch: Watch = field(init=False)
    _sink: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watch = Watch(self.bus, self._tell)

    def _tell(self, message: Inbound) -> None:
        for text, style in self.story.on(message.kind, message.data):
            self.screen.line(text, style)

    async def baseline(self) -> None:
        """Wait until every node is seen with its job, and a little longer."""
        nodes = self.cluster.settings.nodes
        with self.screen.step(f"waiting for samples of all {nodes} nodes, joined with their jobs"):
            if not await self.watch.until(lambda: len(self.watch.sampled) >= nodes, 40.0):
                raise DemoError(f"only {len(self.watch.sampled)} of {nodes} nodes were sampled in 40 s")
            await self._leader(0)
        with self.screen.step("watching the healthy fleet"):
            await asyncio.sleep(BASELINE_S)

    async def healthy(self) -> None:
        """Watch a healthy fleet and kill a processor all the same."""
        await asyncio.sleep(HEALTHY_S / 3)
        await self._kill_leader(0)
        await asyncio.sleep(HEALTHY_S / 3)
        await self._kill(self.cluster.supervisor.children["enrich"], "which joins samples with jobs")
        await asyncio.sleep(HEALTHY_S / 3)

    async def faults(self) -> None:
        """Break three things, kill the leading detect and enrich in between, and wait for every answer."""
        among = {"among": list(self.cluster.real)} if self.cluster.real else {}
        label = await self._inject({"kind": "thermal", "target": {"job_nodes": 16, **among}})
        await asyncio.sleep(3.0)
        await self._kill_leader(shard_of(label["job_id"] or label["node"]))
        await self._answered(label, finding_only=True)
        port = await self._inject({"kind": "ib_flap", "target": {"job_nodes": 16, **among}, "params": FLAPS})
        await asyncio.sleep(2.0)
        await self._kill(self.cluster.supervisor.children["enrich"], "which joins samples with jobs")
        await self._answered(port)
        await self._answered(label)
        lost = await self._inject({"kind": "gpu_lost", "target": {"job_nodes": 16, **among}})
        await self._answered(lost)

    async def _inject(self, entry: dict[str, Any]) -> dict[str, Any]:
        label = await self.cluster.order(entry)
        self.labels.append(label)
        where = f"GPU {label['gpu_index']}" if "gpu_index" in label else f"port {label['port']}"
        real = "a real agent's" if label["node"] in self.cluster.real else "a simulated node's"
        self.screen.line(f"fault {len(self.labels)}: {label['kind']} on {where} of {label['node']}, {real}", "fault")
        return label

    async def _answered(self, label: dict[str, Any], *, finding_only: bool = False) -> None:
        def done() -> bool:
            found = verdict.answer(label, self.watch.findings, self.watch.actions)
            return (found.finding if finding_only else found.action) is not None

        # Not an error here: the verdict says what is missing.
        await self.watch.until(done, FINDING_S if finding_only else ACTION_S)

    async def _leader(self, shard: int) -> Child:
        """Return the detect process that holds a shard's lease, once there is one."""
        bucket, ttl_s = await open_bucket(self.bus, "leases")
        until = time.monotonic() + 6 * ttl_s
        while time.monotonic() < until:
            held = await bucket.get(f"detect.{shard}") if f"detect.{shard}" in await _keys(bucket) else None
            owner = (held.value or b"").decode() if held else ""
            pid = owner.rsplit("-", 2)[1] if owner.count("-") >= 2 else ""
            child = self.cluster.supervisor.by_pid(int(pid)) if pid.isdigit() else None
            if child is not None and child.name in DETECTORS:
                return child
            await asyncio.sleep(0.2)
        raise DemoError(f"no detect process holds shard {shard} of {SHARDS}")

    async def _kill_leader(self, shard: int) -> None:
        await self._kill(await self._leader(shard), "the leading detect process")

    async def _kill(self, child: Child, what: str) -> None:
        pid = child.pid
        await child.kill()
        self.kills.append(child.name)
        self.screen.line(f"kill -9 {pid}: {child.name}, {what}", "bad")
        await asyncio.sleep(1.0)
        await child.start()
        self.screen.line(f"started {child.name} again", "step")

    async def tell_sink(self) -> None:
        """Say from time to time what the sink has received."""
        while True:
            await asyncio.sleep(2.0)
            now = await self._counts()
            if line := sink_line(self._sink, now):
                self.screen.line(*line)
                self._sink = now

    async def _counts(self) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            with urllib.request.urlopen(f"{self.cluster.receiver['http']}/counts", timeout=5) as answer:  # noqa: S310 - our own
                found: dict[str, Any] = json.load(answer)
                return found

        return await asyncio.to_thread(read)

    async def settle(self) -> None:
        """Stop what produces, and wait until all of it has come out of enrich and arrived at the sink."""
        supervisor = self.cluster.supervisor
        self.cpu_s = {name: used for name, child in supervisor.children.items() if (used := child.cpu_s()) is not None}
        with self.screen.step("stopping the fleet, letting enrich and otlp finish"):
            # Detectors first: they must not take the end of the play for a silence of all agents.
            await supervisor.stop(*DETECTORS)
            agents = [name for name in supervisor.children if name.startswith("agent-")]
            await supervisor.stop(FLEET, FEED, *agents)
            until = time.monotonic() + SETTLE_S
            quiet = 0
            while time.monotonic() < until and quiet < 2:
                await asyncio.sleep(0.5)
                await self._receive()
                quiet = quiet + 1 if not self.watch.exported.differences() and not self.watch.passage.lost() else 0

    async def _receive(self) -> None:
        """Ask the sink what it has."""
        counts, exported = await self._counts(), self.watch.exported
        received = {name: count for name, count in counts["metrics"].items() if not name.startswith(OVERTAKEN)}
        exported.received = Counter({**received, "logs": counts["logs"], "spans": counts["spans"]})
        exported.faulty = counts["faults"]


async def _keys(bucket: Any) -> list[str]:
    try:
        return list(await bucket.keys())
    except Exception as error:
        if type(error).__name__ == "NoKeysError":
            return []
        raise


async def connect(cluster: Cluster) -> Bus:
    """Return the demo's own connection."""
    settings = BusSettings(servers=(cluster.url,), cluster=cluster.settings.cluster)
    return await Bus.connect(settings, "heeler-demo", give_up_after_s=10.0)
