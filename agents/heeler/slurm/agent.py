"""The process `heeler-slurm`: asks Slurm in turns and publishes what it says.

One question at a time to slurmctld, so a slow controller never gets a second one while it works on the first; beside
it one at a time to slurmdbd, whose answers may take minutes. State moves only after the stream has stored what it
gave rise to.
"""

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import structlog

from heeler.bus import (
    ROUTES,
    Bus,
    BusError,
    ConfigError,
    ConsumerSpec,
    DecodeError,
    Delivery,
    consume,
    decode,
    subjects,
)
from heeler.bus.client import RETRYABLE
from heeler.engine.process import Context, Program, serve, set_up_logs
from heeler.slurm import accounting, feed, stats
from heeler.slurm.clients import Clients
from heeler.slurm.collect import Collector, Messages, Table
from heeler.slurm.collectors import COLLECTORS
from heeler.slurm.errors import SlurmError
from heeler.slurm.mapkeeper import MapKeeper
from heeler.slurm.publication import Publication
from heeler.slurm.publisher import Publisher
from heeler.slurm.readback import last_values, read_back
from heeler.slurm.rows import Unreadable
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.sources import Outage, Polled, SlurmSource, Source
from heeler.slurm.turns import Turn

log = structlog.get_logger("heeler.slurm")

JOBS, NODES = "jobs", "nodes"
HURRY_S = 2.0  # between two questions for jobs, where prologs ask for them
CORE_TABLE_S = 60.0  # how often jobs and nodes go out as tables, from the newest answer


