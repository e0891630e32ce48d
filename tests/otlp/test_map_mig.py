"""A GPU that is divided: its parts have points, and no byte or joule counts twice."""

from typing import Any

from otlpsamples import job_sample, mig_sample

from heeler.otlp.map import gpu_points


def by_id(metric: str, **changes: Any) -> dict[str, Any]:
    return {
        p["attributes"]["hw.id"]: p["value"] for p in gpu_points(mig_sample(**changes)).flat() if p["metric"] == metric
    }


def test_a_mig_device_says_what_it_is_whose_part_and_who_has_it() -> None:
    points = [p for p in gpu_points(mig_sample()).flat() if p["metric"] == "heeler.gpu.sm.active"]
    assert next(p["attributes"] for p in points) == {
        "hw.id": "MIG-a",
        "hw.type": "gpu",
        "host.name": "n1",
        "heeler.cluster": "north",
        "hw.model": "NVIDIA H100 80GB HBM3",
        "hw.parent": "GPU-n1-0",
        "heeler.mig.gi": 1,
        "heeler.mig.ci": 0,
        "heeler.mig.profile": "3g.40gb",
        "slurm.job.id": "1",
    }
    assert [p["attributes"].get("slurm.job.id") for p in points] == ["1", "2", "3"]
    assert "hw.parent" not in points[2]["attributes"]


def test_a_sum_over_gpus_counts_memory_and_power_once() -> None:
    assert by_id("hw.gpu.memory.usage") == {"GPU-n1-0": 30 << 30, "GPU-n1-1": 70 << 30}
    assert by_id("hw.gpu.memory.limit") == {"GPU-n1-0": 80 << 30, "GPU-n1-1": 80 << 30}
    assert by_id("heeler.mig.memory.usage") == {"MIG-a": 20 << 30, "MIG-b": 10 << 30}
    assert by_id("heeler.mig.memory.limit") == {"MIG-a": 40 << 30, "MIG-b": 40 << 30}
    assert by_id("hw.power", mean={"power_w": [300.0, 300.0, 300.0, 650.0]}) == {"GPU-n1-0": 300.0, "GPU-n1-1": 650.0}
    energy = {"energy_j": [5.0, 5.0, 5.0, 7.0]}
    assert by_id("hw.energy", last=energy) == {"GPU-n1-0": 5.0, "GPU-n1-1": 7.0}
    assert by_id("heeler.mig.energy", last=energy) == {"MIG-a": 5.0, "MIG-b": 5.0}


def test_a_share_is_a_mig_devices_own_under_the_usual_name() -> None:
    assert by_id("hw.gpu.memory.utilization") == {"GPU-n1-0": 0.375, "MIG-a": 0.5, "MIG-b": 0.25, "GPU-n1-1": 0.875}


def test_a_lost_gpu_counts_once_however_many_parts_it_has() -> None:
    sample = mig_sample(state=["lost", "lost", "lost", "ok"])
    failed = [
        (p["metric"], p["attributes"]["hw.id"])
        for p in gpu_points(sample).flat()
        if p["attributes"].get("hw.state") == "failed" and p["value"] == 1
    ]
    assert failed == [("hw.status", "GPU-n1-0"), ("heeler.mig.status", "MIG-a"), ("heeler.mig.status", "MIG-b")]


def test_a_utilisation_that_can_not_be_read_of_a_divided_gpu_has_no_point() -> None:
    assert by_id("hw.gpu.utilization") == {"GPU-n1-1": 0.97}


def test_columns_without_any_part_make_the_same_points_as_before() -> None:
    gpu = job_sample()["gpu"]
    whole = {**gpu, "parent": [None, None], "gi": [None, None], "ci": [None, None], "profile": [None, None]}
    assert list(gpu_points(job_sample(gpu=whole)).flat()) == list(gpu_points(job_sample()).flat())
