"""The live drainer: reads everything all the time, decides and acts only while it holds the lease.

Several instances may run. Each keeps the same picture of findings, nodes and past actions; the one that holds the
lease is active. An instance that becomes active first looks after what the last one left half done, then believes a
finding only once it has been confirmed to itself.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

import structlog

from heeler.bus import ROUTES, Bus, BusClosedError, BusError, Consumer, ConsumerSpec, Delivery, escape
from heeler.bus.claims import Claims
from heeler.bus.client import RETRYABLE
from heeler.bus.lease import Lease, open_bucket
from heeler.drain.act import Actuator
from heeler.drain.aftercare import Aftercare
from heeler.drain.backend import Slurm
from heeler.drain.breaker_keeper import BreakerKeeper
from heeler.drain.checker import Checker
from heeler.drain.desk import Desk, Fields
from heeler.drain.explain import explain_untracked
from heeler.drain.hand import PROLOG
from heeler.drain.hand_keeper import HandKeeper
from heeler.drain.hooks import ExecHook
from heeler.drain.last_word import last_finding
from heeler.drain.ledger import Ledger
from heeler.drain.lifecycle import PAGES as LIFECYCLE_PAGES
from heeler.drain.notify import Notifier
from heeler.drain.policy import PAGES
from heeler.drain.prolog_breaker import Limits
from heeler.drain.questions import reply
from heeler.drain.repair import Repairer
from heeler.drain.settings import REPAIRS
from heeler.drain.step import DrainStep
from heeler.drain.world import SECOND_NS, World
from heeler.engine.background import Background
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
        hooks: Mapping[str, ExecHook] | None = None,
        notifier: Notifier | None = None,
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
        self._hooks = dict(hooks or {})
        self._repairer: Repairer | None = None
        self._notifier = notifier or Notifier()
        self._background = Background()
        self._checker = Checker(bus, step.policy, step.actor, lambda: self.world, self.emit, self.clock.now_ns)
        self._failed = asyncio.Event()
        self.breaker = BreakerKeeper(
            bus,
            Limits.of(step.policy.limits),
            step.actor,
            lambda: self.world.fleet,
            self.clock.now_ns,
            lambda: self.world.hand.breakers.get(PROLOG),
        )
        self._hand = HandKeeper(bus, step.actor, lambda: self.world.hand, self.clock.now_ns)
        self._desk = Desk(bus, instance, self, self.clock.now_ns)
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
        await self._desk.open()
        tasks += [
            asyncio.create_task(work)
            for work in (
                self._keep_lease(self.lease),
                self._take_over(self.lease),
                self._tick(),
                self._act(),
                self._resume(),
                self._keep_breaker(),
                self._desk.serve(),
                self._background.watch(),
                self._notifier.run(),
                closed(self.bus),
            )
        ]
        try:
            await until_first(*tasks, stop=stop)
        finally:
            self._stand_by()
            await self._background.end()
            if not self.bus.closed.is_set():
                await self.lease.release()
        if self.bus.closed.is_set() and not stop.is_set():
            raise BusClosedError("the bus is closed")

    async def _make_actuator(self, slurm: Slurm, lease: Lease) -> Actuator:
        step, claims = self._drain_step, await Claims.open(self.bus, "drain_intent")
        ledger = Ledger(claims, step.actor, lambda: self.world, self.emit, self.clock.now_ns)
        actuator = Actuator(step.policy, slurm, ledger, lease, Aftercare(step.policy, slurm, ledger, lease))
        self._repairer = Repairer(actuator.after, self._hooks, actuator.busy)
        return actuator

    # Reading, in every instance.

    async def _read(self) -> list[asyncio.Task[None]]:
        """Start all readers and wait until each has seen what was there."""
        memory_ns = self.clock.now_ns() - int(self._drain_step.memory_s * SECOND_NS)
        specs = [ConsumerSpec(name, found, start="last") for name, found in by_stream(self.step.inputs, "last").items()]
        specs += [
            ConsumerSpec(name, found, start=memory_ns) for name, found in by_stream(self.step.inputs, "work").items()
        ]
        self._consumers = [Consumer(self.bus, spec, self._on_delivery) for spec in specs]
        window_ns = self.clock.now_ns() - int(self.breaker.limits.window_s * SECOND_NS)
        runs = ConsumerSpec(ROUTES["HealthRun"].stream, (ROUTES["HealthRun"].pattern,), start=window_ns)
        self._consumers.append(Consumer(self.bus, runs, self._on_run))
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

    async def _on_run(self, delivery: Delivery) -> None:
        """Take in what a run of health checks came to, for the breaker of prologs."""
        message = await self.take(delivery)
        if message is None:
            return
        if message.data["cluster"] != self.bus.cluster:
            self.counters.ignored += 1
        elif self.breaker.heard(message.data, message.ts_ns):
            self._failed.set()

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
                self.world.retract(event.data, self.clock.now_ns())
            elif event.data.get("step") == "check" and verdict == "approved":
                self._background.start(self._checker.carry_out(event))
            elif verdict == "approved" and event.data.get("step") in REPAIRS:
                assert self._repairer is not None
                self._background.start(self._repairer.carry_out(event))
            elif verdict == "approved":
                self._approved.put_nowait(event)
            else:
                await self.emit(event)
                step, why = event.data.get("step"), event.data["why"]
                log.info("drain_action", node=event.data["node"], step=step, verdict=verdict, rule=rule, why=why)
                self._page(rule, str(event.data["why"]), event.data["ts"])

    async def emit(self, event: Event) -> None:
        """Publish an action, and count it by its verdict."""
        assert not isinstance(event.data, bytes)
        await super().emit(event)
        self._verdicts[str(event.data["verdict"])] += 1
        self._notifier.tell(event.data)

    def _page(self, rule: str, why: str, now_ns: int) -> None:
        """Ask for a person, once an hour for each rule."""
        if rule in PAGES | LIFECYCLE_PAGES and now_ns - self._paged.get(rule, -PAGE_EVERY_NS) >= PAGE_EVERY_NS:
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

    async def _keep_breaker(self) -> None:
        """Judge the breaker of prologs at once after a failure, and at each tick."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._failed.wait(), self._drain_step.tick_s or 1.0)
            self._failed.clear()
            if self.may_answer:
                await self._keep_switches()

    async def _keep_switches(self) -> None:
        await self._hand.keep()
        await self.breaker.keep()
        self.world.prologs = self.breaker.breaker

    # What operators want.

    @property
    def may_answer(self) -> bool:
        """Say whether this instance is active and holds the lease."""
        return self.active.is_set() and self.lease is not None and self.lease.held

    async def command(self, message: Inbound) -> None:
        """Carry a command through the step, publish what it says, and keep what has changed.

        An operator's word holds whoever has the lease by the time it is published.
        """
        await self._handle(self.advance())
        try:
            made = self.keyed.on(message, context=True)
        except Exception:  # whatever a bug raises, the next command must be heard
            log.exception("step_failed", subject=message.subject)
            return
        for _, event in made:
            await self.emit(event)
        if message.data["command"] == "reset_breaker":
            self._paged.pop("breaker", None)  # when it opens again, that is news
        await self._keep_switches()

    async def question(self, message: Inbound) -> Fields:
        """Return the keys of the answer to a question."""
        lease_s = self.lease.remaining_s if self.lease is not None else 0.0
        about = {"instance": self.instance, "lease_s": round(lease_s, 1), "prologs": self.breaker.plain()}
        step, now_ns = self._drain_step, self.clock.now_ns()
        said = reply(step.policy, self.world, message.data, now_ns, about, step.hooks)
        if said.get("rule") != "unknown_name":
            return said
        found = await last_finding(self.bus, message.data["name"])
        return said if found is None else explain_untracked(step.policy, self.world, found, now_ns)

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
            await self._hand.load()
            if not lease.held:
                continue
            now_ns = self.keyed.now_ns = max(self.keyed.now_ns, self.clock.now_ns())
            self.world.activate(now_ns)
            self.breaker.forget()
            self.world.prologs = None
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
            self.clock.learn(await self.bus.server_time_ns())
        except (*RETRYABLE, BusError) as error:
            log.warning("server_time_unknown", error=f"{type(error).__name__}: {error}")

    def metrics(self) -> dict[str, float]:
        """Return what this process counts, by metric name."""
        world, now_ns = self.world, self.clock.now_ns()
        found = {
            "drain_active": float(self.active.is_set()),
            "drain_armed": float(not self._drain_step.dry_run),
            "drain_cases": len(world.cases),
            "drain_nodes": len(world.fleet.nodes),
            "drain_nodes_unavailable": world.fleet.unavailable(),
            "drain_stays": len(world.stays.by_node),
            "drain_standing": len(world.standing(now_ns, 0, 24 * PAGE_EVERY_NS)),
        }
        found |= {f"drain_actions_total.{verdict}": count for verdict, count in self._verdicts.items()}
        found["drain_paused"] = float(world.hand.paused(now_ns) is not None)
        found["drain_breaker_open"] = float(world.hand.tripped(dry_run=world.dry_run) is not None)
        return super().metrics() | found | self.breaker.metrics() | self._desk.counts | dict(self._notifier.counts)


async def _drained(consumer: Consumer) -> None:
    """Wait until a consumer has been given all that its stream holds."""
    while True:
        try:
            if not await consumer.pending():
                return
        except RETRYABLE as error:
            log.warning("pending_unknown", error=f"{type(error).__name__}: {error}")
        await asyncio.sleep(0.05)
