"""Checks of Slurm on a real one: its states, its outage, its hang; through the command by the policy's slurm.conf."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from healthkit import case, check_of
from slurmfixture import slurm, slurm_cluster  # noqa: F401 - fixtures
from slurmsandbox import Sandbox

from heeler.health.checks.slurm import CHECKS, ClusterAvailabilitySettings, NodeSlurmStateSettings
from heeler.health.model import Context, Outcome, ProbeError, Verdict, unknown

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]


def run(
    sandbox: Sandbox, name: str, settings: object = None, *, node: str = "n001", timeout_s: float = 15.0
) -> Verdict:
    check, about = check_of(CHECKS, name), case(node=node)
    settings = check.settings() if settings is None else settings
    try:
        facts = check.probe.read(Context(about, env=sandbox.env, timeout_s=timeout_s), [settings])
    except ProbeError as err:
        return unknown(f"{err.kind}: {err}")
    return check.judge(facts, settings, about)


def test_a_cluster_that_is_well(slurm: Sandbox) -> None:  # noqa: F811
    assert run(slurm, "slurmctld_count").why == "1 controllers answer"
    assert run(slurm, "node_slurm_state").outcome is Outcome.OK
    verdict = run(slurm, "cluster_availability")
    assert (verdict.outcome, verdict.why) == (Outcome.OK, "0 of 4 nodes are out of service (0 %)")


def test_a_drained_node_is_told_with_its_reason_and_counts(slurm: Sandbox) -> None:  # noqa: F811
    slurm.drain("n002", "psu swap, do not touch")
    verdict = run(slurm, "node_slurm_state", node="n002")
    assert verdict.outcome is Outcome.WARN
    assert "DRAIN" in verdict.why
    assert "psu swap, do not touch" in verdict.why
    assert run(slurm, "node_slurm_state", NodeSlurmStateSettings(node="n002", bad=("DRAIN",))).outcome is Outcome.BAD
    assert run(slurm, "cluster_availability").outcome is Outcome.WARN  # 25 % of four
    assert run(slurm, "cluster_availability", ClusterAvailabilitySettings(10, 20)).outcome is Outcome.BAD


def test_a_node_that_slurm_does_not_have_is_unknown(slurm: Sandbox) -> None:  # noqa: F811
    assert run(slurm, "node_slurm_state", node="n999").outcome is Outcome.UNKNOWN


def test_a_controller_that_hangs_is_unknown_and_one_that_is_gone_is_bad(slurm: Sandbox) -> None:  # noqa: F811
    slurm.freeze_controller()
    try:
        started = time.monotonic()
        for name in ("node_slurm_state", "cluster_availability"):
            assert run(slurm, name, timeout_s=2.0).outcome is Outcome.UNKNOWN
        assert time.monotonic() - started < 10
    finally:
        slurm.thaw_controller()
    slurm.kill_controller()
    try:
        for name in ("node_slurm_state", "cluster_availability"):
            assert run(slurm, name, timeout_s=4.0).outcome is Outcome.UNKNOWN
        assert run(slurm, "slurmctld_count", timeout_s=30.0).outcome in (Outcome.BAD, Outcome.UNKNOWN)
    finally:
        slurm.start_controller()


def test_the_command_finds_slurm_by_the_policy(slurm: Sandbox, tmp_path: Path) -> None:  # noqa: F811
    policy = tmp_path / "health.toml"
    policy.write_text(
        f'node = "n001"\noutbox = "{tmp_path}/outbox"\ncache = "{tmp_path}/cache"\n[slurm]\nconf = "{slurm.conf}"\n'
    )
    env = {key: value for key, value in os.environ.items() if key != "SLURM_CONF"}
    argv = [sys.executable, "-m", "heeler.health.cli", "run", "--json", "--policy", str(policy), "--timeout", "30"]
    names = ("slurmctld_count", "node_slurm_state", "cluster_availability")
    done = subprocess.run([*argv, *names], env=env, capture_output=True, text=True, check=False, timeout=60)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = {one["check"]: one["outcome"] for one in results if "check" in one}
    assert outcomes == dict.fromkeys(names, "ok"), done.stdout + done.stderr
