"""A series ends when its component has other attributes: a GPU's, with its job."""

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlplab import all_acked, exporting, publish, to
from otlpsamples import T0, WINDOW, job_sample
from waiting import until

from heeler.bus import Bus
from heeler.otlp.ends import Ends
from heeler.otlp.map import gpu_points
from heeler.otlp.sinks import lines
from heeler.otlp.wire import Rows, payloads
from heeler.sim.receiver import Receiver, read, tally


def of_job(job: str | None, window: int, gpus: int = 2, **changes: Any) -> dict[str, Any]:
    """A sample of GPUs of a job, or of none."""
    jobs = {job: {"user": "ann", "account": "ml", "partition": "gpu"}} if job else {}
    return job_sample(window=window, gpus=gpus, job=[job] * gpus, jobs=jobs, **changes)


def told(ends: Ends, sample: dict[str, Any]) -> tuple[list[int], set[str | None]]:
    changed, ended = ends.look(gpu_points(sample))
    return changed, {dict(one).get("slurm.job.id") for points in ended for one in points.attributes}  # type: ignore[misc]


def test_the_series_of_a_job_end_with_the_first_sample_that_has_another_or_none() -> None:
    ends = Ends()
    assert told(ends, of_job("1", 0)) == ([], set())
    assert told(ends, of_job("1", 1)) == ([], set())
    assert told(ends, of_job(None, 2)) == ([0, 1], {"1"})
    assert told(ends, of_job("2", 3)) == ([0, 1], {None})
    assert told(ends, of_job("2", 4)) == ([], set())


def test_only_the_gpus_that_changed_hands_end() -> None:
    ends = Ends()
    told(ends, of_job("1", 0))
    changed, (ended,) = ends.look(gpu_points({**of_job("1", 1), "job": ["1", None]}))
    assert (changed, ended.ids, ended.ts_ns) == ([1], ["GPU-n1-1"], T0 + WINDOW)


def test_a_sample_that_comes_late_or_again_ends_nothing() -> None:
    ends = Ends()
    told(ends, of_job("2", 5))
    assert told(ends, of_job("1", 4)) == ([], set())
    assert told(ends, of_job("1", 5)) == ([], set())
    assert told(ends, of_job("2", 6)) == ([], set())


def test_what_is_remembered_is_bounded() -> None:
    ends = Ends(most=10)
    for number in range(50):
        ends.look(gpu_points(job_sample(f"n{number}")))
    assert len(ends._rows) == 10


def test_each_series_that_had_a_value_has_an_end_that_every_reader_of_otlp_understands() -> None:
    ends = Ends()
    before = gpu_points(of_job("1", 0))
    ends.look(before)
    _, ended = ends.look(gpu_points(of_job("2", 1)))
    had, gone = (
        [
            point
            for payload in payloads("metrics", items, 1 << 20, Rows())
            for point in read("metrics", ExportMetricsServiceRequest.FromString(payload.data()))
        ]
        for items in ([before], ended)
    )

    def key(point: dict[str, Any]) -> str:
        return json.dumps([point[key] for key in ("metric", "unit", "kind", "attributes")], sort_keys=True)

    assert sorted(map(key, had)) == sorted(map(key, gone))
    assert {(point["ended"], point["value"], point["ts"]) for point in gone} == {(True, None, T0 + WINDOW)}
    assert not any(point["ended"] for point in had)
    assert sum(map(len, ended)) == len(gone)


def test_a_receiver_counts_an_end_as_no_point() -> None:
    ends = Ends()
    before = gpu_points(of_job("1", 0))
    ends.look(before)
    _, ended = ends.look(gpu_points(of_job("2", 1)))
    (payload,) = payloads("metrics", [before, *ended], 1 << 20, Rows())
    assert tally("metrics", ExportMetricsServiceRequest.FromString(payload.data())).total() == len(before)


def test_lines_say_that_a_series_has_ended() -> None:
    ends = Ends()
    told(ends, of_job("1", 0, gpus=1))
    _, ended = ends.look(gpu_points(of_job("2", 1, gpus=1)))
    found = [json.loads(line) for line in lines(ended).data.decode().splitlines()]
    assert {(line["value"], line["ended"], line["attributes"]["slurm.job.id"]) for line in found} == {(None, True, "1")}


@pytest.mark.bus
async def test_a_new_job_is_told_at_once_though_a_minute_has_not_passed(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver), every_s=60):
        for window, job in enumerate(("1", "1", "2", "2")):
            await publish(bus, "JobSample", of_job(job, window, gpus=1))
        await until(lambda: all_acked(bus), "acks")
    power = [point for point in receiver.points if point["metric"] == "hw.power"]
    found = {(p["attributes"]["slurm.job.id"], (p["ts"] - T0) // WINDOW, p["ended"]) for p in power}
    assert found == {("1", 0, False), ("2", 2, False), ("1", 2, True)}
    assert receiver.counts["faults"] == 0
