"""Accounting on a real Slurm: runs, steps, requeues, zones, outages, and a backfill that is killed half-way."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from natsserver import NatsServer
from slurmsandbox import Sandbox

from heeler.bus import Bus, decode, snapshot
from heeler.slurm.accounting import collect_ended, collect_running
from heeler.slurm.clients import Clients
from heeler.slurm.errors import SlurmError
from heeler.slurm.sacct import Sacct, Window
from heeler.slurm.settings import SlurmSettings

pytestmark = [pytest.mark.bus]


@pytest.fixture
def sandbox(accounted: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.setenv("PATH", accounted.env["PATH"])
    return accounted


def clients(sandbox: Sandbox) -> Clients:
    return Clients(SlurmSettings(conf=str(sandbox.conf), timeout_s=20.0), "test")


async def ended(sandbox: Sandbox, since_s: int, *jobs: str, runs: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return the ended runs of jobs by id, once accounting has all of them."""
    until = time.monotonic() + 60
    while True:
        found = await Sacct(clients(sandbox)).ended(Window(since_s, int(time.time()) + 5))
        assert not found.unreadable
        by_job: dict[str, list[dict[str, Any]]] = {job: [] for job in jobs}
        for record in found.records:
            by_job.setdefault(record["job_id"], []).append(record)
        if all(by_job[job] for job in jobs) and sum(len(by_job[job]) for job in jobs) >= (runs or 0):
            return by_job
        assert time.monotonic() < until, by_job
        await asyncio.sleep(0.5)


async def runs_by_accounting(sandbox: Sandbox, job: str) -> None:
    """Wait until accounting says that a job runs."""
    until = time.monotonic() + 30
    while True:
        running = await Sacct(clients(sandbox)).running(int(time.time()) + 1)
        if [r["state"] for r in running.records if r["job_id"] == job] == ["RUNNING"]:
            return
        assert time.monotonic() < until, running
        await asyncio.sleep(0.3)


async def test_how_jobs_ended_with_their_steps_and_gpus(sandbox: Sandbox) -> None:
    since = int(time.time())
    name = "a|b\x1fc"
    good = sandbox.submit("srun true", "--gres=gpu:2", f"--job-name={name}", user="nobody")
    bad = sandbox.submit("exit 3")
    stopped = sandbox.submit("sleep 600", "--gres=gpu:1")
    array = sandbox.submit("true", "--array=1-2%1")
    waiting = sandbox.submit("true", "--begin=now+1hour")
    het = sandbox.run(
        "sbatch", "--parsable", "-o", "/dev/null", "--gres=gpu:1", ":", "--gres=gpu:2", "--wrap", "sleep 1"
    ).strip()
    sandbox.wait_job(stopped, "RUNNING")
    await runs_by_accounting(sandbox, stopped)
    sandbox.cancel(stopped)
    sandbox.cancel(waiting)
    part = str(int(het) + 1)
    found = await ended(sandbox, since, good, bad, stopped, array, waiting, het, part)
    run = found[good][0]
    assert (run["state"], run["user"], run["name"], run["gpus"]) == ("COMPLETED", "nobody", name, 2)
    assert {"batch", "0"} <= {step["step"] for step in run["steps"]}
    assert (run["gpus_by_type"], run["account"]) == ({"h100": 2}, "research")
    assert (found[bad][0]["state"], found[bad][0]["exit_code"]) == ("FAILED", 3)
    assert (found[stopped][0]["state"], found[stopped][0]["cancelled_by"]) == ("CANCELLED", "0")
    assert found[waiting][0]["state"] == "CANCELLED"
    tasks = {r["array_task_id"] for runs in found.values() for r in runs if r.get("array_job_id") == array}
    assert tasks == {"1", "2"}
    assert (found[part][0]["het_job_id"], found[part][0]["het_offset"], found[part][0]["gpus"]) == (het, 1, 2)


async def test_each_run_of_a_requeued_job_is_a_record(sandbox: Sandbox) -> None:
    since = int(time.time())
    job = sandbox.submit("sleep 600", "--requeue", "--gres=gpu:1")
    sandbox.wait_job(job, "RUNNING")
    time.sleep(1.1)
    sandbox.run("scontrol", "requeue", job)
    sandbox.wait_job(job, "RUNNING", timeout_s=60.0)
    sandbox.cancel(job)
    runs = (await ended(sandbox, since, job, runs=2))[job]
    assert sorted(run["state"] for run in runs) == ["CANCELLED", "REQUEUED"]
    assert len({run["run"] for run in runs}) == 2


