"""The real agent, killed without warning while the bus is away, neither loses nor doubles what the kernel said."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from natsserver import NatsServer, wait_for
from needs import need
from nodeagent import agent_command
from waiting import until

from heeler.bus import Bus, decode, snapshot

pytestmark = [pytest.mark.bus, pytest.mark.e2e, pytest.mark.timeout(120)]


async def codes(bus: Bus) -> list[int]:
    """Return the XID codes on the stream, in order."""
    found = await snapshot(bus, "EVENTS", ("kernel.event.*",), start=1)
    events = [decode("KernelEvent", delivery.data) for delivery in found]
    return [event["code"] for event in events if event["kind"] == "xid"]


async def test_kernel_events_survive_kill_9_and_an_outage_of_the_bus(
    tmp_path: Path, bus: Bus, nats_server: NatsServer
) -> None:
    need("agent")
    fake, kmsg, log = FakeNvml(tmp_path), tmp_path / "kmsg", tmp_path / "agent.log"
    fake.write("gpus 2\n")
    argv = agent_command(tmp_path, cluster="north", node="n1", url=nats_server.url, library=fake.library)

    def start() -> "subprocess.Popen[bytes]":
        with log.open("ab") as out:
            return subprocess.Popen(argv, env=os.environ | fake.env(), stdout=out, stderr=out)

    def say(seq: int, code: int) -> None:
        with kmsg.open("a") as lines:
            lines.write(f"4,{seq},{seq}000,-;NVRM: Xid (PCI:0000:0a:00): {code}, pid=1, name=a, words of {seq}\n")

    def spooled(words: bytes) -> bool:
        return any(words in path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())

    agent = start()
    try:
        say(2, 31)

        async def first_has_come() -> bool:
            return await codes(bus) == [31]

        await until(first_has_come, timeout_s=20.0)
        nats_server.kill()
        for seq, code in ((3, 48), (4, 63), (5, 94)):
            say(seq, code)
        wait_for(lambda: spooled(b"words of 5"), "the last line is in the spool")
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        say(6, 119)  # while nobody listens
        agent = start()
        nats_server.start()

        async def all_have_come() -> bool:
            return len(await codes(bus)) >= 5

        await until(all_have_come, timeout_s=30.0)
        say(7, 79)

        async def the_newest_has_come() -> bool:
            return 79 in await codes(bus)

        await until(the_newest_has_come, timeout_s=20.0)
        assert await codes(bus) == [31, 48, 63, 94, 119, 79], log.read_text()[-2000:]
    finally:
        agent.kill()
        agent.wait()
