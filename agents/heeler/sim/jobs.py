"""Which job runs where and since when: a schedule that is a function of seed and time."""

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from heeler.sim.fleet import GPUS_PER_NODE, Fleet, stream
from heeler.sim.units import NS_PER_S
from heeler.sim.workload import (
    ALLOCATED_IDLE,
    DDP_LARGE,
    DDP_SMALL,
    FSDP_OFFLOAD,
    INFERENCE,
    TP_PP,
    Workload,
)

GAP_NS = 45 * NS_PER_S  # between one job and the next on the same nodes
LARGE = 16  # nodes of the job that is always there when the fleet is big enough
_KINDS = ((DDP_LARGE, 0.45), (DDP_SMALL, 0.2), (TP_PP, 0.25), (FSDP_OFFLOAD, 0.1))
_SMALL_KINDS = ((DDP_SMALL, 0.4), (INFERENCE, 0.4), (ALLOCATED_IDLE, 0.2))
_USERS = (("ada", "nlp"), ("bela", "vision"), ("chidi", "nlp"), ("dora", "speech"), ("emil", "bio"))


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one job. `gpus` are positions on each of its nodes; `end_ns` None while nobody knows."""

    id: str
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    workload: Workload
    start_ns: int
    end_ns: int | None
    user: str
    account: str
    name: str

    @property
    def whole_nodes(self) -> bool:
        """Say whether it holds its nodes alone."""
        return len(self.gpus) == GPUS_PER_NODE


@dataclass(frozen=True, slots=True)
class Slot:
    """Some nodes on which one job follows the other."""

    number: int
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]


@dataclass(slots=True)
class Schedule:
    """All jobs of a fleet over time.

    `mean_life_s` None lets every job run for ever. `killed` holds jobs that ended before their time.
    """

    fleet: Fleet
    epoch_ns: int
    slots: tuple[Slot, ...]
    mean_life_s: float | None = None
    killed: dict[str, int] = field(default_factory=dict)
    _runs: dict[int, list[Job]] = field(default_factory=dict)

    def active(self, now_ns: int) -> list[Job]:
        """Return the jobs that run at a time, in the order of their slots."""
        found = []
        for slot in self.slots:
            job = self._last_started(slot, now_ns)
            end = self.killed.get(job.id, job.end_ns) if job else None
            if job and (end is None or now_ns < end):
                found.append(job)
        return found

    def kill(self, job_id: str, now_ns: int) -> None:
        """Let a job end now."""
        self.killed.setdefault(job_id, now_ns)

    def _last_started(self, slot: Slot, now_ns: int) -> Job | None:
        runs = self._runs.setdefault(slot.number, [])
        while not runs or ((end := runs[-1].end_ns) is not None and end + GAP_NS <= now_ns):
            last_end = runs[-1].end_ns if runs else None
            runs.append(self._draw(slot, len(runs), None if last_end is None else last_end + GAP_NS))
        at = bisect_right([job.start_ns for job in runs], now_ns)
        return runs[at - 1] if at else None

    def _draw(self, slot: Slot, run: int, start_ns: int | None) -> Job:
        rng = stream(self.fleet.seed, "job", slot.number, run)
        if start_ns is None:  # it was there long before we looked, and is warm
            start_ns = self.epoch_ns - int(rng.uniform(2.0, 30.0) * 3600) * NS_PER_S
        life_s = self.mean_life_s and max(120.0, rng.exponential(self.mean_life_s))
        end_ns = None
        if life_s:
            end_ns = (max(start_ns, self.epoch_ns) if run == 0 else start_ns) + int(life_s) * NS_PER_S
        first = slot.number == 0 and len(slot.nodes) >= 2
        workload = DDP_LARGE if first else _pick(rng, _KINDS if len(slot.nodes) > 1 else _SMALL_KINDS)
        user, account = _USERS[int(rng.integers(len(_USERS)))]
        return Job(
            id=str(81_000 + slot.number + run * len(self.slots)),
            nodes=slot.nodes,
            gpus=slot.gpus,
            workload=workload,
            start_ns=start_ns,
            end_ns=end_ns,
            user=user,
            account=account,
            name=f"{workload.name}-{int(rng.integers(100))}",
        )


def _pick(rng: np.random.Generator, kinds: tuple[tuple[Workload, float], ...]) -> Workload:
    weights = [weight for _, weight in kinds]
    return kinds[int(rng.choice(len(kinds), p=weights))][0]


def make_schedule(
    fleet: Fleet, epoch_ns: int, *, mean_life_s: float | None = None, first_nodes: tuple[str, ...] = ()
) -> Schedule:
    """Place jobs on a fleet: one of 16 nodes, others of 1 to many, one node shared by two, a few left idle.

    `first_nodes` are put into the first and largest job (the demo puts its real agents there).
    """
    order = [fleet.index[name] for name in first_nodes]
    rest = [i for i in range(len(fleet.nodes)) if i not in set(order)]
    stream(fleet.seed, "placement").shuffle(rest)
    order += rest
    rng = stream(fleet.seed, "sizes")
    slots: list[Slot] = []
    whole, at = tuple(range(GPUS_PER_NODE)), 0
    sizes = [1, 2, 4, 8, 16, *(size for size in (32, 64, 128, 256, 512) if size * 8 <= len(order))]
    idle = max(1, len(order) // 32) if len(order) > 2 else 0
    while at < len(order) - idle:
        left = len(order) - idle - at
        size = min(left, LARGE if at == 0 else int(rng.choice(sizes)))
        nodes = tuple(sorted(order[at : at + size]))
        if size == 1 and not any(len(slot.gpus) == 4 for slot in slots):
            slots += [
                Slot(len(slots), nodes, (0, 1, 2, 3)),
                Slot(len(slots) + 1, nodes, (4, 5, 6, 7)),
            ]
        else:
            slots.append(Slot(len(slots), nodes, whole))
        at += size
    return Schedule(fleet, epoch_ns, tuple(slots), mean_life_s)
