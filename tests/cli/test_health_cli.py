"""`heeler health`: asking a real health service over a real bus, and running the node's own commands."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from natsserver import NatsServer
from waiting import until_sync

HEELER = Path(sys.executable).parent / "heeler"


def heeler(*args: str, url: str, code: int) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HEELER_CLUSTER": "north", "HEELER_NATS_URL": url}
    done = subprocess.run([HEELER, "health", *args], capture_output=True, text=True, timeout=60, env=env, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node `n1` that may be asked for two checks, one of which is bad."""
    folder = tmp_path_factory.mktemp("ask")
    server = NatsServer(folder)
    server.start()
    server.init_bus(0.01)
    (folder / "outbox").mkdir()
    (folder / "health.toml").write_text(
        f'cluster = "north"\noutbox = "{folder}/outbox"\ncache = "{folder}/cache"\n'
        'request = ["uptime", "file_exists"]\n'
        f'[checks.file_exists]\npaths = ["{folder}/missing"]\n'
    )
    config = folder / "serve.toml"
    config.write_text(f'[serve]\npolicy = "{folder}/health.toml"\nnode = "n1"\ninterval_s = 0\n')
    child = subprocess.Popen(
        [sys.executable, "-m", "heeler.health.cli", "serve", "--config", str(config)],
        env={**os.environ, "HEELER_NATS_URL": server.url, "HEELER_CLUSTER": "north"},
        stderr=subprocess.DEVNULL,
    )
    try:
        until_sync(lambda: answers(server.url))
        yield server.url
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(15) == 0
        server.stop()


def answers(url: str) -> bool:
    env = {**os.environ, "HEELER_CLUSTER": "north", "HEELER_NATS_URL": url}
    command: list[str | Path] = [HEELER, "health", "ask", "n1", "uptime", "--timeout", "5"]
    return subprocess.run(command, capture_output=True, env=env, timeout=60, check=False).returncode == 0


def test_a_node_that_is_asked_says_what_it_found(site: str) -> None:
    done = heeler("ask", "n1", "uptime", url=site, code=0)
    first, last = done.stdout.splitlines()
    assert first.startswith("ok       uptime")
    assert last.startswith("n1: pass")


def test_a_bad_result_is_exit_status_1_whatever_is_enforced(site: str) -> None:
    done = heeler("ask", "n1", "uptime", "file_exists", "--json", url=site, code=1)
    answer = json.loads(done.stdout)
    assert {one["check"]: one["outcome"] for one in answer["results"]} == {"uptime": "ok", "file_exists": "bad"}
    assert answer["run"].startswith("ask-")


def test_what_a_node_does_not_allow_is_refused_with_its_name(site: str) -> None:
    done = heeler("ask", "n1", "uptime", "mounts", url=site, code=3)
    assert done.stdout == "n1: refused: not allowed by the policy: mounts\n"


def test_a_node_without_a_service_and_a_bus_that_is_away_are_one_line(site: str) -> None:
    assert "n9 does not answer" in heeler("ask", "n9", "uptime", "--timeout", "1", url=site, code=3).stderr
    away = heeler("ask", "n1", "uptime", url="nats://127.0.0.1:1", code=1).stderr
    assert away.startswith("heeler: no bus at nats://127.0.0.1:1")
    assert len(away.splitlines()) == 1


def test_the_nodes_own_commands_are_passed_on_with_their_options(site: str, tmp_path: Path) -> None:
    policy = tmp_path / "health.toml"
    policy.write_text("")
    listed = heeler("list", "--policy", str(policy), url=site, code=0).stdout
    assert "gpu_count" in listed
    help_text = heeler("run", "--help", url=site, code=0).stdout
    assert "--fail-status" in help_text
    assert "usage" in heeler("run", "--nonsense", url=site, code=2).stderr
