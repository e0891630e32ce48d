"""GPU time of runs of jobs, as a budget needs it: pure.

What was allocated is always active, idle and unknown together. Unknown is what nobody observed: never idle, and never
nothing. What was lost to faults is a part of what was allocated, told beside the three: a lower bound.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Message = Mapping[str, Any]

NS = 1_000_000_000
KINDS = ("job", "user", "account", "partition")


@dataclass(frozen=True, slots=True)
class Loss:
    """A span in which a share of a run's GPUs did nothing for it, for a fault."""

    start_ns: int
    end_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job. `gpus` and what follows from it is None where Slurm's word on its GPUs is not known."""

    job: str
    name: str
    start_ns: int
    end_ns: int  # of one that goes on: up to when it is known
    cluster: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    title: str | None = None
    state: str | None = None
    nodes: int | None = None
    gpus: float | None = None
    allocated_s: float | None = None
    active_s: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    energy_j: float = 0.0
    energy_s: float = 0.0  # GPU seconds that the energy is of


@dataclass(slots=True)
class Sums:
    """What some runs come to, in GPU seconds."""

    runs: int = 0
    runs_unknown: int = 0  # whose GPUs are not known: in none of the sums
    allocated_s: float = 0.0
    active_s: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    unknown_s: float = 0.0
    lost_s: float = 0.0
    node_fail_runs: int = 0
    node_fail_s: float = 0.0  # of runs that a node's failure ended: how much of it was saved is not known
    energy_j: float = 0.0
    energy_s: float = 0.0
    findings: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Sums") -> None:
        """Add what another has, but for findings: one may concern runs of both."""
        for name in (
            *("runs", "runs_unknown", "allocated_s", "active_s", "busy_s", "idle_s", "unknown_s", "lost_s"),
            *("node_fail_runs", "node_fail_s", "energy_j", "energy_s"),
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def as_json(self) -> dict[str, Any]:
        """Return the sums in GPU-hours and kWh; what nothing was read of is null."""
        hours = {
            f"{name.removesuffix('_s')}_gpu_h": getattr(self, name) / 3600
            for name in ("allocated_s", "active_s", "busy_s", "idle_s", "unknown_s", "node_fail_s")
        }
        return {
            "runs": self.runs,
            "runs_unknown": self.runs_unknown,
            **hours,
            "lost_to_faults_gpu_h": self.lost_s / 3600,
            "node_fail_runs": self.node_fail_runs,
            "energy_kwh": self.energy_j / 3.6e6 if self.energy_s else None,
            "energy_known_gpu_h": self.energy_s / 3600,
            "findings": self.findings,
        }


def run_of(record: Message | None, summary: Message | None) -> Run | None:
    """Return a run from what accounting and the samples say of it, up to when they know of it; None for none."""
    both = (record or {}, summary or {})
    start = both[0].get("part_start_ts") or _first(both, "start_ts")
    if start is None:
        return None
    end = max(start, _first(both, "end_ts") or max(both[0].get("ts", 0), both[1].get("until_ts", 0)))
    gpus, allocated = _allocated(*both, (end - start) / NS)
    active, busy, idle = (both[1].get(key, 0.0) for key in ("active_gpu_s", "busy_gpu_s", "idle_gpu_s"))
    share = 1.0
    if allocated is not None and active + idle > allocated:  # another's GPUs, or two clocks: nobody granted more
        share = allocated / (active + idle)
    return Run(
        job=_first(both, "job_id"),
        name=_first(both, "run"),
        start_ns=start,
        end_ns=end,
        cluster=_first(both, "cluster"),
        user=_first(both, "user"),
        account=_first(both, "account"),
        partition=_first(both, "partition"),
        title=_first(both, "name"),
        state=_first(both, "state"),
        nodes=_first(both, "node_count"),
        gpus=gpus,
        allocated_s=allocated,
        active_s=active * share,
        busy_s=busy * share,
        idle_s=idle * share,
        energy_j=both[1].get("energy_j", 0.0),
        energy_s=both[1].get("energy_gpu_s", 0.0),
    )


def _first(both: Sequence[Message], key: str) -> Any:
    return next((one[key] for one in both if one.get(key) is not None), None)


def _allocated(record: Message, summary: Message, run_s: float) -> tuple[float | None, float | None]:
    """Return a run's GPUs and GPU seconds. A record without GPUs may be of a site that does not account for them."""
    if record.get("gpus"):
        over = record.get("elapsed_s") if "end_ts" in record else run_s - record.get("suspended_s", 0)
        return record["gpus"], record["gpus"] * max(0.0, run_s if over is None else over)
    if summary.get("allocated_gpu_s") is not None:
        return summary.get("gpus"), summary["allocated_gpu_s"]
    if "gpus" in record and not summary:
        return 0, 0.0
    return None, None


def clipped(run: Run, since_ns: int, until_ns: int, losses: Sequence[Loss] = ()) -> Sums:
    """Return the sums of the part of a run that lies in a window; what was observed is taken as spread evenly."""
    first, last = max(run.start_ns, since_ns), min(run.end_ns, until_ns)
    if last <= first and not (run.start_ns == run.end_ns and since_ns <= run.start_ns < until_ns):
        return Sums()
    if run.allocated_s is None:
        return Sums(1, 1)
    part = (last - first) / (run.end_ns - run.start_ns) if run.end_ns > run.start_ns else 1.0
    allocated, active, idle = run.allocated_s * part, run.active_s * part, run.idle_s * part
    failed = run.state == "NODE_FAIL"
    return Sums(
        1,
        0,
        allocated,
        active,
        run.busy_s * part,
        idle,
        max(0.0, allocated - active - idle),
        run.allocated_s * lost_share(run, losses, first, last),
        int(failed),
        allocated if failed else 0.0,
        run.energy_j * part,
        run.energy_s * part,
    )


def lost_share(run: Run, losses: Sequence[Loss], first_ns: int, last_ns: int) -> float:
    """Return the share of a run's whole time and GPUs that was lost in a window: where spans overlap, the largest."""
    length = run.end_ns - run.start_ns
    spans = [
        (max(one.start_ns, first_ns), min(one.end_ns, last_ns), min(1.0, max(0.0, one.share)))
        for one in losses
        if one.start_ns < last_ns and one.end_ns > first_ns
    ]
    if length <= 0 or not spans:
        return 0.0
    borders = sorted({border for start, end, _ in spans for border in (start, end)})
    lost = 0.0
    for start, end in pairwise(borders):
        lost += (end - start) * max((share for a, b, share in spans if a <= start and b >= end), default=0.0)
    return lost / length


def loss_of(finding: Message, run: Run, now_ns: int) -> Loss | None:
    """Return what a finding cost a run at least; None where it says nothing of that.

    A job that hangs does nothing at all; one that is slower does as much less as detect has measured by the job's own
    pace; a critical fault costs at least the GPU, or the node, that it is about.
    """
    start = finding["first_ts"]
    end = finding["ts"] if finding["state"] == "closed" else now_ns
    slowdown = (finding.get("impact") or {}).get("job_slowdown_ratio")
    gpus, entity = run.gpus or 0, finding["entity"]
    if finding["kind"] == "hang":
        share = 1.0
    elif isinstance(slowdown, int | float) and slowdown > 1:
        share = 1.0 - 1.0 / slowdown
    elif finding["severity"] != "critical" or not gpus:
        return None
    elif entity["type"] == "gpu":
        share = 1.0 / gpus
    elif entity["type"] == "node" and run.nodes:
        share = 1.0 / run.nodes
    else:
        return None
    return Loss(start, max(start, end), share)


def concerns(finding: Message, run: Run) -> bool:
    """Say whether a finding names a run's job at a time when it ran."""
    end = finding["ts"] if finding["state"] == "closed" else run.end_ns
    if run.cluster not in (None, finding.get("cluster")):
        return False
    named = run.job == finding.get("job_id") or run.job in finding.get("jobs", ())
    return named and finding["first_ts"] < run.end_ns and end >= run.start_ns


@dataclass(slots=True)
class Report:
    """The sums of a window, by group."""

    total: Sums
    groups: dict[str, Sums]  # the largest first
    runs: list[tuple[Run, Sums]]  # likewise


def report(
    kind: str, runs: Iterable[Run], findings: Iterable[Message], since_ns: int, until_ns: int, now_ns: int
) -> Report:
    """Return the report of some runs by job, user, account or partition."""
    of_job: dict[str, list[Message]] = {}
    for finding in findings:
        for job in dict.fromkeys((finding.get("job_id"), *finding.get("jobs", ()))):
            if job is not None:
                of_job.setdefault(job, []).append(finding)
    total, groups, told = Sums(), dict[str, Sums](), list[tuple[Run, Sums]]()
    seen: dict[str, dict[str, str]] = {}  # group ("" for all): finding -> severity
    for run in runs:
        mine = [one for one in of_job.get(run.job, ()) if concerns(one, run) and one["first_ts"] < until_ns]
        losses = [loss for one in mine if (loss := loss_of(one, run, now_ns)) is not None]
        sums = clipped(run, since_ns, until_ns, losses)
        if not sums.runs:
            continue
        sums.findings = _count({one["id"]: one["severity"] for one in mine})
        group = getattr(run, kind) or "?"
        for where, into in (("", total), (f"={group}", groups.setdefault(group, Sums()))):
            into.add(sums)
            seen.setdefault(where, {}).update({one["id"]: one["severity"] for one in mine})
        told.append((run, sums))
    total.findings = _count(seen.get("", {}))
    for group, into in groups.items():
        into.findings = _count(seen[f"={group}"])
    order = sorted(groups.items(), key=lambda item: (-item[1].allocated_s, item[0]))
    told.sort(key=lambda item: (-item[1].allocated_s, item[0].job, item[0].name))
    return Report(total, dict(order), told)


def _count(severities: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for severity in severities.values():
        found[severity] = found.get(severity, 0) + 1
    return dict(sorted(found.items()))
