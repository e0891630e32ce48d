"""Plausible messages of health checks and of Slurm's tables for the golden vectors.

Everything here is made up. `vectors.py` derives the cases and writes the files.
"""

from typing import Any

from vector_node import BOOT, NODE, SECOND, TS, U64_MAX, UNICODE_NODE, uuid


def _head() -> dict[str, Any]:
    return {"v": 1, "cluster": "north", "node": NODE, "ts": TS, "boot": BOOT, "seq": 17}


def _evidence() -> dict[str, Any]:
    return {"what": "pcie_width", "value": 8, "limit": 16, "gpu_uuid": uuid(3), "gpu_index": 3, "pci": "0000:3b:00"}


def health_result() -> dict[str, Any]:
    """Return a GPU whose slot has half its lanes."""
    return {
        **_head(),
        "run": "1760000000123456789-4711",
        "check": "gpu_pcie",
        "outcome": "bad",
        "why": "GPU 3 has a PCIe width of 8, not 16",
        "phase": "prolog",
        "duration_ns": 41_000_000,
        "evidence": [_evidence()],
        "gpus": [uuid(3)],
        "fails": True,
        "job_id": "81234",
        "user": "ada",
        "partition": "h100",
    }


def health_result_maximal() -> dict[str, Any]:
    """Every key, with evidence of each type of value."""
    values = ["überhitzt", 0.5, True, U64_MAX]
    full = {**_evidence(), "unit": "lanes", "device": "mlx5_0/1", "text": "LnkSta: Speed 16GT/s, Width x8 (downgraded)"}
    return {
        **health_result(),
        "node": UNICODE_NODE,
        "seq": U64_MAX,
        "evidence": [full, *({**full, "value": value, "limit": value} for value in values)],
        "perf": {"temp_max_c": 71.5, "gpus": 8},
        "timed_out": False,
        "hung": False,
        "slurm_state": "IDLE+DRAIN",
        "slurm_reason": "Lüfter defekt",
        "slurm_state_age_s": 12.5,
    }


def health_run() -> dict[str, Any]:
    """Return a prolog that would have failed."""
    return {
        **_head(),
        "run": "1760000000123456789-4711",
        "phase": "prolog",
        "verdict": "would_fail",
        "why": "gpu_pcie: GPU 3 has a PCIe width of 8, not 16; enforcement is off",
        "enforcement": "off",
        "exit_code": 0,
        "counts": {"ok": 17, "bad": 1, "unknown": 0},
        "failed": ["gpu_pcie"],
        "job_id": "81234",
    }


def health_run_maximal() -> dict[str, Any]:
    """Every key: an answer to a request."""
    return {
        **health_run(),
        "node": UNICODE_NODE,
        "verdict": "fail",
        "enforcement": "on",
        "exit_code": 1,
        "reason": "heeler:prolog:gpu_pcie: GPU 3 width 8 of 16",
        "duration_ns": 212_000_000,
        "user": "ada",
        "partition": "h100",
        "gpus": [uuid(i) for i in range(8)],
        "killed": [{"pid": 4711, "comm": "pt_main_thread", "job_id": "81233", "gone": True}],
        "version": "0.1.0",
        "policy": "sha256:3f9a1c",
        "results": [{key: value for key, value in health_result_maximal().items() if key in _RESULT}] * 2,
    }


_RESULT = (
    "check",
    "outcome",
    "why",
    "duration_ns",
    "evidence",
    "gpus",
    "perf",
    "fails",
    "timed_out",
    "hung",
)


def health_request() -> dict[str, Any]:
    """Return what a drainer asks before it gives a node back."""
    return {"v": 1, "cluster": "north", "node": NODE, "ts": TS, "checks": ["gpu_count", "gpu_pcie"]}


def health_request_maximal() -> dict[str, Any]:
    """Every key."""
    return {
        **health_request(),
        "node": UNICODE_NODE,
        "id": "undrain-3f9a1c",
        "why": "undrain",
        "deadline_ts": TS + SECOND,
    }


