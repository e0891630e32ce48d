"""The demo: everything at once, for real, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from natsserver import wait_for
from needs import need

ROOT = Path(__file__).resolve().parents[2]
KILLED = {"enrich", "detect-1", "detect-2"}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def start(tmp_path: Path, **env: str) -> subprocess.Popen[str]:
    """Start a demo without a terminal. Its bus must not be one that the environment names."""
    base = {key: value for key, value in os.environ.items() if key not in ("DEMO", "FAULTS", "NODES", "SEED")}
    variables = {**base, "TMPDIR": str(tmp_path), "HEELER_NATS_URL": "nats://192.0.2.1:4222", "NODES": "20", **env}
    command = [sys.executable, "-m", "heeler.sim.demo"]
    with (tmp_path / "out").open("w") as out:
        return subprocess.Popen(command, cwd=ROOT, env=variables, text=True, stdout=out, stderr=subprocess.STDOUT)


def leftovers(tmp_path: Path) -> list[str]:
    """Return the command lines of processes that belong to a run below this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(tmp_path / "heeler-demo-") in command:
            found.append(command)
    return found


def run(tmp_path: Path, **env: str) -> tuple[int, str, dict[str, Any]]:
    """Return (exit status, all that was printed, the JSON object of the last line)."""
    demo = start(tmp_path, DEMO="once", **env)
    try:
        status = demo.wait(280)
    finally:
        demo.kill()
    text = (tmp_path / "out").read_text()
    assert leftovers(tmp_path) == []
    assert "Traceback" not in text, text
    report: dict[str, Any] = json.loads(text.splitlines()[-1])
    return status, text, report


@pytest.mark.parametrize("real_agents", [0, 4])
def test_three_faults_are_found_and_answered_and_every_point_arrives(real_agents: int, tmp_path: Path) -> None:
    if real_agents:
        need("agent")
    status, text, report = run(tmp_path, REAL_AGENTS=str(real_agents))
    assert (status, report["ok"], report["problems"]) == (0, True, []), text
    assert report["real_agents"] == real_agents
    thermal, flap, lost = report["faults"]
    assert thermal["finding"]["cause"] == "thermal_slowdown"
    assert (thermal["action"]["verdict"], thermal["action"]["dry_run"]) == ("proposed", True)
    assert (lost["action"]["verdict"], lost["action"]["dry_run"]) == ("proposed", True)
    assert flap["finding"]["kind"] == "ib_flap"
    assert flap["action"]["why"]
    for fault in report["faults"]:
        assert 0 < fault["finding_s"] <= fault["action_s"]
    assert len(report["killed"]) == 2
    assert set(report["killed"]) <= KILLED
    counts = report["counts"]
    assert (counts["samples_lost"], counts["points_received"]) == (0, counts["points_expected"])
    assert counts["points_expected"] > 50_000
    assert counts["logs_received"] == counts["logs_expected"] >= 7
    assert counts["spans_received"] >= 3 * len(report["faults"])
    for words in (f"SEED={report['seed']}", "$ heeler why node", "$ heeler why job", "alert_after_s", "kill -9"):
        assert words in text
    victim = f"node {thermal['node']}: 1 open finding"
    assert victim in text


def test_a_healthy_fleet_ends_without_any_finding(tmp_path: Path) -> None:
    status, text, report = run(tmp_path, FAULTS="none")
    assert (status, report["ok"]) == (0, True), text
    assert (report["counts"]["findings"], report["counts"]["actions"]) == (0, 0)
    assert report["counts"]["points_received"] == report["counts"]["points_expected"] > 0


def test_an_interrupt_stops_all_that_was_started_and_nothing_else(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "300"])
    demo = start(tmp_path)
    try:
        wait_for(lambda: "watching the healthy fleet" in (tmp_path / "out").read_text(), "the demo", 120.0)
        assert len(leftovers(tmp_path)) >= 6
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 130
        assert leftovers(tmp_path) == []
        assert bystander.poll() is None
        assert "all processes have ended" in (tmp_path / "out").read_text()
        logs = {path.stem for path in tmp_path.glob("heeler-demo-*/logs/*.log")}
        assert logs >= {
            "nats-server",
            "enrich",
            "detect-1",
            "detect-2",
            "drain",
            "otlp",
            "receiver",
            "sim",
            "slurm-feed",
        }
    finally:
        demo.kill()
        demo.wait()
        bystander.kill()
        bystander.wait()


def test_a_demo_that_is_killed_leaves_nothing_running(tmp_path: Path) -> None:
    demo = start(tmp_path)
    try:
        wait_for(lambda: "watching the healthy fleet" in (tmp_path / "out").read_text(), "the demo", 120.0)
    finally:
        demo.kill()
        demo.wait()
    end = time.monotonic() + 30
    while leftovers(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("env", "words"),
    [({"NODES": "3"}, "NODES=3: 18 to 12500"), ({"REAL_AGENTS": "99"}, "REAL_AGENTS=99"), ({"DEMO": "twice"}, "twice")],
)
def test_what_makes_no_demo_is_one_clear_line(env: dict[str, str], words: str, tmp_path: Path) -> None:
    demo = start(tmp_path, **env)
    assert demo.wait(60) != 0
    text = (tmp_path / "out").read_text()
    assert words in text
    assert "Traceback" not in text
