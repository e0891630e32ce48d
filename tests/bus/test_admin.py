"""`heeler bus init` on a real server."""

from types import SimpleNamespace
from typing import Any

import pytest
from nats.aio.client import ServerVersion
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, BusError, admin
from heeler.bus.subjects_gen import BUCKETS, PREFIX, ROUTES, STREAMS
from heeler.bus.topology import Stream

pytestmark = pytest.mark.bus
SMALL = Stream("SMALL", subjects=("small.*",), max_age=3600, max_bytes=64 << 20)


async def test_init_makes_everything_and_the_second_time_nothing(nats_server: NatsServer, bus: Bus) -> None:
    made = {info.config.name for info in await bus.js.streams_info()}
    assert made == {*STREAMS, *(f"KV_{name}" for name in BUCKETS)}
    assert await admin.init(bus, scale=0.002) == []


async def test_init_says_what_it_made(bus: Bus) -> None:
    await bus.js.delete_stream("DEAD")
    await bus.js.delete_key_value("leases")
    assert await admin.init(bus, scale=0.002) == ["stream DEAD: created", "bucket leases: created"]


async def test_init_says_what_it_changed(bus: Bus) -> None:
    changes = await admin.init(bus, scale=0.004)
    assert changes
    assert all(line.startswith("stream ") and " max_bytes " in line and " -> " in line for line in changes)
    assert await admin.init(bus, scale=0.004) == []


async def test_init_refuses_to_shrink_unless_forced(bus: Bus) -> None:
    await admin.init(bus, scale=0.004)
    with pytest.raises(admin.WouldShrinkError, match="SAMPLES"):
        await admin.init(bus, scale=0.002)
    found = (await bus.js.stream_info("SAMPLES")).config.max_bytes
    assert found == int(STREAMS["SAMPLES"].max_bytes * 0.004)
    assert await admin.init(bus, scale=0.002, force=True)
    assert await admin.init(bus, scale=0.002) == []


async def test_streams_are_what_the_contract_says(bus: Bus) -> None:
    for stream in STREAMS.values():
        config = (await bus.js.stream_info(stream.name)).config
        assert config.storage == "file"
        assert config.discard == "old"
        assert config.max_age == stream.max_age
        assert (config.max_bytes or 0) > 0
        assert config.max_msgs_per_subject == stream.max_per_subject
        if stream.duplicate_window:
            assert config.duplicate_window == stream.duplicate_window


async def test_a_bucket_gets_the_ttl_of_the_contract(bus: Bus) -> None:
    for bucket in BUCKETS.values():
        status = await (await bus.js.key_value(bucket.name)).status()
        assert (status.ttl or None) == bucket.ttl
        assert status.history == bucket.history


async def test_last_value_streams_follow_their_source(bus: Bus) -> None:
    for i in range(3):
        await bus.publish_acked(f"{PREFIX}.north.slurm.job.7", "JobEvent", b"%d" % i, f"job-{i}")

    async def newest() -> list[bytes | None]:
        info = await bus.js.stream_info("JOBS")
        if info.state.last_seq < 3:
            return []
        return [(await bus.js.get_last_msg("JOBS", f"{PREFIX}.north.slurm.job.7")).data]

    from waiting import until

    async def followed() -> bool:
        return await newest() == [b"2"]

    await until(followed)
    assert (await bus.js.stream_info("JOBS")).state.messages == 1


async def test_every_message_is_kept_by_the_stream_that_the_contract_names(bus: Bus) -> None:
    for kind, route in ROUTES.items():
        if not route.stream:
            continue  # request and reply
        subject = f"{PREFIX}.north.{route.pattern.replace('*', 'x')}"
        found = await bus.js.find_stream_name_by_subject(subject)
        assert found == route.stream, kind


async def test_a_stream_that_the_server_refuses_is_told_in_words(bus: Bus) -> None:
    await bus.js.add_stream(name="SMALL", subjects=[f"{PREFIX}.*.small.*"])
    wanted = admin.stream_config(SMALL, replicas=1, scale=1)
    wanted.subjects = [f"{PREFIX}.*.gpu.sample.*"]  # those of another stream
    with pytest.raises(BusError, match="SMALL"):
        await admin._init_stream(bus, wanted, force=True)


@pytest.mark.parametrize(
    ("version", "good"), [("2.9.25", False), ("1.4.1", False), ("2.10.0", True), ("2.15.1", True), ("3.0.0-beta", True)]
)
def test_a_server_that_ignores_settings_silently_is_refused(version: str, good: bool) -> None:
    bus: Any = SimpleNamespace(client=SimpleNamespace(connected_server_version=ServerVersion(version)))
    if good:
        admin.require_server(bus)
    else:
        with pytest.raises(admin.ServerTooOldError, match=version.split("-", maxsplit=1)[0]):
            admin.require_server(bus)


async def test_dead_letters_are_counted(bus: Bus) -> None:
    assert await admin.dead_count(bus) == 0
    await bus.publish(f"{PREFIX}.north.dead.SAMPLES", "DeadLetter", b"x")

    async def counted() -> bool:
        return await admin.dead_count(bus) == 1

    await until(counted)