def drain_command() -> dict[str, Any]:
    """Return an operator's pause."""
    return {"v": 1, "cluster": "north", "ts": TS, "id": "hand-3f9a1c", "command": "pause", "why": "new driver"}


def drain_command_maximal() -> dict[str, Any]:
    """Every key."""
    return {
        **drain_command(),
        "deadline_ts": TS + SECOND,
        "finding_id": "gpu_lag-3f9a1c",
        "breaker": "prolog",
        "for_s": 7200.0,
    }


def drain_question() -> dict[str, Any]:
    """Return what `heeler drain status` asks."""
    return {"v": 1, "cluster": "north", "ts": TS, "id": "hand-3f9a1d", "about": "status"}


def drain_question_maximal() -> dict[str, Any]:
    """Every key."""
    return {**drain_question(), "about": "explain", "name": UNICODE_NODE}


def drain_answer() -> dict[str, Any]:
    """Return a refusal."""
    return {
        "v": 1,
        "cluster": "north",
        "ts": TS,
        "id": "hand-3f9a1c",
        "by": "drain-0",
        "outcome": "refused",
        "why": "it is 600 s old",
    }


def drain_answer_maximal() -> dict[str, Any]:
    """Every key."""
    return {
        **drain_answer(),
        "rule": "stale",
        "actor": "jürgen@example.org",
        "again": True,
        "standing": {"dry_run": True, "cases_total": 0},
        "cases": [{"finding_id": "gpu_lag-3f9a1c", "checks": []}],
        "node": {"name": NODE},
    }


def slurm_table() -> dict[str, Any]:
    """Return two partitions."""
    return {
        "v": 1,
        "cluster": "north",
        "feed": "slurm-0",
        "table": "partitions",
        "ts": TS,
        "snapshot": "1760000000123456789",
        "part": 0,
        "parts": 1,
        "rows": 2,
        "columns": {"partition": ["h100", "debug"], "nodes": [1024, 4], "max_time_s": [None, 3600]},
    }


def slurm_table_maximal() -> dict[str, Any]:
    """Every key, and each kind of column."""
    return {
        **slurm_table(),
        "columns": {
            "partition": ["räck", "節点"],
            "is_default": [True, None],
            "tier": [1, U64_MAX],
            "weight": [0.25, 1],
            "accounts": [["vision", "nlp"], []],
            "tres": [{"cpu": 64, "gres/gpu:h100": 8}, {}],
        },
        "absent": {"qos": "not told by sinfo"},
        "total_rows": 2,
        "unreadable": 0,
        "source": "scontrol show partition -o",
        "slurm_version": "24.11.5",
        "duration_ns": 11_000_000,
    }


def job_summary() -> dict[str, Any]:
    """Return what the 16 GPUs of a job that ended well did in 9,000 s."""
    return {
        "v": 1,
        "cluster": "north",
        "ts": TS,
        "job_id": "81234",
        "run": "1759990000",
        "final": True,
        "until_ts": 1759999000 * SECOND,
        "start_ts": 1759990000 * SECOND,
        "end_ts": 1759999000 * SECOND,
        "user": "ada",
        "account": "vision",
        "partition": "h100",
        "gpus": 16,
        "allocated_gpu_s": 144_000,
        "active_gpu_s": 130_000.5,
        "busy_gpu_s": 120_000,
        "idle_gpu_s": 10_000,
        "unknown_gpu_s": 3_999.5,
        "energy_j": 84_000_000.0,
        "energy_gpu_s": 140_000.5,
        "means": {"util_ratio": 0.91, "power_w": 600},
        "mean_gpu_s": {"util_ratio": 140_000.5, "power_w": 140_000.5},
    }


