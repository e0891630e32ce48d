"""Who runs on a GPU that is divided, on its parts, and on its neighbours."""

from typing import Any

import pytest
from enrichlab import S, enrich, inbound, job, jobs_by_gpu, prolog, sample, xid

from heeler.bus import subjects
from heeler.enrich import mig
from heeler.enrich.step import select

GPU0, GPU1, GPU2 = "GPU-0", "GPU-1", "GPU-2"
A, B = "MIG-a", "MIG-b"
ROWS: dict[str, list[Any]] = {
    "uuid": [GPU0, GPU1, A, B, GPU2],
    "index": [0, 1, None, None, 2],
    "minor": [0, 1, None, None, 2],
    "pci": ["0000:00:00", "0000:01:00", None, None, "0000:02:00"],
    "parent": [None, None, GPU1, GPU1, None],
    "gi": [None, None, 1, 2, None],
    "ci": [None, None, 0, 0, None],
    "profile": [None, None, "3g.40gb", "3g.40gb", None],
}


def rows(*uuids: str) -> dict[str, list[Any]]:
    """The columns of some of the GPUs, in this order."""
    at = [ROWS["uuid"].index(uuid) for uuid in uuids]
    return {name: [values[i] for i in at] for name, values in ROWS.items()}


def divided(*jobs_by_row: Any, uuids: tuple[str, ...] = (GPU0, GPU1, A, B, GPU2), **more: Any) -> Any:
    """A sample of a node whose second GPU is divided; processes as (row, job)."""
    modes = [1 if uuid == GPU1 else None if uuid.startswith("MIG") else 0 for uuid in uuids]
    return sample(
        **{
            "gpu": rows(*uuids),
            "mean": {"fb_used_bytes": list(range(len(uuids)))},
            "last": {"mig_mode": modes},
            "procs": [[row, 100 + row, name, 1] for row, name in jobs_by_row],
            **more,
        }
    )


def sources(published: list[dict[str, Any]]) -> dict[str, str | None]:
    return {u: how for out in published for u, how in zip(out["gpu"]["uuid"], out["job_source"], strict=True)}


