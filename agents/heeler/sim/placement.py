"""Jobs laid over the fleet as arrays: which job each GPU works for and what it would do if all were well."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from heeler.sim.effects import Ints
from heeler.sim.fleet import RAILS, Array, Fleet
from heeler.sim.jobs import Job
from heeler.sim.workload import Level

LEVELS = tuple(f.name for f in fields(Level))
FIRST_PID = 20_000


@dataclass(slots=True)
class Placement:
    """Arrays of shape (nodes, GPUs); `job` is a position in `jobs`, -1 where no job runs."""

    jobs: tuple[Job, ...]
    job: Ints
    level: dict[str, Array]
    compute_share: Array
    burst: Array
    quirk: Array  # factor on the SM activity of rank 0 in some jobs
    pids: Ints
    rail: Array  # (nodes, rails) bytes per second and direction
    rail_job: Ints  # (nodes, rails)


def place(fleet: Fleet, jobs: Sequence[Job]) -> Placement:
    """Return the arrays for the jobs that run now."""
    shape = fleet.shape
    out = Placement(
        jobs=tuple(jobs),
        job=np.full(shape, -1, np.int64),
        level={name: np.zeros(shape) for name in LEVELS},
        compute_share=np.zeros(shape),
        burst=np.ones(shape),
        quirk=np.ones(shape),
        pids=np.zeros(shape, np.int64),
        rail=np.zeros((shape[0], RAILS)),
        rail_job=np.full((shape[0], RAILS), -1, np.int64),
    )
    for number, job in enumerate(jobs):
        _lay(out, number, job)
    return out


def _lay(out: Placement, number: int, job: Job) -> None:
    nodes, gpus = np.array(job.nodes), np.array(job.gpus)
    where = np.ix_(nodes, gpus)
    stages = job.workload.levels
    # Ranks go over the stages in order: the first nodes hold the first stage.
    ranks = len(nodes) * len(gpus)
    stage = (np.arange(ranks) * len(stages) // ranks).reshape(len(nodes), len(gpus))
    for name in LEVELS:
        out.level[name][where] = np.array([getattr(level, name) for level in stages])[stage]
    out.job[where] = number
    out.compute_share[where] = job.workload.compute_share
    out.burst[where] = job.workload.burst
    out.pids[where] = FIRST_PID + number * 16 + gpus
    if job.workload.rank0_quirk:
        out.quirk[nodes[0], gpus[0]] = 0.894
    if len(nodes) > 1:
        rails = np.ix_(nodes, np.arange(job.workload.rails))
        out.rail[rails] = stages[0].ib
        out.rail_job[rails] = number
