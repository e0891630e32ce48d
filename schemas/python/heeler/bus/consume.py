"""The consume loop: a continuous pull with a callback, for all processors.

`fetch` of nats-py reaches a fifth of what the connection can carry, since it waits once per message.
Here one subscription receives all messages of a consumer, and a new pull goes out whenever half of the
last one has arrived. A pull does not survive a restart of the server and nobody says so: hence idle
heartbeats. Two missed ones, or a reconnect, and the loop asks again; a consumer that is gone is made
anew behind the last message seen.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from heeler.bus.client import RETRYABLE, Bus

log = structlog.get_logger("heeler.bus")

ACK, NAK, TERM, PROGRESS = b"+ACK", b"-NAK", b"+TERM", b"+WPI"


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """What to read.

    A ``durable`` name makes a consumer that all instances share, with an ack for each message.
    Without one the consumer belongs to this instance, needs no acks, and begins by ``start``:
    ``last`` (newest per subject, then all), ``new``, or a time in ns since the epoch.
    """

    stream: str
    patterns: tuple[str, ...] = ()
    durable: str | None = None
    start: str | int = "new"
    batch: int = 500
    ack_wait_s: float = 30.0
    max_ack_pending: int = 10_000
    heartbeat_s: float = 2.0
    expires_s: float = 30.0


class Delivery:
    """One message from a stream."""

    __slots__ = (
        "_client",
        "data",
        "delivered",
        "headers",
        "pending",
        "reply",
        "seq",
        "stream",
        "subject",
        "ts_ns",
    )

    def __init__(self, client: Any, msg: Msg) -> None:
        self._client = client
        self.subject: str = msg.subject
        self.data: bytes = msg.data
        self.headers: dict[str, str] | None = msg.headers
        self.reply: str = msg.reply
        # $JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<ts>.<pending>, newer servers with
        # domain and account hash after ACK.
        parts = msg.reply.split(".")
        at = 2 if len(parts) == 9 else 4
        self.stream = parts[at]
        self.delivered = int(parts[at + 2])
        self.seq = int(parts[at + 3])
        self.ts_ns = int(parts[at + 5])
        self.pending = int(parts[at + 6])

    async def ack(self) -> None:
        """Say that this message is done."""
        await self._client.publish(self.reply, ACK)

    async def term(self) -> None:
        """Say that this message must not come again."""
        await self._client.publish(self.reply, TERM)

    async def nak(self) -> None:
        """Ask for this message again."""
        await self._client.publish(self.reply, NAK)

    async def in_progress(self) -> None:
        """Ask for more time."""
        await self._client.publish(self.reply, PROGRESS)


Handler = Callable[[Delivery], Awaitable[None]]


class Consumer:
    """Reads a stream and hands each message to a handler, in order, until stopped."""

    def __init__(self, bus: Bus, spec: ConsumerSpec, handler: Handler) -> None:
        self.bus = bus
        self.spec = spec
        self.handler = handler
        self.last_seq = 0
        self.received = 0
        self.caught_up = asyncio.Event()
        self._name: str | None = None
        self._inbox = bus.client.new_inbox()
        self._subscription: Any = None
        self._outstanding = 0
        self._heard = time.monotonic()
        self._renew = asyncio.Event()
        self._busy = False

    async def start(self) -> None:
        """Create the consumer if needed and ask for messages; waits until the bus lets it."""
        self._subscription = await self.bus.client.subscribe(
            self._inbox,
            cb=self._on_message,
            pending_msgs_limit=4 * self.spec.batch + 1000,
            pending_bytes_limit=256 << 20,
        )
        self.bus.on_reconnect.append(self._renew.set)
        await self._create()
        await self._pull(self.spec.batch)

    async def watch(self) -> None:
        """Keep messages coming until cancelled."""
        limit_s = 2.5 * self.spec.heartbeat_s
        try:
            while True:
                try:
                    await asyncio.wait_for(self._renew.wait(), self.spec.heartbeat_s / 2)
                except TimeoutError:
                    if self._busy or time.monotonic() - self._heard < limit_s:
                        continue
                    log.warning("consumer_silent", stream=self.spec.stream, consumer=self._name)
                self._renew.clear()
                await self._restore()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Ask for nothing more. A consumer of our own goes away by its inactive threshold."""
        if self._renew.set in self.bus.on_reconnect:
            self.bus.on_reconnect.remove(self._renew.set)
        if self._subscription is not None and not self.bus.client.is_closed:
            subscription, self._subscription = self._subscription, None
            await subscription.unsubscribe()

    async def pending(self) -> int:
        """Return how many messages of the stream this consumer has not been given yet."""
        info = await self.bus.js.consumer_info(self.spec.stream, self._name or "")
        return int(info.num_pending or 0)

    def _patterns(self) -> list[str]:
        return [f"heeler.v1.*.{pattern}" for pattern in self.spec.patterns]

    def _config(self) -> ConsumerConfig:
        spec = self.spec
        base = ConsumerConfig(filter_subjects=self._patterns() or None, max_deliver=-1, max_waiting=64)
        if spec.durable:
            return replace(
                base,
                durable_name=spec.durable,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=spec.ack_wait_s,
                max_ack_pending=spec.max_ack_pending,
                deliver_policy=DeliverPolicy.ALL,
            )
        base = replace(base, ack_policy=AckPolicy.NONE, inactive_threshold=60.0, mem_storage=True, num_replicas=1)
        if self.last_seq:
            return replace(base, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=self.last_seq + 1)
        if spec.start == "last":
            return replace(base, deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)
        if spec.start == "new":
            return replace(base, deliver_policy=DeliverPolicy.NEW)
        when = datetime.fromtimestamp(int(spec.start) / 1e9, tz=UTC)
        return replace(base, deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=when)

    async def _create(self) -> None:
        info = await self.bus.js.add_consumer(self.spec.stream, self._config())
        self._name = info.name
        if not info.num_pending:
            self.caught_up.set()

    async def _restore(self) -> None:
        """Ask again; make the consumer anew if it is gone."""
        try:
            if self._name is None:
                await self._create()
            else:
                await self.bus.js.consumer_info(self.spec.stream, self._name)
        except NotFoundError:
            log.warning("consumer_recreated", stream=self.spec.stream, consumer=self._name, after_seq=self.last_seq)
            try:
                await self._create()
            except RETRYABLE as error:
                log.warning("consumer_unavailable", stream=self.spec.stream, error=f"{type(error).__name__}: {error}")
                return
        except RETRYABLE as error:
            log.warning("consumer_unavailable", stream=self.spec.stream, error=f"{type(error).__name__}: {error}")
            return
        await self._pull(self.spec.batch)

    async def _pull(self, count: int, *, reset: bool = True) -> None:
        request = {
            "batch": count,
            "expires": int(self.spec.expires_s * 1e9),
            "idle_heartbeat": int(self.spec.heartbeat_s * 1e9),
        }
        self._outstanding = count if reset else self._outstanding + count
        self._heard = time.monotonic()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.spec.stream}.{self._name}"
        await self.bus.client.publish(subject, json.dumps(request).encode(), reply=self._inbox)

    async def _on_message(self, msg: Msg) -> None:
        self._heard = time.monotonic()
        if not msg.reply:
            await self._on_status(msg)
            return
        delivery = Delivery(self.bus.client, msg)
        self._outstanding -= 1
        self._busy = True
        try:
            await self.handler(delivery)
        finally:
            self._busy = False
            self._heard = time.monotonic()
        self.last_seq = max(self.last_seq, delivery.seq)
        self.received += 1
        if not self.caught_up.is_set() and delivery.pending == 0:
            self.caught_up.set()
        if self._outstanding <= self.spec.batch // 2:
            await self._pull(self.spec.batch - self._outstanding, reset=False)

    async def _on_status(self, msg: Msg) -> None:
        status = (msg.headers or {}).get("Status", "")
        if status == "100":  # idle heartbeat
            return
        if status == "408":  # the pull has expired
            left = int((msg.headers or {}).get("Nats-Pending-Messages", 0))
            self._outstanding = max(0, self._outstanding - left)
            if self._outstanding <= self.spec.batch // 2:
                await self._pull(self.spec.batch - self._outstanding, reset=False)
            return
        log.info(
            "consumer_status",
            stream=self.spec.stream,
            status=status,
            text=(msg.headers or {}).get("Description", ""),
        )
        if status in ("404", "409", "503"):
            # Not at once: a consumer that was deleted on purpose would make this a busy loop.
            asyncio.get_running_loop().call_later(0.2, self._renew.set)


async def consume(bus: Bus, spec: ConsumerSpec, handler: Handler) -> None:
    """Read until cancelled; the simple form of `Consumer`."""
    consumer = Consumer(bus, spec, handler)
    await consumer.start()
    await consumer.watch()


__all__ = ["APIError", "Consumer", "ConsumerSpec", "Delivery", "Handler", "consume"]
