"""A scenario, window by window: arrays for the baselines, messages for Heeler, made from the same physics."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heeler.bus import shard_of, subjects
from heeler.detect import rules
from heeler.engine import Inbound
from heeler.sim.effects import no_effects
from heeler.sim.fleet import Array
from heeler.sim.messages import Samples
from heeler.sim.physics import Window, advance, first_memory
from heeler.sim.placement import Placement, place
from heeler.sim.units import NS_PER_S
from scoreboard.scenario import EPOCH_NS, Moment, Scenario

WINDOW_S = 10
METRICS = ("power_w", "sm_clock_mhz", "sm_active_ratio", "tensor_active_ratio", "util_ratio", "temp_c")


@dataclass(slots=True)
class Step:
    """One window: `values` of shape (metrics, nodes, GPUs) with NaN for what never came, and the messages."""

    number: int
    end_s: float
    values: Array
    last: dict[str, Any]
    mine: Array  # (nodes, GPUs) whether a GPU belongs to the scenario's job
    messages: list[Inbound]


def windows(scenario: Scenario, *, ports: bool = True) -> Iterator[Step]:
    """Yield the windows of a scenario."""
    fleet, jobs = scenario.fleet, scenario.schedule.active(EPOCH_NS)
    memory = first_memory(fleet)
    base = place(fleet, jobs)
    base.burst = base.burst * scenario.noise
    rng = np.random.default_rng([7, scenario.seed])
    mine = base.job == 0
    extra: dict[str, Any] = {}
    held: list[Inbound] = []
    for number in range(int(scenario.lasts_s / WINDOW_S)):
        begin_s, end_s = number * WINDOW_S, (number + 1) * WINDOW_S
        placement = _fresh(base)
        moment = Moment(number, 1.0, rng, fleet, placement, no_effects(fleet), extra=extra)
        there = [(o, share) for o in scenario.oddities if (share := o.share(begin_s, end_s)) > 0]
        for oddity, moment.share in there:
            if oddity.before:
                oddity.before(moment)
        window = advance(
            fleet, memory, placement, moment.effects, EPOCH_NS + begin_s * NS_PER_S, EPOCH_NS + end_s * NS_PER_S
        )
        moment.window = window
        for oddity, moment.share in there:
            if oddity.after:
                oddity.after(moment)
        window.last |= extra
        kept = rng.random(fleet.shape[0]) >= scenario.missing
        made = _messages(scenario, placement, window, number, kept, rng, extra, ports=ports)
        now_ns = window.end_ns + WINDOW_S * NS_PER_S
        ready = sorted(held + made, key=lambda m: m.ts_ns)
        messages = [m for m in ready if m.ts_ns < now_ns]
        held = ready[len(messages) :]
        yield Step(number, float(end_s), _values(window, kept), window.last, mine, messages)


def opening(scenario: Scenario) -> list[Inbound]:
    """Return what Slurm has said before the first window."""
    found = []
    for job in scenario.schedule.active(EPOCH_NS):
        data: dict[str, Any] = {
            "v": 1,
            "cluster": scenario.fleet.cluster,
            "ts": EPOCH_NS,
            "event": "started",
            "job_id": job.id,
            "nodes": [scenario.fleet.nodes[node].name for node in job.nodes],
            "start_ts": job.start_ns,
            "state": "RUNNING",
        }
        found.append(Inbound("JobEvent", subjects.job_event(scenario.fleet.cluster, job.id), data, EPOCH_NS))
    return found


def _fresh(base: Placement) -> Placement:
    placement = copy(base)
    placement.level = dict(base.level)
    placement.quirk, placement.rail = base.quirk.copy(), base.rail.copy()
    return placement


def _values(window: Window, kept: Any) -> Array:
    values = np.stack([window.mean[name].astype(float) for name in METRICS])
    values[:, ~kept] = np.nan
    return values


def _messages(
    scenario: Scenario,
    placement: Placement,
    window: Window,
    number: int,
    kept: Any,
    rng: Any,
    extra: Any,
    *,
    ports: bool,
) -> list[Inbound]:
    seen = _decoded(window)
    samples = _Samples(scenario.fleet, placement, seen)
    blank = np.logical_or.reduce([np.isnan(values).any(axis=1) for values in seen.mean.values()])
    delays = rng.uniform(0.1, 0.5, len(kept)) + np.where(rng.random(len(kept)) < scenario.late, rng.uniform(1, 8), 0.0)
    holders = [*(job.id for job in placement.jobs), None]  # the last one is what -1 points to
    more = {name: window.last[name].tolist() for name in extra}
    made: list[Inbound] = []
    for node in np.flatnonzero(kept).tolist():
        data = samples.gpu(node, window.end_ns, number)
        if blank[node]:
            data["mean"] = {name: [None if v != v else v for v in column] for name, column in data["mean"].items()}
        data["last"] |= {name: column[node] for name, column in more.items()}
        jobs = [holders[at] for at in placement.job[node].tolist()]
        data["job"] = jobs
        data["shard"] = shard_of(next((job for job in jobs if job), ""))
        name = scenario.fleet.nodes[node].name
        subject = subjects.job_sample(scenario.fleet.cluster, str(data["shard"]), name)
        ts_ns = window.end_ns + int(delays[node] * NS_PER_S)
        made.append(Inbound("JobSample", subject, data, ts_ns))
        if ports:
            heard = samples.ib(node, window.end_ns, number)
            made.append(Inbound("IbSample", subjects.ib_sample(scenario.fleet.cluster, name), heard, ts_ns))
    return made


class _Samples(Samples):
    """Samples that name their jobs themselves, as enrich leaves them."""

    def _processes(self, node: int, lost: list[bool]) -> list[list[Any]]:  # noqa: ARG002
        return []


def _decoded(window: Window) -> Window:
    """Return the window with the columns that a rule reads: no others are decoded."""
    columns = rules.CHOICE.columns
    return replace(
        window,
        mean={name: values for name, values in window.mean.items() if name in columns["mean"]},
        last={name: values for name, values in window.last.items() if name in columns["last"]},
        low={},
        high={},
    )
