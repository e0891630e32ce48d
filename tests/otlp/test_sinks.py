"""Standard output, files, plug-ins and their settings."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from otlpsamples import finding, job_sample, kernel_event

from heeler.bus import ConfigError
from heeler.engine import config
from heeler.otlp.logs import finding as map_finding
from heeler.otlp.logs import kernel_event as map_kernel_event
from heeler.otlp.map import gpu_points
from heeler.otlp.program import PROGRAM
from heeler.otlp.settings import OtlpSettings, SinkSettings
from heeler.otlp.sinks import FileSink, StdoutSink, Unavailable, lines
from heeler.otlp.starts import Starts


def test_each_point_is_a_json_line() -> None:
    points = gpu_points(job_sample())
    Starts().fill(points)
    made = lines([points, map_finding(finding())])
    found = [json.loads(line) for line in made.data.decode().splitlines()]
    assert made.count == len(found) == len(points) + 1
    assert found[0]["metric"] == "hw.power"
    assert found[0]["attributes"]["slurm.job.id"] == "81234"
    assert all("start_ts" in one for one in found[:-1] if one["kind"] != "gauge")
    assert found[-1]["body"].startswith("GPU 0 on n1")


def test_binary_in_a_record_is_written_as_hex() -> None:
    made = lines([map_kernel_event(kernel_event(detail={"raw": b"\xff\x00"}))])
    assert json.loads(made.data)["attributes"]["heeler.kernel.detail"] == {"raw": "ff00"}


def test_standard_output_is_flushed_line_by_line() -> None:
    out = io.BytesIO()
    sink = StdoutSink(out)
    for request in sink.prepare("metrics", [gpu_points(job_sample())]):
        sink.send(request)
    assert out.getvalue().endswith(b"\n")


def test_nobody_reading_standard_output_is_an_outage() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as out:
        sink = StdoutSink(out)
        (request,) = sink.prepare("metrics", [gpu_points(job_sample())])
        with pytest.raises(Unavailable):
            sink.send(request)


def written(folder: Path) -> list[str]:
    """All lines in all files, the oldest first."""
    names = sorted(
        folder.glob("out.jsonl*"), key=lambda path: -int(path.suffix[1:]) if path.suffix[1:].isdigit() else 0
    )
    return [line for name in names for line in name.read_text().splitlines()]


@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 6000))
def test_rotation_loses_and_splits_no_line(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], rotate_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("rotation")
    sink = FileSink(folder / "out.jsonl", rotate_bytes, keep=100)
    expected = []
    for number, size in enumerate(batches):
        (request,) = sink.prepare("logs", [map_finding(finding(number * 10 + i)) for i in range(size)])
        expected += request.data.decode().splitlines()
        sink.send(request)
    assert written(folder) == expected


def test_files_grow_to_their_size_and_only_so_many_are_kept(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out.jsonl", rotate_bytes=3000, keep=2)
    for number in range(20):
        sink.send(sink.prepare("logs", [map_finding(finding(number))])[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.1", "out.jsonl.2"]
    assert all(path.stat().st_size <= 3000 for path in tmp_path.iterdir())
    assert '"f19"' in written(tmp_path)[-1]


def test_a_full_disk_is_an_outage_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FileSink(tmp_path / "out.jsonl", 1 << 20, 2)
    (request,) = sink.prepare("logs", [map_finding(finding())])
    sink.send(request)
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(Unavailable, match="No space left"):
        sink.send(request)
    monkeypatch.undo()
    sink.send(request)
    assert written(tmp_path) == request.data.decode().splitlines() * 2


def _no_space(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_missing_folder_is_an_outage(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "not" / "there.jsonl", 1 << 20, 2)
    with pytest.raises(Unavailable):
        sink.send(sink.prepare("logs", [map_finding(finding())])[0])


def test_a_kind_that_nobody_provides_is_an_error_of_the_settings() -> None:
    with pytest.raises(ConfigError, match="carrier-pigeon"):
        config.build(SinkSettings, {"kind": "carrier-pigeon"}, "sink")


def load(text: str, tmp_path: Path) -> OtlpSettings:
    path = tmp_path / "otlp.toml"
    path.write_text(text)
    found = PROGRAM.load(path)["otlp"]
    assert isinstance(found, OtlpSettings)
    return found


def test_settings_are_read_from_toml(tmp_path: Path) -> None:
    found = load(
        """
        [otlp]
        every_s = 60
        [[otlp.sinks]]
        kind = "otlp"
        name = "collector"
        endpoint = "https://collector:4317"
        headers = { team = "a" }
        [[otlp.sinks]]
        kind = "file"
        path = "/tmp/out.jsonl"
        signals = ["logs"]
        """,
        tmp_path,
    )
    assert found.every_s == 60
    assert [(sink.kind, sink.label) for sink in found.sinks] == [("otlp", "collector"), ("file", "file")]
    assert found.sinks[0].headers == {"team": "a"}


def test_without_settings_everything_goes_to_standard_output() -> None:
    assert [sink.kind for sink in PROGRAM.load(None)["otlp"].sinks] == ["stdout"]


def test_all_faults_are_listed_at_once() -> None:
    bad: dict[str, Any] = {
        "linger_s": 99,
        "sinks": [
            {
                "kind": "otlp",
                "endpoint": "collector",
                "protocol": "carrier",
                "timeout_s": 0,
                "ca": "/nowhere",
                "signals": ["smoke"],
            }
        ],
    }
    with pytest.raises(ConfigError) as caught:
        config.build(OtlpSettings, bad, "otlp")
    said = str(caught.value)
    for fault in ("endpoint", "protocol", "timeout_s", "ca: no such file", "signals"):
        assert fault in said


def test_a_key_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="colour: unknown key"):
        config.build(OtlpSettings, {"sinks": [{"colour": "red"}]}, "otlp")


@pytest.mark.parametrize(
    "sink",
    [
        {"kind": "otlp", "endpoint": "ftp://x:1"},
        {"kind": "otlp", "endpoint": "http://x:99999"},
        {"kind": "otlp", "endpoint": "http://"},
        {"kind": "otlp", "compression": "zip"},
        {"kind": "otlp", "max_bytes": 1},
        {"kind": "otlp", "timeout_s": float("inf")},
        {"kind": "stdout", "name": "a.b"},
        {"kind": "stdout", "signals": []},
        {"kind": "file", "path": "x", "keep": 0},
    ],
    ids=str,
)
def test_settings_that_can_not_work_are_refused(sink: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        config.build(SinkSettings, sink, "sink")


def test_two_sinks_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two are named 'stdout'"):
        config.build(OtlpSettings, {"sinks": [{}, {}]}, "otlp")


def test_a_certificate_needs_a_secure_endpoint(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    ca.touch()
    with pytest.raises(ConfigError, match="https"):
        config.build(SinkSettings, {"kind": "otlp", "ca": str(ca)}, "sink")
