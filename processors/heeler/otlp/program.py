"""otlp as a process."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from heeler.bus import BusClosedError, Consumer, ConsumerSpec
from heeler.engine.live import closed, until_first
from heeler.engine.process import Context, Program
from heeler.otlp.expired import Expired
from heeler.otlp.lane import Lane, Limits
from heeler.otlp.reader import KINDS, Reader, specs
from heeler.otlp.settings import OtlpSettings, SinkSettings
from heeler.otlp.sinks import PluginError, Sink, open_sink
from heeler.otlp.wire import Signal
from heeler.otlp.worker import Worker

log = structlog.get_logger("heeler.otlp")

CLOSE_S = 1.0


class Outlet:
    """A sink with a lane and a reader for each of its signals."""

    def __init__(self, context: Context, settings: OtlpSettings, sink: SinkSettings) -> None:
        self._bus, self._name, self._ack_wait_s = context.bus, sink.label, settings.ack_wait_s
        self._settings, self._of_sink = settings, sink
        self._job_records = settings.slurm.job_records
        self._worker = Worker(f"heeler-{sink.label}")  # what a plug-in does while it opens and closes may take long
        self._sink: Sink | None = None
        self.lanes: list[Lane] = []
        self.readers: list[Reader] = []
        self.opened = asyncio.Event()  # or broken
        self.broken = ""  # why there is no sink
        self._sending: list[asyncio.Task[None]] = []
        self._expired: list[Expired] = []
        self._ready = False

    async def run(self) -> None:
        """Read and send until cancelled. Sending goes on then: `stop` ends it."""
        try:
            self._open(await self._worker.run(open_sink, self._of_sink))
        except PluginError as error:
            self.broken = str(error)
            log.error("sink_broken", sink=self._name, error=self.broken)  # noqa: TRY400 - the cause is in the words
        self.opened.set()
        if self.broken:
            await asyncio.Event().wait()  # the other sinks go on
        await self._export()

    def _open(self, sink: Sink) -> None:
        settings, of_sink = self._settings, self._of_sink
        limits = Limits(settings.batch_points, settings.linger_s, settings.held_messages, of_sink.max_backoff_s)
        signals: list[Signal] = [signal for signal in KINDS if signal in of_sink.signals]
        self._sink = sink
        self.lanes = [Lane(self._name, signal, sink, limits) for signal in signals]
        self.readers = [Reader(self._bus, lane, settings) for lane in self.lanes]

    async def _export(self) -> None:
        self._sending = [asyncio.create_task(lane.run()) for lane in self.lanes]
        tasks = [asyncio.create_task(_shielded(task)) for task in self._sending]
        try:
            for lane, reader in zip(self.lanes, self.readers, strict=True):
                for spec in specs(lane.name, lane.signal, self._ack_wait_s, job_records=self._job_records):
                    tasks += await self._read(spec, reader)
            log.info("exporting", sink=self._name)
            self._ready = True
            await until_first(*tasks, stop=asyncio.Event())
        finally:
            self._ready = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, spec: ConsumerSpec, reader: Reader) -> list[asyncio.Task[None]]:
        expired = Expired(self._bus, spec)
        self._expired.append(expired)
        await expired.look_when_possible()  # before the consumer moves on
        consumer = Consumer(self._bus, spec, reader.on)
        await consumer.start()
        return [asyncio.create_task(consumer.watch()), asyncio.create_task(expired.watch())]

    async def stop(self, grace_s: float) -> None:
        """Send what is held for a while; give the rest back to the stream."""
        stopping = [lane.stop(task, grace_s) for lane, task in zip(self.lanes, self._sending, strict=False)]
        await asyncio.gather(*stopping)
        if self._sink is not None:
            try:
                await asyncio.wait_for(self._worker.run(self._sink.close), CLOSE_S)
            except Exception as error:  # noqa: BLE001 - a plug-in's, and no reason to keep the others from ending
                log.warning("sink_not_closed", sink=self._name, error=repr(error)[:300])
        self._worker.stop()

    def metrics(self) -> Mapping[str, float]:
        """Return what this outlet counts."""
        found: dict[str, float] = {
            f"otlp_ready.{self._name}": self._ready,
            f"otlp_broken.{self._name}": bool(self.broken),
            f"otlp_expired_total.{self._name}": sum(one.total for one in self._expired),
        }
        for lane, reader in zip(self.lanes, self.readers, strict=True):
            label = f"{lane.name}_{lane.signal}"
            tally, counters = lane.tally, reader.counters
            found |= {
                f"otlp_sent_total.{label}": tally.sent,
                f"otlp_rejected_total.{label}": tally.rejected + tally.too_large,
                f"otlp_requests_total.{label}": tally.requests,
                f"otlp_failures_total.{label}": tally.failures,
                f"otlp_outages_total.{label}": tally.outages,
                f"otlp_held_messages.{label}": lane.held(),
                f"otlp_received_total.{label}": counters.received,
                f"otlp_dead_letters_total.{label}": counters.dead,
                f"otlp_ignored_total.{label}": counters.ignored,
                f"otlp_series_over_total.{label}": reader.over(),
            }
        return found


async def main(context: Context) -> None:
    """Export until stopped. Raises BusClosedError when the bus is gone for good, PluginError without any sink."""
    settings: OtlpSettings = context.settings["otlp"]
    outlets = [Outlet(context, settings, sink) for sink in settings.sinks]
    for outlet, sink in zip(outlets, settings.sinks, strict=True):
        context.metrics[f"otlp-{sink.label}"] = outlet.metrics
    tasks = [asyncio.create_task(outlet.run()) for outlet in outlets]
    tasks.append(asyncio.create_task(_one_at_least(outlets)))
    try:
        await until_first(*tasks, asyncio.create_task(closed(context.bus)), stop=context.stop)
    finally:
        await asyncio.gather(*(outlet.stop(settings.stop_s) for outlet in outlets))
    if context.bus.closed.is_set() and not context.stop.is_set():
        raise BusClosedError("the bus is closed")


async def _one_at_least(outlets: Sequence[Outlet]) -> None:
    """Raise PluginError where no sink works: a process that does nothing must not look as if it ran."""
    for outlet in outlets:
        await outlet.opened.wait()
    if all(outlet.broken for outlet in outlets):
        raise PluginError("; ".join(outlet.broken for outlet in outlets))
    await asyncio.Event().wait()


async def _shielded(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)


PROGRAM = Program(
    "otlp", "Export metrics, findings, events and traces to OTLP, stdout and files.", main, {"otlp": OtlpSettings}
)
