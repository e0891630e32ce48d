"""`heeler slurm publish`: a saved answer of sacct goes onto the bus, once."""

import asyncio
import subprocess
import sys
from collections import Counter

import pytest
from natsserver import NatsServer
from slurmdata import recorded

from heeler.bus import Bus, decode, snapshot
from heeler.slurm.sacct_text import parse_sacct_text

pytestmark = [pytest.mark.bus]
TEXT = recorded("24.11/sacct_all.txt")
WANTED = {(one["job_id"], one["run"]): one["state"] for one in parse_sacct_text(TEXT).records}


async def publish(url: str, text: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    code = "from heeler.cli.main import main; main()"
    argv = [sys.executable, "-c", code, "slurm", "publish", "--url", url, *options]
    env = {"HEELER_CLUSTER": "north", "PYTHONPATH": ":".join(sys.path)}
    return await asyncio.to_thread(subprocess.run, argv, input=text.encode(), capture_output=True, env=env, check=False)


async def on_the_stream(bus: Bus) -> list[tuple[str, str, str]]:
    found = [decode("JobRecord", one.data) for one in await snapshot(bus, "RECORDS", ("slurm.record.*.*",), start=1)]
    return [(one["job_id"], one["run"], one["state"]) for one in found]


async def test_a_saved_answer_goes_onto_the_bus_and_a_second_time_changes_nothing(
    bus: Bus, nats_server: NatsServer
) -> None:
    for _ in range(2):
        done = await publish(nats_server.url, TEXT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.decode() == f"{len(WANTED)} records\n"
        found = await on_the_stream(bus)
        assert set(Counter(found).values()) == {1}
        assert {(job, run): state for job, run, state in found} == WANTED


async def test_a_row_that_can_not_be_read_is_named_and_the_others_go(bus: Bus, nats_server: NatsServer) -> None:
    header, first, *_ = TEXT.splitlines()
    at = header.split("|").index("Submit")
    cells = first.split("|")
    cells[at] = "2026-99-99T00:00:00"
    done = await publish(nats_server.url, f"{TEXT}{'|'.join(cells)}\n")
    assert done.returncode == 1
    assert b"unreadable: job" in done.stderr
    assert len(await on_the_stream(bus)) >= len(WANTED) - 1


async def test_what_is_no_answer_or_has_no_bus_changes_nothing(bus: Bus, nats_server: NatsServer) -> None:
    for url, text in ((nats_server.url, "sacct: error: nothing\n"), ("nats://127.0.0.1:1", TEXT)):
        done = await publish(url, text)
        assert done.returncode == 2
        assert done.stderr.startswith(b"heeler slurm publish: ")
        assert done.stdout == b""
    assert await on_the_stream(bus) == []
