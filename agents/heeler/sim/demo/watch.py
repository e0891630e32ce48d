"""Follows a run on the bus: every message once, with the server's time, kept for the verdict and told to the story."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import Bus, Consumer, ConsumerSpec, Delivery
from heeler.engine import Inbound, Refused, intake
from heeler.otlp.map import METRICS
from heeler.otlp.traces import TRACES
from heeler.sim.demo.verdict import Exported, Passage

# Stream -> the kinds that are read from it.
FOLLOWED = {
    "FINDINGS": ("finding.*.*.*",),
    "DRAIN": ("drain.action.*",),
    "EVENTS": ("kernel.event.*", "job.event.*.*", "slurm.job.*"),
    "JOBSAMPLES": ("job.sample.*.*",),
    "SAMPLES": ("gpu.sample.*", "ib.sample.*", "host.sample.*", "switch.sample.*"),
}
# Every message of these is one in the sink.
COUNTED = frozenset(("JobSample", "IbSample", "HostSample", "SwitchSample"))
# Beginnings of metrics whose messages may be overtaken by the next before they are exported: AgentStatus, ClusterState.
OVERTAKEN = ("heeler.agent", "heeler.collector", "heeler.slurm")
LOGGED = frozenset(("Finding", "DrainAction", "JobKernelEvent"))


@dataclass(slots=True)
class Watch:
    """What was seen so far. `on_message` is told of each message as it comes."""

    bus: Bus
    on_message: Callable[[Inbound], None]
    findings: list[Inbound] = field(default_factory=list)
    actions: list[Inbound] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    sampled: set[str] = field(default_factory=set)  # nodes with a JobSample
    counts: Counter[str] = field(default_factory=Counter)
    passage: Passage = field(default_factory=Passage)
    exported: Exported = field(default_factory=Exported)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        """Begin to read every followed stream from its beginning."""
        for name, patterns in FOLLOWED.items():
            consumer = Consumer(self.bus, ConsumerSpec(name, patterns, start=1), self._on)
            await consumer.start()
            self._tasks.append(asyncio.create_task(consumer.watch()))

    async def stop(self) -> None:
        """Read no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on(self, delivery: Delivery) -> None:
        try:
            message = intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns)
        except Refused as refused:
            self.counts[f"refused {refused.why}"] += 1
            return
        self.counts[message.kind] += 1
        self._book(message)
        if message.kind == "Finding":
            self.findings.append(message)
        elif message.kind == "DrainAction":
            self.actions.append(message)
        elif message.kind == "JobEvent":
            self.jobs[message.data["job_id"]] = message.data
        self.on_message(message)
        self.changed.set()

    def _book(self, message: Inbound) -> None:
        """Note what must come out of enrich and arrive at the sink."""
        if message.kind == "GpuSample":
            self.passage.sample(message.data)
        elif message.kind == "JobSample":
            self.passage.job_sample(message.data)
            self.sampled.add(message.data["node"])
        if message.kind in COUNTED:
            self.exported.expect(METRICS[message.kind](message.data))
        elif message.kind in LOGGED:
            self.exported.expected["logs"] += 1
            self.exported.expected["spans"] += len(TRACES[message.kind](message.data, message.ts_ns))

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something holds of what was seen; False when it takes too long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not condition():
            left = end - loop.time()
            if left <= 0:
                return False
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), min(left, 0.5))
            except TimeoutError:
                continue
        return True
