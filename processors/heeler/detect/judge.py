"""One window of a job: which GPUs stand out from their peers, and which only say themselves that they are slow.

Pure: arrays in, verdicts out. Persistence and the question of what to say are gpu_lag's.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heeler.detect import causes, peers
from heeler.detect.causes import TROUBLE, Case, Cause
from heeler.detect.peers import Bools, Places
from heeler.detect.starved import Starved, starved_nodes
from heeler.detect.thresholds import LagThresholds
from heeler.detect.windows import (
    CLOCK,
    CLOCK_MAX,
    GEN,
    GEN_MAX,
    POWER,
    REASONS,
    SM,
    TENSOR,
    THERMAL_NS,
    UTIL,
    WIDTH,
    WIDTH_MAX,
    Floats,
)

COMPARED = (POWER, CLOCK, SM, TENSOR, UTIL)  # the first five rows
ACTIVITY = (POWER, SM, TENSOR, UTIL)
HARMLESS = causes.HW_SLOWDOWN  # masks below have none of the bits of trouble


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one GPU in one window. `peers` 0: it was judged alone."""

    column: int
    gap_ratio: float  # how far it stands out, above 0
    metric: int  # the row that shows it best
    value: float
    peers_median: float
    peers_mad: float
    peers: int
    windowed: tuple[
        tuple[int, float, float, float], ...
    ]  # (row, value, median, mad) of every compared row that differs
    cause: Cause
    alone: bool = False  # one of several activity metrics differs, and nothing says why: suspected, not sure

    @property
    def physical(self) -> bool:
        """Say whether something besides the lag itself was seen."""
        return self.cause.strong

    def is_unfed(self, ratio: float) -> bool:
        """Say whether it only runs kernels less of the time, by a ratio: what waits for its host does."""
        return not self.physical and any(
            row == UTIL and value <= (1.0 - ratio) * median for row, value, median, _ in self.windowed
        )


@dataclass(slots=True)
class Judged:
    """A window's verdicts. Arrays are over all GPUs of the job."""

    known: Bools  # judged at all
    clear: Bools  # close enough to its peers to count as healthy again
    few: Bools  # its own past counts too: few peers, a light load, or a role that it may have slipped into
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    trouble: str = ""  # cause that most of those name that say themselves that they are slowed down


def distrust_profiler(values: Floats) -> None:
    """Drop activity counters that contradict a running kernel, in place.

    After some faults a driver returns 0 for them for ever while the GPU works: a broken sensor, no straggler.
    """
    running = values[UTIL] >= 0.5
    dead = running & (values[SM] < 0.001)
    values[SM, dead] = np.nan
    values[TENSOR, dead] = np.nan
    silent = running & (values[TENSOR] < 0.001) & (values[SM] >= 0.05)
    if silent.any() and not silent.all():
        values[TENSOR, silent] = np.nan


def nothing_odd(window: Floats, median: Floats, t: LagThresholds) -> bool:
    """Say whether nobody can stand out in a window of one model, all busy: the common case, and cheap to see.

    `median` is that of the compared rows.
    """
    gaps = np.abs(peers.relative(window[:5], median))
    if (gaps >= t.power_ratio).any() and ((gaps[POWER] >= t.power_ratio).any() or (gaps >= t.alert_ratio).any()):
        return False
    if (window[REASONS] >= HARMLESS).any() or window[UTIL].min() <= (1.0 - t.alert_ratio) * window[UTIL].max():
        return False
    low = (window[GEN] < window[GEN_MAX]) | (window[WIDTH] < window[WIDTH_MAX])
    return not low.any()


def judge(
    window: Floats,
    before: Floats | None,
    active: Places,
    models: NDArray[np.intp],
    nodes: NDArray[np.intp],
    window_ns: int,
    t: LagThresholds,
    *,
    watched: bool = True,
) -> Judged:
    """Return the verdicts over a mended window of (rows, GPUs); only `active` columns are judged or are peers.

    `models` and `nodes` are numbers, one for each GPU.

    Without an open finding (`watched` false) nobody asks who is clear.
    """
    count = window.shape[1]
    out = Judged(np.zeros(count, np.bool_), np.zeros(count, np.bool_), np.zeros(count, np.bool_))
    out.known[active] = True
    values = window[:, active]
    distrust_profiler(values)
    masks = np.nan_to_num(values[REASONS]).astype(np.int64)
    troubled = (masks & TROUBLE) != 0
    grown = None if before is None else (window - before)[:, active]
    if troubled.any():
        out.trouble = _main_trouble(masks[troubled])
    for model in np.unique(models[active]):
        members = np.flatnonzero(models[active] == model)
        _judge_group(out, values, grown, active, members, troubled[members], window_ns, t, watched=watched)
    for node in starved_nodes(window[UTIL], nodes, active, t):
        _starve(out, window, node)
    return out


