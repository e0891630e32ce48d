"""The one Python NATS client of Heeler: connect, publish, keys and values.

Reading is in `heeler.bus.consumer`, streams and buckets in `heeler.bus.admin`, leases in `heeler.bus.lease`.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, Self

import nats
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import (
    BadHeaderError,
    BadSubjectError,
    ConnectionClosedError,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferLimitError,
    SlowConsumerError,
)
from nats.errors import Error as NatsError
from nats.js.errors import APIError, BadRequestError, BucketNotFoundError, NotFoundError
from nats.js.kv import KeyValue
from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_delay,
    stop_never,
    wait_random_exponential,
)

from heeler.bus.codec import CONTENT_TYPE, BusError
from heeler.bus.settings import BusSettings
from heeler.bus.tokens import escape

log = structlog.get_logger("heeler.bus")

RETRYABLE = (NatsError, APIError, OSError, asyncio.TimeoutError)
# Those of them that no second try can change.
PERMANENT = (BadHeaderError, BadRequestError, BadSubjectError, MaxPayloadError)
MAX_WAIT_S = 30.0


def is_retryable(error: BaseException) -> bool:
    """Say whether what failed may work the next time."""
    return isinstance(error, RETRYABLE) and not isinstance(error, PERMANENT)


ROOM_FOR_HEADERS = 256  # more than the headers of a plain publish ever take


class BusClosedError(BusError):
    """The connection is closed for good: the process should end and be started again."""


class TooLargeError(BusError):
    """A message over the server's limit: refused here, since the server would cut the connection."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"message of {size} bytes is over the limit of {limit}")
        self.size, self.limit = size, limit


