"""From health checks and accounting to points and records."""

import pytest
from slurmtables import health_result, health_run, job_record

from heeler.otlp import names_health
from heeler.otlp.logs import ERROR, INFO, WARN
from heeler.otlp.map_health import result_log, result_points, run_log, run_points
from heeler.otlp.map_jobs import job_log


@pytest.mark.parametrize("outcome", names_health.OUTCOMES)
def test_of_the_outcomes_of_a_check_one_holds(outcome: str) -> None:
    (made,) = result_points(health_result(outcome))
    state = [p for p in made.flat() if p["metric"] == "heeler.health.check.state"]
    assert len(state) == 5
    assert [p["attributes"]["heeler.health.outcome"] for p in state if p["value"] == 1] == [outcome]
    assert {p["kind"] for p in state} == {"updowncounter"}
    for point in state:
        assert point["attributes"].items() >= {
            "host.name": "n1", "heeler.cluster": "north", "heeler.health.check": "gpu_temp",
            "heeler.health.phase": "prolog",
        }.items()  # fmt: skip
        assert "slurm.job.id" not in point["attributes"]  # a series for each job has no end


def test_duration_and_numbers_of_a_check_are_in_base_units() -> None:
    (made,) = result_points(health_result(perf={"temp_c": 97.0, "free_bytes": 5.0, "Odd name": 1.0}))
    told = {(p["metric"], p["unit"], p["value"]) for p in made.flat() if "state" not in p["metric"]}
    assert ("heeler.health.check.duration", "s", 0.25) in told
    assert ("heeler.health.perf.temp", "Cel", 97.0) in told
    assert ("heeler.health.perf.free", "By", 5.0) in told
    assert made.skipped == 1


def test_a_duration_that_was_not_told_has_no_point() -> None:
    result = health_result()
    del result["duration_ns"]
    (made,) = result_points(result)
    assert not [p for p in made.flat() if p["metric"] == "heeler.health.check.duration"]


def test_runs_in_different_phases_are_different_series() -> None:
    (one,), (other,) = run_points(health_run("pass")), run_points(health_run("pass", phase="periodic"))
    assert one.ids != other.ids
    states = {p["attributes"]["heeler.health.verdict"]: p["value"] for p in one.flat() if p["metric"].endswith("state")}
    assert states == {"pass": 1, "fail": 0, "would_fail": 0, "refused": 0, "unknown": 0}


@pytest.mark.parametrize(
    ("outcome", "severity"), [("bad", ERROR), ("warn", WARN), ("unknown", WARN), ("ok", None), ("off", None)]
)
def test_what_is_not_well_or_not_known_is_a_record(outcome: str, severity: int | None) -> None:
    record = result_log(health_result(outcome))
    assert (record.severity if record else None) == severity
    if record:
        assert record.body == f"n1: gpu_temp is {outcome}: GPU 3 is at 97 degrees"
        assert record.attributes["slurm.job.id"] == "481"
        assert record.attributes["hw.id"] == "GPU-a"
        assert record.attributes["heeler.health.evidence"][0]["limit"] == 90


@pytest.mark.parametrize(
    ("verdict", "severity"), [("fail", ERROR), ("would_fail", WARN), ("refused", WARN), ("pass", None)]
)
def test_a_run_that_fails_is_a_record(verdict: str, severity: int | None) -> None:
    record = run_log(health_run(verdict))
    assert (record.severity if record else None) == severity
    if record:
        assert record.attributes["heeler.health.reason"].startswith("heeler:prolog:gpu_temp")


def test_a_run_that_ended_processes_is_a_record_even_if_it_is_well() -> None:
    record = run_log(health_run("pass", phase="epilog", killed=[{"pid": 7, "comm": "python", "gone": True}]))
    assert record is not None
    assert record.severity == INFO
    assert record.attributes["heeler.health.killed"] == [{"pid": 7, "comm": "python", "gone": True}]


@pytest.mark.parametrize(
    ("state", "severity"), [("COMPLETED", INFO), ("CANCELLED", INFO), ("FAILED", WARN), ("NODE_FAIL", WARN)]
)
def test_a_run_of_a_job_that_ended_is_a_record_at_its_end(state: str, severity: int) -> None:
    data = job_record(state)
    record = job_log(data)
    assert record is not None
    assert (record.severity, record.ts_ns) == (severity, data["end_ts"])
    assert record.attributes["slurm.job.id"] == "481"
    assert record.attributes["slurm.job.steps"] == 2
    assert record.attributes["slurm.job.signal"] == 0  # known, and none


def test_a_job_that_goes_on_is_no_record() -> None:
    running = job_record("RUNNING")
    assert job_log(running) is None
    ended = job_record()
    del ended["end_ts"]
    assert job_log(ended) is None


def test_command_lines_folders_and_comments_stay_on_the_bus() -> None:
    record = job_log(job_record())
    assert record is not None
    assert "s3cret" not in f"{record.body} {record.attributes}"
    assert "/home/ada" not in f"{record.body} {record.attributes}"


def test_a_record_says_in_words_what_became_of_the_job() -> None:
    record = job_log(job_record())
    assert record is not None
    assert record.body == "job 481 of ada: FAILED after 4600 s on n[1-2], exit status 1"
