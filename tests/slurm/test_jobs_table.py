"""The tables of jobs and nodes: every field with its unit, from JSON of each version and from text alike."""

import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurmdata import answer, job_row, node_row, recorded

from heeler.bus.tables import check_columns
from heeler.bus.tables_gen import TABLES
from heeler.slurm.collect import Table
from heeler.slurm.errors import ParseError
from heeler.slurm.jobsjson import parse_jobs_json
from heeler.slurm.jobstext import FIELDS, Marks, argv, new_marks, parse_jobs_text
from heeler.slurm.nodes import parse_nodes_json, parse_nodes_text

NS = 1_000_000_000
GIB = 1 << 30
NOW = 1_796_187_221 * NS
MARKS = Marks("|#", "|.")

# What GCM 0.0.2 takes of a job, and where it is here.
GCM_FIELDS = {
    "PENDING_RESOURCES": "pending_for_resources",
    "GPUS_REQUESTED": "gpus_requested",
    "MIN_CPUS": "min_cpus_per_node",
    "JOBID": "job_ref",
    "JOBID_RAW": "job_id",
    "NAME": "name",
    "TIME_LIMIT": "time_limit_s",
    "MIN_MEMORY": "min_memory_bytes",
    "COMMAND": "command",
    "PRIORITY": "priority_normalized",
    "STATE": "state",
    "USER": "user",
    "CPUS": "cpus",
    "NODES": "node_count",
    "TIME_LEFT": "time_left_s",
    "TIME_USED": "elapsed_s",
    "NODELIST": "nodes",
    "DEPENDENCY": "dependency",
    "EXC_NODES": "excluded_nodes",
    "START_TIME": "start_ts",
    "SUBMIT_TIME": "submit_ts",
    "ELIGIBLE_TIME": "eligible_ts",
    "ACCRUE_TIME": "accrue_ts",
    "PENDING_TIME": "pending_s",
    "COMMENT": "comment",
    "PARTITION": "partition",
    "ACCOUNT": "account",
    "QOS": "qos",
    "REASON": "reason",
    "TRES_GPUS_ALLOCATED": "gpus_allocated",
    "TRES_CPU_ALLOCATED": "cpus_allocated",
    "TRES_MEM_ALLOCATED": "memory_allocated_bytes",
    "TRES_NODE_ALLOCATED": "nodes_allocated",
    "TRES_BILLING_ALLOCATED": "billing_allocated",
    "RESERVATION": "reservation",
    "REQUEUE": "requeue",
    "FEATURE": "features",
    "RESTARTCNT": "restarts",
    "SCHEDNODES": "scheduled_nodes",
}


def rows(table: Table | None) -> dict[str, dict[str, Any]]:
    """Return a table as rows by job or node."""
    assert table is not None
    check_columns(TABLES["jobs" if "job_id" in table.columns else "nodes"], table.columns, table.rows)
    names = list(table.columns)
    return {values[0]: dict(zip(names, values, strict=True)) for values in zip(*table.columns.values(), strict=True)}


def from_json(*jobs: dict[str, Any], now_ns: int = NOW) -> dict[str, dict[str, Any]]:
    found = parse_jobs_json(answer(jobs=list(jobs)), now_ns=now_ns, with_table=True)
    assert found.table is not None
    assert found.table.unreadable == ()
    return rows(found.table)


def text_row(marks: Marks = MARKS, **values: str) -> str:
    """Return a job as squeue prints it with our own question."""
    usual = {
        "job_id": "481",
        "job_ref": "481",
        "state": "RUNNING",
        "submit_ts": "1796187000",
        "start_ts": "1796187100",
        "end_ts": "1796190700",
        "elapsed": "2:01",
        "limit": "1:00:00",
        "nodes": "gn[1-2]",
        "node_count": "2",
        "tres": "cpu=16,mem=64G,node=2,billing=16,gres/gpu:h100=16,gres/gpu=16",
        "per_node": "gres/gpu:h100:8",
        "priority": "4294967",
        "user": "alice",
        "name": "train",
        "nice": "-5",
    }
    found = {**dict.fromkeys(FIELDS.values(), "(null)"), **usual, **values}
    return marks.field.join(found.values()) + f"{marks.row}\n"


def from_text(*lines: str, marks: Marks = MARKS) -> dict[str, dict[str, Any]]:
    found = parse_jobs_text("".join(lines), marks, UTC, now_ns=NOW, with_table=True)
    assert found.unreadable == ()
    return rows(found.table)


