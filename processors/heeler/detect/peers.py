"""Robust comparison of a GPU with its peers: pure functions over arrays.

Everything takes (metrics, GPUs) arrays in which NaN means not read, and says nothing about a GPU whose reading
is missing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heeler.detect.windows import POWER, SM, TENSOR, Floats

Bools = NDArray[np.bool_]
Places = NDArray[np.intp]

NORMAL = 0.6745  # median of |x| of a standard normal: makes the modified z comparable with sigma
MOST_IN_ONE = 3  # so many GPUs can't be two roles
LEAST_MAD = 0.005  # of the median: GPUs that pace each other make the deviation vanish and z explode


@dataclass(frozen=True, slots=True)
class Spread:
    """A metric over a group: each of shape (metrics,)."""

    median: Floats
    mad: Floats


def spread(values: Floats) -> Spread:
    """Return median and median absolute deviation over the GPUs, of shape (metrics,); NaN where none was read."""
    median = middle(values)
    return Spread(median, middle(np.abs(values - median[:, None])))


def middle(values: Floats) -> Floats:
    """Return the median of each row over what was read. Much faster than numpy's for few columns."""
    ordered = np.sort(values, axis=1)  # NaN sorts to the end
    size = values.shape[1]
    last = ordered[:, -1]
    half: Floats
    if (last == last).all():  # noqa: PLR0124 - NaN is not equal to itself
        half = (ordered[:, (size - 1) // 2] + ordered[:, size // 2]) / 2
        return half
    count = size - np.count_nonzero(np.isnan(values), axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, np.maximum(0, (count - 1) // 2)]
    high = ordered[rows, np.minimum(size - 1, count // 2)]
    half = (low + high) / 2
    return half


def relative(values: Floats, median: Floats) -> Floats:
    """Return (value - median) / median; NaN where the median is 0 or nothing was read."""
    base = np.where(median > 0, median, np.nan)[:, None]
    return values / base - 1.0


def z_scores(values: Floats, group: Spread) -> Floats:
    """Return modified z-scores."""
    mad = np.maximum(group.mad, LEAST_MAD * np.abs(group.median))
    mad = np.where(mad > 0, mad, np.nan)[:, None]
    return NORMAL * (values - group.median[:, None]) / mad


def roles(values: Floats, share: float, gap: float) -> list[Places]:
    """Return the columns of each role in a job, from what its GPUs do.

    Pipeline stages of one healthy job differ far more than any threshold allows. Where the largest gap in an
    activity splits the GPUs into two groups that both have at least `share` of them, and the gap is wide against
    the median and against the usual step between neighbours, the groups are roles; each may split once more.
    """
    everyone = np.arange(values.shape[1])
    for row in (TENSOR, SM, POWER):
        line = values[row]
        if np.isnan(line).any():
            continue
        found = _split(line, everyone, share, gap, depth=2)
        if len(found) > 1:
            return found
    return [everyone]


def _split(line: Floats, members: Places, share: float, gap: float, depth: int) -> list[Places]:
    least = max(2, int(np.ceil(share * len(members))))
    if depth == 0 or len(members) < 2 * least:
        return [members]
    ordered = members[np.argsort(line[members], kind="stable")]
    sorted_line = line[ordered]
    steps = np.diff(sorted_line)
    inner = steps[least - 1 : len(members) - least]
    if not len(inner):
        return [members]
    cut = int(np.argmax(inner)) + least
    # Against the usual step, not the spread of the halves: those may hold several roles themselves.
    usual = np.sort(steps)[len(steps) // 2]
    if inner[cut - least] < max(gap * sorted_line[len(members) // 2], 5.0 * usual):
        return [members]
    # Two or three that differ from one another by more than from the rest are no role: one of them is odd.
    inside = (steps[: cut - 1], steps[cut:])
    if any(0 < len(part) < MOST_IN_ONE and part.max() > inner[cut - least] for part in inside):
        return [members]
    halves = (np.sort(ordered[:cut]), np.sort(ordered[cut:]))
    return [role for half in halves for role in _split(line, half, share, gap, depth - 1)]
