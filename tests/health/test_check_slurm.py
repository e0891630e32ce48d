"""Slurm as a node sees it: every form of its answers, composite states, and no answer at all."""

from pathlib import Path

import pytest
from healthkit import case, check_of, prints, run, tool

from heeler.health.checks.slurm import (
    CHECKS,
    ClusterAvailabilitySettings,
    NodeSlurmStateSettings,
    SlurmctldCountSettings,
    parse_ping,
)
from heeler.health.model import Check, Outcome, Verdict


def check(name: str) -> Check:
    return check_of(CHECKS, name)


# slurmctld_count

TWO = "Slurmctld(primary) at head1 is UP\nSlurmctld(backup) at head2 is DOWN\n"


def ping(root: Path, text: str, count: int = 1, rc: int = 0) -> Verdict:
    prints(root / "bin", "scontrol", text, rc)
    return run(check("slurmctld_count"), root, SlurmctldCountSettings(count), tools=root / "bin")


def test_slurmctld_count_good(tmp_path: Path) -> None:
    assert ping(tmp_path, TWO).outcome is Outcome.OK
    assert ping(tmp_path, "Slurmctld(primary/backup) at head1/head2 are UP/UP\n", 2).outcome is Outcome.OK


def test_slurmctld_count_bad_even_where_the_command_says_so_by_its_status(tmp_path: Path) -> None:
    verdict = ping(tmp_path, TWO, 2)
    assert (verdict.outcome, verdict.perf["slurmctld_up"]) == (Outcome.BAD, 1)
    assert ping(tmp_path, "Slurmctld(primary) at head1 is DOWN\n", rc=1).outcome is Outcome.BAD
    assert ping(tmp_path, "Slurmctld(primary/backup) at a/b are DOWN/DOWN\n").outcome is Outcome.BAD
    # Not a part of a word: a host named UP is not up.
    assert ping(tmp_path, "Slurmctld(primary) at UPS1 is DOWN\n").outcome is Outcome.BAD


def test_slurmctld_count_unknown_without_an_answer(tmp_path: Path) -> None:
    assert ping(tmp_path, "").outcome is Outcome.UNKNOWN
    assert (
        ping(tmp_path, "scontrol: error: Could not establish a configuration source\n", rc=1).outcome is Outcome.UNKNOWN
    )
    assert ping(tmp_path, "Slurmctld(primary/backup) at a are UP/UP\n").outcome is Outcome.UNKNOWN
    assert run(check("slurmctld_count"), tmp_path, tools=tmp_path / "none").outcome is Outcome.UNKNOWN


def test_the_roles_of_three_controllers() -> None:
    text = "Slurmctld(primary) at a is UP\nSlurmctld(backup1) at b is UP\nSlurmctld(backup2) at c is DOWN\n"
    assert [one[2] for one in parse_ping(text)] == ["UP", "UP", "DOWN"]


# node_slurm_state


def state_of(root: Path, state: str, reason: str = "", settings: NodeSlurmStateSettings | None = None) -> Verdict:
    text = f"NodeName=node01 Arch=x86_64 CoresPerSocket=4 State={state} ThreadsPerCore=1 Partitions=p "
    prints(root / "bin", "scontrol", text + (f"Reason={reason}" if reason else "") + "\n")
    return run(
        check("node_slurm_state"),
        root,
        settings or NodeSlurmStateSettings(),
        tools=root / "bin",
        about=case(node="node01"),
    )


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "IDLE+PLANNED", "MIXED+CLOUD", "ALLOCATED+COMPLETING"])
def test_node_slurm_state_good(tmp_path: Path, state: str) -> None:
    assert state_of(tmp_path, state).outcome is Outcome.OK


@pytest.mark.parametrize(
    "state",
    [
        "DOWN*",
        "DOWN+DRAIN+NOT_RESPONDING",
        "IDLE+DRAIN",
        "MIXED+DRAIN",
        "IDLE+FAIL",
        "IDLE+MAINTENANCE+RESERVED",
        "IDLE*",
    ],
)
def test_node_slurm_state_bad_is_a_warning_with_its_reason(tmp_path: Path, state: str) -> None:
    verdict = state_of(tmp_path, state, "psu swap [ops@2025-06-01T10:00:00]")
    assert verdict.outcome is Outcome.WARN
    assert "psu swap [ops]" in verdict.why


