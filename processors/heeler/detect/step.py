"""The step of detect: samples, events and states in, findings out.

Two families of keys hold what lives and dies together, ``job:<id>`` and ``node:<name>``, and ``cluster:<name>`` holds
what only the cluster as a whole can say. All of it follows from messages and ticks, so several instances that run
side by side say the same, and a cold start that reads `memory_s` back is where a warm one is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heeler.bus import Choice
from heeler.detect import rules
from heeler.detect.agent_silent import AgentSilent
from heeler.detect.findings import Book
from heeler.detect.gpu_lag import GpuLag
from heeler.detect.ib import Ib
from heeler.detect.node_context import NodeContext
from heeler.detect.thresholds import Thresholds
from heeler.detect.xid import Xid
from heeler.detect.xid_table import XidTable, load_table
from heeler.engine import NOTHING, Event, Inbound, Input, Result

FORGET_NODE_NS = 86_400 * 1_000_000_000
Events = Sequence[Event]


class JobKey:
    """State of ``job:<id>``: the lag rule."""

    __slots__ = ("book", "lag")

    def __init__(self, job: str, t: Thresholds, table: XidTable) -> None:
        self.book = Book(t.finding.reconfirm_s)
        self.lag = GpuLag(job, t.lag, table)

    def on(self, message: Inbound) -> Events:
        """Take a message in."""
        return self.lag.on(self.book, message)

    def tick(self, now_ns: int) -> Events:
        """Let time pass."""
        if now_ns < self.lag.due_ns() and not self.book.all:
            return NOTHING
        return [*self.lag.tick(self.book, now_ns), *self.book.confirm(now_ns)]

    def idle(self, now_ns: int) -> bool:
        """Say whether nothing is left to remember."""
        return not self.book.all and self.lag.idle(now_ns)


class NodeKey:
    """State of ``node:<name>``: hardware, which outlives jobs."""

    __slots__ = ("book", "context", "ib", "xid")

    def __init__(self, node: str, t: Thresholds, table: XidTable) -> None:
        self.book = Book(t.finding.reconfirm_s)
        self.context = NodeContext(node)
        self.xid = Xid(t.xid, table)
        self.ib = Ib(t.ib)

    def on(self, message: Inbound) -> Events:
        """Take a message in."""
        data, now_ns, context = message.data, message.ts_ns, self.context
        context.touched_ns = max(context.touched_ns, now_ns)
        boot = data.get("boot")
        if boot is None or boot == context.boot:
            if boot is not None:
                context.boot_seen_ns = max(context.boot_seen_ns, now_ns)
            return self._read(message)
        if context.booted(boot, now_ns) is None:  # from before a reboot
            return NOTHING
        return [*self.xid.rebooted(self.book, boot, now_ns), *self._read(message)]

    def _read(self, message: Inbound) -> Events:
        kind, data, context = message.kind, message.data, self.context
        if kind == "IbSample":
            return self.ib.on(self.book, context, message)
        if kind in ("JobSample", "JobKernelEvent"):
            return self.xid.on(self.book, context, message)
        if kind == "JobEvent":
            context.job_event(data)
        elif kind == "Inventory":
            context.inventory(data["gpus"])
        elif kind == "NodeState":
            return self._node_state(data, message.ts_ns)
        elif kind == "Finding":
            self.ib.learn(data)
            self.xid.learn(data)
            if context.boot:
                return self.xid.rebooted(self.book, context.boot, message.ts_ns)
        return NOTHING

    def _node_state(self, state: Mapping[str, Any], now_ns: int) -> Events:
        resumed = self.context.node_state(state)
        if state.get("event") == "gone":
            return self.book.close_kinds(rules.NODE_KINDS, now_ns, "Slurm knows no such node any more")
        return self.xid.resumed(self.book, now_ns) if resumed else NOTHING

    def tick(self, now_ns: int) -> Events:
        """Let time pass."""
        if not self.book.all and not self.ib.waiting:
            return NOTHING
        events = [*self.ib.tick(self.book, self.context, now_ns)]
        events += self.xid.tick(self.book, now_ns)
        return [*events, *self.book.confirm(now_ns)]

    def idle(self, now_ns: int) -> bool:
        """Say whether nothing is left to remember."""
        return not self.book.all and now_ns - self.context.touched_ns > FORGET_NODE_NS


class ClusterKey:
    """State of ``cluster:<name>``: who is silent."""

    __slots__ = ("book", "silent")

    def __init__(self, t: Thresholds) -> None:
        self.book = Book(t.finding.reconfirm_s)
        self.silent = AgentSilent(t.agent)

    def on(self, message: Inbound) -> Events:
        """Take a message in."""
        return self.silent.on(message)

    def tick(self, now_ns: int) -> Events:
        """Let time pass."""
        return [*self.silent.tick(self.book, now_ns), *self.book.confirm(now_ns)]

    def idle(self, now_ns: int) -> bool:  # noqa: ARG002 - the same question as for the others
        """Say whether nothing is left to remember."""
        return not self.book.all and not self.silent.agents


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
    )
    choices: Mapping[str, Choice] = {"JobSample": rules.CHOICE}

    def __init__(self, thresholds: Thresholds | None = None, table: XidTable | None = None) -> None:
        self.thresholds = thresholds or Thresholds()
        self.table = table or load_table(self.thresholds.xid_table)
        self.tick_s: float | None = self.thresholds.finding.tick_s
        self.memory_s = rules.memory_s(self.thresholds)
        # Where a job was, to reach the nodes that its next event no longer names. Routing, not a decision.
        self._nodes_of: dict[str, tuple[str, ...]] = {}

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
            return _finding_keys(data)
        node = f"node:{data['node']}"
        if message.kind == "JobKernelEvent":
            return (node, *(f"job:{job}" for job in dict.fromkeys(data["jobs"])))
        if message.kind == "Inventory":
            return (node,)
        return (node, f"cluster:{data['cluster']}")

    def _job_event_keys(self, data: Mapping[str, Any]) -> list[str]:
        job, nodes = data["job_id"], tuple(data["nodes"])
        before = self._nodes_of.get(job, ())
        if data["event"] == "ended":
            self._nodes_of.pop(job, None)
        else:
            self._nodes_of[job] = nodes
        return [f"job:{job}", *(f"node:{node}" for node in dict.fromkeys((*nodes, *before)))]

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
            return JobKey(name, self.thresholds, self.table)
        if family == "node":
            return NodeKey(name, self.thresholds, self.table)
        return ClusterKey(self.thresholds)


def _sample_keys(data: Mapping[str, Any]) -> Iterable[str]:
    jobs = data["job"]
    node, cluster = f"node:{data['node']}", f"cluster:{data['cluster']}"
    first = jobs[0] if jobs else None
    if first is not None and jobs.count(first) == len(jobs):
        return (f"job:{first}", node, cluster)
    return (*(f"job:{job}" for job in dict.fromkeys(jobs) if job is not None), node, cluster)


def _finding_keys(data: Mapping[str, Any]) -> Iterable[str]:
    family = rules.FAMILY_OF.get(data["kind"])
    if family is None:
        return ()
    if family == "cluster":
        return (f"cluster:{data['cluster']}",)
    entity = data["entity"]
    if family == "job":
        job = entity.get("job_id") or data.get("job_id")
        return (f"job:{job}",) if job else ()
    node = entity.get("node") or data.get("node")
    jobs = data.get("jobs", ())
    return (*((f"node:{node}",) if node else ()), *(f"job:{job}" for job in dict.fromkeys(jobs)))
