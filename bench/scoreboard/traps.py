"""Healthy jobs that look odd. Levels and spreads are those measured on healthy H100 nodes where there are any."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from heeler.sim.workload import DDP_LARGE, DDP_SMALL, FSDP_OFFLOAD, INFERENCE, TP_PP
from scoreboard.faults import HW_SLOWDOWN, POWER_BRAKE
from scoreboard.scenario import MOE, Change, Moment, Oddity, Ranges, Scenario, draw, shared_node

LASTS_S = 900.0
Trap = Callable[[int, Ranges], Scenario]


def _drawn(name: str, seed: int, ranges: Ranges, **more: object) -> tuple[Scenario, np.random.Generator]:
    return draw(name, seed, ranges, lasts_s=LASTS_S, **more)  # type: ignore[arg-type]


def _with(scenario: Scenario, *oddities: Oddity) -> Scenario:
    return replace(scenario, oddities=(*scenario.oddities, *oddities))


def stages(seed: int, ranges: Ranges) -> Scenario:
    """Pipeline stages that differ by half in what they do; sometimes the last stage is one node."""
    scenario, rng = _drawn(
        "stages", seed, ranges, workload=TP_PP, nodes=int(np.random.default_rng(seed).choice((2, 4, 8, 16)))
    )
    levels = TP_PP.levels
    parts = int(rng.choice((2, 4)))
    many = [
        replace(
            levels[0],
            tensor=levels[0].tensor * f,
            sm_active=levels[0].sm_active * (0.9 + 0.1 * f),
            power_ratio=levels[0].power_ratio * (0.9 + 0.1 * f),
        )
        for f in np.linspace(1.0, rng.uniform(1.2, 1.6), parts)
    ]
    return replace(scenario, job=replace(scenario.job, workload=replace(TP_PP, levels=tuple(many))))


def last_stage(seed: int, ranges: Ranges) -> Scenario:
    """One node of many holds the last stage with the loss."""
    scenario, _ = _drawn("last_stage", seed, ranges, workload=TP_PP, nodes=8)
    first, last = TP_PP.levels
    return replace(scenario, job=replace(scenario.job, workload=replace(TP_PP, levels=(first,) * 7 + (last,))))


def rank0(seed: int, ranges: Ranges) -> Scenario:
    """Rank 0 has a tenth less SM activity: it does what no other rank does."""
    scenario, rng = _drawn("rank0", seed, ranges, workload=DDP_SMALL)
    factor = float(rng.uniform(0.88, 0.93))

    def quirk(m: Moment) -> None:
        m.placement.quirk[0, 0] = factor

    return _with(scenario, Oddity("rank0", before=quirk))


def power_cap(seed: int, ranges: Ranges) -> Scenario:
    """The power cap bit is set on every GPU all the time: normal at full load."""
    return _drawn("power_cap", seed, ranges, workload=DDP_LARGE)[0]


def heat(seed: int, ranges: Ranges) -> Scenario:
    """Healthy GPUs of one job are between 58 and 72 degrees, one of them much warmer and none slower."""
    scenario, rng = _drawn("heat", seed, ranges, workload=DDP_LARGE)
    hot = int(rng.integers(8))

    def warm(m: Moment) -> None:
        m.effects.temp_c[0, hot] = 81.0

    return _with(scenario, Oddity("heat", before=warm))


def slow_rail(seed: int, ranges: Ranges) -> Scenario:
    """One rail carries 3 % less than the others."""
    scenario, rng = _drawn("slow_rail", seed, ranges, workload=DDP_LARGE, nodes=8)
    rail = int(rng.integers(8))

    def less(m: Moment) -> None:
        m.placement.rail[0, rail] *= 0.97 if m.number == 0 else 1.0

    return _with(scenario, Oddity("slow_rail", before=less))


def two_jobs(seed: int, ranges: Ranges) -> Scenario:
    """Two jobs share a node, one idle and one at full load."""
    scenario, _ = _drawn("two_jobs", seed, ranges, nodes=1, workload=DDP_LARGE)
    return shared_node(scenario, INFERENCE)


def offload(seed: int, ranges: Ranges) -> Scenario:
    """Offload to the host: busy in bursts, a tenth of the time."""
    return _drawn("offload", seed, ranges, workload=FSDP_OFFLOAD)[0]


def _blank(columns: tuple[str, ...], node: int, gpu: int, value: float = np.nan) -> Change:
    def change(m: Moment) -> None:
        assert m.window is not None
        for name in columns:
            m.window.mean[name] = m.window.mean[name].astype(float)
            m.window.mean[name][node, gpu] = value

    return change


def blanks(seed: int, ranges: Ranges) -> Scenario:
    """The profiling counters of a GPU are not there any more after an XID, the GPU works on."""
    scenario, rng = _drawn("blanks", seed, ranges)
    change = _blank(("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"), 0, int(rng.integers(8)))
    return _with(scenario, Oddity("blanks", 200.0, after=change))


def zeros(seed: int, ranges: Ranges) -> Scenario:
    """The profiling counters of a GPU read 0 for ever while it works: a broken sensor."""
    scenario, rng = _drawn("zeros", seed, ranges, workload=DDP_LARGE)
    change = _blank(("sm_active_ratio", "tensor_active_ratio"), 0, int(rng.integers(8)), 0.0)
    return _with(scenario, Oddity("zeros", 200.0, after=change))


def reload_driver(seed: int, ranges: Ranges) -> Scenario:
    """Nothing can be read of a node for two minutes."""
    scenario, _ = _drawn("reload_driver", seed, ranges)

    def nothing(m: Moment) -> None:
        assert m.window is not None
        for columns in (m.window.mean, m.window.low, m.window.high):
            for name, values in columns.items():
                if name != "fb_used_bytes":  # the simulator's processes are made from it
                    columns[name] = values.astype(float)
                    columns[name][0] = np.nan

    return _with(scenario, Oddity("reload_driver", 200.0, 120.0, after=nothing))


def _levels(factor: float, *, tensor: float = 1.0) -> Change:
    """All ranks do something else for a while."""

    def change(m: Moment) -> None:
        for name in ("sm_active", "dram", "nvlink", "ib"):
            m.placement.level[name] = m.placement.level[name] * (1 - m.share * (1 - factor))
        m.placement.level["tensor"] = m.placement.level["tensor"] * (1 - m.share * (1 - factor * tensor))
        m.placement.level["power_ratio"] = m.placement.level["power_ratio"] * (1 - m.share * (1 - factor) * 0.6)

    return change


def evaluation(seed: int, ranges: Ranges) -> Scenario:
    """An evaluation in the middle of training, on rank 0's node alone the others wait; then on all."""
    scenario, rng = _drawn("evaluation", seed, ranges)
    alone = float(rng.uniform(15.0, 25.0))

    def others_wait(m: Moment) -> None:
        away = np.ones(m.fleet.shape, bool)
        away[0, 0] = False
        for name in ("sm_active", "tensor", "power_ratio"):
            m.placement.level[name] = np.where(
                away, m.placement.level[name] * (1 - m.share * 0.6), m.placement.level[name]
            )

    return _with(
        scenario,
        Oddity("evaluation", 300.0, 90.0, before=_levels(0.6, tensor=0.5)),
        Oddity("rank 0 alone", 392.0, alone, before=others_wait),
    )


