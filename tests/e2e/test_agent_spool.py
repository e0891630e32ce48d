"""The real agent, killed without warning while the bus is away, neither loses nor doubles what the kernel said."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml
from natsserver import NatsServer, wait_for
from needs import need
from nodeagent import agent_command
from waiting import until

from heeler.bus import Bus, decode, snapshot

pytestmark = [pytest.mark.bus, pytest.mark.e2e, pytest.mark.timeout(120)]


async def xids(bus: Bus) -> list[tuple[int, int]]:
    """Return the XIDs on the stream, in order, as (kernel record, code)."""
    found = await snapshot(bus, "EVENTS", ("kernel.event.*",), start=1, timeout_s=40.0)
    events = [decode("KernelEvent", delivery.data) for delivery in found]
    return [(event["kmsg_seq"], event["code"]) for event in events if event["kind"] == "xid"]


async def status(bus: Bus) -> dict[str, Any]:
    """Return the newest AgentStatus, or an empty one."""
    found = await snapshot(bus, "AGENTS", ("agent.status.*",), timeout_s=40.0)
    return dict(decode("AgentStatus", found[-1].data)) if found else {}


class Node:
    """An agent that is started and killed, and its kernel log."""

    def __init__(self, folder: Path, url: str, *settings: str) -> None:
        fake = FakeNvml(folder)
        fake.write("gpus 2\n")
        self.folder, self.log, self.state = folder, folder / "agent.log", folder / "state"
        self._argv = agent_command(folder, cluster="north", node="n1", url=url, library=fake.library)
        self._argv += [word for setting in settings for word in ("-set", setting)]
        self._env = os.environ | fake.env()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(self._argv, env=self._env, stdout=out, stderr=out)

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def say(self, seq: int, code: int) -> None:
        """Write an XID to the kernel log."""
        with (self.folder / "kmsg").open("a") as lines:
            lines.write(f"4,{seq},{seq}000,-;NVRM: Xid (PCI:0000:0a:00): {code}, pid=1, name=a, words of {seq}\n")

    def spooled(self, words: bytes) -> bool:
        return any(words in path.read_bytes() for path in self.state.rglob("*") if path.is_file())

    def logged(self, words: str) -> bool:
        return words in self.log.read_text()


@contextmanager
def running(node: Node) -> Iterator[Node]:
    node.start()
    try:
        yield node
    finally:
        node.kill()


async def test_kernel_events_survive_kill_9_and_an_outage_of_the_bus(
    tmp_path: Path, bus: Bus, nats_server: NatsServer
) -> None:
    need("agent")
    with running(Node(tmp_path, nats_server.url)) as node:
        node.say(2, 31)

        async def first_has_come() -> bool:
            return await xids(bus) == [(2, 31)]

        await until(first_has_come, timeout_s=20.0)
        nats_server.kill()
        for seq, code in ((3, 48), (4, 63), (5, 94)):
            node.say(seq, code)
        wait_for(lambda: node.spooled(b"words of 5"), "the last line is in the spool")
        node.kill()
        node.say(6, 119)  # while nobody listens
        node.start()
        nats_server.start()

        async def all_have_come() -> bool:
            return len(await xids(bus)) >= 5

        await until(all_have_come, timeout_s=30.0)
        node.say(7, 79)

        async def the_newest_has_come() -> bool:
            return (7, 79) in await xids(bus)

        await until(the_newest_has_come, timeout_s=20.0)
        assert await xids(bus) == [(2, 31), (3, 48), (4, 63), (5, 94), (6, 119), (7, 79)], node.log.read_text()[-2000:]


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Let a folder be a disk of 256 KiB; the test is skipped where it may not be mounted."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip(f"no small disk: {mount.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    """Take all the room that is left on a disk."""
    hog = folder / "hog"
    with suppress(OSError), hog.open("wb", buffering=0) as out:
        while out.write(b"x" * 512):
            pass
    return hog


async def test_a_full_disk_and_kill_9_in_an_outage_lose_and_double_no_event(
    tmp_path: Path, bus: Bus, nats_server: NatsServer
) -> None:
    need("agent")
    said = [2]
    with small_disk(tmp_path / "state"), running(Node(tmp_path, nats_server.url, "nats.buffer_samples=5")) as node:

        def more(count: int) -> None:
            for _ in range(count):
                said.append(said[-1] + 1)
                node.say(said[-1], 48)

        node.say(2, 48)
        await until(lambda: _come(bus, said), timeout_s=20.0)
        nats_server.kill()
        more(10)
        wait_for(lambda: node.spooled(b"words of 12"), "these are on disk")
        hog = fill(node.state)
        more(30)
        wait_for(lambda: node.logged("no space left on device"), "the agent says that the disk is full")
        node.kill()
        more(5)
        node.start()
        nats_server.start()
        await until(lambda: _come(bus, said), "all come while the disk is still full", timeout_s=40.0)
        more(2)
        await until(lambda: _come(bus, said), "new ones too", timeout_s=20.0)

        async def says(state: str) -> bool:
            newest = await status(bus)
            return bool(newest) and newest["collectors"]["spool"]["state"] == state

        await until(lambda: says("failing"), "the status says that the spool is not well")
        hog.unlink()
        await until(lambda: says("ok"), "and that it is well again")
        nats_server.kill()
        more(1)
        await asyncio.sleep(8.0)  # windows of 1 s, of which five are kept
        nats_server.start()
        await until(lambda: _come(bus, said), timeout_s=40.0)

        async def counted() -> bool:
            newest = await status(bus)
            return bool(newest["dropped_samples"] > 0 and newest["dropped_events"] == 0)

        await until(counted, "the samples that were dropped are counted")

        async def compared() -> bool:
            newest = await status(bus)
            return (
                "clock_offset_ns" in newest
                and abs(newest["clock_offset_ns"]) <= newest["clock_offset_error_ns"] + 1_000_000
            )

        await until(compared, "the clock is compared with the server's, which is the same")
        found = [seq for seq, _ in await xids(bus)]
        assert found == said, node.log.read_text()[-3000:]


async def _come(bus: Bus, said: list[int]) -> bool:
    return {seq for seq, _ in await xids(bus)} >= set(said)
