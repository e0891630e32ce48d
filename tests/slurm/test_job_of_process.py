"""The node agent finds the job of a process on a GPU by the cgroup that a real Slurm puts it in."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml
from natsserver import wait_for
from needs import need
from nodeagent import AGENT
from slurmsandbox import Sandbox

pytestmark = pytest.mark.slurm
CONTROLLERS = ("freezer", "cpuset", "memory")


@pytest.fixture
def slurm_with_cgroups() -> Iterator[Sandbox]:
    """A cluster of two nodes that keeps its jobs in cgroups, under names that no other run of this test has."""
    need("slurm")
    need("agent")
    if not all(os.access(f"/sys/fs/cgroup/{name}", os.W_OK) for name in CONTROLLERS):
        pytest.skip("no writable cgroups of version 1; Slurm's plugin for version 2 needs systemd")
    sandbox = Sandbox(nodes=2, prefix=f"c{os.getpid()}x", cgroups=True)
    sandbox.start()
    yield sandbox
    sandbox.stop()


def jobs_by_process(fake: FakeNvml, pids: list[int]) -> dict[int, str | None]:
    """Ask the agent for one reading of a GPU with these processes."""
    fake.write("gpus 1\n" + "".join(f"0 process {pid} 1048576\n" for pid in pids))
    argv = [str(AGENT), "once", "-set", "cluster=north", "-set", f"nvml.library={fake.library}"]
    done = subprocess.run(argv, env=os.environ | fake.env(), capture_output=True, text=True, timeout=30, check=True)
    return {pid: job for _gpu, pid, job, *_ in json.loads(done.stdout)["GpuSample"]["procs"]}


# As vfork does: the parent waits, and cannot be interrupted, until the child ends. The number is that of this machine.
HANG = """
import ctypes, os, signal, time
print(os.getpid(), file=open("hanging", "w"), flush=True)
call = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
if ctypes.CDLL(None).syscall(call, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    time.sleep(300)
"""


def test_a_hanging_process_is_named_with_its_job(slurm_with_cgroups: Sandbox) -> None:
    slurm = slurm_with_cgroups
    program, hanging = slurm.folder / "jobs/hang.py", slurm.folder / "jobs/hanging"
    program.write_text(HANG)
    job = slurm.submit(f"exec {sys.executable} {program}", f"--nodelist={slurm.names[0]}")
    wait_for(lambda: hanging.exists() and hanging.read_text().endswith("\n"), "the job has started")
    pid = int(hanging.read_text())
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "D", "it hangs")
    argv = [str(AGENT), "once", "-set", "cluster=north", "-set", "collectors.nvml=false"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    sample = json.loads(done.stdout)["HostSample"]
    assert (pid, job) in [(p["pid"], p.get("job_id")) for p in sample["uninterruptible"]]
    assert sample["threads_uninterruptible"] >= len(sample["uninterruptible"])


def test_the_job_of_each_process_on_a_gpu(slurm_with_cgroups: Sandbox, tmp_path: Path) -> None:
    slurm, fake = slurm_with_cgroups, FakeNvml(tmp_path)
    told = slurm.folder / "jobs"

    def pid(name: str) -> int:
        path = told / name
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"), f"{name} has started")
        return int(path.read_text())

    # The batch script, a step, and one that claims to be of another job and has left its parents.
    first = slurm.submit(
        "SLURM_JOB_ID=999 setsid sh -c 'echo $$ >liar; exec sleep 300' & "
        "srun sh -c 'echo $$ >step; exec sleep 300' & echo $$ >batch; wait",
        f"--nodelist={slurm.names[0]}",
    )
    second = slurm.submit("echo $$ >second; sleep 300", f"--nodelist={slurm.names[1]}")
    # A daemon of this node, and one with a job's environment but outside of all jobs.
    outside = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"SLURM_JOB_ID": first})
    try:
        pids = {name: pid(name) for name in ("batch", "step", "liar", "second")}
        found = jobs_by_process(fake, [*pids.values(), outside.pid, 1])
        assert {name: found[number] for name, number in pids.items()} == {
            "batch": first,
            "step": first,
            "liar": first,
            "second": second,
        }
        assert (found[outside.pid], found[1]) == (None, None)
        # Where the cgroup doesn't tell the number, the agent goes by what slurmstepd calls itself.
        parent = Path(f"/proc/{pids['batch']}/stat").read_text().rpartition(")")[2].split()[1]
        assert Path(f"/proc/{parent}/cmdline").read_bytes().rstrip(b"\0") == f"slurmstepd: [{first}.batch]".encode()
        slurm.cancel(first)
        wait_for(lambda: not Path(f"/proc/{pids['step']}").exists(), "the step has ended")
        assert jobs_by_process(fake, [pids["step"], pids["second"]]) == {pids["step"]: None, pids["second"]: second}
    finally:
        outside.communicate()
