"""One window of a cluster: from jobs and faults to what the GPUs and ports show.

In a synchronous job every rank waits for the slowest. If the slowest needs ``s`` times as long for a step, a
healthy rank works 1/s of the time and spins in a collective for the rest: its utilisation stays at one, its
tensor activity and power fall. A rank whose clock fell to ``f`` of its normal one does the same work in fewer
elapsed cycles: its activity *per cycle* is 1/(s f), above that of its peers, while its power falls. A rank that
is kept waiting by its host or its PCIe link is idle meanwhile and shows a gap in its own utilisation.
"""

from dataclasses import dataclass, field

import numpy as np

from heeler.sim.effects import Effects, Flags, Ints
from heeler.sim.fleet import RAILS, Array, Fleet, stream
from heeler.sim.placement import Placement
from heeler.sim.units import NS_PER_S

WARM_UP_S = 150.0
HEAT_S = 45.0  # time constant of a GPU's temperature
SPIN_SM = 0.13  # SM activity of a collective that waits
WINDOW_S = 10.0  # the noise figures are for means over this long
MTU = 4096
IDLE_BIT, POWER_CAP_BIT = 0x1, 0x4
PORT_LIMITS = {"symbol_error": 65_535, "link_error_recovery": 255, "link_downed": 255}


@dataclass(slots=True)
class Memory:
    """What outlives a window: temperatures and counters, (nodes, GPUs) or (nodes, rails)."""

    temp_c: Array
    energy_j: Array
    thermal_ns: Ints
    power_ns: Ints
    remapped: Ints
    remap_pending: Flags
    ecc: Ints
    port: dict[str, Ints]
    end_ns: int = 0


@dataclass(slots=True)
class Window:
    """What a window shows. Arrays are (nodes, GPUs), `port` and `port_*` (nodes, rails)."""

    begin_ns: int
    end_ns: int
    mean: dict[str, Array] = field(default_factory=dict)
    low: dict[str, Array] = field(default_factory=dict)
    high: dict[str, Array] = field(default_factory=dict)
    last: dict[str, Ints] = field(default_factory=dict)
    lost: Flags = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    port: dict[str, Ints] = field(default_factory=dict)
    port_down: Flags = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    port_rate: Array = field(default_factory=lambda: np.zeros((0, 0)))
    slowdown: dict[str, float] = field(default_factory=dict)


def first_memory(fleet: Fleet) -> Memory:
    """Return counters as they stand after some weeks of service, and GPUs at their idle temperature."""
    rng = stream(fleet.seed, "memory")
    shape, ports = fleet.shape, (fleet.shape[0], RAILS)
    traits = fleet.traits
    counters = {
        name: rng.integers(10**13, 10**15, ports)
        for name in ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
    }
    quiet = ("symbol_error", "link_error_recovery", "port_rcv_errors", "port_xmit_discards")
    counters |= {name: np.zeros(ports, np.int64) for name in quiet}
    # Every cable has been pulled at some time: a counter that isn't zero is no fault, one that grows is.
    counters["link_downed"] = rng.integers(0, 3, ports)
    counters["port_xmit_wait"] = rng.integers(0, 10**9, ports)
    return Memory(
        temp_c=traits.ambient_c + traits.c_per_w * fleet.model.idle_w,
        energy_j=rng.uniform(1e8, 1e9, shape),
        thermal_ns=np.zeros(shape, np.int64),
        power_ns=rng.integers(0, 10**12, shape),
        remapped=(rng.random(shape) < 0.01).astype(np.int64),
        remap_pending=np.zeros(shape, np.bool_),
        ecc=np.zeros(shape, np.int64),
        port=counters,
    )


@dataclass(slots=True)
class _Steps:
    """How a step of each job divides its time: arrays over GPUs, idle GPUs included with neutral values."""

    busy: Array  # share of the window in which the job runs its steps
    slow: Array  # time of a step over its normal time
    wait: Array  # share of the time that this rank waits for others
    gap: Array  # share of the time that this rank waits for its host
    working: Array  # share of the time that it works
    hang: Array


