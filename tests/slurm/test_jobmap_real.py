"""The job map of a real Slurm on a real bus: every kind of job, from its start to its end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from heard import running
from slurmsandbox import Sandbox
from waiting import until

from heeler.bus import Bus, encode, subjects
from heeler.bus.values import Values
from heeler.slurm.agent import Agent, make_agent
from heeler.slurm.settings import SlurmSettings

pytestmark = [pytest.mark.slurm, pytest.mark.bus]
ALL = list(range(8))


def uuid(node: str, minor: int) -> str:
    return f"GPU-{node}-{minor}"


class Map:
    """What stands in the bucket, and the sandbox without stopping the feed."""

    def __init__(self, bus: Bus, slurm: Sandbox) -> None:
        self.bus, self.slurm = bus, slurm

    async def all(self) -> dict[str, Any]:
        values = await (await Values.open(self.bus, "job_map")).all()
        ours = f"{self.bus.cluster}."
        return {key.removeprefix(ours): msgspec.msgpack.decode(value) for key, value in values.items()}

    async def submit(self, command: str, *options: str) -> str:
        return await asyncio.to_thread(self.slurm.submit, command, *options)

    async def run(self, *argv: str) -> str:
        return await asyncio.to_thread(self.slurm.run, *argv)

    async def job(self, job: str, state: str = "RUNNING", **more: Any) -> dict[str, Any]:
        """Wait until a job's key says this; return it."""
        found: dict[str, Any] = {}

        async def there() -> bool:
            found.clear()
            found.update((await self.all()).get(f"job.{job}", {}))
            return found.get("state") == state and all(found.get(key) == value for key, value in more.items())

        await until(there, f"{job} {state} {more}")
        return found

    async def gone(self, *jobs: str) -> dict[str, Any]:
        """Wait until jobs have no key, and stand at no node; return all."""
        found: dict[str, Any] = {}

        async def over() -> bool:
            found.clear()
            found.update(await self.all())
            at_nodes = {entry["job_id"] for value in found.values() for entry in value.get("jobs", ())}
            return not {f"job.{job}" for job in jobs} & found.keys() and not at_nodes & set(jobs)

        await until(over, f"{jobs} gone")
        return found

    async def at(self, node: str) -> dict[str, dict[str, Any]]:
        return {entry["job_id"]: entry for entry in (await self.all())[f"node.{node}"]["jobs"]}


@pytest.fixture
def agent(bus: Bus, slurm: Sandbox) -> Agent:
    settings = SlurmSettings(
        bin_dir="/usr/bin",
        conf=str(slurm.conf),
        timeout_s=5.0,
        jobs_interval_s=0.3,
        nodes_interval_s=0.3,
        max_backoff_s=1.0,
    )
    return make_agent(bus, settings)


@pytest.fixture
async def found(bus: Bus, slurm: Sandbox, agent: Agent) -> AsyncIterator[Map]:
    """The map of a running feed that knows the GPUs of all nodes but n004."""
    for node in slurm.names[:3]:
        gpus = [{"uuid": uuid(node, minor), "index": 7 - minor, "minor": minor} for minor in reversed(ALL)]
        message = {"v": 1, "cluster": bus.cluster, "node": node, "ts": 1, "boot": "b", "seq": 1, "gpus": gpus}
        subject = subjects.inventory(bus.cluster, node)
        await bus.publish_acked(subject, "Inventory", encode("Inventory", message), f"inventory.{node}")
    async with running(agent):
        await until(lambda: agent.counts.get("slurm_job_map_put_total", 0) >= 4)
        yield Map(bus, slurm)


async def test_jobs_that_share_a_node_have_different_gpus(found: Map) -> None:
    jobs = [await found.submit("sleep 600", "-w", "n001", "--gres=gpu:3", "--cpus-per-task=4") for _ in range(2)]
    for job in jobs:
        value = await found.job(job)
        assert value["nodes"] == ["n001"]
        assert value["uuids"]["n001"] == [uuid("n001", minor) for minor in value["gpus"]["n001"]]
        assert len(value["gpus"]["n001"]) == 3
    shared = await found.at("n001")
    assert set(shared) == set(jobs)
    assert not set(shared[jobs[0]]["indices"]) & set(shared[jobs[1]]["indices"])
    assert {entry["uuids_source"] for entry in shared.values()} == {"inventory"}
    assert await found.at("n002") == {}
    await found.run("scancel", *jobs)
    after = await found.gone(*jobs)
    assert set(after) == {f"node.{name}" for name in found.slurm.names}


