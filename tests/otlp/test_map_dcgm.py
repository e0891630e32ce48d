"""GPUs under the names of NVIDIA's dcgm-exporter."""

from typing import Any

import pytest
from otlpsamples import job_sample, mig_sample

from heeler.bus import ConfigError
from heeler.otlp.map import metrics_by
from heeler.otlp.map_dcgm import FREE, NAMES, dcgm_sample
from heeler.otlp.names import Metric
from heeler.otlp.prometheus import label_name, metric_name
from heeler.otlp.settings import OtlpSettings


def points(sample: dict[str, Any]) -> list[dict[str, Any]]:
    (made,) = dcgm_sample(sample)
    return list(made.flat())


def values(name: str, sample: dict[str, Any]) -> list[Any]:
    return [p["value"] for p in points(sample) if p["metric"] == f"DCGM_FI_{name}"]


def all_metrics() -> list[Metric]:
    return [FREE, *(metric for table in NAMES.values() for metric in table.values())]


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.name)
def test_prometheus_keeps_the_name_as_it_is(metric: Metric) -> None:
    assert metric_name(metric.name, metric.unit, metric.kind) == metric.name


def test_no_name_is_given_twice() -> None:
    assert len({metric.name for metric in all_metrics()}) == len(all_metrics())


def test_units_are_those_of_the_exporter() -> None:
    sample = mig_sample(
        mean={
            "util_ratio": [0.97] * 4, "fb_used_bytes": [1 << 30] * 4, "fb_total_bytes": [80 << 30] * 4,
            "fb_reserved_bytes": [512 << 20, None, 0, 0], "power_w": [402.0] * 4,
        },
        last={"energy_j": [5.5, None, 5.5, 7.0]},
    )  # fmt: skip
    assert values("DEV_GPU_UTIL", sample) == pytest.approx([97] * 4)
    assert values("DEV_FB_USED", sample) == [1024] * 4
    assert values("DEV_FB_FREE", sample) == [79 * 1024 - 512, 79 * 1024, 79 * 1024, 79 * 1024]
    assert values("DEV_POWER_USAGE", sample) == [402] * 4
    assert values("DEV_TOTAL_ENERGY_CONSUMPTION", sample) == [5500, 5500, 7000], "what was not read has no point"


def test_a_gpu_has_the_exporters_labels_and_the_job() -> None:
    sample = job_sample()
    gpu = {**sample["gpu"], "index": [3], "minor": [3], "pci": ["0000:3b:00"]}
    count = len(sample["gpu"]["uuid"])
    gpu = {key: (value * count)[:count] if isinstance(value, list) else value for key, value in gpu.items()}
    labels = next(iter(points({**sample, "gpu": gpu})))["attributes"]
    assert {key: labels[key] for key in ("gpu", "device", "pci_bus_id", "UUID", "Hostname")} == {
        "gpu": "3",
        "device": "nvidia3",
        "pci_bus_id": "00000000:3B:00.0",
        "UUID": sample["gpu"]["uuid"][0],
        "Hostname": sample["node"],
    }
    assert labels["hpc_job"] == sample["job"][0]
    assert {label_name(key) for key in labels} >= {"gpu", "UUID", "modelName", "Hostname", "hpc_job"}


def test_a_mig_device_stands_under_its_gpu_with_its_profile() -> None:
    labels = [p["attributes"] for p in points(mig_sample()) if p["metric"] == "DCGM_FI_DEV_FB_USED"]
    parts = [(label["UUID"], label.get("GPU_I_ID"), label.get("GPU_I_PROFILE")) for label in labels]
    assert ("GPU-n1-0", "1", "3g.40gb") in parts
    assert ("GPU-n1-0", None, None) in parts
    assert len(set(parts)) == len(parts), "each is a series of its own"


def test_what_is_not_known_of_a_gpu_is_no_label() -> None:
    sample = job_sample()
    bare = {**sample, "gpu": {"uuid": sample["gpu"]["uuid"]}}
    labels = points(bare)[0]["attributes"]
    assert "gpu" not in labels
    assert "device" not in labels
    assert "modelName" not in labels


@pytest.mark.parametrize(("names", "scopes"), [("hw", {"gpu"}), ("dcgm", {"dcgm"}), ("both", {"gpu", "dcgm"})])
def test_the_switch_says_which_names_go_out(names: str, scopes: set[str]) -> None:
    OtlpSettings(gpu_names=names).validate()
    made = metrics_by(names)["JobSample"](job_sample())
    assert {one.scope[0] for one in made} >= scopes
    assert {one.scope[0] for one in made} <= scopes | {"nvlink"}


def test_another_word_for_the_switch_is_refused() -> None:
    with pytest.raises(ConfigError, match="gpu_names: 'nvml'"):
        OtlpSettings(gpu_names="nvml").validate()
