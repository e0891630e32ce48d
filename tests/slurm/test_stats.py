"""Sums over jobs and nodes: each node once, and nothing known of a sum of which a part is not known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurmdata import answer, job_row, node_row

from heeler.bus.tables import check_columns
from heeler.bus.tables_gen import TABLES
from heeler.slurm.collect import Table
from heeler.slurm.jobsjson import parse_jobs_json
from heeler.slurm.nodes import parse_nodes_json
from heeler.slurm.statjobs import Ends, JobRow, JobSums, suspended_s
from heeler.slurm.statnodes import NodeRow, node_sums, shared_gpus
from heeler.slurm.stats import stats_table
from heeler.slurm.sums import count, mean, total, variance

NS = 1_000_000_000
NOW_S = 4610


def jobs_of(*rows: Any) -> Table:
    table = parse_jobs_json(answer(jobs=list(rows)), now_ns=NOW_S * NS, with_table=True).table
    assert table is not None
    return table


def nodes_of(*rows: Any) -> Table:
    table = parse_nodes_json(answer(nodes=list(rows)), with_table=True).table
    assert table is not None
    return table


def gpu_node(name: str, *flags: str, state: str = "idle", used: int = 0, **more: Any) -> dict[str, Any]:
    said = {"gres": "gpu:h100:8", "gres_used": f"gpu:h100:{used}(IDX:N/A)", "cpus": 64, "alloc_cpus": 8 * used}
    return node_row(name, state, *flags, **(said | more))


def sums(jobs: Table, nodes: Table | None, ends: Ends | None = None) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows by scope, partition and account."""
    table = stats_table(jobs, nodes, NOW_S * NS, ends)
    check_columns(TABLES["stats"], table.columns, table.rows)
    rows = [dict(zip(table.columns, values, strict=True)) for values in zip(*table.columns.values(), strict=True)]
    return {(row["scope"], row["partition"], row["account"]): row for row in rows}


CLUSTER = ("cluster", None, None)
GOOD = gpu_node("gn1", state="allocated", used=8, partitions=["train", "debug"])


def test_a_node_of_several_partitions_counts_once_in_each_and_once_in_the_cluster() -> None:
    found = sums(jobs_of(), nodes_of(GOOD, gpu_node("gn2"), gpu_node("gn3", partitions=[])))
    for key, nodes in ((CLUSTER, 3), (("partition", "train", None), 2), (("partition", "debug", None), 1)):
        assert (found[key]["nodes"], found[key]["gpus"], found[key]["cpus"]) == (nodes, 8 * nodes, 64 * nodes)
    assert found[CLUSTER]["gpus_allocated"] == found["partition", "debug", None]["gpus_allocated"] == 8
    assert (found[CLUSTER]["nodes_with_jobs"], found[CLUSTER]["gpus_available"]) == (1, 16)


def test_base_and_flags_of_nodes_are_counted_apart() -> None:
    row = sums(
        jobs_of(),
        nodes_of(
            gpu_node("gn1", "DRAIN"),
            gpu_node("gn2", "DRAIN", state="mixed", used=4),
            gpu_node("gn3", "NOT_RESPONDING"),
            gpu_node("gn4", "BLOCKED", "PLANNED"),
            gpu_node("gn5", "MAINTENANCE", "DRAIN", "RESERVED"),
            gpu_node("gn6", "FROBNICATED"),
            gpu_node("gn7", state="down$NOT_RESPONDING"),
            gpu_node("gn8", "FAIL", state="allocated", used=8),
            gpu_node("gn9", "POWERED_DOWN", "CLOUD"),
        ),
    )[CLUSTER]
    assert {name: row[name] for name in row if name.startswith("nodes") and row[name]} == {
        "nodes": 9,
        "nodes_idle": 6,
        "nodes_mixed": 1,
        "nodes_down": 1,
        "nodes_allocated": 1,
        "nodes_drained": 2,
        "nodes_draining": 1,
        "nodes_failing": 1,
        "nodes_not_responding": 1,
        "nodes_blocked": 1,
        "nodes_planned": 1,
        "nodes_maintenance": 1,
        "nodes_reserved": 1,
        "nodes_powered_down": 1,
        "nodes_with_jobs": 2,
        "nodes_up": 1,
        "nodes_unavailable": 8,
        "nodes_state_unparsed": 2,
    }, "a node that fails or drains is not down and running at once: base and flags are told apart"
    assert (row["gpus_up"], row["gpus_down"], row["gpus_allocated"], row["gpus_available"]) == (8, 64, 12, 8)


