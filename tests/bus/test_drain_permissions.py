"""The permissions in deploy/nats are enough for a drainer and its operators, and who commands can't be forged."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from drainhand import Operator
from drainsite import Process, Site
from drainworld import xid
from fakescontrol import FakeScontrol
from natsserver import NatsServer
from waiting import reading, until

from heeler.bus import Bus, BusSettings, ConsumerSpec
from heeler.bus.admin import init

FOLDER = Path(__file__).resolve().parents[2] / "deploy/nats"
USERS = ("all", "drain", "jane", "eve")

pytestmark = [pytest.mark.bus, pytest.mark.timeout(120)]


def template(name: str, operator: str = "") -> str:
    """Return a template for cluster north."""
    return (FOLDER / f"{name}-permissions.conf").read_text().replace("CLUSTER", "north").replace("OPERATOR", operator)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server with a user that may do all, the drainer's, and two operators'."""
    folder = tmp_path / "nats"
    folder.mkdir()
    texts = {"drain": template("drain"), "jane": template("operator", "jane"), "eve": template("operator", "eve")}
    for name, text in texts.items():
        (folder / f"{name}.conf").write_text(text)
    users = "\n".join(
        f'{{ user: "{name}", password: "pw"' + (f', include "{name}.conf" }}' if name in texts else " }")
        for name in USERS
    )
    made = NatsServer(folder, f"authorization {{ users: [ {users} ] }}")
    made.start()
    yield made
    made.kill()


def url(server: NatsServer, user: str) -> str:
    return server.url.replace("nats://", f"nats://{user}:pw@")


@pytest.fixture
async def site(server: NatsServer, tmp_path: Path) -> AsyncIterator[Site]:
    bus = await Bus.connect(BusSettings(servers=(url(server, "all"),), cluster="north"), "test")
    await init(bus, scale=0.002)
    async with reading(bus, ConsumerSpec("DRAIN", ("drain.action.*",), start=1)) as actions:
        made = Site(bus, actions, FakeScontrol(tmp_path / "slurm"))
        await made.feed()
        yield made
    await bus.close()


@pytest.fixture
def drainer(server: NatsServer, site: Site, tmp_path: Path) -> Iterator[Process]:
    """An armed drainer, which a bus that knows its users lets arm."""
    private = 'inbox_prefix = "_INBOX_DRAIN"'
    process = Process(tmp_path / "one", url(server, "drain"), site.scontrol.program, "allow_root = true", bus=private)
    yield process
    process.close()


def operator(tmp_path: Path, server: NatsServer, user: str, name: str | None = None) -> Operator:
    folder = tmp_path / user
    folder.mkdir(exist_ok=True)
    made = Operator.at(folder, url(server, user), name)
    made.config.write_text(made.config.read_text() + f'inbox_prefix = "_INBOX_{user}"\n')
    return made


async def test_a_drainer_and_its_operators_do_all_they_have_to(
    site: Site, drainer: Process, server: NatsServer, tmp_path: Path
) -> None:
    jane = operator(tmp_path, server, "jane")
    await drainer.is_active()
    assert (await jane("status")).status == 0
    paused = await jane("pause", "--why", "a try")
    assert paused.status == 0, paused
    await site.say("Finding", xid(ts=time.time_ns()))
    assert "nothing is done now (paused)" in (await jane("explain", "n001")).out
    assert (await jane("resume")).status == 0
    await site.say("Finding", xid(ts=time.time_ns(), state="update"))
    await until(lambda: site.told[-1][1] == "verified", f"it drains: {site.told}")
    orders = [(one["command"], one["actor"]) for one in site.actions if "command" in one]
    assert orders == [("pause", "jane"), ("resume", "jane")], "the name is the bus's, nobody gave one"
    drainer.close()
    away = await jane("status")
    assert (away.status, "none answers" in away.out, "breaker of prologs: closed" in away.out) == (4, True, True), away
    assert "Violation" not in server.log.read_text()


async def test_nobody_can_command_under_anothers_name(
    site: Site, drainer: Process, server: NatsServer, tmp_path: Path
) -> None:
    await drainer.is_active()
    forged = await operator(tmp_path, server, "eve", "jane")("pause")
    assert forged.status == 4
    assert "may not speak to it under that name" in forged.err
    assert [one for one in site.actions if "command" in one] == []
    log = server.log.read_text()
    assert "Publish Violation" in log
    assert "drain.command.jane" in log


async def test_an_operator_can_not_speak_as_the_drainer_or_hear_others_answers(server: NatsServer) -> None:
    settings = BusSettings(servers=(url(server, "eve"),), cluster="north", inbox_prefix="_INBOX_eve")
    bus = await Bus.connect(settings, "test")
    heard: list[Any] = []

    async def on(message: Any) -> None:
        heard.append(message)

    try:
        for subject in ("drain.action.n001", "finding.xid.n001.x", "drain.command.jane", "drain.question.jane"):
            await bus.client.publish(f"heeler.v1.north.{subject}", b"x")
        await bus.client.publish("$KV.breakers.north.drain", b"x")
        for subject in ("_INBOX.>", "_INBOX_jane.>", "heeler.v1.north.drain.command.*"):
            await bus.client.subscribe(subject, cb=on)
        await bus.client.flush()
        await asyncio.sleep(0.3)
        log = server.log.read_text()
        assert log.count("Publish Violation") == 5, log
        assert log.count("Subscription Violation") == 3, log
    finally:
        await bus.close()
