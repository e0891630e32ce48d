"""heeler sim: captures, labels, and a fleet on a real bus."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from waiting import reading, until

from heeler.bus import Bus, ConsumerSpec, check, decode
from heeler.engine import intake, kind_of
from heeler.engine.capture import read
from heeler.sim.cli import sim_cli

SCRIPT = """
[[fault]]
at = "20s"
kind = "thermal"
target = {job_nodes = 4}
"""


def capture(folder: Path, name: str, *more: str) -> tuple[bytes, list[dict[str, Any]]]:
    """Return (capture's bytes, labels)."""
    script = folder / "faults.toml"
    script.write_text(SCRIPT)
    args = ["--nodes", "12", "--faults", str(script), "--capture", str(folder / name), "--duration", "1m"]
    done = CliRunner().invoke(sim_cli, [*args, "--labels", str(folder / "labels"), *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    labels = [json.loads(line) for line in (folder / "labels").read_text().splitlines()]
    return (folder / name).read_bytes(), labels


def test_the_same_command_writes_the_same_capture_and_labels(tmp_path: Path) -> None:
    first, labels = capture(tmp_path, "a", "--seed", "7")
    assert capture(tmp_path, "b", "--seed", "7") == (first, labels)
    assert capture(tmp_path, "c", "--seed", "8")[0] != first
    assert [label["kind"] for label in labels] == ["thermal"]


def test_the_labelled_victim_is_the_one_in_the_capture(tmp_path: Path) -> None:
    _, labels = capture(tmp_path, "a")
    label = labels[0]
    clocks = []
    for message in read(tmp_path / "a"):
        if kind_of(message.subject) == "GpuSample":
            data = intake(message.subject, message.headers, message.data, message.ts_ns).data
            clocks += [
                (clock, data["node"], uuid)
                for clock, uuid in zip(data["mean"]["sm_clock_mhz"], data["gpu"]["uuid"], strict=True)
                if 1000 < clock < 1300
            ]
    assert {where[1:] for where in clocks} == {(label["node"], label["gpu_uuid"])}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--window", "soon"], "no duration"),
        (["--nodes", "0"], "0"),
        (["--mirror", "n999=/tmp/x"], "no node n999"),
    ],
)
def test_a_mistake_is_one_clear_line_and_not_a_trace(args: list[str], words: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(sim_cli, [*args, "--capture", str(tmp_path / "x")])
    assert done.exit_code != 0
    assert words in done.output
    assert "Traceback" not in done.output


def test_an_unknown_kind_in_a_script_is_named(tmp_path: Path) -> None:
    script = tmp_path / "s.toml"
    script.write_text('[[fault]]\nkind = "meteor"')
    done = CliRunner().invoke(sim_cli, ["--faults", str(script), "--capture", str(tmp_path / "x")])
    assert (done.exit_code, "meteor" in done.output) == (1, True)


@pytest.mark.bus
async def test_a_live_fleet_publishes_takes_orders_and_stops_when_told(bus: Bus, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "heeler.sim", "--nodes", "8", "--window", "500ms", "--cluster", bus.cluster]
    command += ["--status-every", "1s", "--control", "--url", bus.settings.servers[0]]
    log = (tmp_path / "log").open("wb")
    sim = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    assert sim.stdin is not None
    assert sim.stdout is not None
    try:
        specs = {name: ConsumerSpec(name, start=1) for name in ("SAMPLES", "EVENTS", "AGENTS")}
        async with reading(bus, specs["SAMPLES"]) as samples, reading(bus, specs["EVENTS"]) as events:
            await samples.has(8 * 2 * 4)
            sim.stdin.write(b'{"kind": "gpu_lost", "target": {"job_nodes": 2}}\n')
            sim.stdin.flush()
            label = json.loads(sim.stdout.readline())
            assert label["kind"] == "gpu_lost"
            kernel = "kernel.event"
            await until(lambda: any(kernel in got.subject for got in events.got), "the XID line")
            event = next(decode("KernelEvent", got.data) for got in events.got if kernel in got.subject)
            assert (event["node"], event["uuid"], event["code"]) == (label["node"], label["gpu_uuid"], 79)
            assert event["ts"] == label["at_ns"]
            for got in [*samples.got, *events.got]:
                kind = kind_of(got.subject)
                assert kind is not None
                check(kind, decode(kind, got.data))
        async with reading(bus, ConsumerSpec("AGENTS", start=1)) as agents:
            await until(lambda: len({got.subject for got in agents.got}) >= 2 * 8 + 1, "status and inventory of all")
        sim.send_signal(signal.SIGTERM)
        assert sim.wait(10) == 0
    finally:
        sim.kill()
        sim.wait()
        sim.stdin.close()
        sim.stdout.close()
        log.close()
    assert b"sim_stopped" in (tmp_path / "log").read_bytes()
    assert not Path(f"/proc/{sim.pid}").exists() or os.name != "posix"