def _steps(placement: Placement, effects: Effects, begin_ns: int, end_ns: int) -> tuple[_Steps, Array]:
    jobs, of = placement.jobs, placement.job
    one_rank = (1.0 + placement.compute_share * (1.0 / effects.clock - 1.0)) * effects.gap
    one_rank = np.where(of < 0, 1.0, one_rank)
    slow = np.ones(len(jobs) + 1)  # the last entry is what -1 points to
    np.maximum.at(slow, of, one_rank)
    slow[-1] = 1.0
    busy, hang = np.ones(len(jobs) + 1), np.zeros(len(jobs) + 1)
    whole = np.ones(len(jobs) + 1)
    for number, job in enumerate(jobs):
        whole[number] = effects.job_slow.get(job.id, 1.0)
        age_s = ((begin_ns + end_ns) / 2 - job.start_ns) / NS_PER_S
        busy[number] = min(1.0, max(0.05, age_s / WARM_UP_S)) * (1.0 - effects.job_drop.get(job.id, 0.0))
        hang[number] = effects.job_hang.get(job.id, 0.0)
    total = slow[of] * whole[of]
    gap = (effects.gap - 1.0) / total
    working = one_rank / effects.gap / total
    hung = hang[of]
    return _Steps(
        busy=busy[of] * (1.0 - hung),
        slow=total,
        wait=np.clip(1.0 - working - gap, 0.0, 1.0),
        gap=gap,
        working=working,
        hang=hung,
    ), slow * whole


def advance(fleet: Fleet, memory: Memory, placement: Placement, effects: Effects, begin_ns: int, end_ns: int) -> Window:
    """Return a window and move `memory` to its end."""
    rng = stream(fleet.seed, "window", end_ns)
    window = Window(begin_ns, end_ns, lost=effects.lost)
    steps, slow = _steps(placement, effects, begin_ns, end_ns)
    window.slowdown = {job.id: float(slow[number]) for number, job in enumerate(placement.jobs)}
    noise = _Noise(rng, placement, (end_ns - begin_ns) / NS_PER_S)
    _activity(window, fleet, placement, effects, steps, noise)
    _power(window, fleet, placement, effects, steps, noise)
    _clocks(window, fleet, placement, effects, steps, rng)
    _heat(window, fleet, memory, effects, rng)
    _memory_use(window, fleet, placement, effects)
    _counters(window, fleet, memory, placement, effects)
    _ports(window, fleet, memory, placement, effects, steps, rng)
    memory.end_ns = end_ns
    return window


class _Noise:
    """Factors around one: a part that all ranks of a job share, and a heavy-tailed one of each GPU."""

    def __init__(self, rng: np.random.Generator, placement: Placement, window_s: float) -> None:
        self.rng = rng
        self.of = placement.job
        self.jobs = len(placement.jobs) + 1
        # Shorter windows hold fewer steps of the job, so their means scatter more.
        self.scale = placement.burst * min(4.0, (WINDOW_S / max(window_s, 0.1)) ** 0.5)

    def factor(self, own: float, shared: float) -> Array:
        """Return factors with these standard deviations in a window of 10 s."""
        common = self.rng.standard_normal(self.jobs)[self.of] * shared
        single = np.clip(self.rng.standard_t(5, self.of.shape) * 0.775, -6.0, 6.0) * own
        factors: Array = np.clip(1.0 + (common + single) * self.scale, 0.05, 3.0)
        return factors


def _activity(
    window: Window, fleet: Fleet, placement: Placement, effects: Effects, steps: _Steps, noise: _Noise
) -> None:
    level, traits, mean = placement.level, fleet.traits, window.mean
    per_cycle = steps.busy / (steps.slow * effects.clock)
    spin = steps.busy * steps.wait + steps.hang
    running = (placement.job >= 0).astype(np.float64)
    sm = level["sm_active"] * per_cycle * traits.sm * placement.quirk * noise.factor(0.004, 0.004)
    tensor = level["tensor"] * per_cycle * traits.activity * noise.factor(0.006, 0.008)
    mean["sm_active_ratio"] = np.clip(sm + SPIN_SM * spin * (level["sm_active"] > 0), 0.0, 1.0)
    mean["tensor_active_ratio"] = np.clip(tensor, 0.0, 1.0)
    mean["sm_occupancy_ratio"] = np.clip(level["sm_occupancy"] * per_cycle, 0.0, 1.0)
    done = steps.busy / steps.slow
    mean["dram_active_ratio"] = np.clip(level["dram"] * done * noise.factor(0.006, 0.006), 0.0, 1.0)
    mean["mem_util_ratio"] = np.clip(level["mem_util"] * done * noise.factor(0.01, 0.01), 0.0, 1.0)
    mean["util_ratio"] = _utilisation(level["util"], steps, noise)
    for column, name in (
        ("pcie_tx_bytes_per_s", "pcie_tx"),
        ("pcie_rx_bytes_per_s", "pcie_rx"),
        ("nvlink_tx_bytes_per_s", "nvlink"),
        ("nvlink_rx_bytes_per_s", "nvlink"),
    ):
        mean[column] = np.round(level[name] * done * noise.factor(0.01, 0.01) * running)


