"""The connection comes back by itself, and says so when it can't."""

import asyncio
import secrets
import signal
import time
from pathlib import Path
from typing import Any

import nats.errors
import nkeys
import pytest
from nats.aio.client import Server
from natsserver import NatsServer, free_port
from waiting import until

from heeler.bus import Bus, BusSettings
from heeler.bus.client import _options

pytestmark = pytest.mark.bus


def settings(url: str, connect_timeout_s: float = 1.0, **more: Any) -> BusSettings:
    return BusSettings(
        servers=(url,), cluster="north", connect_timeout_s=connect_timeout_s, reconnect_wait_s=0.05, **more
    )


def users(password: str) -> str:
    return f'authorization {{ users: [ {{ user: "heeler", password: "{password}" }} ] }}'


def with_password(server: NatsServer, password: str) -> str:
    return server.url.replace("nats://", f"nats://heeler:{password}@")


async def test_connect_waits_for_a_server_that_is_not_there_yet(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    connecting = asyncio.create_task(Bus.connect(settings(server.url), "test"))
    await asyncio.sleep(0.5)
    assert not connecting.done()
    server.start()
    try:
        bus = await asyncio.wait_for(connecting, 60)
        await bus.client.flush()
        await bus.close()
    finally:
        connecting.cancel()
        server.stop()


async def test_connect_gives_up_when_told_to() -> None:
    begun = time.monotonic()
    with pytest.raises((OSError, nats.errors.Error, TimeoutError)):
        await Bus.connect(settings(f"nats://127.0.0.1:{free_port()}", 0.2), "test", give_up_after_s=0.1)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("url", ["nats://127.0.0.1:nonsense", "http://127.0.0.1:1", "nats://"])
async def test_an_address_that_makes_no_sense_is_told(url: str) -> None:
    with pytest.raises((ValueError, OSError, nats.errors.Error, TimeoutError)):
        await Bus.connect(settings(url, 0.2), "test", give_up_after_s=0.1)


async def test_connect_can_be_cancelled() -> None:
    before = len(asyncio.all_tasks())
    connecting = asyncio.create_task(Bus.connect(settings(f"nats://127.0.0.1:{free_port()}"), "test"))
    await asyncio.sleep(0.2)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await until(lambda: len(asyncio.all_tasks()) <= before)


async def test_connect_tries_on_until_the_password_is_right(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, users("old"))
    server.start()
    connecting = asyncio.create_task(Bus.connect(settings(with_password(server, "new")), "test"))
    try:
        await asyncio.sleep(1)
        assert not connecting.done()
        server.restart(users("new"))
        bus = await asyncio.wait_for(connecting, 60)
        await bus.client.flush()
        await bus.close()
    finally:
        connecting.cancel()
        server.stop()


async def test_a_lost_connection_outlives_refused_passwords(tmp_path: Path) -> None:
    """Two equal refusals close some clients for good."""
    server = NatsServer(tmp_path, users("right"))
    server.start()
    bus = await Bus.connect(settings(with_password(server, "right")), "test")
    back = asyncio.Event()
    bus.on_reconnect.append(back.set)
    try:
        server.restart(users("wrong"))
        refused = server.log.read_text().count("authentication error")

        def refused_often() -> bool:
            return server.log.read_text().count("authentication error") >= refused + 4

        await until(refused_often)
        assert not bus.closed.is_set()
        assert not back.is_set()
        server.restart(users("right"))
        await asyncio.wait_for(back.wait(), 60)
        await bus.client.flush()
    finally:
        await bus.close()
        server.stop()


def seed_file(path: Path) -> tuple[nkeys.KeyPair, str]:
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    path.write_bytes(seed)
    pair = nkeys.from_seed(seed)
    return pair, pair.public_key.decode()


def nkey_users(public: str) -> str:
    return f"authorization {{ users: [ {{ nkey: {public} }} ] }}"


async def test_new_credentials_are_read_without_a_restart(tmp_path: Path) -> None:
    seed = tmp_path / "heeler.nk"
    _, old = seed_file(seed)
    server = NatsServer(tmp_path / "nats", nkey_users(old))
    server.start()
    bus = await Bus.connect(settings(server.url, nkey=str(seed)), "test")
    back = asyncio.Event()
    bus.on_reconnect.append(back.set)
    try:
        seed.write_bytes(b"")  # being written: neither the old nor the new one
        _, new = seed_file(tmp_path / "next.nk")
        server.restart(nkey_users(new))
        await asyncio.sleep(0.4)
        assert not bus.closed.is_set()
        assert not back.is_set()
        (tmp_path / "next.nk").replace(seed)
        await asyncio.wait_for(back.wait(), 60)
        await bus.client.flush()
    finally:
        await bus.close()
        server.stop()


async def test_credentials_that_are_broken_at_first_are_waited_for(tmp_path: Path) -> None:
    seed = tmp_path / "heeler.nk"
    _, public = seed_file(tmp_path / "next.nk")
    seed.write_bytes(b"SU")
    server = NatsServer(tmp_path / "nats", nkey_users(public))
    server.start()
    connecting = asyncio.create_task(Bus.connect(settings(server.url, nkey=str(seed)), "test"))
    try:
        await asyncio.sleep(0.5)
        assert not connecting.done()
        (tmp_path / "next.nk").replace(seed)
        bus = await asyncio.wait_for(connecting, 60)
        await bus.close()
    finally:
        connecting.cancel()
        server.stop()


async def test_a_server_that_throws_us_out_ends_the_process_or_takes_us_back(tmp_path: Path) -> None:
    """Reloaded with another password, the server closes the connection with an error."""
    server = NatsServer(tmp_path, users("right"))
    server.start()
    bus = await Bus.connect(settings(with_password(server, "right")), "test")
    try:
        (server.folder / "nats.conf").write_text(
            (server.folder / "nats.conf").read_text().replace(users("right"), users("wrong"))
        )
        server.signal(signal.SIGHUP)
        await until(lambda: bus.closed.is_set() or not bus.client.is_connected)
        if not bus.closed.is_set():
            server.restart(users("right"))
            await until(lambda: bus.closed.is_set() or bus.client.is_connected)
    finally:
        await bus.close()
        server.stop()


async def test_a_permission_that_is_missing_closes_nothing(tmp_path: Path) -> None:
    server = NatsServer(
        tmp_path,
        'authorization { users: [ { user: "heeler", password: "x", '
        'permissions: { publish: "a.>", subscribe: "a.>" } } ] }',
    )
    server.start()
    bus = await Bus.connect(settings(with_password(server, "x")), "test")
    got: list[bytes] = []

    async def keep(message: Any) -> None:
        got.append(message.data)

    try:
        await bus.subscribe("a.x", keep)
        await bus.publish("forbidden", "KernelEvent", b"no")
        await bus.publish("a.x", "KernelEvent", b"yes")
        await until(lambda: got == [b"yes"])
        assert not bus.closed.is_set()
    finally:
        await bus.close()
        server.stop()


async def test_a_late_answer_to_a_flush_does_not_deafen(bus: Bus, nats_server: NatsServer) -> None:
    got: list[bytes] = []

    async def keep(message: Any) -> None:
        got.append(message.data)

    await bus.subscribe("x", keep)
    await bus.client.flush()
    nats_server.freeze()
    with pytest.raises(nats.errors.Error):
        await bus.client.flush(timeout=0.2)  # type: ignore[arg-type]
    nats_server.thaw()
    await bus.client.publish("x", b"1")
    await until(lambda: got == [b"1"], timeout_s=5)
    await bus.client.flush()


async def test_a_subscriber_that_is_too_slow_is_counted(bus: Bus) -> None:
    gate = asyncio.Event()
    got = 0

    async def slow(_message: Any) -> None:
        nonlocal got
        await gate.wait()
        got += 1

    subscription = await bus.subscribe("x", slow)
    subscription._pending_msgs_limit = subscription._pending_queue._maxsize = 100
    for _ in range(500):
        await bus.client.publish("x", b"1")
    await bus.client.flush()
    await until(lambda: bus.dropped_incoming > 0)
    gate.set()
    await until(lambda: got + bus.dropped_incoming == 500)
    assert bus.client.is_connected


async def test_reconnects_are_spread(bus: Bus) -> None:
    """Full jitter, doubling up to half a minute: a fleet must not come back in one second."""
    choose = _options(settings("nats://h:1"), "test")["reconnect_to_server_handler"]
    url = bus.client.servers[0]
    for reconnects, most in ((0, 0.05), (3, 0.4), (8, 12.8), (50, 30.0)):
        waits = [choose([Server(uri=url, reconnects=reconnects)], {})[1] for _ in range(300)]
        assert 0 <= min(waits) < most / 4
        assert most * 3 / 4 < max(waits) <= most
    tired, fresh = Server(uri=url, reconnects=5), Server(uri=url, reconnects=1)
    assert choose([tired, fresh], {})[0] is fresh


async def test_closing_a_bus_whose_server_hangs_takes_seconds(bus: Bus, nats_server: NatsServer) -> None:
    nats_server.freeze()
    begun = time.monotonic()
    await bus.close()
    assert time.monotonic() - begun < 8
    nats_server.thaw()
    assert bus.closed.is_set()


async def test_a_first_connect_that_takes_a_cancellation_for_its_own_is_ended_all_the_same() -> None:
    from heeler.bus.client import _within

    cancelled = 0

    async def stubborn() -> None:
        nonlocal cancelled
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled == 3:
                    raise

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_within(0.05, stubborn()), 10)
    assert cancelled == 3