def several(published: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {out["gpu"]["uuid"][int(at)]: names for out in published for at, names in out.get("several", {}).items()}


def test_a_node_with_a_divided_and_a_whole_gpu_gives_every_job_its_samples() -> None:
    gpus = (GPU1, A, B, GPU2)
    out = enrich(divided((1, "11"), (2, "12"), (3, "13"), uuids=gpus))
    assert jobs_by_gpu(out) == {GPU1: None, A: "11", B: "12", GPU2: "13"}
    used = {u: v for o in out for u, v in zip(o["gpu"]["uuid"], o["mean"]["fb_used_bytes"], strict=True)}
    assert used == {GPU1: 0, A: 1, B: 2, GPU2: 3}


def test_a_divided_gpu_has_several_jobs_and_names_them() -> None:
    out = enrich(divided((2, "11"), (3, "12")))
    assert (jobs_by_gpu(out)[GPU1], sources(out)[GPU1]) == (None, "several")
    assert several(out) == {GPU1: ["11", "12"]}


def test_a_divided_gpu_is_a_jobs_that_has_all_its_parts() -> None:
    out = enrich(divided((2, "11"), (3, "11")))
    assert (jobs_by_gpu(out)[GPU1], sources(out)[GPU1]) == ("11", "process")


def test_a_divided_gpu_is_nobodys_while_a_part_of_it_is_free() -> None:
    out = enrich(divided((2, "11")))
    assert (jobs_by_gpu(out)[GPU1], sources(out)[GPU1], several(out)) == (None, None, {})
    assert jobs_by_gpu(out)[A] == "11"


def test_a_process_that_is_seen_on_the_whole_gpu_does_not_make_it_one_jobs() -> None:
    out = enrich(divided((1, "11"), (2, "12")))
    assert several(out) == {GPU1: ["11", "12"]}
    assert jobs_by_gpu(enrich(divided((1, "11"))))[GPU1] is None


def test_the_prolog_names_mig_devices() -> None:
    out = enrich(prolog("11", "gn1", [A]), prolog("12", "gn1", [B]), divided())
    assert jobs_by_gpu(out) == {GPU0: None, GPU1: None, A: "11", B: "12", GPU2: None}
    assert sources(out)[A] == "prolog"
    assert several(out) == {GPU1: ["11", "12"]}


def test_a_prolog_that_names_the_gpu_says_nothing_of_its_parts() -> None:
    out = enrich(prolog("11", "gn1", [GPU1]), divided())
    assert jobs_by_gpu(out) == dict.fromkeys((GPU0, GPU1, A, B, GPU2))


@pytest.mark.parametrize("index", [1, 2, 3])
def test_an_index_from_the_divided_gpu_on_is_believed_for_nobody(index: int) -> None:
    """Slurm numbers MIG devices too, so 2 may be the second of them and not /dev/nvidia2."""
    out = enrich(job("11", ["gn1"], gpus={"gn1": [index]}, gpus_source="slurm_index"), divided())
    assert set(jobs_by_gpu(out).values()) == {None}


def test_an_index_before_the_divided_gpu_is_a_device_minor_as_ever() -> None:
    out = enrich(job("11", ["gn1"], gpus={"gn1": [0]}, gpus_source="slurm_index"), divided())
    assert jobs_by_gpu(out) == {GPU0: "11", GPU1: None, A: None, B: None, GPU2: None}


def test_a_gpu_whose_mig_mode_is_on_but_has_no_parts_is_nobodys_by_index() -> None:
    held = job("11", ["gn1"], gpus={"gn1": [1]}, gpus_source="slurm_index")
    out = enrich(held, divided(uuids=(GPU0, GPU1, GPU2)))
    assert jobs_by_gpu(out) == {GPU0: None, GPU1: None, GPU2: None}


def test_mig_mode_that_is_turned_off_makes_the_index_a_minor_again() -> None:
    held = job("11", ["gn1"], gpus={"gn1": [1]}, gpus_source="slurm_index")
    whole = divided(uuids=(GPU0, GPU1, GPU2), last={"mig_mode": [0, 0, 0]}, at=200)
    assert jobs_by_gpu(enrich(held, divided(uuids=(GPU0, GPU1, GPU2)), whole))[GPU1] == "11"


def test_a_node_held_whole_is_held_with_all_its_parts() -> None:
    out = enrich(job("11", ["gn1"], gpus_source="whole_node"), divided())
    assert set(jobs_by_gpu(out).values()) == {"11"}
    assert set(sources(out).values()) == {"whole_node"}


def test_rows_that_come_and_go_lose_and_double_nothing() -> None:
    steps = [
        divided((1, "11"), uuids=(GPU0, GPU1, GPU2), last={"mig_mode": [0, 0, 0]}, at=100),
        divided((2, "11"), at=110),
        divided((2, "11"), (3, "12"), at=120),
        divided((2, "12"), uuids=(GPU0, GPU1, B, GPU2), at=130),
        divided((1, "13"), uuids=(GPU0, GPU1, GPU2), last={"mig_mode": [0, 0, 0]}, at=140),
    ]
    owners = []
    for count in range(1, len(steps) + 1):
        before, out = enrich(*steps[: count - 1]), enrich(*steps[:count])
        new = out[len(before) :]
        uuids = [uuid for one in new for uuid in one["gpu"]["uuid"]]
        assert sorted(uuids) == sorted(steps[count - 1].data["gpu"]["uuid"])
        owners.append(jobs_by_gpu(new)[GPU1])
    assert owners == ["11", None, None, "12", "13"]


def last_event(*messages: Any) -> dict[str, Any]:
    return enrich(*messages)[-1]


def test_an_event_of_an_instance_concerns_the_job_there_and_no_other() -> None:
    held = divided((2, "11"), (3, "12"))
    out = last_event(held, xid(at=105, pci="0000:01:00", code=94, gi=2, ci=0))
    assert (out["uuid"], out["jobs"]) == (GPU1, ["12"])
    out = last_event(held, xid(at=105, pci="0000:01:00", code=94, gi=1))
    assert out["jobs"] == ["11"]


def test_an_event_of_a_divided_gpu_concerns_all_that_have_a_part_of_it() -> None:
    out = last_event(divided((2, "11"), (3, "12"), (4, "13")), xid(at=105, pci="0000:01:00"))
    assert (out["jobs"], out["jobs_source"]) == (["11", "12"], "several")
    out = last_event(divided((2, "11"), (4, "13")), xid(at=105, uuid=GPU1))
    assert out["jobs"] == ["11"]


def test_a_gpu_that_is_lost_with_its_parts_still_concerns_their_jobs() -> None:
    gone = divided(uuids=(GPU0, GPU1, GPU2), state=["ok", "lost", "ok"], last={"mig_mode": [0, None, 0]}, at=110)
    published = enrich(divided((2, "11"), (3, "12")), gone, xid(at=115, uuid=GPU1))
    assert published[-1]["jobs"] == ["11", "12"]
    assert {GPU1: ["11", "12"]} in [several([one]) for one in published[:-1] if one["ts"] > gone.data["ts"] - S]


def test_the_inventory_knows_the_parts_before_any_sample() -> None:
    gpus = [{"uuid": GPU1, "pci": "0000:01:00", "minor": 1, "mig": True,
             "mig_devices": [{"uuid": A, "gi": 1, "ci": 0}, {"uuid": B, "gi": 2, "ci": 0}]}]  # fmt: skip
    head = {"v": 1, "cluster": "c", "node": "gn1", "ts": 1, "boot": "b", "seq": 1}
    known = inbound("Inventory", subjects.inventory("c", "gn1"), {**head, "gpus": gpus}, 1)
    out = last_event(known, prolog("11", "gn1", [B], at=50), xid(at=60, pci="0000:01:00", gi=2))
    assert out["jobs"] == ["11"]
    held = job("12", ["gn1"], gpus={"gn1": [1]}, gpus_source="slurm_index")
    assert last_event(known, held, xid(at=60, pci="0000:01:00"))["jobs"] == []


def test_links_go_with_their_gpu() -> None:
    message = sample(nvlinks=[[2, 4, False, {}], [7, 1, True, {"crc_errors": 1}], [3, 0, None, {}]]).data
    assert select(message, [7, 2])["nvlinks"] == [[1, 4, False, {}], [0, 1, True, {"crc_errors": 1}]]


def test_a_sample_of_whole_gpus_is_not_divided() -> None:
    for gpu in ({}, {"parent": [None] * 8}):
        data = sample(gpu={**sample().data["gpu"], **gpu}, last={"mig_mode": [0] * 8}).data
        assert not mig.is_divided(data)
        assert mig.mark(data) == 0