def _starve(out: Judged, window: Floats, node: Starved) -> None:
    """Let a slow host explain what nothing else does."""
    out.clear[node.columns] = False
    for at in node.columns.tolist():
        known = out.verdicts.get(at)
        if known is not None and known.physical:
            continue
        value = float(window[UTIL, at])
        out.verdicts[at] = Verdict(
            column=at,
            gap_ratio=1.0 - value / node.others_ratio,
            metric=UTIL,
            value=value,
            peers_median=node.others_ratio,
            peers_mad=node.others_mad,
            peers=node.others,
            windowed=((UTIL, value, node.others_ratio, node.others_mad),),
            cause=Cause("host_starved", strong=False, evidence=causes.own_evidence(window[:, at])),
        )


def _main_trouble(masks: NDArray[np.int64]) -> str:
    counts = [
        ("thermal_slowdown", int(np.count_nonzero(masks & causes.THERMAL))),
        ("power_brake", int(np.count_nonzero(masks & causes.POWER_BRAKE))),
        ("hw_slowdown", int(np.count_nonzero(masks & causes.HW_SLOWDOWN))),
    ]
    return max(counts, key=lambda item: item[1])[0]


def _judge_group(
    out: Judged,
    values: Floats,
    grown: Floats | None,
    active: Places,
    members: Places,
    troubled: Bools,
    window_ns: int,
    t: LagThresholds,
    *,
    watched: bool,
) -> None:
    """Judge the GPUs of one model. `members` are positions among the active.

    GPUs that say themselves that they are slowed down are nobody's peers: where half a job is throttled, the
    median would lie between the two halves. With too few others, each is judged by what it says itself.
    """
    if np.count_nonzero(~troubled) < t.min_peers:
        out.few[active[members]] = True
        for at in members.tolist():
            _alone(out, values[:, at], None if grown is None else grown[:, at], int(active[at]), window_ns, t)
        return
    group = values[:, members]
    whole = peers.spread(group[:, ~troubled])
    found = peers.roles(group, t.role_share, t.role_gap_ratio)
    alone = len(found) > 1 or not whole.median[UTIL] >= t.load_util_ratio
    for role in found:
        calm = role[~troubled[role]]
        own = len(calm) >= t.min_peers
        out.few[active[members[role]]] = alone or not own
        reference = peers.spread(group[:, calm]) if own else whole
        size = len(calm) if own else int(np.count_nonzero(~troubled))
        here = _Group(values, grown, active, members[role], troubled[role], reference, size, activity=own)
        _compare(out, here, window_ns, t, watched=watched)


@dataclass(frozen=True, slots=True)
class _Group:
    """GPUs to compare with a reference. `members` are positions among the active."""

    values: Floats
    grown: Floats | None
    active: Places
    members: Places
    troubled: Bools
    reference: peers.Spread
    size: int  # GPUs in the reference
    activity: bool  # whether activity may be compared: the peers do the same work


def _compare(out: Judged, here: _Group, window_ns: int, t: LagThresholds, *, watched: bool) -> None:
    group = here.values[:, here.members]
    median = here.reference.median
    head = peers.Spread(median[:5], here.reference.mad[:5])
    gap = peers.relative(group[:5], head.median)
    z = np.abs(peers.z_scores(group[:5], head))
    odd = z > t.z
    loaded = group[UTIL] >= t.load_util_ratio
    # A light load slows a clock by design, but not with a stated reason.
    stated = loaded | ((np.nan_to_num(group[REASONS]).astype(np.int64) & TROUBLE) != 0)
    slow_clock = (gap[CLOCK] <= -t.alert_ratio) & odd[CLOCK] & stated
    active_gap, metrics = _activity_gaps(gap, odd, median, t) if here.activity else _no_gaps(gap)
    if watched:
        _clear(out, here, gap, metrics, loaded, t)
    low_link = loaded & _pcie_below(group, median)
    for at in np.flatnonzero(slow_clock | (active_gap >= t.alert_ratio) | low_link).tolist():
        place = here.members[at]
        now = here.values[:, place]
        case = Case(now, None if here.grown is None else here.grown[:, place], median, window_ns, t)
        if slow_clock[at] and not causes.power_capped(now, median):
            verdict = _verdict(here, at, gap, CLOCK, causes.find_cause(case))
        elif active_gap[at] >= t.alert_ratio or low_link[at]:
            flagged = [row for row in ACTIVITY if metrics[row, at]]
            readable = [row for row in ACTIVITY if not np.isnan(gap[row, at])]
            cause = causes.find_cause(case)
            # A clock that is read says how far behind a throttled GPU is: its activity per cycle only follows.
            if cause.name in causes.OF_CLOCK and not np.isnan(gap[CLOCK, at]):
                continue
            if not flagged and not cause.strong:
                continue  # a link that only sleeps
            best = max(flagged, key=lambda row: abs(gap[row, at])) if flagged else WIDTH
            alone = len(flagged) < 2 and len(readable) > 1 and not cause.strong
            if alone and not z[best, at] > t.z_one_metric:
                continue
            verdict = _verdict(here, at, gap, best, cause, alone=alone)
        else:
            continue
        out.verdicts[verdict.column] = verdict


