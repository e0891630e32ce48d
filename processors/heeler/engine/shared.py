"""The engine of steps that share their work: enrich, and any other whose state is context.

All instances read one durable consumer per stream, so the bus hands each message to one of them, and an ack goes
out when the message's events are on the bus. Context (mode ``last``) is read by every instance in full before the
first piece of work, and goes on beside it.
"""

import asyncio

import structlog

from heeler.bus import Bus, BusClosedError, Consumer, ConsumerSpec, Delivery
from heeler.engine.intake import Refused
from heeler.engine.live import Live, closed, until_first
from heeler.engine.step import Input, Step

log = structlog.get_logger("heeler.engine")

POISON_AFTER = 5


def by_stream(inputs: tuple[Input, ...], mode: str) -> dict[str, tuple[str, ...]]:
    """Return the patterns to read from each stream. What is asked and not kept stands in none."""
    found: dict[str, list[str]] = {}
    for item in inputs:
        if item.mode == mode and item.stream:
            found.setdefault(item.stream, []).append(item.pattern)
    return {stream: tuple(patterns) for stream, patterns in found.items()}


class Shared(Live):
    """A step whose messages are dealt out among all its instances."""

    def __init__(self, bus: Bus, step: Step, instance: str, *, batch: int = 500, ack_wait_s: float = 30.0) -> None:
        super().__init__(bus, step, instance)
        self._batch = batch
        self._ack_wait_s = ack_wait_s
        self._blamed = False
        self.ready = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Read context, then work until stopped. Raises BusClosedError when the bus is gone for good."""
        context = [
            Consumer(self.bus, ConsumerSpec(stream, patterns, start="last", batch=self._batch), self._on_context)
            for stream, patterns in by_stream(self.step.inputs, "last").items()
        ]
        tasks = [await _started(consumer) for consumer in context]
        for consumer in context:
            await consumer.caught_up.wait()
        log.info("context_read", step=self.step.name, keys=len(self.keyed.states))
        work = [
            Consumer(
                self.bus,
                ConsumerSpec(
                    stream,
                    patterns,
                    durable=f"{self.step.name}-{stream}",
                    batch=self._batch,
                    ack_wait_s=self._ack_wait_s,
                ),
                self._on_work,
            )
            for stream, patterns in by_stream(self.step.inputs, "work").items()
        ]
        tasks += [await _started(consumer) for consumer in work]
        if self.step.tick_s:
            tasks.append(asyncio.create_task(self._tick(self.step.tick_s)))
        gone = asyncio.create_task(closed(self.bus))
        self.ready.set()
        log.info("working", step=self.step.name, instance=self.instance)
        await until_first(*tasks, gone, stop=stop)
        if self.bus.closed.is_set() and not stop.is_set():
            raise BusClosedError("the bus is closed")

    async def _on_context(self, delivery: Delivery) -> None:
        message = await self.take(delivery)
        if message is not None:
            for _, event in await self.run_step(delivery, message, context=not self.ready.is_set()):
                await self.emit(event)

    async def _on_work(self, delivery: Delivery) -> None:
        if delivery.delivered > 1 and await self._is_poison(delivery):
            return
        if self.step.tick_s:
            self.clock.learn(delivery.ts_ns)
        message = await self.take(delivery)
        if message is not None:
            for _, event in await self.run_step(delivery, message):
                await self.emit(event)
        await delivery.ack()

    async def _is_poison(self, delivery: Delivery) -> bool:
        """Say whether a redelivered message is the one that keeps killing the process.

        A crash redelivers everything that was under way, so a high count alone blames innocents. What was acked
        before must reach the server first; then the first message that comes back too often is the culprit, and
        no other is blamed in the life of this process.
        """
        await self.bus.client.flush()
        if self._blamed or delivery.delivered < POISON_AFTER:
            return False
        self._blamed = True
        await self.refuse(delivery, Refused("poison", f"delivered {delivery.delivered} times, never acknowledged"))
        await delivery.term()
        return True

    async def _tick(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            for _, event in self.advance():
                await self.emit(event)


async def _started(consumer: Consumer) -> asyncio.Task[None]:
    await consumer.start()
    return asyncio.create_task(consumer.watch())
