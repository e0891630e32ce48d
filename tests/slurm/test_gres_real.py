"""Shards, MIG devices and GPUs of several types on a real Slurm, as JSON, text and slurmrestd tell them."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from needs import need
from slurmsandbox import Sandbox

from heeler.slurm.clients import Clients
from heeler.slurm.collect import Table
from heeler.slurm.jobs import AnyJob, JobsAnswer, job_message
from heeler.slurm.nodes import NodesAnswer
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.sources import SlurmSource
from heeler.slurm.stats import stats_table

pytestmark = pytest.mark.slurm
# Two whole GPUs with four shards each, and two MIG devices.
GRES = "gpu:h100:2,gpu:1g.10gb:2,shard:8"
GRES_CONF = """Name=gpu Type=h100 File={dev}/nvidia0
Name=gpu Type=h100 File={dev}/nvidia1
Name=gpu Type=1g.10gb File={dev}/nvidia2
Name=gpu Type=1g.10gb File={dev}/nvidia3
Name=shard Count=4 File={dev}/nvidia0
Name=shard Count=4 File={dev}/nvidia1
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sandbox]:
    need("accounting")
    sandbox = Sandbox(
        2, 4, rest=True, accounting=True, settings={"GresTypes": "gpu,shard"}, gres=GRES, gres_conf=GRES_CONF
    )
    sandbox.start()
    yield sandbox
    sandbox.stop()


@pytest.fixture(scope="module")
def jobs(cluster: Sandbox) -> dict[str, str]:
    """Jobs with two shards, a MIG device, and a whole GPU; one that waits for more shards than a GPU has left."""
    asks = {"shards": "shard:2", "mig": "gpu:1g.10gb:1", "whole": "gpu:h100:1", "waits": "shard:3"}
    found = {name: cluster.submit("sleep 600", f"--gres={ask}", "-w", "n001") for name, ask in asks.items()}
    for name in ("shards", "mig", "whole"):
        cluster.wait_job(found[name], "RUNNING")
    return found


def settings(cluster: Sandbox, source: str) -> SlurmSettings:
    chosen = SlurmSettings(
        source=source, conf=str(cluster.conf), bin_dir="/usr/bin", rest_url=f"unix://{cluster.rest.socket}"
    )
    chosen.validate()
    return chosen


def rows(table: Table | None) -> dict[str, dict[str, Any]]:
    assert table is not None
    names = list(table.columns)
    return {values[0]: dict(zip(names, values, strict=True)) for values in zip(*table.columns.values(), strict=True)}


async def asked(cluster: Sandbox, source: str) -> tuple[dict[str, AnyJob], dict[str, Any], dict[str, Any]]:
    """Return the jobs, their table, and that of the nodes."""
    slurm = SlurmSource(Clients(settings(cluster, source)))
    told = (await slurm.jobs(time.time_ns(), with_table=True)).answer
    nodes = (await slurm.nodes(with_table=True)).answer
    assert isinstance(told, JobsAnswer), told
    assert isinstance(nodes, NodesAnswer), nodes
    assert told.unreadable == nodes.unreadable == ()
    return {job.id: job for job in told.jobs}, rows(told.table), rows(nodes.table)


def event(job: AnyJob) -> dict[str, Any]:
    return job_message(job, cluster="c", event="started", ts_ns=1, node_gpus={"n001": 4, "n002": 4})


@pytest.mark.parametrize("source", ["json", "rest", "text"])
async def test_no_shard_is_a_gpu_and_each_gpu_is_counted_once(
    cluster: Sandbox, jobs: dict[str, str], source: str
) -> None:
    told, table, nodes = await asked(cluster, source)
    wanted = {  # GPUs asked for, GPUs it has, shards asked for
        "shards": (0, 0, 2),
        "mig": (1, 1, 0),
        "whole": (1, 1, 0),
        "waits": (0, 0, 3),
    }
    columns = ("gpus_requested", "gpus_allocated", "shards_requested")
    assert {name: tuple(table[jobs[name]][key] for key in columns) for name in wanted} == wanted
    assert table[jobs["shards"]]["shards_allocated"] == (None if source == "text" else 2)
    assert table[jobs["mig"]]["gpus_requested_by_type"] == {"1g.10gb": 1}
    node, idle = nodes["n001"], nodes["n002"]
    assert (node["gpus"], node["gpus_by_type"], node["shards"]) == (4, {"h100": 2, "1g.10gb": 2}, 8)
    assert (node["gpus_used"], node["gpus_used_by_type"]) == (2, {"h100": 1, "1g.10gb": 1})
    assert (idle["gpus_used"], idle["shards_used"]) == (0, 0)
    assert node["shards_used"] > 0
    shards = event(told[jobs["shards"]])
    assert (shards["gpus_source"], "gpus" in shards, "gpus_per_node" in shards) == ("unknown", False, False)


@pytest.mark.parametrize("source", ["json", "rest"])
async def test_indices_of_whole_gpus_and_mig_devices_are_told(
    cluster: Sandbox, jobs: dict[str, str], source: str
) -> None:
    told, table, nodes = await asked(cluster, source)
    whole, mig = event(told[jobs["whole"]]), event(told[jobs["mig"]])
    assert (mig["gpus"], mig["gpus_source"]) == ({"n001": [2]}, "slurm_index")
    assert (whole["gpus"], whole["gpus_source"]) == ({"n001": [1]}, "slurm_index")
    assert table[jobs["whole"]]["gpus_allocated_by_type"] == {"h100": 1}
    assert table[jobs["mig"]]["gpus_allocated_by_type"] == {"1g.10gb": 1}
    assert nodes["n001"]["gpu_indices_used"] == [1, 2]


async def test_a_gpu_with_shards_in_use_is_neither_allocated_nor_free(cluster: Sandbox, jobs: dict[str, str]) -> None:
    assert jobs
    slurm = SlurmSource(Clients(settings(cluster, "json")))
    told, nodes = (await slurm.jobs(1, with_table=True)).answer, (await slurm.nodes(with_table=True)).answer
    assert isinstance(nodes, NodesAnswer)
    assert isinstance(told, JobsAnswer)
    assert told.table is not None
    sums = rows(stats_table(told.table, nodes.table, time.time_ns()))["cluster"]
    assert (sums["gpus"], sums["gpus_allocated"], sums["gpus_shared"], sums["gpus_available"]) == (8, 2, 1, 5)
