"""Messages for tests of processors, made by hand: samples of jobs with measured levels and noise, events, states.

    job = Job("81234", nodes=16)
    messages = job_samples(job, windows=60, change=thermal(node=4, gpu=3, ratio=0.58, since=30))
    findings = play(DetectStep(), messages)

Levels and spreads are those measured on healthy H100 jobs. The same seed gives the same messages.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heeler.bus import check, decoder_for, encode, shard_of, subjects
from heeler.detect import DetectStep
from heeler.engine import Inbound as Inbound  # noqa: PLC0414 - tests take it from here
from heeler.engine import Keyed, Step

S = 1_000_000_000
T0 = 1_760_000_000 * S  # a multiple of every window length used
CLUSTER = "test"
CHOSEN = decoder_for(DetectStep.choices)
MODEL = "NVIDIA H100 80GB HBM3"

Columns = dict[str, NDArray[np.float64]]
Change = Callable[[int, Columns], None]


@dataclass(frozen=True)
class Level:
    """What a healthy GPU of a job shows, and the spread of it: own (each window), fixed (each GPU)."""

    power_w: float = 688.0
    util: float = 1.0
    sm: float = 0.88
    tensor: float = 0.585
    clock_mhz: float = 1755.0
    reasons: int = 0x4  # the power cap bit is always set at full load
    own: float = 0.012
    fixed: float = 0.012


DDP = Level()
DDP_SMALL = Level(power_w=550.0, util=0.845, sm=0.635, tensor=0.193, clock_mhz=1980.0, reasons=0)
STAGE_0 = Level(power_w=420.0, util=0.99, sm=0.46, tensor=0.107, clock_mhz=1980.0, reasons=0)
STAGE_1 = Level(power_w=486.0, util=0.97, sm=0.52, tensor=0.156, clock_mhz=1980.0, reasons=0)
OFFLOAD = Level(power_w=187.0, util=0.13, sm=0.09, tensor=0.056, clock_mhz=1980.0, reasons=0, own=0.25)
SERVING_IDLE = Level(power_w=131.0, util=0.06, sm=0.03, tensor=0.004, clock_mhz=1980.0, reasons=0)


@dataclass(frozen=True)
class Job:
    """A job and where it runs. `level` may be one for all or one for each node."""

    id: str = "81234"
    nodes: int = 16
    gpus: int = 8
    level: Level | Sequence[Level] = DDP
    first_node: int = 0
    model: str = MODEL
    window_s: float = 10.0
    seed: int = 1
    start_ns: int = T0 - 3600 * S

    def node(self, number: int) -> str:
        """Return a node's name."""
        return f"n{self.first_node + number:04d}"

    def uuid(self, node: int, gpu: int) -> str:
        """Return a GPU's UUID."""
        return f"GPU-{self.first_node + node:08x}-{gpu:04x}-4000-8000-000000000000"

    def levels(self) -> list[Level]:
        """Return the level of each node."""
        return [self.level] * self.nodes if isinstance(self.level, Level) else list(self.level)


