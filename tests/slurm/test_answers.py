"""Whole answers: recorded ones of two versions of Slurm, and odd ones made by hand."""

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurmdata import answer, job_row, node_row, recorded

from heeler.bus import check, encode
from heeler.slurm.errors import ParseError
from heeler.slurm.jobs import Gpus, job_message, parse_job_json, whole_nodes
from heeler.slurm.jobsjson import parse_jobs_json
from heeler.slurm.nodes import node_message, parse_node_json, parse_node_text, parse_nodes_json, parse_nodes_text

UTC = ZoneInfo("UTC")
JOBS = ["22.05/squeue_json.json", "24.11/squeue_json.json", "24.11/squeue_json_v0.0.40.json"]
NODES = ["22.05/sinfo_json.json", "24.11/scontrol_show_nodes_json.json", "24.11/scontrol_show_nodes_json_v0.0.40.json"]
EIGHT = tuple(range(8))
NS = 1_000_000_000


@pytest.mark.parametrize("name", JOBS)
def test_only_jobs_that_run_hold_gpus(name: str) -> None:
    found = parse_jobs_json(recorded(name))
    assert not found.unreadable
    holding = {job.id: job for job in found.jobs if job.state.holds}
    assert {job_id: job.gpus.by_node for job_id, job in holding.items()} == {
        "1": {"n001": EIGHT, "n002": EIGHT},
        "2": {"n003": (0, 1, 2, 3)},
        "5": {"n003": (4, 5)},
        "6": {"n003": (6, 7)},
    }
    assert {job.gpus.source for job in holding.values()} == {"slurm_index"}
    assert holding["1"].nodes == ("n001", "n002")
    assert (holding["1"].user, holding["1"].qos, holding["1"].name) == ("root", "high", "run-a")


@pytest.mark.parametrize("name", JOBS)
def test_a_task_of_an_array_has_both_ids(name: str) -> None:
    jobs = {job.id: job for job in parse_jobs_json(recorded(name)).jobs}
    assert (jobs["6"].array_job_id, jobs["6"].array_task_id) == ("3", "1")
    assert (jobs["1"].array_job_id, jobs["1"].array_task_id, jobs["1"].het_job_id) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "version"), [(JOBS[0], "22.05.8"), (JOBS[1], "24.11.5"), (NODES[0], "22.05.8"), (NODES[1], "24.11.5")]
)
def test_the_version_is_in_the_answer(name: str, version: str) -> None:
    read = parse_jobs_json if "squeue" in name else parse_nodes_json
    assert read(recorded(name)).version == version


@pytest.mark.parametrize("name", [*NODES, "22.05/scontrol_o_show_node.txt", "24.11/scontrol_o_show_node.txt"])
def test_all_forms_say_the_same_of_nodes(name: str) -> None:
    text = recorded(name)
    found = parse_nodes_json(text) if name.endswith("json") else parse_nodes_text(text, UTC)
    assert not found.unreadable
    nodes = {node.name: node for node in found.nodes}
    assert {name: (node.state.base, node.flags) for name, node in nodes.items()} == {
        "g0001": ("UNKNOWN", ("FAIL", "NOT_RESPONDING")),
        "g0002": ("UNKNOWN", ("NOT_RESPONDING",)),
        "g0003": ("UNKNOWN", ("NOT_RESPONDING",)),
        "g0004": ("UNKNOWN", ("NOT_RESPONDING",)),
        "n001": ("MIXED", ()),
        "n002": ("MIXED", ()),
        "n003": ("MIXED", ("DRAIN",)),
        "n004": ("IDLE", ("DRAIN",)),
        "n005": ("IDLE", ("MAINTENANCE", "RESERVED")),
        "n006": ("IDLE", ("DRAIN",)),
        "n007": ("IDLE", ()),
        "n008": ("DOWN", ("NOT_RESPONDING",)),
    }
    assert (nodes["n003"].state.draining, nodes["n004"].state.drained) == (True, True)
    assert (nodes["n003"].reason, nodes["n003"].reason_user) == ("draining, job still there", "root")
    assert nodes["n003"].reason_ts_ns is not None
    assert nodes["n003"].reason_ts_ns // NS in (1796187114, 1796187175)
    assert (nodes["n001"].reason, nodes["n001"].reason_user, nodes["n001"].reason_ts_ns) == (None, None, None)
    assert (nodes["n001"].gpus_total, nodes["n001"].gpus_used, nodes["n004"].gpus_used) == (8, 8, 0)
    assert nodes["n001"].partitions == ("train", "debug")
    assert nodes["n001"].cpu_load is not None
    assert 0 < nodes["n001"].cpu_load < 1


