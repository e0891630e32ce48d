"""The `heeler` command, as a person runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from consolekit import finding, incident, publish
from natsserver import NatsServer
from waiting import status, until_sync

from heeler.bus import Bus, encode, subjects
from heeler.engine import capture

HEELER = Path(sys.executable).parent / "heeler"
S = 1_000_000_000
NOW = time.time_ns()


def heeler(*args: str, url: str | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HEELER_CLUSTER": "c"} | ({"HEELER_NATS_URL": url} if url else {})
    done = subprocess.run([HEELER, *args], capture_output=True, text=True, timeout=60, env=env, check=False)
    assert done.returncode == code, done.stderr
    return done


def sample(node: str, seq: int) -> bytes:
    data = {
        "v": 1, "cluster": "c", "node": node, "ts": NOW + seq * S, "boot": "b", "seq": seq, "window_ns": 10 * S,
        "reads": 10, "gpu": {"uuid": ["GPU-a", "GPU-b"]}, "mean": {"power_w": [600.0, None]}, "last": {},
    }  # fmt: skip
    return encode("GpuSample", data)


def job() -> bytes:
    data = {
        "v": 1, "cluster": "c", "ts": NOW, "event": "started", "job_id": "7", "nodes": ["n1"],
        "start_ts": NOW - 600 * S, "gpus_source": "whole_node", "user": "ada", "name": "llm", "state": "RUNNING",
    }  # fmt: skip
    return encode("JobEvent", data)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "x.capture"
    with path.open("wb") as out:
        capture.write(out, capture.Captured(subjects.job_event("c", "7"), NOW, job()))
        for seq in range(1, 4):
            capture.write(out, capture.Captured(subjects.gpu_sample("c", "n1"), NOW + seq * S, sample("n1", seq)))
        capture.write(out, capture.Captured(subjects.gpu_sample("c", "n1"), NOW + 4 * S, b"\xc1"))
    return path


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    script = (
        "import sys; from click.testing import CliRunner; from heeler.cli.main import heeler\n"
        "out = CliRunner().invoke(heeler, ['--help']).output\n"
        "assert all(name in out for name in ('bus', 'replay', 'run', 'tap', 'why')), out\n"
        "heavy = {'numpy', 'opentelemetry', 'ClusterShell'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_config_with_unknown_keys_names_them_all_and_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('[bus]\nserver = "x"\n[nonsense]\n[log]\nlevel = "loud"\n')
    err = heeler("run", "enrich", "--config", str(path), code=2).stderr
    assert "bus.server: unknown key" in err
    assert "nonsense: unknown section" in err
    assert "log.level: 'loud'" in err


def test_print_config_shows_what_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('[bus]\ncluster = "other"\n')
    shown = json.loads(heeler("run", "enrich", "--config", str(path), "--print-config").stdout)
    assert shown["bus"]["cluster"] == "c"  # the environment goes first
    assert shown["log"]["level"] == "info"


def test_no_bus_is_one_line_and_1() -> None:
    done = heeler("why", "node", "n1", "--url", "nats://127.0.0.1:1", code=1)
    assert done.stdout == ""
    assert "no bus at nats://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_replay_through_enrich_prints_what_it_published_and_what_it_refused(recorded: Path) -> None:
    done = heeler("replay", str(recorded), "--through", "enrich", "--all")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["type"] for line in lines] == ["JobSample"] * 3
    assert all(line["data"]["job"] == ["7", "7"] for line in lines)
    assert "5 messages, 3 published, 1 refused" in done.stderr


def test_replay_of_no_capture_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello")
    done = heeler("replay", str(path), "--through", "enrich", code=1)
    assert "byte 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_replay_wants_steps_that_exist(recorded: Path) -> None:
    assert "no step 'guess'" in heeler("replay", str(recorded), "--through", "enrich,guess", code=2).stderr
    heeler("replay", str(recorded), code=2)


@pytest.mark.bus
def test_init_says_what_it_does_and_then_that_there_is_nothing_to_do(nats_server: NatsServer) -> None:
    args = ("bus", "init", "--scale", "0.002")
    assert "stream SAMPLES: created" in heeler(*args, url=nats_server.url).stdout
    assert heeler(*args, url=nats_server.url).stdout == "all streams and buckets are as they should be\n"
    err = heeler("bus", "init", "--scale", "1e6", url=nats_server.url, code=1).stderr
    assert "max_file" in err, "a server without the disk for it"
    err = heeler("bus", "init", "--scale", "0.001", url=nats_server.url, code=1).stderr
    assert "--force" in err
    assert "SAMPLES" in heeler("bus", "status", url=nats_server.url).stdout


@pytest.mark.bus
async def test_a_capture_goes_onto_the_bus_and_is_recorded_again(
    bus: Bus, nats_server: NatsServer, recorded: Path, tmp_path: Path
) -> None:
    heeler("replay", str(recorded), "--to", nats_server.url)
    again = tmp_path / "again.capture"
    heeler("record", str(again), "--since", "60", "--seconds", "2", url=nats_server.url)
    before, after = list(capture.read(recorded)), list(capture.read(again))
    assert sorted((m.subject, m.data) for m in after) == sorted((m.subject, m.data) for m in before)
    assert [m.ts_ns for m in after] == sorted(m.ts_ns for m in after)


@pytest.mark.bus
async def test_tap_prints_decoded_messages(bus: Bus, nats_server: NatsServer) -> None:
    env = {**os.environ, "HEELER_NATS_URL": nats_server.url}
    tap = subprocess.Popen([HEELER, "tap", "gpu.sample.*", "--count", "1"], stdout=subprocess.PIPE, text=True, env=env)
    try:
        until = time.monotonic() + 30
        while tap.poll() is None and time.monotonic() < until:
            await bus.publish(subjects.gpu_sample("c", "n1"), "GpuSample", sample("n1", 1))
            await bus.client.flush()
            time.sleep(0.1)
        assert tap.stdout is not None
        [line] = tap.stdout.read().splitlines()
    finally:
        tap.kill()
        tap.wait()
    shown = json.loads(line)
    assert shown["type"] == "GpuSample"
    assert shown["data"]["mean"]["power_w"] == [600.0, None]


@pytest.mark.bus
async def test_why_answers_and_knows_what_it_does_not_know(bus: Bus, nats_server: NatsServer) -> None:
    assert "not known on this bus" in heeler("why", "node", "n1", url=nats_server.url, code=3).stdout
    await bus.publish_acked(subjects.job_event("c", "7"), "JobEvent", job(), "j7")
    finding = {
        "v": 1, "cluster": "c", "id": "f1", "kind": "xid", "state": "open", "severity": "critical", "confidence": 0.99,
        "entity": {"type": "gpu", "node": "n1", "gpu_uuid": "GPU-a"}, "node": "n1", "job_id": "7",
        "first_ts": NOW, "ts": NOW, "evidence": [], "advice": "drain_now",
        "summary": "GPU 0 on n1 has fallen off the bus",
    }  # fmt: skip
    await bus.publish_acked(subjects.finding("c", "xid", "n1", "f1"), "Finding", encode("Finding", finding), "f1")
    for kind, name in (("node", "n1"), ("job", "7"), ("gpu", "GPU-a")):
        until = time.monotonic() + 10
        while True:  # the last-value stream is filled a moment later
            env = {**os.environ, "HEELER_NATS_URL": nats_server.url}
            done = subprocess.run([HEELER, "why", kind, name], capture_output=True, text=True, env=env, check=False)
            if "fallen off the bus" in done.stdout or time.monotonic() > until:
                break
        assert "critical: GPU 0 on n1 has fallen off the bus" in done.stdout
    facts = json.loads(heeler("why", "node", "n1", "--json", url=nats_server.url).stdout)
    assert facts["open_findings"][0]["id"] == "f1"
    assert [found["job_id"] for found in facts["jobs"]] == ["7"]


@pytest.mark.bus
async def test_why_tells_of_the_incident_that_a_finding_belongs_to(bus: Bus, nats_server: NatsServer) -> None:
    await publish(bus, "Finding", finding("f1", incident="i1"), finding("f2", incident="i2"))
    await publish(bus, "Finding", incident("i1", "f1"), incident("i2", "f2", state="closed", close_reason="over"))
    told = heeler("why", "node", "n1", url=nats_server.url).stdout
    assert told.count("not alone: 3 nodes behind switch leaf1 lost links within 4 s") == 1
    assert "not alone" in heeler("why", "job", "81", url=nats_server.url).stdout


async def test_why_finds_a_gpu_by_its_place_and_says_how_it_does(bus: Bus, nats_server: NatsServer) -> None:
    who = {"v": 1, "cluster": "c", "node": "n1", "ts": NOW, "boot": "b", "seq": 1}
    inventory = {**who, "digest": "d", "gpus": [{"uuid": "GPU-aaaa-1", "index": 0}, {"uuid": "GPU-aaaa-2", "index": 1}]}
    data = encode("Inventory", inventory)
    await bus.publish_acked(subjects.inventory("c", "n1"), "Inventory", data, "i1")
    sample = {**who, "window_ns": S, "reads": 1, "gpu": {"uuid": ["GPU-aaaa-2"]}, "mean": {"power_w": [321.0]},
              "last": {}, "job": ["7"], "shard": 1}  # fmt: skip
    await bus.publish(subjects.job_sample("c", "1", "n1"), "JobSample", encode("JobSample", sample))
    await bus.client.flush()
    told = heeler("why", "gpu", "n1:1", url=nats_server.url).stdout
    assert "GPU 1 of n1" in told
    assert "power 321 W" in told
    facts = json.loads(heeler("why", "gpu", "GPU-aaaa-2", "--json", url=nats_server.url).stdout)
    assert facts["gpus"] == [{"node": "n1", "uuid": "GPU-aaaa-2", "index": 1}]
    assert facts["answer"][1] == "  GPU 1 of n1"
    several = heeler("why", "gpu", "GPU-aaaa", url=nats_server.url, code=3).stdout
    assert "GPU-aaaa-1 on n1" in several
    assert "no node's inventory has it" in heeler("why", "gpu", "n1:5", url=nats_server.url, code=3).stdout
    entity = {"type": "gpu", "node": "n1", "gpu_uuid": "GPU-aaaa-2", "gpu_index": 5}
    lost = {
        "v": 1, "cluster": "c", "id": "f1", "kind": "xid", "state": "open", "severity": "critical",
        "confidence": 0.99, "entity": entity, "node": "n1", "first_ts": NOW, "ts": NOW, "evidence": [],
        "advice": "drain_now", "summary": "GPU 5 on n1 is lost",
    }  # fmt: skip
    await bus.publish_acked(subjects.finding("c", "xid", "n1", "f1"), "Finding", encode("Finding", lost), "f1")
    environ = {**os.environ, "HEELER_NATS_URL": nats_server.url}

    def found_by_its_former_index() -> bool:  # the last-value stream is filled a moment later
        argv = [str(HEELER), "why", "gpu", "n1:5"]
        done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
        return "GPU 5 on n1 is lost" in done.stdout

    until_sync(found_by_its_former_index)


@pytest.mark.bus
async def test_why_tells_of_health_checks_and_accounting(bus: Bus, nats_server: NatsServer) -> None:
    who = {"v": 1, "cluster": "c", "ts": NOW, "boot": "b"}
    reason = "heeler:prolog:gpu_ecc: GPU 3 has 2 uncorrectable errors"
    run = {**who, "run": "r1", "phase": "prolog", "verdict": "fail", "why": "gpu_ecc: 2 errors", "reason": reason}
    result = {**who, "run": "r1", "phase": "prolog", "check": "gpu_ecc", "outcome": "bad", "why": "2 errors"}
    for seq, (node, job_id) in enumerate((("n1", "7"), ("n1", "8"), ("n2", "7"))):
        about = {"node": node, "job_id": job_id, "seq": seq}
        subject = subjects.health_run("c", node)
        await bus.publish_acked(subject, "HealthRun", encode("HealthRun", {**run, **about}), f"r{seq}")
        subject = subjects.health_result("c", node)
        await bus.publish_acked(subject, "HealthResult", encode("HealthResult", {**result, **about}), f"h{seq}")
    await bus.publish_acked(subjects.job_event("c", "7"), "JobEvent", job(), "j7")
    for began in (1000, 2000):
        record = {"v": 1, "cluster": "c", "ts": NOW, "job_id": "7", "run": str(began), "state": "FAILED",
                  "start_ts": began * 10**9, "end_ts": NOW, "nodes": "n1", "exit_code": began // 1000}  # fmt: skip
        subject = subjects.job_record("c", "7", str(began))
        await bus.publish_acked(subject, "JobRecord", encode("JobRecord", record), f"a{began}")
    of_node = heeler("why", "node", "n1", url=nats_server.url).stdout
    assert f'failed: gpu_ecc: 2 errors; the node was drained with "{reason}"' in of_node
    assert "check gpu_ecc bad" in of_node
    until = time.monotonic() + 10
    facts: dict[str, Any] = {}
    while not facts.get("health_runs") and time.monotonic() < until:  # the last-value stream is filled a moment later
        facts = json.loads(heeler("why", "job", "7", "--json", url=nats_server.url).stdout)
    assert {found["job_id"] for found in facts["health_runs"]} == {"7"}
    assert {found["job_id"] for found in facts["health_results"]} == {"7"}
    assert [found["exit_code"] for found in facts["job_records"]] == [2, 1]


@pytest.mark.bus
@pytest.mark.parametrize("name", ["enrich", "detect", "drain", "summary", "lemon"])
def test_a_processor_ends_in_order_on_sigterm_and_serves_its_health(
    name: str, nats_server: NatsServer, tmp_path: Path
) -> None:
    heeler("bus", "init", "--scale", "0.002", url=nats_server.url)
    env = {**os.environ, "HEELER_NATS_URL": nats_server.url, "HEELER_CLUSTER": "c"}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([HEELER, "run", name, "--listen", "127.0.0.1:0"], stderr=log, env=env)
    try:
        until = time.monotonic() + 30
        while '"endpoint"' not in (tmp_path / "log").read_text():
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.05)
        line = next(line for line in (tmp_path / "log").read_text().splitlines() if '"endpoint"' in line)
        base = f"http://127.0.0.1:{json.loads(line)['port']}"
        until_sync(lambda: status(f"{base}/healthz") == 200, "on the bus", 30)
        with urlopen(f"{base}/metrics", timeout=5) as answer:
            assert f'heeler_bus_connected{{process="{name}"}} 1' in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.bus
def test_the_status_of_a_bus_without_streams_is_one_line(nats_server: NatsServer) -> None:
    err = heeler("bus", "status", url=nats_server.url, code=1).stderr
    assert "the bus does not answer: " in err
    assert "Traceback" not in err
