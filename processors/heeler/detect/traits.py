"""What each GPU of a job is usually like beside the others: rank 0 does what no other does, for as long as it runs.

A GPU that is lower in one metric from the job's first minutes on has another role; one that became so has changed.
So where there are too few peers, a GPU can still be compared with what it was.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from heeler.detect.peers import NORMAL, middle
from heeler.detect.windows import Floats

LEAST = 3  # looks


@dataclass(frozen=True, slots=True)
class Usual:
    """What each GPU shows, (compared rows, GPUs), and how much of it scatters; NaN where not seen long enough.

    All of a job does more or less at times, so only what a GPU shows beside the others means something.
    """

    value: Floats
    scatter: Floats  # share of the value
    looks: int = 0

    def beside(self, row: int, at: int, head: Floats) -> float:
        """Return a GPU's value over its usual one, beside what the others do; NaN where that is not known."""
        ratio = head[row] / self.value[row]
        return float(ratio[at] / middle(ratio[None])[0])


class Traits:
    """Looks at the windows of a job, now and then in the last minutes."""

    __slots__ = ("_known", "looks", "span_ns")

    def __init__(self, span_ns: int) -> None:
        self.span_ns = span_ns
        self.looks: deque[tuple[int, Floats]] = deque()
        self._known: tuple[tuple[int, int, int], Usual] | None = None

    def note(self, end_ns: int, head: Floats) -> None:
        """Look at a window of the compared rows."""
        self.looks.append((end_ns, np.where(head > 0, head, np.nan)))
        while self.looks[0][0] <= end_ns - self.span_ns:
            self.looks.popleft()

    def clear(self) -> None:
        """Forget: the job was restarted, and ranks may be elsewhere."""
        self.looks.clear()

    def usual(self, before_ns: int, gpus: int) -> Usual:
        """Return what was usual before a time."""
        looks = [look for ts, look in self.looks if ts <= before_ns]
        key = (self.looks[0][0] if self.looks else 0, len(looks), gpus)
        if self._known is None or self._known[0] != key:
            self._known = key, _usual(looks, gpus)
        return self._known[1]


def _usual(looks: list[Floats], gpus: int) -> Usual:
    if len(looks) < LEAST:
        nothing = np.full((5, gpus), np.nan)
        return Usual(nothing, nothing)
    wide = np.full((len(looks), 5, gpus), np.nan)
    for at, look in enumerate(looks):
        wide[at, :, : look.shape[1]] = look
    # Each look is brought to the level of the newest by what a typical GPU did: a median over the job would jump
    # from one pipeline stage to another as samples are missing.
    for at in range(len(looks) - 1):
        wide[at] /= middle(wide[at] / wide[-1])[:, None]
    flat = wide.reshape(len(looks), -1).T
    value = middle(flat)
    value[np.count_nonzero(~np.isnan(flat), axis=1) < LEAST] = np.nan
    scatter = middle(np.abs(flat - value[:, None])) / NORMAL / value
    return Usual(value.reshape(5, gpus), scatter.reshape(5, gpus), len(looks))