def _utilisation(level: Array, steps: _Steps, noise: _Noise) -> Array:
    """Return utilisation: waiting in a collective counts as busy, waiting for the host does not."""
    worked = steps.busy * (level * steps.working + (level > 0) * steps.wait)
    scatter = np.where(level < 0.99, noise.factor(0.01, 0.01), 1.0)
    return np.clip(worked * scatter + steps.hang * (level > 0), 0.0, 1.0)


def _power(window: Window, fleet: Fleet, placement: Placement, effects: Effects, steps: _Steps, noise: _Noise) -> None:
    model, level = fleet.model, placement.level
    normal = level["power_ratio"] * model.power_limit_w
    # Voltage falls with the clock, so power falls faster than the clock does.
    dynamic = np.maximum(normal - model.context_w, 0.0) * effects.clock**1.9
    active = np.minimum(normal, model.context_w + dynamic)
    wait_w = np.minimum(model.wait_w, np.maximum(normal, model.context_w))
    in_step = active * steps.working + wait_w * steps.wait + model.context_w * steps.gap
    rest = 1.0 - steps.busy - steps.hang
    power: Array = steps.busy * in_step + steps.hang * wait_w + rest * model.context_w
    power = np.where(placement.job >= 0, power * fleet.traits.power * noise.factor(0.0025, 0.003), model.idle_w)
    idle = placement.job < 0
    power = np.where(idle, model.idle_w * (1 + (fleet.traits.power - 1) * 3), power)
    power = np.where(idle & (effects.zombie_ratio > 0), model.context_w, power)
    power = np.minimum(power, model.power_limit_w * 1.005)
    highest: Array = np.minimum(power * 1.03, model.power_limit_w * 1.02)
    window.mean["power_w"] = np.round(power, 2)
    window.low["power_w"] = np.round(power * 0.97, 2)
    window.high["power_w"] = np.round(highest, 2)


def _clocks(
    window: Window,
    fleet: Fleet,
    placement: Placement,
    effects: Effects,
    steps: _Steps,
    rng: np.random.Generator,
) -> None:
    model = fleet.model
    context = (placement.job >= 0) | (effects.zombie_ratio > 0)
    capped = window.mean["power_w"] > 0.96 * model.power_limit_w
    held: Array = np.where(capped, fleet.traits.clock, 1.0) * model.sm_clock_max_mhz
    dither = np.where(capped, rng.uniform(-0.002, 0.0, context.shape), 0.0)
    clock: Array = np.where(context, held * (1.0 + dither) * effects.clock, model.sm_clock_idle_mhz)
    lowest: Array = np.where(context, held * effects.clock_last, model.sm_clock_idle_mhz)
    window.mean["sm_clock_mhz"] = np.round(clock, 1)
    window.low["sm_clock_mhz"] = np.round(np.minimum(clock, lowest) / 15) * 15
    window.high["sm_clock_mhz"] = np.round(np.maximum(clock, lowest) / 15) * 15
    window.mean["mem_clock_mhz"] = np.full(context.shape, model.mem_clock_mhz)
    reasons = np.where(capped & (steps.wait < 0.05), POWER_CAP_BIT, 0) | effects.reasons
    window.last["clock_event_reasons"] = np.where(context, reasons, IDLE_BIT | effects.reasons)


