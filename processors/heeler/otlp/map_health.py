"""From HealthResult and HealthRun to data points and log records: pure."""

from collections.abc import Mapping
from typing import Any, Final

from heeler.otlp import names_health as names
from heeler.otlp.logs import ERROR, INFO, WARN, known
from heeler.otlp.names import Metric
from heeler.otlp.points import Attributes, LogEntry, Number, Points

Data = Mapping[str, Any]

_OUTCOMES: Final = {"bad": (ERROR, "ERROR"), "unknown": (WARN, "WARN"), "warn": (WARN, "WARN")}
_VERDICTS: Final = {"fail": (ERROR, "ERROR"), "would_fail": (WARN, "WARN"), "refused": (WARN, "WARN")}
_EVIDENCE = 16


def result_points(data: Data) -> list[Points]:
    """Return the points of what one check said: which outcome holds, how long it took, and its numbers."""
    outcome = data["outcome"]
    columns: list[tuple[Metric, list[Number | None]]] = [
        (metric, [int(outcome == word)]) for word, metric in names.CHECK_STATE.items()
    ]
    columns.append((names.CHECK_DURATION, [_seconds(data)]))
    columns.append((names.CHECK_TIME, [data["ts"] / 1e9]))
    skipped = 0
    for name, number in data.get("perf", {}).items():
        metric = names.perf(name)
        if metric is None:
            skipped += 1
        else:
            columns.append((metric, [number if metric.scale is None else number * metric.scale]))
    return [_points(data, "health", data["check"], (("heeler.health.check", data["check"]),), columns, skipped)]


def run_points(data: Data) -> list[Points]:
    """Return the points of what a run came to."""
    columns: list[tuple[Metric, list[Number | None]]] = [
        (metric, [int(data["verdict"] == word)]) for word, metric in names.RUN_VERDICT.items()
    ]
    columns.append((names.RUN_DURATION, [_seconds(data)]))
    columns.append((names.RUN_TIME, [data["ts"] / 1e9]))
    return [_points(data, "health_run", "run", (), columns, 0)]


def _points(
    data: Data,
    scope: str,
    name: str,
    about: Attributes,
    columns: list[tuple[Metric, list[Number | None]]],
    skipped: int,
) -> Points:
    who: Attributes = (
        ("host.name", data["node"]),
        ("heeler.cluster", data["cluster"]),
        ("heeler.health.phase", data["phase"]),
    )
    return Points(
        scope=(scope, data["cluster"], data["node"]),
        boot=data["boot"],
        ts_ns=data["ts"],
        ids=[f"{name}/{data['phase']}"],
        attributes=[(*who, *about)],
        columns=columns,
        skipped=skipped,
    )


def _seconds(data: Data) -> float | None:
    return data["duration_ns"] / 1e9 if "duration_ns" in data else None


def result_log(data: Data) -> LogEntry | None:
    """Return the record of a check that is not well, or could not tell; None for one that is well or was not run."""
    if data["outcome"] not in _OUTCOMES:
        return None
    severity, text = _OUTCOMES[data["outcome"]]
    gpus = data.get("gpus", [])
    return LogEntry(
        event="heeler.health.check",
        ts_ns=data["ts"],
        severity=severity,
        severity_text=text,
        body=f"{data['node']}: {data['check']} is {data['outcome']}: {data['why']}",
        attributes=known(
            {
                **_about(data),
                "hw.id": gpus[0] if len(gpus) == 1 else None,
                "heeler.health.check": data["check"],
                "heeler.health.outcome": data["outcome"],
                "heeler.health.gpus": gpus,
                "heeler.health.fails": data.get("fails"),
                "heeler.health.timed_out": data.get("timed_out"),
                "heeler.health.hung": data.get("hung"),
                "heeler.health.evidence": [known(item) for item in data.get("evidence", [])[:_EVIDENCE]],
                "heeler.health.perf": known(data.get("perf", {})),
                "slurm.node.state": data.get("slurm_state"),
                "slurm.node.reason": data.get("slurm_reason"),
            }
        ),
    )


def run_log(data: Data) -> LogEntry | None:
    """Return the record of a run that failed, would have, was not run, or ended a process; None for others."""
    killed = data.get("killed", [])
    if data["verdict"] not in _VERDICTS and not killed:
        return None
    severity, text = _VERDICTS.get(data["verdict"], (INFO, "INFO"))
    return LogEntry(
        event="heeler.health.run",
        ts_ns=data["ts"],
        severity=severity,
        severity_text=text,
        body=f"{data['node']}: {data['phase']} {data['verdict']}: {data['why']}",
        attributes=known(
            {
                **_about(data),
                "heeler.health.verdict": data["verdict"],
                "heeler.health.enforcement": data.get("enforcement"),
                "heeler.health.exit_code": data.get("exit_code"),
                "heeler.health.reason": data.get("reason"),
                "heeler.health.counts": known(data.get("counts", {})),
                "heeler.health.failed": data.get("failed"),
                "heeler.health.gpus": data.get("gpus"),
                "heeler.health.killed": [known(one) for one in killed],
            }
        ),
    )


def _about(data: Data) -> dict[str, Any]:
    return {
        "heeler.cluster": data["cluster"],
        "host.name": data["node"],
        "slurm.job.id": data.get("job_id"),
        "slurm.user": data.get("user"),
        "slurm.partition": data.get("partition"),
        "heeler.health.phase": data["phase"],
        "heeler.health.run": data["run"],
        "heeler.health.duration": _seconds(data),
    }
