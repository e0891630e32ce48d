"""From JobRecord to a log record: pure. Never a metric: jobs come and go without end."""

from collections.abc import Mapping
from typing import Any, Final

from heeler.otlp.logs import INFO, WARN, known
from heeler.otlp.points import LogEntry

Data = Mapping[str, Any]

# States in which a run has not ended, whatever else the record says.
_GOES_ON: Final = frozenset(
    ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED")
)
_WRONG: Final = frozenset(
    ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED", "RECONFIG_FAIL")
)
# Key of a JobRecord -> attribute. Command lines, folders and comments stay on the bus: people write secrets there.
_SAME: Final = {
    "shown_id": "slurm.job.shown_id",
    "array_job_id": "slurm.job.array.id",
    "array_task_id": "slurm.job.array.task",
    "het_job_id": "slurm.job.het.id",
    "slurm_cluster": "slurm.cluster",
    "reason": "slurm.job.reason",
    "cancelled_by": "slurm.job.cancelled_by",
    "user": "slurm.user",
    "account": "slurm.account",
    "partition": "slurm.partition",
    "qos": "slurm.qos",
    "reservation": "slurm.reservation",
    "name": "slurm.job.name",
    "submit_ts": "slurm.job.submit_ts",
    "start_ts": "slurm.job.start_ts",
    "end_ts": "slurm.job.end_ts",
    "elapsed_s": "slurm.job.elapsed_s",
    "suspended_s": "slurm.job.suspended_s",
    "wait_s": "slurm.job.wait_s",
    "time_limit_s": "slurm.job.time_limit_s",
    "exit_code": "slurm.job.exit_code",
    "signal": "slurm.job.signal",
    "derived_exit_code": "slurm.job.derived_exit_code",
    "nodes": "slurm.job.nodes",
    "node_count": "slurm.job.node_count",
    "cpus": "slurm.job.cpus",
    "gpus": "slurm.job.gpus",
    "gpus_by_type": "slurm.job.gpus_by_type",
    "restarts": "slurm.job.restarts",
    "energy_j": "slurm.job.energy_j",
    "user_cpu_s": "slurm.job.user_cpu_s",
    "system_cpu_s": "slurm.job.system_cpu_s",
}


def job_log(data: Data) -> LogEntry | None:
    """Return the record of a run that ended; None while it waits or runs. A corrected record comes again."""
    state = data["state"]
    if "end_ts" not in data or state in _GOES_ON:
        return None
    severity, text = (WARN, "WARN") if state in _WRONG else (INFO, "INFO")
    return LogEntry(
        event="heeler.slurm.job",
        ts_ns=data["end_ts"] or data["ts"],
        severity=severity,
        severity_text=text,
        body=_words(data),
        attributes=known(
            {
                "heeler.cluster": data["cluster"],
                "slurm.job.id": data["job_id"],
                "slurm.job.run": data["run"],
                "slurm.job.state": state,
                **{attribute: data.get(key) for key, attribute in _SAME.items()},
                "slurm.job.steps": len(data["steps"]) if "steps" in data else None,
            }
        ),
    )


def _words(data: Data) -> str:
    user = f" of {data['user']}" if data.get("user") else ""
    ran = f" after {data['elapsed_s']:.0f} s" if "elapsed_s" in data else ""
    nodes = f" on {data['nodes']}" if data.get("nodes") else ""
    code = f", exit status {data['exit_code']}" if data.get("exit_code") else ""
    signal = f", signal {data['signal']}" if data.get("signal") else ""
    return f"job {data.get('shown_id') or data['job_id']}{user}: {data['state']}{ran}{nodes}{code}{signal}"