@dataclass
class Stream:
    """Makes the windows of one job."""

    job: Job
    rng: np.random.Generator = field(init=False)
    counters: dict[str, NDArray[np.float64]] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.job.seed)
        shape = (self.job.nodes, self.job.gpus)
        levels = self.job.levels()

        def per_node(name: str) -> NDArray[np.float64]:
            return np.repeat(np.array([[getattr(level, name)] for level in levels], float), self.job.gpus, axis=1)

        self.base = {name: per_node(name) for name in ("power_w", "util", "sm", "tensor", "clock_mhz", "reasons")}
        self.own, fixed = per_node("own"), per_node("fixed")
        self.traits = {name: 1 + fixed * self.rng.standard_normal(shape) for name in ("power_w", "sm", "tensor")}
        self.clock_trait = 1 + 0.004 * self.rng.standard_normal(shape)
        self.temp = self.rng.uniform(57.9, 72.3, shape)  # healthy peers of one job differ by that much
        self.counters = {"violation_thermal_ns": np.zeros(shape), "violation_power_ns": np.zeros(shape)}

    def window(self) -> Columns:
        """Return the columns of the next window, (nodes, GPUs) each."""
        shape, rng, base = (self.job.nodes, self.job.gpus), self.rng, self.base
        shared = 1 + 0.006 * rng.standard_normal()

        def noisy(name: str, scale: float) -> NDArray[np.float64]:
            noise = np.clip(rng.standard_t(5, shape) * 0.77, -5, 5) * self.own * scale
            return np.maximum(0, base[name] * self.traits[name] * (1 + noise) * shared)

        util = np.clip(base["util"] * (1 + 0.004 * rng.standard_normal(shape)), 0, 1)
        return {
            "power_w": noisy("power_w", 0.6),
            "sm_clock_mhz": np.minimum(1980, base["clock_mhz"] * self.clock_trait),
            "sm_active_ratio": np.clip(noisy("sm", 0.8), 0, 1),
            "tensor_active_ratio": np.clip(noisy("tensor", 1.0), 0, 1),
            "util_ratio": util,
            "temp_c": self.temp + rng.normal(0, 0.5, shape),
            "clock_event_reasons": base["reasons"].copy(),
            "pcie_gen": np.full(shape, 5.0),
            "pcie_width": np.full(shape, 16.0),
            "pcie_gen_max": np.full(shape, 5.0),
            "pcie_width_max": np.full(shape, 16.0),
            "power_limit_w": np.full(shape, 700.0),
            "sm_clock_max_mhz": np.full(shape, 1980.0),
            "ecc_uncorrected_volatile": np.zeros(shape),
            "ecc_corrected_volatile": np.zeros(shape),
            "nvlink_recovery_errors": np.zeros(shape),
            "nvlink_crc_errors": np.zeros(shape),
            "recovery_action": np.zeros(shape),
            "fb_used_bytes": np.full(shape, 7.1e10),
            **self.counters,
        }


MEANS = (
    "power_w",
    "sm_clock_mhz",
    "sm_active_ratio",
    "tensor_active_ratio",
    "util_ratio",
    "temp_c",
    "fb_used_bytes",
    "dram_active_ratio",
    "nvlink_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "mem_temp_c",
)


def job_samples(
    job: Job,
    *,
    windows: int,
    first: int = 0,
    change: Change | Sequence[Change] = (),
    delay_s: float = 0.3,
    states: Callable[[int, int], list[str] | None] = lambda _window, _node: None,
) -> list[Inbound]:
    """Return the samples of some windows, in the order in which the server stamps them.

    `change(window, columns)` may alter the (nodes, GPUs) columns of a window in place; NaN there becomes null.
    """
    stream, changes = Stream(job), [change] if callable(change) else list(change)
    found: list[Inbound] = []
    window_ns = int(job.window_s * S)
    for window in range(first + windows):
        columns = {name: values.copy() for name, values in stream.window().items()}
        for alter in changes:
            alter(window, columns)
        for name in stream.counters:
            stream.counters[name] = columns[name].copy()
        if window < first:
            continue
        end_ns = T0 + (window + 1) * window_ns
        found += [
            node_sample(
                job,
                node,
                end_ns,
                columns,
                window,
                delay_s=delay_s * (1 + node / job.nodes),
                states=states(window, node),
            )
            for node in range(job.nodes)
        ]
    return sorted(found, key=lambda m: m.ts_ns)


