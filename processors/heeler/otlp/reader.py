"""From deliveries of the bus to items of a lane."""

import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from heeler.bus import ROUTES, Bus, ConsumerSpec, Delivery
from heeler.engine.deadletter import bury
from heeler.engine.intake import Refused, intake, too_far_ahead
from heeler.engine.step import Counters, Inbound
from heeler.otlp.lane import Item, Lane
from heeler.otlp.map import LOGS, METRICS
from heeler.otlp.points import LogEntry, Points
from heeler.otlp.sampler import Sampler
from heeler.otlp.starts import Starts
from heeler.otlp.wire import Signal

BY = "otlp"
REMEMBERED = 20_000

# GPUs come with their jobs, from enrich; kernel events likewise.
KINDS: Mapping[Signal, tuple[str, ...]] = {
    "metrics": ("JobSample", "IbSample", "HostSample", "SwitchSample", "AgentStatus"),
    "logs": ("JobKernelEvent", "Finding", "DrainAction"),
}


def specs(sink: str, signal: Signal, ack_wait_s: float) -> list[ConsumerSpec]:
    """Return what a lane reads: shared durable consumers, so that several exporters divide the work."""
    return [
        ConsumerSpec(ROUTES[kind].stream, (ROUTES[kind].pattern,), durable=f"{BY}-{sink}-{kind}", ack_wait_s=ack_wait_s)
        for kind in KINDS[signal]
    ]


class Reader:
    """Takes the messages of a lane: checks, maps, hands over, and acknowledges when they are through."""

    def __init__(self, bus: Bus, lane: Lane, every_s: float) -> None:
        self.counters = Counters()
        self._bus, self._lane = bus, lane
        self._starts, self._sampler = Starts(), Sampler(every_s)
        self._held: set[tuple[str, int, int]] = set()
        self._done: OrderedDict[tuple[str, int, int], None] = OrderedDict()

    async def on(self, delivery: Delivery) -> None:
        """Take one message. Waits while the lane is full, and with it the consumer."""
        self.counters.received += 1
        key = (delivery.stream, delivery.seq, delivery.ts_ns)
        if key in self._held:  # it waits here longer than the bus waits for its ack
            self.counters.count("redelivered")
            return
        contents = None if key in self._done else await self._contents(delivery)
        if not contents:
            await delivery.ack()
            return
        self._held.add(key)
        try:
            await self._lane.put(self._item(delivery, key, contents))
        except BaseException:
            self._held.discard(key)
            raise

    async def _contents(self, delivery: Delivery) -> Sequence[Points | LogEntry] | None:
        try:
            message = intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns)
        except Refused as refused:
            await self._refuse(delivery, refused)
            return None
        if too_far_ahead(message):
            self._ignore("future")
            return None
        try:
            return self._map(message)
        except Exception as error:  # noqa: BLE001 - one message that breaks the mapping must not stop the others
            await self._refuse(delivery, _poison(error, message.kind))
            return None

    def _map(self, message: Inbound) -> Sequence[Points | LogEntry]:
        if message.kind in LOGS:
            return [LOGS[message.kind](message.data)]
        made = METRICS[message.kind](message.data)
        due = [points for points in map(self._sampler.thin, made) if points is not None]
        if made and not due:
            self._ignore("downsampled")
        for points in due:
            for _ in range(points.skipped):
                self.counters.count("unnamed_values")
            self._starts.fill(points)
        return due

    def _ignore(self, reason: str) -> None:
        self.counters.ignored += 1
        self.counters.count(reason)

    def _item(self, delivery: Delivery, key: tuple[str, int, int], contents: Sequence[Points | LogEntry]) -> Item:
        async def done() -> None:
            self._held.discard(key)
            self._done[key] = None
            if len(self._done) > REMEMBERED:
                self._done.popitem(last=False)
            await delivery.ack()

        async def back() -> None:
            self._held.discard(key)
            await delivery.nak()

        async def poison(error: Exception) -> None:
            self._held.discard(key)
            await self._refuse(delivery, _poison(error, ""))
            await delivery.ack()

        return Item(contents, done, back, poison)

    async def _refuse(self, delivery: Delivery, refused: Refused) -> None:
        self.counters.dead += 1
        self.counters.count(refused.why)
        await bury(self._bus, delivery, refused, BY)


def _poison(error: Exception, kind: str) -> Refused:
    return Refused("poison", "".join(traceback.format_exception(error))[-1800:], kind)