class _Headers(dict[str, str]):
    """Headers that many messages share, and their bytes."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(headers)
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        self.block = f"NATS/1.0\r\n{lines}\r\n".encode()


@lru_cache(maxsize=256)
def _parsed(block: bytes) -> dict[str, str]:
    return Client._parse_header_lines(block)  # noqa: SLF001 - ours by inheritance


class _Client(Client):
    """The NATS client, without the ways in which it stops for good and says nothing.

    Samples by the thousand carry the same few headers: their bytes are made once and read once, which is a third
    of what a message costs.
    """

    _parse_header_lines = staticmethod(lambda raw: dict(_parsed(bytes(raw))))

    async def _send_publish(
        self, subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, Any] | None
    ) -> None:
        if type(headers) is not _Headers:
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        block = headers.block
        command = f"HPUB {subject} {reply} {len(block)} {len(block) + payload_size}\r\n".encode()
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await self._send_command(b"".join((command, block, payload, b"\r\n")))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    def _connect_command(self) -> bytes:
        try:
            if self._user_credentials is not None or self._nkeys_seed is not None:
                self._setup_nkeys_connect()  # else the public key would stay that of the first seed
            return super()._connect_command()
        except Exception as error:  # a credentials file that is being written: whatever it raises, try again
            raise NatsError(f"credentials: {type(error).__name__}: {error}") from error

    async def _attempt_reconnect(self) -> None:
        while True:
            try:
                return await super()._attempt_reconnect()
            except Exception as error:  # noqa: BLE001 - nothing may end the task that brings the connection back
                log.warning("bus_reconnect_failed", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(1)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            await super()._close(status, do_cbs)
        except OSError:  # the last words can't be sent; without them, the rest of closing, and those who wait for it
            self._pending.clear()
            self._pending_data_size = 0
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)

    async def _process_pong(self) -> None:
        # A late answer to a flush that timed out would end the loop that reads from the server.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


class Bus:
    """A connection to the bus that comes back by itself."""

    def __init__(self, client: Client, settings: BusSettings) -> None:
        self.client = client
        self.settings = settings
        self.cluster = settings.cluster
        self.js = client.jetstream(timeout=settings.connect_timeout_s)
        self.closed = asyncio.Event()
        self.closing = False  # by us, on purpose
        self.dropped = 0  # messages not sent, since the bus was away for too long
        self.dropped_incoming = 0  # messages of `subscribe` that came faster than they were handled
        self.on_reconnect: list[Callable[[], None]] = []
        self._headers: dict[str, _Headers] = {}

    @classmethod
    async def connect(cls, settings: BusSettings, name: str, *, give_up_after_s: float | None = None) -> Self:
        """Connect, trying for ever unless told otherwise; credentials are read anew at each try.

        The first try comes at once; later ones, and those after a lost connection, with full jitter, so that a
        fleet doesn't arrive in one second.
        """
        stop = stop_never if give_up_after_s is None else stop_after_delay(give_up_after_s)
        async for attempt in AsyncRetrying(
            wait=wait_random_exponential(multiplier=0.2, max=MAX_WAIT_S),
            stop=stop,
            reraise=True,
            retry=retry_if_exception_type(Exception),  # half-written credentials raise anything
        ):
            with attempt:
                return await cls._connect_once(settings, name)
        raise BusClosedError("not connected")

    @classmethod
    async def _connect_once(cls, settings: BusSettings, name: str) -> Self:
        client = _Client()
        bus = cls(client, settings)
        options = {
            **_options(settings, name),
            "error_cb": bus._on_error,
            "disconnected_cb": bus._on_disconnect,
            "reconnected_cb": bus._on_reconnect,
            "closed_cb": bus._on_close,
        }
        try:
            # nats-py's own first connect loops for ever, so it gets a few seconds here, and the loop above goes on.
            await _within(settings.connect_timeout_s * 2, client.connect(**options))
        except BaseException as error:
            bus.closing = True
            if not isinstance(error, asyncio.CancelledError):
                log.warning("bus_connect_failed", servers=settings.servers, error=f"{type(error).__name__}: {error}")
            with suppress(Exception):  # a client that never came to life can't always be closed
                await client.close()
            raise
        version = str(client.connected_server_version).removeprefix("<nats server ").removesuffix(">")
        log.info("bus_connected", server=_server(client), version=version)
        return bus

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, SlowConsumerError):
            self.dropped_incoming += 1
        log.warning("bus_error", error=f"{type(error).__name__}: {error}")

    async def _on_disconnect(self) -> None:
        if not self.closing:
            log.warning("bus_disconnected")

    async def _on_reconnect(self) -> None:
        log.info("bus_reconnected", server=_server(self.client))
        for listener in self.on_reconnect:
            listener()

    async def _on_close(self) -> None:
        if not self.closing:
            log.warning("bus_closed")
        self.closed.set()

    def headers(self, kind: str) -> dict[str, str]:
        """Return the headers that say what a payload is."""
        found = self._headers.get(kind)
        if found is None:
            found = self._headers[kind] = _Headers({"Content-Type": CONTENT_TYPE, "Heeler-Type": f"{kind}/1"})
        return found

    async def publish(self, subject: str, kind: str, payload: bytes) -> None:
        """Publish without waiting: for samples. Drops and counts when the bus is away and the buffer full."""
        headers = self.headers(kind)
        if len(payload) > self.client.max_payload - ROOM_FOR_HEADERS:
            self._check_size(payload, headers)
        try:
            await self.client.publish(subject, payload, headers=headers)
        except OutboundBufferLimitError:
            self.dropped += 1
        except ConnectionClosedError as error:
            raise BusClosedError("connection closed") from error

    async def publish_once(
        self, subject: str, kind: str, payload: bytes, msg_id: str, *, timeout_s: float = 5.0
    ) -> bool:
        """Publish into the stream and wait for its word; True if the id was there before. Raises `RETRYABLE`."""
        if self.closed.is_set() or self.client.is_closed:
            raise BusClosedError("connection closed")
        headers = {**self.headers(kind), "Nats-Msg-Id": msg_id}
        self._check_size(payload, headers)
        ack = await self.js.publish(subject, payload, timeout=timeout_s, headers=headers)
        return bool(ack.duplicate)

    async def publish_acked(
        self, subject: str, kind: str, payload: bytes, msg_id: str, *, timeout_s: float = 5.0
    ) -> bool:
        """`publish_once`, again and again with the same id until the stream answers.

        Raises BusClosedError, and what no second try can change: TooLargeError, a bad subject, a refusal (code 400).
        """
        async for attempt in AsyncRetrying(
            wait=wait_random_exponential(multiplier=0.1, max=5),
            reraise=True,
            retry=retry_if_exception(is_retryable),
            stop=stop_never,
            before_sleep=self._warn_retry(subject),
        ):
            with attempt:
                return await self.publish_once(subject, kind, payload, msg_id, timeout_s=timeout_s)
        raise BusClosedError("unreachable")

    def _warn_retry(self, subject: str) -> Callable[[Any], None]:
        def warn(state: Any) -> None:
            error = state.outcome.exception()
            log.warning(
                "publish_retried",
                subject=subject,
                tries=state.attempt_number,
                error=f"{type(error).__name__}: {error}",
            )

        return warn

    def _check_size(self, payload: bytes, headers: dict[str, str]) -> None:
        """Raise TooLargeError where payload and headers together, as the server counts them, are over its limit."""
        limit = self.client.max_payload
        size = len(payload) + len("NATS/1.0\r\n\r\n")
        size += sum(len(key.encode()) + len(value.encode()) + len(": \r\n") for key, value in headers.items())
        if size > limit:
            raise TooLargeError(size, limit)

    async def subscribe(self, subject: str, callback: Callable[[Msg], Any]) -> Any:
        """Subscribe without a stream (for `tap` and requests)."""
        return await self.client.subscribe(
            subject, cb=callback, pending_msgs_limit=1_000_000, pending_bytes_limit=256 << 20
        )

    async def last(self, stream: str, subject: str) -> bytes | None:
        """Return the newest message of a subject in a stream, None for none. Raises `RETRYABLE`."""
        try:
            return (await self.js.get_last_msg(stream, subject, direct=True)).data
        except NotFoundError:
            return None

    async def request(self, subject: str, kind: str, payload: bytes, *, timeout_s: float) -> bytes | None:
        """Ask, and return the answer's payload; None where nobody answers in time, or nobody listens."""
        headers = self.headers(kind)
        self._check_size(payload, headers)
        try:
            answer = await self.client.request(subject, payload, timeout=timeout_s, headers=headers)
        except (NoRespondersError, TimeoutError):
            return None
        return bytes(answer.data)

    async def server_time_ns(self) -> int:
        """Return the server's time, ns since the epoch. Raises `RETRYABLE`, BusError for an answer without one."""
        answer = await self.client.request("$JS.API.STREAM.INFO.DRAIN", b"", timeout=2)
        try:
            return _ns(json.loads(answer.data)["ts"])
        except (KeyError, TypeError, ValueError) as err:
            raise BusError(f"the bus does not tell its time: {answer.data[:100]!r}") from err

    async def user_info(self) -> dict[str, Any]:
        """Return what the server says of us: user, account, permissions. Empty where it says nothing."""
        try:
            answer = await self.client.request("$SYS.REQ.USER.INFO", b"", timeout=2)
            found = json.loads(answer.data)["data"]
        except (*RETRYABLE, KeyError, TypeError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    async def bucket(self, name: str) -> KeyValue:
        """Return a bucket. Raises BusError if `heeler bus init` has not made it, and `RETRYABLE`."""
        try:
            return await self.js.key_value(name)
        except BucketNotFoundError:
            raise BusError(f"no bucket {name}: run `heeler bus init`") from None

    async def answer(self, subject: str, handler: Callable[[bytes], Awaitable[tuple[str, bytes] | None]]) -> Any:
        """Answer requests on a subject: the handler returns the kind and payload of its answer, or None for none.

        Requests are handed over as they come, also while an earlier one is still being worked on.
        """
        working: set[asyncio.Task[None]] = set()

        async def work(message: Msg) -> None:
            found = await handler(message.data)
            if found is not None and message.reply:
                await self.publish(message.reply, *found)

        async def on(message: Msg) -> None:
            task = asyncio.create_task(work(message))
            working.add(task)
            task.add_done_callback(working.discard)

        return await self.client.subscribe(subject, cb=on)

    async def close(self) -> None:
        """Send what is buffered, then close. Never takes longer than six seconds."""
        self.closing = True
        try:
            await asyncio.wait_for(self.client.flush(timeout=3), 4)
        except (*RETRYABLE, ValueError):
            log.warning("bus_flush_failed")
        try:
            await asyncio.wait_for(self.client.close(), 2)
        except TimeoutError:
            log.warning("bus_close_timed_out")
        self.closed.set()


async def _within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """Wait for work, at most so long. Raises TimeoutError, and what the work raises.

    nats-py takes a cancellation that meets it while it closes a connection for its own, and goes on connecting for ever
    to a server that does not let it in: so it is cancelled until it ends.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=0.05)
    if task.cancelled():
        raise TimeoutError("the server does not let us in, or does not answer")
    await task


def _options(settings: BusSettings, name: str) -> dict[str, Any]:
    def next_server(servers: list[Any], _info: dict[str, Any]) -> tuple[Any, float]:
        server = min(servers, key=lambda one: one.reconnects)
        most = min(MAX_WAIT_S, settings.reconnect_wait_s * 2 ** min(server.reconnects, 10))
        return server, random.uniform(0, most)

    return {
        "servers": list(settings.servers),
        "name": name,
        "connect_timeout": settings.connect_timeout_s,
        "allow_reconnect": True,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": settings.reconnect_wait_s,
        "reconnect_to_server_handler": next_server,
        "ping_interval": 10,
        "max_outstanding_pings": 3,
        "pending_size": settings.pending_bytes,
        "tls": settings.tls(),
        "user_credentials": settings.creds,
        "nkeys_seed": settings.nkey,
        # One for each kind of process, so that permissions can keep others from listening to its answers.
        "inbox_prefix": settings.inbox_prefix or f"_INBOX_{escape(name)}",
    }


def _server(client: Client) -> str:
    """Return the server's address without user and password."""
    url = client.connected_url
    return f"{url.hostname}:{url.port}" if url else "?"


def _ns(stamp: str) -> int:
    """Return nanoseconds of the server's RFC 3339 time, which has up to nine digits after the point."""
    whole, _, rest = stamp.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if rest else ""
    zone = rest[len(digits) :] if rest else whole[19:]
    seconds = int(datetime.fromisoformat(whole[:19] + zone.replace("Z", "+00:00")).timestamp())
    return seconds * 1_000_000_000 + int(digits.ljust(9, "0") or 0)


__all__ = ["Bus", "BusClosedError", "MaxPayloadError", "Msg", "TooLargeError", "nats"]
