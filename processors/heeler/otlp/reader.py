"""From deliveries of the bus to items of a lane."""

import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from heeler.bus import ROUTES, Bus, ConsumerSpec, Delivery
from heeler.bus.tables_gen import TABLES
from heeler.engine.deadletter import bury
from heeler.engine.intake import Refused, intake, too_far_ahead
from heeler.engine.step import Counters, Inbound
from heeler.otlp.bounds import Bound
from heeler.otlp.ends import Ends
from heeler.otlp.lane import Item, Lane
from heeler.otlp.map import LOGS, metrics_by
from heeler.otlp.names_tables import OF_PARTITION_ACCOUNTS, OF_USERS, OUT
from heeler.otlp.points import Content, Points
from heeler.otlp.sampler import Sampler
from heeler.otlp.selection import Selection
from heeler.otlp.settings import OtlpSettings
from heeler.otlp.starts import Starts
from heeler.otlp.traces import TRACES
from heeler.otlp.wire import Signal

BY = "otlp"
REMEMBERED = 20_000

# GPUs come with their jobs, from enrich; kernel events likewise.
KINDS: Mapping[Signal, tuple[str, ...]] = {
    "metrics": (
        *("JobSample", "IbSample", "HostSample", "SwitchSample", "AgentStatus"),
        *("HealthResult", "HealthRun", "SlurmTable", "ClusterState"),
    ),
    "logs": ("JobKernelEvent", "Finding", "DrainAction", "HealthResult", "HealthRun", "JobRecord"),
    "traces": tuple(TRACES),
}


def specs(sink: str, signal: Signal, ack_wait_s: float, *, job_records: bool = True) -> list[ConsumerSpec]:
    """Return what a lane reads: shared durable consumers, so that several exporters divide the work."""
    return [
        ConsumerSpec(ROUTES[kind].stream, _patterns(kind), durable=_durable(sink, signal, kind), ack_wait_s=ack_wait_s)
        for kind in KINDS[signal]
        if kind != "JobRecord" or job_records
    ]


def _durable(sink: str, signal: Signal, kind: str) -> str:
    twice = signal == "traces" or (kind in KINDS["metrics"] and kind in KINDS["logs"])
    return f"{BY}-{sink}-{kind}-{signal}" if twice else f"{BY}-{sink}-{kind}"


def _patterns(kind: str) -> tuple[str, ...]:
    """Return what to read of a kind: of a table without series of its own, only the first part."""
    if kind != "SlurmTable":
        return (ROUTES[kind].pattern,)
    return tuple(f"slurm.table.{name}.*.{'*' if name in OUT else 0}" for name in TABLES)


class Reader:
    """Takes the messages of a lane: checks, maps, hands over, and acknowledges when they are through."""

    def __init__(self, bus: Bus, lane: Lane, settings: OtlpSettings) -> None:
        self.counters = Counters()
        self._bus, self._lane = bus, lane
        slurm = settings.slurm
        without = (OF_USERS if not slurm.users else frozenset()) | (
            OF_PARTITION_ACCOUNTS if not slurm.partition_accounts else frozenset()
        )
        self._metrics = metrics_by(settings.gpu_names, settings.jobs)
        self._starts, self._sampler = Starts(), Sampler(settings.every_s)
        self._selection, self._ends = Selection(settings.metrics, settings.without), Ends()
        self._bound = Bound(slurm.series_rows, without)
        self._held: set[tuple[str, int, int]] = set()
        self._done: OrderedDict[tuple[str, int, int], None] = OrderedDict()

    def over(self) -> int:
        """Return how many rows of tables had no room."""
        return self._bound.over

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

    async def _contents(self, delivery: Delivery) -> Sequence[Content] | None:
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

    def _map(self, message: Inbound) -> Sequence[Content]:
        if self._lane.signal == "logs":
            entry = LOGS[message.kind](message.data)
            if entry is None:
                self._ignore("nothing_to_say")
            return [] if entry is None else [entry]
        if self._lane.signal == "traces":
            spans = TRACES[message.kind](message.data, message.ts_ns)
            if not spans:
                self._ignore("nothing_to_say")
            return spans
        made = self._metrics[message.kind](message.data)
        bounded = [points for points in map(self._bound.keep, made) if points is not None]
        wanted = [points for points in map(self._selection.keep, bounded) if points is not None]
        due = [points for one in wanted for points in self._due(one)]
        if bounded and not due:
            self._ignore("downsampled" if wanted else "unselected")
        return due

    def _due(self, points: Points) -> list[Points]:
        """Return what is to be sent now. Of health checks that is all: a second one in a minute may be the bad one."""
        changed, ended = self._ends.look(points)
        due = points if points.scope[0].startswith("health") else self._sampler.thin(points, changed)
        if due is None:
            return ended
        for _ in range(due.skipped):
            self.counters.count("unnamed_values")
        self._starts.fill(due)
        return [due, *ended]

    def _ignore(self, reason: str) -> None:
        self.counters.ignored += 1
        self.counters.count(reason)

    def _item(self, delivery: Delivery, key: tuple[str, int, int], contents: Sequence[Content]) -> Item:
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
