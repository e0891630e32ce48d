"""Who runs on a GPU at a time, by every witness there is."""

from typing import Any

import pytest
from enrichlab import T0, UUIDS, S, enrich, inbound, job, jobs_by_gpu, prolog, sample, xid
from hypothesis import given
from hypothesis import strategies as st

from heeler.bus import decode, encode, shard_of, subjects
from heeler.engine import Keyed
from heeler.enrich import EnrichStep
from heeler.enrich.step import select


def test_a_node_held_whole_gives_all_its_gpus_to_the_job() -> None:
    [out] = enrich(job("7", ["gn1"], gpus_source="whole_node"), sample())
    assert out["job"] == ["7"] * 8
    assert out["job_source"] == ["whole_node"] * 8
    assert out["jobs"] == {"7": {"user": "ada", "partition": "train"}}
    assert out["shard"] == shard_of("7")
    assert out["mean"]["power_w"] == [600.0 + n for n in range(8)]


def test_a_shared_node_gives_each_job_its_own_gpus_and_nobody_the_rest() -> None:
    out = enrich(
        job("1", ["gn1"], gpus={"gn1": [0, 1]}, gpus_source="slurm_index"),
        job("2", ["gn1"], gpus={"gn1": [2, 3]}, gpus_source="slurm_index"),
        sample(),
    )
    found = jobs_by_gpu(out)
    assert [found[uuid] for uuid in UUIDS] == ["1", "1", "2", "2", None, None, None, None]
    assert len(found) == 8
    for message in out:  # each message speaks for one shard, and only for jobs on it
        for holder in message["job"]:
            assert shard_of(holder or "gn1") == message["shard"]


def test_slurm_index_is_the_device_minor_not_the_nvml_index() -> None:
    gpu = {"uuid": UUIDS[:2], "index": [0, 6], "minor": [4, 0]}
    [*out] = enrich(
        job("9", ["gn1"], gpus={"gn1": [0]}, gpus_source="slurm_index"),
        sample(gpu=gpu, mean={"power_w": [1.0, 2.0]}, last={}),
    )
    assert jobs_by_gpu(out) == {UUIDS[0]: None, UUIDS[1]: "9"}


def test_minors_come_from_the_inventory_where_the_sample_has_none() -> None:
    inventory = inbound(
        "Inventory",
        subjects.inventory("c", "gn1"),
        {"v": 1, "cluster": "c", "node": "gn1", "ts": T0, "boot": "b", "seq": 1,
         "gpus": [{"uuid": UUIDS[0], "minor": 1}, {"uuid": UUIDS[1], "minor": 0}]},
        T0,
    )  # fmt: skip
    gpu = {"uuid": UUIDS[:2]}
    out = enrich(
        inventory,
        job("9", ["gn1"], gpus={"gn1": [0]}, gpus_source="slurm_index"),
        sample(gpu=gpu, mean={"power_w": [1.0, 2.0]}, last={}),
    )
    assert jobs_by_gpu(out) == {UUIDS[0]: None, UUIDS[1]: "9"}


def test_the_prolog_knows_the_uuids_and_outranks_slurms_indices() -> None:
    out = enrich(
        job("9", ["gn1"], gpus={"gn1": [0]}, gpus_source="slurm_index"),
        prolog("9", "gn1", [UUIDS[5]]),
        sample(),
    )
    found = jobs_by_gpu(out)
    assert found[UUIDS[5]] == "9"
    assert found[UUIDS[0]] is None


def test_the_prolog_attributes_before_any_poll_of_slurm() -> None:
    out = enrich(prolog("9", "gn1", UUIDS, at=50), sample(at=100))
    assert set(jobs_by_gpu(out).values()) == {"9"}


def test_the_nodes_own_look_at_processes_goes_first() -> None:
    out = enrich(
        job("1", ["gn1"], gpus_source="whole_node"),
        sample(procs=[[3, 4242, "2", 1 << 30], [4, 4243, None, 1 << 30]]),
    )
    found = jobs_by_gpu(out)
    assert found[UUIDS[3]] == "2"
    assert found[UUIDS[4]] == "1"  # a process of no job says nothing


