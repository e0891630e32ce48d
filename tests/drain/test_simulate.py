"""What a policy would have done in a capture, and what that comes to in hours of nodes, GPUs and jobs."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from drainworld import CLUSTER, T0, S, controller, inbound, lag, node, xid

from heeler.bus import encode, subjects
from heeler.cli.simulate import simulated
from heeler.drain.simulate import Simulation
from heeler.engine import capture

MINUTE, HOUR = 60 * S, 3600 * S
BEGIN = T0 - HOUR


def job(job_id: str, event: str = "started", at: int = BEGIN, **more: Any) -> tuple[str, dict[str, Any], int]:
    """A word about a job that holds n001 alone with its eight GPUs."""
    about = {"job_id": job_id, "state": "RUNNING", "start_ts": at, "nodes": ["n001"], "gpus_source": "whole_node"}
    return "JobEvent", {"v": 1, "cluster": CLUSTER, "ts": at, "event": event, **about, **more}, at


def ended(job_id: str, start: int, at: int, state: str = "COMPLETED", **more: Any) -> tuple[str, dict[str, Any], int]:
    kind, data, _ = job(job_id, "ended", at, **more)
    return kind, {**data, "start_ts": start, "end_ts": at, "state": state}, at


def story(*words: tuple[str, dict[str, Any], int], until: int = T0 + 2 * HOUR) -> list[tuple[str, dict[str, Any], int]]:
    """A hundred healthy nodes of eight GPUs, a Slurm feed that is always there, and these words."""
    told = list(words)
    told += [("NodeState", node(f"n{n:03d}", BEGIN, gpus_total=8), BEGIN) for n in range(1, 101)]
    told += [("ClusterState", controller(at), at) for at in range(BEGIN, until + 1, MINUTE)]
    return sorted(told, key=lambda word: word[2])


def write(path: Path, words: Iterable[tuple[str, dict[str, Any], int]]) -> Path:
    with path.open("wb") as out:
        for kind, data, at in words:
            if kind == "JobEvent":
                subject = subjects.job_event(data["cluster"], data["job_id"])
            else:
                subject = inbound(kind, data, at).subject
            headers = {"Heeler-Type": f"{kind}/1"}
            capture.write(out, capture.Captured(subject, at, encode(kind, data), headers))
    return path


def run(folder: Path, *words: tuple[str, dict[str, Any], int], policy: str | None = None) -> dict[str, Any]:
    path = write(folder / "x.capture", story(*words))
    return simulated(path, policy, None, anew=False).plain()


FAULT = ("Finding", xid(ts=T0), T0)


def test_an_idle_node_that_is_taken_out_is_lost_to_the_end(tmp_path: Path) -> None:
    told = run(tmp_path, FAULT)
    [drain] = told["drains"]
    assert (drain["node"], drain["finding_id"], drain["rule"]) == ("n001", "xid-n001-79", "hard_evidence")
    assert (drain["node_hours"], drain["gpu_hours"]) == (2.0, 16.0)
    assert told["totals"] == {
        "drains": 1,
        "refusals": 0,
        "node_hours": 2.0,
        "gpu_hours": 16.0,
        "gpu_hours_unknown": 0,
        "requeued_job_hours": 0,
        "saved_job_hours": 0,
        "perhaps_saved_job_hours": 0,
        "moved_job_hours": 0,
    }
    assert told["hours"] == 3.0


def test_a_job_that_goes_on_to_its_end_loses_nothing_until_then(tmp_path: Path) -> None:
    told = run(tmp_path, job("1"), FAULT, ended("1", BEGIN, T0 + HOUR // 2))
    [drain] = told["drains"]
    assert drain["jobs_left_to_finish"] == ["1"]
    assert (drain["node_hours"], drain["gpu_hours"]) == (1.5, 12.0)


def test_gpus_that_a_job_has_not_are_lost_at_once(tmp_path: Path) -> None:
    part: dict[str, Any] = {"gpus_source": "slurm_index", "gpus": {"n001": [0, 1]}}
    told = run(tmp_path, job("1", **part), FAULT, ended("1", BEGIN, T0 + HOUR, **part))
    [drain] = told["drains"]
    assert drain["node_hours"] == 1.0, "half of the time a job is there"
    assert drain["gpu_hours"] == 6.0 + 8.0


def test_gpus_that_are_not_known_make_no_number(tmp_path: Path) -> None:
    told = run(tmp_path, job("1", gpus_source="unknown"), FAULT, ended("1", BEGIN, T0 + HOUR, gpus_source="unknown"))
    [drain] = told["drains"]
    assert (drain["node_hours"], drain["gpu_hours"]) == (1.0, None)
    assert (told["totals"]["gpu_hours"], told["totals"]["gpu_hours_unknown"]) == (0, 1)


def test_a_node_that_is_out_by_itself_is_not_lost_by_the_drain(tmp_path: Path) -> None:
    down = ("NodeState", node("n001", T0 + HOUR, state="down", gpus_total=8), T0 + HOUR)
    [drain] = run(tmp_path, FAULT, down)["drains"]
    assert (drain["node_hours"], drain["until_ts"]) == (1.0, T0 + HOUR)


@pytest.mark.parametrize(
    ("state", "saved", "perhaps", "moved"),
    [
        ("NODE_FAIL", 2.0, 0, 0),
        ("FAILED", 0, 2.0, 0),
        ("COMPLETED", 0, 0, 2.0),
        ("TIMEOUT", 0, 0, 2.0),
        ("CANCELLED", 0, 0, 2.0),
    ],
)
def test_what_became_of_jobs_that_began_there_later(
    tmp_path: Path, state: str, saved: float, perhaps: float, moved: float
) -> None:
    begin = T0 + HOUR // 2
    wide: dict[str, Any] = {"nodes": ["n001", "n002"]}
    later = job("2", at=begin, **wide), ended("2", begin, begin + HOUR, state, **wide)
    told = run(tmp_path, FAULT, *later)
    totals = told["totals"]
    assert (totals["saved_job_hours"], totals["perhaps_saved_job_hours"], totals["moved_job_hours"]) == (
        saved,
        perhaps,
        moved,
    ), "an hour on both of its nodes"
    assert totals["node_hours"] == 2.0, "it would not have run there"


def test_a_run_that_was_requeued_ends_where_the_next_begins(tmp_path: Path) -> None:
    first, second = T0 + 10 * MINUTE, T0 + 70 * MINUTE
    told = run(tmp_path, FAULT, job("2", at=first), job("2", at=second, nodes=["n005"]))
    [drain] = told["drains"]
    assert [(one["state"], one["hours"]) for one in drain["perhaps_saved"]] == [("REQUEUED", 1.0)]
    assert drain["moved"] == []


def test_refusals_are_counted_by_rule_and_an_open_breaker_is_told(tmp_path: Path) -> None:
    down = [("NodeState", node(f"n{n:03d}", T0 - S, state="down"), T0 - S) for n in range(20, 40)]
    told = run(tmp_path, *down, FAULT, ("Finding", lag(ts=T0 + S), T0 + S))
    assert told["drains"] == []
    assert told["refusals"]["breaker"] >= 1
    assert len(told["breaker_opened"]) == 1
    assert {one["node"] for one in told["refused"]} == {"n001", "n002"}


def test_another_policy_does_otherwise_in_the_same_capture(tmp_path: Path) -> None:
    other = tmp_path / "site.toml"
    other.write_text('[[rules]]\nkind = "xid"\naction = "person"\n')
    told = run(tmp_path, FAULT, policy=str(other))
    assert (told["drains"], told["refusals"]) == ([], {"person": 1, "stale": 1})


def test_jobs_that_would_be_requeued_begin_anew(tmp_path: Path) -> None:
    other = tmp_path / "site.toml"
    other.write_text('[[rules]]\nkind = "xid"\naction = "drain_and_requeue"\nevidence = "hard"\n')
    mine: dict[str, Any] = {"requeueable": True, "batch": True}
    theirs = job("1", **mine), job("3", gpus_source="none")
    told = run(tmp_path, *theirs, ("Finding", xid(ts=T0, job_id="1"), T0), policy=str(other))
    [drain] = told["drains"]
    assert (drain["requeued_job_hours"], drain["jobs_left_to_finish"]) == (1.0, ["3"])


def test_of_two_clusters_in_a_capture_each_has_its_own_jobs() -> None:
    found = Simulation()
    found.pass_to(T0)
    found.pass_to(T0 + HOUR)
    kind, data, at = job("1", at=T0 + MINUTE)
    found.take(kind, {**data, "cluster": "south"}, at)
    found.take("NodeState", node("n001", T0, gpus_total=8), T0)
    about = {"v": 1, "cluster": CLUSTER, "id": "a", "finding_id": "f", "node": "n001", "ts": T0, "dry_run": True}
    found.take("DrainAction", {**about, "verdict": "proposed", "why": "x", "rule": "hard_evidence", "actor": "d"}, T0)
    [cost] = found.costs()
    assert (cost.moved, cost.node_hours, cost.gpu_hours) == ((), 1.0, 8.0)


def heeler(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heeler.cli.main", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_command_over_a_simulated_fleet_finds_by_itself_where_the_capture_holds_no_findings(tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text('[[fault]]\nkind = "gpu_lost"\ntarget = {gpu = 2}\nat = "3m"\n')
    path = tmp_path / "fleet.capture"
    made = heeler(
        *("sim", "--nodes", "64", "--duration", "8m", "--capture", str(path), "--faults", str(faults)),
        *("--labels", str(tmp_path / "labels")),
    )
    assert made.returncode == 0, made.stderr
    policy = tmp_path / "site.toml"
    policy.write_text("[limits]\nsettle_s = 1.0\n")
    done = heeler("drain", "simulate", str(path), "--policy", str(policy), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["findings"] == "found anew"
    victim = json.loads((tmp_path / "labels").read_text().splitlines()[0])["node"]
    [drain] = told["drains"]
    assert (drain["node"], drain["gpu_hours"] is None) == (victim, False)
    assert drain["jobs_left_to_finish"], "the job that has it goes on"
    text = heeler("drain", "simulate", str(path), "--policy", str(policy)).stdout
    assert "capacity lost: " in text
    assert f"{victim} for " in text


def test_what_is_no_capture_is_an_error_of_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "x"
    bad.write_bytes(b"\xc1 no capture")
    done = heeler("drain", "simulate", str(bad))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
