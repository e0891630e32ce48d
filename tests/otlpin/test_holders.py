"""Who holds a GPU, by values of the job map and inventories."""

from typing import Any

import pytest

from heeler.otlpin.holders import SEVERAL, Found, Gpu, Holders

NOW = 1_000_000_000_000
DAY = 86_400 * 1_000_000_000


def job(number: int, source: str = "slurm_index", **more: Any) -> dict[str, Any]:
    return {
        "job_id": str(number),
        "gpus_source": source,
        "user": f"u{number}",
        "account": "ml",
        "partition": "a",
        **more,
    }


def gpu(at: int, **more: Any) -> dict[str, Any]:
    # Minor numbers run against the indices: who takes one for the other is wrong.
    return {"uuid": f"GPU-{at}", "index": at, "minor": 3 - at, "pci": f"0000:{at}b:00", **more}


MIG = [{"uuid": f"MIG-{n}", "gi": n, "ci": 0} for n in (7, 8)]


def known(*jobs: dict[str, Any], gpus: list[dict[str, Any]] | None = None, trust_index: bool = False) -> Holders:
    holders = Holders(2 * DAY, trust_index)
    holders.put("n1", {"ts": NOW - DAY, "jobs": list(jobs)})
    if gpus is not None:
        holders.inventory({"node": "n1", "gpus": gpus})
    return holders


def who(holders: Holders, asked: Gpu, node: str = "n1") -> str:
    found = holders.of_gpu(node, asked, NOW)
    return dict(found.attributes).get("slurm.job.id", found.what)


FOUR = [gpu(at) for at in range(4)]


def test_a_uuid_goes_before_an_index() -> None:
    holders = known(job(1, uuids=["GPU-0"]), job(2, uuids=["GPU-1"]), gpus=FOUR)
    assert who(holders, Gpu(uuid="GPU-1", index=0, pci="0000:0b:00")) == "2"
    assert who(holders, Gpu(index=0, pci="0000:1b:00")) == "1"
    assert who(holders, Gpu(pci="00000000:1B:00.0")) == "2"
    assert who(holders, Gpu(uuid="GPU-3")) == "free"


def test_all_that_is_known_of_the_job_stands_on_the_point() -> None:
    found = known(job(1, uuids=["GPU-0"])).of_gpu("n1", Gpu("GPU-0"), NOW)
    assert found == Found(
        "held",
        (("slurm.job.id", "1"), ("slurm.user", "u1"), ("slurm.account", "ml"), ("slurm.partition", "a")),
    )


def test_slurm_s_indices_are_minor_numbers_and_the_inventory_says_which() -> None:
    holders = known(job(1, indices=[0, 1]), job(2, indices=[3]), gpus=FOUR)
    assert [who(holders, Gpu(index=at)) for at in range(4)] == ["2", "free", "1", "1"]
    assert [who(holders, Gpu(uuid=f"GPU-{at}")) for at in range(4)] == ["2", "free", "1", "1"]


def test_without_an_inventory_an_index_is_only_believed_where_the_site_says_so() -> None:
    jobs = (job(1, indices=[0, 1]), job(2, indices=[3]))
    assert who(known(*jobs), Gpu(index=0)) == "unknown_gpu"
    assert who(known(*jobs, trust_index=True), Gpu(index=0)) == "1"
    assert who(known(*jobs, trust_index=True), Gpu(index=2)) == "free"


def test_a_gpu_that_several_share_is_several_s_and_what_they_have_in_common_is_told() -> None:
    shared = [job(n, "unknown", uuids=["GPU-0"]) for n in (1, 2)]
    found = known(*shared, gpus=FOUR).of_gpu("n1", Gpu("GPU-0"), NOW)
    about = {"slurm.job.id": SEVERAL, "slurm.user": SEVERAL, "slurm.account": "ml", "slurm.partition": "a"}
    assert (found.what, dict(found.attributes)) == ("several", about)


def test_where_another_job_s_shards_may_be_on_it_nobody_is_named() -> None:
    assert who(known(job(1, "unknown", uuids=["GPU-0"]), job(2, "unknown"), gpus=FOUR), Gpu("GPU-0")) == "unknown_gpu"
    assert who(known(job(1, uuids=["GPU-0"]), job(2, "unknown"), gpus=FOUR), Gpu("GPU-0")) == "1"
    assert who(known(job(1, uuids=["GPU-0"]), job(2, "unknown"), gpus=FOUR), Gpu("GPU-1")) == "unknown_gpu"


