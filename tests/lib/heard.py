"""The Slurm feed at work: let it run, and hear what it says on its streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from heeler.bus import Bus, Consumer, ConsumerSpec, Delivery, decode
from heeler.slurm.agent import Agent, until_stopped


class Heard:
    """All messages of the feed since the beginning, in order."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.clusters: list[dict[str, Any]] = []

    def job_events(self) -> list[tuple[str, str, str]]:
        """Job, event and state of each message."""
        return [(m["job_id"], m["event"], m["state"]) for m in self.jobs]

    def node(self, name: str) -> dict[str, Any]:
        """The last word on a node."""
        return [m for m in self.nodes if m["node"] == name][-1]

    def down(self) -> list[dict[str, Any]]:
        """The messages that say that Slurm is away."""
        return [m for m in self.clusters if m["controller"] == "down"]


@asynccontextmanager
async def hearing(bus: Bus) -> AsyncIterator[Heard]:
    """Hear the feed while the block runs."""
    heard = Heard()
    tasks = []
    for kind, stream, pattern, into in (
        ("JobEvent", "EVENTS", "slurm.job.*", heard.jobs),
        ("NodeState", "EVENTS", "slurm.node.*", heard.nodes),
        ("ClusterState", "AGENTS", "slurm.cluster.*", heard.clusters),
    ):

        async def on(delivery: Delivery, kind: str = kind, into: list[dict[str, Any]] = into) -> None:
            into.append(decode(kind, delivery.data))

        consumer = Consumer(bus, ConsumerSpec(stream, (pattern,), start=1), on)
        await consumer.start()
        tasks.append(asyncio.create_task(consumer.watch()))
    try:
        yield heard
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[Agent]:
    """Let the feed run while the block runs. Raises what went wrong in it."""
    stop = asyncio.Event()

    async def work() -> None:
        await agent.restore()
        await agent.run()

    task = asyncio.create_task(until_stopped(stop, work()))
    try:
        yield agent
    finally:
        stop.set()
        await task
