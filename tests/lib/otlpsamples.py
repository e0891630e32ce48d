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


def mig_sample(**changes: Any) -> dict[str, Any]:
    """A JobSample of a GPU that is divided in two, each half with a job, and a whole GPU with a third."""
    made: dict[str, Any] = {
        **job_sample(gpus=4),
        "gpu": {
            "uuid": ["GPU-n1-0", "MIG-a", "MIG-b", "GPU-n1-1"],
            "index": [0, None, None, 1],
            "minor": [0, None, None, 1],
            "pci": ["0000:1b:00", None, None, "0000:1e:00"],
            "model": ["NVIDIA H100 80GB HBM3"] * 4,
            "parent": [None, "GPU-n1-0", "GPU-n1-0", None],
            "gi": [None, 1, 2, None],
            "ci": [None, 0, 0, None],
            "profile": [None, "3g.40gb", "3g.40gb", None],
        },
        "mean": {
            "power_w": [300.0, None, None, 650.0],
            "util_ratio": [None, None, None, 0.97],
            "sm_active_ratio": [None, 0.8, 0.1, 0.9],
            "fb_used_bytes": [30 << 30, 20 << 30, 10 << 30, 70 << 30],
            "fb_total_bytes": [80 << 30, 40 << 30, 40 << 30, 80 << 30],
        },
        "last": {"energy_j": [1000.0, None, None, 2000.0], "mig_mode": [1, None, None, 0]},
        "state": ["ok"] * 4,
        "job": [None, "1", "2", "3"],
        "jobs": {},
    }
    return {**made, **changes}


def host_sample(window: int = 0, **changes: Any) -> dict[str, Any]:
    """A HostSample of a busy node."""
    made: dict[str, Any] = {
        "v": 1,
        "cluster": "north",
        "node": "n1",
        "ts": T0 + window * WINDOW,
        "boot": "b1",
        "seq": window,
        "window_ns": WINDOW,
        "cpus": 224,
        "cpu_ratio": {"user": 0.31, "system": 0.02, "idle": 0.66, "irq": 0.01, "guest": 0.3},
        "load1": 71.5,
        "procs_running": 70,
        "threads_uninterruptible": 3,
        "memory_bytes": {
            "total": 2000,
            "free": 500,
            "buffers": 100,
            "cached": 400,
            "available": 1200,
            "swap_total": 64,
            "swap_free": 60,
            "hugepages_total": 8,
        },
        "pressure": {"io_full": {"avg10_ratio": 0.25, "avg60_ratio": 0.5, "avg300_ratio": 1.0, "total_s": 12.5}},
        "aer": [
            {"pci": "0000:3b:00.0", "class": "gpu", "correctable": 3, "nonfatal": 0, "errors": {"RxErr": 3}},
            {"pci": "0000:86:00.0", "class": "nvme", "parent": "0000:85:00.0", "fatal": 1},
        ],
    }
    return {**made, **changes}


def switch_sample(**changes: Any) -> dict[str, Any]:
    """A SwitchSample of two switches and a link."""
    made: dict[str, Any] = {
        "v": 1,
        "cluster": "north",
        "node": "n1",
        "ts": T0,
        "boot": "b1",
        "seq": 1,
        "switches": [
            {"switch": 0, "uuid": "SWX-a", "pci": "0000:c4:00", "values": {"temp_c": 41, "fatal_errors": 2}},
            {"switch": 1, "values": {"temp_c": 43, "power_w": 81.5}},
        ],
        "links": [{"switch": 0, "link": 33, "values": {"tx_bytes_per_s": 4.1e10, "rx_bytes": 7, "crc_errors": 1}}],
    }
    return {**made, **changes}
