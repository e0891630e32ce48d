"""The table of docs/from-dcgm-exporter.md is what the exporter does."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from heeler.otlp.map_dcgm import FREE, NAMES
from heeler.otlp.names import GPU, Metric
from heeler.otlp.selection import SELECTED

PAGE = (Path(__file__).resolve().parents[2] / "docs/from-dcgm-exporter.md").read_text()
ROW = re.compile(r"^\| `(DCGM_FI_\w+)` \| (.*) \| (.*) \|$", re.MULTILINE)
ROWS = {name: (there, ours) for name, there, ours in ROW.findall(PAGE)}

# What dcgm-exporter 4 sends as it comes (etc/default-counters.csv, etc/dcp-metrics-included.csv), labels left out.
DEFAULT = {
    f"DCGM_FI_{name}"
    for name in (
        *("DEV_SM_CLOCK", "DEV_MEM_CLOCK", "DEV_MEMORY_TEMP", "DEV_GPU_TEMP", "DEV_POWER_USAGE"),
        *("DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_PCIE_TX_THROUGHPUT", "DEV_PCIE_RX_THROUGHPUT"),
        *("DEV_PCIE_REPLAY_COUNTER", "DEV_GPU_UTIL", "DEV_MEM_COPY_UTIL", "DEV_ENC_UTIL", "DEV_DEC_UTIL"),
        *("DEV_XID_ERRORS", "DEV_FB_FREE", "DEV_FB_USED", "DEV_FB_RESERVED", "DEV_RETIRED_SBE", "DEV_RETIRED_DBE"),
        *("DEV_NVLINK_BANDWIDTH_TOTAL", "DEV_VGPU_LICENSE_STATUS", "DEV_UNCORRECTABLE_REMAPPED_ROWS"),
        *("DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_FAILURE", "PROF_GR_ENGINE_ACTIVE"),
        *("PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE", "PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES"),
    )
}


def ours(metric: Metric) -> str:
    """Return how the page writes a metric under Heeler's own names."""
    tags = ", ".join(f'{key}="{value}"' for key, value in metric.attributes)
    star = "" if any(fnmatchcase(metric.name, pattern) for pattern in SELECTED) else " *"
    return f"`{metric.name}{{{tags}}}`{star}" if tags else f"`{metric.name}`{star}"


def test_every_metric_that_we_send_under_its_name_has_a_row_with_our_own_name() -> None:
    sent = {
        metric.name: ours(GPU[group][column]) if column in GPU[group] else ""
        for group, table in NAMES.items()
        for column, metric in table.items()
    }
    for name, own in sent.items():
        assert ROWS.get(name) == ("yes", own), f"| `{name}` | yes | {own} |"
    assert ROWS[FREE.name][0] == "yes"
    assert {name for name, (there, _) in ROWS.items() if there == "yes"} == {*sent, FREE.name}


def test_every_default_metric_of_the_exporter_has_a_row_and_those_not_sent_say_what_to_take() -> None:
    assert ROWS.keys() >= DEFAULT
    for name, (there, own) in ROWS.items():
        assert there in ("yes", "no"), name
        assert own or name == "DCGM_FI_DEV_VGPU_LICENSE_STATUS", name
    for _, own in ROWS.values():
        for name in re.findall(r"`((?:hw|heeler)\.[a-z_.]+)", own):
            assert any(name == metric.name for table in GPU.values() for metric in table.values()), name
