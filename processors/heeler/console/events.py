"""What the streams keep of events, and what comes: read for people."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from heeler.bus import Bus, Consumer, ConsumerSpec, Delivery, escape, prefix_of
from heeler.console.patience import caught_up, started
from heeler.console.timeline import Entry, Timeline
from heeler.engine import Refused, intake

MOST_PATTERNS = 200  # of nodes by name; more are chosen here, not by the server

# kind of entry -> stream, and its subjects with the place of a node and a job
SOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "finding": (("FINDINGS", "finding.*.{node}.*"),),
    "drain": (("DRAIN", "drain.action.{node}"),),
    "kernel": (("EVENTS", "kernel.event.{node}"), ("EVENTS", "job.event.*.{node}")),
    "check": (("EVENTS", "health.result.{node}"), ("EVENTS", "health.run.{node}")),
    "job": (("EVENTS", "slurm.job.{job}"),),
    "node": (("EVENTS", "slurm.node.{node}"),),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries are asked for; empty means all."""

    kinds: Collection[str]
    nodes: Sequence[str] = ()
    jobs: Sequence[str] = ()
    since_ns: int = 0
    cluster: str | None = None  # of those that share the bus; None: all

    def fits(self, entry: Entry) -> bool:
        """Say whether an entry is asked for, whenever it was."""
        return (
            entry.kind in self.kinds
            and (not self.nodes or any(entry.of_node(node) for node in self.nodes))
            and (not self.jobs or any(job in entry.jobs for job in self.jobs))
        )

    def patterns(self) -> dict[str, tuple[str, ...]]:
        """Return what to read from each stream."""
        nodes = [escape(node) for node in self.nodes] if 0 < len(self.nodes) <= MOST_PATTERNS else ["*"]
        jobs = [escape(job) for job in self.jobs] if 0 < len(self.jobs) <= MOST_PATTERNS else ["*"]
        found: dict[str, dict[str, None]] = {}
        for kind in self.kinds:
            for stream, pattern in SOURCES[kind]:
                some = found.setdefault(stream, {})
                some.update({pattern.format(node=node, job=job): None for node in nodes for job in jobs})
        return {stream: tuple(patterns) for stream, patterns in found.items()}


class Reader:
    """Reads the streams that an answer needs, and goes on with what comes."""

    def __init__(self, bus: Bus, wanted: Wanted, tell: Callable[[Entry], None]) -> None:
        self.unreadable = 0
        self._wanted = wanted
        self._tell = tell
        self._timeline = Timeline()
        self._history = True
        self._consumers = [
            Consumer(
                bus, ConsumerSpec(stream, patterns, start=wanted.since_ns, prefix=prefix_of(wanted.cluster)), self._on
            )
            for stream, patterns in wanted.patterns().items()
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def read(self) -> None:
        """Read what the streams keep. Raises TimeoutError where the bus sends nothing for too long."""
        try:
            for consumer in self._consumers:
                await started(consumer)
                self._tasks.append(asyncio.create_task(consumer.watch()))
            for consumer in self._consumers:
                await caught_up(consumer)
        except BaseException:
            await self.stop()
            raise
        self._history = False

    async def follow(self) -> None:
        """Go on until cancelled. Raises what ends a consumer."""
        await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        """End reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for consumer in self._consumers:
            await consumer.stop()

    async def _on(self, delivery: Delivery) -> None:
        try:
            message = intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns)
        except Refused:
            self.unreadable += 1
            return
        for entry in self._timeline.on(message.kind, message.data):
            # What a node kept while the bus was away is stored late: in a window only its own time counts.
            if self._wanted.fits(entry) and (not self._history or entry.ts >= self._wanted.since_ns):
                self._tell(entry)
