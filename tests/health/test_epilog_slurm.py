"""The epilog on a real Slurm with cgroups: what the ended job left on its GPUs is ended, and nobody else."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from natsserver import wait_for
from needs import need
from slurmhealth import HealthSite
from slurmsandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]
CONTROLLERS = ("freezer", "cpuset", "memory")
KILL = "[leftovers]\nenabled = true\nterm_s = 0.5\nkill_s = 3.0\n"

# A daemon of a job: it has left its parents, and ignores SIGTERM, so that only SIGKILL ends it.
DAEMON = "setsid sh -c 'trap \"\" TERM; echo $$ >{name}; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HealthSite]:
    need("slurm")
    if not all(os.access(f"/sys/fs/cgroup/{name}", os.W_OK) for name in CONTROLLERS):
        pytest.skip("no writable cgroups of version 1; Slurm's plugin for version 2 needs systemd")
    folder = tmp_path_factory.mktemp("site")
    settings = HealthSite.settings(folder, {"Prolog": "prolog.sh", "Epilog": "epilog.sh"})
    # Processes are followed by their parents here, so that a daemon outlives its job, in the job's cgroup.
    settings |= {"ProctrackType": "proctrack/linuxproc", "PrologEpilogTimeout": "120"}
    sandbox = Sandbox(
        nodes=1,
        gpus=4,
        prefix=f"e{os.getpid()}x",
        cgroups=True,
        settings=settings,
        cgroup_conf="ConstrainRAMSpace=yes\n",
    )
    made = HealthSite(folder, sandbox)
    try:
        sandbox.start()
        yield made
    finally:
        sandbox.stop()


class Scene:
    """Two jobs on one node, each with a daemon on its GPUs, and a process of the node itself."""

    def __init__(self, site: HealthSite) -> None:
        self.site, self.slurm, self.node = site, site.slurm, site.slurm.names[0]
        self.jobs, self.pids = {}, dict[str, int]()
        self.service = subprocess.Popen(["sleep", "300"])
        for name in ("first", "second"):
            script = f"{DAEMON.format(name=name)} {DAEMON.format(name=name + '-2')} sleep 300"
            self.jobs[name] = self.slurm.submit(script, "--gres=gpu:2", user="nobody")
            for each in (name, f"{name}-2"):
                self.pids[each] = self._pid(each)
        lines = [f"gpus {self.slurm.gpus}", f"seed {self.node}"]
        for gpu, name in ((0, "first"), (1, "first-2"), (2, "second"), (3, "second-2")):
            lines += [f"{gpu} process {self.pids[name]} 1048576", f"{gpu} process {self.service.pid} 1048576"]
        lines += [f"0 process {self.pids['second']} 1048576"]  # a job that shares the GPU
        site.nvml[self.node].write("\n".join(lines) + "\n")

    def _pid(self, name: str) -> int:
        path = self.slurm.folder / "jobs" / name
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"), f"{name} has started")
        pid = int(path.read_text())
        path.unlink()
        return pid

    def alive(self) -> set[str]:
        return {name for name, pid in self.pids.items() if runs(pid)}

    def end(self) -> None:
        self.service.kill()
        self.service.wait()
        self.slurm.cancel_all()
        for pid in self.pids.values():
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, 9)
        time.sleep(1.1)  # their last sleep: a cgroup with a process can't be removed


def runs(pid: int) -> bool:
    """Whether a process runs: one that has ended stays in /proc until somebody reaps it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def scene(cluster: HealthSite) -> Iterator[Scene]:
    cluster.reset()
    cluster.slurm.reset()
    made = Scene(cluster)
    yield made
    made.end()


def test_exactly_the_ended_jobs_processes_are_ended(scene: Scene) -> None:
    scene.site.policy(scene.node, KILL)
    cgroup = Path(f"/proc/{scene.pids['first']}/cgroup").read_text()
    assert f"job_{scene.jobs['first']}" in cgroup, "a daemon can leave its parents, not its cgroup"
    scene.slurm.cancel(scene.jobs["first"])
    run = scene.site.run_of(scene.node, "epilog", scene.jobs["first"])
    assert scene.alive() == {"second", "second-2"}
    assert scene.service.poll() is None
    killed = {one["pid"]: one for one in run["killed"]}
    assert set(killed) == {scene.pids["first"], scene.pids["first-2"]}
    assert all(one["gone"] and one["job_id"] == scene.jobs["first"] for one in killed.values())
    scene.slurm.cancel(scene.jobs["second"])
    scene.site.run_of(scene.node, "epilog", scene.jobs["second"])
    assert scene.alive() == set()
    assert scene.service.poll() is None
    assert "DRAIN" not in scene.slurm.node(scene.node).flags


def test_by_default_nothing_is_ended_and_the_leftovers_are_told(scene: Scene) -> None:
    scene.slurm.cancel(scene.jobs["first"])
    run = scene.site.run_of(scene.node, "epilog", scene.jobs["first"])
    assert "killed" not in run
    assert (run["verdict"], run["enforcement"]) == ("would_fail", "off")
    assert run["failed"] == ["gpu_leftover_processes"]
    assert scene.alive() == {"first", "first-2", "second", "second-2"}
    results = [one for one in scene.site.sent(scene.node, "HealthResult") if one["phase"] == "epilog"]
    [leftover] = [one for one in results if one["check"] == "gpu_leftover_processes"]
    assert {one["value"] for one in leftover["evidence"]} == {scene.pids["first"], scene.pids["first-2"]}


def test_an_enforced_epilog_drains_with_our_reason(scene: Scene) -> None:
    scene.site.policy(scene.node, '[checks.gpu_leftover_processes]\nenforce = ["epilog"]\nsettle_s = 0.0\n')
    scene.slurm.cancel(scene.jobs["first"])
    run = scene.site.run_of(scene.node, "epilog", scene.jobs["first"])
    time.sleep(1.0)  # Slurm's own drain comes after ours
    node = scene.slurm.node(scene.node)
    assert "DRAIN" in node.flags
    assert (node.reason or "").startswith("heeler:epilog:gpu_leftover_processes: 2 processes")
    assert run["reason"] == node.reason
    assert scene.slurm.job_state(scene.jobs["second"]) == "RUNNING"
