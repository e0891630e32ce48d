"""At most so many series of a table: what names a row is written by users and operators, and there is no end to it."""

from collections import OrderedDict
from collections.abc import Collection

from heeler.otlp.points import Points

FORGET_NS = 24 * 3600 * 1_000_000_000


class Bound:
    """Lets the rows through that were seen first, at most `most` for each scope; one unseen for a day makes room.

    So a series that is there stays there, and does not come and go. Scopes of `without` are left out whole. ``over``
    counts rows that had no room.
    """

    def __init__(self, most: int, without: Collection[str] = ()) -> None:
        self.over = 0
        self._most, self._without = most, frozenset(without)
        self._seen: dict[tuple[str, str, str], OrderedDict[str, int]] = {}

    def keep(self, points: Points) -> Points | None:
        """Return the points that have room; None where none are left."""
        if not points.scope[0].startswith("slurm."):
            return points
        if points.scope[0] in self._without:
            return None
        seen = self._seen.setdefault(points.scope, OrderedDict())
        while seen and next(iter(seen.values())) < points.ts_ns - FORGET_NS:
            seen.popitem(last=False)
        rows = [row for row, name in enumerate(points.ids) if self._room(seen, name, points.ts_ns)]
        self.over += len(points.ids) - len(rows)
        if len(rows) == len(points.ids):
            return points
        return points.only(rows) if rows else None

    def _room(self, seen: "OrderedDict[str, int]", name: str, ts_ns: int) -> bool:
        if name not in seen and len(seen) >= self._most:
            return False
        seen[name] = max(ts_ns, seen.get(name, 0))
        seen.move_to_end(name)
        return True