def _activity_gaps(gap: Floats, odd: Bools, median: Floats, t: LagThresholds) -> tuple[Floats, Bools]:
    """Return the largest activity gap of each GPU, and which metrics stand out, (5, GPUs)."""
    least = np.array([t.power_ratio, np.inf, t.alert_ratio, t.alert_ratio, t.alert_ratio])[:, None]
    floor = [t.power_floor_w, np.inf, t.sm_active_floor_ratio, t.tensor_active_floor_ratio, t.load_util_ratio]
    enough = (median[:5] >= np.array(floor))[:, None]
    size = np.abs(gap)
    metrics = odd & enough & (size >= least)
    return np.where(metrics, size, 0.0).max(axis=0), metrics


def _no_gaps(gap: Floats) -> tuple[Floats, Bools]:
    return np.zeros(gap.shape[1]), np.zeros(gap.shape, np.bool_)


def _pcie_below(group: Floats, median: Floats) -> Bools:
    below_own = (group[GEN] < group[GEN_MAX]) | (group[WIDTH] < group[WIDTH_MAX])
    below: Bools = below_own & ((group[GEN] < median[GEN]) | (group[WIDTH] < median[WIDTH]))
    return below


def _clear(out: Judged, here: _Group, gap: Floats, metrics: Bools, loaded: Bools, t: LagThresholds) -> None:
    """Mark the GPUs that are as healthy as their peers: what closes a finding."""
    group, median = here.values[:, here.members], here.reference.median
    # A reading that is missing says nothing, so it never counts as healthy; a column that nobody has does not matter.
    clock_fine = (gap[CLOCK] >= -t.clear_ratio) | np.isnan(median[CLOCK])
    activity_fine: Bools = np.ones(group.shape[1], np.bool_)
    if here.activity:
        rows = list(ACTIVITY)
        small = np.abs(gap[rows]) < t.clear_activity_ratio
        read = ~np.isnan(gap[rows])
        activity_fine = np.logical_and(read.any(axis=0), (small | ~read | ~metrics[rows]).all(axis=0))
    fine = clock_fine & activity_fine & ~(loaded & _pcie_below(group, median))
    out.clear[here.active[here.members[fine]]] = True


def _verdict(here: _Group, at: int, gap: Floats, row: int, cause: Cause, *, alone: bool = False) -> Verdict:
    place = here.members[at]
    median, mad = here.reference.median, here.reference.mad
    shown = tuple(
        (r, float(here.values[r, place]), float(median[r]), float(mad[r]))
        for r in COMPARED
        if not np.isnan(gap[r, at]) and (r == CLOCK or here.activity)
    )
    size = abs(float(gap[row, at])) if row < 5 else 0.0
    return Verdict(
        column=int(here.active[place]),
        gap_ratio=size,
        metric=row,
        value=float(here.values[row, place]),
        peers_median=float(median[row]),
        peers_mad=float(mad[row]),
        peers=here.size - (not here.troubled[at]),
        windowed=shown,
        cause=cause,
        alone=alone,
    )


def _alone(out: Judged, now: Floats, grown: Floats | None, column: int, window_ns: int, t: LagThresholds) -> None:
    """Judge a GPU without peers by what it says itself: slowed down, and really slow.

    A light load slows a clock by design, but not with a stated reason.
    """
    nobody = np.full(len(now), np.nan)
    case = Case(now, grown, nobody, window_ns, t)
    loaded = bool(now[UTIL] >= t.load_util_ratio)
    share = float(now[CLOCK] / now[CLOCK_MAX]) if now[CLOCK_MAX] > 0 else np.nan
    slowed = case.growth(THERMAL_NS) >= t.violation_share * window_ns
    slow = share <= t.alone_clock_ratio or slowed or np.isnan(share)
    if np.isnan(now[REASONS]) or (np.isnan(share) and not loaded):
        return
    if not causes.reasons_of(now) & TROUBLE or not slow:
        out.clear[column] = loaded
        return
    out.verdicts[column] = Verdict(
        column=column,
        gap_ratio=0.0 if np.isnan(share) else 1.0 - share,
        metric=CLOCK,
        value=float(now[CLOCK]),
        peers_median=float("nan"),
        peers_mad=float("nan"),
        peers=0,
        windowed=(),
        cause=causes.find_cause(case),
    )