def test_newer_sinfo_lists_groups_and_is_no_list_of_nodes() -> None:
    with pytest.raises(ParseError, match="no list of nodes"):
        parse_nodes_json(recorded("24.11/sinfo_json.json"))


@pytest.mark.parametrize("name", JOBS)
def test_every_job_makes_a_message_of_the_contract(name: str) -> None:
    for job in parse_jobs_json(recorded(name)).jobs:
        message = job_message(job, cluster="north", event="started", ts_ns=5 * NS)
        encode("JobEvent", message)
        assert None not in message.values()


@pytest.mark.parametrize("name", NODES)
def test_every_node_makes_a_message_of_the_contract(name: str) -> None:
    for node in parse_nodes_json(recorded(name)).nodes:
        message = node_message(node, cluster="north", event="seen", ts_ns=5 * NS)
        encode("NodeState", message)
        assert check("NodeState", dict(message))["state"] == node.state.base.lower()


def test_gpu_lists_go_with_the_nodes_of_the_allocation_not_of_the_sorted_text() -> None:
    lists = ["gpu:2(IDX:0-1)", "gpu:2(IDX:6-7)"]
    old = {"allocated_nodes": [{"nodename": "gn2"}, {"nodename": "gn1"}]}
    new = {"nodes": {"allocation": [{"name": "gn2"}, {"name": "gn1"}]}}
    for resources in (old, new):
        job = parse_job_json(job_row(gres_detail=lists, job_resources=resources))
        assert job.gpus.by_node == {"gn2": (0, 1), "gn1": (6, 7)}
    partial = {"allocated_nodes": [{"nodename": "gn2"}]}
    assert parse_job_json(job_row(gres_detail=lists, job_resources=partial)).gpus.by_node == {
        "gn1": (0, 1),
        "gn2": (6, 7),
    }


def test_each_node_keeps_its_own_list() -> None:
    job = parse_job_json(job_row(gres_detail=["gpu:a100:2(IDX:0,7)", "gpu:a100:1(IDX:3)"]))
    assert job.gpus == Gpus("slurm_index", {"gn1": (0, 7), "gn2": (3,)}, None)


def test_a_list_that_contradicts_itself_leaves_its_node_unknown() -> None:
    job = parse_job_json(job_row(gres_detail=["gpu:8(IDX:0-3)", "gpu:8(IDX:0-7)"]))
    assert job.gpus.by_node == {"gn2": EIGHT}
    message = job_message(job, cluster="north", event="started", ts_ns=0)
    assert "gn1" not in message["gpus"]
    assert message["gpus_per_node"] == 8


@pytest.mark.parametrize(
    ("changes", "source", "per_node"),
    [
        ({"gres_detail": [], "tres_alloc_str": "cpu=64,node=2"}, "none", None),
        ({"gres_detail": ["", ""], "tres_alloc_str": "cpu=64,node=2"}, "none", None),
        ({"gres_detail": ["nic:1", "nic:1"]}, "none", None),
        ({"gres_detail": [], "tres_alloc_str": "cpu=1,gres/gpu:h100=16,gres/gpu=16"}, "unknown", 8),
        ({"gres_detail": [], "tres_alloc_str": "cpu=1,gres/gpu=3"}, "unknown", None),
        ({"gres_detail": [], "tres_alloc_str": "cpu=1", "tres_per_node": "gres:gpu:8"}, "unknown", None),
        ({"gres_detail": [], "tres_alloc_str": "cpu=1", "tres_per_job": "gres/shard:8"}, "unknown", None),
        ({"gres_detail": ["shard:a:4(1/80)", "shard:a:4(1/80)"]}, "unknown", None),
        ({"gres_detail": ["gpu:8"]}, "unknown", None),
        ({"gres_detail": ["gpu:8(IDX", ""]}, "unknown", None),
        ({"gres_detail": [3, 4]}, "unknown", None),
        ({"gres_detail": ["gpu:8", "gpu:8"]}, "unknown", 8),
        ({"gres_detail": None}, "unknown", None),
    ],
)
def test_what_slurm_does_not_say_of_gpus_is_not_made_up(
    changes: dict[str, Any], source: str, per_node: int | None
) -> None:
    gpus = parse_job_json(job_row(**changes)).gpus
    assert (gpus.source, gpus.per_node, gpus.by_node) == (source, per_node, None)