def node_sample(
    job: Job,
    node: int,
    end_ns: int,
    columns: Columns,
    seq: int,
    *,
    delay_s: float = 0.3,
    states: list[str] | None = None,
) -> Inbound:
    """Return one node's JobSample of a window from (nodes, GPUs) columns."""

    def values(name: str) -> list[Any]:
        return [None if v != v else v for v in np.round(columns[name][node], 4).tolist()]

    gpus = range(columns["power_w"].shape[1])
    last = {name: [None if v is None else int(v) for v in values(name)] for name in columns if name not in MEANS}
    data: dict[str, Any] = {
        "v": 1,
        "cluster": CLUSTER,
        "node": job.node(node),
        "ts": end_ns,
        "boot": f"boot-{job.node(node)}",
        "seq": seq,
        "window_ns": int(job.window_s * S),
        "reads": max(1, int(job.window_s)),
        "gpu": {
            "uuid": [job.uuid(node, gpu) for gpu in gpus],
            "index": list(gpus),
            "pci": [pci(gpu) for gpu in gpus],
            "minor": list(gpus),
            "model": [job.model] * len(gpus),
        },
        "mean": {name: values(name) for name in MEANS if name in columns},
        "last": last,
        "job": [job.id] * len(gpus),
        "job_source": ["process"] * len(gpus),
        "shard": shard_of(job.id),
        "state": states or ["ok"] * len(gpus),
    }
    subject = subjects.job_sample(CLUSTER, str(data["shard"]), job.node(node))
    return inbound("JobSample", subject, data, end_ns + int(delay_s * S))


def pci(gpu: int) -> str:
    """Return a GPU's PCI address."""
    return f"0000:{0x18 + 8 * gpu:02x}:00"


def inbound(kind: str, subject: str, data: dict[str, Any], ts_ns: int) -> Inbound:
    """Return a message as the bus would deliver it: checked against the contract, with what detect has chosen of it."""
    if kind in DetectStep.choices:
        return Inbound(kind, subject, CHOSEN(kind, encode(kind, data)), ts_ns)
    return Inbound(kind, subject, check(kind, data), ts_ns)


def job_event(job: Job, event: str = "started", *, ts_ns: int = T0, **more: Any) -> Inbound:
    """Return a JobEvent."""
    data = {
        "v": 1,
        "cluster": CLUSTER,
        "ts": ts_ns,
        "event": event,
        "job_id": job.id,
        "nodes": [job.node(n) for n in range(job.nodes)],
        "start_ts": job.start_ns,
        "state": "RUNNING" if event != "ended" else "COMPLETED",
        **more,
    }
    return inbound("JobEvent", subjects.job_event(CLUSTER, job.id), data, ts_ns)