def test_a_node_whose_gpus_are_not_known_makes_their_sum_unknown_only_where_it_counts() -> None:
    dark = gpu_node("gn2", partitions=["dark"])
    del dark["gres"], dark["gres_used"]
    found = sums(jobs_of(), nodes_of(GOOD, dark))
    assert (found[CLUSTER]["gpus"], found[CLUSTER]["gpus_allocated"], found[CLUSTER]["cpus"]) == (None, None, 128)
    assert (found["partition", "train", None]["gpus"], found["partition", "dark", None]["gpus"]) == (8, None)


@pytest.mark.parametrize("state", ["bogus", "unknown"])
def test_a_node_in_a_state_that_is_not_known_is_neither_up_nor_down(state: str) -> None:
    row = sums(jobs_of(), nodes_of(GOOD, gpu_node("gn2", state=state)))[CLUSTER]
    assert (row["nodes_up"], row["nodes_unavailable"], row["nodes_service_unknown"]) == (1, 0, 1)
    assert (row["nodes_with_jobs"], row["nodes_unknown"]) == (None, 1)


@pytest.mark.parametrize(
    ("gpus", "used", "text", "shares", "busy"),
    [
        (
            1,
            0,
            "gpu:gb10:0(IDX:N/A),shard:gb10:40(0/80)",
            40,
            1,
        ),  # the list contradicts the count, but there is one GPU
        (4, 0, "gpu:a100:0(IDX:N/A),shard:a100:12(10/10,2/10,0/10,0/10)", 12, 2),
        (4, 0, "gpu:a100:0(IDX:N/A),shard:a100:12(0/10,0/10,0/10,0/10)", 12, None),
        (4, 3, "gpu:a100:3(IDX:0-2),shard:a100:2(0/10,0/10,0/10,2/10)", 2, 1),
        (4, 0, "gpu:a100:0(IDX:N/A),shard:a100:0(0/10,0/10,0/10,0/10)", 0, 0),
    ],
)
def test_a_gpu_of_which_shards_are_in_use_is_not_allocated_and_not_free(
    gpus: int, used: int, text: str, shares: int, busy: int | None
) -> None:
    configured = f"gpu:{gpus},shard:{80 * gpus}"
    row = sums(jobs_of(), nodes_of(gpu_node("gn1", gres=configured, gres_used=text)))[CLUSTER]
    assert (row["gpus_allocated"], row["gpus_shared"]) == (used, busy)
    assert row["gpus_available"] == (None if busy is None else gpus - used - busy)
    node = NodeRow(gpus=gpus, gpus_used=used, gres_used=text, shards=80 * gpus, shards_used=shares, mps=0, mps_used=0)
    assert shared_gpus(node) == busy


def running(job_id: int, **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "tres_alloc_str": "cpu=64,mem=1T,node=2,billing=64,gres/gpu:h100=16,gres/gpu=16",
        "node_count": 2,
    }
    return job_row(job_id, **(said | more))


def waiting(job_id: int, gpus: int = 4, **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "nodes": "",
        "gres_detail": [],
        "state_reason": "Priority",
        "start_time": 0,
        "tres_req_str": f"cpu=8,mem=8G,node=1,gres/gpu={gpus}",
        "cpus": 8,
        "node_count": 1,
    }
    return job_row(job_id, "PENDING", **(said | more))