def job_summary_maximal() -> dict[str, Any]:
    """Every key: a run that was on GPUs that were not its own, and lost one of them."""
    return {
        **job_summary(),
        "state": "NODE_FAIL",
        "qos": "normal",
        "name": "訓練 | 🚀",
        "node_count": 2,
        "lost_gpu_s": 120,
        "beyond_gpu_s": 0.25,
        "max": {"power_w": 702.5, "fb_used_bytes": 80_000_000_000},
    }


def job_record() -> dict[str, Any]:
    """Return a job of two nodes that ended well."""
    return {
        "v": 1,
        "cluster": "north",
        "ts": TS,
        "job_id": "81234",
        "run": "1759990000",
        "state": "COMPLETED",
        "user": "ada",
        "account": "vision",
        "partition": "h100",
        "name": "pretrain",
        "submit_ts": 1759980000 * SECOND,
        "start_ts": 1759990000 * SECOND,
        "end_ts": 1759999000 * SECOND,
        "elapsed_s": 9000,
        "exit_code": 0,
        "nodes": "gpu-a[07-08]",
        "node_count": 2,
        "alloc_tres": {"cpu": 128, "mem": 536_870_912_000, "node": 2, "gres/gpu": 16},
        "gpus": 16,
        "steps": [{"step": "batch", "state": "COMPLETED"}],
    }


def job_record_maximal() -> dict[str, Any]:
    """Every key of everything: a task of an array that was cancelled."""
    tres = {"cpu": 128, "mem": 1 << 50, "energy": 1.5}
    step = {
        "step": "1+0",
        "name": "srün",
        "state": "CANCELLED",
        "exit_code": 0,
        "signal": 15,
        "start_ts": TS,
        "end_ts": TS,
        "elapsed_s": 12,
        "suspended_s": 0,
        "tasks": 16,
        "nodes": "gpu-a[07-08]",
        "node_count": 2,
        "cpus": 128,
        "alloc_tres": tres,
        "user_cpu_s": 1.25,
        "system_cpu_s": 0.5,
        "max_rss_bytes": U64_MAX,
        "max_vmsize_bytes": U64_MAX,
        "energy_j": 10.5,
        "usage_in_tot": tres,
        "usage_out_tot": tres,
        "fields": {"Layout": "Block"},
    }
    return {
        **job_record(),
        "shown_id": "81200_34",
        "array_job_id": "81200",
        "array_task_id": "34",
        "het_job_id": "81199",
        "het_offset": 1,
        "slurm_cluster": "nord",
        "state": "CANCELLED",
        "state_raw": "CANCELLED by 1001",
        "cancelled_by": "1001",
        "reason": "Priority",
        "flags": ["SchedBackfill"],
        "uid": 1001,
        "group": "users",
        "gid": 100,
        "qos": "normal",
        "name": "訓練 | 🚀",
        "work_dir": "/home/ada",
        "submit_line": "sbatch --wrap 'a | b'",
        "comment": "erster Versuch",
        "admin_comment": "siehe Ticket",
        "system_comment": "none",
        "wckey": "*default",
        "container": "pytorch",
        "constraints": "ib&nvme",
        "reservation": "maint_42",
        "eligible_ts": TS,
        "part_start_ts": TS - 9 * SECOND,
        "suspended_s": 0,
        "wait_s": 10_000,
        "time_limit_s": 86400,
        "time_unlimited": False,
        "signal": 15,
        "derived_exit_code": 1,
        "cpus": 128,
        "req_tres": tres,
        "gpus_requested": 16,
        "gpus_by_type": {"h100": 16},
        "priority": 4_294_901_000,
        "restarts": 1,
        "energy_j": 10.5,
        "user_cpu_s": 1.25,
        "system_cpu_s": 0.5,
        "steps": [step, {**step, "step": "extern"}],
        "steps_left_out": 12,
        "fields": {"DBIndex": "99"},
        "source": "sacct -P",
        "slurm_version": "22.05.8",
    }
