"""`heeler slurm parse`: JSON lines out, exit status 1 naming what can't be read."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from slurmdata import answer, job_row, recorded

from heeler.slurm.cli import LINES, slurm_cli


def parse(kind: str, text: str | bytes, *options: str) -> tuple[int, list[Any], str]:
    done = CliRunner().invoke(slurm_cli, ["parse", kind, *options], input=text)
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_each_line_gives_a_line() -> None:
    status, found, _ = parse("hostlist", "gn[009-011]\nx[1-3,2-4]\n(null)\n")
    assert status == 0
    assert [row["names"] for row in found] == [["gn009", "gn010", "gn011"], ["x1", "x2", "x3", "x2", "x3", "x4"], []]
    assert [row["count"] for row in found] == [3, 4, 0]


def test_a_fault_is_named_and_the_other_lines_are_read() -> None:
    status, found, err = parse("hostlist", "n[1-2]\nn[1-\nn3\n")
    assert status == 1
    assert [row["input"] for row in found] == ["n[1-2]", "n3"]
    assert "'n[1-'" in err


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("gres", "gpu:a100:5(IDX:0-3,5),gpu:v100:1(IDX:7)", {"gpus": 6}),
        (
            "tres",
            "cpu=64,mem=500G,node=2,gres/gpu:h100=16,gres/gpu=16",
            {"gpus": 16, "mem_bytes": 536870912000, "nodes": 2},
        ),
        ("state", "idle*", {"of": "node", "base": "IDLE", "flags": ["NOT_RESPONDING"], "available": False}),
        ("state", "MIXED+DRAIN", {"draining": True, "drained": False}),
        ("state", "CANCELLED by 1001", {"of": "job", "name": "CANCELLED", "cancelled_by_uid": 1001}),
        ("state", "BOGUS", {"of": "node", "base": "UNKNOWN", "unparsed": "BOGUS"}),
        ("jobstate", "OUT_OF_ME+", {"name": "OUT_OF_MEMORY", "ended": True}),
        ("partition", "gpu*", {"name": "gpu", "default": True}),
        ("time", "1-02:03:04", {"seconds": 93784}),
        ("time", "UNLIMITED", {"seconds": "infinity", "unlimited": True}),
        ("time", "2026-03-01T08:00:00", {"utc": "2026-03-01T07:00:00Z"}),
        ("time", "NONE", {"seconds": None}),
        ("number", '{"set":false,"infinite":true,"number":0}', {"number": "infinity"}),
        ("number", "4294967294", {"number": None}),
        ("number", '"5"', {"number": 5}),
        ("number", "65534", {"number": 65534, "number_16_bits": None}),
        ("duration", "10 (limit)", {"seconds": 600, "unlimited": False}),
        ("timestamp", "0", {"ts": None, "utc": None}),
        ("timestamp", "2026-03-29T03:30:00", {"utc": "2026-03-29T01:30:00Z"}),
        ("state", "CANCELLED by alice", {"of": "job", "name": "CANCELLED"}),
        ("jobid", "123_4294967294", {"job": 123, "task": None}),
        ("jobid", "123.4294967291", {"job": 123, "step": "batch"}),
        ("jobid", "123_[1-10%2]", {"job": 123, "task_count": 10, "throttle": 2}),
        ("fold", "c08 c09,c010 c10", {"hostlist": "c[08-10,010]"}),
    ],
)
def test_every_kind_is_read(kind: str, text: str, wanted: dict[str, Any]) -> None:
    status, (found,), _ = parse(kind, text, "--zone", "Europe/Berlin")
    assert status == 0
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize("kind", sorted(LINES))
def test_every_kind_names_what_it_cannot_read(kind: str) -> None:
    bad = {"state": "", "jobstate": "", "partition": "g*u"}.get(kind, "?[")
    status, found, err = parse(kind, f"{bad}\n")
    assert (status, found) == (1, [])
    assert bad in err


@pytest.mark.parametrize("kind", ["squeue", "jobs"])
def test_jobs_that_hold_resources_come_as_events(kind: str) -> None:
    status, found, _ = parse(kind, "warning: odd\n" * (kind == "jobs") + recorded("24.11/squeue_json.json"))
    assert status == 0
    assert [row["job_id"] for row in found] == ["1", "2", "5", "6"]
    assert found[0]["gpus"]["n001"] == list(range(8))


def test_a_bad_row_among_jobs_is_named() -> None:
    status, found, err = parse("jobs", json.dumps(answer(jobs=[job_row(nodes="gn[1-"), job_row(500)])))
    assert status == 1
    assert [row["job_id"] for row in found] == ["500"]
    assert "481" in err
    assert "gn[1-" in err


@pytest.mark.parametrize("name", ["22.05/sinfo_json.json", "22.05/scontrol_o_show_node.txt"])
def test_nodes_come_from_json_and_from_text(name: str) -> None:
    status, found, _ = parse("nodes", recorded(name), "--zone", "UTC")
    assert status == 0
    (drained,) = [row for row in found if row["node"] == "n004"]
    assert (drained["drained"], drained["reason"], drained["reason_ts"]) == (True, "Prolog error", 1796187115000000000)


def test_rows_of_text_are_split_as_told() -> None:
    status, found, err = parse("squeue", "warning: x\n481|RUNNING|train|v2\n", "--fields", "id,state,name")
    assert status == 0
    assert found == [{"id": "481", "state": "RUNNING", "name": "train|v2"}]
    assert "warning: x" in err


@pytest.mark.parametrize("kind", ["jobs", "nodes"])
def test_errors_in_an_answer_are_a_fault_and_not_nothing(kind: str) -> None:
    status, found, err = parse(kind, '{"jobs": [], "nodes": [], "errors": [{"error": "db down"}]}')
    assert (status, found) == (1, [])
    assert "db down" in err


def test_bytes_that_are_no_text_are_named() -> None:
    status, _, err = parse("hostlist", b"n\xff1\n")
    assert status == 1
    assert "\ufffd" in err


def test_sinfo_is_read_from_json_and_from_text() -> None:
    status, groups, _ = parse("sinfo", recorded("24.11/sinfo_json.json"))
    assert status == 0
    reserved = next(row for row in groups if "n005" in row["nodes"])
    assert (reserved["base"], reserved["available"], reserved["gpus"], reserved["reservation"]) == (
        "IDLE",
        False,
        8,
        "maint1",
    )
    status, rows, _ = parse("sinfo", recorded("24.11/sinfo.txt"))
    assert status == 0
    assert (rows[0]["partition"], rows[0]["is_default"], rows[0]["flags"]) == ("train", True, ["MAINTENANCE"])
    status, rows, _ = parse("sinfo", recorded("24.11/sinfo_R.txt"), "--zone", "UTC")
    assert status == 0
    assert rows[1] | {"reason_ts": 0} == {
        "nodes": ["n008"],
        "reason": "Not responding",
        "reason_user": "root",
        "reason_ts": 0,
    }
    status, rows, _ = parse("sinfo", recorded("24.11/sinfo_N_l.txt"))
    assert (status, rows[0]["nodes"], rows[0]["reason"]) == (0, ["g0001"], "failing")
    status, rows, _ = parse("sinfo", "NODELIST|STATE|CPUS(A/I/O/T)|GRES\ngn1|mix-|16/48/0/64|gpu:h100:8(S:0-1)\n")
    assert (rows[0]["gpus"], rows[0]["cpus_idle"], rows[0]["flags"]) == (8, 48, ["PLANNED"])
    status, _, err = parse("sinfo", "nonsense")
    assert status == 1
    assert "nonsense" in err


def test_tables_come_as_rows_without_what_is_not_known() -> None:
    status, rows, _ = parse("job-table", recorded("22.05/squeue_json.json"))
    assert (status, len(rows)) == (0, 14)
    assert rows[0]["gpus_requested"] == 16
    assert "licenses" not in rows[0]
    status, rows, _ = parse("node-table", recorded("24.11/scontrol_o_show_node.txt"))
    assert (status, len(rows)) == (0, 12)
    assert parse("partitions", recorded("24.11/scontrol_show_partitions_json.json"))[0] == 0
    status, _, err = parse("job-table", "no such thing")
    assert status == 1
    assert "no such thing" in err


OUTAGE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(
    "text", [OUTAGE, "481|alice|gpu|RUNNING|a\n483|bob|gpu|PENDING", "481|alice|gpu|RUNNING|a\nx483|bob|gpu|PENDING|b"]
)
def test_an_outage_and_a_broken_row_are_no_shorter_queue(text: str) -> None:
    status, found, err = parse("squeue", text + "\n")
    assert status == 1
    assert text.splitlines()[-1] in err
    assert len(found) == text.count("481")


@pytest.mark.parametrize("text", ["", "JOBID|USER|PARTITION|ST|NAME\n"])
def test_an_empty_queue_is_empty(text: str) -> None:
    assert parse("squeue", text)[:2] == (0, [])


def test_no_answer_is_not_a_cluster_without_nodes() -> None:
    assert parse("nodes", "")[:2] == (1, [])


def test_a_partition_without_nodes_has_no_state() -> None:
    head = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
    status, rows, _ = parse("sinfo", f"{head}gpu*  up   infinite   2  idle* gn[1-2]\ncpu  down  30:00  0    n/a \n")
    assert status == 0
    assert rows[1] == {"nodes": [], "node_count": 0, "partition": "cpu", "is_default": False}


@pytest.mark.parametrize("kind", ["jobs", "squeue"])
def test_jobs_that_hold_resources_are_given_whatever_else_an_answer_lists(kind: str) -> None:
    done = [job_row(100 + n, state="COMPLETED", end_time=1500, gres_detail=[]) for n in range(50)]
    rows = [
        *done,
        job_row(1),
        job_row(2) | {"job_state": ["RUNNING", "NEWER_FLAG"]},
        job_row(3, state="PENDING", nodes=""),
    ]
    status, found, err = parse(kind, json.dumps(answer(jobs=rows)))
    assert (status, [row["job_id"] for row in found], err) == (0, ["1", "2"], "")
    status, found, err = parse(kind, json.dumps(answer(jobs=[*rows, job_row(4, state="BOGUS")])))
    assert (status, [row["job_id"] for row in found]) == (1, ["1", "2"])
    assert "job 4: not a job state: 'BOGUS'" in err
