"""The exporter as its users see it: a real bus before it, real receivers behind it."""

import asyncio
import json
import threading
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest
from natsserver import NatsServer
from otlplab import all_acked, exporting, once, publish, to, value
from otlpsamples import (
    T0,
    agent_status,
    drain_action,
    finding,
    host_sample,
    ib_sample,
    job_sample,
    kernel_event,
    switch_sample,
)
from structlog.testing import capture_logs
from waiting import reading, until

from heeler.bus import Bus, ConsumerSpec, decode, encode, subjects
from heeler.engine.process import Context
from heeler.otlp.expired import Expired
from heeler.otlp.map import METRICS, gpu_points
from heeler.otlp.program import main
from heeler.otlp.settings import OtlpSettings, SinkSettings
from heeler.sim.receiver import Answer, Receiver

pytestmark = pytest.mark.bus
POINTS = len(gpu_points(job_sample()))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_every_kind_arrives_once_and_without_a_fault(bus: Bus, receiver: Receiver, protocol: str) -> None:
    url = receiver.grpc_url if protocol == "grpc" else receiver.http_url
    messages = {
        "JobSample": job_sample(nvlinks=[[0, 3, False, {"crc_errors": 1}]]),
        "IbSample": {**ib_sample(), "bonds": [{"name": "bond0", "mii_status": "up"}]},
        "HostSample": host_sample(),
        "SwitchSample": switch_sample(),
        "AgentStatus": agent_status(),
    }
    expected = sum(len(points) for kind, data in messages.items() for points in METRICS[kind](data))
    async with exporting(bus, to(receiver, endpoint=url, protocol=protocol)):
        for kind, data in messages.items():
            await publish(bus, kind, data)
        await publish(bus, "Finding", finding())
        await publish(bus, "DrainAction", drain_action())
        await publish(bus, "JobKernelEvent", kernel_event())
        await until(lambda: receiver.counts["logs"] >= 3 and receiver.counts["points"] >= expected, "all")
        await until(lambda: all_acked(bus), "acks")
    assert (receiver.counts["faults"], receiver.counts["points"]) == (0, expected)
    assert {log["event"] for log in receiver.logs} == {"heeler.finding", "heeler.drain", "heeler.kernel"}
    assert once(receiver)


async def test_gpus_go_out_under_the_names_of_dcgm_exporter(bus: Bus, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    async with exporting(bus, SinkSettings(kind="file", name="collector", path=str(path)), gpu_names="dcgm"):
        await publish(bus, "JobSample", job_sample())
        await publish(bus, "IbSample", ib_sample())
        await until(path.exists, "the file")
        await until(lambda: all_acked(bus), "acks")
    told = {json.loads(line)["metric"] for line in path.read_text().splitlines()}
    assert {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "hw.network.io"} <= told
    assert not {name for name in told if name.startswith(("hw.gpu", "heeler.gpu", "hw.power"))}


async def test_what_was_published_in_an_outage_arrives_after_it(bus: Bus, receiver: Receiver) -> None:
    receiver.answer = lambda _: Answer(grpc=grpc.StatusCode.UNAVAILABLE)
    async with exporting(bus, to(receiver), held_messages=5, batch_points=30) as context:
        for window in range(40):
            await publish(bus, "JobSample", job_sample(window=window))
        await until(lambda: value(context, "otlp_outages_total.collector_metrics") == 1)
        assert value(context, "otlp_held_messages.collector_metrics") <= 10
        receiver.answer = lambda _: Answer()
        await publish(bus, "JobSample", job_sample(window=40))
        await until(lambda: receiver.counts["points"] == 41 * POINTS, "all points")
        await until(lambda: all_acked(bus), "acks")
    assert once(receiver)


async def test_what_waits_longer_than_the_bus_does_is_not_sent_twice(bus: Bus, receiver: Receiver) -> None:
    gate = threading.Event()
    receiver.answer = lambda _: Answer(hold=gate)
    async with exporting(bus, to(receiver, timeout_s=60.0), ack_wait_s=1.0) as context:
        for window in range(3):
            await publish(bus, "JobSample", job_sample(window=window))
        await until(lambda: value(context, "otlp_received_total.collector_metrics") >= 9, "redelivery")
        gate.set()
        await until(lambda: all_acked(bus), "acks")
    assert receiver.counts["points"] == 3 * POINTS
    assert once(receiver)


async def test_a_sink_that_hangs_delays_no_other(bus: Bus, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answer = lambda _: Answer(hold=threading.Event())
    file = SinkSettings(kind="file", path=str(tmp_path / "out.jsonl"))
    async with exporting(bus, to(receiver), file, stop_s=0.1):
        for window in range(10):
            await publish(bus, "JobSample", job_sample(window=window))
        await publish(bus, "Finding", finding())
        path = tmp_path / "out.jsonl"
        await until(
            lambda: path.exists() and len(path.read_text().splitlines()) == 10 * POINTS + 4,
            "the other sink's lines, of the finding a record and three spans",
        )
    assert receiver.counts["points"] == 0


async def test_bad_messages_become_dead_letters_and_cost_nothing_else(bus: Bus, receiver: Receiver) -> None:
    subject = subjects.job_sample("north", "3", "n1")
    async with exporting(bus, to(receiver)) as context, reading(bus, ConsumerSpec("DEAD", start="new")) as dead:
        good = encode("JobSample", job_sample())
        for payload in (b"", b"\xc1", good[:-3], encode("JobSample", job_sample("n2")), encode("Finding", finding())):
            await bus.js.publish(subject, payload)
        await bus.js.publish("heeler.v1.north.job.sample.3.n=ZZ", good)
        await publish(bus, "JobSample", job_sample(window=1))
        await until(lambda: receiver.counts["points"] == POINTS, "the good one")
        await until(lambda: len(dead.got) == 6, "dead letters")
        await until(lambda: all_acked(bus), "acks")
        assert value(context, "otlp_dead_letters_total.collector_metrics") == 6
    letters = [decode("DeadLetter", data) for data in dead.data]
    assert {letter["by"] for letter in letters} == {"otlp"}
    assert {letter["why"] for letter in letters} == {"undecodable", "invalid", "hostile_subject"}


async def test_a_sample_from_the_future_is_ignored_and_counted(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver)) as context:
        await publish(bus, "JobSample", job_sample(ts=1 << 62))
        await publish(bus, "JobSample", job_sample(window=1))
        await until(lambda: receiver.counts["points"] == POINTS, "the good one")
        assert value(context, "otlp_ignored_total.collector_metrics") == 1
        await until(lambda: all_acked(bus), "acks")
    assert {p["ts"] for p in receiver.points} == {T0 + 10_000_000_000}


async def test_fewer_points_are_sent_when_that_is_wanted(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver), every_s=60):
        for window in range(12):
            await publish(bus, "JobSample", job_sample(window=window))
        await until(lambda: receiver.counts["points"] == 2 * POINTS, "two intervals")
        await until(lambda: all_acked(bus), "acks")
    assert receiver.counts["points"] == 2 * POINTS


