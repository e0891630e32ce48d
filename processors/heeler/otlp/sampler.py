"""At most one point per series in a given time."""

from collections import OrderedDict
from collections.abc import Collection

from heeler.otlp.points import Points


class Sampler:
    """Lets the first sample of a component in each interval through.

    The first rather than the last of an interval, so that no message has to wait for its successor; at the moment
    it is sent it is the newest. Intervals are whole multiples of the length, in the samples' own time.
    """

    def __init__(self, every_s: float, most: int = 500_000) -> None:
        self._every_ns = int(every_s * 1e9)
        self._seen: OrderedDict[tuple[str, str, str, str], int] = OrderedDict()
        self._most = most

    def thin(self, points: Points, changed: Collection[int] = ()) -> Points | None:
        """Return the points that are due, and those of rows that have changed; None when there are none."""
        if not self._every_ns:
            return points
        interval = points.ts_ns // self._every_ns
        rows = [
            row for row, name in enumerate(points.ids) if self._due((*points.scope, name), interval) or row in changed
        ]
        if len(rows) == len(points.ids):
            return points
        return points.only(rows) if rows else None

    def _due(self, key: tuple[str, str, str, str], interval: int) -> bool:
        if interval <= self._seen.get(key, -1):
            return False
        self._seen[key] = interval
        self._seen.move_to_end(key)
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return True