def test_every_field_that_gcm_takes_has_a_column() -> None:
    assert set(GCM_FIELDS.values()) <= set(TABLES["jobs"].columns)
    assert len(GCM_FIELDS) == 39, "34 of squeue, and what it derives"


@pytest.mark.parametrize("name", ["22.05/squeue_json.json", "24.11/squeue_json.json", "24.11/squeue_json_v0.0.40.json"])
def test_recorded_answers_of_each_version_are_read_alike(name: str) -> None:
    found = parse_jobs_json(recorded(name), now_ns=NOW, with_table=True)
    assert found.unreadable == ()
    table = rows(found.table)
    runs, waits, array = table["1"], table["10"], table["3"]
    assert (runs["gpus_requested"], runs["gpus_allocated"], runs["gpus_source"]) == (16, 16, "slurm_index")
    assert runs["gpu_indices"] == ["n001=0-7", "n002=0-7"]
    assert (runs["time_limit_s"], runs["time_unlimited"]) == (3600, False)
    assert runs["time_left_s"] == pytest.approx(3600 - runs["elapsed_s"])
    assert runs["tres_requested"]["mem"] == 2_000_000 << 20
    assert (runs["reason"], runs["holds_nodes"]) == (None, True)
    assert (waits["gpus_requested"], waits["gpus_allocated"], waits["nodes"]) == (56, 0, [])
    assert (waits["pending_for_resources"], waits["elapsed_s"]) == (True, 0)
    assert (array["job_ref"], array["array_task_count"], array["array_throttle"]) == ("3_[2-3%2]", 2, 2)
    assert (array["array_tasks"], array["array_task_id"]) == ("2-3", None)
    assert table["9"]["hold"] is True
    assert table["11"]["dependency"] == "afterok:7(failed)"


def test_numbers_that_are_not_set_are_null_and_never_zero() -> None:
    unset, endless = {"set": False, "infinite": False, "number": 0}, {"set": False, "infinite": True, "number": 0}
    row = from_json(
        job_row(time_limit=endless, priority=unset, memory_per_node=unset, start_time=unset, cpus=4294967294, tasks="5")
    )["481"]
    assert (row["time_limit_s"], row["time_unlimited"], row["time_left_s"]) == (None, True, None)
    assert (row["priority"], row["memory_per_node_bytes"], row["cpus"], row["tasks"]) == (None, None, None, 5)
    assert (row["start_ts"], row["elapsed_s"]) == (None, None)


def test_bare_infinity_and_raw_newlines_cost_no_job() -> None:
    text = '{"jobs": [{"job_id": 1, "job_state": "PENDING", "billable_tres": Infinity, "name": "inf, NaN:\n test"}]}'
    found = parse_jobs_json(text, now_ns=NOW, with_table=True)
    assert rows(found.table)["1"]["name"] == "inf, NaN:\n test"


