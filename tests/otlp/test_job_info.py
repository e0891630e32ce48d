"""With `jobs = "info"` a job makes one series for each of its GPUs, and none of all that is told of these."""

from typing import Any

import pytest
from otlplab import all_acked, exporting, publish, to
from otlpsamples import T0, WINDOW, job_sample
from waiting import until

from heeler.bus import Bus, ConfigError
from heeler.otlp.map import gpu_points, metrics_by
from heeler.otlp.prometheus import metric_name
from heeler.otlp.settings import OtlpSettings
from heeler.sim.receiver import Receiver

INFO = "heeler.gpu.job.info"


def jobs_in(points: list[dict[str, Any]]) -> set[Any]:
    return {one["attributes"].get("slurm.job.id") for one in points}


def test_points_of_a_gpu_have_no_job_and_one_says_whose_it_is() -> None:
    data = job_sample(job=["81234", None], nvlinks=[[0, 3, False, {"crc_errors": 1}]])
    flat = [one for points in metrics_by("hw", "info")["JobSample"](data) for one in points.flat()]
    (info,) = [one for one in flat if one["metric"] == INFO]
    assert (info["value"], info["unit"], info["kind"]) == (1, "{job}", "gauge")
    about = {"hw.id": "GPU-n1-0", "slurm.job.id": "81234", "slurm.user": "alice", "host.name": "n1"}
    assert info["attributes"].items() >= about.items()
    others = [one for one in flat if one is not info]
    assert not {key for one in others for key in one["attributes"] if key.startswith("slurm.")}
    usual = [one for points in metrics_by("hw")["JobSample"](data) for one in points.flat()]
    assert [(one["metric"], one["value"]) for one in others] == [(one["metric"], one["value"]) for one in usual]


def test_names_of_dcgm_exporter_keep_the_label_that_their_dashboards_ask_for() -> None:
    made = metrics_by("both", "info")["JobSample"](job_sample())
    dcgm = [one for points in made for one in points.flat() if one["metric"].startswith("DCGM_")]
    assert {one["attributes"]["hpc_job"] for one in dcgm} == {"81234"}


def test_its_name_in_prometheus_is_that_of_an_info() -> None:
    (points,) = [one for one in metrics_by("hw", "info")["JobSample"](job_sample()) if one.scope[0] == "gpu_job"]
    ((metric, _),) = points.columns
    assert metric_name(metric.name, metric.unit, metric.kind) == "heeler_gpu_job_info"


def test_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="jobs: 'none'"):
        OtlpSettings(jobs="none").validate()


@pytest.mark.bus
async def test_when_a_job_ends_only_its_info_ends(bus: Bus, receiver: Receiver) -> None:
    held = [["1", "1"], ["1", "2"], [None, "2"]]
    async with exporting(bus, to(receiver), jobs="info"):
        for window, job in enumerate(held):
            await publish(bus, "JobSample", job_sample(window=window, job=job))
            await until(lambda: all_acked(bus), "acks")
    points = [one for one in receiver.points if one["metric"] != INFO]
    assert len(points) == len(held) * len(gpu_points(job_sample()))
    assert jobs_in(points) == {None}
    assert not any(one["ended"] for one in points)
    told = [
        (one["attributes"]["hw.id"][-1], one["attributes"]["slurm.job.id"], (one["ts"] - T0) // WINDOW, one["ended"])
        for one in receiver.points
        if one["metric"] == INFO
    ]
    assert sorted(told) == [
        ("0", "1", 0, False),
        ("0", "1", 1, False),
        ("0", "1", 2, True),
        ("1", "1", 0, False),
        ("1", "1", 1, True),
        ("1", "2", 1, False),
        ("1", "2", 2, False),
    ]
    assert receiver.counts["faults"] == 0
