"""What a consumer reads, in which order and from where."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture
from waiting import reading, until

from heeler.bus import Bus, BusClosedError, Consumer, ConsumerSpec, Delivery, snapshot, subjects

pytestmark = pytest.mark.bus
EVENTS = ConsumerSpec("EVENTS", ("kernel.event.*",), batch=20, heartbeat_s=0.5)


@pytest.fixture
def logged() -> Iterator[LogCapture]:
    capture = LogCapture()
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[capture])
    yield capture
    structlog.configure(processors=before)


async def send(bus: Bus, count: int, first: int = 0, node: str = "gpu-a07") -> None:
    """Store events whose payloads are their numbers."""
    subject = subjects.kernel_event("north", node)
    await asyncio.gather(
        *(bus.publish_acked(subject, "KernelEvent", b"%d" % i, f"{node}-{i}") for i in range(first, first + count))
    )


async def send_in_order(bus: Bus, count: int, first: int = 0, node: str = "gpu-a07") -> None:
    """Store events in the order of their numbers."""
    subject = subjects.kernel_event("north", node)
    for i in range(first, first + count - 1):
        await bus.publish(subject, "KernelEvent", b"%d" % i)
    last = first + count - 1
    await bus.publish_acked(subject, "KernelEvent", b"%d" % last, f"{node}-{last}")  # once it is stored, all are


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, last)]


async def test_all_messages_come_in_order_over_many_batches(bus: Bus) -> None:
    await send_in_order(bus, 500)
    async with reading(bus, ConsumerSpec("EVENTS", start=0, batch=20)) as reader:
        await reader.has(500)
        await send_in_order(bus, 500, 500)
        await reader.has(1000)
        assert reader.data == numbers(0, 1000)
        assert [delivery.seq for delivery in reader.got] == list(range(1, 1001))
        assert reader.consumer.received == 1000
        assert reader.consumer.last_seq == 1000


async def test_a_delivery_knows_where_it_comes_from(bus: Bus) -> None:
    before = time.time_ns()
    async with reading(bus, EVENTS) as reader:
        await send(bus, 1)
        await reader.has(1)
        found = reader.got[0]
        assert (found.stream, found.seq, found.delivered, found.pending) == ("EVENTS", 1, 1, 0)
        assert found.subject == subjects.kernel_event("north", "gpu-a07")
        assert found.headers is not None
        assert found.headers["Heeler-Type"] == "KernelEvent/1"
        assert abs(found.ts_ns - before) < 60_000_000_000


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.EVENTS.c1.2.30.4.1760000000000000000.6",
        "$JS.ACK.hub.x1y2.EVENTS.c1.2.30.4.1760000000000000000.6",
        "$JS.ACK.hub.x1y2.EVENTS.c1.2.30.4.1760000000000000000.6.token",
    ],
)
def test_all_forms_of_the_ack_subject_are_read(reply: str) -> None:
    message: Any = type("M", (), {"subject": "s", "data": b"", "headers": None, "reply": reply})
    found = Delivery(None, message)
    assert (found.stream, found.consumer, found.delivered, found.seq) == ("EVENTS", "c1", 2, 30)
    assert (found.consumer_seq, found.ts_ns, found.pending) == (4, 1760000000000000000, 6)


async def test_new_means_from_now_on(bus: Bus) -> None:
    await send(bus, 5)
    async with reading(bus, EVENTS) as reader:
        assert reader.consumer.caught_up.is_set()
        await send(bus, 1, 5)
        await reader.has(1)
        assert reader.data == [b"5"]


async def test_last_means_the_newest_of_each_subject_and_then_all(bus: Bus) -> None:
    await send_in_order(bus, 3, node="a")
    await send_in_order(bus, 3, node="b")
    spec = ConsumerSpec("EVENTS", ("kernel.event.*",), start="last")
    async with reading(bus, spec) as reader:
        await asyncio.wait_for(reader.consumer.caught_up.wait(), 30)
        assert reader.data == [b"2", b"2"]
        await send_in_order(bus, 2, 3, node="a")
        await reader.has(4)
        assert reader.data == [b"2", b"2", b"3", b"4"]


async def test_a_time_means_from_then_on(bus: Bus) -> None:
    await send_in_order(bus, 3)
    stamps: list[int] = []
    async with reading(bus, ConsumerSpec("EVENTS", start=0)) as reader:
        await reader.has(3)
        stamps = [delivery.ts_ns for delivery in reader.got]
    async with reading(bus, ConsumerSpec("EVENTS", start=stamps[1])) as reader:
        await asyncio.wait_for(reader.consumer.caught_up.wait(), 30)
        # Whole microseconds: one too many is better than one too few.
        assert reader.data[-2:] == [b"1", b"2"]
    async with reading(bus, ConsumerSpec("EVENTS", start=stamps[2] + 1_000_000)) as reader:
        assert reader.consumer.caught_up.is_set()
        await send_in_order(bus, 1, 3)
        await reader.has(1)
        assert reader.data == [b"3"]


async def test_only_the_patterns_asked_for_come(bus: Bus) -> None:
    spec = ConsumerSpec("EVENTS", ("prolog.event.*", "slurm.job.*"))
    async with reading(bus, spec) as reader:
        await send(bus, 3)
        await bus.publish_acked(subjects.job_event("north", "7"), "JobEvent", b"job", "job-7")
        await bus.publish_acked(subjects.prolog_event("south", "n"), "PrologEvent", b"prolog", "prolog-n")
        await reader.has(2)
        assert reader.data == [b"job", b"prolog"]


async def test_an_empty_stream_is_quiet(bus: Bus, logged: LogCapture) -> None:
    spec = ConsumerSpec("EVENTS", heartbeat_s=0.2, expires_s=1.0)
    async with reading(bus, spec) as reader:
        assert reader.consumer.caught_up.is_set()
        await asyncio.sleep(2.5)  # two pulls expire
        assert [entry for entry in logged.entries if entry["log_level"] not in ("debug", "info")] == []
        assert [entry["event"] for entry in logged.entries] == []
        await send(bus, 1)
        await reader.has(1)


async def test_a_slow_handler_loses_nothing(bus: Bus) -> None:
    """As many as would overrun a client that does not ask for messages."""
    count = 50_000
    done = 0

    async def slow(_delivery: Delivery) -> None:
        nonlocal done
        done += 1
        if done % 500 == 0:
            await asyncio.sleep(0.02)

    async with reading(bus, ConsumerSpec("SAMPLES", heartbeat_s=0.5), slow) as reader:
        subject = subjects.gpu_sample("north", "gpu-a07")
        for i in range(count):
            await bus.publish(subject, "GpuSample", b"%d" % i)
        await reader.has(count, timeout_s=90)
        assert reader.data == numbers(0, count)
    assert bus.dropped_incoming == 0
    assert bus.client.stats["reconnects"] == 0


async def test_a_handler_slower_than_the_heartbeats_is_left_alone(bus: Bus, logged: LogCapture) -> None:
    async def slow(_delivery: Delivery) -> None:
        await asyncio.sleep(0.4)

    spec = ConsumerSpec("EVENTS", start=0, heartbeat_s=0.1, expires_s=1.0, batch=2)
    await send_in_order(bus, 4)
    async with reading(bus, spec, slow) as reader:
        await reader.has(4)
        await until(lambda: reader.consumer.received == 4)
        assert reader.data == numbers(0, 4)
    assert [entry["event"] for entry in logged.entries if entry["log_level"] == "warning"] == []


async def test_what_the_handler_raises_ends_the_reading(bus: Bus) -> None:
    got: list[bytes] = []

    async def break_on_two(delivery: Delivery) -> None:
        got.append(delivery.data)
        if delivery.data == b"2":
            raise LookupError("two")

    await send_in_order(bus, 5)
    consumer = Consumer(bus, ConsumerSpec("EVENTS", start=0), break_on_two)
    await consumer.start()
    with pytest.raises(LookupError, match="two"):
        await asyncio.wait_for(consumer.watch(), 30)
    assert got == [b"0", b"1", b"2"]


async def test_closing_the_bus_ends_the_reading(bus: Bus) -> None:
    consumer = Consumer(bus, EVENTS, lambda _delivery: asyncio.sleep(0))
    await consumer.start()
    watching = asyncio.create_task(consumer.watch())
    await bus.close()
    with pytest.raises(BusClosedError):
        await asyncio.wait_for(watching, 30)


async def test_a_stream_that_is_not_there_yet_is_waited_for(bus: Bus) -> None:
    await bus.js.delete_stream("JOBS")
    starting = asyncio.create_task(Consumer(bus, ConsumerSpec("JOBS"), lambda _: asyncio.sleep(0)).start())
    await asyncio.sleep(0.3)
    assert not starting.done()
    await bus.js.add_stream(name="JOBS", subjects=["jobs"])
    await asyncio.wait_for(starting, 30)


async def test_closing_many_consumers_leaves_no_tasks(bus: Bus) -> None:
    async with reading(bus, EVENTS) as reader:
        await send(bus, 1)
        await reader.has(1)
    before = len(asyncio.all_tasks())
    callbacks = len(bus.on_reconnect)
    for _ in range(100):
        async with reading(bus, EVENTS):
            pass
    await until(lambda: len(asyncio.all_tasks()) <= before + 2)
    assert len(bus.on_reconnect) == callbacks
    assert not bus.client._subs.keys() - {1, 2}


async def test_what_is_not_acked_comes_again(bus: Bus) -> None:
    seen: list[tuple[bytes, int]] = []

    async def ack_the_second_time(delivery: Delivery) -> None:
        seen.append((delivery.data, delivery.delivered))
        if delivery.delivered > 1:
            await delivery.ack()

    await send_in_order(bus, 3)
    spec = ConsumerSpec("EVENTS", durable="work", ack_wait_s=0.5, heartbeat_s=0.5)
    async with reading(bus, spec, ack_the_second_time) as reader:
        await reader.has(6)
        assert sorted(seen) == sorted([(b"%d" % i, n) for i in range(3) for n in (1, 2)])

        async def all_acked() -> bool:
            info = await bus.js.consumer_info("EVENTS", "work")
            return not info.num_ack_pending

        await until(all_acked)
        assert await reader.consumer.pending() == 0


async def test_nak_and_term_and_progress_reach_the_server(bus: Bus) -> None:
    seen: list[tuple[bytes, int]] = []

    async def handler(delivery: Delivery) -> None:
        seen.append((delivery.data, delivery.delivered))
        if delivery.data == b"0":
            await delivery.term()
        elif delivery.delivered == 1:
            await delivery.nak()
        else:
            await delivery.in_progress()
            await delivery.ack()

    await send_in_order(bus, 2)
    spec = ConsumerSpec("EVENTS", durable="work", ack_wait_s=60)
    async with reading(bus, spec, handler) as reader:
        await reader.has(3)
        assert sorted(seen) == [(b"0", 1), (b"1", 1), (b"1", 2)]

        async def all_done() -> bool:
            return not (await bus.js.consumer_info("EVENTS", "work")).num_ack_pending

        await until(all_done)


async def test_two_readers_share_the_work_of_a_durable(bus: Bus) -> None:
    spec = ConsumerSpec("EVENTS", durable="work", batch=10, heartbeat_s=0.5)

    async def ack(delivery: Delivery) -> None:
        await asyncio.sleep(0.001)
        await delivery.ack()

    async with reading(bus, spec, ack) as one, reading(bus, spec, ack) as two:
        await send_in_order(bus, 200)
        await until(lambda: len(one.got) + len(two.got) >= 200)
        assert sorted(one.data + two.data) == sorted(numbers(0, 200))
        assert one.got
        assert two.got


async def test_times_are_nanoseconds_on_the_wire(bus: Bus) -> None:
    """A wait in the wrong unit is tiny, and everything is delivered again and again."""
    sent: list[dict[str, Any]] = []
    publish = bus.client.publish

    async def spy(subject: str, payload: bytes = b"", **more: Any) -> None:
        if subject.startswith("$JS.API.CONSUMER."):
            sent.append(json.loads(payload or b"{}"))
        await publish(subject, payload, **more)

    bus.client.publish = spy  # type: ignore[method-assign,assignment]
    spec = ConsumerSpec("EVENTS", durable="work", ack_wait_s=30.0, heartbeat_s=2.0, expires_s=30.0)
    async with reading(bus, spec):
        create, pull = sent[:2]
        assert create["config"]["ack_wait"] == 30_000_000_000
        assert create["config"]["ack_policy"] == "explicit"
        assert pull == {"batch": 500, "expires": 30_000_000_000, "idle_heartbeat": 2_000_000_000}
    sent.clear()
    async with reading(bus, EVENTS):
        assert sent[0]["config"]["inactive_threshold"] == 60_000_000_000
        assert sent[0]["config"]["ack_policy"] == "none"
    assert (await bus.js.consumer_info("EVENTS", "work")).config.ack_wait == 30.0


async def test_a_durable_takes_new_settings(bus: Bus) -> None:
    async with reading(bus, ConsumerSpec("EVENTS", durable="work", ack_wait_s=30)):
        pass
    async with reading(bus, ConsumerSpec("EVENTS", durable="work", ack_wait_s=5)):
        assert (await bus.js.consumer_info("EVENTS", "work")).config.ack_wait == 5


async def test_a_snapshot_is_what_a_stream_holds_now(bus: Bus) -> None:
    assert await snapshot(bus, "EVENTS", ("kernel.event.*",)) == []
    await send_in_order(bus, 3, node="a")
    await send_in_order(bus, 3, node="b")
    assert [found.data for found in await snapshot(bus, "EVENTS", ("kernel.event.*",))] == [b"2", b"2"]
    assert len(await snapshot(bus, "EVENTS", ("kernel.event.*",), start=0)) == 6
    await bus.js.delete_stream("JOBS")
    with pytest.raises(TimeoutError):
        await snapshot(bus, "JOBS", ("slurm.job.*",), timeout_s=0.5)
