"""What this feed published before, from the last-value streams."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from heeler.bus import ROUTES, Bus, Consumer, ConsumerSpec, DecodeError, Delivery, decode
from heeler.bus.client import RETRYABLE

log = structlog.get_logger("heeler.slurm")

NS = 1_000_000_000
# All that lives was published again within a day; the rest is for a clock that is not the server's.
LOOK_BACK_NS = 26 * 3600 * NS
CLOCK_SKEW_NS = 900 * NS
RETRY_S = 2.0


@dataclass(slots=True)
class ReadBack:
    """The last message of each job and node, and when Slurm last gave a complete answer."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    last_success_ts_ns: int | None = None


async def read_back(bus: Bus, feed: str, now_ns: int) -> ReadBack:
    """Read what stands in the streams for this cluster; waits for the bus and its streams as long as it takes.

    Jobs that ended long ago are left out: only what is newer than a day before the feed's last sign of life can
    still be running.
    """
    back = ReadBack()
    states: list[dict[str, Any]] = []
    await last_values(bus, "ClusterState", states.append, "last")
    mine = [state for state in states if state["feed"] == feed]
    back.last_success_ts_ns = max((state.get("last_success_ts", 0) for state in mine), default=0) or None
    alive = max((state["ts"] for state in mine), default=0)
    start: str | int = max(min(alive, now_ns) - LOOK_BACK_NS, 0) if alive else "last"
    await _newest(bus, "JobEvent", "job_id", back.jobs, start)
    await _newest(bus, "NodeState", "node", back.nodes, start)
    return back


async def _newest(bus: Bus, kind: str, key: str, into: dict[str, dict[str, Any]], start: str | int) -> None:
    """Read the last-value stream, then what its source has beyond it: the copy may lag, after a restart for seconds."""

    def take(message: dict[str, Any]) -> None:
        into[message[key]] = message

    route = ROUTES[kind]
    await last_values(bus, kind, take, start, stream=route.last)
    copied = max((message["ts"] for message in into.values()), default=None)
    await last_values(bus, kind, take, start if copied is None else max(copied - CLOCK_SKEW_NS, 0), stream=route.stream)


async def last_values(
    bus: Bus, kind: str, take: Callable[[dict[str, Any]], None], start: str | int, *, stream: str | None = None
) -> None:
    """Hand over, in order, the messages of a kind that a stream (its own unless named) has for this cluster."""
    route = ROUTES[kind]

    async def on(delivery: Delivery) -> None:
        try:
            message = decode(kind, delivery.data)
        except DecodeError as err:
            log.warning("read_back_undecodable", subject=delivery.subject, error=str(err))
            return
        if message["cluster"] == bus.cluster:
            take(message)

    spec = ConsumerSpec(stream or route.stream, (route.pattern,), start=start)
    while True:
        consumer = Consumer(bus, spec, on)
        try:
            await consumer.start()
        except RETRYABLE as err:
            log.warning("stream_unavailable", stream=spec.stream, error=f"{type(err).__name__}: {err}")
            await consumer.stop()
            await asyncio.sleep(RETRY_S)
            continue
        watching = asyncio.create_task(consumer.watch())
        try:
            await consumer.caught_up.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return
