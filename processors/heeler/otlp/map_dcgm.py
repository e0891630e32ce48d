"""GPUs under the names of NVIDIA's dcgm-exporter, so that dashboards and alerts made for it go on.

Names, units and labels are those of its default and usual counters. A counter is a sum that is not said to be
monotonic, since its name has no `_total` and receivers would add one. Not here is what Heeler does not read as the
field is defined: DCGM_FI_DEV_XID_ERRORS (the last XID stands in the logs), the *_VIOLATION counters, whose unit differs
between versions of DCGM, and NVLINK_BANDWIDTH_TOTAL, a count where we have rates.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from heeler.otlp.names import Kind, Metric
from heeler.otlp.points import Attributes, Number, Points, scaled

Data = Mapping[str, Any]

PERCENT, MILLIJOULE, MIB = 100.0, 1000.0, 2.0**-20


def _gauge(name: str, scale: float | None = None) -> Metric:
    return Metric(f"DCGM_FI_{name}", "", scale=scale)


def _count(name: str, scale: float | None = None) -> Metric:
    return Metric(f"DCGM_FI_{name}", "", Kind.UPDOWN, scale=scale, integer=scale is None)


NAMES: Final[Mapping[str, Mapping[str, Metric]]] = {
    "mean": {
        "sm_clock_mhz": _gauge("DEV_SM_CLOCK"),
        "mem_clock_mhz": _gauge("DEV_MEM_CLOCK"),
        "temp_c": _gauge("DEV_GPU_TEMP"),
        "mem_temp_c": _gauge("DEV_MEMORY_TEMP"),
        "power_w": _gauge("DEV_POWER_USAGE"),
        "util_ratio": _gauge("DEV_GPU_UTIL", PERCENT),
        "mem_util_ratio": _gauge("DEV_MEM_COPY_UTIL", PERCENT),
        "encoder_util_ratio": _gauge("DEV_ENC_UTIL", PERCENT),
        "decoder_util_ratio": _gauge("DEV_DEC_UTIL", PERCENT),
        "fb_used_bytes": _gauge("DEV_FB_USED", MIB),
        "fb_total_bytes": _gauge("DEV_FB_TOTAL", MIB),
        "fb_reserved_bytes": _gauge("DEV_FB_RESERVED", MIB),
        "graphics_active_ratio": _gauge("PROF_GR_ENGINE_ACTIVE"),
        "sm_active_ratio": _gauge("PROF_SM_ACTIVE"),
        "sm_occupancy_ratio": _gauge("PROF_SM_OCCUPANCY"),
        "tensor_active_ratio": _gauge("PROF_PIPE_TENSOR_ACTIVE"),
        "dram_active_ratio": _gauge("PROF_DRAM_ACTIVE"),
        "fp64_active_ratio": _gauge("PROF_PIPE_FP64_ACTIVE"),
        "fp32_active_ratio": _gauge("PROF_PIPE_FP32_ACTIVE"),
        "fp16_active_ratio": _gauge("PROF_PIPE_FP16_ACTIVE"),
        "pcie_tx_bytes_per_s": _gauge("PROF_PCIE_TX_BYTES"),
        "pcie_rx_bytes_per_s": _gauge("PROF_PCIE_RX_BYTES"),
        "nvlink_tx_bytes_per_s": _gauge("PROF_NVLINK_TX_BYTES"),
        "nvlink_rx_bytes_per_s": _gauge("PROF_NVLINK_RX_BYTES"),
    },
    "last": {
        "energy_j": _count("DEV_TOTAL_ENERGY_CONSUMPTION", MILLIJOULE),
        "power_limit_w": _gauge("DEV_POWER_MGMT_LIMIT"),
        "pcie_replays": _count("DEV_PCIE_REPLAY_COUNTER"),
        "pcie_gen": _gauge("DEV_PCIE_LINK_GEN"),
        "pcie_width": _gauge("DEV_PCIE_LINK_WIDTH"),
        "pstate": _gauge("DEV_PSTATE"),
        "clock_event_reasons": _gauge("DEV_CLOCK_THROTTLE_REASONS"),
        "ecc_corrected_volatile": _count("DEV_ECC_SBE_VOL_TOTAL"),
        "ecc_uncorrected_volatile": _count("DEV_ECC_DBE_VOL_TOTAL"),
        "ecc_corrected_aggregate": _count("DEV_ECC_SBE_AGG_TOTAL"),
        "ecc_uncorrected_aggregate": _count("DEV_ECC_DBE_AGG_TOTAL"),
        "retired_pages_sbe": _count("DEV_RETIRED_SBE"),
        "retired_pages_dbe": _count("DEV_RETIRED_DBE"),
        "retired_pages_pending": _gauge("DEV_RETIRED_PENDING"),
        "remapped_rows_correctable": _count("DEV_CORRECTABLE_REMAPPED_ROWS"),
        "remapped_rows_uncorrectable": _count("DEV_UNCORRECTABLE_REMAPPED_ROWS"),
        "remap_pending": _gauge("DEV_ROW_REMAP_PENDING"),
        "remap_failed": _gauge("DEV_ROW_REMAP_FAILURE"),
    },
}
FREE: Final = _gauge("DEV_FB_FREE", MIB)


def dcgm_sample(data: Data) -> list[Points]:
    """Return the points of a GpuSample or JobSample: one row a GPU, and one a MIG device under its GPU's name."""
    gpu = data["gpu"]
    uuids: list[str] = gpu["uuid"]
    columns: list[tuple[Metric, list[Number | None]]] = [
        (metric, scaled(data[group][column], metric.scale))
        for group, table in NAMES.items()
        for column, metric in table.items()
        if column in data.get(group, {})
    ]
    if (free := _free(data["mean"])) is not None:
        columns.append((FREE, scaled(free, FREE.scale)))
    rows = {uuid: row for row, uuid in enumerate(uuids)}
    return [
        Points(
            scope=("dcgm", data["cluster"], data["node"]),
            boot=data["boot"],
            ts_ns=data["ts"],
            ids=uuids,
            attributes=[_labels(data, gpu, rows, row) for row in range(len(uuids))],
            columns=columns,
        )
    ]


