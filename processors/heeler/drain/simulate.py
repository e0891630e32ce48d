"""What drains would have cost and saved, by what the jobs and nodes of a capture really did. Pure.

A node that would have been taken out stays out until the capture's end, or until Slurm itself shows it as out: nobody
can know when it would have come back. Jobs that ran on it go on, so their time is not lost. Jobs that began on it later
would have run elsewhere or waited: those that a failing node then ended are hours saved, the others are hours moved.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from heeler.drain.node import NodeView, condition

HOUR_NS = 3600 * 1_000_000_000
BY_NODE = frozenset({"NODE_FAIL", "BOOT_FAIL"})  # Slurm says that the node did it
PERHAPS = frozenset({"FAILED", "REQUEUED"})  # the job's own fault or its owner's wish, or the node's
OUT = frozenset({"broken", "drained", "powered_down", "planned"})
Message = Mapping[str, Any]
Node = tuple[str, str]  # cluster, node


@dataclass(slots=True)
class Run:
    """One run of a job, as Slurm told it."""

    job_id: str
    begin_ns: int
    nodes: tuple[str, ...]
    state: str = "UNKNOWN"
    end_ns: int | None = None  # None: it still ran at the end
    gpus: Mapping[str, int] = field(default_factory=dict)  # node: GPUs, where that is known
    whole: bool = False  # it holds all GPUs of its nodes
    requeueable: bool = False

    def hours(self, end_ns: int) -> float:
        """Return the node-hours of the whole run."""
        return len(self.nodes) * max(0, (self.end_ns or end_ns) - self.begin_ns) / HOUR_NS


@dataclass(frozen=True, slots=True)
class Drain:
    """A drain that would have been done."""

    cluster: str
    node: str
    finding_id: str
    ts_ns: int
    rule: str
    why: str
    requeues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """What one drain comes to. Hours of runs are those of all their nodes."""

    drain: Drain
    until_ns: int
    node_hours: float  # nobody could have used the node
    gpu_hours: float | None  # None: how many GPUs it has, or a job had, is not known
    left: tuple[str, ...]  # jobs that would have gone on to their end
    requeued_hours: float  # of jobs that would have begun anew
    saved: tuple[Run, ...]  # ended by a failing node, on a node that would have been out
    perhaps: tuple[Run, ...]  # failed there, for whatever reason
    moved: tuple[Run, ...]  # would have run elsewhere or waited


@dataclass(slots=True)
class Simulation:
    """Takes in what a capture holds and what the drainer says over it."""

    begin_ns: int = 0
    end_ns: int = 0
    runs: dict[tuple[str, str, int], Run] = field(default_factory=dict)
    last: dict[tuple[str, str], Run] = field(default_factory=dict)
    out: dict[Node, list[tuple[int, bool]]] = field(default_factory=dict)  # when Slurm showed it out of service, or in
    gpus: dict[Node, int] = field(default_factory=dict)
    drains: list[Drain] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    refused: list[Message] = field(default_factory=list)
    tripped: list[Message] = field(default_factory=list)
    later: Counter[str] = field(default_factory=Counter)  # what would have followed drains

    def pass_to(self, ts_ns: int) -> None:
        """Let time pass."""
        self.begin_ns = self.begin_ns or ts_ns
        self.end_ns = max(self.end_ns, ts_ns)

    def take(self, kind: str, data: Message, ts_ns: int) -> None:
        """Take in a message of the capture, or one that the drainer says now."""
        if kind == "JobEvent":
            self._job(data)
        elif kind == "NodeState":
            self._node(data, ts_ns)
        elif kind == "Inventory":
            self.gpus[data["cluster"], data["node"]] = len(data["gpus"])
        elif kind == "DrainAction":
            self._action(data)

    def _job(self, data: Message) -> None:
        begin_ns = data.get("start_ts")
        if begin_ns is None or data["event"] == "unknown":
            return
        key = (data["cluster"], data["job_id"], begin_ns)
        run = self.runs.get(key)
        if run is None:
            run = self.runs[key] = Run(data["job_id"], begin_ns, tuple(data["nodes"]))
            self._begins_anew(data["cluster"], run)
        run.nodes = tuple(data["nodes"]) or run.nodes
        run.state = data.get("state", run.state)
        run.requeueable = bool(data.get("requeueable") and data.get("batch"))
        run.gpus = {**run.gpus, **_gpus_of(data)}
        run.whole = data.get("gpus_source") == "whole_node"
        if data["event"] == "ended":
            run.end_ns = data.get("end_ts", data["ts"])

    def _begins_anew(self, cluster: str, run: Run) -> None:
        """End the run before of the same job: nobody says the end of one that was requeued."""
        key = (cluster, run.job_id)
        before = self.last.get(key)
        if before is not None and before.begin_ns > run.begin_ns:
            before, run = run, before
        self.last[key] = run
        if before is not None and before.end_ns is None:
            before.end_ns, before.state = run.begin_ns, "REQUEUED"

    def _node(self, data: Message, ts_ns: int) -> None:
        key = (data["cluster"], data["node"])
        if "gpus_total" in data:
            self.gpus[key] = data["gpus_total"]
        gone = data.get("event") == "gone" or condition(NodeView.of(data, ts_ns)) in OUT
        self.out.setdefault(key, []).append((ts_ns, gone))

    def _action(self, data: Message) -> None:
        verdict, step = data["verdict"], data.get("step", "drain")
        if verdict == "tripped":
            self.tripped.append(data)
        elif step != "drain":
            self.later[f"{step} {verdict}"] += 1
        elif verdict == "proposed":
            jobs = data.get("jobs") or ([data["job_id"]] if "job_id" in data else [])
            requeues = tuple(jobs) if data.get("action") == "drain_and_requeue" else ()
            about = (data["cluster"], data["node"], data["finding_id"], data["ts"], data["rule"], data["why"])
            self.drains.append(Drain(*about, requeues))
        elif verdict == "refused":
            self.refusals[data["rule"]] += 1
            self.refused.append(data)

    def costs(self) -> list[Cost]:
        """Return what each drain comes to."""
        return [self._cost(drain) for drain in self.drains]

    def _cost(self, drain: Drain) -> Cost:
        until_ns = self._out_from(drain)
        here = [run for (cluster, *_), run in self.runs.items() if cluster == drain.cluster and drain.node in run.nodes]
        before = [
            run for run in here if run.begin_ns < drain.ts_ns and (run.end_ns is None or run.end_ns > drain.ts_ns)
        ]
        requeued = [run for run in before if run.job_id in drain.requeues and run.requeueable]
        stay = [run for run in before if run not in requeued]
        after = [run for run in here if drain.ts_ns <= run.begin_ns < until_ns]
        node_hours, gpu_hours = _lost(drain, until_ns, stay, self.gpus.get((drain.cluster, drain.node)))
        return Cost(
            drain,
            until_ns,
            node_hours,
            gpu_hours,
            tuple(run.job_id for run in stay),
            sum(len(run.nodes) * (drain.ts_ns - run.begin_ns) / HOUR_NS for run in requeued),
            tuple(run for run in after if run.end_ns is not None and run.state in BY_NODE),
            tuple(run for run in after if run.end_ns is not None and run.state in PERHAPS),
            tuple(run for run in after if run.end_ns is None or run.state not in BY_NODE | PERHAPS),
        )

    def _out_from(self, drain: Drain) -> int:
        """Return until when the drain takes the node away: until it is out by itself, or to the end."""
        known = self.out.get((drain.cluster, drain.node), ())
        return min((ts_ns for ts_ns, gone in known if gone and ts_ns > drain.ts_ns), default=self.end_ns)

    def plain(self) -> dict[str, Any]:
        """Return everything for JSON. A run that several drains concern is counted once in the sums."""
        costs = self.costs()
        return {
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "hours": round((self.end_ns - self.begin_ns) / HOUR_NS, 3),
            "drains": [self._plain(cost) for cost in costs],
            "refusals": dict(sorted(self.refusals.items())),
            "refused": [
                {key: one.get(key) for key in ("ts", "node", "finding_id", "kind", "rule", "why")}
                for one in self.refused
            ],
            "breaker_opened": [{"ts": one["ts"], "why": one["why"]} for one in self.tripped],
            "followed": dict(sorted(self.later.items())),
            "totals": self._totals(costs),
        }

    def _plain(self, cost: Cost) -> dict[str, Any]:
        drain = cost.drain
        return {
            "ts": drain.ts_ns,
            "node": drain.node,
            "finding_id": drain.finding_id,
            "rule": drain.rule,
            "why": drain.why,
            "until_ts": cost.until_ns,
            "node_hours": round(cost.node_hours, 3),
            "gpu_hours": None if cost.gpu_hours is None else round(cost.gpu_hours, 3),
            "jobs_left_to_finish": list(cost.left),
            "requeued_job_hours": round(cost.requeued_hours, 3),
            "saved": [self._run(run) for run in cost.saved],
            "perhaps_saved": [self._run(run) for run in cost.perhaps],
            "moved": [self._run(run) for run in cost.moved],
        }

    def _run(self, run: Run) -> dict[str, Any]:
        return {"job_id": run.job_id, "state": run.state, "hours": round(run.hours(self.end_ns), 3)}

    def _totals(self, costs: Iterable[Cost]) -> dict[str, Any]:
        costs = list(costs)
        known = [cost.gpu_hours for cost in costs if cost.gpu_hours is not None]
        return {
            "drains": len(costs),
            "refusals": self.refusals.total(),
            "node_hours": round(sum(cost.node_hours for cost in costs), 3),
            "gpu_hours": round(sum(known), 3),
            "gpu_hours_unknown": len(costs) - len(known),  # drains whose GPU-hours are not in the sum
            "requeued_job_hours": round(sum(cost.requeued_hours for cost in costs), 3),
            "saved_job_hours": self._hours(cost.saved for cost in costs),
            "perhaps_saved_job_hours": self._hours(cost.perhaps for cost in costs),
            "moved_job_hours": self._hours(cost.moved for cost in costs),
        }

    def _hours(self, groups: Iterable[Iterable[Run]]) -> float:
        runs = {(run.job_id, run.begin_ns): run for group in groups for run in group}
        return round(sum(run.hours(self.end_ns) for run in runs.values()), 3)


def _gpus_of(data: Message) -> dict[str, int]:
    """Return how many GPUs a job has on each node, where that is known. A whole node's are the node's own."""
    if data.get("gpus_source") == "none":
        return dict.fromkeys(data["nodes"], 0)
    found = dict.fromkeys(data["nodes"], data["gpus_per_node"]) if "gpus_per_node" in data else {}
    return found | {node: len(indices) for node, indices in data.get("gpus", {}).items()}


def _lost(drain: Drain, until_ns: int, stay: Iterable[Run], gpus: int | None) -> tuple[float, float | None]:
    """Return node-hours without any job and GPU-hours without one, of the time in which the node would be out."""
    runs = list(stay)
    node_ns, gpu_ns, known = 0, 0, gpus is not None
    for begin_ns, end_ns in _pieces(drain.ts_ns, until_ns, runs):
        there = [run for run in runs if run.end_ns is None or run.end_ns >= end_ns]
        node_ns += 0 if there else end_ns - begin_ns
        held = [run.gpus.get(drain.node, gpus if run.whole else None) for run in there]
        if gpus is None or None in held:
            known = False
        else:
            gpu_ns += max(0, gpus - sum(one for one in held if one is not None)) * (end_ns - begin_ns)
    return node_ns / HOUR_NS, gpu_ns / HOUR_NS if known else None


def _pieces(begin_ns: int, end_ns: int, runs: Iterable[Run]) -> Iterator[tuple[int, int]]:
    """Yield the spans between the ends of runs."""
    ends = {run.end_ns for run in runs if run.end_ns is not None and begin_ns < run.end_ns < end_ns}
    cuts = [begin_ns, *sorted(ends), max(begin_ns, end_ns)]
    yield from ((one, other) for one, other in pairwise(cuts) if other > one)
