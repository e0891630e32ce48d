"""The step of detect: samples, events and states in, findings out.

Two families of keys hold what lives and dies together, ``job:<id>`` and ``node:<name>``, and ``cluster:<name>`` holds
what only the cluster as a whole can say. All of it follows from messages and ticks, so several instances that run
side by side say the same, and a cold start that reads `memory_s` back is where a warm one is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import Choice
from heeler.detect import held, links, rules, slowdown, xid
from heeler.detect.agent_silent import AgentSilent
from heeler.detect.clock import ClockSkew
from heeler.detect.findings import Book
from heeler.detect.gpu_lag import GpuLag
from heeler.detect.gpu_rule import RuleSet
from heeler.detect.hang import Hang
from heeler.detect.hardware import Hardware
from heeler.detect.ib import Ib
from heeler.detect.idle import IdleAllocation
from heeler.detect.missing import GpuMissing
from heeler.detect.node_context import NodeContext
from heeler.detect.part_of import PartOf
from heeler.detect.places import TABLE, Places
from heeler.detect.rail_flow import RailFlow
from heeler.detect.rail_rate import FleetRates, RailRate
from heeler.detect.shared_causes import KINDS as SIGNS
from heeler.detect.thresholds import Thresholds
from heeler.detect.together import Together
from heeler.detect.xid_table import XidTable, load_table
from heeler.engine import NOTHING, Event, Inbound, Input, Result

MOST_SLOW = 4096  # jobs
FORGET_NODE_NS = 86_400 * 1_000_000_000
Events = Sequence[Event]


@dataclass(frozen=True, slots=True)
class Shared:
    """What all keys share."""

    t: Thresholds
    table: XidTable
    gpus: RuleSet
    slow: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # newest job_slow, by job
    rates: FleetRates = field(default_factory=FleetRates)
    nodes_of: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the jobs that run
    part_of: PartOf = field(default_factory=PartOf)  # which findings belong to an incident


class JobKey:
    """State of ``job:<id>``: who lags, and whether all of it stands still."""

    __slots__ = ("book", "hang", "idle_gpus", "lag", "rails")

    def __init__(self, job: str, shared: Shared) -> None:
        t = shared.t
        self.book = Book(t.finding.reconfirm_s, shared.part_of.mark)
        self.lag = GpuLag(job, t.lag, shared.table, t.pace)
        self.hang = Hang(job, t.hang)
        self.idle_gpus = IdleAllocation(job, t.idle)
        self.rails = RailFlow(job, t.rail)

    def on(self, message: Inbound) -> Events:
        """Take a message in."""
        if message.kind == "IbSample":
            return self.rails.on(self.book, message)
        events = self.lag.on(self.book, message)
        more = self.hang.on(self.book, message)
        unused = self.idle_gpus.on(self.book, message)
        if unused:
            more = [*more, *unused]
        if message.kind != "JobSample":
            more = [*more, *self.rails.on(self.book, message)]
        return [*events, *more] if more else events

    def tick(self, now_ns: int) -> Events:
        """Let time pass."""
        if now_ns < self.lag.due_ns() and not self.book.all:
            return NOTHING
        events = [*self.lag.tick(self.book, now_ns), *self.hang.tick(self.book, now_ns)]
        events += self.idle_gpus.tick(self.book, now_ns)
        events += self.rails.tick(self.book, now_ns)
        return [*events, *self.book.confirm(now_ns)]

    def idle(self, now_ns: int) -> bool:
        """Say whether nothing is left to remember."""
        return not self.book.all and self.lag.idle(now_ns)


class NodeKey:
    """State of ``node:<name>``: hardware, which outlives jobs."""

    __slots__ = ("book", "context", "hardware", "ib", "missing", "rails", "xid")

    def __init__(self, node: str, shared: Shared) -> None:
        t = shared.t
        self.book = Book(t.finding.reconfirm_s, shared.part_of.mark)
        self.context = NodeContext(node)
        self.xid = xid.Xid(t.xid, shared.table)
        self.ib = Ib(t.ib)
        self.rails = RailRate(t.rail, shared.rates)
        self.missing = GpuMissing(t.missing)
        self.hardware = Hardware(shared.gpus, shared.slow)

    def on(self, message: Inbound) -> Events:
        """Take a message in."""
        data, now_ns, context = message.data, message.ts_ns, self.context
        context.touched_ns = max(context.touched_ns, now_ns)
        boot = data.get("boot")
        if boot is None or boot == context.boot:
            if boot is not None and now_ns > context.boot_seen_ns:
                context.boot_seen_ns = now_ns
            return self._read(message)
        if context.booted(boot, now_ns) is None:  # from before a reboot
            return NOTHING
        self.hardware.forget()
        return [*self.xid.rebooted(self.book, boot, now_ns), *self._read(message)]

    def _read(self, message: Inbound) -> Events:
        kind, data, context = message.kind, message.data, self.context
        if kind == "IbSample":
            events = self.ib.on(self.book, context, message)
            more = self.rails.on(self.book, context, message)
            return [*events, *more] if more else events
        if kind == "JobSample":
            return self._sample(message)
        if kind == "JobKernelEvent":
            return self.xid.on(self.book, context, message)
        if kind == "JobEvent":
            context.job_event(data)
        elif kind == "Inventory":
            context.inventory(data["gpus"])
            self.missing.inventory(data)
        elif kind == "NodeState":
            return self._node_state(data, message.ts_ns)
        elif kind == "Finding":
            self.ib.learn(data)
            self.hardware.learn(data)
            self.xid.learn(data)
            self.missing.learn(data)
            self.rails.learn(data)
            if context.boot:
                return self.xid.rebooted(self.book, context.boot, message.ts_ns)
        return NOTHING

    def _sample(self, message: Inbound) -> Events:
        book, context = self.book, self.context
        events: Events = NOTHING
        if book.all or self.xid.known or not self.hardware.same(message.data, message.ts_ns):
            events = self.xid.on(book, context, message)
            events = [*events, *self.hardware.on(book, context, message, calm=self.xid.calm)]
        gone = self.missing.on(book, context, message)
        return [*events, *gone] if gone else events

    def _node_state(self, state: Mapping[str, Any], now_ns: int) -> Events:
        resumed = self.context.node_state(state)
        if state.get("event") == "gone":
            return self.book.close_kinds(rules.NODE_KINDS, now_ns, "Slurm knows no such node any more")
        if state["ts"] >= self.context.state_ts:
            self.missing.node_state(state)
        if not resumed:
            return NOTHING
        return [
            *self.xid.resumed(self.book, now_ns),
            *self.missing.resumed(self.book, now_ns),
            *self.rails.resumed(self.book, now_ns),
        ]

    def tick(self, now_ns: int) -> Events:
        """Let time pass."""
        if not self.book.all and not self.ib.waiting:
            return NOTHING
        events = [*self.ib.tick(self.book, self.context, now_ns)]
        events += self.xid.tick(self.book, now_ns)
        events += self.hardware.tick(self.book, now_ns)
        events += self.missing.tick(self.book, now_ns)
        events += self.rails.tick(self.book, now_ns)
        return [*events, *self.book.confirm(now_ns)]

    def idle(self, now_ns: int) -> bool:
        """Say whether nothing is left to remember."""
        return not self.book.all and now_ns - self.context.touched_ns > FORGET_NODE_NS


class ClusterKey:
    """State of ``cluster:<name>``: who is silent, whose clock is off, what several nodes have in common."""

    __slots__ = ("book", "clock", "places", "silent", "together")

    def __init__(self, shared: Shared) -> None:
        t = shared.t
        self.book = Book(t.finding.reconfirm_s, shared.part_of.mark)
        self.silent = AgentSilent(t.agent)
        self.clock = ClockSkew(t.clock, self.silent.agents)
        self.places = Places(t.incident.rack_features)
        self.together = Together(t.incident, self.places, lambda: len(self.silent.agents), shared.nodes_of)

    def on(self, message: Inbound) -> Events:
        """Take a message in."""
        if message.kind == "AgentStatus":
            self.clock.on(message)
        elif message.kind == "Finding":
            self.together.learn(message.data)
            return NOTHING
        elif message.kind == "SlurmTable":
            self.places.table(message.data)
            return NOTHING
        elif message.kind == "NodeState":
            self.places.node(message.data)
        return self.silent.on(message)

    def tick(self, now_ns: int) -> Events:
        """Let time pass."""
        events = [*self.silent.tick(self.book, now_ns), *self.clock.tick(self.book, now_ns)]
        events += self.together.tick(self.book, now_ns)
        return [*events, *self.book.confirm(now_ns)]

    def idle(self, now_ns: int) -> bool:  # noqa: ARG002 - the same question as for the others
        """Say whether nothing is left to remember."""
        return not (self.book.all or self.silent.agents or self.together.members or self.places.known)


State = JobKey | NodeKey | ClusterKey


class DetectStep:
    """Finds trouble. The state of a key is a `JobKey`, `NodeKey` or `ClusterKey`."""

    name = "detect"
    inputs = (
        Input("JobSample"),
        Input("IbSample"),
        Input("JobKernelEvent"),
        Input("JobEvent", "last"),
        Input("NodeState", "last"),
        Input("AgentStatus", "last"),
        Input("Inventory", "last"),
        Input("Finding", "last"),
        Input("SlurmTable", "last", f"slurm.table.{TABLE}.*.*"),
    )
    choices: Mapping[str, Choice] = {"JobSample": rules.CHOICE}
    any_clock = frozenset(("AgentStatus",))  # only its time of arrival counts, and how far off its own is

    def __init__(self, thresholds: Thresholds | None = None, table: XidTable | None = None) -> None:
        self.thresholds = thresholds or Thresholds()
        self.table = table or load_table(self.thresholds.xid_table)
        self.tick_s: float | None = self.thresholds.finding.tick_s
        self.memory_s = rules.memory_s(self.thresholds)
        t = self.thresholds
        gpus = RuleSet((*slowdown.rules(t), *links.rules(t), *held.rules(t)), more=sorted(xid.STATES))
        self.shared = Shared(t, self.table, gpus)
        # Where a job was, to reach the nodes that its next event no longer names. Routing, not a decision.
        self._nodes_of = self.shared.nodes_of
        self._jobs_on: dict[str, set[str]] = {}

    def memory_of(self, kind: str) -> float:
        """Return how far back a cold start must read one kind of message, seconds."""
        return rules.memory_of(kind, self.thresholds)

    def keys(self, message: Inbound) -> Iterable[str]:
        """Return the job, node and cluster that a message concerns."""
        data = message.data
        if message.kind == "JobSample":
            return _sample_keys(data)
        if message.kind == "JobEvent":
            return self._job_event_keys(data)
        if message.kind == "Finding":
            return self._finding_keys(data)
        if message.kind == "SlurmTable":
            return (f"cluster:{data['cluster']}",) if data["table"] == TABLE else ()
        return self._node_keys(message.kind, data)

    def _node_keys(self, kind: str, data: Mapping[str, Any]) -> Iterable[str]:
        node, cluster = f"node:{data['node']}", f"cluster:{data['cluster']}"
        if kind == "JobKernelEvent":
            return (node, *(f"job:{job}" for job in dict.fromkeys(data["jobs"])))
        if kind == "IbSample":
            return (node, cluster, *self._whole_job(data["node"]))
        return (node,) if kind == "Inventory" else (node, cluster)

    def _whole_job(self, node: str) -> tuple[str, ...]:
        """Return the key of the job that has a node and enough others for itself, so that their rails compare."""
        jobs = self._jobs_on.get(node, ())
        if len(jobs) != 1:
            return ()
        (job,) = jobs
        return (f"job:{job}",) if len(self._nodes_of.get(job, ())) >= self.thresholds.rail.least_nodes else ()

    def _job_event_keys(self, data: Mapping[str, Any]) -> list[str]:
        job, nodes = data["job_id"], tuple(data["nodes"])
        before = self._nodes_of.get(job, ())
        if data["event"] == "ended":
            self._nodes_of.pop(job, None)
        else:
            self._nodes_of[job] = nodes
        if nodes != before or data["event"] == "ended":
            self._note_nodes(job, before, () if data["event"] == "ended" else nodes)
        return [f"job:{job}", *(f"node:{node}" for node in dict.fromkeys((*nodes, *before)))]

    def _note_nodes(self, job: str, before: Sequence[str], nodes: Sequence[str]) -> None:
        for node in before:
            self._jobs_on.get(node, set()).discard(job)
        for node in nodes:
            self._jobs_on.setdefault(node, set()).add(job)

    def _finding_keys(self, data: Mapping[str, Any]) -> Iterable[str]:
        """Return who opened it, and who else must know of it so that one cause makes one finding."""
        family = rules.FAMILY_OF.get(data["kind"])
        if family is None:
            return ()
        if family == "cluster":
            self.shared.part_of.learn(data)
            return (f"cluster:{data['cluster']}",)
        entity = data["entity"]
        node = entity.get("node") or data.get("node")
        together = (f"cluster:{data['cluster']}",) if data["kind"] in SIGNS else ()
        if family == "job":
            job = entity.get("job_id") or data.get("job_id")
            if data["kind"] == "job_slow" and job:
                self._note_slow(str(job), data)
            return (*((f"job:{job}",) if job else ()), *((f"node:{node}",) if node else ()), *together)
        jobs = data.get("jobs", ())
        return (*((f"node:{node}",) if node else ()), *(f"job:{job}" for job in dict.fromkeys(jobs)), *together)

    def _note_slow(self, job: str, finding: Mapping[str, Any]) -> None:
        """Remember what is said of a whole job, for all of its nodes; closed ones too, for a cold start's history."""
        slow = self.shared.slow
        slow[job] = finding
        if len(slow) > MOST_SLOW:
            del slow[min(slow, key=lambda name: (slow[name]["ts"], name))]

    def on(self, key: str, state: State | None, message: Inbound, now_ns: int) -> Result:  # noqa: ARG002 - by the message's own time
        """Take a message in. Its server time counts, not the time that the engine has reached: see `tick`."""
        if state is None:
            state = self._new(key)
        book = state.book
        if not book.cluster:
            book.cluster = message.data["cluster"]
        adopted: Events = NOTHING
        if message.kind == "Finding" and rules.FAMILY_OF.get(message.data["kind"]) == key.partition(":")[0]:
            adopted = book.adopt(message.data)
        events = state.on(message)
        return state, [*adopted, *events] if adopted else events

    def tick(self, key: str, state: State, now_ns: int) -> Result:  # noqa: ARG002 - the state knows its key
        """Let time pass: silence, windows whose nodes stay away, findings to say again."""
        events = state.tick(now_ns)
        return (None if not events and state.idle(now_ns) else state), events

    def asleep(self, state: State | None) -> bool:
        """Say whether ticks do nothing for a key: most nodes have nothing open."""
        return type(state) is NodeKey and not state.book.all and not state.ib.waiting

    def _new(self, key: str) -> State:
        family, _, name = key.partition(":")
        if family == "job":
            return JobKey(name, self.shared)
        if family == "node":
            return NodeKey(name, self.shared)
        return ClusterKey(self.shared)


def _sample_keys(data: Mapping[str, Any]) -> Iterable[str]:
    jobs = data["job"]
    node, cluster = f"node:{data['node']}", f"cluster:{data['cluster']}"
    first = jobs[0] if jobs else None
    if first is not None and jobs.count(first) == len(jobs):
        return (f"job:{first}", node, cluster)
    return (*(f"job:{job}" for job in dict.fromkeys(jobs) if job is not None), node, cluster)
