"""What both live engines share: taking messages in, running the step, sending events out."""

import asyncio
import time
import traceback

import structlog

from heeler.bus import ROUTES, Bus, Delivery, decode, decoder_for, encode
from heeler.engine.deadletter import bury
from heeler.engine.intake import Refused, intake, too_far_ahead
from heeler.engine.memory import Keyed
from heeler.engine.step import Chooser, Counters, Event, Inbound, Step, Timeless

log = structlog.get_logger("heeler.engine")


class BrokerClock:
    """The bus server's time, learned from the stamps of live messages.

    A message can't arrive before it was stamped, so the largest (stamp - our monotonic clock) seen lately is the
    best bound. Without any message yet it is this machine's time.
    """

    KEEP_S = 120.0

    def __init__(self) -> None:
        self._offset_ns: int | None = None
        self._since = 0.0

    def learn(self, ts_ns: int) -> None:
        """Learn from a message that was stamped just now."""
        offset = ts_ns - time.monotonic_ns()
        now = time.monotonic()
        if self._offset_ns is None or offset > self._offset_ns or now - self._since > self.KEEP_S:
            self._offset_ns, self._since = offset, now

    def now_ns(self) -> int:
        """Return the server's time."""
        return time.time_ns() if self._offset_ns is None else time.monotonic_ns() + self._offset_ns


class Live:
    """A step on the bus, without the question of who may emit."""

    def __init__(self, bus: Bus, step: Step, instance: str) -> None:
        self.bus = bus
        self.step = step
        self.instance = instance
        self.keyed = Keyed(step)
        self.counters = Counters()
        self.clock = BrokerClock()
        self._any_clock = step.any_clock if isinstance(step, Timeless) else frozenset()
        self._decode = decoder_for(step.choices) if isinstance(step, Chooser) else decode

    async def take(self, delivery: Delivery) -> Inbound | None:
        """Return the checked message; None after a dead letter was published for it."""
        self.counters.received += 1
        try:
            message = intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns, self._decode)
        except Refused as refused:
            await self.refuse(delivery, refused)
            return None
        if message.kind not in self._any_clock and too_far_ahead(message):
            self.counters.ignored += 1
            self.counters.count("future")
            return None
        return message

    async def refuse(self, delivery: Delivery, refused: Refused) -> None:
        """Count a message that can't be used and publish its dead letter."""
        self.counters.dead += 1
        self.counters.count(refused.why)
        await bury(self.bus, delivery, refused, self.step.name)

    async def run_step(self, delivery: Delivery, message: Inbound, *, context: bool = False) -> list[tuple[str, Event]]:
        """Run the step. A bug in it costs this message and the state of its keys, not the process."""
        try:
            return self.keyed.on(message, context=context)
        except Exception as error:  # noqa: BLE001 - whatever a step's bug raises, the other messages must go on
            await self.blame(delivery, message, error)
            return []

    async def blame(self, delivery: Delivery, message: Inbound, error: Exception) -> None:
        """Put a message that broke the step into the dead letters and forget what it may have half changed."""
        log.error("step_failed", step=self.step.name, subject=delivery.subject, seq=delivery.seq, exc_info=error)
        for key in self.step.keys(message):
            self.keyed.states.pop(key, None)
        text = "".join(traceback.format_exception(error))[-1800:]
        await self.refuse(delivery, Refused("poison", text, message.kind))

    def advance(self) -> list[tuple[str, Event]]:
        """Let time pass for the step."""
        return self.keyed.advance(self.clock.now_ns())

    def pack(self, event: Event) -> bytes:
        """Return the bytes of an event. Samples, made from checked ones by the thousand, are not checked again."""
        if isinstance(event.data, bytes):
            return event.data
        return encode(event.kind, event.data, checked=not ROUTES[event.kind].acked)

    async def emit(self, event: Event) -> None:
        """Publish an event as its stream wants it: waiting for the stream's word, or not."""
        self.counters.events += 1
        payload = self.pack(event)
        if ROUTES[event.kind].acked:
            await self.bus.publish_acked(event.subject, event.kind, payload, event.id)
        else:
            await self.bus.publish(event.subject, event.kind, payload)

    def metrics(self) -> dict[str, float]:
        """Return what this engine counts, by metric name."""
        counters = self.counters
        found: dict[str, float] = {
            "received_total": counters.received,
            "events_total": counters.events,
            "dead_letters_total": counters.dead,
            "ignored_total": counters.ignored,
            "keys": len(self.keyed.states),
            "bus_dropped_total": self.bus.dropped,
        }
        found.update({f"refused_total.{reason}": count for reason, count in counters.reasons.items()})
        return found


async def closed(bus: Bus) -> None:
    """Wait until the connection is closed for good."""
    await bus.closed.wait()


async def until_first(*tasks: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Wait for a stop or for the first task to fail, then cancel all; raises what the task raised."""
    waiter = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({waiter, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waiter}:
            task.result()
    finally:
        await cancelled(waiter, *tasks)


async def cancelled(*tasks: asyncio.Task[None] | asyncio.Task[bool]) -> None:
    """Cancel tasks until they have ended.

    Once is not enough: before Python 3.12 a wait_for whose future is done at that moment returns it, and the
    cancellation is lost.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=0.5)
