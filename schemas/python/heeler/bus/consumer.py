"""The consume loop: a continuous pull with a callback, for all processors.

`fetch` of nats-py reaches a fifth of what the connection can carry, since it waits once per message.
Here one subscription receives all messages of a consumer, and a new pull goes out whenever half of the
last one has arrived. A pull does not survive a restart of the server and nobody says so: hence idle
heartbeats. Two missed ones, or a reconnect, and the loop asks again; a consumer that is gone is made
anew behind the last message seen.

Without acks the server takes for delivered what it has written to a socket, and a socket that breaks loses that.
So a consumer without acks is made anew after every reconnect, and whenever the server's count of deliveries,
in each message and each heartbeat, is not ours.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from heeler.bus.client import RETRYABLE, Bus, BusClosedError
from heeler.bus.subjects_gen import PREFIX
from heeler.bus.tokens import escape

log = structlog.get_logger("heeler.bus")

ACK, NAK, TERM, PROGRESS = b"+ACK", b"-NAK", b"+TERM", b"+WPI"


def prefix_of(cluster: str | None) -> str:
    """Return how subjects of a cluster begin, or those of all. Raises TokenError for what can't be a name."""
    return f"{PREFIX}.{'*' if cluster is None else escape(cluster)}."


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
    prefix: str = "heeler.v1.*."  # of the patterns: of all clusters, else `prefix_of` one
    batch: int = 500
    ack_wait_s: float = 30.0
    max_ack_pending: int = 10_000
    heartbeat_s: float = 2.0
    expires_s: float = 30.0


