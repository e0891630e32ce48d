"""Wait for what will be so, not for a time that may be too short."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

from heeler.bus import Bus, Consumer, ConsumerSpec, Delivery
from heeler.bus.consumer import Handler


async def until(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str = "", timeout_s: float = 40.0
) -> None:
    """Wait until a condition holds. Raises AssertionError when it takes too long."""
    end = time.monotonic() + timeout_s
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return
        assert time.monotonic() < end, f"waited {timeout_s} s in vain: {what}"
        await asyncio.sleep(0.01)


def until_sync(condition: Callable[[], bool], what: str = "", timeout_s: float = 20.0) -> None:
    """Wait until a condition holds, outside a loop. Raises AssertionError when it takes too long."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s} s in vain: {what}"
        time.sleep(0.01)


def status(url: str) -> int:
    """Return the HTTP status of a page, 0 while nobody answers."""
    try:
        with urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except HTTPError as err:
        with err:
            return err.code
    except OSError:
        return 0


class Reader:
    """A consumer whose messages are kept."""

    def __init__(self, bus: Bus, spec: ConsumerSpec, handler: Handler | None = None) -> None:
        self.consumer = Consumer(bus, spec, self._on)
        self.got: list[Delivery] = []
        self.handler = handler

    async def _on(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        if self.handler is not None:
            await self.handler(delivery)

    @property
    def data(self) -> list[bytes]:
        """The payloads so far."""
        return [delivery.data for delivery in self.got]

    async def has(self, count: int, timeout_s: float = 40.0) -> None:
        """Wait for so many messages."""
        await until(lambda: len(self.got) >= count, f"{count} messages, got {len(self.got)}", timeout_s)


@asynccontextmanager
async def reading(
    bus: Bus, spec: ConsumerSpec, handler: Handler | None = None, made: list[Reader] | None = None
) -> AsyncIterator[Reader]:
    """Read a stream while the block runs; the reader is also put into `made`, before its first message."""
    reader = Reader(bus, spec, handler)
    if made is not None:
        made.append(reader)
    await reader.consumer.start()
    task = asyncio.create_task(reader.consumer.watch())
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await reader.consumer.stop()  # a task that was cancelled before it ran has stopped nothing