@dataclass(slots=True)
class Agent:
    """Polls and publishes. `clock_ns` is the time of the events, ns since the epoch."""

    bus: Bus
    source: Source
    settings: SlurmSettings
    clock_ns: Callable[[], int] = time.time_ns
    jobs: feed.Known = field(default_factory=dict)
    nodes: feed.Known = field(default_factory=dict)
    version: str | None = None
    turns: dict[str, Turn] = field(default_factory=dict)
    collectors: Sequence[Collector] = ()
    clients: Clients = field(default_factory=Clients)
    publisher: Publisher = field(init=False)
    job_map: MapKeeper = field(init=False)
    _nodes_table: Table | None = None  # the newest, for the sums
    _woken: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def __post_init__(self) -> None:
        self.publisher = Publisher(self.bus)
        self.job_map = MapKeeper(self.bus, self.publisher.count)
        self.turns = {
            # Nodes go first: they say how many GPUs a whole node has.
            NODES: Turn(NODES, self.settings.nodes_interval_s),
            JOBS: Turn(JOBS, self.settings.jobs_interval_s),
        }
        for collector in self.collectors:
            interval_s = self.settings.intervals.get(collector.name, collector.interval_s)
            if interval_s > 0 and collector.wanted(self.settings):
                turn = Turn(collector.name, interval_s, jitter=collector.jitter, collector=collector)
                turn.due_s = turn.first_s()
                self.turns[f"table.{collector.name}"] = turn

    @property
    def counts(self) -> dict[str, float]:
        """What was counted so far."""
        return self.publisher.counts

    async def restore(self) -> None:
        """Learn from the last-value streams what was published before."""
        back = await read_back(self.bus, self.settings.feed, self.clock_ns())
        self.jobs, self.nodes = back.jobs, back.nodes
        await last_values(self.bus, "Inventory", self.job_map.inventory, "last")
        for turn in self._core():
            turn.success_ts_ns = back.last_success_ts_ns
        log.info("known", jobs=feed.live_jobs(self.jobs), nodes=feed.live_nodes(self.nodes))

    async def run(self) -> None:
        """Poll until cancelled."""
        lanes: dict[str, list[Turn]] = {}
        for turn in self.turns.values():
            lanes.setdefault(turn.lane, []).append(turn)
        running = {asyncio.create_task(self._run_lane(turns)) for turns in lanes.values()}
        running.add(asyncio.create_task(self._listen()))
        running.add(asyncio.create_task(self._hear("Inventory", self.job_map.inventory)))
        try:
            ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            await end_all(running)

    async def _run_lane(self, turns: Sequence[Turn]) -> None:
        while True:
            turn = min(turns, key=lambda t: t.due_s)
            if (wait_s := turn.due_s - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken[turn.lane].wait(), wait_s)
                self._woken[turn.lane].clear()
                continue  # another may be due first now
            if turn.collector is not None and turn.lane == "slurmctld" and any(core.failures for core in self._core()):
                # A controller that is away keeps each of its clients for ten seconds: jobs and nodes go first.
                turn.due_s = time.monotonic() + min(turn.interval_s, self.settings.max_backoff_s)
                continue
            turn.asked_s = time.monotonic()
            await self.poll(turn)
            turn.due_s = time.monotonic() + self.wait_s(turn)

    async def _listen(self) -> None:
        """Ask for jobs at once where a prolog runs: a job starts or ends there."""

        def on_prolog(message: Mapping[str, Any]) -> None:
            self.job_map.prolog(message)
            self.hurry()

        await self._hear("PrologEvent", on_prolog)

    async def _hear(self, kind: str, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Hand over the newest message of each node, then all that come, of this cluster."""

        async def on(delivery: Delivery) -> None:
            try:
                message = decode(kind, delivery.data)
            except DecodeError as err:
                log.warning("not_understood", subject=delivery.subject, error=str(err))
                return
            if message["cluster"] == self.bus.cluster:
                take(message)

        route = ROUTES[kind]
        while True:
            try:
                await consume(self.bus, ConsumerSpec(route.stream, (route.pattern,), start="last"), on)
            except RETRYABLE as err:
                log.warning("not_heard", what=kind, error=f"{type(err).__name__}: {err}")
            await asyncio.sleep(HURRY_S)

    def hurry(self) -> None:
        """Bring the next question for jobs forward; a thousand prologs at once make one. Not while Slurm is away."""
        turn = self.turns[JOBS]
        due_s = max(turn.asked_s + HURRY_S, time.monotonic())
        if due_s < turn.due_s and not turn.failures:
            turn.due_s = due_s
            self.publisher.count("slurm_hurried_total")
            self._woken[turn.lane].set()

    async def once(self) -> bool:
        """Ask for everything once; returns whether Slurm answered for jobs and nodes."""
        for turn in self.turns.values():
            await self.poll(turn)
        return all(turn.why is None for turn in self._core())

    def wait_s(self, turn: Turn) -> float:
        """Return how long to wait before the next try."""
        return turn.wait_s(self.settings.max_backoff_s)

    async def poll(self, turn: Turn) -> None:
        """Ask once and publish what came."""
        if turn.collector is not None:
            await self._poll_table(turn, turn.collector)
            return
        asked_ns = self.clock_ns()
        wanted = {
            name
            for name, due_s in ((turn.name, turn.table_due_s), (stats.NAME, turn.stats_due_s))
            if self._is_due(turn, name, due_s)
        }
        polled: Polled[Any] = await (
            self.source.jobs(asked_ns, with_table=bool(wanted))
            if turn.name == JOBS
            else self.source.nodes(with_table=bool(wanted))
        )
        now_ns = self.clock_ns()
        answer = polled.answer
        if isinstance(answer, Outage):
            self._outage(turn, answer.why)
        else:
            change = self._compare(turn, answer, now_ns)
            await self.publisher.publish(change.publications)
            if turn.name == JOBS:
                self.jobs = change.known
                if all(row.name is not None for row in answer.unreadable):  # the answer is whole
                    await self.job_map.write(self.jobs, self.nodes, now_ns)
            else:
                self.nodes = change.known
            self._success(turn, answer.unreadable, answer.version, now_ns)
            if answer.table is not None:
                # The same answer feeds all of them: no second question.
                table = replace(answer.table, source=polled.source)
                await self._publish_core_tables(turn, table, wanted, asked_ns, polled.duration_ns)
        await self.publisher.publish_one(self.cluster_state(polled, now_ns))

    async def _poll_table(self, turn: Turn, collector: Collector) -> None:
        asked_ns, started = self.clock_ns(), time.monotonic_ns()
        try:
            answer = await collector.collect(self.clients)
        except SlurmError as err:
            self._outage(turn, str(err))
            return
        except Exception as err:
            log.error("collector_failed", table=turn.name, exc_info=True)  # noqa: G201 - structlog
            self._outage(turn, f"{type(err).__name__}: {err}")
            return
        if isinstance(answer, Messages):
            await self.publisher.publish(answer.publications)
            if answer.done is not None:
                answer.done()
        else:
            await self._publish_table(turn.name, answer, asked_ns, time.monotonic_ns() - started)
        self._success(turn, answer.unreadable, answer.version, asked_ns)

    async def _publish_table(self, name: str, table: Table, asked_ns: int, duration_ns: int) -> None:
        await self.publisher.publish_table(
            self.settings.feed, name, table, ts_ns=asked_ns, duration_ns=duration_ns, version=self.version
        )

    async def _publish_core_tables(
        self, turn: Turn, table: Table, wanted: set[str], asked_ns: int, duration_ns: int
    ) -> None:
        """Publish all jobs or all nodes as a table, and with the jobs the sums over both."""
        if turn.name in wanted:
            turn.table_due_s = time.monotonic() + self._interval_s(turn.name)
            await self._publish_table(turn.name, table, asked_ns, duration_ns)
        if stats.NAME not in wanted:
            return
        turn.stats_due_s = time.monotonic() + self._interval_s(stats.NAME)
        if turn.name == NODES:
            self._nodes_table = table
            return
        # Nodes that are not answered now are not known, however they were before.
        nodes = self._nodes_table if self.turns[NODES].why is None else None
        ends = accounting.recent_ends(self.clients, asked_ns // 1_000_000_000)
        sums = await asyncio.to_thread(stats.stats_table, table, nodes, asked_ns, ends)
        await self._publish_table(stats.NAME, replace(sums, source=table.source), asked_ns, duration_ns)

    def _interval_s(self, name: str) -> float:
        return self.settings.intervals.get(name, CORE_TABLE_S)

    def _is_due(self, turn: Turn, name: str, due_s: float) -> bool:
        """Whether a table goes out after this answer. A poll comes a little early or late."""
        return self._interval_s(name) > 0 and due_s - time.monotonic() < turn.interval_s / 2

    def _core(self) -> list[Turn]:
        """Return the turns that say whether the controller is there."""
        return [turn for turn in self.turns.values() if turn.collector is None]

    def _compare(self, turn: Turn, answer: Any, now_ns: int) -> feed.Change:
        options: dict[str, Any] = {
            "cluster": self.bus.cluster,
            "now_ns": now_ns,
            "republish_ns": int(self.settings.republish_s * 1e9),
        }
        if turn.name == JOBS:
            owns = self.settings.exclusive_owns_gpus
            gpus = feed.node_gpus(self.nodes)
            return feed.diff_jobs(self.jobs, answer, node_gpus=gpus, exclusive_owns=owns, **options)
        return feed.diff_nodes(self.nodes, answer, **options)

    def _outage(self, turn: Turn, why: str) -> None:
        self.publisher.count(f"slurm_outages_total.{turn.name}")
        turn.failures += 1
        if turn.why is None:
            log.warning("slurm_away", asked_for=turn.name, why=why)
        turn.why = why

    def _success(self, turn: Turn, unreadable: Sequence[Unreadable], version: str | None, now_ns: int) -> None:
        if turn.why is not None:
            log.info("slurm_back", asked_for=turn.name, failures=turn.failures)
        turn.failures, turn.why, turn.success_ts_ns = 0, None, now_ns
        self.version = version or self.version
        self.publisher.count(f"slurm_answers_total.{turn.name}")
        turn.unreadable = len(unreadable)
        if unreadable:
            self.publisher.count(f"slurm_unreadable_rows_total.{turn.name}", len(unreadable))
            first = unreadable[0]
            log.warning("rows_unreadable", of=turn.name, count=len(unreadable), first=first.name, why=first.why)

    def cluster_state(self, polled: Polled[Any], now_ns: int) -> Publication:
        """Return the ClusterState after a poll. Down as soon as one question for jobs or nodes was not answered."""
        why = [f"{turn.name}: {turn.why}" for turn in self._core() if turn.why is not None]
        asked = [turn.success_ts_ns for turn in self._core()]
        known = [stamp for stamp in asked if stamp is not None]
        message: dict[str, Any] = {
            "v": 1,
            "cluster": self.bus.cluster,
            "feed": self.settings.feed,
            "ts": now_ns,
            "controller": "down" if why else "up",
            "why": "; ".join(why)[:1000] or None,
            "last_success_ts": min(known) if len(known) == len(asked) else None,
            "jobs": feed.live_jobs(self.jobs),
            "nodes": feed.live_nodes(self.nodes),
            "source": polled.source,
            "slurm_version": self.version,
            "duration_ns": polled.duration_ns,
            "unreadable": {turn.name: turn.unreadable for turn in self.turns.values() if turn.unreadable} or None,
            "outages": {turn.name: turn.why[:300] for turn in self.turns.values() if turn.why is not None} or None,
        }
        clean = {key: value for key, value in message.items() if value is not None}
        subject = subjects.cluster_state(self.bus.cluster, self.settings.feed)
        return Publication("ClusterState", subject, f"ClusterState.{self.settings.feed}.{now_ns}", clean)

    def metrics(self) -> dict[str, float]:
        """Return counters, and whether Slurm answers."""
        up = all(turn.why is None and turn.success_ts_ns is not None for turn in self._core())
        away = {f"slurm_outage.{turn.name}": float(turn.why is not None) for turn in self.turns.values()}
        return {**self.counts, **away, "slurm_up": float(up), "slurm_jobs": feed.live_jobs(self.jobs)}


async def end_all(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended, even while this one is cancelled too."""
    while left := {task for task in tasks if not task.done()}:
        # More than once: in Python 3.11 `asyncio.wait_for`, which waits for the stream's word, swallows a
        # cancellation that comes together with the answer. A task group would cancel once.
        for task in left:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait(left, timeout=0.1)


async def until_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Work until told to stop. Raises what the work raises."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await end_all({working})
    if not working.cancelled():
        working.result()


def make_agent(bus: Bus, settings: SlurmSettings) -> Agent:
    """Return an agent that asks Slurm as the settings say."""
    clients = Clients(settings, bus.cluster)
    return Agent(bus, SlurmSource(clients), settings, collectors=COLLECTORS, clients=clients)


async def _main(context: Context) -> None:
    agent = make_agent(context.bus, context.settings["slurm"])
    context.metrics["slurm"] = agent.metrics

    async def work() -> None:
        await agent.restore()
        await agent.run()

    await until_stopped(context.stop, work())


PROGRAM = Program("slurm", "Publish what Slurm says of jobs and nodes.", _main, sections={"slurm": SlurmSettings})


@dataclass(slots=True)
class _Once:
    """The program that asks once; `good` says whether Slurm answered."""

    good: bool = False

    async def main(self, context: Context) -> None:
        agent = make_agent(context.bus, context.settings["slurm"])

        async def work() -> None:
            await agent.restore()
            self.good = await agent.once()

        await until_stopped(context.stop, work())


@click.command(help=PROGRAM.about)
@click.option("--config", "path", type=click.Path(dir_okay=False), help="TOML file.")
@click.option("--once", is_flag=True, help="Ask once, publish, end; exit status 1 if Slurm did not answer.")
@click.option("--slurm-bin-dir", type=click.Path(file_okay=False), help="Where squeue, sinfo and scontrol are.")
@click.option("--interval", type=float, help="Seconds between two questions for jobs.")
@click.option("--listen", help="HOST:PORT of the endpoint with /metrics and /healthz.")
@click.option("--print-config", is_flag=True, help="Print the settings in force and end.")
def main(
    path: str | None,
    slurm_bin_dir: str | None,
    interval: float | None,
    listen: str | None,
    *,
    once: bool,
    print_config: bool,
) -> None:
    """Be `heeler-slurm`."""
    try:
        settings = _settings(path, slurm_bin_dir, interval)
    except ConfigError as err:
        for fault in str(err).split("; "):
            click.echo(f"heeler-slurm: {fault}", err=True)
        sys.exit(2)
    if print_config:
        click.echo(_toml(settings))
        sys.exit(0)
    set_up_logs(settings["log"])
    single = _Once()
    program = replace(PROGRAM, main=single.main) if once else PROGRAM
    try:
        asyncio.run(serve(program, settings, listen))
    except BusError as err:
        log.error("ended", error=f"{type(err).__name__}: {err}")  # noqa: TRY400 - the cause is in the words
        sys.exit(1)
    sys.exit(0 if single.good or not once else 1)


def _settings(path: str | None, bin_dir: str | None, interval: float | None) -> dict[str, Any]:
    settings = PROGRAM.load(Path(path) if path else None)
    slurm: SlurmSettings = settings["slurm"]
    if bin_dir:
        slurm = replace(slurm, bin_dir=bin_dir)
    if interval is not None:
        slurm = replace(slurm, jobs_interval_s=interval, nodes_interval_s=1.5 * interval)
    slurm.validate()
    unknown = sorted(slurm.intervals.keys() - {JOBS, NODES, stats.NAME} - {collector.name for collector in COLLECTORS})
    if unknown:
        raise ConfigError("; ".join(f"slurm.intervals.{name}: no such table" for name in unknown))
    return {**settings, "slurm": slurm}


def _toml(settings: dict[str, Any]) -> str:
    """Return the settings as TOML; those that are not set as comments."""
    lines: list[str] = []
    for section, value in settings.items():
        lines.append(f"[{section}]")
        for key, item in asdict(value).items():
            lines.append(f"# {key} =" if item is None else f"{key} = {_toml_value(item)}")
        lines.append("")
    return "\n".join(lines)


def _toml_value(item: Any) -> str:
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, dict):
        return "{" + ", ".join(f"{key} = {_toml_value(value)}" for key, value in item.items()) + "}"
    if isinstance(item, list | tuple):
        return "[" + ", ".join(map(_toml_value, item)) + "]"
    return (
        repr(item) if isinstance(item, int | float) else '"' + str(item).replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


if __name__ == "__main__":
    main()
