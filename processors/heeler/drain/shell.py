"""The live drainer: reads everything all the time, decides and acts only while it holds the lease.

Several instances may run. Each keeps the same picture of findings, nodes and past actions; the one that holds the
lease is active. An instance that becomes active first looks after what the last one left half done, then believes a
finding only once it has been confirmed to itself.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import structlog

from heeler.bus import Bus, BusClosedError, Consumer, ConsumerSpec, Delivery, escape
from heeler.bus.claims import Claims
from heeler.bus.client import RETRYABLE
from heeler.bus.lease import Lease, open_bucket
from heeler.drain.act import Actuator, Slurm
from heeler.drain.policy import PAGES
from heeler.drain.step import DrainStep
from heeler.drain.world import SECOND_NS, World
from heeler.engine.intake import Refused
from heeler.engine.live import Live, closed, until_first
from heeler.engine.shared import by_stream
from heeler.engine.step import Event, Inbound

log = structlog.get_logger("heeler.drain")

STANDBY_POLL_S = 1.0
RESUME_EVERY_S = 30.0
PAGE_EVERY_NS = 3600 * SECOND_NS


class Drainer(Live):
    """One instance of the drainer. Without ``slurm`` it can only run dry."""

    def __init__(
        self,
        bus: Bus,
        step: DrainStep,
        instance: str,
        slurm: Slurm | None = None,
        *,
        resume_every_s: float = RESUME_EVERY_S,
    ) -> None:
        super().__init__(bus, step, instance)
        self._resume_every_s = resume_every_s
        assert step.dry_run or slurm is not None, "an armed drainer needs something to drain with"
        self._drain_step = step
        self._slurm = slurm
        self._key = f"cluster:{bus.cluster}"
        self._consumers: list[Consumer] = []
        self._approved: asyncio.Queue[Event] = asyncio.Queue()
        self._paged: dict[str, int] = {}
        self._verdicts: Counter[str] = Counter()
        self._actuator: Actuator | None = None
        self._gained = asyncio.Event()
        self.lease: Lease | None = None
        self.active = asyncio.Event()

    @property
    def world(self) -> World:
        """The picture of our cluster."""
        found = self.keyed.states.get(self._key)
        if found is None:
            found = self.keyed.states[self._key] = self._drain_step.new_world(None)
        assert isinstance(found, World)
        return found

    async def run(self, stop: asyncio.Event) -> None:
        """Read, wait for the lease, act; until stopped. Raises BusClosedError when the bus is gone for good."""
        bucket, ttl_s = await open_bucket(self.bus, "drain_lease")
        self.lease = Lease(bucket, escape(self.bus.cluster), self.instance, ttl_s)
        if self._slurm is not None:
            self._actuator = await self._make_actuator(self._slurm, self.lease)
        await self._learn_time()
        tasks = await self._read()
        tasks += [
            asyncio.create_task(work)
            for work in (
                self._keep_lease(self.lease),
                self._take_over(self.lease),
                self._tick(),
                self._act(),
                self._resume(),
                closed(self.bus),
            )
        ]
        try:
            await until_first(*tasks, stop=stop)
        finally:
            self._stand_by()
            if not self.bus.closed.is_set():
                await self.lease.release()
        if self.bus.closed.is_set() and not stop.is_set():
            raise BusClosedError("the bus is closed")

    async def _make_actuator(self, slurm: Slurm, lease: Lease) -> Actuator:
        return Actuator(
            self._drain_step.policy,
            slurm,
            await Claims.open(self.bus, "drain_intent"),
            lease,
            self._drain_step.actor,
            lambda: self.world,
            self.emit,
            self.clock.now_ns,
        )

    # Reading, in every instance.

    async def _read(self) -> list[asyncio.Task[None]]:
        """Start all readers and wait until each has seen what was there."""
        memory_ns = self.clock.now_ns() - int(self._drain_step.memory_s * SECOND_NS)
        specs = [ConsumerSpec(name, found, start="last") for name, found in by_stream(self.step.inputs, "last").items()]
        specs += [
            ConsumerSpec(name, found, start=memory_ns) for name, found in by_stream(self.step.inputs, "work").items()
        ]
        self._consumers = [Consumer(self.bus, spec, self._on_delivery) for spec in specs]
        for consumer in self._consumers:
            await consumer.start()
        tasks = [asyncio.create_task(consumer.watch()) for consumer in self._consumers]
        for consumer in self._consumers:
            await consumer.caught_up.wait()
        log.info("caught_up", findings=len(self.world.cases), nodes=len(self.world.fleet.nodes))
        return tasks

    async def _on_delivery(self, delivery: Delivery) -> None:
        message = await self.take(delivery)
        if message is None:
            return
        if message.data["cluster"] != self.bus.cluster:
            self.counters.ignored += 1
            return
        assert self.world is not None  # made before the step sees it, so that it begins as a standby
        if self.active.is_set():
            await self._handle(self.advance())
        # Its own stamp may be old: what counts as now is the server's clock.
        await self._handle(await self.run_step(delivery, message, context=True))

    async def blame(self, delivery: Delivery, message: Inbound, error: Exception) -> None:
        """Bury a message that broke the step, but keep the picture: one bad finding must not disarm the drainer."""
        log.error("step_failed", subject=delivery.subject, seq=delivery.seq, exc_info=error)
        await self.refuse(delivery, Refused("poison", f"{type(error).__name__}: {error}", message.kind))

    # Deciding, in the active one.

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._drain_step.tick_s or 1.0)
            if self.active.is_set():
                assert self.lease is not None
                if not self.lease.held:
                    self._stand_by()
                    continue
                await self._handle(self.advance())

    async def _handle(self, events: Iterable[tuple[str, Event]]) -> None:
        # All at once: while one is being published, time goes on for the step.
        for _, event in list(events):
            assert not isinstance(event.data, bytes)
            verdict, rule = event.data["verdict"], event.data["rule"]
            if self.lease is None or not self.lease.held:  # lost meanwhile: the next holder decides for itself
                self.world.history.retract(event.data, self.clock.now_ns())
            elif verdict == "approved":
                self._approved.put_nowait(event)
            else:
                await self.emit(event)
                log.info("drain_action", node=event.data["node"], verdict=verdict, rule=rule, why=event.data["why"])
                self._page(rule, str(event.data["why"]), event.data["ts"])

    async def emit(self, event: Event) -> None:
        """Publish an action, and count it by its verdict."""
        assert not isinstance(event.data, bytes)
        await super().emit(event)
        self._verdicts[str(event.data["verdict"])] += 1

    def _page(self, rule: str, why: str, now_ns: int) -> None:
        """Ask for a person, once an hour for each rule."""
        if rule in PAGES and now_ns - self._paged.get(rule, -PAGE_EVERY_NS) >= PAGE_EVERY_NS:
            self._paged[rule] = now_ns
            log.error("person_needed", rule=rule, why=why)

    async def _act(self) -> None:
        while True:
            approval = await self._approved.get()
            assert self._actuator is not None
            await self._actuator.carry_out(approval)

    async def _resume(self) -> None:
        """Look again at nodes that could not be read after their command."""
        while True:
            await asyncio.sleep(self._resume_every_s)
            if self.active.is_set():
                await self._look_after_intents()

    async def _look_after_intents(self) -> None:
        if self._actuator is None:
            return
        try:
            await self._actuator.resume(self.bus.cluster)
        except RETRYABLE as error:
            log.warning("intents_unread", error=f"{type(error).__name__}: {error}")

    # The lease.

    async def _keep_lease(self, lease: Lease) -> None:
        while True:
            was = lease.held
            held = await lease.poll()
            if held and not was:
                self._gained.set()
            elif not held and self.active.is_set():
                self._stand_by()
            await asyncio.sleep(lease.ttl_s / 4 if held else min(STANDBY_POLL_S, lease.ttl_s / 4))

    async def _take_over(self, lease: Lease) -> None:
        """Become active with each lease gained.

        First know the time and everything said so far, and finish what was begun; only then begin anew. That may take
        as long as Slurm takes to answer, so the lease is renewed meanwhile, and may be lost again.
        """
        while True:
            await self._gained.wait()
            self._gained.clear()
            await self._learn_time()
            for consumer in self._consumers:
                await _drained(consumer)
            await self._look_after_intents()
            if not lease.held:
                continue
            now_ns = self.keyed.now_ns = max(self.keyed.now_ns, self.clock.now_ns())
            self.world.activate(now_ns)
            self.active.set()
            log.info("active", instance=self.instance, dry_run=self._drain_step.dry_run, cases=len(self.world.cases))

    def _stand_by(self) -> None:
        if self.active.is_set():
            self.active.clear()
            self.world.active_ns = None
            log.warning("standing_by", instance=self.instance)

    async def _learn_time(self) -> None:
        """Ask the server for its time; messages alone can't tell it, since any of them may be old."""
        try:
            answer = await self.bus.client.request("$JS.API.STREAM.INFO.DRAIN", b"", timeout=2)
            stamp = json.loads(answer.data)["ts"]
        except (*RETRYABLE, KeyError, ValueError) as error:
            log.warning("server_time_unknown", error=f"{type(error).__name__}: {error}")
            return
        self.clock.learn(_ns(stamp))

    def metrics(self) -> dict[str, float]:
        """Return what this process counts, by metric name."""
        world, now_ns = self.world, self.clock.now_ns()
        found = {
            "drain_active": float(self.active.is_set()),
            "drain_armed": float(not self._drain_step.dry_run),
            "drain_cases": len(world.cases),
            "drain_nodes": len(world.fleet.nodes),
            "drain_nodes_unavailable": world.fleet.unavailable(),
            "drain_standing": len(world.standing(now_ns, 0, 24 * PAGE_EVERY_NS)),
        }
        found |= {f"drain_actions_total.{verdict}": count for verdict, count in self._verdicts.items()}
        return super().metrics() | found


async def _drained(consumer: Consumer) -> None:
    """Wait until a consumer has been given all that its stream holds."""
    while True:
        try:
            if not await consumer.pending():
                return
        except RETRYABLE as error:
            log.warning("pending_unknown", error=f"{type(error).__name__}: {error}")
        await asyncio.sleep(0.05)


def _ns(stamp: str) -> int:
    """Return nanoseconds of the server's RFC 3339 time, which has up to nine digits after the point."""
    whole, _, rest = stamp.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if rest else ""
    zone = rest[len(digits) :] if rest else whole[19:]
    seconds = int(datetime.fromisoformat(whole[:19] + zone.replace("Z", "+00:00")).timestamp())
    return seconds * SECOND_NS + int(digits.ljust(9, "0") or 0)
