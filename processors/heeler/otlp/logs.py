"""From findings, drain actions and kernel events to log records: pure."""

from collections.abc import Mapping
from typing import Any

from heeler.otlp import trace_ids
from heeler.otlp.points import LogEntry

Data = Mapping[str, Any]

INFO, WARN, ERROR, UNJUDGED = 9, 13, 17, 0
_SEVERITY = {"info": (INFO, "INFO"), "warning": (WARN, "WARN"), "critical": (ERROR, "ERROR")}


def finding(data: Data) -> LogEntry:
    """Return a finding as a log record: the sentence as body, the evidence as attributes."""
    severity, text = _SEVERITY.get(data["severity"], (UNJUDGED, ""))
    part = "open" if data["state"] == "closed" else "finding"
    return LogEntry(
        event="heeler.finding",
        ts_ns=data["ts"],
        severity=severity,
        severity_text=text,
        body=data["summary"],
        attributes={
            **about_finding(data),
            **known(
                {
                    "heeler.finding.evidence": [known(item) for item in data["evidence"]],
                    "heeler.finding.impact": known(data.get("impact", {})),
                }
            ),
        },
        ids=trace_ids.of_finding(data["cluster"], data["id"], part),
    )


def about_finding(data: Data) -> dict[str, Any]:
    """Return what a finding is about, without its evidence."""
    entity = data["entity"]
    return known(
        {
            "heeler.cluster": data["cluster"],
            "host.name": data.get("node") or entity.get("node"),
            "hw.id": entity.get("gpu_uuid"),
            "heeler.gpu.index": entity.get("gpu_index"),
            "heeler.port": entity.get("port"),
            "slurm.job.id": data.get("job_id") or entity.get("job_id"),
            "slurm.job.ids": data.get("jobs"),
            "heeler.finding.id": data["id"],
            "heeler.finding.kind": data["kind"],
            "heeler.finding.state": data["state"],
            "heeler.finding.confidence": data["confidence"],
            "heeler.finding.entity": entity["type"],
            "heeler.finding.cause": data.get("cause"),
            "heeler.finding.code": data.get("code"),
            "heeler.finding.count": data.get("count"),
            "heeler.finding.advice": data["advice"],
            "heeler.finding.first_ts": data["first_ts"],
            "heeler.finding.close_reason": data.get("close_reason"),
            "heeler.finding.incident": data.get("incident"),
        }
    )


def drain_action(data: Data) -> LogEntry:
    """Return what the drainer did, or why it did not, as a log record."""
    failed = data["verdict"] in ("failed", "tripped")
    whole = data["node"] == "*"  # it concerns the cluster: an operator's command, the drainer's own breaker
    what = data.get("command") or data.get("step", "drain")
    dry = " (dry run)" if data["dry_run"] else ""
    finding_id = data.get("finding_id")
    return LogEntry(
        event="heeler.drain",
        ts_ns=data["ts"],
        severity=ERROR if failed else INFO,
        severity_text="ERROR" if failed else "INFO",
        body=f"{data['actor'] if whole else data['node']}: {what} {data['verdict']}{dry}: {data['why']}",
        attributes=about_drain(data),
        ids=None if finding_id is None else trace_ids.of_drain(data["cluster"], finding_id, data["id"]),
    )


def about_drain(data: Data) -> dict[str, Any]:
    """Return what a drain action says."""
    whole = data["node"] == "*"
    return known(
        {
            "heeler.cluster": data["cluster"],
            "host.name": None if whole else data["node"],
            "slurm.job.id": data.get("job_id"),
            "heeler.drain.command": data.get("command"),
            "heeler.drain.breaker": data.get("breaker"),
            "heeler.drain.id": data["id"],
            "heeler.drain.step": data.get("step"),
            "heeler.drain.next": data.get("next"),
            "heeler.drain.verdict": data["verdict"],
            "heeler.drain.dry_run": data["dry_run"],
            "heeler.drain.reason": data.get("reason"),
            "heeler.drain.why": data["why"],
            "heeler.drain.rule": data.get("rule"),
            "heeler.drain.actor": data["actor"],
            "heeler.finding.id": data.get("finding_id"),
            "heeler.finding.kind": data.get("kind"),
        }
    )


def kernel_event(data: Data) -> LogEntry:
    """Return a line of the kernel log, or what only NVML saw, as a log record.

    A node does not judge, so it has no severity.
    """
    code = data.get("code", data.get("detail", {}).get("event"))
    title = data["kind"] if code is None else f"{data['kind']} {code}"
    return LogEntry(
        event="heeler.kernel",
        ts_ns=data["ts"],
        severity=UNJUDGED,
        severity_text="",
        body=data.get("raw") or data.get("text") or title,
        attributes=about_kernel_event(data),
        ids=trace_ids.of_kernel_event(data["cluster"], data["node"], data["boot"], data["seq"])
        if data["kind"] in trace_ids.TRACED_EVENTS
        else None,
    )


def about_kernel_event(data: Data) -> dict[str, Any]:
    """Return what a kernel event says."""
    jobs = data.get("jobs", [])
    return known(
        {
            "heeler.cluster": data["cluster"],
            "host.name": data["node"],
            "hw.id": data.get("uuid"),
            "slurm.job.id": jobs[0] if len(jobs) == 1 else None,
            "slurm.job.ids": jobs,
            "heeler.kernel.id": f"{data['node']}/{data['boot']}/{data['seq']}",
            "heeler.kernel.kind": data["kind"],
            "heeler.kernel.code": data.get("code"),
            "heeler.kernel.pci": data.get("pci"),
            "heeler.kernel.pid": data.get("pid"),
            "heeler.kernel.comm": data.get("comm"),
            "heeler.kernel.text": data.get("text"),
            "heeler.kernel.witness": data.get("witness"),
            "heeler.kernel.trusted": data.get("trusted"),
            "heeler.kernel.count": data.get("count"),
            "heeler.kernel.detail": known(data.get("detail", {})),
            "heeler.gpu.state": data.get("gpu_state"),
        }
    )


def known(attributes: Data) -> dict[str, Any]:
    """Leave out what is not known."""
    return {key: value for key, value in attributes.items() if value is not None and value not in ("", [], {})}