def test_a_job_with_every_gpu_of_its_nodes_has_whole_nodes() -> None:
    job = parse_job_json(job_row(gres_detail=[], tres_alloc_str="gres/gpu=16"))
    assert whole_nodes(job, {"gn1": 8, "gn2": 8}).source == "whole_node"
    assert whole_nodes(job, {"gn1": 8, "gn2": 4}).source == "unknown"
    assert whole_nodes(job, {"gn1": 8}).source == "unknown"


@pytest.mark.parametrize(
    ("changes", "node_gpus", "wanted"),
    [
        ({}, {"gn1": 8, "gn2": 8}, ("whole_node", 8)),
        ({}, {"gn1": 8, "gn2": 4}, ("whole_node", None)),
        ({}, {"gn1": 8}, ("none", None)),
        ({}, {"gn1": 0, "gn2": 0}, ("none", None)),
        ({"shared": []}, {"gn1": 8, "gn2": 8}, ("none", None)),
        ({"gres_detail": ["gpu:2(IDX:0-1)"] * 2}, {"gn1": 8, "gn2": 8}, ("slurm_index", 2)),
    ],
)
def test_a_site_may_give_exclusive_jobs_the_gpus_that_they_did_not_ask_for(
    changes: dict[str, Any], node_gpus: dict[str, int], wanted: tuple[str, int | None]
) -> None:
    row = job_row(**{"shared": ["none"], "gres_detail": [], "tres_alloc_str": "cpu=64,node=2", **changes})
    found = whole_nodes(parse_job_json(row), node_gpus, exclusive_owns=True)
    assert (found.source, found.per_node) == wanted


def test_an_exclusive_job_without_gpus_has_none() -> None:
    job = parse_job_json(job_row(shared="none", gres_detail=[], tres_alloc_str="cpu=64,node=1"))
    assert (job.exclusive, job.gpus.source) == (True, "none")
    assert whole_nodes(job, {"gn1": 8, "gn2": 8}).source == "none"
    assert parse_job_json(job_row(shared=["none"])).exclusive is True
    assert parse_job_json(job_row(shared=[])).exclusive is False
    assert parse_job_json(job_row(shared=None)).exclusive is None


@pytest.mark.parametrize("name", ["train|v2", "a\nb", "N/A", "(null)", "naïve 🐕", "a\tb;c"])
def test_a_name_is_kept_as_it_is(name: str) -> None:
    text = json.dumps(answer(jobs=[job_row(name=name)]))
    (job,) = parse_jobs_json(text).jobs
    assert job.name == name
    encode("JobEvent", job_message(job, cluster="north", event="started", ts_ns=0))


def test_a_name_that_is_no_unicode_does_not_lose_its_job() -> None:
    (job,) = parse_jobs_json('{"jobs": [' + json.dumps(job_row(name="x")).replace('"x"', '"\\ud800"') + "]}").jobs
    encode("JobEvent", job_message(job, cluster="north", event="started", ts_ns=0))


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (job_row(nodes="gn[1-"), "481"),
        (job_row(nodes=["gn1"]), "481"),
        (job_row(job_state=7), "481"),
        (job_row(start_time="soon"), "481"),
        (job_row(user_name=3), "481"),
        (job_row(job_id=0), None),
        (job_row(job_id="x"), None),
        ("row", None),
        (None, None),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_takes_no_other_with_it(row: Any, named: str | None) -> None:
    found = parse_jobs_json(answer(jobs=[row, job_row(500)]))
    assert [job.id for job in found.jobs] == ["500"]
    assert [bad.name for bad in found.unreadable] == [named]


def test_a_node_that_cannot_be_read_is_named_and_takes_no_other_with_it() -> None:
    rows = [node_row("gn1", state=""), node_row("gn 2"), node_row("gn3", boot_time="?"), node_row("gn4"), 5]
    found = parse_nodes_json(answer(nodes=rows))
    assert [node.name for node in found.nodes] == ["gn4"]
    assert [bad.name for bad in found.unreadable] == ["gn1", None, "gn3", None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html><body>502</body></html>",
        '{"jobs": [], "nodes": [], "errors": [{"error": "db down"}]}',
        '{"errors": []}',
        '{"jobs": null, "nodes": {}}',
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    ],
)
def test_an_answer_that_is_none_is_an_error_and_never_zero_jobs(text: str) -> None:
    for read in (parse_jobs_json, parse_nodes_json):
        with pytest.raises(ParseError):
            read(text)