async def test_arrays_and_heterogeneous_jobs_are_found_by_the_number_of_each_part(found: Map) -> None:
    array = await found.submit("sleep 600", "--array=1-3%2", "--gres=gpu:1", "--cpus-per-task=2", "-w", "n001")
    het = (
        await found.run(
            "sbatch",
            "--parsable",
            "-o",
            "/dev/null",
            "--gres=gpu:1",
            "-w",
            "n002",
            ":",
            "--gres=gpu:2",
            "-w",
            "n003",
            "--wrap",
            "sleep 600",
        )
    ).strip()

    async def tasks() -> bool:
        values = (await found.all()).values()
        return {v["array_task_id"] for v in values if v.get("array_job_id") == array} == {"1", "2"}

    await until(tasks)
    assert (await found.job(het))["uuids"].keys() == {"n002"}
    part = await found.job(str(int(het) + 1))
    assert (part["het_job_id"], len(part["uuids"]["n003"])) == (het, 2)
    await found.run("scancel", array, het)
    await until(lambda: _no_jobs(found))


async def _no_jobs(found: Map) -> bool:
    return not any(key.startswith("job.") for key in await found.all())


async def test_a_job_without_gpus_has_none_and_a_suspended_one_keeps_its_own(found: Map) -> None:
    plain = await found.submit("sleep 600", "-w", "n001")
    value = await found.job(plain)
    assert (value["gpus_source"], "gpus" in value) == ("none", False)
    entry = (await found.at("n001"))[plain]
    assert (entry["indices"], entry["uuids"]) == ([], [])
    alone = await found.submit("sleep 600", "--exclusive", "-w", "n002")
    value = await found.job(alone)
    # Some versions of Slurm give an exclusive job all GPUs, asked for or not, and say so; to others it has none.
    given = "IDX:0-7" in await found.run("scontrol", "-d", "show", "job", alone)
    assert (value["gpus_source"], value["exclusive"]) == ("slurm_index" if given else "none", True)
    assert (await found.at("n002"))[alone]["uuids"] == ([uuid("n002", minor) for minor in ALL] if given else [])
    asleep = await found.submit("sleep 600", "--gres=gpu:8", "-w", "n003")
    await found.job(asleep)
    await found.run("scontrol", "suspend", asleep)
    value = await found.job(asleep, "SUSPENDED")
    assert value["uuids"]["n003"] == [uuid("n003", minor) for minor in ALL]
    dark = await found.submit("sleep 600", "--gres=gpu:2", "-w", "n004")
    value = await found.job(dark)
    assert (len(value["gpus"]["n004"]), "uuids" in value) == (2, False), "without an inventory: indices only"
    await found.run("scontrol", "resume", asleep)
    await found.job(asleep, "RUNNING")
    await found.run("scancel", plain, alone, asleep, dark)
    await found.gone(plain, alone, asleep, dark)


async def test_a_requeued_job_is_there_again_as_another_run(found: Map) -> None:
    job = await found.submit("sleep 600", "--requeue", "--gres=gpu:1", "-w", "n001")
    first = await found.job(job)
    await asyncio.sleep(1.1)
    await found.run("scontrol", "requeue", job)
    await found.gone(job)
    second = await found.job(job, restarts=1)
    assert second["start_ts"] > first["start_ts"]
    await found.run("scancel", job)
    await found.gone(job)


async def test_while_the_controller_is_away_the_map_stays_and_a_feed_that_starts_later_clears_it(
    found: Map, agent: Agent
) -> None:
    job = await found.submit("sleep 600", "--gres=gpu:1", "-w", "n001")
    await found.job(job)
    await asyncio.to_thread(found.slurm.save, job)
    before = {key: value for key, value in (await found.all()).items() if key.startswith("job.")}
    await asyncio.to_thread(found.slurm.kill_controller)
    try:
        outages = agent.counts.get("slurm_outages_total.jobs", 0)
        await until(lambda: agent.counts.get("slurm_outages_total.jobs", 0) >= outages + 2)
        assert {key: value for key, value in (await found.all()).items() if key.startswith("job.")} == before
    finally:
        await asyncio.to_thread(found.slurm.start_controller)
    stale = {"v": 1, "cluster": found.bus.cluster, "ts": 1, "job_id": "99999", "nodes": ["n001"], "gpus_source": "none"}
    await (await Values.open(found.bus, "job_map")).put(
        {f"{found.bus.cluster}.job.99999": msgspec.msgpack.encode(stale)}
    )
    other = make_agent(found.bus, agent.settings)
    async with running(other):
        await found.gone("99999")
    assert f"job.{job}" in await found.all()
    await found.run("scancel", job)
    await found.gone(job)
