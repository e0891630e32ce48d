"""A scenario: one job on a small cluster, what is odd about it, and what is really wrong.

The physics is the simulator's: in a synchronous job all ranks wait for the slowest. A scenario adds what the simulator
does not know: workloads, faults of a given severity, oddities of healthy jobs, missing and late samples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from heeler.sim.effects import Effects
from heeler.sim.fleet import GPUS_PER_NODE, Fleet, Traits, make_fleet
from heeler.sim.hardware import MODELS
from heeler.sim.jobs import Job, Schedule, Slot
from heeler.sim.physics import Window
from heeler.sim.placement import Placement
from heeler.sim.units import NS_PER_S
from heeler.sim.workload import DDP_LARGE, DDP_SMALL, FSDP_OFFLOAD, INFERENCE, TP_PP, Level, Workload

EPOCH_NS = 1_760_000_000 * NS_PER_S
JOB = "81234"

FSDP = Workload(
    "fsdp",
    (Level(0.905, 0.99, 0.76, 0.42, 0.28, 0.42, 0.50, 0.90, nvlink=95e9, ib=7.4e9),),
    compute_share=0.75,
)
MOE = Workload(
    "moe",
    (Level(0.72, 0.96, 0.58, 0.24, 0.22, 0.40, 0.46, 0.84, nvlink=70e9, ib=6.1e9),),
    compute_share=0.65,
    burst=1.6,
)
WORKLOADS = (DDP_LARGE, DDP_SMALL, FSDP, FSDP_OFFLOAD, TP_PP, MOE, INFERENCE)


@dataclass(frozen=True, slots=True)
class Ranges:
    """From what a scenario is drawn. `report` ranges are wider than those that thresholds were tuned on."""

    nodes: tuple[int, ...]
    models: tuple[str, ...]
    noise: tuple[float, float]  # factor on the measured noise of a window
    spread: tuple[float, float]  # factor on the measured differences between healthy GPUs
    missing: tuple[float, float]  # share of samples that never come
    late: tuple[float, float]  # share of samples that come up to 8 s late
    first_seed: int


TUNE = Ranges((1, 2, 4, 8, 16, 32), ("a100", "h100", "h200"), (0.7, 1.4), (0.7, 1.5), (0.0, 0.02), (0.0, 0.05), 1_000)
REPORT = Ranges(
    (1, 2, 4, 8, 16, 32, 64, 128),
    ("a100", "h100", "h200", "b200"),
    (0.5, 2.0),
    (0.5, 2.2),
    (0.0, 0.05),
    (0.0, 0.1),
    500_000,
)

Change = Callable[["Moment"], None]


@dataclass(slots=True)
class Moment:
    """What an oddity may alter of one window. `effects` and `placement` go into the physics, `window` comes out."""

    number: int
    share: float  # of the window in which it is there
    rng: np.random.Generator
    fleet: Fleet
    placement: Placement
    effects: Effects
    window: Window | None = None
    extra: dict[str, np.ndarray] = field(default_factory=dict)  # last values beyond the simulator's, (nodes, GPUs)


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something that differs, harmful or not, from `begin_s` on for `lasts_s`. `before` and `after` the physics."""

    name: str
    begin_s: float = 0.0
    lasts_s: float = float("inf")
    before: Change | None = None
    after: Change | None = None

    def share(self, begin_s: float, end_s: float) -> float:
        """Return the share of a window in which it is there."""
        return max(0.0, min(end_s, self.begin_s + self.lasts_s) - max(begin_s, self.begin_s)) / (end_s - begin_s)


@dataclass(frozen=True, slots=True)
class Truth:
    """What is really wrong: the victim, as (node, GPU), (node, None) or (None, None) for the job."""

    kind: str
    severity: float
    node: int | None
    gpu: int | None
    begin_s: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster of one job. Times are seconds from the first window on."""

    name: str
    seed: int
    fleet: Fleet
    job: Job
    noise: float
    missing: float
    late: float
    lasts_s: float
    oddities: tuple[Oddity, ...] = ()
    truth: Truth | None = None
    second: Job | None = None  # another job on the same node

    @property
    def schedule(self) -> Schedule:
        """The jobs, running since before the first window."""
        jobs = [self.job, *([self.second] if self.second else [])]
        slots = tuple(Slot(number, job.nodes, job.gpus) for number, job in enumerate(jobs))
        schedule = Schedule(self.fleet, EPOCH_NS, slots)
        schedule._runs.update({number: [job] for number, job in enumerate(jobs)})  # noqa: SLF001 - no other way to name a job
        return schedule

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of the job in the scenario."""
        return len(self.job.nodes) * len(self.job.gpus) * self.lasts_s / 3600


def draw(
    name: str,
    seed: int,
    ranges: Ranges,
    *,
    lasts_s: float,
    nodes: int | None = None,
    workload: Workload | None = None,
    workloads: Sequence[Workload] = WORKLOADS,
    least_nodes: int = 1,
    age_s: float = 7200.0,
) -> tuple[Scenario, np.random.Generator]:
    """Return a healthy scenario drawn from some ranges, and the stream to draw the rest from."""
    rng = np.random.default_rng([ranges.first_seed, seed])
    count = nodes or int(rng.choice([size for size in ranges.nodes if size >= least_nodes]))
    fleet = make_fleet(count, seed, cluster="score", model=MODELS[str(rng.choice(ranges.models))])
    fleet = replace(fleet, traits=_scaled(fleet.traits, rng.uniform(*ranges.spread)))
    kind = workload or workloads[int(rng.integers(len(workloads)))]
    if kind is TP_PP and count < 2 and workload is None:
        kind = DDP_SMALL
    made = Scenario(
        name=name,
        seed=seed,
        fleet=fleet,
        job=_job(JOB, tuple(range(count)), tuple(range(GPUS_PER_NODE)), kind, age_s),
        noise=rng.uniform(*ranges.noise),
        missing=rng.uniform(*ranges.missing),
        late=rng.uniform(*ranges.late),
        lasts_s=lasts_s,
    )
    return made, rng


def shared_node(scenario: Scenario, other: Workload) -> Scenario:
    """Return the scenario with its first node divided between its job and another."""
    left, right = tuple(range(4)), tuple(range(4, GPUS_PER_NODE))
    mine = replace(scenario.job, nodes=(0,), gpus=left)
    return replace(scenario, job=mine, second=_job("81235", (0,), right, other, 7200.0))


def _job(name: str, nodes: tuple[int, ...], gpus: tuple[int, ...], workload: Workload, age_s: float) -> Job:
    start_ns = EPOCH_NS - int(age_s) * NS_PER_S
    return Job(name, nodes, gpus, workload, start_ns, None, "ada", "nlp", workload.name)


def _scaled(traits: Traits, factor: float) -> Traits:
    """Return traits that lie further from one another."""
    return replace(
        traits,
        power=1 + (traits.power - 1) * factor,
        activity=1 + (traits.activity - 1) * factor,
        sm=1 + (traits.sm - 1) * factor,
        clock=1 + (traits.clock - 1) * factor,
    )
