"""What the faults of a window do to each GPU and port: arrays that the physics reads."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heeler.sim.faults import Fault
from heeler.sim.fleet import RAILS, Array, Fleet
from heeler.sim.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Effects:
    """Shape (nodes, GPUs) unless said otherwise; neutral where nothing is wrong."""

    clock: Array  # factor on the SM clock, mean over the window
    clock_last: Array  # the same in the faulty part alone, for the minimum
    reasons: Ints  # bits added to the clock event reasons
    throttled_ns: Ints  # time slowed down for heat in this window
    braked_ns: Ints  # ... for power
    gap: Array  # factor on the time of a step by something other than the clock: the GPU sits idle meanwhile
    temp_c: Array  # temperature that a fault drives to, NaN where none
    lost: Flags
    pcie_width: Ints  # 0 where untouched
    pcie_gen: Ints
    zombie_ratio: Array  # share of the memory held by a process without a job
    remapped: Ints  # rows remapped in this window
    ecc: Ints  # uncorrectable errors in this window
    port_down: Flags  # (nodes, rails) at the end of the window
    port_lost: Array  # (nodes, rails) share of the window without link
    flaps: Ints  # (nodes, rails) times the link went down in this window
    symbol_errors: Ints  # (nodes, rails)
    rate_gbps: Array  # (nodes, rails), 0 where untouched
    silent: Flags  # (nodes,)
    job_slow: dict[str, float]
    job_drop: dict[str, float]  # share of the window in which all ranks do nothing
    job_hang: dict[str, float]


def no_effects(fleet: Fleet) -> Effects:
    """Return effects of nothing."""
    shape, ports = fleet.shape, (fleet.shape[0], RAILS)
    return Effects(
        clock=np.ones(shape),
        clock_last=np.ones(shape),
        reasons=np.zeros(shape, np.int64),
        throttled_ns=np.zeros(shape, np.int64),
        braked_ns=np.zeros(shape, np.int64),
        gap=np.ones(shape),
        temp_c=np.full(shape, np.nan),
        lost=np.zeros(shape, np.bool_),
        pcie_width=np.zeros(shape, np.int64),
        pcie_gen=np.zeros(shape, np.int64),
        zombie_ratio=np.zeros(shape),
        remapped=np.zeros(shape, np.int64),
        ecc=np.zeros(shape, np.int64),
        port_down=np.zeros(ports, np.bool_),
        port_lost=np.zeros(ports),
        flaps=np.zeros(ports, np.int64),
        symbol_errors=np.zeros(ports, np.int64),
        rate_gbps=np.zeros(ports),
        silent=np.zeros(shape[0], np.bool_),
        job_slow={},
        job_drop={},
        job_hang={},
    )


def effects_of(fleet: Fleet, faults: Iterable[Fault], begin_ns: int, end_ns: int) -> Effects:
    """Return what the faults do in a window. Several faults of one GPU add up."""
    out = no_effects(fleet)
    for fault in faults:
        share = fault.overlap(begin_ns, end_ns)
        if share > 0 or fault.kind == "ib_flap":
            _APPLY[fault.kind](out, fault, share, begin_ns, end_ns, fleet)
    return out


Apply = Callable[[Effects, Fault, float, int, int, Fleet], None]


def _slow_clock(out: Effects, fault: Fault, share: float, ratio: float, where: tuple[int, int | slice]) -> None:
    out.clock[where] = np.minimum(out.clock[where], 1.0 - share * (1.0 - ratio))
    out.clock_last[where] = np.minimum(out.clock_last[where], ratio)
    out.reasons[where] |= int(fault.param("reasons"))


def _thermal(out: Effects, fault: Fault, share: float, begin_ns: int, end_ns: int, fleet: Fleet) -> None:
    where = _gpu(fault)
    _slow_clock(out, fault, share, fault.param("clock_mhz") / fleet.model.sm_clock_max_mhz, where)
    out.temp_c[where] = fault.param("temp_c")
    out.throttled_ns[where] += int(share * (end_ns - begin_ns))


def _clock_lock(out: Effects, fault: Fault, share: float, _begin: int, _end: int, fleet: Fleet) -> None:
    _slow_clock(out, fault, share, fault.param("clock_mhz") / fleet.model.sm_clock_max_mhz, _gpu(fault))


def _power_brake(out: Effects, fault: Fault, share: float, begin_ns: int, end_ns: int, _fleet: Fleet) -> None:
    where = (fault.node, slice(None))
    _slow_clock(out, fault, share, fault.param("clock_ratio"), where)
    out.braked_ns[where] += int(share * (end_ns - begin_ns))


def _pcie_width(out: Effects, fault: Fault, share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    where = _gpu(fault)
    out.pcie_width[where] = int(fault.param("width"))
    out.pcie_gen[where] = int(fault.param("gen"))
    out.gap[where] = np.maximum(out.gap[where], 1.0 + share * (fault.param("slowdown_ratio") - 1.0))


def _cpu_starved(out: Effects, fault: Fault, share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    where = (fault.node, slice(None))
    out.gap[where] = np.maximum(out.gap[where], 1.0 + share * (fault.param("slowdown_ratio") - 1.0))


def _gpu_lost(out: Effects, fault: Fault, share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    out.lost[_gpu(fault)] = True
    if fault.param("hang") and fault.job_id:
        out.job_hang[fault.job_id] = max(share, out.job_hang.get(fault.job_id, 0.0))


def _ecc(out: Effects, fault: Fault, _share: float, begin_ns: int, _end: int, _fleet: Fleet) -> None:
    if fault.at_ns >= begin_ns:
        out.remapped[_gpu(fault)] += int(fault.param("rows"))
        out.ecc[_gpu(fault)] += 1


def _ib_flap(out: Effects, fault: Fault, _share: float, begin_ns: int, end_ns: int, _fleet: Fleet) -> None:
    where = _port(fault)
    for down, up in fault.flaps():
        out.flaps[where] += begin_ns <= down < end_ns
        out.port_down[where] |= down < end_ns < up
        out.port_lost[where] += max(0, min(up, end_ns) - max(down, begin_ns)) / max(1, end_ns - begin_ns)


def _ib_degraded(out: Effects, fault: Fault, share: float, begin_ns: int, end_ns: int, _fleet: Fleet) -> None:
    where = _port(fault)
    out.rate_gbps[where] = fault.param("rate_gbps")
    seconds = share * (end_ns - begin_ns) / NS_PER_S
    out.symbol_errors[where] += int(fault.param("symbol_errors_per_s") * seconds)


def _zombie(out: Effects, fault: Fault, _share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    out.zombie_ratio[_gpu(fault)] = fault.param("fb_ratio")


def _agent_silent(out: Effects, fault: Fault, _share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    out.silent[fault.node] = True


def _hang(out: Effects, fault: Fault, share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    out.job_hang[fault.job_id or ""] = share


def _job_slow(out: Effects, fault: Fault, share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    out.job_slow[fault.job_id or ""] = 1.0 + share * (fault.param("slowdown_ratio") - 1.0)


def _checkpoint(out: Effects, fault: Fault, share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    out.job_drop[fault.job_id or ""] = share


def _nothing(_out: Effects, _fault: Fault, _share: float, _begin: int, _end: int, _fleet: Fleet) -> None:
    """Do nothing: a line in the kernel log is all there is."""


def _gpu(fault: Fault) -> tuple[int, int]:
    return fault.node, fault.gpu or 0


def _port(fault: Fault) -> tuple[int, int]:
    return fault.node, fault.port or 0


_APPLY: dict[str, Apply] = {
    "thermal": _thermal,
    "power_brake": _power_brake,
    "clock_lock": _clock_lock,
    "pcie_width": _pcie_width,
    "cpu_starved": _cpu_starved,
    "ib_flap": _ib_flap,
    "ib_degraded": _ib_degraded,
    "gpu_lost": _gpu_lost,
    "xid": _nothing,
    "ecc": _ecc,
    "hang": _hang,
    "job_slow": _job_slow,
    "checkpoint": _checkpoint,
    "zombie": _zombie,
    "agent_silent": _agent_silent,
}
