"""A lease has one holder at a time, whoever is frozen, killed or late."""

import asyncio

import pytest
from nats.js.api import KeyValueConfig
from nats.js.errors import KeyWrongLastSequenceError
from nats.js.kv import KeyValue
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, BusError
from heeler.bus.lease import Lease, open_bucket

pytestmark = pytest.mark.bus
TTL_S = 1.0


class Clock:
    """A monotonic clock that jumps, as it does for a process that was frozen."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def bucket(bus: Bus) -> KeyValue:
    return await bus.js.create_key_value(KeyValueConfig(bucket="short", ttl=TTL_S, history=1))


async def test_the_first_gains_and_the_second_waits(bucket: KeyValue) -> None:
    one, two = Lease(bucket, "detect.3", "one", TTL_S), Lease(bucket, "detect.3", "two", TTL_S)
    assert not one.held
    assert one.remaining_s == 0
    assert await one.poll()
    assert one.held
    assert 0 < one.remaining_s <= TTL_S
    assert one.epoch == one.revision
    assert not await two.poll()
    assert two.epoch is None


async def test_leases_of_different_keys_do_not_meet(bucket: KeyValue) -> None:
    one, two = Lease(bucket, "detect.3", "one", TTL_S), Lease(bucket, "detect.4", "two", TTL_S)
    assert await one.poll()
    assert await two.poll()


async def test_renewing_keeps_it_beyond_its_ttl(bucket: KeyValue) -> None:
    one, two = Lease(bucket, "k", "one", TTL_S), Lease(bucket, "k", "two", TTL_S)
    assert await one.poll()
    epoch, end = one.epoch, asyncio.get_running_loop().time() + 2 * TTL_S
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(TTL_S / 6)
        assert await one.poll()
        assert not await two.poll()
    assert one.epoch == epoch
    assert one.revision is not None
    assert epoch is not None
    assert one.revision > epoch


async def test_one_that_stops_renewing_is_followed_by_another(bucket: KeyValue) -> None:
    one, two = Lease(bucket, "k", "one", TTL_S), Lease(bucket, "k", "two", TTL_S)
    assert await one.poll()
    await until(two.poll, "the lease to be free")
    assert not one.held, "its own clock ends it no later than the server's"
    assert two.epoch is not None
    assert one.epoch is not None
    assert two.epoch > one.epoch
    assert not await one.poll()


async def test_one_that_was_frozen_knows_before_it_acts(bucket: KeyValue) -> None:
    clock = Clock()
    one, two = Lease(bucket, "k", "one", TTL_S, clock), Lease(bucket, "k", "two", TTL_S)
    assert await one.poll()
    clock.now += TTL_S - 0.001
    assert one.held
    clock.now += 0.002
    assert not one.held
    assert one.remaining_s == 0
    # Still in the bucket, since no time has passed there: what was lost must not be renewed, only gained anew.
    assert not await one.poll()
    await until(two.poll)
    assert not await one.poll()
    assert await two.poll()


async def test_the_deadline_counts_from_before_the_renewal(bucket: KeyValue) -> None:
    """The server may have stored it at any moment since we asked."""
    clock = Clock()
    lease = Lease(bucket, "k", "one", TTL_S, clock)
    create = bucket.create

    async def slow(*args: object, **more: object) -> int:
        found: int = await create(*args, **more)  # type: ignore[arg-type]
        clock.now += 0.5  # the answer took long
        return found

    bucket.create = slow  # type: ignore[method-assign]
    assert await lease.poll()
    assert lease.remaining_s == pytest.approx(TTL_S - 0.5)
    bucket.create = create  # type: ignore[method-assign]


async def test_the_update_of_an_old_holder_is_refused(bucket: KeyValue) -> None:
    clock = Clock()  # stands still: this holder never learns that time passed
    one, two = Lease(bucket, "k", "one", TTL_S, clock), Lease(bucket, "k", "two", TTL_S)
    assert await one.poll()
    old = one.revision
    await until(two.poll)
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.update("k", b"one", last=old)
    assert not await one.poll()
    assert not one.held
    assert two.held
    assert (await bucket.get("k")).value == b"two"


async def test_a_released_lease_is_free_at_once(bus: Bus) -> None:
    bucket, ttl_s = await open_bucket(bus, "drain_lease")
    assert ttl_s == 30
    one, two = Lease(bucket, "k", "one", ttl_s), Lease(bucket, "k", "two", ttl_s)
    assert await one.poll()
    await one.release()
    assert not one.held
    assert await two.poll()
    assert one.epoch is not None
    assert two.epoch is not None
    assert two.epoch > one.epoch
    await one.release()  # a second time, and not ours any more: nothing happens
    assert await two.poll()


async def test_releasing_what_another_holds_takes_nothing_away(bucket: KeyValue) -> None:
    one, two = Lease(bucket, "k", "one", TTL_S), Lease(bucket, "k", "two", TTL_S)
    assert await one.poll()
    await until(two.poll)
    await one.release()
    assert await two.poll()
    assert (await bucket.get("k")).value == b"two"


async def test_a_server_that_is_away_does_not_end_a_lease_early(
    bus: Bus, bucket: KeyValue, nats_server: NatsServer
) -> None:
    clock = Clock()
    lease = Lease(bucket, "k", "one", TTL_S, clock)
    assert await lease.poll()
    nats_server.kill()
    await until(lambda: not bus.client.is_connected)
    polling = asyncio.create_task(lease.poll())  # waits for the answer, which doesn't come
    assert lease.held
    assert await polling is True, "not renewed and not lost: the deadline decides"
    clock.now += TTL_S
    assert not lease.held
    nats_server.start()
    await until(lambda: bus.client.is_connected)
    await until(lease.poll, "to gain it again")


async def test_a_crash_of_the_server_does_not_give_a_lease_to_two(
    bus: Bus, bucket: KeyValue, nats_server: NatsServer
) -> None:
    one, two = Lease(bucket, "k", "one", TTL_S), Lease(bucket, "k", "two", TTL_S)
    assert await one.poll()
    nats_server.restart()
    await until(lambda: bus.client.is_connected)

    async def never_both() -> bool:
        await two.poll()
        assert not (one.held and two.held)
        return two.held

    await until(never_both)


async def test_of_many_that_try_at_once_one_gains(bucket: KeyValue) -> None:
    leases = [Lease(bucket, "k", f"owner-{i}", TTL_S) for i in range(20)]
    assert sum(await asyncio.gather(*(lease.poll() for lease in leases))) == 1


async def test_a_bucket_that_is_missing_or_eternal_is_told(bus: Bus) -> None:
    with pytest.raises(BusError, match="heeler bus init"):
        await open_bucket(bus, "nowhere")
    with pytest.raises(BusError, match="ttl"):
        await open_bucket(bus, "drain_intent")
    assert (await open_bucket(bus, "leases"))[1] == 5
