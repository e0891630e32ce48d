"""What the bus knows of a node or job, as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import Bus, Delivery, escape, snapshot
from heeler.engine import Refused, intake

HOUR_NS = 3600 * 1_000_000_000

Message = Mapping[str, Any]


@dataclass(slots=True)
class Facts:
    """Everything that an answer needs. ``now_ns`` is the time of asking; messages are the newest first."""

    now_ns: int
    findings: list[Message] = field(default_factory=list)
    actions: list[Message] = field(default_factory=list)
    jobs: list[Message] = field(default_factory=list)
    nodes: list[Message] = field(default_factory=list)
    events: list[Message] = field(default_factory=list)
    agents: list[Message] = field(default_factory=list)
    unreadable: int = 0

    def known(self) -> bool:
        """Say whether the bus has anything at all."""
        return bool(self.findings or self.actions or self.jobs or self.nodes or self.events or self.agents)


def checked(facts: Facts, deliveries: Iterable[Delivery]) -> list[Message]:
    """Return the messages that can be read, the newest first; the others are counted."""
    found: list[Message] = []
    for delivery in sorted(deliveries, key=lambda d: d.ts_ns, reverse=True):
        try:
            found.append(intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns).data)
        except Refused:
            facts.unreadable += 1
    return found


async def of_node(bus: Bus, node: str, now_ns: int) -> Facts:
    """Read all that concerns a node."""
    token = escape(node)
    facts = Facts(now_ns)
    facts.findings = checked(facts, await snapshot(bus, "FINDINGS_LAST", (f"finding.*.{token}.*",)))
    facts.actions = checked(facts, await snapshot(bus, "DRAIN", (f"drain.action.{token}",), start=1))
    facts.nodes = checked(facts, await snapshot(bus, "NODES", (f"slurm.node.{token}",)))
    facts.agents = checked(facts, await snapshot(bus, "AGENTS", (f"agent.status.{token}",)))
    events = await snapshot(bus, "EVENTS", (f"job.event.*.{token}",), start=now_ns - 24 * HOUR_NS)
    facts.events = checked(facts, events)
    jobs = checked(facts, await snapshot(bus, "JOBS", ("slurm.job.*",)))
    facts.jobs = [job for job in jobs if node in job["nodes"] and job["event"] != "ended"]
    return facts


async def of_job(bus: Bus, job: str, now_ns: int) -> Facts:
    """Read all that concerns a job."""
    facts = Facts(now_ns)
    facts.jobs = checked(facts, await snapshot(bus, "JOBS", (f"slurm.job.{escape(job)}",)))
    findings = checked(facts, await snapshot(bus, "FINDINGS_LAST", ("finding.*.*.*",)))
    facts.findings = [f for f in findings if job in (f.get("job_id"), *f.get("jobs", ()))]
    nodes = {f["node"] for f in facts.findings if "node" in f}
    patterns = tuple(f"drain.action.{escape(node)}" for node in sorted(nodes))
    if patterns:
        facts.actions = checked(facts, await snapshot(bus, "DRAIN", patterns, start=1))
    return facts


async def of_gpu(bus: Bus, uuid: str, now_ns: int) -> Facts:
    """Read all findings about a GPU."""
    facts = Facts(now_ns)
    findings = checked(facts, await snapshot(bus, "FINDINGS_LAST", ("finding.*.*.*",)))
    facts.findings = [f for f in findings if f["entity"].get("gpu_uuid") == uuid]
    return facts
