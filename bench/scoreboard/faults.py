"""Kinds of fault, each of a severity: the share of its speed that the victim loses while it is at it.

What a fault does to the job follows from the physics; only what the victim itself shows is written here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from heeler.sim.effects import Effects
from scoreboard.scenario import Change, Moment, Oddity, Scenario, Truth

S = 1_000_000_000
APP_CLOCKS, SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x2, 0x4, 0x8, 0x20, 0x40, 0x80
WINDOW_NS = 10 * S

Where = tuple[int, int | slice]


@dataclass(frozen=True, slots=True)
class Fault:
    """How a kind of fault is made. `whole_node`: all GPUs of a node are the victim."""

    about: str
    before: Callable[[Where, float], Change]
    after: Callable[[Where, float], Change] | None = None
    whole_node: bool = False
    least_nodes: int = 1


def _clock(where: Where, severity: float, reasons: int, *, heat: float = np.nan, held: str = "") -> Change:
    def change(m: Moment) -> None:
        m.effects.clock[where] = np.minimum(m.effects.clock[where], 1.0 - m.share * severity)
        m.effects.clock_last[where] = 1.0 - severity
        m.effects.reasons[where] |= reasons
        if not np.isnan(heat):
            m.effects.temp_c[where] = heat
        if held == "thermal":
            m.effects.throttled_ns[where] += int(m.share * WINDOW_NS)
        if held == "power":
            m.effects.braked_ns[where] += int(m.share * WINDOW_NS)

    return change


def _waits(where: Where, severity: float) -> Change:
    """The victim waits for something that is not a GPU: its step takes longer, and it is idle meanwhile."""

    def change(m: Moment) -> None:
        longer = 1.0 / (1.0 - severity)
        m.effects.gap[where] = np.maximum(m.effects.gap[where], 1.0 + m.share * (longer - 1.0))

    return change


def _stolen(where: Where, severity: float) -> Change:
    """Another process computes while the job waits for the victim: it is busy all the time."""

    def change(m: Moment) -> None:
        assert m.window is not None
        mean, level = m.window.mean, m.placement.level
        lost = m.share * severity
        mean["util_ratio"][where] = np.minimum(1.0, mean["util_ratio"][where] + lost)
        mean["sm_active_ratio"][where] = np.minimum(
            1.0, mean["sm_active_ratio"][where] + lost * level["sm_active"][where]
        )
        dynamic = level["power_ratio"][where] * m.fleet.model.power_limit_w - m.fleet.model.context_w
        mean["power_w"][where] = np.minimum(
            m.fleet.model.power_limit_w, mean["power_w"][where] + lost * np.maximum(dynamic, 0.0) * 0.8
        )
        mean["fb_used_bytes"][where] += 0.06 * m.fleet.model.fb_total_bytes

    return change


def _waits_and(where: Where, severity: float, shows: Callable[[Effects], None]) -> Change:
    """The victim waits, and shows why."""
    waits = _waits(where, severity)

    def change(m: Moment) -> None:
        waits(m)
        shows(m.effects)

    return change


def _narrow(where: Where, severity: float) -> Change:
    def shows(effects: Effects) -> None:
        effects.pcie_width[where] = 4 if severity >= 0.2 else 8

    return _waits_and(where, severity, shows)


def _slow_link(where: Where, severity: float) -> Change:
    def shows(effects: Effects) -> None:
        effects.pcie_gen[where] = 1 if severity >= 0.3 else 3

    return _waits_and(where, severity, shows)


def _rail(where: Where, severity: float) -> Change:
    def shows(effects: Effects) -> None:
        effects.rate_gbps[where] = 400.0 * (1.0 - severity)
        effects.symbol_errors[where] += 40

    return _waits_and(where, severity, shows)


def _counts(name: str, where: Where, per_window: float) -> Change:
    """A counter of the victim that grows."""

    def change(m: Moment) -> None:
        total = m.extra.setdefault(name, np.zeros(m.fleet.shape, np.int64))
        total[where] += int(m.share * per_window)

    return change


def _power_limit(where: Where, _severity: float) -> Change:
    """Someone set a lower limit: what the victim draws at its lower clock is the most that it may."""

    def change(m: Moment) -> None:
        assert m.window is not None
        limits = m.extra.setdefault("power_limit_w", np.full(m.fleet.shape, int(m.fleet.model.power_limit_w)))
        limits[where] = int(np.max(m.window.mean["power_w"][where]) / 0.99) or 1

    return change


FAULTS: dict[str, Fault] = {
    "thermal": Fault(
        "thermal slowdown, stated",
        lambda w, s: _clock(w, s, SW_THERMAL | HW_THERMAL, heat=88.0, held="thermal"),
    ),
    "thermal_sw": Fault("software thermal slowdown", lambda w, s: _clock(w, s, SW_THERMAL, heat=85.0, held="thermal")),
    "hw_slowdown": Fault("hardware slowdown of one GPU", lambda w, s: _clock(w, s, HW_SLOWDOWN, held="power")),
    "power_brake": Fault(
        "power brake of a node",
        lambda w, s: _clock(w, s, HW_SLOWDOWN | POWER_BRAKE, held="power"),
        whole_node=True,
        least_nodes=2,
    ),
    "clock_lock": Fault("clocks set low", lambda w, s: _clock(w, s, APP_CLOCKS)),
    "clock_silent": Fault("a low clock without any reason given", lambda w, s: _clock(w, s, 0)),
    "power_limit": Fault("a power limit set low", lambda w, s: _clock(w, s, SW_POWER_CAP), _power_limit),
    "pcie_width": Fault("PCIe link trained narrow", _narrow),
    "pcie_gen": Fault("PCIe link trained slow", _slow_link),
    "nvlink": Fault(
        "NVLink retraining again and again", _waits, lambda w, s: _counts("nvlink_recovery_errors", w, 2 + 60 * s)
    ),
    "ecc_storm": Fault(
        "corrected memory errors by the thousand",
        _waits,
        lambda w, s: _counts("ecc_corrected_volatile", w, 4000 + 9e4 * s),
    ),
    "host_gpu": Fault("a host that feeds one GPU too slowly", _waits),
    "host_node": Fault("a host that feeds its GPUs too slowly", _waits, whole_node=True, least_nodes=2),
    "stolen": Fault("a process left over that computes", _waits, _stolen),
    "rail": Fault("an InfiniBand rail at a lower rate", _rail, least_nodes=2),
}

SEVERITIES = (0.10, 0.15, 0.20, 0.30, 0.50)


def with_fault(scenario: Scenario, kind: str, severity: float, rng: np.random.Generator) -> Scenario:
    """Return the scenario with a fault somewhere in its job, from its third minute on."""
    fault = FAULTS[kind]
    begin_s = float(rng.uniform(150.0, 200.0))
    node = int(rng.choice(scenario.job.nodes))
    gpu = None if fault.whole_node else int(rng.choice(scenario.job.gpus))
    where: Where = (node, slice(None) if gpu is None else gpu)
    oddity = Oddity(
        kind,
        begin_s,
        before=fault.before(where, severity),
        after=fault.after(where, severity) if fault.after else None,
    )
    truth = Truth(kind, severity, node, gpu, begin_s)
    return replace(scenario, oddities=(*scenario.oddities, oddity), truth=truth)
