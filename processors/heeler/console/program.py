"""The web page as a process: reads the bus, serves browsers, changes nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from aiohttp import web

from heeler.bus import Bus, BusClosedError, BusError, Consumer, ConsumerSpec, Delivery, escape, prefix_of
from heeler.bus.consumer import snapshot
from heeler.console import facts as reads
from heeler.console import pages, plots
from heeler.console.answers import Answers
from heeler.console.frames import Frames
from heeler.console.hub import Hub
from heeler.console.live import Live
from heeler.console.settings import ConsoleSettings
from heeler.console.web import NotKnownError, Web
from heeler.engine.live import closed, until_first
from heeler.engine.process import Context, Program

log = structlog.get_logger("heeler.console")

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
LOOK_S = 0.2  # between two looks at the connection


class ListenError(BusError):
    """The page can't be served where it should be."""


class Console(Live):
    """The state of the page, kept up to date from the bus."""

    def __init__(self, bus: Bus, settings: ConsoleSettings, instance: str) -> None:
        super().__init__(bus, settings)
        self.cluster = settings.cluster or None
        self.frames = Frames(self.model, instance)
        self.hub = Hub(settings.most_pages)
        self.answers = Answers()
        self.port = 0
        self._lost_since_ns: int | None = None
        self._told: dict[str, Any] = self.status(self.clock.now_ns())

    # From the bus.

    async def read(self) -> None:
        """Read until cancelled: what is known first, then the samples. Raises BusClosedError."""
        now_ns = time.time_ns()
        prefix = prefix_of(self.cluster)
        specs = (
            ConsumerSpec("NODES", ("slurm.node.*",), start="last", prefix=prefix),
            ConsumerSpec("JOBS", ("slurm.job.*",), start="last", prefix=prefix),
            ConsumerSpec("AGENTS", ("slurm.cluster.*",), start="last", prefix=prefix),
            ConsumerSpec("FINDINGS_LAST", ("finding.*.*.*",), start="last", prefix=prefix),
            ConsumerSpec("DRAIN", ("drain.action.*",), start=now_ns - DAY_NS, prefix=prefix),
            ConsumerSpec("JOBSAMPLES", ("job.sample.*.*",), start="last", prefix=prefix),
        )
        watching: list[asyncio.Task[None]] = []
        try:
            for spec in specs:
                consumer = Consumer(self.bus, spec, self.on)
                await consumer.start()
                self._consumers.append(consumer)
                watching.append(asyncio.create_task(consumer.watch()))
            await asyncio.gather(*(consumer.caught_up.wait() for consumer in self._consumers))
            self.ready = True
            log.info("ready", nodes=len(self.model.fleet.names), jobs=len(self.model.jobs))
            await until_first(*watching, stop=asyncio.Event())
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    def broken(self, delivery: Delivery, error: Exception) -> None:
        """Log a message that broke the model."""
        log.error("model_failed", subject=delivery.subject, seq=delivery.seq, exc_info=error)

    # To the pages.

    async def tell(self) -> None:
        """Send what has changed, every second, and at once when the bus goes or comes."""
        due, was = 0.0, (True, False)
        while True:
            now = (self.bus_good(), self.ready)
            if now != was or time.monotonic() >= due:
                was, due = now, time.monotonic() + self.settings.every_s
                now_ns = self.clock.now_ns()
                self._lost_since_ns = None if now[0] else self._lost_since_ns or now_ns
                self._told = self.status(now_ns)
                self.hub.send(self.frames.advance(now_ns, self._told))
            await asyncio.sleep(min(LOOK_S, self.settings.every_s))

    def status(self, now_ns: int) -> dict[str, Any]:
        """Return how far what is shown can be believed."""
        model = self.model
        lost = self._lost_since_ns
        return {
            "clusters": sorted(self.clusters)[:4],
            "ready": self.ready,
            "bus_lost_s": None if lost is None else (now_ns - lost) / SECOND_NS,
            "ages_s": {kind: max(0, now_ns - ts) / SECOND_NS for kind, ts in model.ages.newest.items()},
            "controllers": [
                {
                    "feed": feed,
                    "state": one["controller"],
                    "why": one.get("why"),
                    "age_s": max(0, now_ns - one["ts"]) / SECOND_NS,
                }
                for feed, one in sorted(model.controllers.items())[:4]
            ],
            "beyond": model.beyond + model.fleet.refused,
            "unreadable": self.counters.dead,
        }

    def snapshot(self) -> tuple[int, bytes]:
        """Return all that pages were told, and the number of the change that it stands at."""
        return self.frames.seq, self.frames.snapshot(self._told)

    def metrics(self) -> Mapping[str, float]:
        """Return what the page counts."""
        return {
            "console_ready": float(self.ready),
            "console_port": self.port,
            "console_told": float(self._told["ready"]),
            "console_pages": len(self.hub.clients),
            "console_pages_cut_total": self.hub.dropped,
            "console_received_total": self.counters.received,
            "console_unreadable_total": self.counters.dead,
            "console_ignored_total": self.counters.ignored,
            "console_beyond_total": self.model.beyond + self.model.fleet.refused,
            "console_nodes": len(self.model.fleet.names),
        }

    # Questions.

    def questions(self) -> dict[str, Callable[[Mapping[str, str]], Awaitable[Any]]]:
        """Return what a page may ask."""
        return {
            "node": self.node,
            "job": self.job,
            "finding": self.finding,
            "finding_plot": self.finding_plot,
            "job_plot": self.job_plot,
            "search": self.search,
        }

    async def node(self, query: Mapping[str, str]) -> Any:
        """Answer for the page of a node."""
        name, hours = query["name"], min(max(float(query.get("hours", "6")), 0.25), 24.0)

        async def make() -> Any:
            now_ns = self.clock.now_ns()
            facts = await reads.about_node(self.bus, name, now_ns, self.cluster)
            return facts, await reads.node_states(self.bus, name, now_ns - DAY_NS, self.cluster)

        facts, states = await self.answers.ask(("node", name), 2.0, make)
        page = pages.node_page(self.model, name, facts, states, hours)
        if not page["known"]:
            raise NotKnownError(f"node {name} is not known on this bus")
        return page

    async def job(self, query: Mapping[str, str]) -> Any:
        """Answer for the page of a job."""
        name = query["name"]
        facts, summaries = await self.answers.ask(("job", name), 5.0, lambda: self._facts_of_job(name))
        facts.now_ns = self.clock.now_ns()
        page = pages.job_page(self.model, name, facts, summaries)
        if not page["known"]:
            raise NotKnownError(f"job {name} is not known on this bus")
        return page

    async def _facts_of_job(self, name: str) -> tuple[reads.Facts, list[reads.Message]]:
        facts = reads.Facts(self.clock.now_ns())
        token = escape(name)
        facts.records = reads.checked(
            facts, await snapshot(self.bus, "RECORDS", (f"slurm.record.{token}.*",), cluster=self.cluster)
        )
        told = await snapshot(self.bus, "SUMMARIES", (f"job.summary.{token}.*",), cluster=self.cluster)
        return facts, reads.checked(facts, told)

    async def finding(self, query: Mapping[str, str]) -> Any:
        """Answer for the page of a finding."""
        found = await self._finding(query["id"])
        actions = [one for one in self.model.actions if one.get("finding_id") == found["id"]]
        return pages.finding_page(self.model, found, actions, self.clock.now_ns())

    async def _finding(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] | None = self.model.findings.get(name) or self.model.closed.get(name)
        if found is None:
            facts = reads.Facts(self.clock.now_ns())
            told = await snapshot(self.bus, "FINDINGS_LAST", (f"finding.*.*.{escape(name)}",), cluster=self.cluster)
            found = next(iter(reads.checked(facts, told)), None)
        if found is None:
            raise NotKnownError(f"finding {name} is not known on this bus")
        return found

    async def finding_plot(self, query: Mapping[str, str]) -> Any:
        """Answer with the curves behind a finding."""
        found = await self._finding(query["id"])
        job = self.model.job(found["job_id"]) if "job_id" in found else None
        nodes = sorted(job.nodes) if job is not None else []
        asked = plots.asked_by(found, nodes, self.clock.now_ns(), self.settings.plot_nodes)
        if isinstance(asked, str):
            return {"plots": [], "why": asked}
        drawn = await self._drawn(("finding_plot", found["id"]), asked, plots.metrics_of(found))
        return drawn | {"first_ts": found["first_ts"], "nodes_all": len(nodes) or 1}

    async def job_plot(self, query: Mapping[str, str]) -> Any:
        """Answer with the band of a job's GPUs."""
        name = query["name"]
        job = self.model.job(name)
        if job is None or not job.nodes:
            return {"plots": [], "why": "Slurm's feed has not named this job's nodes"}
        now_ns = self.clock.now_ns()
        slow = pages.laggards(self.model, job)
        nodes = plots.spread_out(sorted(job.nodes), [node for node, _ in slow], self.settings.plot_nodes)
        victims = frozenset(uuid for _, uuid in slow)
        asked = plots.Asked(now_ns - plots.KEPT_NS, now_ns, name, nodes, victims)
        drawn = await self._drawn(("job_plot", name), asked, ["tensor_active_ratio", "sm_clock_mhz", "power_w"])
        return drawn | {"nodes_all": len(job.nodes)}

    async def _drawn(self, key: tuple[str, ...], asked: plots.Asked, metrics: list[str]) -> dict[str, Any]:
        async def make() -> dict[str, Any]:
            return (await plots.read(self.bus, asked, self.cluster)).drawn(metrics)

        found: dict[str, Any] = await self.answers.ask(key, 10.0, make)
        return found

    async def search(self, query: Mapping[str, str]) -> Any:
        """Answer with what a text may mean."""
        return pages.found_by(self.model, query["q"])


async def main(context: Context) -> None:
    """Serve until stopped. Raises BusClosedError when the bus is gone for good."""
    settings: ConsoleSettings = context.settings["console"]
    console = Console(context.bus, settings, context.instance)
    context.metrics["console"] = console.metrics
    host, _, port = settings.listen.rpartition(":")
    served = Web(console.hub, console.snapshot, console.questions(), frozenset((*settings.hosts, host)))
    runner = web.AppRunner(served.app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        except OSError as err:
            raise ListenError(f"console.listen: {settings.listen}: {err.strerror}") from err
        console.port = runner.addresses[0][1]
        log.info("serving", url=f"http://{host}:{console.port}/")
        tasks = [asyncio.create_task(one) for one in (console.read(), console.tell(), closed(context.bus))]
        await until_first(*tasks, stop=context.stop)
    finally:
        console.hub.close()
        await runner.cleanup()
    if context.bus.closed.is_set() and not context.stop.is_set():
        raise BusClosedError("the bus is closed")


PROGRAM = Program("console", "Serve the web page for operators; read only.", main, {"console": ConsoleSettings})
