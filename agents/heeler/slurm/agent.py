"""The process `heeler-slurm`: asks Slurm in turns and publishes what changed.

One command at a time, so a slow controller never gets a second question while it works on the first. State moves
only after the stream has stored what it gave rise to.
"""

import asyncio
import random
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import structlog

from heeler.bus import Bus, BusError, ConfigError, EncodeError, TooLargeError, encode, subjects
from heeler.engine.process import Context, Program, serve, set_up_logs
from heeler.slurm import feed
from heeler.slurm.jobs import JobsAnswer
from heeler.slurm.nodes import NodesAnswer
from heeler.slurm.readback import read_back
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.sources import Outage, Polled, SlurmClients, Source

log = structlog.get_logger("heeler.slurm")

IN_FLIGHT = 128  # messages that wait for the stream's word at the same time
JOBS, NODES = "jobs", "nodes"


@dataclass(slots=True)
class Turn:
    """One thing to ask for: when it is due, and how it went."""

    name: str
    interval_s: float
    due_s: float = 0.0
    failures: int = 0
    success_ts_ns: int | None = None
    why: str | None = None


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
    counts: dict[str, float] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.turns = {
            # Nodes go first: they say how many GPUs a whole node has.
            NODES: Turn(NODES, self.settings.nodes_interval_s),
            JOBS: Turn(JOBS, self.settings.jobs_interval_s),
        }

    async def restore(self) -> None:
        """Learn from the last-value streams what was published before."""
        back = await read_back(self.bus, self.settings.feed, self.clock_ns())
        self.jobs, self.nodes = back.jobs, back.nodes
        for turn in self.turns.values():
            turn.success_ts_ns = back.last_success_ts_ns
        log.info("known", jobs=feed.live_jobs(self.jobs), nodes=feed.live_nodes(self.nodes))

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            turn = min(self.turns.values(), key=lambda t: t.due_s)
            await asyncio.sleep(turn.due_s - time.monotonic())
            await self.poll(turn)
            turn.due_s = time.monotonic() + self.wait_s(turn)

    async def once(self) -> bool:
        """Ask for everything once; returns whether Slurm answered."""
        for turn in self.turns.values():
            await self.poll(turn)
        return all(turn.why is None for turn in self.turns.values())

    def wait_s(self, turn: Turn) -> float:
        """Return how long to wait before the next try: the interval with jitter, longer while Slurm is away."""
        if not turn.failures:
            return turn.interval_s * random.uniform(0.9, 1.1)
        longest = min(turn.interval_s * 2.0 ** min(turn.failures, 16), self.settings.max_backoff_s)
        return random.uniform(min(turn.interval_s, longest) / 2, longest)

    async def poll(self, turn: Turn) -> None:
        """Ask once and publish what changed."""
        polled: Polled[Any] = await (self.source.jobs() if turn.name == JOBS else self.source.nodes())
        now_ns = self.clock_ns()
        answer = polled.answer
        if isinstance(answer, Outage):
            self._outage(turn, answer)
        else:
            change = self._compare(turn, answer, now_ns)
            await self.publish(change.publications)
            if turn.name == JOBS:
                self.jobs = change.known
            else:
                self.nodes = change.known
            self._success(turn, answer, now_ns)
        await self._publish_one(self.cluster_state(polled, now_ns))

    def _compare(self, turn: Turn, answer: Any, now_ns: int) -> feed.Change:
        options: dict[str, Any] = {
            "cluster": self.bus.cluster,
            "now_ns": now_ns,
            "republish_ns": int(self.settings.republish_s * 1e9),
        }
        if turn.name == JOBS:
            return feed.diff_jobs(self.jobs, answer, node_gpus=feed.node_gpus(self.nodes), **options)
        return feed.diff_nodes(self.nodes, answer, **options)

    def _outage(self, turn: Turn, outage: Outage) -> None:
        self._count(f"slurm_outages_total.{turn.name}")
        turn.failures += 1
        if turn.why is None:
            log.warning("slurm_away", asked_for=turn.name, why=outage.why)
        turn.why = outage.why

    def _success(self, turn: Turn, answer: JobsAnswer | NodesAnswer, now_ns: int) -> None:
        if turn.why is not None:
            log.info("slurm_back", asked_for=turn.name, failures=turn.failures)
        turn.failures, turn.why, turn.success_ts_ns = 0, None, now_ns
        self.version = answer.version or self.version
        self._count(f"slurm_answers_total.{turn.name}")
        if answer.unreadable:
            self._count(f"slurm_unreadable_rows_total.{turn.name}", len(answer.unreadable))
            first = answer.unreadable[0]
            log.warning("rows_unreadable", of=turn.name, count=len(answer.unreadable), first=first.name, why=first.why)

    def cluster_state(self, polled: Polled[Any], now_ns: int) -> feed.Publication:
        """Return the ClusterState after a poll. Down as soon as one question was not answered."""
        why = [f"{turn.name}: {turn.why}" for turn in self.turns.values() if turn.why is not None]
        asked = [turn.success_ts_ns for turn in self.turns.values()]
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
        }
        clean = {key: value for key, value in message.items() if value is not None}
        subject = subjects.cluster_state(self.bus.cluster, self.settings.feed)
        return feed.Publication("ClusterState", subject, f"ClusterState.{self.settings.feed}.{now_ns}", clean)

    async def publish(self, publications: Iterable[feed.Publication]) -> None:
        """Publish and wait for the stream's word; those of one subject in order, others side by side."""
        by_subject: dict[str, list[feed.Publication]] = {}
        for publication in publications:
            by_subject.setdefault(publication.subject, []).append(publication)
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def in_order(some: list[feed.Publication]) -> None:
            async with gate:
                for publication in some:
                    await self._publish_one(publication)

        await asyncio.gather(*(in_order(some) for some in by_subject.values()))

    async def _publish_one(self, publication: feed.Publication) -> None:
        try:
            await self._send(publication)
        except TooLargeError as err:
            log.warning("message_too_large", id=publication.id, size=err.size, limit=err.limit)
            self._count("slurm_cut_messages_total")
            await self._send(_without_indices(publication))
        except EncodeError as err:
            # A bug of ours or a value nobody has seen: it must not keep all other jobs from the bus.
            log.error("message_refused", id=publication.id, error=str(err))  # noqa: TRY400 - the words say it all
            self._count("slurm_refused_messages_total")

    async def _send(self, publication: feed.Publication) -> None:
        payload = encode(publication.kind, publication.message)
        await self.bus.publish_acked(publication.subject, publication.kind, payload, publication.id)
        self._count(f"slurm_published_total.{publication.kind.lower()}")

    def _count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def metrics(self) -> dict[str, float]:
        """Return counters, and whether Slurm answers."""
        up = all(turn.why is None and turn.success_ts_ns is not None for turn in self.turns.values())
        return {**self.counts, "slurm_up": float(up), "slurm_jobs": feed.live_jobs(self.jobs)}


def _without_indices(publication: feed.Publication) -> feed.Publication:
    """Return a job's message without the GPU lists of its thousands of nodes."""
    message = {key: value for key, value in publication.message.items() if key != "gpus"}
    return replace(publication, message={**message, "gpus_source": "unknown"})


async def until_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Work until told to stop. Raises what the work raises."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        while not working.done():
            # More than once: in Python 3.11 `asyncio.wait_for`, which waits for the stream's word, swallows a
            # cancellation that comes together with the answer.
            working.cancel()
            await asyncio.wait({working}, timeout=0.1)
    if not working.cancelled():
        working.result()


def make_agent(bus: Bus, settings: SlurmSettings) -> Agent:
    """Return an agent that asks Slurm's own commands."""
    clients = SlurmClients(settings.bin_dir, settings.conf, settings.timeout_s, settings.zone())
    return Agent(bus, clients, settings)


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
    if isinstance(item, list | tuple):
        return "[" + ", ".join(map(_toml_value, item)) + "]"
    return (
        repr(item) if isinstance(item, int | float) else '"' + str(item).replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


if __name__ == "__main__":
    main()
