"""The exporter as a process sees it: a real bus before it, a real receiver behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from otlpsamples import agent_status, drain_action, finding, ib_sample, job_sample, kernel_event
from waiting import until

from heeler.bus import Bus, encode, subjects
from heeler.engine.process import Context
from heeler.otlp.program import main
from heeler.otlp.settings import OtlpSettings, SinkSettings
from heeler.sim.receiver import Receiver

pytestmark = pytest.mark.bus


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    found.start()
    yield found
    found.stop()


@asynccontextmanager
async def exporting(bus: Bus, *sinks: SinkSettings, **settings: Any) -> AsyncIterator[Context]:
    section = OtlpSettings(sinks=sinks, **{"linger_s": 0.05, **settings})
    context = Context(bus, {"otlp": section}, "test", asyncio.Event())
    task = asyncio.create_task(main(context))
    try:
        yield context
    finally:
        context.stop.set()
        await task


async def publish(bus: Bus, kind: str, data: dict[str, Any]) -> None:
    subject = {
        "JobSample": lambda: subjects.job_sample("north", "3", data["node"]),
        "IbSample": lambda: subjects.ib_sample("north", data["node"]),
        "AgentStatus": lambda: subjects.agent_status("north", data["node"]),
        "Finding": lambda: subjects.finding("north", data["kind"], data["node"], data["id"]),
        "DrainAction": lambda: subjects.drain_action("north", data["node"]),
        "JobKernelEvent": lambda: subjects.job_kernel_event("north", "1", data["node"]),
    }[kind]()
    await bus.publish_acked(subject, kind, encode(kind, data), f"{kind}.{data.get('id')}.{data.get('seq')}")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_every_kind_arrives_once_and_without_a_fault(bus: Bus, receiver: Receiver, protocol: str) -> None:
    url = receiver.grpc_url if protocol == "grpc" else receiver.http_url
    async with exporting(bus, SinkSettings(kind="otlp", endpoint=url, protocol=protocol)):
        await publish(bus, "JobSample", job_sample())
        await publish(bus, "IbSample", ib_sample())
        await publish(bus, "AgentStatus", agent_status())
        await publish(bus, "Finding", finding())
        await publish(bus, "DrainAction", drain_action())
        await publish(bus, "JobKernelEvent", kernel_event())
        await until(lambda: receiver.counts["logs"] >= 3 and len(receiver.metrics) >= 22, "all that was published")
    assert receiver.counts["faults"] == 0
    assert {log["event"] for log in receiver.logs} == {"heeler.finding", "heeler.drain", "heeler.kernel"}
    names = [json.dumps([p["metric"], p["attributes"]], sort_keys=True) for p in receiver.points]
    assert len(names) == len(set(names))
