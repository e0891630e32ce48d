"""The command line of a real Slurm: drains, the way back, jobs and their requeue."""

import time

import pytest
from slurmfixture import slurm, slurm_cluster
from slurmsandbox import Sandbox

from heeler.drain.backend import LeaseTooShortError
from heeler.drain.ownership import Mark, is_ours
from heeler.drain.requeue import choose
from heeler.drain.scontrol import Scontrol

__all__ = ["slurm", "slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]
REASON = "heeler:xid:f-1 GPU 3 is gone"


@pytest.fixture
def scontrol(slurm: Sandbox) -> Scontrol:
    return Scontrol.of("/usr/bin/scontrol", str(slurm.conf), 10.0)


def soon() -> float:
    return time.monotonic() + 60.0


async def test_a_drain_bears_our_mark_and_the_way_back_leaves_none(slurm: Sandbox, scontrol: Scontrol) -> None:
    assert (await scontrol.drain("n001", REASON, soon())).problem == ""
    view = await scontrol.show("n001", 1)
    mark = Mark.read(view)
    assert mark is not None
    assert mark.reason == REASON
    assert is_ours(view, mark)
    slurm.drain("n001", f"{REASON} ")  # someone touches it: same words but for a blank, another time
    time.sleep(1.1)
    slurm.drain("n001", REASON)
    assert not is_ours(await scontrol.show("n001", 1), mark)
    assert (await scontrol.undrain("n001", soon())).problem == ""
    back = await scontrol.show("n001", 1)
    assert (back.state, back.draining) == ("idle", False)
    assert back.reason in (None, REASON), "24.11 keeps a reason where no accounting is, and lets nobody clear it"


async def test_a_node_that_is_down_stays_down_on_its_way_back(slurm: Sandbox, scontrol: Scontrol) -> None:
    slurm.run("scontrol", "update", "nodename=n002", "state=down", "reason=psu")
    slurm.run("scontrol", "update", "nodename=n002", "state=drain", f"reason={REASON}")
    await scontrol.undrain("n002", soon())
    view = await scontrol.show("n002", 1)
    assert view.state == "down"


async def test_a_lease_that_is_too_short_runs_no_command(slurm: Sandbox, scontrol: Scontrol) -> None:
    with pytest.raises(LeaseTooShortError):
        await scontrol.undrain("n001", time.monotonic() + 1.0)
    with pytest.raises(LeaseTooShortError):
        await scontrol.drain("n001", REASON, time.monotonic() + 1.0)
    assert slurm.node("n001").state.flags == ()


async def test_jobs_are_read_with_what_a_requeue_depends_on(slurm: Sandbox, scontrol: Scontrol) -> None:
    may = slurm.submit("sleep 300", "-N1", "-w", "n003", "--gres=gpu:4", "--requeue", "--comment=mine; and | mine")
    may_not = slurm.submit("sleep 300", "-N1", "-w", "n003", "--gres=gpu:4", "--no-requeue")
    for job in (may, may_not):
        slurm.wait_job(job, "RUNNING")
    jobs = {job.id: job for job in await scontrol.jobs_on("n003")}
    assert (jobs[may].batch, jobs[may].requeueable, jobs[may].restarts) == (True, True, 0)
    assert jobs[may_not].requeueable is False
    chosen, left = choose(jobs.values(), [may, may_not])
    assert [job.id for job in chosen] == [may]
    assert list(left) == [may_not]

    await scontrol.drain("n003", REASON, soon())
    done = await scontrol.requeue(jobs[may], "theirs; heeler: requeued off n003 (finding f-1): hang", soon())
    assert done.problem == ""
    after = await scontrol.job(may)
    assert after is not None
    assert after.restarts == 1
    assert after.admin_comment == "theirs; heeler: requeued off n003 (finding f-1): hang"
    assert "mine; and | mine" in slurm.run("scontrol", "show", "job", may)
    assert (await scontrol.requeue(jobs[may_not], "x", soon())).problem != ""
    assert slurm.job_state(may_not) == "RUNNING"


async def test_a_job_that_slurm_does_not_know_is_none(slurm: Sandbox, scontrol: Scontrol) -> None:
    assert await scontrol.job("999999") is None
    assert slurm.names
