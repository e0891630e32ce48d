"""A simulated cluster on the bus, in real time."""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TextIO

import msgpack
import structlog

from heeler.bus import Bus, encode
from heeler.sim.control import Control
from heeler.sim.mirror import Mirror
from heeler.sim.outgoing import Outgoing
from heeler.sim.simulation import Simulation

log = structlog.get_logger("heeler.sim")

EVENTS_EVERY_S = 0.02
IN_FLIGHT = 256  # events that wait for the stream's word at the same time
BEHIND_WINDOWS = 3


@dataclass(slots=True)
class Live:
    """Publishes what a simulation yields when it is due, and takes orders for faults.

    ``mirrors`` maps the names of muted nodes to the files from which real agents read. ``answers`` receives one
    JSON line for each order: the ground truth, for judges only.
    """

    bus: Bus
    simulation: Simulation
    control: Control
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    answers: TextIO = sys.stdout
    clock: Callable[[], int] = time.time_ns
    published: dict[str, int] = field(default_factory=dict)

    async def run(self, stop: asyncio.Event, orders: asyncio.StreamReader | None = None) -> None:
        """Publish until told to stop."""
        gc.set_threshold(100_000, 50, 1000)  # a window of a large fleet is millions of objects and no cycles
        self._mirror()
        await self.send_all(self.simulation.opening())
        tasks = [asyncio.create_task(self._windows()), asyncio.create_task(self._events())]
        if orders is not None:
            tasks.append(asyncio.create_task(self._orders(orders)))
        stopping = asyncio.create_task(stop.wait())
        log.info("sim_started", nodes=len(self.simulation.fleet.nodes), seed=self.simulation.fleet.seed)
        done, _ = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, stopping):
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        log.info("sim_stopped", **self.published)
        for task in done - {stopping}:
            task.result()

    async def _windows(self) -> None:
        simulation = self.simulation
        while True:
            ahead_s = (simulation.now_ns + simulation.pace.window_ns - self.clock()) / 1e9
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
            elif -ahead_s > BEHIND_WINDOWS * simulation.pace.window_ns / 1e9:
                log.warning("sim_behind", seconds=round(-ahead_s, 1))
            samples = simulation.next_window()
            self._mirror()
            await self.send_all(simulation.poll_slurm())
            for message in samples:
                wait_s = (message.due_ns - self.clock()) / 1e9
                if wait_s > 0.005:
                    await asyncio.sleep(wait_s)
                await self._send(message)

    async def _events(self) -> None:
        while True:
            await self.send_all(self._to_mirrors(self.simulation.events_until(self.clock())))
            await asyncio.sleep(EVENTS_EVERY_S)

    def _to_mirrors(self, events: Iterable[Outgoing]) -> list[Outgoing]:
        """Write the lines of mirrored nodes to their kernel logs; return the rest."""
        rest = []
        for event in events:
            mirror = self.mirrors.get(event.data["node"])
            if mirror is None:
                rest.append(event)
            else:
                mirror.kernel_line(event.data["raw"])
        return rest

    async def _orders(self, orders: asyncio.StreamReader) -> None:
        while line := await orders.readline():
            _, answer = self.control.order(line.decode(errors="replace"), self.clock())
            # A lost GPU is lost before the line is read that says so.
            self._mirror()
            self.answers.write(json.dumps(answer) + "\n")
            self.answers.flush()
        await asyncio.Event().wait()  # nobody gives orders any more: go on as before

    def _mirror(self) -> None:
        for name, mirror in self.mirrors.items():
            mirror.show(self.simulation, self.simulation.fleet.index[name], self.clock())

    async def send_all(self, messages: Iterable[Outgoing]) -> None:
        """Publish messages, many at a time, and wait until the streams have those that need it."""
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(message: Outgoing) -> None:
            async with gate:
                await self._send(message)

        waiting = [asyncio.create_task(one(message)) for message in messages]
        if waiting:
            await asyncio.gather(*waiting)

    async def _send(self, message: Outgoing) -> None:
        if message.acked:
            payload = encode(message.kind, message.data)
            await self.bus.publish_acked(message.subject, message.kind, payload, message.id)
        else:
            # Not checked: the tests check every kind of message, and 100,000 GPUs leave no time to spare.
            payload = msgpack.packb(message.data)
            await self.bus.publish(message.subject, message.kind, payload)
        self.published[message.kind] = self.published.get(message.kind, 0) + 1


async def stdin_lines() -> asyncio.StreamReader:
    """Return standard input as a stream of lines."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def as_metrics(live: Live) -> dict[str, Any]:
    """Return how much was published, by type."""
    return {f"published_{kind.lower()}": float(count) for kind, count in live.published.items()}