def test_gpus_of_a_node_come_from_tres_only_where_the_site_counts_them() -> None:
    line = "NodeName=n1 Gres=gpu:h100:8 State=MIXED CfgTRES=cpu=64 AllocTRES=cpu=1"
    assert parse_node_text(line, UTC).gpus_used is None
    line = "NodeName=n1 Gres=gpu:h100:8 State=MIXED CfgTRES=cpu=64,gres/gpu=8 AllocTRES=cpu=1"
    assert parse_node_text(line, UTC).gpus_used == 0
    assert parse_node_text(line.partition(" AllocTRES")[0], UTC).gpus_used is None, "not said is not none"
    line = "NodeName=n1 Gres=gpu:h100:8 GresUsed=gpu:h100:2(IDX:0-1) State=MIXED"
    assert parse_node_text(line, UTC).gpus_used == 2
    assert parse_node_text("NodeName=n1 Gres=(null) State=IDLE", UTC).gpus_total == 0
    assert parse_node_json(node_row(gres="gpu:8(")).gpus_total is None


@pytest.mark.parametrize(
    ("text", "reason", "user"),
    [
        ("psu swap [alice@2026-03-01T08:00:00]", "psu swap", "alice"),
        ("a=b State=IDLE [x] [alice@2026-03-01T08:00:00]", "a=b State=IDLE [x]", "alice"),
        ("seen [bob@home] [alice@2026-03-01T08:00:00]", "seen [bob@home]", "alice"),
        ("first [alice@2026-03-01T08:00:00]        second", "first\nsecond", "alice"),
        ("no author", "no author", None),
        ("mail [ops@site.org]", "mail [ops@site.org]", None),
        (" Low RealMemory [slurm@2026-03-01T08:00:00]", "Low RealMemory", "slurm"),
        ("(null)", None, None),
        ("psu [bob@2026-03-01T08:00:00] Comment=x [eve@2026-03-01T08:00:00] Extra=y ", "psu", "bob"),
        ("first [bob@2026-03-01T08:00:00]        second Comment=x", "first\nsecond", "bob"),
        ("see Comment=5 [bob@2026-03-01T08:00:00]", "see Comment=5", "bob"),
        ("no author Comment=x", "no author", None),
    ],
)
def test_a_reason_in_text_is_told_from_its_author(text: str, reason: str | None, user: str | None) -> None:
    node = parse_node_text(f"NodeName=n1 State=IDLE+DRAIN Partitions=a Reason={text}", UTC)
    assert (node.reason, node.reason_user) == (reason, user)
    assert (node.reason_ts_ns is None) == (user is None)
    assert node.state.drained


def test_an_author_that_cannot_be_told_is_not_known() -> None:
    line = "NodeName=n1 State=IDLE+DRAIN Reason=x [eve@2020-01-01T00:00:00] [bob@2026-01-01T00:00:00]   y"
    assert parse_node_text(line, UTC).reason_user is None


def test_what_stands_behind_a_reason_is_no_part_of_it() -> None:
    line = "NodeName=n1 State=IDLE Reason=psu [bob@2026-03-01T08:00:00] Comment=rack 7 ReservationName=maint"
    answer = parse_nodes_text(line, UTC, with_table=True)
    assert (answer.nodes[0].reservation, answer.nodes[0].reason) == ("maint", "psu")
    assert answer.table is not None
    assert answer.table.columns["comment"] == ["rack 7"]
    assert parse_node_text("NodeName=n1 State=IDLE Comment=see Reason=x", UTC).reason is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(job_row())), JSON, max_size=4), st.sampled_from(sorted(job_row())))
def test_any_job_row_is_read_whole_or_refused(changes: dict[str, Any], absent: str) -> None:
    row = job_row() | changes
    del row[absent]
    try:
        job = parse_job_json(row)
    except ParseError:
        return
    encode("JobEvent", job_message(job, cluster="north", event="started", ts_ns=0))


@given(st.dictionaries(st.sampled_from(sorted(node_row())), JSON, max_size=4), st.sampled_from(sorted(node_row())))
def test_any_node_row_is_read_whole_or_refused(changes: dict[str, Any], absent: str) -> None:
    row = node_row() | changes
    del row[absent]
    try:
        node = parse_node_json(row)
    except ParseError:
        return
    encode("NodeState", node_message(node, cluster="north", event="seen", ts_ns=0))


@given(st.text(max_size=60) | st.text("NodeName=n1 State=IDLE+ Reason=[@]:0T-", max_size=80))
def test_any_text_of_nodes_is_read(text: str) -> None:
    found = parse_nodes_text(text, UTC)
    assert len(found.nodes) + len(found.unreadable) == sum(bool(line.strip()) for line in text.splitlines())
