"""The feed on a real Slurm and a real bus."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from heard import Heard, hearing, running
from slurmsandbox import Sandbox, version
from waiting import until

from heeler.bus import Bus
from heeler.slurm.agent import Agent, make_agent
from heeler.slurm.settings import SlurmSettings

pytestmark = [pytest.mark.slurm, pytest.mark.bus]
ALL = list(range(8))
NS = 1_000_000_000


@pytest.fixture
def agent(bus: Bus, slurm: Sandbox) -> Agent:
    """A feed that asks often and gives up soon."""
    settings = SlurmSettings(
        bin_dir="/usr/bin",
        conf=str(slurm.conf),
        timeout_s=3.0,
        jobs_interval_s=0.3,
        nodes_interval_s=0.3,
        max_backoff_s=1.0,
    )
    return make_agent(bus, settings)


@pytest.fixture
async def heard(bus: Bus, agent: Agent) -> AsyncIterator[Heard]:
    """What the running feed says, once it has looked at the idle cluster."""
    async with hearing(bus) as found, running(agent):
        await until(lambda: len(found.nodes) >= 4 and bool(found.clusters))
        yield found


async def threads(call: Any, *args: Any, **options: Any) -> Any:
    """Call the sandbox without stopping the feed."""
    return await asyncio.to_thread(call, *args, **options)


async def event(heard: Heard, job: str, kind: str, count: int = 1) -> dict[str, Any]:
    """Wait for the count-th event of a kind of a job."""

    def found() -> list[dict[str, Any]]:
        return [m for m in heard.jobs if m["job_id"] == job and m["event"] == kind]

    await until(lambda: len(found()) >= count, f"{kind} of {job}")
    return found()[count - 1]


async def state(heard: Heard, node: str, *flags: str, reason: str | None = None) -> dict[str, Any]:
    """Wait until the last word on a node has these flags and this reason."""

    def last() -> dict[str, Any]:
        return [m for m in heard.nodes if m["node"] == node][-1]

    await until(
        lambda: set(flags) <= set(last()["flags"]) and last().get("reason") == reason, f"{node} {flags} {reason}"
    )
    return last()


async def test_an_idle_cluster_has_nodes_with_gpus_and_no_jobs(heard: Heard, slurm: Sandbox) -> None:
    assert {m["node"] for m in heard.nodes} == set(slurm.names)
    first = heard.nodes[0]
    assert (first["state"], first["flags"], first["available"], first["gpus_total"]) == ("idle", [], True, 8)
    assert first["partitions"] == ["train", "debug"]
    assert (heard.clusters[-1]["controller"], heard.clusters[-1]["nodes"]) == ("up", 4)
    assert heard.clusters[-1]["slurm_version"].count(".") == 2


async def test_a_job_on_two_nodes_starts_and_ends(heard: Heard, slurm: Sandbox) -> None:
    job = await threads(
        slurm.submit, "sleep 300", "--nodes=2", "--gres=gpu:8", "--job-name=a|b", "--account=lab", user="nobody"
    )
    started = await event(heard, job, "started")
    assert started["nodes"] == ["n001", "n002"]
    assert started["gpus"] == {"n001": ALL, "n002": ALL}
    assert (started["gpus_source"], started["gpus_per_node"]) == ("slurm_index", 8)
    assert (started["user"], started["name"], started["partition"], started["restarts"]) == (
        "nobody",
        "a|b",
        "train",
        0,
    )
    assert (started["batch"], started["requeueable"]) == (True, True)
    assert 0 <= started["ts"] - started["start_ts"] < 60 * NS
    await until(lambda: heard.node("n001").get("gpus_used") == 8)
    await threads(slurm.cancel, job)
    ended = await event(heard, job, "ended")
    assert (ended["state"], ended["nodes"], ended["gpus"]) == (
        "CANCELLED",
        ["n001", "n002"],
        {"n001": ALL, "n002": ALL},
    )
    assert ended["start_ts"] <= ended["end_ts"] <= ended["ts"]
    await until(lambda: heard.node("n001")["state"] == "idle")


async def test_jobs_that_share_a_node_have_their_own_gpus(heard: Heard, slurm: Sandbox) -> None:
    jobs = [await threads(slurm.submit, "sleep 300", "--gres=gpu:2", "--nodelist=n003") for _ in range(3)]
    found = [(await event(heard, job, "started"))["gpus"] for job in jobs]
    assert sorted(gpus["n003"] for gpus in found) == [[0, 1], [2, 3], [4, 5]]


async def test_tasks_of_an_array_are_jobs_with_both_ids(heard: Heard, slurm: Sandbox) -> None:
    array = await threads(slurm.submit, "sleep 300", "--array=0-3%2", "--gres=gpu:4")
    await until(lambda: len([m for m in heard.jobs if m.get("array_job_id") == array]) == 2)
    tasks = [m for m in heard.jobs if m.get("array_job_id") == array]
    assert sorted(m["array_task_id"] for m in tasks) == ["0", "1"]
    assert len({m["job_id"] for m in tasks}) == 2


async def test_parts_of_a_heterogeneous_job_name_their_leader(heard: Heard, slurm: Sandbox) -> None:
    text = await threads(
        slurm.run, "sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:1", "--wrap=sleep 300", ":", "--gres=gpu:2"
    )
    leader = text.strip()
    await until(lambda: len([m for m in heard.jobs if m.get("het_job_id") == leader]) == 2)
    parts = {m["job_id"]: m for m in heard.jobs if m.get("het_job_id") == leader}
    assert leader in parts
    assert sorted(len(next(iter(m["gpus"].values()))) for m in parts.values()) == [1, 2]


async def test_a_waiting_job_holds_nothing(heard: Heard, slurm: Sandbox) -> None:
    waiting = await threads(slurm.submit, "sleep 1", "--gres=gpu:8", "--hold")
    running = await threads(slurm.submit, "sleep 300", "--gres=gpu:8")
    await event(heard, running, "started")
    assert await threads(slurm.job_state, waiting) == "PENDING"
    assert [m for m in heard.jobs if m["job_id"] == waiting] == []


async def test_an_exclusive_job_is_marked_so(heard: Heard, slurm: Sandbox) -> None:
    job = await threads(slurm.submit, "sleep 300", "--exclusive", "--nodelist=n004")
    started = await event(heard, job, "started")
    assert started["exclusive"] is True
    assert started["nodes"] == ["n004"]


async def test_a_requeued_job_is_two_runs_of_one_id(heard: Heard, slurm: Sandbox) -> None:
    job = await threads(slurm.submit, "sleep 300", "--nodes=1", "--gres=gpu:8", "--nodelist=n002")
    first = await event(heard, job, "started")
    await threads(slurm.run, "scontrol", "requeue", job)
    ended = await event(heard, job, "ended")
    again = await event(heard, job, "started", 2)
    assert (first["restarts"], ended["restarts"], again["restarts"]) == (0, 0, 1)
    assert ended["start_ts"] == first["start_ts"] < again["start_ts"]
    assert [m["event"] for m in heard.jobs if m["job_id"] == job and m["event"] != "changed"] == [
        "started",
        "ended",
        "started",
    ]


async def test_a_failed_job_says_so(heard: Heard, slurm: Sandbox) -> None:
    job = await threads(slurm.submit, "exit 3", "--gres=gpu:1")
    assert (await event(heard, job, "ended"))["state"] == "FAILED"


async def test_an_operators_drain_comes_with_its_reason_author_and_time(heard: Heard, slurm: Sandbox) -> None:
    await threads(slurm.drain, "n003", "psu swap, ticket [42]; Reason=x")
    drained = await state(heard, "n003", "DRAIN", reason="psu swap, ticket [42]; Reason=x")
    assert (drained["state"], drained["available"], drained["reason_user"]) == ("idle", False, "root")
    assert 0 <= drained["ts"] - drained["reason_ts"] < 60 * NS
    by_text = await threads(slurm.node, "n003")
    assert (by_text.reason, by_text.reason_user, by_text.reason_ts_ns) == (
        drained["reason"],
        drained["reason_user"],
        drained["reason_ts"],
    )
    assert by_text.state.drained
    await threads(slurm.resume, "n003")
    await until(lambda: heard.node("n003")["available"])
    if version(slurm.env) < (23, 2):  # a newer one keeps it where no accounting is
        assert "reason" not in heard.node("n003")


async def test_a_node_with_a_job_is_draining(heard: Heard, slurm: Sandbox) -> None:
    job = await threads(slurm.submit, "sleep 300", "--gres=gpu:8", "--nodelist=n001")
    await event(heard, job, "started")
    await threads(slurm.drain, "n001", "heeler: test")
    draining = await state(heard, "n001", "DRAIN", reason="heeler: test")
    assert draining["state"] in ("mixed", "allocated")
    assert (await threads(slurm.node, "n001")).state.draining
    assert [m["event"] for m in heard.jobs if m["job_id"] == job] == ["started"], "the job goes on"


async def test_a_failing_prolog_drains_its_node_and_the_job_runs_elsewhere(heard: Heard, slurm: Sandbox) -> None:
    slurm.fail_hook("prolog", "n001")
    job = await threads(slurm.submit, "sleep 300", "--gres=gpu:8")
    await state(heard, "n001", "DRAIN", reason="Prolog error")
    await until(
        lambda: bool(heard.jobs) and heard.jobs[-1]["nodes"] != ["n001"] and heard.jobs[-1]["state"] == "RUNNING"
    )
    last = heard.jobs[-1]
    assert (last["job_id"], last["restarts"]) == (job, 1)


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_controller_that_is_away_ends_no_job_and_the_feed_heals_by_itself(
    heard: Heard, slurm: Sandbox, agent: Agent, how: str
) -> None:
    job = await threads(slurm.submit, "sleep 300", "--nodes=2", "--gres=gpu:8")
    await event(heard, job, "started")
    await until(lambda: heard.node("n001").get("gpus_used") == 8 and heard.clusters[-1].get("jobs") == 1)
    await threads(slurm.save, job)
    jobs, nodes = len(heard.jobs), len(heard.nodes)
    await threads(slurm.kill_controller if how == "kill" else slurm.freeze_controller)
    await until(lambda: len(heard.down()) >= 3, "controller down")
    assert (len(heard.jobs), len(heard.nodes)) == (jobs, nodes)
    down = heard.clusters[-1]
    assert (down["controller"], down["jobs"], down["nodes"]) == ("down", 1, 4)
    assert down["why"]
    assert down["last_success_ts"] < down["ts"]
    await threads(slurm.start_controller if how == "kill" else slurm.thaw_controller)
    await until(lambda: heard.clusters[-1]["controller"] == "up", "controller up")
    of_job = [m for m in heard.jobs if m["job_id"] == job]
    assert [m["event"] for m in of_job if m["event"] != "changed"] == ["started"]
    assert (of_job[-1]["state"], of_job[-1]["nodes"]) == ("RUNNING", ["n001", "n002"])
    await threads(slurm.cancel, job)
    await event(heard, job, "ended")