class Delivery:
    """One message from a stream."""

    __slots__ = (
        "_client",
        "consumer",
        "consumer_seq",
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
        self.consumer = parts[at + 1]
        self.delivered = int(parts[at + 2])
        self.seq = int(parts[at + 3])
        self.consumer_seq = int(parts[at + 4])
        self.ts_ns = int(parts[at + 5])
        self.pending = int(parts[at + 6])

    async def ack(self) -> None:
        """Say that this message is done."""
        await self._say(ACK)

    async def term(self) -> None:
        """Say that this message must not come again."""
        await self._say(TERM)

    async def nak(self) -> None:
        """Ask for this message again."""
        await self._say(NAK)

    async def in_progress(self) -> None:
        """Ask for more time."""
        await self._say(PROGRESS)

    async def _say(self, what: bytes) -> None:
        try:
            await self._client.publish(self.reply, what)
        except NatsError as error:  # the bus is away: without an ack the message comes again, which is right
            log.info("ack_not_sent", subject=self.subject, seq=self.seq, error=f"{type(error).__name__}: {error}")


Handler = Callable[[Delivery], Awaitable[None]]


class Consumer:
    """Reads a stream and hands each message to a handler, in order, until stopped.

    What the handler raises ends `watch`; no further message is handled.
    """

    def __init__(self, bus: Bus, spec: ConsumerSpec, handler: Handler) -> None:
        self.bus = bus
        self.spec = spec
        self.handler = handler
        self.last_seq = 0  # newest message that the handler was given
        self.received = 0
        self.caught_up = asyncio.Event()
        self._name: str | None = None
        self._inbox = bus.client.new_inbox()
        self._made = 0  # consumers made so far; part of the inbox, so that a late word from an old one is known as such
        self._next = 1  # the server's count of deliveries that we expect next, without acks
        self._skip_to = 0  # messages up to here were handled before
        self._old: str | None = None
        self._begun = False  # reading "new" has begun
        self._failed: Exception | None = None
        self._subscription: Any = None
        self._outstanding = 0
        self._heard = time.monotonic()
        self._renew = asyncio.Event()
        self._busy = False

    async def start(self) -> None:
        """Create the consumer if needed and ask for messages; waits until the bus lets it."""
        self._subscription = await self.bus.client.subscribe(
            f"{self._inbox}.*",
            cb=self._on_message,
            pending_msgs_limit=4 * self.spec.batch + 1000,
            pending_bytes_limit=0,  # the number of messages is bounded by what we asked for
        )
        self.bus.on_reconnect.append(self._on_reconnect)
        pause_s = 0.1
        try:
            while True:
                try:
                    await self._create()
                    break
                except RETRYABLE as error:
                    self._check_open()
                    self._warn_unavailable(error)
                await asyncio.sleep(random.uniform(0, pause_s))
                pause_s = min(5.0, pause_s * 2)
            await self._pull(self.spec.batch)
        except BaseException:
            await self.stop()
            raise

    async def watch(self) -> None:
        """Keep messages coming until cancelled. Raises what the handler raised, or BusClosedError."""
        limit_s = 2.5 * self.spec.heartbeat_s
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._renew.wait(), self.spec.heartbeat_s / 2)
                if self._failed is not None:
                    raise self._failed
                self._check_open()
                if not self._renew.is_set():
                    if self._busy or not self.bus.client.is_connected or time.monotonic() - self._heard < limit_s:
                        continue
                    log.warning("consumer_silent", stream=self.spec.stream, consumer=self._name)
                self._renew.clear()
                await self._restore()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Ask for nothing more. A consumer of our own goes away by its inactive threshold."""
        if self._on_reconnect in self.bus.on_reconnect:
            self.bus.on_reconnect.remove(self._on_reconnect)
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(NatsError):  # closed or closing: then it is gone anyhow
                await subscription.unsubscribe()

    def _on_reconnect(self) -> None:
        if not self.spec.durable:
            self._abandon()
        self._renew.set()

    def _abandon(self) -> None:
        """Listen no more to the consumer that we have; the next `_restore` makes another."""
        self._made += 1
        self._old, self._name = self._name or self._old, None

    def _check_open(self) -> None:
        if self.bus.closed.is_set():
            raise BusClosedError("connection closed")

    def _warn_unavailable(self, error: BaseException) -> None:
        log.warning("consumer_unavailable", stream=self.spec.stream, error=f"{type(error).__name__}: {error}")

    @property
    def quiet_s(self) -> float:
        """How long ago the bus said something to this consumer; it does at every heartbeat."""
        return time.monotonic() - self._heard

    async def pending(self) -> int:
        """Return how many messages of the stream this consumer has not been given yet."""
        info = await self.bus.js.consumer_info(self.spec.stream, self._name or "")
        return int(info.num_pending or 0)

    def _patterns(self) -> list[str]:
        return [f"{self.spec.prefix}{pattern}" for pattern in self.spec.patterns]

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
        if self._snapshot():
            return replace(base, deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)
        if self.last_seq or self._begun or self.spec.start == "last":  # the newest were read, of none perhaps
            return replace(base, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=self.last_seq + 1)
        if spec.start == "new":
            return replace(base, deliver_policy=DeliverPolicy.NEW)
        # Whole microseconds, rounded down: rather a message too many than one too few.
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(spec.start) // 1000)
        return replace(base, deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=when)

    def _snapshot(self) -> bool:
        """Say whether the newest of each subject is what we still read."""
        return self.spec.durable is None and self.spec.start == "last" and not self.caught_up.is_set()

    async def _create(self) -> None:
        self._abandon()
        self._skip_to = self.last_seq if self._snapshot() else 0
        info = await self.bus.js.add_consumer(self.spec.stream, self._config())
        self._name, self._next = info.name, 1
        begun = info.delivered.stream_seq if info.delivered else 0
        if self.spec.start == "new" and not self._begun:
            self.last_seq, self._begun = begun, True  # made anew before the first message, it must begin here
        elif self.last_seq > begun and not self.spec.durable and not self._skip_to:
            log.warning("stream_went_back", stream=self.spec.stream, from_seq=self.last_seq, to_seq=begun)
            self.last_seq = begun
        if not info.num_pending:
            self.caught_up.set()
        if self._old and not self.spec.durable:
            with suppress(*RETRYABLE):
                await self.bus.js.delete_consumer(self.spec.stream, self._old)
        self._old = None

    async def _restore(self) -> None:
        """Ask again; make the consumer anew if it is gone."""
        try:
            if self._name is not None:
                try:
                    await self.bus.js.consumer_info(self.spec.stream, self._name)
                except NotFoundError:
                    self._abandon()
            if self._name is None:
                log.info("consumer_recreated", stream=self.spec.stream, old=self._old, after_seq=self.last_seq)
                await self._create()
        except RETRYABLE as error:
            self._warn_unavailable(error)
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
        try:
            await self.bus.client.publish(subject, json.dumps(request).encode(), reply=f"{self._inbox}.{self._made}")
        except NatsError as error:
            self._warn_unavailable(error)
            self._heard = 0.0  # `watch` asks again

    async def _on_message(self, msg: Msg) -> None:
        if self._failed is not None:
            return
        if not msg.reply:
            await self._on_status(msg)
            return
        delivery = Delivery(self.bus.client, msg)
        if not self.spec.durable and not self._in_turn(delivery):
            return
        self._outstanding -= 1
        if delivery.seq > self._skip_to:
            self.last_seq = max(self.last_seq, delivery.seq)
            self._busy = True
            try:
                await self.handler(delivery)
            except Exception as error:  # noqa: BLE001 - `watch` raises it
                self._failed = error
                self._renew.set()
                return
            finally:
                self._busy = False
            self.received += 1
        self._heard = time.monotonic()
        if not delivery.pending and not self.caught_up.is_set():
            self.caught_up.set()
        if self._outstanding <= self.spec.batch // 2 and delivery.consumer == self._name:
            await self._pull(self.spec.batch - self._outstanding, reset=False)

    def _in_turn(self, delivery: Delivery) -> bool:
        """Say whether a message is the next of the consumer that we have."""
        if delivery.consumer != self._name:
            return False
        if delivery.consumer_seq != self._next:
            self._lost(delivery.consumer_seq - 1)
            return False
        self._next += 1
        return True

    def _lost(self, sent: int) -> None:
        log.warning("deliveries_lost", stream=self.spec.stream, consumer=self._name, sent=sent, received=self._next - 1)
        self._abandon()
        self._renew.set()

    async def _on_status(self, msg: Msg) -> None:
        if msg.subject != f"{self._inbox}.{self._made}":
            return  # about a consumer that we have left
        self._heard = time.monotonic()
        headers = msg.headers or {}
        status = headers.get("Status", "")
        if status == "100":  # idle heartbeat
            sent = headers.get("Nats-Last-Consumer")
            if sent and int(sent) >= self._next and not self.spec.durable:
                self._lost(int(sent))
            return
        if status == "408":  # the pull has expired
            left = int(headers.get("Nats-Pending-Messages", 0))
            self._outstanding = max(0, self._outstanding - left)
            if self._outstanding <= self.spec.batch // 2:
                await self._pull(self.spec.batch - self._outstanding, reset=False)
            return
        log.info(
            "consumer_status",
            stream=self.spec.stream,
            status=status,
            text=headers.get("Description", ""),
        )
        if status in ("404", "409", "503"):
            # Not at once: a consumer that was deleted on purpose would make this a busy loop.
            asyncio.get_running_loop().call_later(0.2, self._renew.set)


async def consume(bus: Bus, spec: ConsumerSpec, handler: Handler) -> None:
    """Read until cancelled; the simple form of `Consumer`."""
    consumer = Consumer(bus, spec, handler)
    await consumer.start()
    await consumer.watch()


async def snapshot(
    bus: Bus,
    stream: str,
    patterns: tuple[str, ...],
    start: str | int = "last",
    *,
    cluster: str | None = None,
    timeout_s: float = 10.0,
) -> list[Delivery]:
    """Return what a stream holds now: the newest of each subject, or all since a time. Raises TimeoutError.

    Of one cluster, or of all that share the bus.
    """
    found: list[Delivery] = []

    async def keep(delivery: Delivery) -> None:
        found.append(delivery)

    spec = ConsumerSpec(stream, patterns, start=start, prefix=prefix_of(cluster))
    await read_all(bus, spec, keep, timeout_s=timeout_s)
    return found


async def read_all(bus: Bus, spec: ConsumerSpec, handler: Handler, *, timeout_s: float) -> None:
    """Hand over what there is to read now, and end. Raises TimeoutError."""
    consumer = Consumer(bus, spec, handler)
    try:
        async with asyncio.timeout(timeout_s):
            await consumer.start()
            await consumer.caught_up.wait()
    finally:
        await consumer.stop()
