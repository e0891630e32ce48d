"""`heeler top` on a real bus, once and in a real terminal."""

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from consolekit import finding, job_event, node_state, sample
from heelercli import HEELER, environment, heeler
from natsserver import NatsServer
from waiting import until_sync

from heeler.bus import Bus, encode, subjects

S = 1_000_000_000


async def fill(bus: Bus) -> None:
    now = time.time_ns()
    data: dict[str, Any] = sample("n1", ts=now, mean={"power_w": None})
    await bus.publish(subjects.job_sample("north", str(data["shard"]), "n1"), "JobSample", encode("JobSample", data))
    for kind, subject, message in (
        ("NodeState", subjects.node_state("north", "n1"), node_state("n1", ts=now, reason="x\x1b[2J")),
        ("JobEvent", subjects.job_event("north", "81"), job_event("81", ts=now, start_ts=now - 3600 * S)),
        ("Finding", subjects.finding("north", "gpu_lag", "n1", "f1"), finding("f1", ts=now, first_ts=now - 60 * S)),
    ):
        await bus.publish_acked(subject, kind, encode(kind, message), f"{kind}1")


@pytest.mark.bus
async def test_once_prints_what_is_known_now(bus: Bus, nats_server: NatsServer) -> None:
    assert "no node is known" in heeler("top", "--once", url=nats_server.url).stdout
    await fill(bus)

    def all_there() -> bool:  # streams of newest values are filled a moment later
        found = json.loads(heeler("top", "--json", url=nats_server.url).stdout)
        return bool(found["finding_rows"] and found["job_rows"] and found["node_rows"][0]["slurm"])

    until_sync(all_there)
    text = heeler("top", url=nats_server.url).stdout  # no terminal: once
    assert "GPUs 8: 8 in jobs, 0 free, 0 bad, 0 ?; ? kW" in text
    assert "1 critical" in text
    assert "\x1b" not in text
    only = heeler("top", "--once", "--view", "jobs", "--user", "nobody", url=nats_server.url).stdout
    assert "no job is known" in only
    found = json.loads(heeler("top", "--json", url=nats_server.url).stdout)
    assert found["power_w"] is None
    assert found["node_rows"][0]["reason"] == "x\x1b[2J"
    assert found["job_rows"][0]["gpus"] == 8


@pytest.mark.bus
def test_no_streams_and_no_bus_are_one_line(nats_server: NatsServer) -> None:
    assert "the bus does not answer" in heeler("top", "--once", url=nats_server.url, code=1).stderr
    assert "no bus at" in heeler("top", url="nats://127.0.0.1:1", code=1).stderr


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, argv: list[str | Path], url: str, lines: int, columns: int) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.settings = termios.tcgetattr(slave)
        self._slave = slave
        env = {**environment(url), "TERM": "xterm-256color"}
        env.pop("NO_COLOR")
        self.process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
        os.set_blocking(self.master, False)
        self.seen = ""

    def says(self, words: str) -> bool:
        """Say whether words were written since the last key."""
        with contextlib.suppress(BlockingIOError):
            self.seen += os.read(self.master, 1 << 20).decode(errors="replace")
        return words in self.seen

    def type(self, keys: str) -> None:
        self.seen = ""
        os.write(self.master, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)

    def as_it_was(self) -> bool:
        """Say whether echo and line mode are on again."""
        return bool(termios.tcgetattr(self._slave)[3] == self.settings[3])


@pytest.mark.bus
async def test_the_live_screen_takes_keys_tells_of_a_lost_bus_and_leaves_the_terminal_as_it_was(
    bus: Bus, nats_server: NatsServer
) -> None:
    await fill(bus)
    terminal = Terminal([HEELER, "top", "--every", "0.3"], nats_server.url, 24, 80)
    try:
        until_sync(lambda: terminal.says("GPUs 8: 8 in jobs"), "the first screen")
        assert not terminal.as_it_was()
        terminal.type("4")
        until_sync(lambda: terminal.says("nodes 1 of 1 by trouble"), "the view of nodes")
        terminal.type("s")
        until_sync(lambda: terminal.says("by name"), "another order")
        terminal.type("h")
        until_sync(lambda: terminal.says("this help"), "help")
        assert "\x1b[2J" not in terminal.seen.replace("\x1b[2J\x1b[H", "")
        nats_server.kill()
        until_sync(lambda: terminal.says("THE BUS IS AWAY"), "the loss of the bus")
        nats_server.start()
        terminal.type("h")
        until_sync(lambda: terminal.says("jobs 1; open findings") and "AWAY" not in terminal.seen[-1500:], "its return")
        terminal.type("q")
        assert terminal.process.wait(15) == 0
        assert terminal.as_it_was()
    finally:
        terminal.close()
