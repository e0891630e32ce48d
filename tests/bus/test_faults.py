"""Consumers go on by themselves when the server crashes, hangs or forgets."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from natsserver import NatsServer
from waiting import Reader, reading, until

from heeler.bus import Bus, BusSettings, ConsumerSpec, Delivery, admin, subjects

pytestmark = pytest.mark.bus
ACK_FREE = ConsumerSpec("EVENTS", ("kernel.event.*",), start=0, batch=20, heartbeat_s=0.3)
DURABLE = ConsumerSpec("EVENTS", ("kernel.event.*",), durable="work", ack_wait_s=1.0, batch=20, heartbeat_s=0.3)


async def send(bus: Bus, first: int, last: int) -> None:
    for i in range(first, last):
        payload = b"%d" % i
        await bus.publish_acked(subjects.kernel_event("north", "a"), "KernelEvent", payload, f"id-{i}", timeout_s=1)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, last)]


async def ack(delivery: Delivery) -> None:
    await delivery.ack()


async def test_without_acks_a_crash_of_the_server_loses_and_repeats_nothing(bus: Bus, nats_server: NatsServer) -> None:
    async with reading(bus, ACK_FREE) as reader:
        await send(bus, 0, 100)
        nats_server.restart()
        await send(bus, 100, 200)
        await reader.has(200)
        nats_server.restart()
        await send(bus, 200, 230)
        await reader.has(230)
        assert reader.data == numbers(0, 230)


async def test_a_crash_before_the_first_message_of_a_stream_loses_nothing(bus: Bus, nats_server: NatsServer) -> None:
    """Who reads the newest of each subject has read all of a stream that has none."""
    async with reading(bus, replace(ACK_FREE, start="last")) as reader:
        await reader.consumer.caught_up.wait()
        nats_server.restart()
        await send(bus, 0, 10)
        await reader.has(10)
        assert reader.data == numbers(0, 10)


async def test_a_crash_amid_a_backlog_loses_and_repeats_nothing(bus: Bus, nats_server: NatsServer) -> None:
    """Deliveries that were on their way when the connection broke must come again."""

    async def slow(_delivery: Delivery) -> None:
        await asyncio.sleep(0.001)

    await send(bus, 0, 600)
    async with reading(bus, ACK_FREE, slow) as reader:
        for seen in (50, 200, 400):
            await reader.has(seen)
            nats_server.restart()
        await reader.has(600)
        assert reader.data == numbers(0, 600)


async def test_a_broken_connection_to_a_living_server_loses_and_repeats_nothing(bus: Bus) -> None:
    """The server takes for delivered what it wrote to the broken socket, and its consumer lives on."""

    async def slow(_delivery: Delivery) -> None:
        await asyncio.sleep(0.001)

    await send(bus, 0, 600)
    async with reading(bus, ACK_FREE, slow) as reader:
        for seen in (50, 200, 400):
            await reader.has(seen)
            transport: Any = bus.client._transport
            transport._io_writer.transport.abort()
            await until(lambda: bus.client.is_connected)
        await reader.has(600)
        await asyncio.sleep(0.5)
        assert reader.data == numbers(0, 600)


async def test_the_last_deliveries_before_a_break_are_not_lost(bus: Bus) -> None:
    """Nothing comes after them that would show the gap."""
    async with reading(bus, ACK_FREE) as reader:
        await send(bus, 0, 5)
        await reader.has(5)
        process = bus.client._process_msg
        swallowed = 0

        async def swallow(sid: int, subject: bytes, reply: bytes, *rest: Any) -> None:
            nonlocal swallowed
            if reply.startswith(b"$JS.ACK") and swallowed < 3:
                swallowed += 1
                return
            await process(sid, subject, reply, *rest)

        bus.client._process_msg = swallow  # type: ignore[method-assign,assignment]
        await send(bus, 5, 8)
        await reader.has(8)
        assert swallowed == 3
        assert reader.data == numbers(0, 8)


async def test_a_gap_in_the_middle_is_seen_and_filled(bus: Bus) -> None:
    async with reading(bus, ACK_FREE) as reader:
        process = bus.client._process_msg
        swallowed = 0

        async def swallow(sid: int, subject: bytes, reply: bytes, *rest: Any) -> None:
            nonlocal swallowed
            if reply.startswith(b"$JS.ACK") and reply.split(b".")[5] == b"30" and not swallowed:
                swallowed += 1
                return
            await process(sid, subject, reply, *rest)

        bus.client._process_msg = swallow  # type: ignore[method-assign,assignment]
        await send(bus, 0, 100)
        await reader.has(100)
        assert swallowed == 1
        assert reader.data == numbers(0, 100)


async def test_with_acks_a_crash_of_the_server_loses_nothing(bus: Bus, nats_server: NatsServer) -> None:
    held: list[Delivery] = []

    async def ack_later(delivery: Delivery) -> None:
        if delivery.delivered == 1 and int(delivery.data) % 10 == 0:
            held.append(delivery)
        else:
            await delivery.ack()

    async with reading(bus, DURABLE, ack_later) as reader:
        await send(bus, 0, 50)
        await reader.has(50)
        nats_server.restart()
        await send(bus, 50, 100)
        await until(lambda: set(reader.data) >= set(numbers(0, 100)), "each message at least once")
        again = {b"%d" % i for i in range(0, 100, 10)}
        await until(lambda: {d.data for d in reader.got if d.delivered > 1} >= again, "what was not acked")

        async def nothing_open() -> bool:
            return not (await bus.js.consumer_info("EVENTS", "work")).num_ack_pending

        await until(nothing_open)


@pytest.mark.parametrize("spec", [ACK_FREE, DURABLE], ids=["ack_free", "durable"])
async def test_a_consumer_that_was_deleted_is_made_anew_behind_the_last_message(bus: Bus, spec: ConsumerSpec) -> None:
    async with reading(bus, spec, ack) as reader:
        await send(bus, 0, 30)
        await reader.has(30)
        await until(lambda: reader.consumer.received == 30)
        await bus.client.flush()
        await bus.js.delete_consumer("EVENTS", reader.consumer._name or "")
        await send(bus, 30, 60)
        await until(lambda: set(reader.data) >= set(numbers(0, 60)))
        if not spec.durable:
            assert reader.data == numbers(0, 60)


async def test_new_without_any_message_yet_forgets_nothing(bus: Bus) -> None:
    """Made anew before its first message, a consumer of `new` must begin where it first began."""
    spec = ConsumerSpec("EVENTS", ("kernel.event.*",), heartbeat_s=0.3)
    for first in (0, 10):  # of an empty stream, and of one with messages
        async with reading(bus, spec) as reader:
            await bus.js.delete_consumer("EVENTS", reader.consumer._name or "")
            await send(bus, first, first + 10)
            await reader.has(10)
            assert reader.data == numbers(first, first + 10)


async def test_a_snapshot_that_is_cut_off_is_finished(bus: Bus) -> None:
    """Half-way through the newest of each subject, the other half must come, and nothing old."""
    for subject in range(40):
        for i in range(3):
            name = subjects.kernel_event("north", f"n{subject:02}")
            await bus.publish_acked(name, "KernelEvent", b"%d/%d" % (subject, i), f"{subject}-{i}")
    readers: list[Reader] = []

    async def cut_off(_delivery: Delivery) -> None:
        if len(readers[0].got) == 12:
            await bus.js.delete_consumer("EVENTS", readers[0].consumer._name or "")

    spec = ConsumerSpec("EVENTS", ("kernel.event.*",), start="last", batch=10, heartbeat_s=0.3)
    async with reading(bus, spec, cut_off, readers) as reader:
        await asyncio.wait_for(reader.consumer.caught_up.wait(), 40)
        assert reader.data == [b"%d/2" % subject for subject in range(40)]


async def test_a_stream_that_was_made_anew_is_read_on(bus: Bus) -> None:
    async with reading(bus, ACK_FREE) as reader:
        await send(bus, 0, 50)
        await reader.has(50)
        await bus.js.delete_stream("EVENTS")
        await admin.init(bus, scale=0.002)

        async def flows() -> bool:
            await bus.publish(subjects.kernel_event("north", "a"), "KernelEvent", b"again")
            await asyncio.sleep(0.05)
            return b"again" in reader.data

        await until(flows)


@pytest.mark.parametrize("spec", [ACK_FREE, DURABLE], ids=["ack_free", "durable"])
async def test_a_server_that_hangs_is_waited_for(bus: Bus, nats_server: NatsServer, spec: ConsumerSpec) -> None:
    async with reading(bus, spec, ack) as reader:
        await send(bus, 0, 20)
        await reader.has(20)
        nats_server.freeze()
        await asyncio.sleep(1.5)  # several heartbeats
        nats_server.thaw()
        await send(bus, 20, 40)
        await until(lambda: set(reader.data) >= set(numbers(0, 40)))
        if not spec.durable:
            assert reader.data == numbers(0, 40)


async def test_a_server_that_comes_back_empty_is_read_on(tmp_path: Path) -> None:
    """Its disk was lost: streams are gone until `heeler bus init` runs again."""
    server = NatsServer(tmp_path / "first")
    server.start()
    bus = await Bus.connect(BusSettings(servers=(server.url,), connect_timeout_s=1, reconnect_wait_s=0.05), "test")
    other = NatsServer(tmp_path / "second", port=server.port)
    try:
        await admin.init(bus, scale=0.002)
        async with reading(bus, ACK_FREE) as reader:
            await send(bus, 0, 20)
            await reader.has(20)
            server.kill()
            other.start()
            await until(lambda: bus.client.is_connected)
            await asyncio.sleep(0.5)
            await admin.init(bus, scale=0.002)

            async def flows() -> bool:
                await bus.publish(subjects.kernel_event("north", "a"), "KernelEvent", b"again")
                await asyncio.sleep(0.05)
                return b"again" in reader.data

            await until(flows)
    finally:
        await bus.close()
        server.stop()
        other.stop()