def test_a_process_left_over_from_an_ended_job_does_not_own_the_gpu() -> None:
    out = enrich(
        job("1", ["gn1"], gpus_source="whole_node", start=-500),
        job("1", ["gn1"], event="ended", at=10, start=-500, end_ts=T0 + 10 * S),
        job("2", ["gn1"], gpus_source="whole_node", start=20, at=20),
        sample(at=100, procs=[[3, 4242, "1", 1 << 30]]),
    )
    assert set(jobs_by_gpu(out).values()) == {"2"}


def test_a_job_listed_twice_counts_once_and_two_jobs_on_a_gpu_blame_neither() -> None:
    out = enrich(sample(procs=[[0, 1, "77", 1], [0, 2, "77", 1], [1, 3, "77", 1], [1, 4, "78", 1]]))
    found = jobs_by_gpu(out)
    assert found[UUIDS[0]] == "77"
    assert found[UUIDS[1]] is None
    several = [m for m in out if m.get("several")]
    assert [list(m["several"].values()) for m in several] == [[["77", "78"]]]


def test_a_requeued_id_is_two_runs_on_two_nodes() -> None:
    runs = (
        job("900", ["gn1"], gpus_source="whole_node", start=0),
        job("900", ["gn1"], event="ended", at=3600, start=0, end_ts=T0 + 3600 * S),
        job("900", ["gn7"], gpus_source="whole_node", at=4800, start=4800),
    )
    assert set(jobs_by_gpu(enrich(*runs, sample("gn1", at=1800))).values()) == {"900"}
    assert set(jobs_by_gpu(enrich(*runs, sample("gn7", at=5400))).values()) == {"900"}
    assert set(jobs_by_gpu(enrich(*runs, sample("gn1", at=5400))).values()) == {None}


def test_a_job_that_moves_leaves_the_nodes_that_its_event_no_longer_names() -> None:
    runs = (
        job("900", ["gn1", "gn2"], gpus_source="whole_node", start=0),
        job("900", ["gn2"], event="changed", at=100, gpus_source="whole_node", start=0),
    )
    assert set(jobs_by_gpu(enrich(*runs, sample("gn1", at=200))).values()) == {None}
    assert set(jobs_by_gpu(enrich(*runs, sample("gn2", at=200))).values()) == {"900"}


def test_a_node_that_a_completing_job_gave_back_is_not_its_own_again_by_its_end() -> None:
    first: dict[str, Any] = {"gpus": {"gn1": list(range(8)), "gn2": list(range(8))}, "gpus_source": "slurm_index"}
    out = enrich(
        job("1", ["gn1", "gn2"], **first),
        job("1", ["gn2"], event="changed", at=100, state="COMPLETING", released=["gn1"], **first),
        job("2", ["gn1"], at=110, start=110, gpus={"gn1": list(range(8))}, gpus_source="slurm_index"),
        job("1", ["gn1", "gn2"], event="ended", at=200, state="REQUEUED", **first),
        sample("gn1", at=150),
        sample("gn2", at=150),
    )
    assert {(m["node"], holder) for m in out for holder in m["job"]} == {("gn1", "2"), ("gn2", "1")}


def test_an_exclusive_job_without_gpus_owns_none() -> None:
    out = enrich(job("60", ["gn1"], gpus_source="none", exclusive=True), sample())
    assert set(jobs_by_gpu(out).values()) == {None}


def test_a_late_sample_gets_the_job_of_its_own_time_and_changes_nothing_for_later_ones() -> None:
    messages = (
        job("1", ["gn1"], gpus_source="whole_node", start=0),
        sample(at=100),
        job("1", ["gn1"], event="ended", at=200, start=0, end_ts=T0 + 200 * S),
        job("2", ["gn1"], gpus_source="whole_node", at=300, start=300),
        sample(at=400),
        sample(at=150),  # an hour late or a second: the interval decides
        sample(at=250),
        sample(at=410),
    )
    owners = [out["job"][0] for out in enrich(*messages)]
    assert owners == ["1", "2", "1", None, "2"]