def _heat(window: Window, fleet: Fleet, memory: Memory, effects: Effects, rng: np.random.Generator) -> None:
    traits = fleet.traits
    target = traits.ambient_c + traits.c_per_w * window.mean["power_w"]
    target = np.where(np.isnan(effects.temp_c), target, effects.temp_c)
    if memory.end_ns == 0:  # jobs that run since long ago are warm already
        memory.temp_c = target
    keep = np.exp(-(window.end_ns - window.begin_ns) / NS_PER_S / HEAT_S)
    memory.temp_c = target + (memory.temp_c - target) * keep
    temp = memory.temp_c + rng.normal(0.0, 0.15, target.shape)
    window.mean["temp_c"] = np.round(temp, 2)
    window.mean["mem_temp_c"] = np.round(temp + 4.0 + 8.0 * window.mean["dram_active_ratio"], 2)
    window.low["temp_c"] = np.floor(temp)
    window.high["temp_c"] = np.ceil(temp)
    window.low["util_ratio"] = np.round(window.mean["util_ratio"] * 0.9, 2)
    window.high["util_ratio"] = np.minimum(1.0, np.round(window.mean["util_ratio"] * 1.1, 2))


def _memory_use(window: Window, fleet: Fleet, placement: Placement, effects: Effects) -> None:
    total = fleet.model.fb_total_bytes
    base = 0.008  # the driver's own
    used = np.maximum(placement.level["fb_ratio"], np.where(placement.job < 0, effects.zombie_ratio, 0.0))
    window.mean["fb_used_bytes"] = np.round((base + used * (1 - base)) * total)
    window.mean["fb_total_bytes"] = np.full(fleet.shape, float(total))


def _counters(window: Window, fleet: Fleet, memory: Memory, placement: Placement, effects: Effects) -> None:
    model, last = fleet.model, window.last
    seconds = (window.end_ns - window.begin_ns) / NS_PER_S
    alive = ~effects.lost
    memory.energy_j += window.mean["power_w"] * seconds * alive
    memory.thermal_ns += effects.throttled_ns
    memory.power_ns += effects.braked_ns
    capped = (window.last["clock_event_reasons"] & POWER_CAP_BIT) > 0
    memory.power_ns += np.where(capped, int(0.4 * seconds * NS_PER_S), 0)
    memory.remapped += effects.remapped
    memory.ecc += effects.ecc
    last["energy_j"] = memory.energy_j.astype(np.int64)
    last["violation_thermal_ns"] = memory.thermal_ns.copy()
    last["violation_power_ns"] = memory.power_ns.copy()
    last["remapped_rows_uncorrectable"] = memory.remapped.copy()
    memory.remap_pending |= effects.remapped > 0
    last["remap_pending"] = memory.remap_pending.astype(np.int64)
    last["ecc_uncorrected_volatile"] = memory.ecc.copy()
    last["ecc_uncorrected_aggregate"] = memory.ecc.copy()
    asleep = (placement.job < 0) & (effects.zombie_ratio == 0)  # an idle link may rest at generation 1
    gen = np.where(effects.pcie_gen > 0, effects.pcie_gen, model.pcie_gen)
    last["pcie_gen"] = np.where(asleep, 1, gen)
    last["pcie_width"] = np.where(effects.pcie_width > 0, effects.pcie_width, model.pcie_width)


def _ports(
    window: Window,
    fleet: Fleet,
    memory: Memory,
    placement: Placement,
    effects: Effects,
    steps: _Steps,
    rng: np.random.Generator,
) -> None:
    seconds = (window.end_ns - window.begin_ns) / NS_PER_S
    done = (steps.busy / steps.slow)[:, :RAILS] * (placement.rail_job >= 0)
    rate = placement.rail * fleet.traits.rail * done * rng.normal(1.0, 0.004, done.shape)
    rate = np.where(effects.rate_gbps > 0, np.minimum(rate, effects.rate_gbps * 1.25e8), rate)
    moved = (np.maximum(rate, 0.0) * seconds * (1.0 - np.minimum(1.0, effects.port_lost))).astype(np.int64)
    port = memory.port
    for name in ("port_xmit_data", "port_rcv_data"):
        port[name] += moved
    for name in ("port_xmit_packets", "port_rcv_packets"):
        port[name] += moved // MTU
    port["port_xmit_wait"] += (moved // 200_000) + rng.integers(0, 50, moved.shape)
    port["link_downed"] += effects.flaps
    port["symbol_error"] += effects.symbol_errors
    for name, limit in PORT_LIMITS.items():
        port[name] = np.minimum(port[name], limit)
    window.port = {name: value.copy() for name, value in port.items()}
    window.port_down = effects.port_down
    window.port_rate = np.where(effects.rate_gbps > 0, effects.rate_gbps, 400.0)