async def test_a_job_that_is_made_smaller_keeps_what_it_had_before(sandbox: Sandbox) -> None:
    since = int(time.time())
    job = sandbox.submit("sleep 600", "--nodes=2", "--gres=gpu:8")
    sandbox.wait_job(job, "RUNNING")
    time.sleep(1.1)
    sandbox.run("scontrol", "update", f"jobid={job}", "numnodes=1")
    time.sleep(1.1)
    sandbox.cancel(job)
    runs = {run["state"]: run for run in (await ended(sandbox, since, job, runs=2))[job]}
    before, after = runs["RESIZING"], runs["CANCELLED"]
    assert (before["nodes"], before["gpus"]) == ("n[001-002]", 16)
    assert (after["nodes"], after["gpus"]) == ("n001", 8)
    assert before["run"] != after["run"]
    # 22.05 says of the second part when the job started; newer versions when the part did.
    assert before["end_ts"] == after.get("part_start_ts", after["start_ts"]) < after["end_ts"]
    whole_s = (after["end_ts"] - before["start_ts"]) / 1e9
    assert before["elapsed_s"] + after["elapsed_s"] == pytest.approx(whole_s), "no second is in both"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
async def test_the_zone_of_this_machine_changes_nothing(
    sandbox: Sandbox, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    since = int(time.time())
    job = sandbox.submit("true")
    run = (await ended(sandbox, since, job))[job][0]
    assert since <= run["start_ts"] // 10**9 <= run["end_ts"] // 10**9 <= time.time() + 1
    before = await Sacct(clients(sandbox)).ended(Window(since - 7200, since))
    assert job not in {r["job_id"] for r in before.records}


async def test_a_slurmdbd_that_is_away_is_no_empty_answer(sandbox: Sandbox) -> None:
    asked = clients(sandbox)
    await collect_ended(asked)
    cursor = asked.memory["records"]
    at = cursor.done_s
    sandbox.accounting.stop_dbd()
    try:
        with pytest.raises(SlurmError):
            await collect_ended(asked)
        with pytest.raises(SlurmError):
            await collect_running(asked)
        assert cursor.done_s == at
    finally:
        sandbox.accounting.start_dbd()
    await collect_ended(asked)


def backfill(sandbox: Sandbox, url: str, state: Path, *options: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "heeler.cli.main", "slurm", "backfill", "--url", url, "--state", str(state), *options]
    env = {**os.environ, "SLURM_CONF": str(sandbox.conf), "HEELER_CLUSTER": "north"}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def on_the_stream(bus: Bus) -> dict[tuple[str, str], int]:
    """Return how many messages of each run the stream took in, by job and run."""
    counts: dict[tuple[str, str], int] = {}
    for delivery in await snapshot(bus, "RECORDS", ("slurm.record.*.*",), start=1):
        record = decode("JobRecord", delivery.data)
        key = (record["job_id"], record["run"])
        counts[key] = counts.get(key, 0) + 1
    return counts


async def test_a_backfill_that_is_killed_goes_on_and_each_run_is_there_once(
    sandbox: Sandbox, bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    since = int(time.time())
    jobs = []
    for _ in range(4):
        jobs.append(sandbox.submit("true"))
        sandbox.wait_job(jobs[-1], "COMPLETED")
        time.sleep(1.0)
    wanted = await ended(sandbox, since, *jobs)
    window = (f"--from={since - 20}", f"--to={int(time.time()) + 1}", "--step=2s", "--pause=0.1")
    state = tmp_path / "state"
    for chunks in (5, 9):  # the second one dies between the runs
        first = await asyncio.to_thread(backfill, sandbox, nats_server.url, state, *window)
        assert first.stderr is not None
        for _ in range(chunks):
            assert "records" in await asyncio.to_thread(first.stderr.readline)
        first.send_signal(signal.SIGKILL)
        first.communicate()
    last = backfill(sandbox, nats_server.url, state, *window)
    out, err = await asyncio.to_thread(last.communicate, None, 120)
    assert last.returncode == 0, err
    assert "done before" in out
    runs = {(record["job_id"], record["run"]) for found in wanted.values() for record in found}
    assert dict.fromkeys(runs, 1) == {key: n for key, n in (await on_the_stream(bus)).items() if key in runs}
    again = backfill(sandbox, nats_server.url, tmp_path / "other", *window, "--quiet")
    await asyncio.to_thread(again.communicate, None, 120)
    assert again.returncode == 0
    assert set((await on_the_stream(bus)).values()) == {1}, "a second backfill changes nothing"


async def test_a_backfill_without_accounting_names_what_it_lacks(
    sandbox: Sandbox, bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    assert bus.cluster == "north"
    sandbox.accounting.stop_dbd()
    try:
        work = backfill(sandbox, nats_server.url, tmp_path / "state", "--from=-1h", "--step=2h", "--pause=0")
        out, err = await asyncio.to_thread(work.communicate, None, 120)
    finally:
        sandbox.accounting.start_dbd()
    assert work.returncode == 1
    assert out.startswith("0 records in 0 chunks")
    assert "failed: 20" in err
