"""Messages that left their stream before the exporter could read them: an outage longer than the stream's memory."""

import asyncio

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from heeler.bus import Bus, ConsumerSpec
from heeler.bus.client import RETRYABLE

log = structlog.get_logger("heeler.otlp")

LOOK_S = 10.0


class Expired:
    """Counts what a durable consumer can't be given any more.

    The stream's first message minus the consumer's last one is the gap. Where a stream carries other subjects too
    the count is an upper bound, since theirs are in the gap as well.
    """

    def __init__(self, bus: Bus, spec: ConsumerSpec) -> None:
        assert spec.durable is not None
        self.total = 0
        self._bus, self._stream, self._durable = bus, spec.stream, spec.durable
        self._gap = 0

    async def look(self) -> None:
        """Look once; says so when there is a new gap."""
        try:
            consumer = await self._bus.js.consumer_info(self._stream, self._durable)
        except RETRYABLE as error:
            if getattr(error, "code", None) == 404:  # not made yet: what came before it is not missing
                return
            raise
        first = (await self._bus.js.stream_info(self._stream)).state.first_seq
        delivered = consumer.delivered.stream_seq if consumer.delivered else 0
        self.learn(max(0, first - 1 - delivered))

    def learn(self, gap: int) -> None:
        """Count a gap as far as it is new."""
        if gap > self._gap:
            self.total += gap - self._gap
            if self._gap == 0:
                log.error("messages_expired", stream=self._stream, consumer=self._durable, at_most=gap)
        self._gap = gap

    async def look_when_possible(self) -> None:
        """Look once, as soon as the bus answers."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(RETRYABLE), wait=wait_random_exponential(multiplier=0.1, max=LOOK_S)
        ):
            with attempt:
                await self.look()

    async def watch(self) -> None:
        """Look now and then until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look_when_possible()