def test_typed_and_untyped_gpus_of_a_job_count_once() -> None:
    row = sums(jobs_of(running(1)), nodes_of(GOOD))[CLUSTER]
    assert (row["jobs_gpus"], row["jobs_cpus"], row["jobs_nodes"], row["gpus_per_job_mean"]) == (16, 64, 2, 16.0)
    assert (row["jobs_running"], row["jobs_holding"], row["multi_node_share"]) == (1, 1, 1.0)
    assert (row["job_runtime_mean_s"], row["job_wait_mean_s"], row["gpu_hours_running"]) == (3600, 10, 16.0)
    assert row["job_runtime_variance_s2"] is None


def test_a_waiting_array_counts_with_all_its_tasks_and_a_job_for_two_partitions_in_both() -> None:
    array = waiting(126, array_job_id=123, array_task_string="1,3,5-7%2", state_reason="Resources")
    found = sums(jobs_of(array, waiting(7, gpus=8, partition="train,debug"), running(1)), nodes_of(GOOD))
    row = found[CLUSTER]
    assert (row["jobs_pending"], row["gpus_pending"], row["nodes_pending"], row["cpus_pending"]) == (6, 28, 6, 48)
    assert row["jobs_pending_by_reason"] == {"Resources": 5, "Priority": 1}
    assert row["gpus_pending_by_reason"] == {"Resources": 20, "Priority": 8}
    assert (found["partition", "train", None]["gpus_pending"], found["partition", "debug", None]["gpus_pending"]) == (
        28,
        8,
    )
    assert found["account", None, "lab"]["gpus_pending"] == 28, "once, in however many partitions it waits"


def test_an_array_whose_tasks_slurm_cut_off_makes_the_numbers_of_waiting_jobs_unknown() -> None:
    row = sums(jobs_of(waiting(126, array_job_id=123, array_task_string="1,3,5,..."), running(1)), None)[CLUSTER]
    assert (row["jobs_pending"], row["gpus_pending"], row["jobs_pending_by_reason"]) == (None, None, None)
    assert (row["jobs_running"], row["users_pending"]) == (1, 1)


def test_rows_of_accounts_and_of_accounts_in_partitions_have_no_nodes_of_their_own() -> None:
    jobs = jobs_of(running(1), running(2, account="vision"), running(3, account="vision", partition="debug"))
    found = sums(jobs, nodes_of(GOOD))
    assert set(found) == {
        CLUSTER,
        ("partition", "train", None),
        ("partition", "debug", None),
        ("account", None, "lab"),
        ("account", None, "vision"),
        ("partition_account", "train", "lab"),
        ("partition_account", "train", "vision"),
        ("partition_account", "debug", "vision"),
    }
    vision = found["account", None, "vision"]
    assert (vision["jobs_running"], vision["jobs_gpus"], vision["jobs_nodes"], vision["nodes"]) == (2, 32, 2, None)
    assert found["partition_account", "debug", "vision"]["jobs_gpus"] == 16


def test_a_job_of_a_user_without_a_name_is_still_a_user() -> None:
    gone = running(2, user_name="", user_id=1234)
    row = sums(jobs_of(running(1), running(3), gone, waiting(4, user_name="bob")), None)[CLUSTER]
    assert (row["users_active"], row["users_pending"], row["users_active_or_pending"]) == (2, 1, 3)
    assert (row["jobs_without_user"], row["jobs_per_user_mean"], row["jobs_per_user_variance"]) == (1, 1.5, 0.5)


def test_a_job_in_a_state_that_is_not_known_is_counted_as_that() -> None:
    row = sums(jobs_of(running(1), running(2, job_state="BOGUS"), job_row(3, "COMPLETED")), None)[CLUSTER]
    assert (row["jobs_running"], row["jobs_state_unknown"], row["jobs_pending"]) == (1, 1, 0)


