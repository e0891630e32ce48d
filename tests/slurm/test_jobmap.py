"""The job map: what stands under each key, and that only a whole answer of Slurm changes it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakeslurm import FakeSlurm
from heard import running
from jsonschema import Draft202012Validator
from slurmdata import answer, job_row, node_row
from waiting import until

from heeler.bus import Bus, encode, subjects
from heeler.bus.admin import init
from heeler.bus.values import Values
from heeler.slurm import jobmap
from heeler.slurm.agent import Agent, make_agent
from heeler.slurm.jobmap import NodeGpus, Told
from heeler.slurm.settings import SlurmSettings

NS = 1_000_000_000
UNABLE = "Unable to contact slurm controller (connect failure)"
SCHEMA = Path(__file__).resolve().parents[2] / "schemas/buckets/job_map.v1.schema.json"
UUIDS = [f"GPU-{minor:08x}-0000-0000-0000-000000000000" for minor in range(8)]
MIG = [f"MIG-{number:08x}-0000-0000-0000-000000000000" for number in range(3)]


def inventory(node: str = "gn1", *, minors: list[int] | None = None, divided: int | None = None) -> dict[str, Any]:
    """Return the Inventory of a node: GPUs in NVML's order, with their minors; one may be divided into MIG devices."""
    gpus: list[dict[str, Any]] = [
        {"uuid": UUIDS[minor], "index": index, "minor": minor}
        for index, minor in enumerate(range(8) if minors is None else minors)
    ]
    for gpu in gpus:
        gpu["mig"] = gpu["minor"] == divided
        if gpu["mig"]:
            gpu["mig_devices"] = [{"uuid": uuid, "gi": gi} for gi, uuid in enumerate(MIG)]
    return {"v": 1, "cluster": "test", "node": node, "ts": NS, "boot": "b", "seq": 1, "gpus": gpus}


def job(job_id: str = "1", *nodes: str, **more: Any) -> dict[str, Any]:
    event = {"v": 1, "cluster": "test", "ts": 5 * NS, "event": "started", "job_id": job_id, "state": "RUNNING"}
    return {**event, "start_ts": 1000 * NS, "nodes": list(nodes or ("gn1",)), "gpus_source": "slurm_index", **more}


def values(
    *jobs: dict[str, Any], gpus: dict[str, NodeGpus] | None = None, told: dict[str, Told] | None = None
) -> dict[str, dict[str, Any]]:
    known = {"gn1": jobmap.node_gpus(inventory())} if gpus is None else gpus
    said = {("gn1", name): one for name, one in (told or {}).items()}
    keyed = jobmap.values_of("test", jobs, ["gn1", "gn2"], known, said)
    assert all(key.startswith("test.") for key in keyed), "several clusters may share a bus"
    found = {key.removeprefix("test."): value for key, value in keyed.items()}
    for key, value in found.items():
        assert_fits(key, {**value, "ts": 1})
    return found


def assert_fits(key: str, value: dict[str, Any]) -> None:
    schema = json.loads(SCHEMA.read_text())
    part = schema["$defs"][key.split(".")[-2]]
    Draft202012Validator({**part, "$schema": schema["$schema"]}).validate(value)
    entries = value.get("jobs", [])
    assert value.keys() <= part["properties"].keys()
    for entry in entries:
        assert entry.keys() <= part["properties"]["jobs"]["items"]["properties"].keys()


def at(found: dict[str, dict[str, Any]], node: str = "gn1") -> dict[str, tuple[Any, Any, Any]]:
    """Return indices, UUIDs and how they are known by job."""
    return {
        entry["job_id"]: (entry.get("indices"), entry.get("uuids"), entry.get("uuids_source"))
        for entry in found[f"node.{node}"]["jobs"]
    }


def test_slurms_index_is_the_minor_and_not_nvmls_place() -> None:
    shuffled = {"gn1": jobmap.node_gpus(inventory(minors=[4, 6, 0, 2, 1, 7, 3, 5]))}
    found = values(job(gpus={"gn1": [0]}), gpus=shuffled)
    assert at(found) == {"1": ([0], [UUIDS[0]], "inventory")}
    assert found["job.1"]["uuids"] == {"gn1": [UUIDS[0]]}
    assert found["job.1"]["gpus"] == {"gn1": [0]}


