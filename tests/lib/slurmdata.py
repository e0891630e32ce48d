"""Recorded output of Slurm, and small answers made by hand."""

from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data/slurm"


def recorded(name: str) -> str:
    """Return a file of tests/data/slurm, such as ``22.05/squeue_json.json``."""
    return (DATA / name).read_text()


def job_row(job_id: Any = 481, state: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    """Return a job as squeue --json of 22.05 has it: two nodes, eight GPUs each."""
    row = {
        "job_id": job_id,
        "job_state": state,
        "submit_time": 1000,
        "start_time": 1010,
        "end_time": 4610,
        "restart_cnt": 0,
        "nodes": "gn[1-2]",
        "gres_detail": ["gpu:h100:8(IDX:0-7)", "gpu:h100:8(IDX:0-7)"],
        "user_name": "alice",
        "account": "lab",
        "partition": "train",
        "qos": "normal",
        "name": "train",
        "requeue": True,
        "batch_flag": True,
        "array_job_id": 0,
        "array_task_id": None,
        "het_job_id": 0,
    }
    return row | changes


def node_row(name: str = "gn1", state: str = "idle", *flags: str, **changes: Any) -> dict[str, Any]:
    """Return a node as sinfo --json of 22.05 has it."""
    row = {
        "name": name,
        "state": state,
        "state_flags": list(flags),
        "reason": "",
        "reason_set_by_user": None,
        "reason_changed_at": 0,
        "partitions": ["train"],
        "gres": "gpu:h100:8",
        "gres_used": "gpu:h100:0(IDX:N/A)",
        "cpu_load": 1234,
        "boot_time": 900,
    }
    return row | changes


def answer(**rows: list[Any]) -> dict[str, Any]:
    """Return a whole answer without errors."""
    return {"meta": {"Slurm": {"release": "22.05.8"}}, "errors": [], **rows}
