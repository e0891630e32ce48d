"""A lane: what one sink gets of one signal, in batches, in order, until it is taken.

Each signal has a lane of its own, so that a backlog of points delays no finding; sinks have their own, so that one
that hangs delays no other. A lane holds a bounded number of messages. Beyond that its readers wait, the bus gives
them no more, and the rest waits in the stream. A message is acknowledged after the sink has taken all of it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from heeler.otlp.points import Content
from heeler.otlp.sinks import Receipt, Rejected, Sink, SinkError, TooLarge, Unavailable
from heeler.otlp.wire import Signal
from heeler.otlp.worker import Worker

log = structlog.get_logger("heeler.otlp")

MAX_HINT_S = 600.0


@dataclass(slots=True)
class Item:
    """One message on its way: what it became, and what to do when it is through or can't go."""

    contents: Sequence[Content]
    done: Callable[[], Awaitable[None]]
    back: Callable[[], Awaitable[None]]
    poison: Callable[[Exception], Awaitable[None]]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.contents))


@dataclass(slots=True)
class Tally:
    """What a lane counts, in points, records or spans unless it says otherwise."""

    sent: int = 0
    rejected: int = 0  # by the receiver, for good
    too_large: int = 0  # alone already
    unsent: int = 0  # held when the process ended; they stay in the stream
    requests: int = 0
    failures: int = 0  # requests that were not taken
    outages: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a lane takes at once and holds."""

    batch_points: int = 8000
    linger_s: float = 1.0
    held_messages: int = 2000
    max_backoff_s: float = 30.0


class Lane:
    """Sends items to a sink in the order they were put."""

    def __init__(self, name: str, signal: Signal, sink: Sink, limits: Limits) -> None:
        self.name, self.signal = name, signal
        self.tally = Tally()
        self._sink, self._limits = sink, limits
        self._worker = Worker(f"heeler-{name}-{signal}")
        self._queue: asyncio.Queue[Item] = asyncio.Queue(limits.held_messages)
        self._batch: list[Item] = []
        self._outage_since: float | None = None
        self._flush = False
        self._backoff = wait_random_exponential(multiplier=0.5, max=limits.max_backoff_s)

    async def put(self, item: Item) -> None:
        """Hand over an item; waits while the lane is full."""
        await self._queue.put(item)

    def held(self) -> int:
        """Return how many messages wait here."""
        return self._queue.qsize() + len(self._batch)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._fill()
            await self._send_batch(self._batch)
            done, self._batch = self._batch, []
            for _ in done:
                self._queue.task_done()

    async def stop(self, running: asyncio.Task[None], grace_s: float) -> None:
        """Send what is held for a while, then give the rest back to the stream and say how much that was."""
        self._flush = True
        if self._outage_since is not None:  # it won't come back just now, and nothing is lost: the stream has it
            grace_s = min(grace_s, 0.5)
        sent = asyncio.create_task(self._queue.join())
        await asyncio.wait({sent, running}, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (sent, running):
            task.cancel()
        await asyncio.gather(sent, running, return_exceptions=True)
        left = self._batch + [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        self.tally.unsent = sum(item.size for item in left)
        for item in left:
            await item.back()
        self._worker.stop()
        report = log.warning if left else log.info
        report(
            "lane_stopped",
            sink=self.name,
            signal=self.signal,
            unsent=self.tally.unsent,
            unsent_messages=len(left),
            sent=self.tally.sent,
            rejected=self.tally.rejected + self.tally.too_large,
        )

    async def _fill(self) -> None:
        """Collect a batch: until it is full, or nothing more came for a while."""
        first = await self._queue.get()
        self._batch = [first]
        size = first.size
        until = time.monotonic() + self._limits.linger_s
        while size < self._limits.batch_points:
            try:
                item = self._queue.get_nowait()
            except asyncio.QueueEmpty:
                left = until - time.monotonic()
                if left <= 0 or self._flush:
                    return
                try:
                    item = await asyncio.wait_for(self._queue.get(), left)
                except TimeoutError:
                    return
            self._batch.append(item)
            size += item.size

    async def _send_batch(self, batch: Sequence[Item]) -> None:
        good = list(batch)
        try:
            requests = await self._prepare(good)
        except Exception as error:  # noqa: BLE001 - one item without a form in this sink must not cost the others
            log.warning("batch_unprepared", sink=self.name, signal=self.signal, error=repr(error)[:300])
            good, requests = await self._prepare_each(good)
        for request in requests:
            await self._send_all(request)
        for item in good:
            await item.done()

    async def _prepare(self, items: Sequence[Item]) -> list[Any]:
        contents = [content for item in items for content in item.contents]
        return await self._retrying()(self._worker.run, self._requests, contents)

    def _requests(self, contents: Sequence[Content]) -> list[Any]:
        """Return the sink's requests; runs in its thread, where a generator of a plug-in may take its time."""
        requests = list(self._sink.prepare(self.signal, contents))
        for one in requests:
            if type(getattr(one, "count", None)) is not int or not callable(getattr(one, "halves", None)):
                name = type(self._sink).__name__
                raise Unavailable(f"{name} made a request without `count` or `halves`: {one!r:.80}")
        return requests

    async def _prepare_each(self, items: Sequence[Item]) -> tuple[list[Item], list[Any]]:
        good: list[Item] = []
        requests: list[Any] = []
        for item in items:
            try:
                requests += await self._prepare([item])
            except Exception as error:  # noqa: BLE001 - whatever the item does to the sink, it is the item's fault
                await item.poison(error)
            else:
                good.append(item)
        return good, requests

    async def _send_all(self, request: Any) -> None:
        """Send a request, in halves where it is too large. Returns when every point was taken or counted."""
        waiting = deque([(request, 0)])
        while waiting:
            part, cuts = waiting.popleft()
            try:
                receipt = await self._send(part)
            except TooLarge as error:
                halves = _halves(part)
                if halves is None:
                    self._count_lost("too_large", part.count, error)
                    continue
                waiting.extendleft((half, cuts + 1) for half in reversed(halves))
                # A receiver that refuses ever smaller requests is short of something else than room for this one.
                await asyncio.sleep(min(error.after_s or 0.25 * max(0, cuts - 8), MAX_HINT_S))
            except Rejected as error:
                self._count_lost("rejected", part.count, error)
            else:
                self.tally.sent += part.count - receipt.rejected
                if receipt.rejected or receipt.message:
                    self.tally.rejected += receipt.rejected
                    log.warning(
                        "partly_rejected",
                        sink=self.name,
                        signal=self.signal,
                        rejected=receipt.rejected,
                        of=part.count,
                        message=receipt.message[:300],
                    )

    async def _send(self, request: Any) -> Receipt:
        """Send one request, again and again while the sink is unavailable. Raises TooLarge, Rejected."""
        return await self._retrying()(self._send_once, request)

    async def _send_once(self, request: Any) -> Receipt:
        self.tally.requests += 1
        try:
            receipt = await self._worker.run(self._hand_over, request)
        except (TooLarge, Rejected) as error:
            self.tally.failures += 1
            self._note_answer()
            if isinstance(error, TooLarge) and error.after_s is not None and _halves(request) is None:
                raise Unavailable(str(error), error.after_s) from error
            raise
        except SinkError:
            raise
        except Exception as error:  # a sink's bug must not lose what it was given
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        self._note_answer()
        return receipt

    def _hand_over(self, request: Any) -> Receipt:
        receipt = self._sink.send(request)
        if not isinstance(receipt, Receipt):
            raise TypeError(f"{type(self._sink).__name__}.send returned {receipt!r:.80}, not a Receipt")
        return receipt

    def _retrying(self) -> AsyncRetrying:
        return AsyncRetrying(
            retry=retry_if_exception_type(Unavailable), wait=self._wait, before_sleep=self._note_failure, reraise=True
        )

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        hint = error.after_s if isinstance(error, Unavailable) else None
        return float(self._backoff(state)) if hint is None else min(hint, MAX_HINT_S)

    def _note_failure(self, state: RetryCallState) -> None:
        """Count, and say it once per outage."""
        self.tally.failures += 1
        if self._outage_since is None:
            self._outage_since = time.monotonic()
            self.tally.outages += 1
            error = state.outcome.exception() if state.outcome else None
            log.error("sink_unavailable", sink=self.name, signal=self.signal, error=str(error)[:500])

    def _note_answer(self) -> None:
        """Say that an outage is over: any answer will do."""
        if self._outage_since is not None:
            seconds = round(time.monotonic() - self._outage_since, 1)
            self._outage_since = None
            log.info("sink_available", sink=self.name, signal=self.signal, after_s=seconds, held=self.held())

    def _count_lost(self, why: str, count: int, error: SinkError) -> None:
        setattr(self.tally, why, getattr(self.tally, why) + count)
        log.error("request_lost", sink=self.name, signal=self.signal, why=why, count=count, error=str(error)[:500])


def _halves(request: Any) -> tuple[Any, Any] | None:
    """Return a request in two, or None where that can't be."""
    try:
        left, right = request.halves() or (None, None)
    except Exception as error:  # noqa: BLE001 - a plug-in's: then it can't be halved
        log.warning("request_not_halved", error=repr(error)[:300])
        return None
    return None if left is None else (left, right)