def test_on_a_shared_node_each_job_has_its_own_gpus() -> None:
    found = values(job("10", gpus={"gn1": [2, 3]}), job("9", gpus={"gn1": [0, 1]}))
    assert at(found) == {"9": ([0, 1], UUIDS[:2], "inventory"), "10": ([2, 3], UUIDS[2:4], "inventory")}
    assert [entry["job_id"] for entry in found["node.gn1"]["jobs"]] == ["9", "10"]
    assert found["node.gn2"]["jobs"] == [], "nobody has it, and that is known"


def test_an_exclusive_job_that_asked_for_no_gpu_has_none() -> None:
    found = values(job(gpus_source="none", exclusive=True))
    assert at(found) == {"1": ([], [], None)}
    assert found["node.gn1"]["jobs"][0]["exclusive"] is True
    assert "uuids" not in found["job.1"]


def test_a_whole_node_is_all_gpus_of_its_inventory() -> None:
    assert at(values(job(gpus_source="whole_node"))) == {"1": (list(range(8)), UUIDS, "inventory")}
    assert at(values(job(gpus_source="whole_node"), gpus={})) == {"1": (None, None, None)}


@pytest.mark.parametrize("source", ["unknown", "slurm_index"])
def test_what_is_not_known_of_a_jobs_gpus_has_no_key(source: str) -> None:
    assert at(values(job(gpus_source=source))) == {"1": (None, None, None)}, "shards, or an index list that is not told"


def test_a_prolog_knows_the_uuids_of_shards_and_mig_devices() -> None:
    told = Told(1001 * NS, (MIG[1],), (5,))
    assert at(values(job(gpus_source="unknown"), told={"1": told})) == {"1": ([5], [MIG[1]], "prolog")}
    shared = {"1": Told(1001 * NS, (UUIDS[3],), (3,)), "2": Told(1001 * NS, (UUIDS[3],), (3,))}
    both = values(job("1", gpus_source="unknown"), job("2", gpus_source="unknown"), told=shared)
    assert at(both) == {name: ([3], [UUIDS[3]], "prolog") for name in ("1", "2")}


def test_a_prologs_word_on_an_earlier_run_is_not_of_this_one() -> None:
    old = Told(500 * NS, (UUIDS[7],), (7,))
    assert at(values(job(gpus={"gn1": [0]}, restarts=1), told={"1": old})) == {"1": ([0], [UUIDS[0]], "inventory")}


def test_on_a_node_with_a_divided_gpu_an_index_is_a_minor_only_below_it() -> None:
    gpus = {"gn1": jobmap.node_gpus(inventory(divided=3))}
    found = values(job("1", gpus={"gn1": [0, 2]}), job("2", gpus={"gn1": [4]}), gpus=gpus)
    assert at(found) == {"1": ([0, 2], [UUIDS[0], UUIDS[2]], "inventory"), "2": ([4], None, None)}
    whole = at(values(job(gpus_source="whole_node"), gpus=gpus))["1"]
    assert whole == (None, sorted([*UUIDS[:3], *UUIDS[4:], *MIG]), "inventory"), "a divided GPU is its MIG devices"


def test_jobs_of_arrays_and_heterogeneous_jobs_stand_under_their_own_numbers() -> None:
    found = values(job("126", array_job_id="123", array_task_id="1"), job("5", "gn2", het_job_id="4"))
    assert {key for key in found if key.startswith("job.")} == {"job.126", "job.5"}
    assert (found["job.126"]["array_job_id"], found["job.126"]["array_task_id"]) == ("123", "1")
    assert found["node.gn2"]["jobs"][0]["het_job_id"] == "4"


def test_a_large_job_has_its_uuids_at_its_nodes_only() -> None:
    names = [f"n{number}" for number in range(65)]
    gpus = {name: jobmap.node_gpus(inventory(name)) for name in names}
    found = values(job("1", *names, gpus_source="whole_node"), gpus=gpus)
    assert "uuids" not in found["job.1"]
    assert found["node.n64"]["jobs"][0]["uuids"] == UUIDS
    few = values(job("1", *names[:64], gpus_source="whole_node"), gpus=gpus)
    assert len(few["job.1"]["uuids"]) == 64