def checkpoints(seed: int, ranges: Ranges) -> Scenario:
    """A checkpoint every three minutes: all ranks drop together, one node comes back last."""
    scenario, rng = _drawn("checkpoints", seed, ranges)
    length = float(rng.uniform(8.0, 40.0))

    def drop(m: Moment) -> None:
        m.effects.job_drop[scenario.job.id] = m.share

    return _with(scenario, *(Oddity("checkpoint", at, length, before=drop) for at in np.arange(150.0, LASTS_S, 180.0)))


def dying(seed: int, ranges: Ranges) -> Scenario:
    """The job ends: ranks stop one after the other and keep their memory for a while."""
    scenario, rng = _drawn("dying", seed, ranges)
    order = rng.permutation(scenario.fleet.shape[0] * 8)

    def stop(m: Moment) -> None:
        gone = order[: int(len(order) * min(1.0, 0.25 + 0.15 * (m.number - 50)))]
        for name in m.placement.level:
            if name != "fb_ratio":
                level = m.placement.level[name].copy()
                level.reshape(-1)[gone] = 0.1 if name == "power_ratio" else 0.0
                m.placement.level[name] = level

    return _with(scenario, Oddity("dying", 500.0, before=stop))


def all_throttled(seed: int, ranges: Ranges) -> Scenario:
    """Cooling or power of a whole hall: every node is slow, so none is to blame."""
    scenario, rng = _drawn("all_throttled", seed, ranges, nodes=16)
    ratio = rng.uniform(0.6, 0.85)

    def brake(m: Moment) -> None:
        m.effects.clock *= 1 - m.share * (1 - ratio)
        m.effects.clock_last *= ratio
        m.effects.reasons |= HW_SLOWDOWN | POWER_BRAKE

    return _with(scenario, Oddity("all_throttled", 200.0, before=brake))