def test_a_row_that_cannot_be_read_is_counted_and_costs_no_other() -> None:
    bad = job_row(7, nodes="gn[1-")
    found = parse_jobs_json(answer(jobs=[bad, "no row", job_row(500)]), now_ns=NOW, with_table=True)
    assert found.table is not None
    assert {row.name for row in found.table.unreadable} == {"7", None}
    assert list(rows(found.table)) == ["500"]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"tres_per_node": "gres/gpu:8", "node_count": 4}, (32, None, 8, 0)),
        ({"tres_per_node": "gres:gpu:h100:8", "node_count": 2}, (16, {"h100": 16}, 8, 0)),
        ({"tres_per_job": "gres/gpu:6", "node_count": 4}, (6, None, None, 0)),
        ({"tres_per_task": "gres/gpu:1", "tasks": 12}, (12, None, None, 0)),
        ({"tres_per_socket": "gres/gpu:1"}, (None, None, None, 0)),
        ({"tres_per_node": "gres/shard:10", "node_count": 2}, (0, None, None, 20)),
        ({"tres_req_str": "cpu=4,gres/gpu:a100=3,gres/gpu=3"}, (3, {"a100": 3}, None, 0)),
        ({"tres_req_str": "cpu=4,node=1"}, (0, None, None, 0)),
        ({"tres_req_str": "cpu=4,node=1", "tres_per_node": "gres/gpu:2", "node_count": 1}, (2, None, 2, 0)),
    ],
)
def test_gpus_asked_for_in_every_way_are_counted(changes: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    row = from_json(job_row(state="PENDING", **changes))["481"]
    found = (row["gpus_requested"], row["gpus_requested_by_type"], row["gpus_per_node_requested"])
    assert (*found, row["shards_requested"]) == wanted


def test_a_suspended_job_does_not_age_and_a_resumed_one_ages_on() -> None:
    start = NOW // NS - 1000
    suspended = job_row(1, "SUSPENDED", start_time=start, pre_sus_time=300, suspend_time=start + 300)
    resumed = job_row(2, "RUNNING", start_time=start, pre_sus_time=300, suspend_time=start + 600)
    found = from_json(suspended, resumed)
    assert (found["1"]["elapsed_s"], found["2"]["elapsed_s"]) == (300, 700)


def test_exit_status_and_signal_are_told_apart() -> None:
    new = {"return_code": {"set": True, "infinite": False, "number": 3}, "signal": {"id": {"set": False, "number": 0}}}
    found = from_json(
        job_row(1, "FAILED", exit_code=768), job_row(2, "FAILED", exit_code=9), job_row(3, "FAILED", exit_code=new)
    )
    assert [(row["exit_code"], row["exit_signal"]) for row in found.values()] == [(3, None), (0, 9), (3, None)]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("768", (3, None)),  # 22.05: wait's word
        ("9", (0, 9)),
        ("0", (0, None)),
        ("3:0", (3, None)),  # 24.11
        ("0:9", (0, 9)),
        ("(null)", (None, None)),
    ],
)
def test_text_tells_exit_status_and_signal_apart(said: str, wanted: tuple[int | None, int | None]) -> None:
    row = from_text(text_row(state="FAILED", exit_code=said))["481"]
    assert (row["exit_code"], row["exit_signal"]) == wanted
    row = from_text(text_row(exit_code=said))["481"]  # it runs still
    assert (row["exit_code"], row["exit_signal"]) == (None, None)


@pytest.mark.parametrize("said", ["3:", ":9", "a:0", "3:x", "three"])
def test_an_exit_that_is_none_makes_the_row_unreadable(said: str) -> None:
    found = parse_jobs_text(text_row(state="FAILED", exit_code=said), MARKS, UTC, now_ns=NOW, with_table=True)
    assert [one.name for one in found.unreadable] == ["481"]


def test_text_has_the_same_values_as_json() -> None:
    row = from_text(text_row())["481"]
    assert (row["elapsed_s"], row["time_limit_s"], row["time_left_s"], row["pending_s"]) == (121, 3600, 3479, 100)
    assert (row["start_ts"], row["nodes"], row["nice"]) == (1796187100 * NS, ["gn1", "gn2"], -5)
    assert (row["gpus_allocated"], row["gpus_allocated_by_type"]) == (16, {"h100": 16})
    assert (row["memory_allocated_bytes"], row["tres_requested"]) == (64 * GIB, None)
    assert "gpu_indices" not in row, "squeue's text does not tell them"


def test_a_waiting_job_has_nothing_though_squeue_shows_its_request_as_allocated() -> None:
    row = from_text(text_row(state="PENDING", nodes="", start_ts="N/A", elapsed="0:00", reason="Priority"))["481"]
    assert (row["gpus_requested"], row["gpus_allocated"], row["cpus_allocated"]) == (16, 0, 0)
    assert (row["tres_allocated"], row["pending_for_resources"], row["start_ts"]) == ({}, True, None)


@pytest.mark.parametrize(
    ("ref", "wanted"),
    [
        ("123_4", ("123", 4, None, None, None)),
        ("123_[1-10%2]", ("123", None, "1-10", 10, 2)),
        ("123_[1,3,5-7]", ("123", None, "1,3,5-7", 5, None)),
        ("123_[0-8:4%1]", ("123", None, "0-8:4", 3, 1)),
        ("123_[1-4,...]", ("123", None, "1-4,...", None, None)),
    ],
)
def test_ids_of_arrays_are_taken_apart(ref: str, wanted: tuple[Any, ...]) -> None:
    row = from_text(text_row(job_ref=ref))["481"]
    keys = ("array_job_id", "array_task_id", "array_tasks", "array_task_count", "array_throttle")
    assert tuple(row.get(key) for key in keys) == wanted