def test_names_are_tokens_as_in_subjects() -> None:
    assert "test.node.gpu-a07=2Eexample" in jobmap.values_of("test", [job("1", "gpu-a07.example")], [], {}, {})


# On a bus


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    found = FakeSlurm(tmp_path / "bin")
    found.says("scontrol", answer(nodes=[node_row("gn1"), node_row("gn2")]))
    found.says("squeue", answer(jobs=[job_row()]))
    return found


def feed(bus: Bus, fake: FakeSlurm) -> Agent:
    return make_agent(
        bus,
        SlurmSettings(
            bin_dir=str(fake.folder), timeout_s=20.0, jobs_interval_s=0.2, nodes_interval_s=0.2, max_backoff_s=0.3
        ),
    )


async def stands(bus: Bus) -> dict[str, dict[str, Any]]:
    """Return what stands in the bucket; our keys without the cluster."""
    ours = f"{bus.cluster}."
    found = {
        key.removeprefix(ours): msgspec.msgpack.decode(value)
        for key, value in (await (await Values.open(bus, "job_map")).all()).items()
    }
    for key, value in found.items():
        assert_fits(key, value)
    return found


async def jobs_in(bus: Bus) -> set[str]:
    return {key.removeprefix("job.") for key in await stands(bus) if key.startswith("job.")}


async def tell(bus: Bus, event: str, job_id: str = "481", node: str = "gn1", **more: Any) -> None:
    seq = {"v": 1, "cluster": bus.cluster, "node": node, "boot": "b", "seq": 1, "event": event, "job_id": job_id}
    message = {**seq, "ts": 1011 * NS, **more}
    ident = f"{event}.{job_id}.{node}.{more}"
    subject = subjects.prolog_event(bus.cluster, node)
    await bus.publish_acked(subject, "PrologEvent", encode("PrologEvent", message), ident)


async def give_inventory(bus: Bus, node: str) -> None:
    message = {**inventory(node), "cluster": bus.cluster}
    await bus.publish_acked(
        subjects.inventory(bus.cluster, node), "Inventory", encode("Inventory", message), f"inventory.{node}"
    )


@pytest.mark.bus
async def test_a_job_is_in_the_map_from_its_start_to_its_end(bus: Bus, fake: FakeSlurm) -> None:
    await give_inventory(bus, "gn1")
    async with running(feed(bus, fake)) as agent:
        await until(lambda: agent.counts.get("slurm_job_map_put_total", 0) >= 3)
        found = await stands(bus)
        assert set(found) == {"job.481", "node.gn1", "node.gn2"}
        assert found["job.481"]["uuids"] == {"gn1": UUIDS}
        assert (found["node.gn1"]["jobs"][0]["uuids"], found["node.gn1"]["jobs"][0]["user"]) == (UUIDS, "alice")
        assert "uuids" not in found["node.gn2"]["jobs"][0], "its inventory is not known"
        await tell(bus, "started", node="gn2", uuids=UUIDS, indices=list(range(8)))

        async def heard() -> bool:
            return bool((await stands(bus))["node.gn2"]["jobs"][0].get("uuids_source") == "prolog")

        await until(heard)
        before = agent.counts["slurm_job_map_put_total"]
        answers = agent.counts["slurm_answers_total.jobs"]
        await until(lambda: agent.counts["slurm_answers_total.jobs"] >= answers + 3)
        assert agent.counts["slurm_job_map_put_total"] == before, "what did not change is not written again"
        fake.says("squeue", answer(jobs=[job_row(state="COMPLETED", end_time=1500)]))
        await until(lambda: agent.counts.get("slurm_job_map_deleted_total", 0) >= 1)
        found = await stands(bus)
        assert set(found) == {"node.gn1", "node.gn2"}
        assert [found[key]["jobs"] for key in found] == [[], []]