def test_no_job_is_absent_not_empty() -> None:
    [out] = enrich(sample())
    assert out["job"] == [None] * 8
    assert out["jobs"] == {}
    assert out["shard"] == shard_of("gn1")


def test_a_sample_of_no_gpus_still_speaks_for_its_node() -> None:
    [out] = enrich(sample(gpu={"uuid": []}, mean={}, last={}))
    assert out["job"] == []
    assert out["node"] == "gn1"


def test_a_kernel_event_gets_its_gpu_by_pci_address_and_the_job_there() -> None:
    gpu = {"uuid": UUIDS, "minor": list(range(8)), "pci": [f"0000:{n:02x}:00" for n in range(8)]}
    *_, out = enrich(
        job("1", ["gn1"], gpus={"gn1": [0, 1]}, gpus_source="slurm_index"),
        job("2", ["gn1"], gpus={"gn1": [2, 3]}, gpus_source="slurm_index"),
        sample(gpu=gpu),
        xid(at=105, pci="0000:02:00"),
    )
    assert out["uuid"] == UUIDS[2]
    assert out["jobs"] == ["2"]
    assert out["code"] == 79


def test_a_kernel_event_without_a_gpu_concerns_all_jobs_of_the_node() -> None:
    [out] = enrich(
        job("1", ["gn1"], gpus={"gn1": [0]}, gpus_source="slurm_index"),
        job("2", ["gn1"], gpus={"gn1": [2]}, gpus_source="slurm_index"),
        xid(kind="oom", code=None, at=50),
    )
    assert out["jobs"] == ["1", "2"]
    assert out["jobs_source"] == "node"


def test_after_a_gpu_is_lost_the_last_processes_seen_name_its_job() -> None:
    gpu = {"uuid": UUIDS, "pci": [f"0000:{n:02x}:00" for n in range(8)]}
    *_, out = enrich(sample(gpu=gpu, procs=[[3, 1, "77", 1]]), xid(at=105, pci="0000:03:00"))
    assert out["jobs"] == ["77"]


def test_a_kernel_event_keeps_one_id_over_redelivery() -> None:
    keyed = Keyed(EnrichStep())
    ids = [event.id for _ in range(2) for _, event in keyed.on(xid())]
    assert len(ids) == 2
    assert len(set(ids)) == 1


@pytest.mark.parametrize("rows", [[], [0], [7, 2], list(range(8))])
def test_selected_rows_keep_their_order_in_every_column(rows: list[int]) -> None:
    message = sample(procs=[[2, 1, "7", 5], [7, 2, None, 6]], state=["ok"] * 8).data
    out = select(message, rows)
    assert out["gpu"]["uuid"] == [UUIDS[row] for row in rows]
    assert out["mean"]["power_w"] == [600.0 + row for row in rows]
    assert len(out["state"]) == len(rows)
    assert {rows[p[0]] for p in out["procs"]} <= {2, 7}


@given(st.lists(st.sampled_from(["start1", "end1", "start2", "end2", "sample"]), max_size=12))
def test_whatever_the_order_no_gpu_is_lost_and_none_is_counted_twice(order: list[str]) -> None:
    messages = []
    for at, what in enumerate(order, start=1):
        if what == "sample":
            messages.append(sample(at=at * 100))
        else:
            number = what[-1]
            gone = what.startswith("end")
            event = "ended" if gone else "started"
            messages.append(
                job(number, ["gn1"], event=event, at=at * 100 - 50, start=0, gpus={"gn1": [int(number)]},
                    gpus_source="slurm_index", end_ts=T0 + (at * 100 - 50) * S if gone else None)
            )  # fmt: skip
    keyed = Keyed(EnrichStep())
    for message in messages:
        events = [event for _, event in keyed.on(message)]
        if message.kind == "GpuSample":
            uuids = [
                uuid
                for e in events
                for uuid in decode(e.kind, e.data if isinstance(e.data, bytes) else encode(e.kind, e.data))["gpu"][
                    "uuid"
                ]
            ]
            assert sorted(uuids) == UUIDS
