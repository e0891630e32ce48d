"""`heeler replay --diff` says what a changed threshold would have found or missed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heeler.bus import encode
from heeler.cli.compare import Episode, differences
from heeler.engine import capture

S = 1_000_000_000
HEELER = Path(sys.executable).parent / "heeler"
FAULTS = """
[[fault]]
at = "6m"
kind = "thermal"
for = "8m"
target = {job_nodes = 4}
[[fault]]
at = "7m"
kind = "ib_flap"
"""


def heeler(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([HEELER, *args], capture_output=True, text=True, timeout=120, env=os.environ, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("diff")
    (place / "faults.toml").write_text(FAULTS)
    path = place / "x.capture"
    command = [sys.executable, "-m", "heeler.sim", "--nodes", "8", "--seed", "3", "--duration", "16m"]
    command += ["--faults", str(place / "faults.toml"), "--capture", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return path


def rules(place: Path, text: str) -> str:
    path = place / "site.toml"
    path.write_text(text)
    return str(path)


def test_the_same_rules_differ_in_nothing(recorded: Path, tmp_path: Path) -> None:
    done = heeler("replay", str(recorded), "--diff", "--rules", rules(tmp_path, "[detect.lag]\nalert_ratio = 0.15\n"))
    assert done.stdout == ""
    assert "2 with the defaults, 2 with" in done.stderr
    assert "0 only now, 0 no longer, 0 different" in done.stderr


def test_a_threshold_too_high_misses_the_lagging_gpu(recorded: Path, tmp_path: Path) -> None:
    high = "[detect.lag]\nalert_ratio = 0.6\ndrain_ratio = 0.6\npower_ratio = 0.6\n"
    done = heeler("replay", str(recorded), "--diff", "--rules", rules(tmp_path, high))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("-")]
    assert line.startswith("- gpu_lag n")
    assert "cause thermal_slowdown" in line
    assert "1 no longer" in done.stderr


def test_times_and_advice_that_change_are_told(recorded: Path, tmp_path: Path) -> None:
    later = "[detect.lag]\nalert_after_s = 50\nalert_after_unknown_s = 60\ndrain_after_s = 900\n"
    path = rules(tmp_path, later)
    (line,) = heeler("replay", str(recorded), "--diff", "--rules", path).stdout.splitlines()
    assert line.startswith("~ gpu_lag n")
    assert "later" in line
    assert "advice drain_after_job → observe" in line
    (back,) = heeler(
        "replay", str(recorded), "--diff", "--rules", os.devnull, "--against", path, "--json"
    ).stdout.splitlines()
    told = json.loads(back)
    assert (told["change"], told["before"]["advice"], told["after"]["advice"]) == (
        "changed",
        "observe",
        "drain_after_job",
    )


def test_findings_in_the_capture_are_not_taken_for_what_the_rules_say(recorded: Path, tmp_path: Path) -> None:
    said = heeler("replay", str(recorded), "--through", "enrich,detect").stdout.splitlines()
    both = tmp_path / "both.capture"
    findings = [json.loads(line)["data"] for line in said]
    with both.open("wb") as out:
        for message in capture.read(recorded):
            capture.write(out, message)
        for data in findings:
            subject = f"heeler.v1.sim.finding.{data['kind']}.x.{data['id']}"
            record = capture.Captured(subject, data["ts"], encode("Finding", data), {"Heeler-Type": "Finding/1"})
            capture.write(out, record)
    assert heeler("replay", str(both), "--through", "enrich,detect").stdout.splitlines() == said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--diff",), "--diff needs --rules"),
        (("--diff", "--rules", os.devnull, "--to", "nats://x"), "one of them"),
        (("--through", "detect", "--json"), "belong to --diff"),
        (("--diff", "--rules", "/nowhere.toml"), "nowhere.toml"),
    ],
)
def test_options_that_do_not_fit_are_one_line(recorded: Path, args: tuple[str, ...], words: str) -> None:
    assert words in heeler("replay", str(recorded), *args, code=2).stderr


def episode(begin: int, end: int) -> Episode:
    return Episode(("gpu_lag", "n1", "GPU-a"), begin, end, "slow", {"advice": "observe"})


def test_two_episodes_of_one_gpu_are_two_things() -> None:
    changes = differences([episode(10, 20), episode(50, 60)], [episode(52, 60)])
    assert [(d.change, (d.before or d.after).begin_ns) for d in changes] == [("missed", 10), ("changed", 50)]  # type: ignore[union-attr]