@pytest.mark.bus
async def test_neither_an_outage_nor_half_an_answer_changes_the_map(bus: Bus, fake: FakeSlurm) -> None:
    fake.says("squeue", answer(jobs=[job_row(), job_row(500)]))
    async with running(feed(bus, fake)) as agent:
        await until(lambda: agent.counts.get("slurm_job_map_put_total", 0) >= 4)
        before = await stands(bus)
        for half in (
            ("", UNABLE, 1),
            ("", "", 0),
            (answer(jobs=[job_row()]) | {"errors": [{"error": "db down"}]}, "", 0),
            (answer(jobs=[job_row(), "cut off"]), "", 0),
            (answer(jobs=[job_row(600)]) | {"warnings": [{"description": "response truncated"}]}, "", 0),
        ):
            fake.says("squeue", half[0], err=half[1], rc=half[2])
            polls = sum(agent.counts.get(f"slurm_{what}_total.jobs", 0) for what in ("answers", "outages"))
            await until(
                lambda polls=polls: (
                    sum(agent.counts.get(f"slurm_{what}_total.jobs", 0) for what in ("answers", "outages")) >= polls + 3
                )
            )
            assert await stands(bus) == before, half
        fake.says("squeue", answer(jobs=[job_row(500), job_row(481, tres_alloc_str=7)]))
        answers = agent.counts["slurm_answers_total.jobs"]
        await until(lambda: agent.counts["slurm_answers_total.jobs"] >= answers + 3)
        assert await jobs_in(bus) == {"481", "500"}, "a row that can't be read, but is named, leaves its job as it was"
        fake.says("squeue", answer(jobs=[]))
        await until(lambda: agent.counts.get("slurm_job_map_deleted_total", 0) >= 2)
        assert await jobs_in(bus) == set()


@pytest.mark.bus
async def test_a_restart_puts_right_what_is_stale_and_keeps_what_a_prolog_said(bus: Bus, fake: FakeSlurm) -> None:
    async with running(feed(bus, fake)) as agent:
        await until(lambda: agent.counts.get("slurm_job_map_put_total", 0) >= 3)
        await tell(bus, "started", uuids=UUIDS[::-1], indices=list(range(8)))

        async def heard() -> bool:
            return bool((await stands(bus))["node.gn1"]["jobs"][0].get("uuids_source") == "prolog")

        await until(heard)
    await tell(bus, "ended", job_id="77")  # the newest prolog of the node is of another job by now
    bucket = await Values.open(bus, "job_map")
    stale = {"v": 1, "cluster": bus.cluster, "ts": 1, "job_id": "99", "nodes": ["gn9"], "gpus_source": "none"}
    await bucket.put(
        {
            f"{bus.cluster}.job.99": msgspec.msgpack.encode(stale),
            f"{bus.cluster}.job.7": b"\xc1 nobody reads this",
            f"{bus.cluster}.node.gn9": msgspec.msgpack.encode(
                {"v": 1, "cluster": bus.cluster, "node": "gn9", "ts": 1, "jobs": []}
            ),
            "job.98": msgspec.msgpack.encode({**stale, "job_id": "98"}),  # from before keys named their cluster
            "elsewhere.job.481": msgspec.msgpack.encode({**stale, "cluster": "elsewhere", "job_id": "481"}),
            "job.5": msgspec.msgpack.encode({**stale, "cluster": "elsewhere", "job_id": "5"}),
        }
    )
    async with running(feed(bus, fake)) as agent:
        await until(lambda: agent.counts.get("slurm_job_map_deleted_total", 0) >= 4)
        found = await stands(bus)
    theirs = {"job.5", "elsewhere.job.481"}
    assert set(found) == {"job.481", "node.gn1", "node.gn2"} | theirs, "what is another cluster's is left alone"
    assert found["node.gn1"]["jobs"][0]["uuids"] == UUIDS[::-1]


@pytest.mark.bus
async def test_without_the_bucket_the_feed_goes_on_and_counts(bus: Bus, fake: FakeSlurm) -> None:
    await bus.js.delete_key_value("job_map")
    async with running(feed(bus, fake)) as agent:
        await until(lambda: agent.counts.get("slurm_job_map_failures_total", 0) >= 2)
        assert agent.counts["slurm_published_total.jobevent"] == 1
        await init(bus, scale=0.002)
        await until(lambda: agent.counts.get("slurm_job_map_put_total", 0) >= 3)
        assert await jobs_in(bus) == {"481"}
