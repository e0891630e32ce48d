"""What happens when the active drainer dies or freezes, as processes of their own."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drainsite import Process, Site
from drainworld import xid
from fakescontrol import FakeScontrol
from natsserver import NatsServer
from waiting import until

from heeler.bus import Bus, BusSettings
from heeler.bus.admin import init
from heeler.drain.actions import Intent
from heeler.drain.ledger import claim_key

pytestmark = pytest.mark.bus

Spawn = Callable[..., Process]


async def intent(site: Site, node: str = "n001") -> Intent:
    bucket = await site.bus.js.key_value("drain_intent")
    return Intent.unpack((await bucket.get(claim_key("north", node))).value or b"")


async def test_a_leader_killed_between_command_and_report_is_reported_for_by_the_next(site: Site, spawn: Spawn) -> None:
    first = spawn("first")
    await first.is_active()
    second = spawn("second")
    site.scontrol.behave("kill-parent")
    await site.say("Finding", xid(ts=time.time_ns()))
    assert await first.ends() == -signal.SIGKILL
    assert (await intent(site)).finished == ""
    await second.is_active()
    await site.hears("approved", "done", "verified")
    assert "did not report the end" in site.actions[1]["why"]
    assert (await intent(site)).finished == "verified"
    await site.say("Finding", xid(ts=time.time_ns(), state="update"))
    await site.say("Finding", xid("stranger", ts=time.time_ns()))
    await site.hears("approved", "done", "verified", "refused")
    assert site.scontrol.updates == ["n001"]


async def test_a_leader_killed_before_its_command_leaves_a_drain_that_failed(site: Site, spawn: Spawn) -> None:
    first = spawn("first")
    await first.is_active()
    second = spawn("second", limits="retry_after_s = 600.0")
    site.scontrol.behave("hang")
    await site.say("Finding", xid(ts=time.time_ns()))
    await until(lambda: site.scontrol.updates == ["n001"])
    first.signal(signal.SIGKILL)
    await second.is_active()
    await site.hears("approved", "failed")
    assert site.told[1][2] == "command_failed"
    assert site.scontrol["n001"]["state"] == "ALLOCATED"
    assert (await intent(site)).finished == "failed"


async def test_a_frozen_leader_that_wakes_up_does_not_act(site: Site, spawn: Spawn) -> None:
    first = spawn("first")
    await first.is_active()
    second = spawn("second")
    first.signal(signal.SIGSTOP)
    await second.is_active()
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "done", "verified")
    first.signal(signal.SIGCONT)
    await until(lambda: '"standing_by"' in first.log.read_text())
    await site.say("Finding", xid("stranger", ts=time.time_ns()))
    await site.hears("approved", "done", "verified", "refused")
    assert site.scontrol.updates == ["n001"]
    assert {action["actor"] for action in site.actions} == {site.actions[0]["actor"]}


async def test_a_restart_of_the_only_drainer_repeats_nothing(site: Site, spawn: Spawn) -> None:
    first = spawn("first")
    await first.is_active()
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.say("Finding", xid("stranger", ts=time.time_ns()))
    await until(lambda: len(site.told) == 4)
    first.signal(signal.SIGTERM)
    assert await first.ends() == 0
    second = spawn("second")
    await second.is_active()
    await site.say("Finding", xid(ts=time.time_ns(), state="update"))
    await site.say("Finding", xid("stranger", ts=time.time_ns(), state="update"))
    await site.say("Finding", xid("other", ts=time.time_ns()))
    await until(lambda: site.told[-1][0] == "other")
    assert len(site.told) == 5
    assert site.scontrol.updates == ["n001"]


# Where a drainer may be armed.


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused as root")
async def test_it_does_not_arm_as_root_unless_told(site: Site, spawn: Spawn) -> None:
    process = spawn("refused", drain="allow_anonymous_bus = true")
    assert await process.ends() == 1
    assert "as root" in process.log.read_text()


async def test_it_does_not_arm_on_a_bus_that_takes_anyone(site: Site, spawn: Spawn) -> None:
    process = spawn("refused", drain="allow_root = true")
    assert await process.ends() == 1
    assert "anonymous" in process.log.read_text()


async def test_it_arms_on_a_bus_that_asks_who_is_there(
    nats_server: NatsServer, tmp_path: Path, scontrol: FakeScontrol
) -> None:
    nats_server.restart('authorization { user: "drain", password: "secret" }')
    url = nats_server.url.replace("//", "//drain:secret@")
    bus = await Bus.connect(BusSettings(servers=(url,), cluster="north"), "test")
    await init(bus, scale=0.002)
    process = Process(tmp_path / "armed", url, scontrol.program, "allow_root = true")
    try:
        await process.is_active()
        process.signal(signal.SIGTERM)
        assert await process.ends() == 0
    finally:
        process.close()
        await bus.close()
