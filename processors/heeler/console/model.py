"""What the page shows, learned from messages: pure. `on` takes a message in, `tick` lets time pass.

Everything here is bounded; what is beyond a bound is counted, and the page says so.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heeler.bus import Choice
from heeler.console.fleet import FIRST_JOB, JOB_NONE, JOB_SEVERAL, JOB_UNKNOWN, READ, Fleet
from heeler.console.settings import ConsoleSettings
from heeler.engine import Inbound

SECOND_NS = 1_000_000_000
KEPT_CLOSED = 100
KEPT_ACTIONS = 200
SEVERITIES = {"info": 1, "warning": 2, "critical": 3}
ABOUT_JOBS = ("user", "account", "partition", "qos", "name")

# What is decoded of samples; all else is skipped.
CHOICES: Mapping[str, Choice] = {
    "JobSample": Choice(
        frozenset(("state", "jobs", "several")),
        {
            "gpu": frozenset(("index", "model", "parent")),
            **{group: frozenset(name for of, name in READ if of == group) for group in ("mean", "last")},
        },
    )
}

# Node states as numbers, for the page's colours.
NODE_STATES = ("unknown", "idle", "allocated", "mixed", "draining", "drained", "down", "reserved", "gone")
_DOWN_FLAGS = frozenset(("NOT_RESPONDING", "FAIL", "POWERED_DOWN", "POWERING_DOWN", "INVALID_REG"))
_KEPT_FREE = frozenset(("MAINTENANCE", "MAINT", "RESERVED", "PLANNED_DOWN"))


def node_state(message: Mapping[str, Any]) -> str:
    """Return what Slurm says of a node in one of NODE_STATES."""
    if message.get("event") == "gone":
        return "gone"
    state, flags = message["state"], frozenset(message["flags"])
    if state in ("down", "error") or flags & _DOWN_FLAGS:
        return "down"
    if "DRAIN" in flags:
        return "draining" if state in ("allocated", "mixed") else "drained"
    if flags & _KEPT_FREE and state == "idle":
        return "reserved"
    return state if state in NODE_STATES else "unknown"


@dataclass(slots=True)
class Job:
    """A job that runs, or did."""

    number: int
    id: str
    about: dict[str, Any]
    nodes: frozenset[str] = frozenset()
    state: str = "UNKNOWN"
    ts: int = 0
    start_ts: int | None = None
    end_ts: int | None = None
    of_slurm: bool = False  # else only samples name it


@dataclass(slots=True)
class Ages:
    """When the newest message of a kind reached the bus."""

    newest: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, ts_ns: int) -> None:
        """Learn of a message."""
        self.newest[kind] = max(ts_ns, self.newest.get(kind, 0))


@dataclass(slots=True)
class Changes:
    """What was touched since somebody last took them."""

    jobs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    findings: set[str] = field(default_factory=set)
    actions: int = 0


class Model:
    """The state behind the page."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.fleet = Fleet(int(settings.stale_s * SECOND_NS), settings.most_nodes)
        self.jobs: dict[str, Job] = {}
        self.ended: OrderedDict[str, Job] = OrderedDict()
        self.nodes: dict[str, dict[str, Any]] = {}  # NodeState by name
        self.findings: dict[str, dict[str, Any]] = {}
        self.closed: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.actions: deque[dict[str, Any]] = deque(maxlen=KEPT_ACTIONS)
        self.controllers: dict[str, dict[str, Any]] = {}
        self.ages = Ages()
        self.beyond = 0  # messages that had no room
        self._numbers = FIRST_JOB
        self._names: dict[int, Job] = {}
        self.changes = Changes()
        self._marks_due = False
        self._swept_ns = 0

    # Messages.

    def on(self, message: Inbound) -> None:
        """Take a message in."""
        self.ages.note(message.kind, message.ts_ns)
        match message.kind:
            case "JobSample":
                self._sample(message.data, message.ts_ns)
            case "JobEvent":
                self._job(message.data)
            case "NodeState":
                self._node(message.data)
            case "Finding":
                self._finding(message.data)
            case "DrainAction":
                self.actions.appendleft(message.data)
                self.changes.actions += 1
            case "ClusterState":
                self.controllers[message.data["feed"]] = message.data

    def _sample(self, sample: Mapping[str, Any], ts_ns: int) -> None:
        sample, rows = without_parts(sample)
        cells = self.fleet.cells(sample, ts_ns)
        if cells is None:
            return
        several = sample.get("several") or {}
        about = sample.get("jobs") or {}
        number = {job: JOB_NONE if job is None else self._number(job, about.get(job)) for job in set(sample["job"])}
        numbers = [
            JOB_SEVERAL if str(at) in several else number[job] for at, job in zip(rows, sample["job"], strict=True)
        ]
        self.fleet.take(cells, sample, numbers, ts_ns)
        models = sample["gpu"].get("model")
        if models:
            self.fleet.nodes[self.fleet.number[sample["node"]]].model = models[0]

    def _number(self, job: str, about: Mapping[str, Any] | None) -> int:
        known = self.jobs.get(job)
        if known is None:
            if job in self.ended:
                return self.ended[job].number
            if len(self.jobs) >= self.settings.most_jobs:
                self.beyond += 1
                return JOB_UNKNOWN
            known = self._new_job(job)
        if about and not known.about:
            known.about = {key: about[key] for key in ABOUT_JOBS if isinstance(about.get(key), str)}
            self.changes.jobs.add(job)
        return known.number

    def _new_job(self, job: str) -> Job:
        made = Job(self._numbers, job, {})
        self._numbers += 1
        self.jobs[job] = self._names[made.number] = made
        self.changes.jobs.add(job)
        return made

    def _job(self, event: Mapping[str, Any]) -> None:
        job = event["job_id"]
        known = self.jobs.get(job) or self.ended.get(job)
        if known is not None and event["ts"] < known.ts:
            return
        if known is None:
            if event["event"] != "ended" and len(self.jobs) >= self.settings.most_jobs:
                self.beyond += 1
                return
            known = self._new_job(job)
        known.about = {key: event[key] for key in ABOUT_JOBS if key in event}
        known.nodes, known.state, known.ts = frozenset(event["nodes"]), event.get("state", "UNKNOWN"), event["ts"]
        known.start_ts, known.of_slurm = event.get("start_ts"), True
        self.changes.jobs.add(job)
        if event["event"] == "ended":
            known.end_ts = event.get("end_ts", event["ts"])
            self._end(job)
        else:
            known.end_ts = None
            if self.ended.pop(job, None) is not None:  # it runs again
                self.jobs[job] = known

    def _end(self, job: str) -> None:
        known = self.jobs.pop(job, None)
        if known is None:
            return
        self.ended[job] = known
        if len(self.ended) > self.settings.most_ended:
            _, old = self.ended.popitem(last=False)
            self._names.pop(old.number, None)

    def _node(self, message: dict[str, Any]) -> None:
        before = self.nodes.get(message["node"])
        if before is not None and message["ts"] < before["ts"]:
            return
        gpus = message.get("gpus_total")
        if before is None and message.get("event") == "gone" and message["node"] not in self.fleet.number:
            return
        if before is None and gpus != 0 and self.fleet.add_node(message["node"], gpus or 1) is None:
            return
        self.nodes[message["node"]] = message
        number = self.fleet.number.get(message["node"])
        if number is not None:
            self.fleet.slurm[number] = NODE_STATES.index(node_state(message))
        if before is None or _looks(before) != _looks(message):
            self.changes.nodes.add(message["node"])

    def _finding(self, message: dict[str, Any]) -> None:
        name = message["id"]
        self.changes.findings.add(name)
        before = self.findings.get(name)
        if (closed := self.closed.get(name)) is not None and message["ts"] < closed["ts"]:
            return
        if before is not None and message["ts"] < before["ts"]:
            return
        if message["state"] == "closed":
            self.findings.pop(name, None)
            self.closed[name] = message
            self.closed.move_to_end(name)
            if len(self.closed) > KEPT_CLOSED:
                self.closed.popitem(last=False)
        elif before is None and len(self.findings) >= self.settings.most_findings:
            self.beyond += 1
        else:
            self.closed.pop(name, None)
            self.findings[name] = message
        self._marks_due = True

    # Time.

    def tick(self, now_ns: int) -> None:
        """Let time pass: what was not heard of grows stale, marks are set anew, jobs that nobody has are let go."""
        self.fleet.grow_stale(now_ns)
        if self._marks_due:
            self._marks_due = False
            self._mark()
        if now_ns - self._swept_ns > 60 * SECOND_NS:
            self._swept_ns = now_ns
            self._sweep()

    def _mark(self) -> None:
        """Set each cell's severity: the worst open finding that names its GPU."""
        fleet = self.fleet
        fleet.severity[:] = 0
        for message in self.findings.values():
            rank = SEVERITIES.get(message["severity"], 1)
            for cell in self.cells_of(message):
                fleet.severity[cell] = max(rank, int(fleet.severity[cell]))

    def cells_of(self, finding: Mapping[str, Any]) -> list[int]:
        """Return the cells of the GPUs that a finding names."""
        entity = finding["entity"]
        named = [entity.get("gpu_uuid"), *_texts(entity.get("gpus"))]
        return [cell for uuid in named if (cell := self.fleet.cell_of.get(uuid or "")) is not None]

    def _sweep(self) -> None:
        """Forget nodes that Slurm no longer has, and jobs that only samples named, once no GPU has them."""
        for name, message in self.nodes.items():
            if message.get("event") == "gone" and name in self.fleet.number:
                self.fleet.let_go(self.fleet.nodes[self.fleet.number[name]])
        held = set(np.unique(self.fleet.job[: self.fleet.used]).tolist())
        gone = [job for job, known in self.jobs.items() if not known.of_slurm and known.number not in held]
        for job in gone:
            del self._names[self.jobs.pop(job).number]
            self.changes.jobs.add(job)

    # Views.

    def take_changes(self) -> Changes:
        """Return what was touched since the last call."""
        taken, self.changes = self.changes, Changes()
        return taken

    def job_number(self, number: int) -> Job | None:
        """Return the job of a cell's number."""
        return self._names.get(number)

    def job(self, name: str) -> Job | None:
        """Return a job that runs or ended lately."""
        return self.jobs.get(name) or self.ended.get(name)


def without_parts(sample: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[int]]:
    """Return a sample without its MIG devices, and which rows it kept: their GPU has a row of its own."""
    parents = sample["gpu"].get("parent")
    rows = range(len(sample["gpu"]["uuid"]))
    if not parents or not any(parents):
        return sample, rows
    kept = [row for row in rows if parents[row] is None]
    chosen = dict(sample)
    for group in ("gpu", "mean", "last"):
        chosen[group] = {name: [column[row] for row in kept] for name, column in sample[group].items()}
    for name in ("job", "state"):
        if sample.get(name) is not None:
            chosen[name] = [sample[name][row] for row in kept]
    return chosen, kept


def _looks(message: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a page shows of a node's state; most of what a feed says again is the same."""
    return node_state(message), message.get("partitions")


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
