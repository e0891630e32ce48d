"""Jobs that share a GPU by shards on a real Slurm: neither fails for what the other does there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from natsserver import wait_for
from needs import need
from slurmhealth import HealthSite
from slurmsandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]
CONTROLLERS = ("freezer", "cpuset", "memory")
GRES_CONF = """Name=gpu Type=h100 File={dev}/nvidia0
Name=gpu Type=h100 File={dev}/nvidia1
Name=shard Count=4 File={dev}/nvidia0
Name=shard Count=4 File={dev}/nvidia1
"""
ENFORCED = "".join(
    f'[checks.{name}]\nenforce = ["prolog", "epilog"]\n' for name in ("gpu_leftover_processes", "gpu_memory_returned")
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HealthSite]:
    need("slurm")
    if not all(os.access(f"/sys/fs/cgroup/{name}", os.W_OK) for name in CONTROLLERS):
        pytest.skip("no writable cgroups of version 1; Slurm's plugin for version 2 needs systemd")
    settings = HealthSite.settings(tmp_path, {"Prolog": "prolog.sh", "Epilog": "epilog.sh"})
    settings |= {"ProctrackType": "proctrack/linuxproc", "PrologEpilogTimeout": "120", "GresTypes": "gpu,shard"}
    sandbox = Sandbox(
        nodes=1,
        gpus=2,
        prefix=f"s{os.getpid()}x",
        cgroups=True,
        settings=settings,
        cgroup_conf="ConstrainRAMSpace=yes\n",
        gres="gpu:h100:2,shard:8",
        gres_conf=GRES_CONF,
    )
    made = HealthSite(tmp_path, sandbox)
    try:
        sandbox.start()
        yield made
    finally:
        sandbox.stop()


def start(site: HealthSite, name: str) -> tuple[str, int]:
    """Start a job with two shards; return its id and its process on the GPU."""
    job = site.slurm.submit(f"echo $$ >{name}; sleep 300", "--gres=shard:2", user="nobody")
    path = site.slurm.folder / "jobs" / name
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), f"{name} has started")
    return job, int(path.read_text())


def test_jobs_that_share_a_gpu_fail_neither_at_their_start_nor_at_their_end(site: HealthSite) -> None:
    node = site.slurm.names[0]
    site.policy(node, ENFORCED)
    gpus = f"gpus 2\nseed {node}\n0 busy\n"
    first, pid = start(site, "first")
    site.nvml[node].write(f"{gpus}0 process {pid} 1048576\n")
    second, other = start(site, "second")
    site.nvml[node].write(f"{gpus}0 process {pid} 1048576\n0 process {other} 1048576\n")
    began = site.run_of(node, "prolog", second)
    assert (began["verdict"], began["gpus"]) == ("pass", site.run_of(node, "prolog", first)["gpus"])
    site.slurm.cancel(first)
    over = site.run_of(node, "epilog", first)
    assert (over["verdict"], over.get("killed")) == ("pass", None)
    assert over["duration_ns"] < 5 * 10**9, "the memory of a job that runs is not waited for"
    assert site.slurm.job_state(second) == "RUNNING"
    assert "DRAIN" not in site.slurm.node(node).flags
