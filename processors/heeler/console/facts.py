"""What the bus knows of a node or job, as values."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from heeler.bus import Bus, Delivery, escape, snapshot
from heeler.engine import Refused, intake

HOUR_NS = 3600 * 1_000_000_000
MOST_NODES = 64  # of a job: a node may have said ten thousand things in a day

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
    health_runs: list[Message] = field(default_factory=list)
    health_results: list[Message] = field(default_factory=list)
    records: list[Message] = field(default_factory=list)
    gpus: list[Any] = field(default_factory=list)  # those that a GPU's name may mean: `heeler.console.gpus.Found`
    samples: list[Message] = field(default_factory=list)  # the newest of a GPU's node
    unseen_nodes: int = 0  # nodes of a job whose health was not asked for
    unreadable: int = 0
    cluster: str | None = None  # that was asked for, where several share the bus; None: all
    incidents: dict[str, Message] = field(default_factory=dict)  # by id: what several findings are signs of

    def messages(self) -> Iterator[Message]:
        """Yield all that was read but samples and inventories."""
        of_bus = (self.findings, self.actions, self.jobs, self.nodes, self.events, self.agents)
        return chain(*of_bus, self.health_runs, self.health_results, self.records)

    def known(self) -> bool:
        """Say whether the bus has anything at all."""
        return bool(self.gpus) or any(True for _ in self.messages())

    def clusters(self) -> list[str]:
        """Return whose messages these are: names are the same on several clusters that share a bus."""
        return sorted({one["cluster"] for one in self.messages() if "cluster" in one})


def checked(facts: Facts, deliveries: Iterable[Delivery]) -> list[Message]:
    """Return the messages that can be read, the newest first; the others are counted."""
    found: list[Message] = []
    for delivery in sorted(deliveries, key=lambda d: d.ts_ns, reverse=True):
        try:
            found.append(intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns).data)
        except Refused:
            facts.unreadable += 1
    return found


async def add_incidents(bus: Bus, facts: Facts) -> None:
    """Read the incidents that the open findings belong to."""
    named = {one.get("incident") for one in facts.findings if one["state"] != "closed"} - {None}
    if named:
        found = checked(facts, await snapshot(bus, "FINDINGS_LAST", ("finding.incident.*.*",), cluster=facts.cluster))
        facts.incidents = {one["id"]: one for one in found if one["id"] in named and one["state"] != "closed"}


async def of_node(bus: Bus, node: str, now_ns: int, cluster: str | None = None) -> Facts:
    """Read all that concerns a node."""
    facts = await about_node(bus, node, now_ns, cluster)
    jobs = checked(facts, await snapshot(bus, "JOBS", ("slurm.job.*",), cluster=facts.cluster))
    facts.jobs = [job for job in jobs if node in job["nodes"] and job["event"] != "ended"]
    return facts


async def about_node(bus: Bus, node: str, now_ns: int, cluster: str | None = None) -> Facts:
    """Read all that concerns a node but its jobs, for which all jobs must be read."""
    token = escape(node)
    facts = Facts(now_ns, cluster=cluster)
    facts.findings = checked(
        facts, await snapshot(bus, "FINDINGS_LAST", (f"finding.*.{token}.*",), cluster=facts.cluster)
    )
    await add_incidents(bus, facts)
    facts.actions = checked(
        facts, await snapshot(bus, "DRAIN", (f"drain.action.{token}",), start=1, cluster=facts.cluster)
    )
    facts.nodes = checked(facts, await snapshot(bus, "NODES", (f"slurm.node.{token}",), cluster=facts.cluster))
    facts.agents = checked(facts, await snapshot(bus, "AGENTS", (f"agent.status.{token}",), cluster=facts.cluster))
    events = await snapshot(bus, "EVENTS", (f"job.event.*.{token}",), start=now_ns - 24 * HOUR_NS, cluster=cluster)
    facts.events = checked(facts, events)
    await _health(bus, facts, (token,))
    return facts


async def node_states(bus: Bus, node: str, start_ns: int, cluster: str | None = None) -> list[Message]:
    """Return what Slurm said of a node since a time, the newest first."""
    told = await snapshot(bus, "EVENTS", (f"slurm.node.{escape(node)}",), start=start_ns, cluster=cluster)
    return checked(Facts(start_ns), told)


async def _health(bus: Bus, facts: Facts, tokens: tuple[str, ...]) -> None:
    """Read what the checks of some nodes said in the last day."""
    start = facts.now_ns - 24 * HOUR_NS
    runs = await snapshot(
        bus, "EVENTS", tuple(f"health.run.{token}" for token in tokens), start=start, cluster=facts.cluster
    )
    facts.health_runs = _by_time(checked(facts, runs))
    results = await snapshot(
        bus, "EVENTS", tuple(f"health.result.{token}" for token in tokens), start=start, cluster=facts.cluster
    )
    facts.health_results = _by_time(checked(facts, results))


def _by_time(messages: list[Message]) -> list[Message]:
    """Return the newest first by their own time: what a node kept while the bus was away arrives late."""
    return sorted(messages, key=lambda message: int(message["ts"]), reverse=True)


async def of_job(bus: Bus, job: str, now_ns: int, cluster: str | None = None) -> Facts:
    """Read all that concerns a job."""
    facts = Facts(now_ns, cluster=cluster)
    facts.jobs = checked(facts, await snapshot(bus, "JOBS", (f"slurm.job.{escape(job)}",), cluster=facts.cluster))
    findings = checked(facts, await snapshot(bus, "FINDINGS_LAST", ("finding.*.*.*",), cluster=facts.cluster))
    facts.findings = [f for f in findings if job in (f.get("job_id"), *f.get("jobs", ()))]
    await add_incidents(bus, facts)
    nodes = {f["node"] for f in facts.findings if "node" in f}
    patterns = tuple(f"drain.action.{escape(node)}" for node in sorted(nodes))
    if patterns:
        facts.actions = checked(facts, await snapshot(bus, "DRAIN", patterns, start=1, cluster=facts.cluster))
    records = checked(facts, await snapshot(bus, "RECORDS", (f"slurm.record.{escape(job)}.*",), cluster=facts.cluster))
    facts.records = sorted(records, key=_began, reverse=True)
    of_slurm = nodes_of(facts)
    facts.unseen_nodes = max(0, len(of_slurm) - MOST_NODES)
    if of_slurm:
        tokens = tuple(escape(node) for node in of_slurm[:MOST_NODES])
        await _health(bus, facts, tokens)
        facts.health_runs = [run for run in facts.health_runs if run.get("job_id") == job]
        facts.health_results = [one for one in facts.health_results if one.get("job_id") == job]
        patterns = tuple(f"job.event.*.{token}" for token in tokens)
        events = await snapshot(bus, "EVENTS", patterns, start=now_ns - 24 * HOUR_NS, cluster=cluster)
        facts.events = [event for event in checked(facts, events) if job in event["jobs"]]
    return facts


def nodes_of(facts: Facts) -> list[str]:
    """Return a job's nodes: as the feed names them, else, of one that has ended, as accounting does."""
    of_feed = [node for event in facts.jobs for node in event["nodes"]]
    if of_feed or not facts.records:
        return of_feed
    from heeler.slurm.errors import ParseError  # noqa: PLC0415 - only jobs that have ended need it
    from heeler.slurm.hostlist import expand_set  # noqa: PLC0415

    try:
        return list(expand_set(facts.records[0].get("nodes")))
    except ParseError:  # what is no host list names no nodes
        return []


def _began(record: Message) -> int:
    return int(record.get("start_ts") or record.get("submit_ts") or 0)
