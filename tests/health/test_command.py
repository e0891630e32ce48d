"""The command heeler-health as it is run: lists, explains, runs, tells, and takes a site's own checks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from heeler.bus import decode

PLUGIN = Path(__file__).parent / "plugin"


def health(*argv: str, policy: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    where = ["--policy", str(policy)] if policy else []
    return subprocess.run(
        [sys.executable, "-m", "heeler.health.cli", *argv, *where],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "outbox").mkdir()
    path = tmp_path / "health.toml"
    path.write_text(f'cluster = "north"\nnode = "n7"\noutbox = "{tmp_path}/outbox"\ncache = "{tmp_path}"\n')
    return path


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """The example package as pip leaves it: its code and what it says of its entry points."""
    site = tmp_path / "site"
    info = site / "example_checks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example-checks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[heeler.health.checks]\nexample = example_checks:CHECKS\nbroken = example_checks:NOTHING\n"
    )
    (site / "example_checks").symlink_to(PLUGIN / "example_checks")
    return f"{site}:{os.environ.get('PYTHONPATH', '')}"


def sent(folder: Path) -> list[dict[str, object]]:
    found = [msgpack.unpackb(path.read_bytes()) for path in sorted((folder / "outbox").glob("*.msg"))]
    return [{**decode(one["type"].removesuffix("/1"), one["data"]), "type": one["type"]} for one in found]


def test_every_check_can_be_listed_and_explained(policy: Path) -> None:
    listed = health("list", policy=policy)
    assert listed.returncode == 0, listed.stderr
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert {"uptime", "gpu_reachable", "gpu_xid"} <= set(names)
    told = health("explain", "gpu_pcie", policy=policy)
    assert "busy_percent = 50" in told.stdout
    assert "may fail a prolog: where enforced" in told.stdout
    assert health("explain", "nothing", policy=policy).returncode == 2


def test_a_run_prints_for_people_and_leaves_its_results(policy: Path, tmp_path: Path) -> None:
    done = health("run", "uptime", policy=policy)
    assert done.returncode in (0, 1)
    assert done.stdout.splitlines()[-1].startswith("pass: ")
    result, run = sent(tmp_path)
    assert (result["type"], result["check"], result["node"], result["cluster"]) == (
        "HealthResult/1",
        "uptime",
        "n7",
        "north",
    )
    assert (run["type"], run["run"], run["phase"]) == ("HealthRun/1", result["run"], "app")


def test_json_is_one_object_a_line(policy: Path) -> None:
    rows = [
        json.loads(line)
        for line in health("run", "uptime", "--json", "--id", "mine", policy=policy).stdout.splitlines()
    ]
    assert rows[0]["check"] == "uptime"
    assert rows[-1]["run"] == "mine"


def test_without_an_outbox_the_result_is_the_same_and_it_is_said(policy: Path, tmp_path: Path) -> None:
    before = health("run", "uptime", "--mode", "nagios", policy=policy)
    (tmp_path / "outbox").rename(tmp_path / "gone")
    after = health("run", "uptime", "--mode", "nagios", policy=policy)
    assert before.returncode == after.returncode
    assert before.stdout.split(" | ")[0] == after.stdout.split(" | ")[0]
    assert "results not published" in after.stderr


@pytest.mark.parametrize(
    ("mode", "status"), [("prolog", 0), ("epilog", 0), ("task_prolog", 0), ("nagios", 3), ("app", 3)]
)
def test_a_broken_policy_is_our_fault_and_stops_no_job(policy: Path, mode: str, status: int) -> None:
    policy.write_text("checks = 3\nclutser = 1\n")
    done = health("run", "--mode", mode, policy=policy, SLURM_JOB_ID="1")
    assert done.returncode == status
    assert "clutser: unknown key" in done.stderr


def test_nothing_slow_is_imported_for_a_run(policy: Path) -> None:
    code = (
        "import sys\nfrom heeler.health import cli\n"
        f"try: cli.main(['run', 'uptime', '--policy', {str(policy)!r}])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('nats', 'asyncio', 'structlog', 'click', 'opentelemetry', 'pynvml', 'numpy', 'ssl')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


FAULT = '[profiles.task_prolog]\nchecks = ["uptime"]\n[checks.uptime]\nleast_s = 1e9\n'


def test_a_task_prolog_tells_the_job_and_leaves_nothing_for_the_bus(policy: Path, tmp_path: Path) -> None:
    policy.write_text(policy.read_text() + FAULT)
    done = health("run", "--mode", "task_prolog", policy=policy, SLURM_JOB_ID="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("print heeler: uptime: ")
    assert list((tmp_path / "outbox").iterdir()) == []


# Results of others


def test_a_script_s_result_is_told_with_its_outcome_as_status(policy: Path, tmp_path: Path) -> None:
    for outcome, status in (("ok", 0), ("warn", 1), ("bad", 2), ("unknown", 3)):
        argv = ("report", "--check", "burn_in", "--outcome", outcome, "--why", "30 min", "--job", "77")
        assert health(*argv, policy=policy).returncode == status
    found = sent(tmp_path)
    assert [one["outcome"] for one in found] == ["ok", "warn", "bad", "unknown"]
    assert {(one["check"], one["why"], one["job_id"], one["type"]) for one in found} == {
        ("burn_in", "30 min", "77", "HealthResult/1")
    }


# Plug-ins


def test_a_site_s_own_check_runs_once_the_policy_names_it(policy: Path, installed: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/motd").write_text("maintenance on Monday")
    assert health("run", "motd", policy=policy, PYTHONPATH=installed).returncode == 3
    policy.write_text('plugins = ["example"]\n' + policy.read_text())
    done = health("run", "motd", "--root", str(root), policy=policy, PYTHONPATH=installed)
    assert done.returncode == 2
    assert "BAD      motd  it says 'maintenance'" in done.stdout
    policy.write_text(policy.read_text() + '[checks.motd]\nforbidden = ["party"]\n')
    assert health("run", "motd", "--root", str(root), policy=policy, PYTHONPATH=installed).returncode == 0


@pytest.mark.parametrize("name", ["broken", "absent"])
def test_a_plug_in_that_does_not_load_makes_its_checks_unknown_and_costs_no_other(
    policy: Path, installed: str, name: str
) -> None:
    policy.write_text(f'plugins = ["{name}", "example"]\n{policy.read_text()}[checks.theirs]\nlimit = 3\n')
    done = health("run", "uptime", "motd", "theirs", policy=policy, PYTHONPATH=installed)
    assert name in done.stderr
    outcomes = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()[:-1]}
    assert outcomes.keys() == {"uptime", "motd", "theirs"}
    assert outcomes["theirs"] == "UNKNOWN"
    assert outcomes["uptime"] != "UNKNOWN"
