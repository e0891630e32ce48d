"""Messages for the exporter's tests."""

from typing import Any

T0 = 1_767_225_600_000_000_000
WINDOW = 10_000_000_000


def job_sample(node: str = "n1", window: int = 0, gpus: int = 2, **changes: Any) -> dict[str, Any]:
    """A JobSample of a node, by window."""
    made: dict[str, Any] = {
        "v": 1,
        "cluster": "north",
        "node": node,
        "ts": T0 + window * WINDOW,
        "boot": "b1",
        "seq": window,
        "window_ns": WINDOW,
        "reads": 10,
        "gpu": {
            "uuid": [f"GPU-{node}-{i}" for i in range(gpus)],
            "index": list(range(gpus)),
            "model": ["NVIDIA H100 80GB HBM3"] * gpus,
        },
        "mean": {
            "power_w": [402.0 + i for i in range(gpus)],
            "util_ratio": [0.97] * gpus,
            "fb_used_bytes": [85520809984] * gpus,
            "fb_total_bytes": [85899345920] * gpus,
            "sm_clock_mhz": [1980.0] * gpus,
            "temp_c": [55.5] * gpus,
        },
        "last": {
            "energy_j": [1000.5 + window] * gpus,
            "ecc_corrected_volatile": [7] * gpus,
            "violation_thermal_ns": [2_500_000_000] * gpus,
            "clock_event_reasons": [8] * gpus,
        },
        "state": ["ok"] * gpus,
        "job": ["81234"] * gpus,
        "jobs": {"81234": {"user": "alice", "account": "ml", "partition": "gpu"}},
        "shard": 3,
    }
    return {**made, **changes}


def ib_sample(node: str = "n1", window: int = 0, **port: Any) -> dict[str, Any]:
    """An IbSample with one port."""
    counters = {"port_xmit_data": 10_000 + window, "port_rcv_errors": 2, "link_downed": 1, "rx_new_thing": 4}
    made = {"device": "mlx5_0", "port": 1, "guid": "a0:b1", "state": "active", "rate_gbps": 400, "counters": counters}
    return {
        "v": 1,
        "cluster": "north",
        "node": node,
        "ts": T0 + window * WINDOW,
        "boot": "b1",
        "seq": window,
        "ports": [{**made, "link_layer": "infiniband", **port}],
    }


def finding(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A finding about a GPU."""
    made: dict[str, Any] = {
        "v": 1,
        "cluster": "north",
        "id": f"f{number}",
        "kind": "gpu_lag",
        "state": "open",
        "severity": "critical",
        "confidence": 0.9,
        "entity": {"type": "gpu", "node": "n1", "gpu_uuid": "GPU-n1-0", "gpu_index": 0},
        "node": "n1",
        "job_id": "81234",
        "first_ts": T0,
        "ts": T0 + WINDOW,
        "evidence": [{"metric": "sm_clock_mhz", "value": 1155, "unit": "MHz", "peers": 511}],
        "advice": "drain_after_job",
        "summary": "GPU 0 on n1 runs at 1,155 MHz while its 511 peers run at 1,980",
    }
    return {**made, **changes}


def drain_action(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A drain that was only proposed."""
    made: dict[str, Any] = {
        "v": 1,
        "cluster": "north",
        "id": f"d{number}",
        "finding_id": "f1",
        "node": "n1",
        "ts": T0,
        "verdict": "proposed",
        "dry_run": True,
        "why": "lagging GPU",
        "actor": "drain-1",
    }
    return {**made, **changes}


def kernel_event(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A JobKernelEvent: XID 79."""
    made: dict[str, Any] = {
        "v": 1,
        "cluster": "north",
        "node": "n1",
        "ts": T0,
        "boot": "b1",
        "seq": number,
        "kind": "xid",
        "code": 79,
        "uuid": "GPU-n1-0",
        "text": "GPU has fallen off the bus.",
        "raw": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "jobs": ["81234"],
        "shard": 1,
    }
    return {**made, **changes}


def agent_status(node: str = "n1", **changes: Any) -> dict[str, Any]:
    """An AgentStatus with a collector that works and one that is off."""
    made: dict[str, Any] = {
        "v": 1,
        "cluster": "north",
        "node": node,
        "ts": T0 + WINDOW,
        "boot": "b1",
        "seq": 1,
        "started_ts": T0 - 5 * WINDOW,
        "dropped_samples": 3,
        "rss_bytes": 20 << 20,
        "collectors": {
            "nvml": {"state": "ok", "readings": 50, "failures": 1, "duration_ns": 3_000_000},
            "ib": {"state": "off"},
        },
    }
    return {**made, **changes}