def test_node_slurm_state_bad_by_the_sites_list(tmp_path: Path) -> None:
    settings = NodeSlurmStateSettings(bad=("drain",))
    assert state_of(tmp_path, "IDLE+DRAIN", settings=settings).outcome is Outcome.BAD
    assert state_of(tmp_path, "DOWN", settings=settings).outcome is Outcome.WARN


def test_node_slurm_state_unknown(tmp_path: Path) -> None:
    assert state_of(tmp_path, "UNKNOWN").outcome is Outcome.UNKNOWN
    assert state_of(tmp_path, "IDLE+NEWFLAG").outcome is Outcome.UNKNOWN
    prints(tmp_path / "bin", "scontrol", "Node node01 not found\n", 1)
    about = case(node="node01")
    assert run(check("node_slurm_state"), tmp_path, tools=tmp_path / "bin", about=about).outcome is Outcome.UNKNOWN
    prints(tmp_path / "bin", "scontrol", "NodeName=node02 State=IDLE\n")
    assert run(check("node_slurm_state"), tmp_path, tools=tmp_path / "bin", about=about).outcome is Outcome.UNKNOWN
    tool(tmp_path / "bin", "scontrol", "sleep 20")
    late = run(check("node_slurm_state"), tmp_path, tools=tmp_path / "bin", about=about, timeout_s=0.6)
    assert "did not answer" in late.why
    bad_name = case(node="--all; x")
    assert run(check("node_slurm_state"), tmp_path, tools=tmp_path / "bin", about=bad_name).outcome is Outcome.UNKNOWN


# cluster_availability


def cluster(root: Path, *states: str, settings: ClusterAvailabilitySettings | None = None, rc: int = 0) -> Verdict:
    prints(root / "bin", "sinfo", "".join(f"n{at:03}|{state}\n" for at, state in enumerate(states)), rc)
    return run(check("cluster_availability"), root, settings, tools=root / "bin")


def test_cluster_availability_good_where_planned_absence_is_not_counted(tmp_path: Path) -> None:
    verdict = cluster(tmp_path, *["idle"] * 17, "drained*", "down~", "idle~", "maint", "mixed-", "allocated", "future")
    assert verdict.outcome is Outcome.OK
    assert verdict.why == "1 of 20 nodes are out of service (5 %)"


def test_cluster_availability_good_counts_a_node_of_two_partitions_once(tmp_path: Path) -> None:
    prints(tmp_path / "bin", "sinfo", "a|down*\na|down*\na|down*\n" + "".join(f"n{at}|idle\n" for at in range(9)))
    verdict = run(check("cluster_availability"), tmp_path, tools=tmp_path / "bin")
    assert (verdict.outcome, verdict.perf["unavailable_percent"]) == (Outcome.OK, 10.0)


def test_cluster_availability_bad_and_warning_beyond_the_limits(tmp_path: Path) -> None:
    assert cluster(tmp_path, *["idle"] * 8, "down", "drained").outcome is Outcome.WARN
    assert cluster(tmp_path, *["idle"] * 7, "down*", "draining", "failing").outcome is Outcome.BAD


def test_cluster_availability_unknown_with_no_node_or_no_answer(tmp_path: Path) -> None:
    verdict = cluster(tmp_path)
    assert (verdict.outcome, verdict.why) == (Outcome.UNKNOWN, "Slurm lists no node that should be there")
    assert cluster(tmp_path, "future", "down~").outcome is Outcome.UNKNOWN
    assert cluster(tmp_path, *["unknown"] * 9).outcome is Outcome.UNKNOWN
    assert cluster(tmp_path, "idle", rc=1).outcome is Outcome.UNKNOWN
    assert cluster(tmp_path, "").outcome is Outcome.UNKNOWN
