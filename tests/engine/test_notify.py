"""What a process says to systemd, heard on a real socket."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from natsserver import NatsServer
from waiting import until_sync

from heeler.engine.notify import READY, Notifier


class Ear:
    """A socket as systemd has it, and all that was said."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)
        self.lines: list[str] = []

    def heard(self, line: str) -> bool:
        while True:
            try:
                self.lines += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return line in self.lines


@pytest.fixture
def listen() -> Iterator[Callable[[str], Ear]]:
    made: list[Ear] = []

    def listen(address: str) -> Ear:
        made.append(Ear(address))
        return made[-1]

    yield listen
    for ear in made:
        ear.socket.close()


def processor(*options: str, **env: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "heeler.enrich", *options]
    return subprocess.Popen(command, env=os.environ | env, stderr=subprocess.DEVNULL)


def test_without_systemd_nothing_is_said_and_nothing_fails(tmp_path: Path) -> None:
    Notifier.of({}, 1).say(READY)
    Notifier.of({"NOTIFY_SOCKET": str(tmp_path / "nobody")}, 1).say(READY)


@pytest.mark.parametrize(
    ("env", "wanted_s"),
    [
        ({"WATCHDOG_USEC": "180000000", "WATCHDOG_PID": "7"}, 180.0),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "180000000", "WATCHDOG_PID": "8"}, 0.0),
        ({"WATCHDOG_USEC": "-1", "WATCHDOG_PID": "7"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_a_watchdog_is_fed_if_it_is_meant_for_this_process(env: dict[str, str], wanted_s: float) -> None:
    assert Notifier.of(env, 7).watchdog_s == wanted_s


def test_a_socket_without_a_file_is_found(listen: Callable[[str], Ear]) -> None:
    name = f"heeler-test-{os.getpid()}-{os.urandom(4).hex()}"
    ear = listen(f"\0{name}")
    Notifier.of({"NOTIFY_SOCKET": f"@{name}"}, 1).say(READY, "STATUS=well")
    assert ear.heard("STATUS=well")
    assert ear.lines == [READY, "STATUS=well"]


@pytest.mark.bus
def test_a_processor_is_ready_before_the_bus_is_and_says_where_it_stands(
    tmp_path: Path, listen: Callable[[str], Ear]
) -> None:
    ear, server = listen(str(tmp_path / "notify")), NatsServer(tmp_path / "nats")
    process = processor(NOTIFY_SOCKET=str(tmp_path / "notify"), HEELER_NATS_URL=server.url)
    try:
        until_sync(lambda: ear.heard("STATUS=connecting to the bus"), "a first word", 60)
        assert ear.lines[0] == READY
        assert not ear.heard("WATCHDOG=1"), "nobody asked for it"
        server.start()
        server.init_bus(0.002)
        until_sync(lambda: ear.heard("STATUS=on the bus"), "the bus is found", 60)
        server.kill()
        until_sync(lambda: ear.heard("STATUS=the bus is away"), "the bus is lost", 60)
        process.terminate()
        assert process.wait(30) == 0
        assert ear.heard("STOPPING=1")
    finally:
        process.kill()
        process.wait()
        server.kill()


@pytest.mark.bus
def test_a_processor_that_stands_still_feeds_no_watchdog(tmp_path: Path, listen: Callable[[str], Ear]) -> None:
    ear = listen(str(tmp_path / "notify"))
    process = processor(
        NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="300000", HEELER_NATS_URL="nats://127.0.0.1:9"
    )
    try:
        until_sync(lambda: ear.heard("WATCHDOG=1"), "a sign of life", 60)
        process.send_signal(signal.SIGSTOP)
        until_sync(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "frozen")
        ear.heard("")  # what it had said before
        ear.lines.clear()
        with pytest.raises(AssertionError, match="waited"):
            until_sync(lambda: ear.heard("WATCHDOG=1"), "a sign of life", 0.5)
        process.send_signal(signal.SIGCONT)
        until_sync(lambda: ear.heard("WATCHDOG=1"), "a sign of life again", 60)
    finally:
        process.kill()
        process.wait()


@pytest.mark.bus
def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path, nats_server: NatsServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "heeler.enrich", "--listen", address]
        env = os.environ | {"HEELER_NATS_URL": nats_server.url}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"can't listen at {address}" in done.stderr
    assert "Traceback" not in done.stderr
