"""A simulated cluster over time: messages out, nothing else. The same arguments give the same messages."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge

from heeler.bus import subjects
from heeler.sim.effects import effects_of
from heeler.sim.faults import Fault
from heeler.sim.fleet import Fleet
from heeler.sim.jobs import Schedule
from heeler.sim.messages import Samples, inventory, kernel_event, kernel_lines
from heeler.sim.outgoing import Outgoing
from heeler.sim.physics import Memory, Window, advance, first_memory
from heeler.sim.placement import Placement, place
from heeler.sim.slurm import SlurmFeed
from heeler.sim.units import NS_PER_S

BOOTED_BEFORE_NS = 9 * 24 * 3600 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Pace:
    """How often what is published.

    Windows end at whole multiples of their length by the wall clock, on all nodes at the same time, as the agents'
    do; what an agent says of a window comes up to ``delay_ns`` later.
    """

    window_ns: int = 10 * NS_PER_S
    status_every_ns: int = 60 * NS_PER_S
    delay_ns: int = 300_000_000


@dataclass(slots=True)
class Simulation:
    """A cluster, its jobs, its faults and its clock.

    ``muted`` nodes publish nothing here: real agents speak for them, but their jobs and their physics are ours.
    ``parts`` says who speaks: "agents", "slurm" or both.
    """

    fleet: Fleet
    schedule: Schedule
    pace: Pace = Pace()
    faults: list[Fault] = field(default_factory=list)
    muted: frozenset[int] = frozenset()
    parts: frozenset[str] = frozenset(("agents", "slurm"))
    now_ns: int = 0
    window: Window | None = None
    _placement: Placement | None = None
    _memory: Memory = field(init=False)
    _feed: SlurmFeed = field(init=False)
    _seqs: list[int] = field(init=False)
    _next_status: list[int] = field(init=False)
    _order: list[int] = field(init=False)
    _subjects: list[tuple[str, str]] = field(init=False)
    _job_ids: tuple[str, ...] = ()
    _silent: frozenset[int] = frozenset()
    _events_ns: int = 0

    def __post_init__(self) -> None:
        count = len(self.fleet.nodes)
        self.now_ns = self.now_ns or self.schedule.epoch_ns
        self.now_ns -= self.now_ns % self.pace.window_ns
        self._events_ns = self.now_ns
        self._memory = first_memory(self.fleet)
        self._feed = SlurmFeed(self.fleet, self.schedule)
        self._seqs = [0] * count
        cluster = self.fleet.cluster
        self._order = self.fleet.traits.phase.argsort(kind="stable").tolist()
        self._subjects = [
            (subjects.gpu_sample(cluster, node.name), subjects.ib_sample(cluster, node.name))
            for node in self.fleet.nodes
        ]
        self._next_status = [0] * count

    def opening(self) -> Iterator[Outgoing]:
        """Yield what is known at the start: jobs and nodes, and the inventory of every node."""
        yield from self.poll_slurm()
        if "agents" in self.parts:
            for node in self._speaking():
                message = inventory(self.fleet, node, self.now_ns, self._seq(node))
                yield self._agent(node, "Inventory", self.now_ns, message)

    def inject(self, fault: Fault) -> None:
        """Add a fault. What it does before the end of the last window is not made up for."""
        self.faults.append(fault)

    def next_window(self) -> Iterator[Outgoing]:
        """Move the clock by a window and return its samples, due in the window that follows, in order.

        They are made as they are taken: take them all before the window after the next.
        """
        begin, end = self.now_ns, self.now_ns + self.pace.window_ns
        self.now_ns = end
        if "agents" not in self.parts:
            return iter(())
        samples = self._advance(begin, end)
        return self._samples(samples, end, frozenset(self._speaking()))

    def events_until(self, now_ns: int) -> list[Outgoing]:
        """Return the kernel lines up to a time, each one once, in order, those of muted nodes included."""
        begin, self._events_ns = self._events_ns, max(now_ns, self._events_ns)
        return self._kernel(begin, now_ns) if "agents" in self.parts else []

    def poll_slurm(self) -> list[Outgoing]:
        """Return what the Slurm feed has to say at the clock's time."""
        return list(self._feed.poll(self.now_ns)) if "slurm" in self.parts else []

    def _advance(self, begin: int, end: int) -> Samples:
        placement = self.placed(end)
        self.faults = [fault for fault in self.faults if fault.end_ns is None or fault.end_ns > begin]
        effects = effects_of(self.fleet, self.faults, begin, end)
        self.window = advance(self.fleet, self._memory, placement, effects, begin, end)
        self._silent = frozenset(effects.silent.nonzero()[0].tolist())
        return Samples(self.fleet, placement, self.window)

    def placed(self, now_ns: int) -> Placement:
        """Return the jobs of a time laid over the fleet."""
        jobs = self.schedule.active(now_ns)
        ids = tuple(job.id for job in jobs)
        if self._placement is None or ids != self._job_ids:
            self._placement, self._job_ids = place(self.fleet, jobs), ids
        return self._placement

    def _samples(self, samples: Samples, end: int, speaking: frozenset[int]) -> Iterator[Outgoing]:
        """Yield what the agents say of a window, one node after the other: a large fleet is never held whole."""
        delays = (self.fleet.traits.phase * self.pace.delay_ns).astype(int).tolist()
        for node in self._order:
            if node not in speaking:
                continue
            due = end + delays[node]
            gpu_subject, ib_subject = self._subjects[node]
            yield Outgoing(due, "GpuSample", gpu_subject, samples.gpu(node, end, self._seq(node)))
            yield Outgoing(due, "IbSample", ib_subject, samples.ib(node, end, self._seq(node)))
            if end >= self._next_status[node]:
                self._next_status[node] = end + self.pace.status_every_ns
                status = samples.status(
                    node,
                    end,
                    self._seq(node),
                    started_ns=self.schedule.epoch_ns,
                    interval_ns=self.pace.status_every_ns,
                )
                yield self._agent(node, "AgentStatus", due, status)

    def _kernel(self, begin: int, end: int) -> list[Outgoing]:
        out: list[Outgoing] = []
        for fault in self.faults:
            if fault.node in self._silent:
                continue
            for moment, code in zip(fault.moments(), kernel_lines(fault), strict=True):
                if begin <= moment < end:
                    boot_ns = self.schedule.epoch_ns - BOOTED_BEFORE_NS
                    seq = self._seq(fault.node)
                    placement = self.placed(moment)
                    event = kernel_event(self.fleet, placement, fault, code, moment, seq, boot_ns=boot_ns)
                    out.append(self._agent(fault.node, "KernelEvent", moment, event))
        return sorted(out, key=lambda message: message.due_ns)

    def _agent(self, node: int, kind: str, due_ns: int, message: dict[str, object]) -> Outgoing:
        name, cluster = self.fleet.nodes[node].name, self.fleet.cluster
        subject = {
            "Inventory": subjects.inventory,
            "AgentStatus": subjects.agent_status,
            "KernelEvent": subjects.kernel_event,
        }[kind](cluster, name)
        msg_id = f"{kind}/{cluster}/{name}/{message['boot']}/{message['seq']}"
        return Outgoing(due_ns, kind, subject, message, msg_id)

    def _speaking(self) -> Iterator[int]:
        for node in range(len(self.fleet.nodes)):
            if node not in self.muted and node not in self._silent:
                yield node

    def _seq(self, node: int) -> int:
        self._seqs[node] += 1
        return self._seqs[node]


def timeline(simulation: Simulation, until_ns: int) -> Iterator[Outgoing]:
    """Yield everything up to a time in the order of due times, without waiting for it."""
    gc.set_threshold(100_000, 50, 1000)  # a window is millions of objects and no cycles
    yield from simulation.opening()
    held: Iterator[Outgoing] = iter(())
    while simulation.now_ns < until_ns:
        fresh = simulation.next_window()
        # What the agents say of the last window comes while this one runs.
        yield from merge(held, simulation.events_until(simulation.now_ns), key=_due)
        yield from simulation.poll_slurm()
        held = fresh
    yield from held


def _due(message: Outgoing) -> int:
    return message.due_ns