def _free(mean: Mapping[str, Sequence[Number | None]]) -> list[Number | None] | None:
    """Return the memory that jobs can have. Where what the driver keeps is not told apart, it is in what is used."""
    if "fb_total_bytes" not in mean or "fb_used_bytes" not in mean:
        return None
    kept = mean.get("fb_reserved_bytes") or [0] * len(mean["fb_total_bytes"])
    return [
        None if total is None or used is None else max(total - used - (own or 0), 0)
        for total, used, own in zip(mean["fb_total_bytes"], mean["fb_used_bytes"], kept, strict=True)
    ]


def _labels(data: Data, gpu: Data, rows: Mapping[str, int], row: int) -> Attributes:
    """Return dcgm-exporter's labels. A MIG device has those of its GPU, and says which part it is."""

    def of(key: str, at: int | None) -> Any:
        return None if at is None or key not in gpu else gpu[key][at]

    parent = of("parent", row)
    whole = row if parent is None else rows.get(parent)
    index, minor, pci = of("index", whole), of("minor", whole), of("pci", whole)
    job = data["job"][row] if "job" in data else None
    about = data.get("jobs", {}).get(job, {}) if job else {}
    found = {
        "gpu": None if index is None else str(index),
        "UUID": parent or gpu["uuid"][row],
        "pci_bus_id": None if pci is None else f"0000{pci}.0".upper(),  # a domain of eight digits
        "device": None if minor is None else f"nvidia{minor}",
        "modelName": of("model", whole),
        "Hostname": data["node"],
        "GPU_I_PROFILE": of("profile", row),
        "GPU_I_ID": None if parent is None or of("gi", row) is None else str(of("gi", row)),
        "hpc_job": job,
        "heeler.cluster": data["cluster"],
        **{f"slurm.{key}": about.get(key) for key in ("user", "account", "partition")},
    }
    return tuple((name, value) for name, value in found.items() if isinstance(value, str) and value)
