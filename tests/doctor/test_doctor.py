"""The doctor on real parts: a nats-server, a Slurm, NVML's fake, files."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml
from natsserver import NatsServer
from slurmfixture import slurm, slurm_cluster
from slurmsandbox import Sandbox

from heeler.doctor.node_facts import read_cache, read_nvml, read_outbox, read_script, read_scripts, setting_of

__all__ = ["slurm", "slurm_cluster"]
SCRIPTS = Path(__file__).resolve().parents[2] / "deploy/slurm"


def doctor(*options: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, dict[str, Any]]]:
    argv = [sys.executable, "-m", "heeler.cli.main", "doctor", "--json", *options]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **(env or {})}
    )
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {f"{line['area']} {line['what']}": line for line in lines}


@pytest.mark.bus
def test_a_bus_without_streams_and_then_with(nats_server: NatsServer) -> None:
    rc, lines = doctor("--only", "bus", "--url", nats_server.url)
    assert rc == 1
    assert lines["bus stream EVENTS"]["grade"] == "bad"
    assert "heeler bus init" in lines["bus stream EVENTS"]["advice"]
    assert lines["bus clock"]["grade"] == "ok"
    nats_server.init_bus(scale=0.002)
    rc, lines = doctor("--only", "bus", "--url", nats_server.url, "--role", "drain")
    assert {name: line["grade"] for name, line in lines.items()} == {
        "bus reachable": "ok",
        "bus server version": "ok",
        "bus clock": "ok",
        "bus streams": "warn",
        "bus buckets": "ok",
        "bus permissions of drain": "ok",
        "bus agents": "unknown",
    }
    assert rc == 3


@pytest.mark.bus
def test_a_user_that_may_publish_too_little_is_told(nats_server: NatsServer) -> None:
    nats_server.restart(
        """authorization { users: [
          { user: few, password: x, permissions: { publish: { allow:
            ["heeler.v1.local.gpu.sample.n1", "$SYS.REQ.USER.INFO", "$JS.API.>"] } } } ] }"""
    )
    url = nats_server.url.replace("//", "//few:x@")
    rc, lines = doctor("--only", "bus", "--url", url, "--role", "agent", "--node", "n1")
    line = lines["bus permissions of agent"]
    assert (rc, line["grade"]) == (1, "bad")
    assert "kernel.event.n1" in line["says"]
    assert "gpu.sample" not in line["says"]


@pytest.mark.bus
def test_no_bus_is_said_soon(nats_server: NatsServer) -> None:
    nats_server.kill()
    began = time.monotonic()
    rc, lines = doctor("--only", "bus", "--url", nats_server.url)
    assert (rc, lines["bus reachable"]["grade"]) == (1, "bad")
    assert time.monotonic() - began < 20


@pytest.mark.slurm
def test_a_real_slurm_and_a_node_of_it(slurm: Sandbox, tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    fake.write("gpus 8\n")
    options = ("--only", "slurm", "--only", "node", "--node", "n001", "--slurm-conf", str(slurm.conf))
    policy = tmp_path / "health.toml"
    policy.write_text(f'outbox = "{tmp_path}"\ncache = "{tmp_path}"\n[checks.uptime]\nenforce = true\n')
    files = ("--policy", str(policy))
    (tmp_path / "breaker.json").write_text(json.dumps({"state": "closed", "ts_ns": time.time_ns()}))
    rc, lines = doctor(*options, *files, env=fake.env())
    grades = {name: line["grade"] for name, line in lines.items()}
    assert grades["slurm controller"] == "ok"
    assert grades["slurm version"] == "ok"
    assert grades["slurm PrologFlags"] == "ok"
    assert grades["slurm nohold_on_prolog_fail"] == "ok"
    assert grades["slurm controller clock"] == "ok"
    assert grades["slurm HealthCheckProgram"] == "warn"
    assert grades["slurm GresTypes"] == "ok"
    assert grades["slurm AccountingStorageTRES"] == "warn"
    assert grades["node NVML"] == "ok"
    assert grades["node breaker cache"] == "ok"
    assert grades["node node cache"] == "bad"
    assert grades["node outbox"] == "ok"
    assert grades["node policy"] == "ok"
    assert "uptime (epilog, prolog)" in lines["node policy"]["says"]
    assert grades["node breaker"] == "ok"
    assert grades["node Prolog"] == "warn", "the sandbox's own hook is not ours"
    fake.write("gpus 7\n")
    policy.write_text("[checks.uptimes]\n")
    rc, lines = doctor(*options, *files, env=fake.env())
    assert rc == 1
    assert "7 GPUs, Slurm has 8" in lines["node NVML"]["says"]
    assert lines["node policy"]["grade"] == "bad"


@pytest.mark.slurm
def test_a_slurm_that_is_set_up_badly() -> None:
    settings = {
        "PrologFlags": "NoHold",
        "SchedulerParameters": "bf_interval=2",
        "PrologEpilogTimeout": "20",
        "Prolog": str(SCRIPTS / "prolog.sh"),
        "HealthCheckProgram": "/no/such/check",
    }
    from needs import need

    need("slurm")
    sandbox = Sandbox(nodes=1, gpus=1, settings={**settings, "PrologFlags": "Serial"})
    try:
        sandbox.start()
        _, lines = doctor("--only", "slurm", "--only", "node", "--node", "n001", "--slurm-conf", str(sandbox.conf))
    finally:
        sandbox.stop()
    grades = {name: line["grade"] for name, line in lines.items()}
    assert grades["slurm nohold_on_prolog_fail"] == "bad"
    assert grades["slurm Prolog timeout"] == "bad"
    assert grades["slurm HealthCheckProgram"] == "bad"
    assert grades["node HealthCheckProgram /no/such/check"] == "bad"


def test_no_slurm_is_bad_and_not_a_crash(tmp_path: Path) -> None:
    rc, lines = doctor("--only", "slurm", "--slurm-conf", str(tmp_path / "slurm.conf"), "--slurm-bin", str(tmp_path))
    assert (rc, lines["slurm reachable"]["grade"]) == (1, "bad")


def test_a_driver_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(tmp_path)
    fake.write("hang init\n")
    for key, value in fake.env().items():
        monkeypatch.setenv(key, value)
    began = time.monotonic()
    found = read_nvml(timeout_s=1.5)
    assert time.monotonic() - began < 5
    assert (found.count, "hangs" in found.error) == (None, True)
    fake.write("gpus 3\n")
    assert read_nvml().count == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root")
def test_who_may_change_a_script_counts_with_all_folders_above(tmp_path: Path) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    path = folder / "prolog.sh"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    for one in (tmp_path, *tmp_path.parents):  # pytest's own folders
        if one.name.startswith("pytest") and one.stat().st_mode & 0o022:
            one.chmod(0o755)
    assert read_script(path).writable_by == ()
    folder.chmod(0o777)
    assert read_script(path).writable_by == (str(folder),)
    folder.chmod(0o755)
    path.chmod(0o775)
    os.chown(path, 0, 1000)
    assert read_script(path).writable_by == (str(path),)
    path.chmod(0o644)
    assert not read_script(path).executable
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_script(link).exists
    assert not read_script(tmp_path / "none").exists


def test_several_scripts_and_patterns(tmp_path: Path) -> None:
    for name in ("10-a", "20-b"):
        (tmp_path / name).touch()
    found = read_scripts(f"{tmp_path}/*,/no/such")
    assert [Path(one.path).name for one in found] == ["10-a", "20-b", "such"]
    assert [one.exists for one in found] == [True, True, False]
    assert read_scripts("(null)") == []


def test_the_outbox_and_the_caches(tmp_path: Path) -> None:
    now_ns = 1_800_000_000 * 10**9
    (tmp_path / f"{now_ns - 90 * 10**9}-12-1.msg").touch()
    (tmp_path / f"{now_ns}-12-2.msg").touch()
    (tmp_path / f".{now_ns}-12-3.msg").touch()
    box = read_outbox(tmp_path, now_ns)
    assert (box.waiting, box.oldest_s) == (2, 90.0)
    assert read_outbox(tmp_path / "none", now_ns).error
    path = tmp_path / "breaker.json"
    for text in ("", "[]", "{}", '{"ts_ns": "now"}', '{"ts_ns": null}'):
        path.write_text(text)
        assert read_cache(path, now_ns).error
    path.write_text(json.dumps({"ts_ns": now_ns - 10**9}))
    assert read_cache(path, now_ns).age_s == 1.0


def test_a_setting_of_several_scripts_is_read_in_every_version() -> None:
    assert setting_of({"Prolog": "/a", "PrologFlags": "Alloc", "PrologSlurmctld": "/x"}, "Prolog") == "/a"
    assert setting_of({"Prolog[0]": "/a", "Prolog[1]": "/b", "Epilog[0]": "/c"}, "Prolog") == "/a,/b"
    assert setting_of({"PrologFlags": "Alloc"}, "Prolog") == ""