HARD = st.text(max_size=40)


@given(name=HARD, comment=HARD, command=HARD)
def test_whatever_stands_in_names_no_column_shifts(name: str, comment: str, command: str) -> None:
    marks = new_marks()
    found = from_text(
        text_row(marks, job_id="1", name=name, comment=comment, command=command), text_row(marks), marks=marks
    )
    assert list(found) == ["1", "481"]
    assert (found["1"]["name"], found["1"]["user"]) == (name or None, "alice")


def test_warnings_before_a_row_are_no_job_and_cost_none() -> None:
    found = from_text("squeue: warning: conf differs\n", text_row(), text_row(job_id="2"))
    assert list(found) == ["481", "2"]


def test_an_answer_that_is_cut_off_is_said_to_be_so() -> None:
    whole = text_row() + text_row(job_id="2")
    found = parse_jobs_text(whole[:-30], MARKS, UTC, now_ns=NOW, with_table=True)
    assert [job.id for job in found.jobs] == ["481"]
    assert [row.name for row in found.unreadable] == [None], "such an answer ends no job by its absence"
    with pytest.raises(ParseError, match="Unable to contact"):
        parse_jobs_text("Unable to contact slurm controller", MARKS, UTC)
    assert parse_jobs_text("", MARKS, UTC).jobs == (), "an empty queue"


def test_marks_begin_with_no_digit_and_differ_each_time() -> None:
    assert new_marks() != new_marks()
    marks = new_marks()
    assert not marks.field[0].isdigit()
    assert argv(marks)[-1].count(marks.field) == len(FIELDS) - 1


def test_processors_and_resources_of_nodes() -> None:
    table = rows(
        parse_nodes_json(
            answer(
                nodes=[
                    node_row(
                        "gn1", "mixed", cpus=64, alloc_cpus=16, real_memory=1000, free_memory=-2, alloc_memory=500
                    ),
                    node_row("gn2", "idle", "DRAIN", cpus=64, alloc_cpus=0, gres="gpu:a100:4,gpu:v100:2,shard:8"),
                    node_row("gn3", "mixed", cpus=64, alloc_cpus=1, gres_used="gpu:h100:5(IDX:0-3,5)"),
                ]
            ),
            with_table=True,
        ).table
    )
    one, two, three = table.values()
    assert (one["cpus_idle"], one["cpus_other"], one["memory_free_bytes"]) == (48, 0, None)
    assert (one["memory_bytes"], one["memory_allocated_bytes"]) == (1000 << 20, 500 << 20)
    assert (two["cpus_idle"], two["cpus_other"], two["available"], two["drained"]) == (0, 64, False, True)
    assert (two["gpus"], two["gpus_by_type"], two["shards"]) == (6, {"a100": 4, "v100": 2}, 8)
    assert (three["gpus_used"], three["gpu_indices_used"]) == (5, [0, 1, 2, 3, 5])


def test_nodes_from_text_and_json_of_one_cluster_are_alike() -> None:
    text = rows(parse_nodes_text(recorded("24.11/scontrol_o_show_node.txt"), UTC, with_table=True).table)
    found = rows(parse_nodes_json(recorded("24.11/scontrol_show_nodes_json.json"), with_table=True).table)
    assert set(text) == set(found)
    # What moves between two commands, and what only one of them tells.
    moving = {"memory_free_bytes", "cpu_load", "last_busy_ts", "gres_used", "gpus_used_by_type", "gpu_indices_used"}
    moving |= {"shards_used", "mps_used", "power_w"}
    for name, row in found.items():
        differ = {key for key in row if row[key] != text[name][key]}
        assert differ <= moving, (name, {key: (row[key], text[name][key]) for key in differ - moving})


def test_an_answer_goes_out_as_valid_messages() -> None:
    from heeler.bus import decode
    from heeler.slurm.tableparts import payload_of, table_publications

    found = parse_jobs_json(recorded("24.11/squeue_json.json"), now_ns=NOW, with_table=True)
    assert found.table is not None
    (part,) = table_publications("north", "slurm", "jobs", found.table, ts_ns=NOW, duration_ns=5, version=None)
    message = decode(part.kind, payload_of(part))
    assert json.loads(json.dumps(message["columns"]["nodes"]))[0] == ["n001", "n002"]
    assert message["slurm_version"] == "24.11.5"