def test_a_job_that_has_all_of_a_node_has_each_of_its_gpus() -> None:
    holders = known(job(1, "whole_node"))
    for asked in (Gpu("GPU-9"), Gpu(index=5), Gpu(pci="0000:1b:00"), Gpu("GPU-9", gi=3)):
        assert who(holders, asked) == "1"


def test_a_mig_device_is_found_by_its_uuid_and_by_its_instance() -> None:
    holders = known(job(1, uuids=["MIG-7"]), job(2, uuids=["MIG-8"]), gpus=[gpu(0, mig=True, mig_devices=MIG), gpu(1)])
    assert who(holders, Gpu("MIG-7")) == "1"
    assert who(holders, Gpu("GPU-0", gi=8)) == "2"
    assert who(holders, Gpu(index=0, gi=8)) == "2"
    assert who(holders, Gpu("GPU-0", gi=9)) == "unknown_gpu"
    assert who(holders, Gpu("GPU-0")) == SEVERAL
    assert who(holders, Gpu("GPU-1")) == "free"


def test_a_divided_gpu_is_the_job_s_that_has_all_of_it_and_nobody_s_while_a_part_is_free() -> None:
    gpus = [gpu(0, mig=True, mig_devices=MIG)]
    assert who(known(job(1, uuids=["MIG-7", "MIG-8"]), gpus=gpus), Gpu("GPU-0")) == "1"
    assert who(known(job(1, uuids=["MIG-7"]), gpus=gpus), Gpu("GPU-0")) == "free"


def test_without_an_inventory_a_gpu_beside_mig_devices_may_be_theirs() -> None:
    holders = known(job(1, uuids=["MIG-7"]), job(2, indices=[1]), trust_index=True)
    assert who(holders, Gpu("GPU-0")) == "unknown_gpu"
    assert who(holders, Gpu(index=1)) == "unknown_gpu", "Slurm numbers MIG devices too"


def test_a_job_without_gpus_holds_none() -> None:
    holders = known(job(1, "none", indices=[], uuids=[]), gpus=FOUR)
    assert who(holders, Gpu("GPU-0")) == "free"
    assert holders.of_node("n1", NOW).what == "held"


def test_nodes_are_free_held_or_several_s() -> None:
    assert known().of_node("n1", NOW) == Found("free")
    assert dict(known(job(1)).of_node("n1", NOW).attributes)["slurm.job.id"] == "1"
    assert dict(known(job(1), job(2)).of_node("n1", NOW).attributes)["slurm.job.id"] == SEVERAL


@pytest.mark.parametrize("node", ["n2", "n2.example.org", "10.0.0.1"])
def test_a_node_that_slurm_has_not_is_unknown(node: str) -> None:
    assert known(job(1)).of_node(node, NOW).what == "unknown_node"
    assert known(job(1)).of_gpu(node, Gpu("GPU-0"), NOW).what == "unknown_node"


def test_a_full_host_name_is_slurm_s_short_one() -> None:
    assert who(known(job(1, uuids=["GPU-0"])), Gpu("GPU-0"), "n1.example.org") == "1"


def test_a_map_that_nobody_keeps_is_not_believed_and_a_key_that_goes_is_forgotten() -> None:
    holders = known(job(1, uuids=["GPU-0"]))
    assert holders.of_gpu("n1", Gpu("GPU-0"), NOW + 2 * DAY).what == "unknown_node"
    holders.drop("n1")
    assert holders.of_gpu("n1", Gpu("GPU-0"), NOW).what == "unknown_node"


def test_a_site_chooses_which_attributes_of_jobs_it_wants() -> None:
    holders = known(job(1, uuids=["GPU-0"], qos="high", array_job_id="9", name="train"))
    holders.about = ("job_id", "qos", "array_job_id")
    wanted = {"slurm.job.id": "1", "slurm.qos": "high", "slurm.job.array.id": "9"}
    assert dict(holders.of_gpu("n1", Gpu("GPU-0"), NOW).attributes) == wanted