def experts(seed: int, ranges: Ranges) -> Scenario:
    """Experts are loaded unevenly, and the load wanders from GPU to GPU."""
    scenario, rng = _drawn("experts", seed, ranges, workload=MOE)
    period = rng.uniform(6, 20, scenario.fleet.shape)
    phase = rng.uniform(0, 2 * np.pi, scenario.fleet.shape)
    size = float(rng.uniform(0.04, 0.09))

    def wander(m: Moment) -> None:
        factor = 1 + size * np.sin(2 * np.pi * m.number / period + phase)
        for name in ("sm_active", "tensor"):
            m.placement.level[name] = m.placement.level[name] * factor
        m.placement.level["power_ratio"] = m.placement.level["power_ratio"] * (1 + (factor - 1) * 0.5)

    return _with(scenario, Oddity("experts", before=wander))


def serving(seed: int, ranges: Ranges) -> Scenario:
    """Replicas that serve requests: each busy on its own, between idle and full."""
    scenario, rng = _drawn("serving", seed, ranges, workload=INFERENCE)
    shape = scenario.fleet.shape
    load = np.clip(rng.normal(0.75, 0.12, shape), 0.3, 1.0)

    def requests(m: Moment) -> None:
        nonlocal load
        load = np.clip(load + m.rng.normal(0.0, 0.12, shape) - 0.3 * (load - 0.75), 0.1, 1.2)
        for name in ("sm_active", "tensor", "util", "dram"):
            m.placement.level[name] = np.clip(m.placement.level[name] * load, 0.0, 1.0)
        m.placement.level["power_ratio"] = m.placement.level["power_ratio"] * (0.5 + 0.5 * load)

    return _with(scenario, Oddity("serving", before=requests))


def warm_up(seed: int, ranges: Ranges) -> Scenario:
    """The first minutes: compiled at different times, GPUs still cold."""
    scenario, rng = _drawn("warm_up", seed, ranges, age_s=0.0)
    ready = rng.uniform(60, 240, scenario.fleet.shape)

    def compile_first(m: Moment) -> None:
        waiting = ready > m.number * 10
        for name in ("sm_active", "tensor"):
            m.placement.level[name] = np.where(waiting, m.placement.level[name] * 0.3, m.placement.level[name])

    return _with(scenario, Oddity("warm_up", 0.0, 250.0, before=compile_first))


def short_brake(seed: int, ranges: Ranges) -> Scenario:
    """A GPU slows down for ten seconds now and then: too short to matter."""
    scenario, rng = _drawn("short_brake", seed, ranges)
    gpu = int(rng.integers(8))

    def brake(m: Moment) -> None:
        m.effects.clock[0, gpu] *= 1 - 0.4 * m.share
        m.effects.clock_last[0, gpu] = 0.6

    return _with(scenario, *(Oddity("short", at, 9.0, before=brake) for at in np.arange(205.0, LASTS_S, 140.0)))


TRAPS: dict[str, Trap] = {
    trap.__name__: trap
    for trap in (
        stages,
        last_stage,
        rank0,
        power_cap,
        heat,
        slow_rail,
        two_jobs,
        offload,
        blanks,
        zeros,
        reload_driver,
        evaluation,
        checkpoints,
        dying,
        all_throttled,
        experts,
        serving,
        warm_up,
        short_brake,
    )
}
