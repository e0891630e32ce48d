"""How runs end on a real Slurm, as the feed tells it (JobEvent) and as accounting does (JobRecord)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from heard import Heard, hearing, running
from slurmsandbox import Sandbox
from waiting import until

from heeler.bus import Bus, decode, snapshot
from heeler.slurm.agent import Agent, make_agent
from heeler.slurm.collectors import COLLECTORS
from heeler.slurm.settings import SlurmSettings

pytestmark = [pytest.mark.slurm, pytest.mark.bus, pytest.mark.timeout(240)]
ALL = list(range(8))
NS = 1_000_000_000


@pytest.fixture
def agent(bus: Bus, accounted: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """A feed that asks often, accounting too, and for nothing else."""
    monkeypatch.setenv("PATH", accounted.env["PATH"])
    settings = SlurmSettings(
        conf=str(accounted.conf),
        timeout_s=10.0,
        jobs_interval_s=0.3,
        nodes_interval_s=0.3,
        max_backoff_s=1.0,
        intervals={**{one.name: 0.0 for one in COLLECTORS}, "records": 1.0, "records_running": 1.0},
    )
    settings.validate()
    return make_agent(bus, settings)


@pytest.fixture
async def heard(bus: Bus, agent: Agent) -> AsyncIterator[Heard]:
    async with hearing(bus) as found, running(agent):
        await until(lambda: len(found.nodes) >= 2 and bool(found.clusters))
        yield found


async def submit(slurm: Sandbox, *options: str) -> str:
    job: str = await asyncio.to_thread(slurm.submit, "sleep 600", *options)
    return job


async def run(slurm: Sandbox, *argv: str) -> str:
    return await asyncio.to_thread(slurm.run, *argv)


async def event(heard: Heard, job: str, kind: str, count: int = 1, timeout_s: float = 40.0) -> dict[str, Any]:
    """Wait for the count-th event of a kind of a job."""

    def found() -> list[dict[str, Any]]:
        return [m for m in heard.jobs if m["job_id"] == job and m["event"] == kind]

    await until(lambda: len(found()) >= count, f"{kind} of {job}", timeout_s)
    return found()[count - 1]


async def records(bus: Bus, job: str, *states: str) -> list[dict[str, Any]]:
    """Wait until the newest word on each run of a job is this, oldest run first; return them."""
    found: dict[str, dict[str, Any]] = {}

    async def there() -> bool:
        found.clear()
        for delivery in await snapshot(bus, "RECORDS", (f"slurm.record.{job}.*",), start=1):
            record = decode("JobRecord", delivery.data)
            found[record["run"]] = record
        return [one["state"] for one in in_order(found)] == list(states)

    await until(there, f"records of {job}: {states}", 60.0)
    return in_order(found)


def in_order(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found.values(), key=lambda record: record.get("start_ts", 0))


async def test_a_job_that_runs_out_of_time_has_timed_out_and_not_failed(
    heard: Heard, accounted: Sandbox, bus: Bus
) -> None:
    job = await submit(accounted, "--gres=gpu:2", "--time=10")
    started = await event(heard, job, "started")
    # An earlier end in place of the shortest limit there is, which is a minute. Slurm looks every half minute.
    await run(accounted, "scontrol", "update", f"jobid={job}", "endtime=now+1")
    ended = await event(heard, job, "ended", timeout_s=90.0)
    assert ended["state"] == "TIMEOUT"
    assert (ended["nodes"], ended["gpus"], ended["start_ts"]) == (
        started["nodes"],
        started["gpus"],
        started["start_ts"],
    )
    assert ended["start_ts"] < ended["end_ts"] <= ended["ts"]
    [record] = await records(bus, job, "TIMEOUT")
    assert (record["start_ts"], record["end_ts"]) == (ended["start_ts"], ended["end_ts"])
    assert (record["nodes"], record["gpus"]) == ("n001", 2)
    batch = next(step for step in record["steps"] if step["step"] == "batch")
    assert batch["state"] == "CANCELLED", "what it was running did not end by itself"
    assert "exit_code" not in batch or batch["exit_code"] == 0
    assert batch["signal"] == 15


async def test_a_job_whose_node_fails_is_two_runs_and_one_that_may_not_start_again_is_one(
    heard: Heard, accounted: Sandbox, bus: Bus
) -> None:
    again = await submit(accounted, "--requeue", "--gres=gpu:4", "-w", "n002")
    once = await submit(accounted, "--no-requeue", "--gres=gpu:2", "--nodes=2", "--cpus-per-task=2")
    first = await event(heard, again, "started")
    assert (await event(heard, once, "started"))["nodes"] == ["n001", "n002"]
    await asyncio.sleep(1.1)  # a run of less than a second has no time of its own
    await asyncio.to_thread(accounted.kill_node, "n002")
    await run(accounted, "scontrol", "update", "nodename=n002", "state=down", "reason=power supply")

    ended = await event(heard, again, "ended")
    assert (ended["nodes"], ended["gpus"]) == (["n002"], first["gpus"])
    assert (ended["start_ts"], ended["restarts"]) == (first["start_ts"], 0)
    lost = await event(heard, once, "ended")
    assert (lost["state"], lost["nodes"], set(lost["gpus"])) == ("NODE_FAIL", ["n001", "n002"], {"n001", "n002"})
    await until(lambda: heard.node("n002")["state"] == "down")
    down = heard.node("n002")
    assert (down["available"], down["reason"]) == (False, "power supply")
    await run(accounted, "scontrol", "update", f"jobid={again}", "reqnodelist=")  # it asked for that node
    second = await event(heard, again, "started", 2, timeout_s=60.0)
    assert (second["nodes"], second["restarts"]) == (["n001"], 1)
    assert second["state"] in ("CONFIGURING", "RUNNING"), "it has its GPUs in both"
    assert second["start_ts"] > ended["start_ts"]
    kinds = [m["event"] for m in heard.jobs if m["job_id"] == again and m["event"] != "changed"]
    assert kinds == ["started", "ended", "started"]

    failed, runs = await records(bus, again, "NODE_FAIL", "RUNNING")
    assert (failed["start_ts"], failed["nodes"], failed["gpus"]) == (first["start_ts"], "n002", 4)
    assert failed["start_ts"] < failed["end_ts"]
    assert (runs["start_ts"], runs["nodes"], "end_ts" in runs) == (second["start_ts"], "n001", False)
    [only] = await records(bus, once, "NODE_FAIL")
    assert (only["nodes"], only["gpus"]) == ("n[001-002]", 4)


async def test_a_node_that_dies_without_a_word_ends_its_job_when_slurm_gives_it_up(
    heard: Heard, accounted: Sandbox, bus: Bus
) -> None:
    await run(accounted, "scontrol", "update", "nodename=n001", "state=drain", "reason=to have one place")
    job = await submit(accounted, "--requeue", "--gres=gpu:8", "-w", "n002")
    first = await event(heard, job, "started")
    await asyncio.to_thread(accounted.kill_node, "n002")
    await until(lambda: "NOT_RESPONDING" in heard.node("n002")["flags"], "not responding", 60.0)
    assert not [m for m in heard.jobs if m["job_id"] == job and m["event"] == "ended"], "silence alone ends no job"
    ended = await event(heard, job, "ended", timeout_s=90.0)
    assert (ended["nodes"], ended["start_ts"]) == (["n002"], first["start_ts"])
    await until(lambda: heard.node("n002")["state"] == "down")
    assert heard.node("n002")["reason"] == "Not responding"
    [record] = await records(bus, job, "NODE_FAIL")
    assert (record["nodes"], record["start_ts"]) == ("n002", first["start_ts"])
