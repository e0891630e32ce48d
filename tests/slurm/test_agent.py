"""The process on a real bus, with programs that answer like Slurm's."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from fakeslurm import FakeSlurm
from heard import hearing, running
from natsserver import NatsServer
from slurmdata import answer, job_row, node_row
from waiting import until

from heeler.bus import Bus, BusSettings, encode, subjects
from heeler.engine.config import build
from heeler.slurm.agent import Agent, make_agent, until_stopped
from heeler.slurm.collectors import COLLECTORS
from heeler.slurm.readback import read_back
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.turns import Turn

pytestmark = pytest.mark.bus
NS = 1_000_000_000
UNABLE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
PROGRAM = Path(sys.executable).parent / "heeler-slurm"


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    """A Slurm with two nodes and one job."""
    found = FakeSlurm(tmp_path / "bin")
    found.says("scontrol", answer(nodes=[node_row("gn1"), node_row("gn2")]))
    found.says("squeue", answer(jobs=[job_row()]))
    return found


@pytest.fixture
def settings(fake: FakeSlurm) -> SlurmSettings:
    return SlurmSettings(
        bin_dir=str(fake.folder), timeout_s=20.0, jobs_interval_s=0.2, nodes_interval_s=0.2, max_backoff_s=0.3
    )


async def test_jobs_and_nodes_are_published_as_they_change(bus: Bus, fake: FakeSlurm, settings: SlurmSettings) -> None:
    async with hearing(bus) as heard, running(make_agent(bus, settings)):
        await until(lambda: len(heard.jobs) == 1 and len(heard.nodes) == 2)
        assert heard.job_events() == [("481", "started", "RUNNING")]
        assert {m["node"]: m["event"] for m in heard.nodes} == {"gn1": "seen", "gn2": "seen"}
        drained = node_row("gn2", "idle", "DRAIN", reason="psu swap", reason_set_by_user="ops", reason_changed_at=1990)
        fake.says("scontrol", answer(nodes=[node_row("gn1"), drained]))
        fake.says("squeue", answer(jobs=[job_row(state="COMPLETED", end_time=1500)]))
        await until(lambda: len(heard.jobs) == 2 and len(heard.nodes) == 3)
        assert heard.job_events()[1] == ("481", "ended", "COMPLETED")
        assert (heard.nodes[2]["reason"], heard.nodes[2]["reason_user"]) == ("psu swap", "ops")
        await until(lambda: bool(heard.clusters) and heard.clusters[-1].get("jobs") == 0)
        last = heard.clusters[-1]
        assert (last["controller"], last["nodes"], last["slurm_version"]) == ("up", 2, "22.05.8")
        assert last["last_success_ts"] <= last["ts"]


async def test_an_outage_ends_no_job_and_heals_by_itself(bus: Bus, fake: FakeSlurm, settings: SlurmSettings) -> None:
    async with hearing(bus) as heard, running(make_agent(bus, settings)) as agent:
        await until(lambda: len(heard.jobs) == 1 and len(heard.nodes) == 2)
        for program in ("squeue", "scontrol"):
            fake.says(program, "", err=UNABLE, rc=1)
        await until(lambda: len(heard.down()) >= 6)
        assert heard.job_events() == [("481", "started", "RUNNING")]
        assert len(heard.nodes) == 2
        first, last = heard.down()[0], heard.down()[-1]
        assert "Unable to contact" in last["why"]
        assert last["last_success_ts"] <= first["ts"] < last["ts"]
        assert (last["jobs"], last["nodes"]) == (1, 2), "what is known stays, with its age"
        assert agent.metrics()["slurm_up"] == 0
        fake.says("scontrol", answer(nodes=[node_row("gn1"), node_row("gn2")]))
        fake.says("squeue", answer(jobs=[job_row(), job_row(500)]))
        await until(lambda: heard.clusters[-1]["controller"] == "up")
        await until(lambda: len(heard.jobs) == 2)
        assert heard.job_events()[1] == ("500", "started", "RUNNING")
        assert agent.metrics()["slurm_up"] == 1


async def test_a_feed_that_starts_again_repeats_nothing_and_ends_what_ended(
    bus: Bus, fake: FakeSlurm, settings: SlurmSettings
) -> None:
    fake.says("squeue", answer(jobs=[job_row(), job_row(500), job_row(600)]))
    async with hearing(bus) as heard:
        async with running(make_agent(bus, settings)):
            await until(lambda: len(heard.jobs) == 3 and len(heard.nodes) == 2)
        fake.says("squeue", answer(jobs=[job_row(), job_row(500, state="FAILED", end_time=1500)]))
        agent = make_agent(bus, settings)
        async with running(agent):
            await until(lambda: len(heard.jobs) == 5)
            await until(lambda: agent.counts.get("slurm_answers_total.jobs", 0) >= 3)
        assert sorted(heard.job_events()[3:]) == [("500", "ended", "FAILED"), ("600", "ended", "UNKNOWN")]
        assert len(heard.jobs) == 5
        assert len(heard.nodes) == 2


async def test_a_feed_that_starts_during_an_outage_ends_no_job(
    bus: Bus, fake: FakeSlurm, settings: SlurmSettings
) -> None:
    async with hearing(bus) as heard:
        async with running(make_agent(bus, settings)):
            await until(lambda: len(heard.jobs) == 1 and len(heard.nodes) == 2)
            await until(lambda: bool(heard.clusters) and "last_success_ts" in heard.clusters[-1])
        fake.says("squeue", "", err=UNABLE, rc=1)
        fake.says("scontrol", "", err=UNABLE, rc=1)
        async with running(make_agent(bus, settings)):
            await until(lambda: len(heard.down()) >= 2)
        assert len(heard.jobs) == 1
        last = heard.down()[-1]
        assert (last["jobs"], last["nodes"]) == (1, 2)
        assert last["last_success_ts"] > 0, "the age of what is known outlives the process"


async def test_a_feed_killed_before_the_streams_word_publishes_under_the_same_id(
    bus: Bus, fake: FakeSlurm, settings: SlurmSettings
) -> None:
    async with hearing(bus) as heard:
        for _ in range(2):  # the second knows nothing of the first, as if JOBS lagged behind
            agent = make_agent(bus, settings)
            assert await agent.once()
        await until(lambda: len(heard.clusters) >= 1)
        assert await agent.once()
        assert (await bus.js.stream_info("EVENTS")).state.messages == 3
        assert heard.job_events() == [("481", "started", "RUNNING")]


async def test_a_slow_slurm_gets_one_question_at_a_time(bus: Bus, fake: FakeSlurm, settings: SlurmSettings) -> None:
    slow = SlurmSettings(**{**settings_dict(settings), "timeout_s": 0.4, "jobs_interval_s": 0.1})
    marks = f"ls {fake.folder}/busy >>{fake.folder}/overlaps 2>/dev/null; touch {fake.folder}/busy; sleep 300"
    fake.says("squeue", "", after=marks)
    agent = make_agent(bus, slow)
    async with running(agent):
        await until(lambda: agent.counts.get("slurm_outages_total.jobs", 0) >= 3)
        (fake.folder / "busy").unlink(missing_ok=True)
        assert [pid for pid in fake.pids[:-1] if Path(f"/proc/{pid}").exists()] == []
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in fake.pids))


async def test_a_slow_accounting_has_one_child_at_most_which_is_killed_with_its_own_and_delays_no_job(
    bus: Bus, fake: FakeSlurm, settings: SlurmSettings
) -> None:
    fake.add("sacct")
    fields_of = "case $* in *helpformat*) echo JobIDRaw JobID State Start End Submit; exit 0;; esac"
    alive = f"cat {fake.folder}/children 2>/dev/null | while read p; do grep -s State:.[RSD] /proc/$p/status; done"
    slow = f"{fields_of}; {alive} >>{fake.folder}/overlaps; echo $$ >>{fake.folder}/children"
    fake.says("sacct", "", after=f"{slow}; sleep 300 & echo $! >>{fake.folder}/children; wait")
    every = {collector.name: 0.0 for collector in COLLECTORS} | {"records": 1.0, "records_running": 1.0}
    asks = SlurmSettings(**{**settings_dict(settings), "accounting_timeout_s": 0.4, "intervals": every})
    agent = make_agent(bus, asks)
    async with hearing(bus) as heard, running(agent):
        await until(lambda: agent.counts.get("slurm_outages_total.records", 0) >= 3)
        asked = agent.counts["slurm_answers_total.jobs"]
        await until(lambda: agent.counts["slurm_answers_total.jobs"] >= asked + 3)
        await until(lambda: "no answer in 0.4 s" in (heard.clusters[-1].get("outages") or {}).get("records", ""))
        assert heard.clusters[-1]["controller"] == "up"
        assert heard.job_events() == [("481", "started", "RUNNING")]
    assert (fake.folder / "overlaps").read_text() == ""
    children = [int(pid) for pid in (fake.folder / "children").read_text().split()]
    assert len(children) >= 6
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "children of children too")


def settings_dict(settings: SlurmSettings) -> dict[str, Any]:
    return {field.name: getattr(settings, field.name) for field in fields(settings)}


def test_the_wait_grows_with_failures_and_has_a_ceiling(settings: SlurmSettings) -> None:
    agent = Agent.__new__(Agent)
    agent.settings = SlurmSettings(max_backoff_s=60.0)
    turn = Turn("jobs", 10.0)
    assert all(9 <= agent.wait_s(turn) <= 11 for _ in range(100))
    turn.failures = 2
    waits = [agent.wait_s(turn) for _ in range(200)]
    assert min(waits) >= 5
    assert 20 < max(waits) <= 40
    turn.failures = 10_000
    assert max(agent.wait_s(turn) for _ in range(200)) <= 60
    assert len({agent.wait_s(turn) for _ in range(10)}) == 10, "jitter"


async def test_a_job_too_large_for_the_bus_goes_without_its_lists(
    bus: Bus, fake: FakeSlurm, settings: SlurmSettings
) -> None:
    count = 60_000
    row = job_row(nodes=f"gn[1-{count}]", gres_detail=["gpu:h100:8(IDX:0-7)"] * count)
    fake.says("squeue", answer(jobs=[row, job_row(500)]))
    async with hearing(bus) as heard:
        agent = make_agent(bus, settings)
        assert await agent.once()
        await until(lambda: len(heard.jobs) == 2)
        large = next(m for m in heard.jobs if m["job_id"] == "481")
        assert (len(large["nodes"]), large["gpus_source"], large["gpus_per_node"]) == (count, "unknown", 8)
        assert "gpus" not in large


async def test_rows_that_cannot_be_read_are_counted_and_lose_no_other(
    bus: Bus, fake: FakeSlurm, settings: SlurmSettings
) -> None:
    fake.says("squeue", answer(jobs=[job_row(nodes="gn[1-"), job_row(500)]))
    agent = make_agent(bus, settings)
    async with hearing(bus) as heard:
        assert await agent.once()
        await until(lambda: len(heard.jobs) == 1)
        assert agent.metrics()["slurm_unreadable_rows_total.jobs"] == 1
        assert heard.jobs[0]["job_id"] == "500"


async def test_reading_back_takes_this_cluster_only_and_what_is_recent(bus: Bus) -> None:
    for cluster, job in (("north", "1"), ("south", "2")):
        message = {"v": 1, "cluster": cluster, "ts": 5, "event": "started", "job_id": job, "nodes": ["gn1"]}
        await bus.publish_acked(subjects.job_event(cluster, job), "JobEvent", encode("JobEvent", message), f"x{job}")
    back = await read_back(bus, "slurm", 10 * NS)
    assert set(back.jobs) == {"1"}
    assert back.last_success_ts_ns is None


async def test_a_bus_that_goes_away_and_comes_back_loses_no_change(
    bus: Bus, nats_server: NatsServer, fake: FakeSlurm, settings: SlurmSettings
) -> None:
    agent = make_agent(bus, settings)
    async with hearing(bus) as heard, running(agent):
        await until(lambda: len(heard.jobs) == 1)
        nats_server.kill()
        fake.says("squeue", answer(jobs=[job_row(500)]))
        await until(lambda: not bus.client.is_connected)
        nats_server.start()
        await until(lambda: len(heard.jobs) == 3)
        assert sorted(heard.job_events()[1:]) == [("481", "ended", "UNKNOWN"), ("500", "started", "RUNNING")]


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def config(tmp_path: Path, bus_settings: BusSettings, fake: FakeSlurm) -> Path:
    path = tmp_path / "slurm.toml"
    path.write_text(
        f'[bus]\nservers = ["{bus_settings.servers[0]}"]\ncluster = "north"\n'
        f'[slurm]\nbin_dir = "{fake.folder}"\njobs_interval_s = 0.2\nnodes_interval_s = 0.2\n'
    )
    return path


async def run_program(*argv: str | Path) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_once_publishes_and_says_by_its_status_whether_slurm_answered(
    bus: Bus, config: Path, fake: FakeSlurm
) -> None:
    async with hearing(bus) as heard:
        assert (await run_program("--config", config, "--once"))[0] == 0
        await until(lambda: len(heard.jobs) == 1 and len(heard.nodes) == 2)
        fake.says("squeue", "", err=UNABLE, rc=1)
        status, _, err = await run_program("--config", config, "--once")
        assert status == 1
        assert "Unable to contact" in err
        assert len(heard.jobs) == 1


async def test_the_program_ends_at_sigterm_and_leaves_no_child(bus: Bus, config: Path, fake: FakeSlurm) -> None:
    fake.says("squeue", "", after="sleep 300")
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "--config", config, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    await until(lambda: any(call.startswith("squeue") for call in fake.calls))
    os.kill(process.pid, signal.SIGTERM)
    assert await process.wait() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in fake.pids)


async def test_the_settings_in_force_are_printed_as_toml(config: Path) -> None:
    import tomllib

    status, out, _ = await run_program(
        "--config", config, "--interval", "3", "--slurm-bin-dir", "/opt/x", "--print-config"
    )
    assert status == 0
    found = tomllib.loads(out)
    assert (found["slurm"]["jobs_interval_s"], found["slurm"]["bin_dir"], found["bus"]["cluster"]) == (
        3.0,
        "/opt/x",
        "north",
    )
    assert build(SlurmSettings, found["slurm"], "slurm").nodes_interval_s == 4.5


async def test_every_fault_of_the_settings_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('[slurm]\ntypo = 1\n[bus]\ncreds = "/no/such"\n[other]\n')
    status, _, err = await run_program("--config", path)
    assert status == 2
    assert "slurm.typo" in err
    assert "bus.creds" in err
    assert "other" in err
    path.write_text('[slurm]\ntimeout_s = 0\ncontroller_zone = "Mars/Base"\nfeed = ""\n')
    _, _, err = await run_program("--config", path)
    assert all(word in err for word in ("timeout_s", "Mars/Base", "feed"))


async def test_a_cancellation_that_is_swallowed_is_said_again() -> None:
    stop = asyncio.Event()
    swallowed = 0

    async def work() -> None:
        nonlocal swallowed
        stop.set()
        while swallowed < 2:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.sleep(60)

    await until_stopped(stop, work())
    assert swallowed == 2


async def test_what_goes_wrong_in_the_work_is_not_lost() -> None:
    async def work() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await until_stopped(asyncio.Event(), work())