@pytest.mark.parametrize("state", ["SUSPENDED", "RUNNING"])
def test_time_suspended_is_a_jobs_age_less_what_it_ran(state: str) -> None:
    job = JobRow(state=state, start_ts=1000 * NS, elapsed_s=100.0, suspended_ts=1100 * NS)
    assert suspended_s(job, 1500 * NS) == 400.0
    assert suspended_s(job._replace(elapsed_s=None), 1500 * NS) is None
    fresh = JobRow(state="RUNNING", start_ts=1000 * NS, elapsed_s=497.0)
    assert suspended_s(fresh, 1500 * NS) == 0.0, "an answer's age is no suspension"


def test_what_can_not_be_read_leaves_no_sum_of_its_kind() -> None:
    broken = sums(jobs_of(running(1), running(2, tres_alloc_str="cpu=many")), nodes_of(GOOD))
    row = broken[CLUSTER]
    assert (row["jobs_unreadable"], row["jobs_running"], row["jobs_pending"], row["users_active"]) == (
        1,
        None,
        None,
        None,
    )
    assert (row["nodes"], row["gpus"]) == (1, 8), "of nodes all is known"
    row = sums(jobs_of(running(1)), nodes_of(GOOD, {"name": "gn2", "state": 7}))[CLUSTER]
    assert (row["nodes_unreadable"], row["nodes"], row["gpus"], row["nodes_idle"]) == (1, None, None, None)
    assert row["jobs_running"] == 1


def test_nodes_that_were_not_answered_are_unknown_and_not_none() -> None:
    row = sums(jobs_of(running(1)), None)[CLUSTER]
    assert (row["nodes"], row["gpus"], row["nodes_unreadable"], row["jobs_running"]) == (None, None, None, 1)


def test_a_cluster_without_jobs_has_sums_of_zero_and_no_means() -> None:
    row = sums(jobs_of(), nodes_of(GOOD))[CLUSTER]
    assert (row["jobs_running"], row["jobs_pending"], row["jobs_gpus"], row["gpu_hours_running"]) == (0, 0, 0, 0)
    assert (row["job_runtime_mean_s"], row["gpus_per_job_mean"], row["multi_node_share"]) == (None, None, None)


def test_only_what_went_wrong_is_a_failure() -> None:
    states = ["FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT", "CANCELLED", "PREEMPTED", "REQUEUED", "COMPLETED"]
    ends = Ends(3600, [(state, "train", "lab") for state in states])
    found = sums(jobs_of(), None, ends)
    for key in (CLUSTER, ("partition", "train", None), ("account", None, "lab"), ("partition_account", "train", "lab")):
        row = found[key]
        assert (row["ended_in_failure"], row["ended_cancelled"], row["ended_preempted"]) == (4, 1, 1)
        assert (row["ended_window_s"], row["ended_boot_fail"]) == (3600, 0)
    silent = sums(jobs_of(), None)[CLUSTER]
    assert (silent["ended_window_s"], silent["ended_in_failure"]) == (None, None), "without accounting: unknown"


VALUES = st.lists(st.none() | st.integers(min_value=0, max_value=10**6), max_size=8)


@given(values=VALUES, extra=st.integers(min_value=0, max_value=7))
def test_one_unknown_part_makes_a_sum_a_mean_and_a_variance_unknown(values: list[int | None], extra: int) -> None:
    if None in values:
        assert total(values) is None
        assert mean(values) is None
        assert variance(values) is None
        return
    known = [value for value in values if value is not None]
    assert total(values) == sum(known)
    assert mean(values) == (sum(known) / len(known) if known else None)
    assert (variance(values) is None) == (len(known) < 2)
    assert total([*values, None]) is None
    assert count([True] * extra + [False]) == extra
    assert count([True] * extra + [None]) is None


def test_sums_of_parts_are_never_below_zero_or_above_the_whole() -> None:
    over = NodeRow(state="IDLE", available=True, cpus=4, cpus_allocated=6, gpus=0, gpus_used=0, shards=0, mps=0)
    assert node_sums([over])["cpus_available"] == 0
    assert JobSums().sums(0)["jobs_nodes"] == 0
