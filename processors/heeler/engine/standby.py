"""The engine of keyed steps: hot standby.

Every instance steps every shard it is given from a consumer that needs no acks, and only the holder of a shard's
lease emits. Whoever gains a lease emits its own last seconds of events again under the same ids, so what the last
holder owed arrives, and what it had sent already is dropped by the stream as a twin. There are no checkpoints: a
cold start reads the step's memory from the streams and is then what a warm one is.

At a cold start several streams are read at once. Until all have caught up they are merged by the server's time
stamp, so that history reaches the step in the order in which it happened.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable

import structlog

from heeler.bus import ROUTES, SHARDS, Bus, BusClosedError, Consumer, ConsumerSpec, Delivery
from heeler.bus.client import RETRYABLE
from heeler.bus.consumer import Handler
from heeler.bus.lease import Lease, open_bucket
from heeler.engine.live import Live, closed, until_first
from heeler.engine.shared import by_stream
from heeler.engine.step import Event, Step, key_shard

log = structlog.get_logger("heeler.engine")

QUEUE_LIMIT = 2_000
OUTBOX_LIMIT = 50_000


class Feed:
    """One stream's messages that wait to be merged with the others'."""

    def __init__(self) -> None:
        self.queue: deque[Delivery] = deque()
        self.caught_up = False
        self.room = asyncio.Event()
        self.room.set()


class Standby(Live):
    """A step that several instances run in step, of which one speaks."""

    def __init__(
        self, bus: Bus, step: Step, instance: str, *, shards: Iterable[int] = range(SHARDS), batch: int = 500
    ) -> None:
        super().__init__(bus, step, instance)
        self.shards = frozenset(shards)
        self.leases: dict[int, Lease] = {}
        self.live = asyncio.Event()
        self._batch = batch
        self._feeds: dict[str, Feed] = {}
        self._merging = asyncio.Lock()
        self._ttl_s = 0.0
        self._recent: deque[tuple[float, int, Event]] = deque()
        self._outbox: asyncio.Queue[tuple[int, Event]] = asyncio.Queue(OUTBOX_LIMIT)

    async def run(self, stop: asyncio.Event) -> None:
        """Catch up, then go on until stopped. Raises BusClosedError when the bus is gone for good."""
        bucket, self._ttl_s = await open_bucket(self.bus, "leases")
        self.leases = {
            shard: Lease(bucket, f"{self.step.name}.{shard}", self.instance, self._ttl_s)
            for shard in sorted(self.shards)
        }
        self.keyed.now_ns = self.clock.now_ns() - int(self.step.memory_s * 1e9)
        tasks = await self._read_context()
        tasks += await self._read_work()
        tasks += [asyncio.create_task(self._send()), asyncio.create_task(closed(self.bus))]
        if self.step.tick_s:
            tasks.append(asyncio.create_task(self._tick(self.step.tick_s)))
        # An instance that has not caught up must not win a lease: it would owe events that it does not know yet.
        tasks.append(asyncio.create_task(self._keep_leases()))
        try:
            await until_first(*tasks, stop=stop)
        finally:
            if not self.bus.closed.is_set():
                await asyncio.gather(*(lease.release() for lease in self.leases.values()))
        if self.bus.closed.is_set() and not stop.is_set():
            raise BusClosedError("the bus is closed")

    async def _read_context(self) -> list[asyncio.Task[None]]:
        """Read the newest of every subject, before any history, so that history is seen with today's eyes."""
        tasks = []
        consumers = []
        for stream, patterns in by_stream(self.step.inputs, "last").items():
            consumer = Consumer(
                self.bus, ConsumerSpec(stream, patterns, start="last", batch=self._batch), self._on_context
            )
            await consumer.start()
            consumers.append(consumer)
            tasks.append(asyncio.create_task(consumer.watch()))
        for consumer in consumers:
            await consumer.caught_up.wait()
        return tasks

    async def _read_work(self) -> list[asyncio.Task[None]]:
        start = self.keyed.now_ns
        consumers = []
        for stream, patterns in by_stream(self.step.inputs, "work").items():
            feed = self._feeds[stream] = Feed()
            consumer = Consumer(
                self.bus, ConsumerSpec(stream, patterns, start=start, batch=self._batch), self._into(feed)
            )
            consumers.append((consumer, feed))
        tasks = []
        for consumer, feed in consumers:
            await consumer.start()
            feed.caught_up = consumer.caught_up.is_set()
            tasks.append(asyncio.create_task(consumer.watch()))
        await self._merge()
        return tasks

    def _into(self, feed: Feed) -> Handler:
        async def handler(delivery: Delivery) -> None:
            if not self.live.is_set():
                await feed.room.wait()
            if self.live.is_set():
                self.clock.learn(delivery.ts_ns)
                await self._step(delivery)
                return
            feed.queue.append(delivery)
            feed.caught_up = feed.caught_up or delivery.pending == 0
            if len(feed.queue) >= QUEUE_LIMIT:
                feed.room.clear()
            await self._merge()

        return handler

    async def _merge(self) -> None:
        """Step what can be stepped in order; go live once every stream has caught up."""
        async with self._merging:
            await self._merge_ready()

    async def _merge_ready(self) -> None:
        feeds = self._feeds.values()
        while not self.live.is_set():
            first: Feed | None = None
            for feed in feeds:
                if not feed.queue:
                    if not feed.caught_up:
                        return  # that stream may still hold something older
                elif first is None or feed.queue[0].ts_ns < first.queue[0].ts_ns:
                    first = feed
            if first is None:
                self.live.set()
                log.info("caught_up", step=self.step.name, instance=self.instance, received=self.counters.received)
                return
            delivery = first.queue.popleft()
            if len(first.queue) < QUEUE_LIMIT:
                first.room.set()
            await self._step(delivery)

    async def _on_context(self, delivery: Delivery) -> None:
        # The newest value of a subject may be from today or from last week: until history has been read, time
        # stands at its beginning.
        await self._step(delivery, context=not self.live.is_set())

    async def _step(self, delivery: Delivery, *, context: bool = False) -> None:
        message = await self.take(delivery)
        if message is None:
            return
        for key, event in await self.run_step(delivery, message, context=context):
            self._owe(key, event)

    def _owe(self, key: str, event: Event) -> None:
        """Remember an event, and send it if the key's shard is ours."""
        shard = key_shard(key)
        if shard not in self.shards:
            return
        now = time.monotonic()
        self._recent.append((now, shard, event))
        while self._recent and self._recent[0][0] < now - 3 * self._ttl_s:
            self._recent.popleft()
        if self.leases[shard].held:
            self._outbox.put_nowait((shard, event))

    async def _tick(self, every_s: float) -> None:
        await self.live.wait()
        while True:
            await asyncio.sleep(every_s / 2)
            for key, event in self.advance():
                self._owe(key, event)

    async def _keep_leases(self) -> None:
        await self.live.wait()
        while True:
            before = {shard for shard, lease in self.leases.items() if lease.held}
            await asyncio.gather(*(lease.poll() for lease in self.leases.values()))
            held = {shard for shard, lease in self.leases.items() if lease.held}
            if gained := held - before:
                self._send_again(gained)
            if held != before:
                log.info("leases", step=self.step.name, instance=self.instance, held=len(held), gained=len(gained))
            await asyncio.sleep(self._ttl_s / 4)

    def _send_again(self, gained: set[int]) -> None:
        """Emit what the last holder may have owed: our own last seconds, same ids."""
        since = time.monotonic() - 3 * self._ttl_s
        for when, shard, event in self._recent:
            if shard in gained and when >= since:
                self._outbox.put_nowait((shard, event))

    async def _send(self) -> None:
        while True:
            shard, event = await self._outbox.get()
            await self._send_one(shard, event)

    async def _send_one(self, shard: int, event: Event) -> None:
        """Publish while the lease is ours; what we can't send then is the next holder's to send."""
        lease = self.leases[shard]
        payload = self.pack(event)
        pause_s = 0.05
        while lease.held:
            try:
                if ROUTES[event.kind].acked:
                    await self.bus.publish_once(event.subject, event.kind, payload, event.id, timeout_s=2.0)
                else:
                    await self.bus.publish(event.subject, event.kind, payload)
            except RETRYABLE as error:
                log.warning("emit_retried", subject=event.subject, error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(pause_s)
                pause_s = min(1.0, pause_s * 2)
            else:
                self.counters.events += 1
                return
        self.counters.count("not_ours")

    def metrics(self) -> dict[str, float]:
        """Return what this engine counts, by metric name."""
        held = sum(lease.held for lease in self.leases.values())
        return super().metrics() | {
            "shards_held": held,
            "outbox": self._outbox.qsize(),
            "live": float(self.live.is_set()),
        }
