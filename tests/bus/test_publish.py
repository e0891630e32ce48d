"""Messages reach their stream once, whatever happens on the way."""

import asyncio
from typing import Any

import pytest
from nats.errors import BadSubjectError
from nats.js.errors import BadRequestError
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, BusClosedError, TooLargeError, subjects

pytestmark = pytest.mark.bus
EVENT = subjects.kernel_event("north", "gpu-a07")


async def stored(bus: Bus, stream: str = "EVENTS") -> int:
    return int((await bus.js.stream_info(stream)).state.messages)


async def test_the_same_id_twice_is_stored_once(bus: Bus) -> None:
    assert await bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1") is False
    assert await bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1") is True
    assert await stored(bus) == 1


async def test_an_id_belongs_to_the_stream_not_to_the_subject(bus: Bus) -> None:
    """Hence ids carry type, cluster, node, boot and sequence."""
    other = subjects.prolog_event("north", "gpu-a07")
    assert await bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1") is False
    assert await bus.publish_acked(other, "PrologEvent", b"b", "id-1") is True
    assert await stored(bus) == 1


async def test_ids_survive_a_crash_of_the_server(bus: Bus, nats_server: NatsServer) -> None:
    await bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1")
    nats_server.restart()
    assert await bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1", timeout_s=1) is True
    assert await stored(bus) == 1


async def test_an_event_published_while_the_server_is_away_is_stored_once(bus: Bus, nats_server: NatsServer) -> None:
    nats_server.kill()
    sending = [
        asyncio.create_task(bus.publish_acked(EVENT, "KernelEvent", b"%d" % i, f"id-{i}", timeout_s=0.3))
        for i in range(20)
    ]
    await asyncio.sleep(0.7)  # long enough for a second try of each
    assert not any(task.done() for task in sending)
    nats_server.start()
    await asyncio.gather(*sending)
    assert await stored(bus) == 20


async def test_an_event_published_while_the_server_hangs_is_stored_once(bus: Bus, nats_server: NatsServer) -> None:
    nats_server.freeze()
    sending = asyncio.create_task(bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1", timeout_s=0.2))
    await asyncio.sleep(0.6)
    nats_server.thaw()
    assert await sending is True  # the first try was stored when a later one arrived
    assert await stored(bus) == 1


async def test_a_message_says_what_it_is(bus: Bus) -> None:
    await bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1")
    found = await bus.js.get_last_msg("EVENTS", EVENT)
    assert found.headers == {
        "Content-Type": "application/msgpack",
        "Heeler-Type": "KernelEvent/1",
        "Nats-Msg-Id": "id-1",
    }


@pytest.mark.parametrize("acked", [True, False])
async def test_too_large_is_refused_here_and_the_connection_lives(bus: Bus, acked: bool) -> None:
    async def publish(size: int) -> None:
        if acked:
            await bus.publish_acked(EVENT, "KernelEvent", bytes(size), f"id-{size}")
        else:
            await bus.publish(EVENT, "KernelEvent", bytes(size))

    limit = bus.client.max_payload
    for size in (limit - 10, limit, limit + 1, 2 * limit):  # with headers, all of them are over it
        with pytest.raises(TooLargeError) as caught:
            await publish(size)
        assert caught.value.limit == limit < caught.value.size
    with pytest.raises(TooLargeError) as caught:
        await publish(limit)
    await publish(limit - (caught.value.size - limit))  # to the byte what the server takes
    await publish(1)

    async def both() -> bool:
        return await stored(bus) == 2

    await until(both)
    assert bus.client.stats["reconnects"] == 0
    assert not bus.closed.is_set()


async def test_samples_wait_in_the_buffer_and_then_drop_and_are_counted(bus: Bus, nats_server: NatsServer) -> None:
    nats_server.kill()
    await until(lambda: not bus.client.is_connected)
    sample = subjects.gpu_sample("north", "gpu-a07")
    for _ in range(40):
        await bus.publish(sample, "GpuSample", bytes(512 << 10))  # 20 MiB for a buffer of 16
    assert 0 < bus.dropped < 40
    nats_server.start()

    async def all_kept() -> bool:
        return await stored(bus, "SAMPLES") == 40 - bus.dropped

    await until(lambda: bus.client.is_connected)
    await until(all_kept)


async def test_what_cannot_get_better_is_not_tried_again(bus: Bus) -> None:
    with pytest.raises(BadSubjectError):
        await bus.publish_acked("a b", "KernelEvent", b"a", "id-1")
    await bus.js.update_stream(name="EVENTS", subjects=["heeler.v1.*.kernel.event.*"], max_msg_size=100)
    with pytest.raises(BadRequestError):
        await bus.publish_acked(EVENT, "KernelEvent", bytes(1000), "id-2")


async def test_a_stream_that_is_not_there_yet_is_waited_for(bus: Bus) -> None:
    await bus.js.delete_stream("EVENTS")
    sending = asyncio.create_task(bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1"))
    await asyncio.sleep(0.3)
    assert not sending.done()
    await bus.js.add_stream(name="EVENTS", subjects=["heeler.v1.*.kernel.event.*"])
    assert await sending is False


async def test_a_full_stream_refuses_and_the_event_waits(bus: Bus) -> None:
    await bus.js.delete_stream("EVENTS")
    full: dict[str, Any] = {"subjects": ["heeler.v1.*.kernel.event.*"], "max_msgs": 5, "discard": "new"}
    await bus.js.add_stream(name="EVENTS", **full)
    for i in range(5):
        await bus.publish_acked(EVENT, "KernelEvent", b"a", f"id-{i}")
    sending = asyncio.create_task(bus.publish_acked(EVENT, "KernelEvent", b"last", "id-last"))
    await asyncio.sleep(0.3)
    assert not sending.done()
    await bus.js.purge_stream("EVENTS")
    assert await sending is False
    assert await stored(bus) == 1


async def test_publishing_on_a_closed_bus_says_so(bus: Bus) -> None:
    await bus.close()
    assert bus.closed.is_set()
    with pytest.raises(BusClosedError):
        await bus.publish(EVENT, "KernelEvent", b"a")
    with pytest.raises(BusClosedError):
        await bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1")


async def test_closing_ends_the_wait_of_an_event(bus: Bus, nats_server: NatsServer) -> None:
    nats_server.kill()
    sending = asyncio.create_task(bus.publish_acked(EVENT, "KernelEvent", b"a", "id-1", timeout_s=0.2))
    await asyncio.sleep(0.3)
    await bus.close()
    with pytest.raises(BusClosedError):
        await asyncio.wait_for(sending, 30)