def kernel_event(node: str, code: int | None, *, ts_ns: int, seq: int, kind: str = "xid", **more: Any) -> Inbound:
    """Return a JobKernelEvent."""
    data = {
        "v": 1,
        "cluster": CLUSTER,
        "node": node,
        "ts": ts_ns,
        "boot": f"boot-{node}",
        "seq": seq,
        "kind": kind,
        "code": code,
        "pci": pci(3),
        "trusted": True,
        "witness": ["kmsg"],
        "jobs": [],
        "shard": shard_of(node),
        **more,
    }
    subject = subjects.job_kernel_event(CLUSTER, str(data["shard"]), node)
    return inbound("JobKernelEvent", subject, {k: v for k, v in data.items() if v is not None}, ts_ns + S // 100)


def ib_sample(node: str, ports: Sequence[dict[str, Any]], *, ts_ns: int, seq: int = 0, boot: str = "") -> Inbound:
    """Return an IbSample. A port needs only what the test is about."""
    told = [
        {"device": f"mlx5_{at}", "port": 1, "state": "active", "counters": {}} | port for at, port in enumerate(ports)
    ]
    data = {
        "v": 1,
        "cluster": CLUSTER,
        "node": node,
        "ts": ts_ns,
        "boot": boot or f"boot-{node}",
        "seq": seq,
        "ports": told,
    }
    return inbound("IbSample", subjects.ib_sample(CLUSTER, node), data, ts_ns + S // 10)


def agent_status(node: str, *, ts_ns: int, interval_s: float = 30.0, boot: str = "") -> Inbound:
    """Return an AgentStatus."""
    data = {
        "v": 1,
        "cluster": CLUSTER,
        "node": node,
        "ts": ts_ns,
        "boot": boot or f"boot-{node}",
        "seq": ts_ns // S,
        "interval_ns": int(interval_s * S),
        "collectors": {},
    }
    return inbound("AgentStatus", subjects.agent_status(CLUSTER, node), data, ts_ns + S // 10)


def inventory(job: Job, node: int, *, ts_ns: int = T0) -> Inbound:
    """Return the Inventory of a job's node."""
    gpus = [
        {"uuid": job.uuid(node, gpu), "index": gpu, "minor": gpu, "pci": pci(gpu), "model": job.model}
        for gpu in range(job.gpus)
    ]
    name = job.node(node)
    data = {"v": 1, "cluster": CLUSTER, "node": name, "ts": ts_ns, "boot": f"boot-{name}", "seq": 0, "gpus": gpus}
    return inbound("Inventory", subjects.inventory(CLUSTER, name), data, ts_ns)


def node_state(node: str, *, ts_ns: int, state: str = "allocated", flags: Sequence[str] = (), **more: Any) -> Inbound:
    """Return a NodeState."""
    data = {"v": 1, "cluster": CLUSTER, "node": node, "ts": ts_ns, "state": state, "flags": list(flags), **more}
    return inbound("NodeState", subjects.node_state(CLUSTER, node), data, ts_ns)


# Faults and traps, as changes of windows.


def thermal(*, node: int, gpu: int, ratio: float, since: int = 0, until: int = 1 << 30, bits: int = 0x60) -> Change:
    """A GPU whose clock falls to a share of its own: its peers wait for it."""

    def change(window: int, c: Columns) -> None:
        if not since <= window < until:
            return
        at = (node, gpu)
        c["sm_clock_mhz"][at] *= ratio
        c["clock_event_reasons"][at] = int(c["clock_event_reasons"][at]) & ~0x4 | bits
        c["violation_thermal_ns"][at] += 4 * S if bits & 0x60 else 0
        c["temp_c"][at] = 88.0
        slower = 1 / ratio
        for name in ("sm_active_ratio", "tensor_active_ratio"):
            mine = c[name][at]
            c[name] /= slower  # less work per second for everyone ...
            c[name][at] = min(1.0, mine)  # ... but the victim is the busy one
        mine_w = c["power_w"][at]
        c["power_w"] = 120 + (c["power_w"] - 120) * (0.45 + 0.55 * ratio)
        c["power_w"][at] = 120 + (mine_w - 120) * ratio**1.6

    return change


def stands(
    *, since: int, until: int = 1 << 30, spins: bool = True, node: Any = slice(None), gpu: Any = slice(None)
) -> Change:
    """GPUs that do nothing any more: waiting in a collective at 100 %, or idle while a process holds them."""

    def change(window: int, c: Columns) -> None:
        if since <= window < until:
            levels = {"util_ratio": 1.0, "power_w": 125.0, "sm_active_ratio": 0.12} if spins else {"util_ratio": 0.0}
            levels = {"power_w": 118.0, "sm_active_ratio": 0.0, "tensor_active_ratio": 0.0, **levels}
            for name, value in levels.items():
                c[name][node, gpu] = value
            c["clock_event_reasons"][node, gpu] = 0

    return change


def scale(
    name: str, factor: float, *, node: Any = slice(None), gpu: Any = slice(None), since: int = 0, until: int = 1 << 30
) -> Change:
    """Multiply a column of some GPUs."""

    def change(window: int, c: Columns) -> None:
        if since <= window < until:
            c[name][node, gpu] *= factor

    return change


def put(
    name: str, value: float, *, node: Any = slice(None), gpu: Any = slice(None), since: int = 0, until: int = 1 << 30
) -> Change:
    """Set a column of some GPUs."""

    def change(window: int, c: Columns) -> None:
        if since <= window < until:
            c[name][node, gpu] = value

    return change


# Running.


@dataclass
class Played:
    """What a step said, with its own findings read back as the bus would do."""

    findings: list[Inbound] = field(default_factory=list)

    def of(self, *kinds: str, state: str | None = None) -> list[dict[str, Any]]:
        """Return the findings of some kinds (all without any), in order."""
        return [
            f.data
            for f in self.findings
            if (not kinds or f.data["kind"] in kinds) and (state is None or f.data["state"] == state)
        ]

    def opened(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the findings that were opened."""
        return self.of(*kinds, state="open")

    def last(self, *kinds: str) -> dict[str, dict[str, Any]]:
        """Return the last word on each finding, by id."""
        return {f["id"]: f for f in self.of(*kinds)}

    def kinds(self) -> set[str]:
        """Return the kinds of all findings."""
        return {f.data["kind"] for f in self.findings}


class Player:
    """Feeds messages to a step; what it publishes comes back as on the bus, twins dropped by id."""

    def __init__(self, step: Step, *, echo: bool = True) -> None:
        self.keyed = Keyed(step)
        self.echo = echo
        self.ids: set[str] = set()
        self.played = Played()

    def feed(self, messages: Iterable[Inbound], *, context: bool = False) -> "Player":
        """Feed some messages."""
        for message in messages:
            if not context:
                self.advance(message.ts_ns)
            self._take(self.keyed.on(message, context=context), message.ts_ns)
        return self

    def advance(self, now_ns: int) -> "Player":
        """Let time pass, tick by tick, so that what a tick says is read back before the next."""
        step_ns = int((self.keyed.step.tick_s or 1) * S)
        now = self.keyed.now_ns
        if now == 0 or now_ns - now > 24 * 3600 * S:
            now = now_ns - now_ns % step_ns
        while now < now_ns:
            now = min(now_ns, now - now % step_ns + step_ns)
            self._take(self.keyed.advance(now), now)
        return self

    def _take(self, events: Iterable[tuple[str, Any]], ts_ns: int) -> None:
        for _, event in list(events):
            if event.id in self.ids:
                continue
            self.ids.add(event.id)
            made = inbound(event.kind, event.subject, dict(event.data), max(ts_ns, self.keyed.now_ns))
            self.played.findings.append(made)
            if self.echo:
                self._take(self.keyed.on(made), made.ts_ns)


def play(step: Step, messages: Iterable[Inbound], *, until_ns: int | None = None, echo: bool = True) -> Played:
    """Return what a step says to some messages."""
    player = Player(step, echo=echo).feed(messages)
    if until_ns is not None:
        player.advance(until_ns)
    return player.played


def merged(*streams: Iterable[Inbound]) -> list[Inbound]:
    """Return several streams in the order of the server's stamps."""
    return sorted((m for stream in streams for m in stream), key=lambda m: m.ts_ns)


CONTEXT = ("Finding", "JobEvent", "NodeState", "AgentStatus", "Inventory", "SlurmTable")


def cold_twin(step: Step, messages: Sequence[Inbound], warm: Played, at_ns: int) -> list[dict[str, Any]]:
    """Return what an instance says after a cold start, standing by while a warm one speaks.

    It reads the newest of every subject, then `memory_s` of history, as the live engine does.
    """
    player = Player(step, echo=False)
    begin = at_ns - int(step.memory_s * S)
    everything = merged(messages, warm.findings)
    before = [m for m in everything if m.ts_ns <= at_ns]
    context = {m.subject: m for m in before if m.kind in CONTEXT}
    player.keyed.now_ns = begin
    player.feed(sorted(context.values(), key=lambda m: (m.kind, m.ts_ns)), context=True)
    player.feed(m for m in before if m.kind not in CONTEXT and m.ts_ns >= begin)
    player.advance(at_ns)
    said = len(player.played.findings)
    player.feed(m for m in everything if m.ts_ns > at_ns)
    return [f.data for f in player.played.findings[said:]]
