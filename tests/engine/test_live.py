"""The live engines on a real nats-server: killed, frozen, started again under load, and nothing lost or doubled."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from natsserver import NatsServer

from heeler.bus import Bus, BusSettings, ConsumerSpec, Delivery, admin, consume, decode, encode, subjects
from heeler.bus.client import RETRYABLE

pytestmark = [pytest.mark.bus, pytest.mark.timeout(180)]
PROGRAM = Path(__file__).resolve().parents[1] / "lib/echo_program.py"
NODES = 40


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    bus = await Bus.connect(BusSettings(servers=(server.url,), cluster="c"), "test")
    await admin.init(bus, scale=0.002)
    yield bus
    await bus.close()


@dataclass
class Fleet:
    """Processes of the echo program."""

    server: NatsServer
    mode: str
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, PROGRAM, self.mode, self.server.url], stdout=log, stderr=log
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def send(self, name: str, number: int) -> None:
        os.kill(self.running[name].pid, number)
        if number == signal.SIGKILL:
            self.running.pop(name).wait()

    def end(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.fixture
def fleet(server: NatsServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(server, request.param, tmp_path)
    yield fleet
    fleet.end()


def sample(node: str, seq: int, boot: str = "b") -> bytes:
    data = {"v": 1, "cluster": "c", "node": node, "ts": time.time_ns(), "boot": boot, "seq": seq, "ports": []}
    return encode("IbSample", data)


async def publish(bus: Bus, node: str, seq: int, boot: str = "b") -> None:
    await bus.publish(subjects.ib_sample("c", node), "IbSample", sample(node, seq, boot))


async def load(bus: Bus, sent: dict[str, int], stop: asyncio.Event, per_s: int = 300) -> None:
    """Publish samples of all nodes in turn until told to stop; `sent` is node -> newest sequence."""
    turn = 0
    while not stop.is_set():
        for _ in range(per_s // 20):
            node = f"n{turn % NODES}"
            turn += 1
            sent[node] = sent.get(node, 0) + 1
            await publish(bus, node, sent[node])
        await asyncio.sleep(0.05)


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 60) -> None:
    until = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < until, what
        await asyncio.sleep(0.1)


async def stored(bus: Bus, stream: str = "FINDINGS") -> int:
    """Return how many messages a stream holds; -1 while the server does not answer."""
    try:
        return int((await bus.js.stream_info(stream)).state.messages)
    except RETRYABLE:
        return -1


async def read_all(bus: Bus, stream: str, pattern: str, kind: str) -> list[tuple[Delivery, dict[str, Any]]]:
    """Return everything that a stream holds."""
    found: list[tuple[Delivery, dict[str, Any]]] = []
    total = await stored(bus, stream)

    async def keep(delivery: Delivery) -> None:
        found.append((delivery, decode(kind, delivery.data)))

    task = asyncio.create_task(consume(bus, ConsumerSpec(stream, (pattern,), start=1), keep))

    async def complete() -> bool:
        return len(found) >= total

    await eventually(complete, f"read {len(found)} of {total}")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


def assert_once_each(findings: list[tuple[Delivery, dict[str, Any]]], sent: dict[str, int]) -> None:
    """Each sample was answered once, and by a state that had missed nothing."""
    ids = [finding["id"] for _, finding in findings]
    expected = {f"{node}-{seq}" for node, newest in sent.items() for seq in range(1, newest + 1)}
    assert expected - set(ids) == set(), "lost"
    assert len(ids) == len(set(ids)), "doubled"
    assert set(ids) == expected
    for _, finding in findings:
        seq = int(finding["id"].partition("-")[2])
        assert finding["summary"] == ",".join(str(n) for n in range(max(1, seq - 3), seq + 1))


@pytest.mark.parametrize("fleet", ["standby"], indirect=True)
async def test_killed_and_frozen_emitters_are_taken_over_and_no_event_is_lost_or_doubled(
    bus: Bus, fleet: Fleet
) -> None:
    fleet.start("a")
    sent: dict[str, int] = {}
    stop = asyncio.Event()

    async def a_holds() -> bool:
        return '"held": 16' in fleet.log("a")

    await eventually(a_holds, "the first instance takes all shards")
    loading = asyncio.create_task(load(bus, sent, stop))
    fleet.start("b")
    await asyncio.sleep(3)
    killed_at = time.time_ns()
    fleet.send("a", signal.SIGKILL)

    async def b_holds() -> bool:
        return '"held": 16' in fleet.log("b")

    await eventually(b_holds, "the standby takes over")
    fleet.start("a")  # comes back and stands by
    await asyncio.sleep(4)
    frozen_at = time.time_ns()
    fleet.send("b", signal.SIGSTOP)
    await asyncio.sleep(9)
    fleet.send("b", signal.SIGCONT)  # a zombie that believes it is 9 s ago
    await asyncio.sleep(4)
    stop.set()
    await loading
    total = sum(sent.values())

    async def all_there() -> bool:
        return await stored(bus) >= total

    await eventually(all_there, f"{await stored(bus)} of {total} findings")
    await asyncio.sleep(1)  # anything doubled would come now
    findings = await read_all(bus, "FINDINGS", "finding.*.*.*", "Finding")
    assert_once_each(findings, sent)
    for lost_at in (killed_at, frozen_at):
        waits = [d.ts_ns - f["first_ts"] for d, f in findings if lost_at < f["first_ts"] < lost_at + 9_000_000_000]
        assert waits
        # A lease lasts 5 s, so that a quiet machine needs less than 10 s; this one may be busy.
        assert max(waits) <= 20_000_000_000, "taken over late"


@pytest.mark.parametrize("fleet", ["standby"], indirect=True)
async def test_a_server_that_dies_and_comes_back_costs_no_event(bus: Bus, fleet: Fleet, server: NatsServer) -> None:
    fleet.start("a")
    for seq in range(1, 51):
        await publish(bus, "n0", seq)
    await bus.client.flush()

    async def first() -> bool:
        return await stored(bus) >= 50

    await eventually(first, "findings before")
    server.restart()

    async def connected() -> bool:
        try:
            await bus.client.flush(1)
        except RETRYABLE:
            return False
        return await stored(bus) == 50

    await eventually(connected, "reconnect")
    for seq in range(51, 101):
        await publish(bus, "n0", seq)

    async def second() -> bool:
        return await stored(bus) >= 100

    await eventually(second, "findings after")
    assert_once_each(await read_all(bus, "FINDINGS", "finding.*.*.*", "Finding"), {"n0": 100})


@pytest.mark.parametrize("fleet", ["shared"], indirect=True)
async def test_sharing_instances_divide_the_work_and_a_killed_one_loses_nothing(bus: Bus, fleet: Fleet) -> None:
    for name in ("a", "b", "c"):
        fleet.start(name)
    sent: dict[str, int] = {}
    stop = asyncio.Event()
    loading = asyncio.create_task(load(bus, sent, stop))

    async def some() -> bool:
        return await stored(bus) > 300

    await eventually(some, "the first findings")
    fleet.send("a", signal.SIGKILL)
    await asyncio.sleep(2)
    fleet.send("b", signal.SIGTERM)  # ends in order
    await asyncio.sleep(2)
    stop.set()
    await loading
    total = sum(sent.values())

    async def all_there() -> bool:
        return await stored(bus) >= total

    await eventually(all_there, f"{await stored(bus)} of {total}")
    ids = [finding["id"] for _, finding in await read_all(bus, "FINDINGS", "finding.*.*.*", "Finding")]
    assert sorted(ids) == sorted(f"{node}-{seq}" for node, newest in sent.items() for seq in range(1, newest + 1))
    assert fleet.running["b"].wait(10) == 0


@pytest.mark.parametrize("fleet", ["shared", "standby"], indirect=True)
async def test_bad_messages_go_to_the_dead_letters_and_nothing_else_is_lost(bus: Bus, fleet: Fleet) -> None:
    fleet.start("a")
    good = subjects.ib_sample("c", "n1")
    future = encode(
        "IbSample",
        {"v": 1, "cluster": "c", "node": "n1", "ts": time.time_ns() + 10**13, "boot": "b", "seq": 77, "ports": []},
    )

    async def reading() -> bool:
        return '"caught_up"' in fleet.log("a") or '"working"' in fleet.log("a")

    await eventually(reading, "the processor reads")
    await publish(bus, "n1", 1)
    for payload in (
        b"",
        b"\xc1\xff",
        encode("AgentStatus", {"v": 1, "cluster": "c", "node": "n1", "ts": 1, "boot": "b", "seq": 1, "collectors": {}}),
    ):
        await bus.publish(good, "IbSample", payload)
    await bus.publish(subjects.ib_sample("c", "someone-else"), "IbSample", sample("n1", 2))
    await publish(bus, "n2", 1, boot="poison")
    await bus.publish(good, "IbSample", future)
    await publish(bus, "n1", 2)
    await publish(bus, "n2", 2)

    async def buried() -> bool:
        return await stored(bus, "DEAD") >= 5 and await stored(bus) >= 3

    await eventually(buried, f"dead {await stored(bus, 'DEAD')}, findings {await stored(bus)}")
    letters = [letter for _, letter in await read_all(bus, "DEAD", "dead.*", "DeadLetter")]
    assert sorted(letter["why"] for letter in letters) == [
        "hostile_subject", "invalid", "poison", "undecodable", "undecodable",
    ]  # fmt: skip
    assert all(letter["by"] == "echo" and letter["stream"] == "SAMPLES" for letter in letters)
    [poison] = [letter for letter in letters if letter["why"] == "poison"]
    assert "a bug that this message shows" in poison["error"]
    ids = {finding["id"] for _, finding in await read_all(bus, "FINDINGS", "finding.*.*.*", "Finding")}
    assert ids == {"n1-1", "n1-2", "n2-2"}


@pytest.mark.parametrize("fleet", ["shared"], indirect=True)
async def test_a_message_that_kills_the_process_is_blamed_and_its_neighbours_are_not(bus: Bus, fleet: Fleet) -> None:
    for seq in range(1, 11):
        await publish(bus, "n1", seq)
    await publish(bus, "n1", 11, boot="killer")
    for seq in range(12, 22):
        await publish(bus, "n1", seq)
    starts = 0

    async def through() -> bool:
        nonlocal starts
        if "a" not in fleet.running or fleet.running["a"].poll() is not None:
            starts += 1
            assert starts < 12, "the process is killed for ever"
            fleet.start("a")
        return await stored(bus) >= 20 and await stored(bus, "DEAD") >= 1

    await eventually(through, "all neighbours", timeout_s=90)
    [(_, letter)] = await read_all(bus, "DEAD", "dead.*", "DeadLetter")
    assert letter["why"] == "poison"
    assert decode("IbSample", letter["payload"])["seq"] == 11
    ids = {finding["id"] for _, finding in await read_all(bus, "FINDINGS", "finding.*.*.*", "Finding")}
    assert ids == {f"n1-{seq}" for seq in range(1, 22) if seq != 11}
