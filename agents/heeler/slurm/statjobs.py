"""The columns of `stats` that are of jobs: sums over rows of the table `jobs`, and the runs that have ended."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heeler.slurm.state import ENDED
from heeler.slurm.sums import mean, total, variance

NS = 1_000_000_000
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"))
# What went wrong with a job. A person's scancel and a preemption by policy did not.
FAILURES = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "BOOT_FAIL", "DEADLINE")
OTHER_ENDS = ("COMPLETED", "CANCELLED", "PREEMPTED", "REQUEUED")
CLOCKS_S = 5.0  # an answer's age, and how far two clocks may be apart, before a job looks suspended


class JobRow(NamedTuple):
    """Columns of the table `jobs`."""

    state: str | None = None
    holds_nodes: bool | None = None
    partition: str | None = None
    account: str | None = None
    user: str | None = None
    user_id: int | None = None
    nodes: Sequence[str] | None = None
    reason: str | None = None
    array_tasks: str | None = None
    array_task_count: int | None = None
    elapsed_s: float | None = None
    pending_s: float | None = None
    start_ts: int | None = None
    suspended_ts: int | None = None
    cpus_allocated: int | None = None
    gpus_allocated: int | None = None
    nodes_allocated: int | None = None
    gpus_requested: int | None = None
    cpus: int | None = None
    node_count: int | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """Runs that ended lately, by accounting: state, partition and account of each."""

    window_s: int
    runs: Sequence[tuple[str, str | None, str | None]]


@dataclass(slots=True)
class JobSums:
    """Jobs of one row of `stats`, added up as they come."""

    states: Counter[str] = field(default_factory=Counter)
    holding: list[JobRow] = field(default_factory=list)
    waiting: list[JobRow] = field(default_factory=list)

    def add(self, job: JobRow) -> None:
        """Take in a job."""
        state = job.state
        if job.holds_nodes:
            self.states[state or "UNKNOWN"] += 1
            self.holding.append(job)
        elif state in WAITING:
            self.waiting.append(job)
        elif state not in ENDED:
            self.states["UNKNOWN"] += 1

    def sums(self, now_ns: int) -> dict[str, Any]:
        """Return the columns."""
        holding = self.holding
        active, pending = _users(holding), _users(self.waiting)
        by_user = None if active is None else Counter(_user(job) for job in holding).values()
        elapsed = [job.elapsed_s for job in holding]
        waited = [job.pending_s for job in holding]
        suspended = [suspended_s(job, now_ns) for job in holding if job.state != "CONFIGURING"]
        gpus = [job.gpus_allocated for job in holding]
        used_s = [None if n is None or s is None else n * s for n, s in zip(gpus, elapsed, strict=True)]
        sizes = [job.nodes_allocated for job in holding]
        gpu_s = total(used_s)
        return {
            "jobs_holding": len(holding),
            "jobs_running": self.states["RUNNING"],
            "jobs_suspended": self.states["SUSPENDED"],
            "jobs_completing": self.states["COMPLETING"],
            "jobs_configuring": self.states["CONFIGURING"],
            "jobs_state_unknown": self.states["UNKNOWN"],
            **waiting_sums(self.waiting),
            "users_active": None if active is None else len(active),
            "users_pending": None if pending is None else len(pending),
            "users_active_or_pending": None if active is None or pending is None else len(active | pending),
            "jobs_without_user": sum(_nameless(job) for job in (*holding, *self.waiting)),
            "jobs_per_user_mean": None if by_user is None else mean(by_user),
            "jobs_per_user_variance": None if by_user is None else variance(by_user),
            "job_runtime_mean_s": mean(elapsed),
            "job_runtime_variance_s2": variance(elapsed),
            "job_wait_mean_s": mean(waited),
            "job_wait_variance_s2": variance(waited),
            "job_suspended_mean_s": mean(suspended),
            "job_suspended_variance_s2": variance(suspended),
            "cpus_per_job_mean": mean(job.cpus_allocated for job in holding),
            "gpus_per_job_mean": mean(gpus),
            "multi_node_share": mean(None if size is None else float(size > 1) for size in sizes),
            "jobs_cpus": total(job.cpus_allocated for job in holding),
            "jobs_gpus": total(gpus),
            "jobs_nodes": _different_nodes(holding),
            "gpu_hours_running": None if gpu_s is None else gpu_s / 3600,
        }


def waiting_sums(jobs: Sequence[JobRow]) -> dict[str, Any]:
    """Return what waiting jobs ask for; a waiting array counts with all its tasks."""
    tasks = [job.array_task_count if job.array_tasks is not None else 1 for job in jobs]
    reasons = [job.reason or "None" for job in jobs]
    asked = {
        "gpus": [_times(n, job.gpus_requested) for job, n in zip(jobs, tasks, strict=True)],
        "cpus": [_times(n, job.cpus) for job, n in zip(jobs, tasks, strict=True)],
        "nodes": [_times(n, job.node_count) for job, n in zip(jobs, tasks, strict=True)],
    }
    return {
        "jobs_pending": total(tasks),
        **{f"{name}_pending": total(values) for name, values in asked.items()},
        "jobs_pending_by_reason": _by_reason(reasons, tasks),
        "gpus_pending_by_reason": _by_reason(reasons, asked["gpus"]),
    }


def _times(tasks: int | None, each: int | None) -> int | None:
    return None if tasks is None or each is None else tasks * each


def _by_reason(reasons: Sequence[str], values: Sequence[int | None]) -> dict[str, int] | None:
    found: Counter[str] = Counter()
    for reason, value in zip(reasons, values, strict=True):
        if value is None:
            return None
        found[reason] += value
    return {reason: value for reason, value in found.items() if value}


def suspended_s(job: JobRow, now_ns: int) -> float | None:
    """Return how long a job that holds nodes was suspended: its age less the time that it ran."""
    start, elapsed = job.start_ts, job.elapsed_s
    if start is None or elapsed is None:
        return None
    rest_s = (now_ns - start) / NS - elapsed
    return 0.0 if job.state != "SUSPENDED" and not job.suspended_ts and rest_s < CLOCKS_S else max(rest_s, 0.0)


def _user(job: JobRow) -> Any:
    return job.user or job.user_id


def _users(jobs: Sequence[JobRow]) -> set[Any] | None:
    found = {_user(job) for job in jobs}
    return None if None in found else found


def _nameless(job: JobRow) -> bool:
    return not job.user or str(job.user).isdecimal()


def _different_nodes(jobs: Sequence[JobRow]) -> int | None:
    if any(job.nodes is None for job in jobs):
        return None
    return len({node for job in jobs for node in job.nodes or ()})


def end_sums(window_s: int, states: Mapping[str, int]) -> dict[str, int]:
    """Return the columns of runs that have ended."""
    found = {f"ended_{state.lower()}": states.get(state, 0) for state in (*FAILURES, *OTHER_ENDS)}
    failed = sum(states.get(state, 0) for state in FAILURES)
    return {"ended_window_s": window_s, "ended_in_failure": failed, **found}
