"""Sums over a real Slurm, by JSON and by text, and what accounting says of the last hour."""

import time
from typing import Any

import pytest
from slurmsandbox import Sandbox

from heeler.slurm.accounting import collect_ended, recent_ends
from heeler.slurm.clients import Clients
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.sources import Outage, SlurmSource
from heeler.slurm.statjobs import Ends
from heeler.slurm.stats import stats_table

Rows = dict[tuple[Any, ...], dict[str, Any]]


async def sums(clients: Clients, ends: Ends | None = None) -> Rows:
    source, now_ns = SlurmSource(clients), time.time_ns()
    nodes, jobs = await source.nodes(with_table=True), await source.jobs(now_ns, with_table=True)
    assert not isinstance(nodes.answer, Outage)
    assert not isinstance(jobs.answer, Outage)
    assert nodes.answer.table is not None
    assert jobs.answer.table is not None
    table = stats_table(jobs.answer.table, nodes.answer.table, now_ns, ends)
    rows = [dict(zip(table.columns, values, strict=True)) for values in zip(*table.columns.values(), strict=True)]
    return {(row["scope"], row["partition"], row["account"]): row for row in rows}


@pytest.mark.parametrize("source", ["json", "text"])
async def test_sums_are_what_was_submitted(slurm: Sandbox, source: str) -> None:
    two = slurm.submit("sleep 600", "--nodes=2", "--gres=gpu:h100:8", "--exclusive")
    part = slurm.submit("sleep 600", "--nodes=1", "--gres=gpu:2", "--partition=debug", "--cpus-per-task=4")
    slept = slurm.submit("sleep 600", "--nodes=1", "--gres=gpu:1", "--cpus-per-task=2", "--partition=debug")
    for job in (two, part, slept):
        slurm.wait_job(job, "RUNNING")
    slurm.run("scontrol", "suspend", slept)
    slurm.submit("sleep 600", "--nodes=3", "--gres=gpu:8", "--array=1-5%2", "--exclusive", "--partition=train,debug")
    slurm.submit("sleep 600", "--begin=now+1hour", "--gres=gpu:1")
    slurm.drain("n004", "psu swap")
    busy = {name for job in (part, slept) for name in slurm.run("squeue", "-h", "-o", "%N", "-j", job).split()}
    found = await sums(Clients(SlurmSettings(conf=str(slurm.conf), timeout_s=30.0, source=source)))
    row, debug, train = (found[key] for key in (("cluster", None, None), ("partition", "debug", None),
                                               ("partition", "train", None)))  # fmt: skip
    assert (row["nodes"], debug["nodes"], train["nodes"]) == (4, 4, 4), "all nodes are in both partitions"
    assert (row["jobs_running"], row["jobs_suspended"], row["jobs_holding"]) == (2, 1, 3)
    assert row["jobs_nodes"] == 2 + len(busy)
    # Text has the GPUs of jobs only where the site accounts for them, and this one does not: unknown, not 0.
    known = source == "json"
    assert [some["jobs_gpus"] for some in (row, train, debug)] == ([19, 16, 3] if known else [None] * 3)
    assert (row["jobs_pending"], row["gpus_pending"]) == (6, 5 * 24 + 1)
    assert (train["jobs_pending"], debug["jobs_pending"]) == (6, 5)
    assert sum(row["jobs_pending_by_reason"].values()) == 6
    assert row["jobs_pending_by_reason"]["BeginTime"] == 1
    assert row["nodes_drained"] + row["nodes_draining"] == 1
    assert (row["nodes_up"], row["gpus_up"], row["gpus_down"], row["gpus"]) == (3, 24, 8, 32)
    assert (row["users_active"], row["jobs_per_user_mean"], row["multi_node_share"]) == (1, 3.0, 1 / 3)
    assert (row["jobs_unreadable"], row["nodes_unreadable"], row["jobs_state_unknown"]) == (0, 0, 0)
    assert row["ended_window_s"] is None
    assert 0 <= row["job_runtime_mean_s"] < 120


@pytest.mark.parametrize("source", ["json", "text"])
async def test_a_suspended_job_adds_up_its_time_asleep(slurm: Sandbox, source: str) -> None:
    job = slurm.submit("sleep 600", "--gres=gpu:1")
    slurm.wait_job(job, "RUNNING")
    slurm.run("scontrol", "suspend", job)
    asleep = time.monotonic()
    time.sleep(3)
    clients = Clients(SlurmSettings(conf=str(slurm.conf), timeout_s=30.0, source=source))
    row = (await sums(clients))["cluster", None, None]
    assert abs(row["job_suspended_mean_s"] - (time.monotonic() - asleep)) < 3
    slurm.run("scontrol", "resume", job)


async def test_ends_of_the_last_hour_come_from_accounting_and_get_old(accounted: Sandbox) -> None:
    clients = Clients(SlurmSettings(conf=str(accounted.conf), timeout_s=30.0), "test")
    assert recent_ends(clients, int(time.time())) is None
    before = await _ends(clients)
    for job, ends in ((accounted.submit("exit 3"), "FAILED"), (accounted.submit("true"), "COMPLETED")):
        accounted.wait_job(job, ends)
    stopped = accounted.submit("sleep 600")
    accounted.wait_job(stopped, "RUNNING")
    accounted.cancel(stopped)
    until = time.monotonic() + 60
    while True:
        row = await _ends(clients)
        new = {name: row[name] - before[name] for name in row if name.startswith("ended_")}
        if new["ended_cancelled"] and new["ended_completed"] and new["ended_failed"]:
            break
        assert time.monotonic() < until, new
        time.sleep(0.5)
    assert (new["ended_failed"], new["ended_cancelled"], new["ended_completed"], new["ended_in_failure"]) == (
        1,
        1,
        1,
        1,
    )
    assert row["ended_window_s"] == 3600
    assert recent_ends(clients, int(time.time()) + 3600) is None, "of an hour ago nothing is said any more"


async def _ends(clients: Clients) -> dict[str, Any]:
    """Ask until accounting has caught up, as a feed does."""
    for _ in range(20):
        said = await collect_ended(clients)
        if said.done is not None:
            said.done()
        ends = recent_ends(clients, int(time.time()))
        if ends is not None:
            return (await sums(clients, ends))["cluster", None, None]
    raise AssertionError("accounting does not catch up")
