"""``python -m heeler.otlp`` from start to end, and killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from natsserver import NatsServer, free_port
from otlpsamples import job_sample
from waiting import until

from heeler.bus import Bus, encode, subjects
from heeler.otlp.map import gpu_points
from heeler.sim.receiver import Answer, Receiver

pytestmark = pytest.mark.bus
POINTS = len(gpu_points(job_sample()))


class Exporter:
    """The process."""

    def __init__(self, folder: Path, server: NatsServer, endpoint: str, **settings: Any) -> None:
        self.log = folder / "otlp.log"
        config = folder / "otlp.toml"
        lines = [
            f"{key} = {json.dumps(value)}"
            for key, value in {"every_s": 0, "metrics": ["all"], "linger_s": 0.05, **settings}.items()
        ]
        config.write_text(
            f'[bus]\nservers = ["{server.url}"]\ncluster = "north"\n[otlp]\n'
            + "\n".join(lines)
            + f'\n[[otlp.sinks]]\nkind = "otlp"\nname = "collector"\nendpoint = "{endpoint}"\nmax_backoff_s = 0.2\n'
        )
        self.command = [sys.executable, "-m", "heeler.otlp", "--config", str(config)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def lines(self, event: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    def end(self, number: int) -> int:
        assert self.process is not None
        os.kill(self.process.pid, number)
        code = self.process.wait(20)
        self.process = None
        return code


@pytest.fixture
def exporters() -> Iterator[list[Exporter]]:
    made: list[Exporter] = []
    yield made
    for one in made:
        if one.process is not None:
            one.process.kill()
            one.process.wait()


async def publish(bus: Bus, windows: range) -> None:
    for window in windows:
        payload = encode("JobSample", job_sample(window=window))
        await bus.publish_acked(subjects.job_sample("north", "3", "n1"), "JobSample", payload, f"w{window}")


async def test_with_the_collector_away_it_ends_at_once_and_says_what_was_not_sent(
    bus: Bus, nats_server: NatsServer, tmp_path: Path, exporters: list[Exporter]
) -> None:
    exporter = Exporter(tmp_path, nats_server, f"http://127.0.0.1:{free_port()}")
    exporters.append(exporter)
    exporter.start()
    await publish(bus, range(5))
    await until(lambda: bool(exporter.lines("sink_unavailable")), "the outage")
    assert exporter.end(signal.SIGTERM) == 0
    assert len(exporter.lines("sink_unavailable")) == 1
    (stopped,) = [line for line in exporter.lines("lane_stopped") if line["signal"] == "metrics"]
    assert (stopped["unsent"], stopped["unsent_messages"]) == (5 * POINTS, 5)
    assert "Traceback" not in exporter.log.read_text()


async def test_what_one_process_gave_back_the_next_one_sends(
    bus: Bus, nats_server: NatsServer, tmp_path: Path, exporters: list[Exporter]
) -> None:
    port = free_port()
    exporter = Exporter(tmp_path, nats_server, f"http://127.0.0.1:{port}", ack_wait_s=600)
    exporters.append(exporter)
    exporter.start()
    await publish(bus, range(5))
    await until(lambda: bool(exporter.lines("sink_unavailable")), "the outage")
    assert exporter.end(signal.SIGTERM) == 0
    receiver = Receiver(grpc_port=port)
    receiver.start()
    try:
        exporter.start()
        await until(lambda: receiver.counts["points"] == 5 * POINTS, "all points")
    finally:
        receiver.stop()


async def test_killed_between_export_and_ack_it_loses_nothing(
    bus: Bus, nats_server: NatsServer, tmp_path: Path, exporters: list[Exporter], receiver: Receiver
) -> None:
    asked: list[int] = []

    def never(arrival: Any) -> Answer:
        asked.append(arrival.items)
        return Answer(http=500, grpc=grpc.StatusCode.UNAVAILABLE)

    receiver.answer = never
    exporter = Exporter(tmp_path, nats_server, receiver.grpc_url, ack_wait_s=2)
    exporters.append(exporter)
    exporter.start()
    await publish(bus, range(5))
    await until(lambda: bool(asked), "a request")
    assert exporter.end(signal.SIGKILL) == -signal.SIGKILL
    receiver.answer = lambda _: Answer()
    exporter.start()
    await publish(bus, range(5, 10))
    await until(lambda: len({p["ts"] for p in receiver.points}) == 10, "all windows")
    assert exporter.end(signal.SIGTERM) == 0


def test_the_receiver_of_the_demo_counts_and_writes(tmp_path: Path) -> None:
    import urllib.request

    from otlpsamples import finding

    from heeler.otlp.exporter import OtlpSink
    from heeler.otlp.logs import finding as map_finding
    from heeler.otlp.settings import SinkSettings

    out = tmp_path / "got.jsonl"
    command = [sys.executable, "-m", "heeler.sim.receiver", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        where = json.loads(process.stdout.readline())
        sink = OtlpSink(SinkSettings(kind="otlp", endpoint=where["grpc"]))
        for request in sink.prepare("logs", [map_finding(finding())]):
            sink.send(request)
        sink.close()
        with urllib.request.urlopen(f"{where['http']}/counts") as answer:
            assert json.load(answer)["logs"] == 1
        process.send_signal(signal.SIGTERM)
        last = process.communicate(timeout=20)[0].splitlines()[-1]
        assert json.loads(last) | {"metrics": {}} == {
            "points": 0,
            "logs": 1,
            "spans": 0,
            "faults": 0,
            "requests": 1,
            "refused": 0,
            "metrics": {},
        }
        assert json.loads(out.read_text())["attributes"]["heeler.finding.id"] == "f1"
    finally:
        process.kill()
        process.wait()


def test_settings_that_can_not_work_are_one_line_each(tmp_path: Path) -> None:
    config = tmp_path / "otlp.toml"
    config.write_text("[otlp]\nevery_s = -1\n[bus]\nfoo = 1\n")
    command = [sys.executable, "-m", "heeler.otlp", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "every_s" in done.stderr
    assert "bus.foo" in done.stderr
    assert "Traceback" not in done.stderr
