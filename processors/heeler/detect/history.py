"""What was seen of each GPU in the last windows: some bits a window, in a ring that time alone empties."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heeler.detect.findings import SECOND_NS

ALERT, STRONG, PHYSICAL = 1, 2, 4
FED, LINKED = 8, 16  # runs kernels as much as the busiest; its PCIe link is as good as it can be
LEAST_WINDOWS = 3

Bits = NDArray[np.uint8]


class History:
    """Bits of (windows, GPUs). A window that was not judged has none: it says nothing, for or against."""

    __slots__ = ("bits", "span_s", "stamps", "window_ns")

    def __init__(self, span_s: float) -> None:
        self.span_s = span_s
        self.window_ns = 0
        self.bits: Bits = np.zeros((0, 0), np.uint8)
        self.stamps: NDArray[np.int64] = np.zeros(0, np.int64)

    def begin(self, number: int, window_ns: int, gpus: int) -> None:
        """Empty the row of a window. Another window length begins anew."""
        if window_ns != self.window_ns:
            self.window_ns = window_ns
            rows = self.windows(self.span_s) + 1
            self.bits = np.zeros((rows, gpus), np.uint8)
            self.stamps = np.full(rows, -1, np.int64)
        if self.bits.shape[1] < gpus:
            wider = np.zeros((len(self.bits), gpus), np.uint8)
            wider[:, : self.bits.shape[1]] = self.bits
            self.bits = wider
        row = number % len(self.bits)
        self.bits[row] = 0
        self.stamps[row] = number

    def mark(self, number: int, column: int, bits: int) -> None:
        """Set bits of a GPU in a window that was begun."""
        self.bits[number % len(self.bits), column] |= bits

    def mark_all(self, number: int, which: NDArray[np.bool_], bits: int) -> None:
        """Set bits of several GPUs in a window that was begun."""
        self.bits[number % len(self.bits), : len(which)][which] |= bits

    def windows(self, seconds: float) -> int:
        """Return how many windows a time is; at least three, since two are chance."""
        return max(LEAST_WINDOWS, math.ceil(seconds * SECOND_NS / self.window_ns))

    def recent(self, number: int, seconds: float, columns: Sequence[int]) -> Bits:
        """Return the bits of the last windows up to `number`, oldest first, (windows, columns)."""
        count = self.windows(seconds)
        numbers = np.arange(number - count + 1, number + 1)
        rows = numbers % len(self.bits)
        found: Bits = self.bits[np.ix_(rows, np.asarray(columns, np.intp))]
        found[self.stamps[rows] != numbers] = 0
        return found
