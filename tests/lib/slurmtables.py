"""SlurmTables for the exporter's tests, and what health checks and accounting say."""

from collections.abc import Mapping
from typing import Any

from otlpsamples import T0

from heeler.bus.tables import check_columns
from heeler.bus.tables_gen import TABLES


def table(name: str, columns: Mapping[str, list[Any]], ts: int = T0, **changes: Any) -> dict[str, Any]:
    """A table in one part; columns that the contract does not have are a fault of the test."""
    rows = len(next(iter(columns.values())))
    check_columns(TABLES[name], columns, rows)
    made = {
        "v": 1, "cluster": "north", "feed": "slurm-0", "table": name, "ts": ts, "snapshot": str(ts), "part": 0,
        "parts": 1, "rows": rows, "columns": dict(columns), "total_rows": rows, "unreadable": 0,
        "duration_ns": 11_000_000,
    }  # fmt: skip
    return {**made, **changes}


def health_result(outcome: str = "bad", **changes: Any) -> dict[str, Any]:
    """What one check says."""
    made = {
        "v": 1, "cluster": "north", "node": "n1", "ts": T0, "boot": "b1", "seq": 1, "run": "r1", "check": "gpu_temp",
        "outcome": outcome, "why": "GPU 3 is at 97 degrees", "phase": "prolog", "duration_ns": 250_000_000,
        "evidence": [{"what": "temp_c", "value": 97, "limit": 90, "unit": "Cel", "gpu_uuid": "GPU-a"}],
        "gpus": ["GPU-a"], "perf": {"temp_c_max": 97.0}, "fails": True, "job_id": "481", "user": "ada",
    }  # fmt: skip
    return {**made, **changes}


def health_run(verdict: str = "fail", **changes: Any) -> dict[str, Any]:
    """What a run of checks came to."""
    made = {
        "v": 1, "cluster": "north", "node": "n1", "ts": T0, "boot": "b1", "seq": 2, "run": "r1", "phase": "prolog",
        "verdict": verdict, "why": "gpu_temp: GPU 3 is at 97 degrees", "enforcement": "on", "exit_code": 1,
        "reason": "heeler:prolog:gpu_temp: GPU 3 is at 97 degrees", "counts": {"ok": 11, "bad": 1},
        "failed": ["gpu_temp"], "duration_ns": 900_000_000, "job_id": "481", "user": "ada",
    }  # fmt: skip
    return {**made, **changes}


def job_record(state: str = "FAILED", **changes: Any) -> dict[str, Any]:
    """A run of a job that ended."""
    made = {
        "v": 1, "cluster": "north", "ts": T0, "job_id": "481", "run": "1767220000", "state": state, "user": "ada",
        "account": "ml", "partition": "train", "nodes": "n[1-2]", "node_count": 2, "gpus": 16, "elapsed_s": 4600,
        "start_ts": T0 - 4_700 * 10**9, "end_ts": T0 - 100 * 10**9, "exit_code": 1, "signal": 0,
        "submit_line": "sbatch --export=TOKEN=s3cret run.sh", "work_dir": "/home/ada", "comment": "s3cret",
        "steps": [{"step": "batch"}, {"step": "0"}],
    }  # fmt: skip
    return {**made, **changes}
