"""GPUs of which their peers say too little, compared with their own past: how each changed beside the others.

What all of a job's GPUs do together (a slower step, an evaluation) changes none of them beside the others. A load
that wanders from GPU to GPU scatters, and has to change by far more than it usually does. Pure.
"""

from dataclasses import replace

import numpy as np

from heeler.detect import causes
from heeler.detect.causes import Case
from heeler.detect.judge import ACTIVITY, Judged, Verdict
from heeler.detect.peers import LEAST_MAD, Places, middle
from heeler.detect.thresholds import LagThresholds
from heeler.detect.traits import Usual
from heeler.detect.windows import CLOCK, Floats

LEAST_GPUS = 3  # of two, nobody can say which has changed
FLOORS = np.array([130.0, 0.0, 0.03, 0.02, 0.05])  # below, a share means nothing
LEAST_LOOKS = 6  # fewer say nothing of how much a load scatters


def look_back(
    out: Judged,
    window: Floats,
    before: Floats | None,
    active: Places,
    median: Floats,
    usual: Usual,
    window_ns: int,
    t: LagThresholds,
) -> None:
    """Add the verdicts over those for whom their own past counts, and take back that they are clear."""
    if len(active) < LEAST_GPUS or usual.looks < LEAST_LOOKS:
        return
    head, own = window[:5, active], usual.scatter[:, active]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = head / usual.value[:, active]
        change = ratio / middle(ratio)[:, None] - 1.0
        # Some happen to have been steady: what is usual in the job counts for them too.
        odd = np.abs(change) > t.z_one_metric * np.maximum(np.maximum(own, middle(own)[:, None]), LEAST_MAD)
    least = np.array([t.power_ratio, t.alert_ratio, t.alert_ratio, t.alert_ratio, t.alert_ratio])[:, None]
    flagged = odd & (np.abs(change) >= least) & (median >= FLOORS)[:, None]
    flagged[CLOCK] &= change[CLOCK] < 0
    far = (np.abs(change[list(ACTIVITY)]) >= t.clear_activity_ratio).any(axis=0) | flagged.any(axis=0)
    out.clear[active[far & out.few[active]]] = False
    for at in np.flatnonzero(flagged.any(axis=0) & out.few[active]).tolist():
        column = int(active[at])
        if column in out.verdicts:
            continue
        grown = None if before is None else window[:, column] - before[:, column]
        found = _verdict(column, window[:, column], grown, change[:, at], np.flatnonzero(flagged[:, at]), window_ns, t)
        if found is not None:
            out.verdicts[column] = found


def _verdict(
    column: int,
    now: Floats,
    grown: Floats | None,
    change: Floats,
    rows: Places,
    window_ns: int,
    t: LagThresholds,
) -> Verdict | None:
    """Return the verdict over a GPU of which some rows have changed; None where that is not enough."""
    if not len(rows):
        return None
    size = np.abs(change)
    row = CLOCK if CLOCK in rows else int(rows[np.argmax(size[rows])])
    one = len(rows) == 1
    if size[row] < (t.one_metric_ratio if one else t.alert_ratio):
        return None
    if row == CLOCK and causes.reasons_of(now) & causes.SW_POWER_CAP:
        return None
    cause = causes.find_cause(Case(now, grown, np.full(len(now), np.nan), window_ns, t))
    if row == CLOCK and not cause.strong:
        cause = replace(cause, name="low_clock")
    expected = now[:5] / (1.0 + change)
    return Verdict(
        column=column,
        gap_ratio=float(size[row]),
        metric=row,
        value=float(now[row]),
        peers_median=float(expected[row]),
        peers_mad=float("nan"),
        peers=0,
        windowed=tuple((r, float(now[r]), float(expected[r]), float("nan")) for r in rows.tolist()),
        cause=cause,
        alone=one and not cause.strong and row != CLOCK,
    )
