"""Small simulated clusters for tests."""

from typing import Any

import numpy as np

from heeler.sim.faults import KINDS, Fault
from heeler.sim.fleet import Array, make_fleet
from heeler.sim.jobs import Job, make_schedule
from heeler.sim.simulation import Pace, Simulation
from heeler.sim.units import NS_PER_S

EPOCH_NS = 1_767_225_600 * NS_PER_S


def cluster(nodes: int = 64, seed: int = 3, **options: Any) -> Simulation:
    """Return a cluster without faults."""
    life_s = options.pop("life_s", None)
    window_s = options.pop("window_s", 10.0)
    fleet = make_fleet(nodes, seed)
    schedule = make_schedule(fleet, EPOCH_NS, mean_life_s=life_s)
    return Simulation(fleet, schedule, Pace(int(window_s * NS_PER_S)), **options)


def large_job(simulation: Simulation) -> Job:
    """Return the job of 16 nodes that is always there: DDP, power-capped."""
    return next(job for job in simulation.schedule.active(simulation.now_ns) if len(job.nodes) == 16)


def fault(simulation: Simulation, kind: str, after_s: float = 0.0, for_s: float | None = None, **where: Any) -> Fault:
    """Add a fault to the large job's second node and return it."""
    job = large_job(simulation)
    at_ns = simulation.now_ns + int(after_s * NS_PER_S)
    target = KINDS[kind].target
    made = Fault(
        kind,
        at_ns,
        None if for_s is None else at_ns + int(for_s * NS_PER_S),
        where.get("node", job.nodes[1]),
        where.get("gpu", 5) if target == "gpu" else None,
        where.get("port", 2) if target == "port" else None,
        job.id,
        where.get("params"),
    )
    simulation.inject(made)
    return made


def run(simulation: Simulation, windows: int) -> None:
    """Let some windows pass."""
    for _ in range(windows):
        for _ in simulation.next_window():
            pass


def column(simulation: Simulation, name: str, job: Job) -> Array:
    """Return a column of the last window for the GPUs of a job, (its nodes, its GPUs)."""
    assert simulation.window is not None
    group = simulation.window.mean if name in simulation.window.mean else simulation.window.last
    return np.asarray(group[name][np.ix_(job.nodes, job.gpus)], dtype=float)
