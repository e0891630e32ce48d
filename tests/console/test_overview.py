"""The fleet as tables: what is not known stays unknown, trouble comes first."""

from typing import Any

from consolekit import T0, S, cluster_state, finding, inbound, job_event, node_state, sample

from heeler.console.model import Model
from heeler.console.overview import Wanted, overview
from heeler.console.settings import ConsoleSettings


def seen(*messages: tuple[str, dict[str, Any]], at: float = 2, wanted: Wanted | None = None) -> dict[str, Any]:
    model = Model(ConsoleSettings())
    for kind, data in messages:
        model.on(inbound(kind, data))
    now = T0 + int(at * S)
    model.tick(now)
    return overview(model, now, wanted)


def test_a_job_has_the_sums_of_its_gpus_alone() -> None:
    found = seen(
        ("JobEvent", job_event(nodes=("n1", "n2"))),
        ("JobSample", sample("n1", mean={"power_w": [100.0] * 8, "util_ratio": [0.5] * 8})),
        ("JobSample", sample("n2", mean={"power_w": [300.0] * 8, "util_ratio": [1.0] * 8, "temp_c": [90.0] * 8})),
        ("JobSample", sample("n3", job=None)),
    )
    (job,) = found["job_rows"]
    assert (job["gpus"], job["nodes"], job["power_w"], job["util"], job["temp_max_c"]) == (16, 2, 3200.0, 0.75, 90.0)
    assert (job["running_s"], job["age_s"], job["user"]) == (3602.0, 2.0, "ada")
    assert found["gpus"]["all"] == 24
    assert (found["gpus"]["in_job"], found["gpus"]["free"]) == (16, 8)
    assert found["power_w"] == 3200.0 + 8 * 350.0


def test_what_was_not_read_is_none_and_in_no_mean() -> None:
    mean = {"util_ratio": [1.0] + [None] * 7, "power_w": None, "temp_c": [None] * 8}
    found = seen(("JobSample", sample("n1", mean=mean)))
    for row in (found["job_rows"][0], found["node_rows"][0]):
        assert (row["util"], row["power_w"], row["temp_max_c"]) == (1.0, None, None)
    assert found["power_w"] is None


def test_a_job_without_samples_has_no_readings_and_no_age() -> None:
    (job,) = seen(("JobEvent", job_event()))["job_rows"]
    assert job["gpus"] == 0
    assert {job[key] for key in ("util", "power_w", "temp_max_c", "clock_mhz", "age_s")} == {None}


def test_readings_of_a_silent_node_are_unknown_with_their_age() -> None:
    found = seen(("JobSample", sample("n1")), at=100)
    (node,) = found["node_rows"]
    assert (node["gpus"], node["gpus_unknown"], node["util"], node["age_s"]) == (8, 8, None, 100.0)
    assert found["power_w"] is None
    assert found["gpus"]["stale"] == 8


def test_nodes_in_trouble_come_first() -> None:
    found = seen(
        ("NodeState", node_state("n1")),
        ("NodeState", node_state("n2", state="idle", flags=["DRAIN"], reason="psu")),
        ("NodeState", node_state("n3", state="down")),
        ("JobSample", sample("n4", state=["lost"] + ["ok"] * 7)),
        ("JobSample", sample("n5", job=None)),
        ("JobSample", sample("n1")),
        ("Finding", finding()),
    )
    rows = found["node_rows"]
    assert [row["node"] for row in rows] == ["n1", "n4", "n3", "n2", "n5"]
    assert (rows[0]["severity"], rows[0]["jobs"], rows[1]["gpus_bad"]) == ("critical", ["81"], 1)
    assert (rows[3]["slurm"], rows[3]["reason"], rows[4]["slurm"], rows[2]["gpus"]) == ("drained", "psu", None, 0)


def test_findings_are_the_open_ones_the_worst_first() -> None:
    found = seen(
        ("Finding", finding("a", severity="info")),
        ("Finding", finding("b", severity="critical")),
        ("Finding", finding("c", state="closed")),
    )
    assert [row["severity"] for row in found["finding_rows"]] == ["critical", "info"]
    assert found["finding_rows"][0]["age_s"] == 602.0


def test_jobs_of_one_user_or_partition_are_those_alone() -> None:
    messages = [("JobEvent", job_event("1")), ("JobEvent", job_event("2", user="bob", partition="cpu"))]
    assert [row["job"] for row in seen(*messages, wanted=Wanted(user="bob"))["job_rows"]] == ["2"]
    assert [row["job"] for row in seen(*messages, wanted=Wanted(partition="gpu"))["job_rows"]] == ["1"]


def test_how_old_each_source_is_and_what_slurm_says_of_itself() -> None:
    found = seen(("ClusterState", cluster_state()), ("JobSample", sample()), at=5)
    assert found["age_s"] == {"samples": 5.0, "jobs": None, "nodes": None, "findings": None}
    assert [(one["controller"], one["age_s"]) for one in found["slurm"]] == [("up", 5.0)]
    assert seen()["slurm"] == []
