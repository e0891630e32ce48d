"""An exporter between a real bus and a real receiver."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from otlpsamples import job_sample
from waiting import until

from heeler.bus import Bus, encode, subjects
from heeler.engine.process import Context
from heeler.otlp.lane import Item, Lane, Limits
from heeler.otlp.map import gpu_points
from heeler.otlp.points import Content
from heeler.otlp.program import main
from heeler.otlp.reader import KINDS, specs
from heeler.otlp.settings import OtlpSettings, SinkSettings
from heeler.otlp.wire import Signal
from heeler.sim.receiver import Receiver

QUICK = Limits(linger_s=0.02, max_backoff_s=0.1)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """An OTLP receiver, gRPC and HTTP."""
    found = Receiver()
    found.start()
    yield found
    found.stop()


def to(receiver: Receiver, **options: Any) -> SinkSettings:
    return SinkSettings(
        **{"kind": "otlp", "name": "collector", "endpoint": receiver.grpc_url, "max_backoff_s": 0.2, **options}
    )


EVERYTHING: dict[str, Any] = {"every_s": 0, "metrics": ("all",)}


@asynccontextmanager
async def exporting(bus: Bus, *sinks: SinkSettings, **settings: Any) -> AsyncIterator[Context]:
    section = OtlpSettings(sinks=sinks, **{**EVERYTHING, "linger_s": 0.05, "stop_s": 1.0, **settings})
    context = Context(bus, {"otlp": section}, "test", asyncio.Event())
    task = asyncio.create_task(main(context))
    try:
        for sink in sinks:
            await until(lambda: task.done() or bool(value(context, f"otlp_ready.{sink.label}")), "ready")  # noqa: B023
        yield context
    finally:
        context.stop.set()
        await task


def value(context: Context, name: str) -> float:
    """One of the exporter's own metrics."""
    return {key: number for read in context.metrics.values() for key, number in read().items()}.get(name, 0)


def subject_of(kind: str, data: dict[str, Any]) -> str:
    match kind:
        case "JobSample":
            return subjects.job_sample("north", str(data["shard"]), data["node"])
        case "IbSample":
            return subjects.ib_sample("north", data["node"])
        case "HostSample":
            return subjects.host_sample("north", data["node"])
        case "SwitchSample":
            return subjects.switch_sample("north", data["node"])
        case "AgentStatus":
            return subjects.agent_status("north", data["node"])
        case "Finding":
            return subjects.finding("north", data["kind"], data["node"], data["id"])
        case "DrainAction":
            return subjects.drain_action("north", data["node"])
        case "HealthResult":
            return subjects.health_result("north", data["node"])
        case "HealthRun":
            return subjects.health_run("north", data["node"])
        case "JobRecord":
            return subjects.job_record("north", data["job_id"], data["run"])
        case "ClusterState":
            return subjects.cluster_state("north", data["feed"])
        case "SlurmTable":
            return subjects.slurm_table("north", data["table"], data["feed"], str(data["part"]))
    return subjects.job_kernel_event("north", str(data["shard"]), data["node"])


async def publish(bus: Bus, kind: str, data: dict[str, Any]) -> None:
    key = [data.get(key) for key in ("node", "id", "seq", "table", "part", "ts", "job_id", "run")]
    name = ".".join(map(str, (kind, *key)))
    await bus.publish_acked(subject_of(kind, data), kind, encode(kind, data), name)


async def all_acked(
    bus: Bus, *, job_records: bool = True, signals: Iterable[Signal] = tuple(KINDS), sink: str = "collector"
) -> bool:
    """Say whether the bus waits for no ack of a sink and has nothing more for it."""
    infos = [
        await bus.js.consumer_info(spec.stream, spec.durable or "")
        for signal in signals
        for spec in specs(sink, signal, 30.0, job_records=job_records)
    ]
    return not any(info.num_ack_pending or info.num_pending for info in infos)


def once(receiver: Receiver) -> bool:
    """Say whether no point came twice."""
    keys = [json.dumps([p["metric"], p["ts"], p["attributes"]], sort_keys=True) for p in receiver.points]
    return len(keys) == len(set(keys))


class Post:
    """Puts items into a lane and remembers what became of them."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.done: list[str] = []
        self.back: list[str] = []
        self.poison: list[str] = []

    async def put(self, name: str, content: Content | None = None) -> None:
        async def done() -> None:
            self.done.append(name)

        async def back() -> None:
            self.back.append(name)

        async def poison(_: Exception) -> None:
            self.poison.append(name)

        await self.lane.put(Item([content or gpu_points(job_sample(name))], done, back, poison))
