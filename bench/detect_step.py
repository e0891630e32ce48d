"""The step of detect on one core, in memory: how much of a fleet one process carries.

    python bench/detect_step.py [--nodes 12500] [--windows 12]

Prints one JSON object a shape: messages a second through the real step (keys, on, ticks), the share of a core that
the fleet needs at 10 s windows, and the head room. Messages are decoded already: receiving and decoding are the
engine's, and measured there.
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from heeler.bus import shard_of
from heeler.detect import DetectStep
from heeler.engine import Inbound, Keyed

S = 1_000_000_000
T0 = 1_760_000_000 * S
GPUS = 8
WINDOW_S = 10
WARM_UP = 32  # windows: a job's first five minutes are not judged, and cost less
MODEL = "NVIDIA H100 80GB HBM3"
LEVELS = {
    "power_w": 688.0,
    "temp_c": 64.0,
    "mem_temp_c": 70.0,
    "sm_clock_mhz": 1755.0,
    "mem_clock_mhz": 2619.0,
    "util_ratio": 0.995,
    "mem_util_ratio": 0.4,
    "sm_active_ratio": 0.88,
    "sm_occupancy_ratio": 0.3,
    "tensor_active_ratio": 0.585,
    "dram_active_ratio": 0.35,
    "fb_used_bytes": 7.1e10,
}
LASTS: dict[str, int] = {
    "clock_event_reasons": 4,
    "violation_thermal_ns": 0,
    "violation_power_ns": 10**12,
    "pcie_gen": 5,
    "pcie_width": 16,
    "pcie_gen_max": 5,
    "pcie_width_max": 16,
    "power_limit_w": 700,
    "sm_clock_max_mhz": 1980,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_volatile": 0,
    "nvlink_recovery_errors": 0,
    "nvlink_crc_errors": 0,
    "recovery_action": 0,
}


def windows(nodes: int, job_nodes: int, count: int, stages: int = 1) -> Iterator[list[Inbound]]:
    """Yield the messages of each window of a fleet whose jobs have `job_nodes` nodes and some pipeline stages."""
    rng = np.random.default_rng(1)
    names = [f"n{node:05d}" for node in range(nodes)]
    jobs = [str(81_000 + node // job_nodes) for node in range(nodes)]
    gpus = [
        {
            "uuid": [f"GPU-{node:08x}-{gpu:04x}-4000-8000-000000000000" for gpu in range(GPUS)],
            "index": list(range(GPUS)),
            "pci": [f"0000:{0x18 + 8 * gpu:02x}:00" for gpu in range(GPUS)],
            "model": [MODEL] * GPUS,
        }
        for node in range(nodes)
    ]
    for window in range(count):
        noise = {name: rng.normal(1.0, 0.008, (nodes, GPUS)) for name in LEVELS}
        stage = 1.0 + 0.4 * (np.arange(nodes) % stages)[:, None]
        columns = {name: np.round(level * noise[name], 4) for name, level in LEVELS.items()}
        columns["util_ratio"] = np.minimum(1.0, columns["util_ratio"])
        columns["tensor_active_ratio"] *= stage / stage.max()
        lists = {name: values.tolist() for name, values in columns.items()}
        end_ns = T0 + (window + 1) * WINDOW_S * S
        made = []
        for node in range(nodes):
            data: dict[str, Any] = {
                "v": 1,
                "cluster": "bench",
                "node": names[node],
                "ts": end_ns,
                "boot": "b",
                "seq": window,
                "window_ns": WINDOW_S * S,
                "reads": WINDOW_S,
                "gpu": gpus[node],
                "mean": {name: values[node] for name, values in lists.items()},
                "last": {name: [value] * GPUS for name, value in LASTS.items()},
                "state": ["ok"] * GPUS,
                "job": [jobs[node]] * GPUS,
                "shard": shard_of(jobs[node]),
            }
            ts_ns = end_ns + 200_000_000 + node * 1000
            made.append(Inbound("JobSample", f"heeler.v1.bench.job.sample.0.{names[node]}", data, ts_ns))
        yield made


def measure(nodes: int, job_nodes: int, count: int, stages: int = 1) -> dict[str, Any]:
    """Return the figures of one shape."""
    keyed = Keyed(DetectStep())
    spent, messages, events = 0.0, 0, 0
    for at, batch in enumerate(windows(nodes, job_nodes, count, stages)):
        # Only windows after warm-up are judged; the first ones also pay for making the state.
        began = time.process_time()
        for message in batch:
            events += len(list(keyed.on(message)))
        if at >= WARM_UP:
            spent += time.process_time() - began
            messages += len(batch)
    per_message = spent / messages
    return {
        "nodes": nodes,
        "job_nodes": job_nodes,
        "stages": stages,
        "messages_per_s": round(1 / per_message),
        "us_per_message": round(per_message * 1e6, 1),
        "share_of_core": round(per_message * 12_500 / WINDOW_S, 3),
        "head_room_at_12500_nodes": round(WINDOW_S / (per_message * 12_500), 1),
        "findings": events,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--windows", type=int, default=48, help="10 s each; the first 30 are a job's warm-up")
    parser.add_argument("--quick", action="store_true", help="a tenth of the fleet")
    options = parser.parse_args()
    nodes = options.nodes // 10 if options.quick else options.nodes
    for fleet, job_nodes, stages in ((nodes, 16, 1), (nodes, 1, 1), (nodes, 16, 2), (1024, 1024, 1), (1024, 1024, 4)):
        print(json.dumps(measure(fleet, job_nodes, options.windows, stages)), flush=True)


if __name__ == "__main__":
    main()
