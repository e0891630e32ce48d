"""Which jobs of a drained node may be requeued, and what becomes of it: pure.

Only what the finding names, and of that only batch jobs that Slurm may requeue and that run now. What is not known
of a job is no permission.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heeler.drain.ownership import MAX_ID
from heeler.slurm.reason import plain

MAX_COMMENT = 400


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job as Slurm has it now. None: not known."""

    id: str
    state: str
    batch: bool | None = None
    requeueable: bool | None = None
    restarts: int | None = None
    het_job_id: str | None = None
    user: str | None = None
    admin_comment: str | None = None


def choose(jobs: Iterable[HeldJob], wanted: Sequence[str]) -> tuple[list[HeldJob], dict[str, str]]:
    """Return the jobs to requeue, and why the others of those wanted are left alone."""
    held = {job.id: job for job in jobs}
    chosen: list[HeldJob] = []
    left: dict[str, str] = {}
    for job_id in dict.fromkeys(wanted):
        job = held.get(job_id)
        why = "it is not on the node" if job is None else _why_not(job)
        if why is not None:
            left[job_id] = why
        elif job is not None:
            chosen.append(job)
    return chosen, left


def _why_not(job: HeldJob) -> str | None:
    asked: tuple[tuple[bool, str], ...] = (
        (job.state == "RUNNING", f"it is {job.state}"),
        (job.batch is True, "it is no batch job" if job.batch is False else "whether it is a batch job is not known"),
        (
            job.requeueable is True,
            "its owner lets it not be requeued" if job.requeueable is False else "whether it may be is not known",
        ),
        (job.het_job_id is None, "it is part of a heterogeneous job"),
        (job.restarts is not None, "how often it was requeued is not known"),
    )
    return next((why for holds, why in asked if not holds), None)


def comment_for(job: HeldJob, node: str, finding_id: str, summary: str) -> str:
    """Return what its owner is told: behind what stands there already, plain ASCII on one line."""
    ours = f"heeler: requeued off {plain(node)} (finding {plain(finding_id)[:MAX_ID]}): {plain(summary)}"
    theirs = job.admin_comment
    return (ours if not theirs else f"{theirs}; {ours}")[:MAX_COMMENT]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of each job: requeued, not, and those of which that is not known."""

    requeued: tuple[str, ...]
    not_requeued: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def words(self) -> str:
        """What came of it, in words."""
        told = (
            ("requeued", self.requeued),
            ("not requeued", self.not_requeued),
            ("not known whether requeued", self.unknown),
        )
        return "; ".join(f"{word}: {', '.join(jobs)}" for word, jobs in told if jobs) or "no job was requeued"


def outcome(before: Mapping[str, int], now: Mapping[str, HeldJob | None]) -> Outcome:
    """Return what became of jobs, by how often each had been requeued before and what Slurm says of it now.

    A job that Slurm does not know has ended, which is not what was asked for. One that is absent here was not read.
    """
    done, not_done, unknown = [], [], []
    for job_id, restarts in before.items():
        if job_id not in now:
            unknown.append(job_id)
            continue
        job = now[job_id]
        if job is not None and job.restarts is None:
            unknown.append(job_id)
        elif job is not None and job.restarts is not None and job.restarts > restarts:
            done.append(job_id)
        else:
            not_done.append(job_id)
    return Outcome(tuple(done), tuple(not_done), tuple(unknown))