async def test_a_sink_may_want_one_signal_only(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver, signals=("logs",))):
        await publish(bus, "JobSample", job_sample())
        await publish(bus, "Finding", finding())
        await until(lambda: receiver.counts["logs"] == 1, "the finding")
    assert receiver.counts["points"] == 0


async def test_exporters_share_the_work(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver)), exporting(bus, to(receiver)):
        for window in range(50):
            await publish(bus, "JobSample", job_sample(window=window))
        await until(lambda: receiver.counts["points"] == 50 * POINTS, "all points")
        await until(lambda: all_acked(bus), "acks")
    assert once(receiver)


async def test_the_bus_may_be_restarted_meanwhile(bus: Bus, receiver: Receiver, nats_server: NatsServer) -> None:
    async with exporting(bus, to(receiver), ack_wait_s=2.0):  # an ack may be lost with the server
        await publish(bus, "JobSample", job_sample())
        await until(lambda: receiver.counts["points"] == POINTS, "before")
        await asyncio.to_thread(nats_server.restart)
        await publish(bus, "JobSample", job_sample(window=1))
        await until(lambda: {p["ts"] for p in receiver.points} == {T0, T0 + 10_000_000_000}, "after")
        await until(lambda: all_acked(bus), "acks")


async def test_without_a_bus_it_waits_and_can_be_stopped(bus: Bus, receiver: Receiver, nats_server: NatsServer) -> None:
    await asyncio.to_thread(nats_server.kill)
    await until(lambda: not bus.client.is_connected, "the connection is lost")
    context = Context(bus, {"otlp": OtlpSettings(sinks=(to(receiver),))}, "test", asyncio.Event())
    task = asyncio.create_task(main(context))
    await until(lambda: bool(context.metrics), "begun")
    assert not task.done()
    await asyncio.to_thread(nats_server.start)
    await until(lambda: bool(value(context, "otlp_ready.collector")), "ready")
    await asyncio.to_thread(nats_server.kill)
    context.stop.set()
    await task


async def test_messages_that_left_the_stream_unread_are_counted(bus: Bus, receiver: Receiver) -> None:
    info = await bus.js.stream_info("JOBSAMPLES")
    await bus.js.update_stream(name="JOBSAMPLES", subjects=info.config.subjects, max_msgs=10)
    async with exporting(bus, to(receiver)):
        await publish(bus, "JobSample", job_sample())
        await until(lambda: receiver.counts["points"] == POINTS, "the first")
        await until(lambda: all_acked(bus), "acks")
    for window in range(1, 31):
        await publish(bus, "JobSample", job_sample(window=window))
    with capture_logs() as logs:
        async with exporting(bus, to(receiver)) as context:
            await until(lambda: receiver.counts["points"] == 11 * POINTS, "what is left")
            assert value(context, "otlp_expired_total.collector") == 20
    assert [log["at_most"] for log in logs if log["event"] == "messages_expired"] == [20]


async def test_a_gap_that_grows_is_counted_once_and_said_once(bus: Bus) -> None:
    expired = Expired(bus, ConsumerSpec("JOBSAMPLES", durable="x"))
    await expired.look()  # no such consumer yet: nothing is missing
    with capture_logs() as logs:
        for gap in (0, 5, 9, 9, 0, 3):
            expired.learn(gap)
    assert expired.total == 12
    assert len(logs) == 2
