"""When a cumulative value began to count: state over the stream of points, without a clock.

Nobody tells when a GPU's counters were last zero. So a series starts where it was first seen, and starts anew when
its value falls or the node has booted: at the time of the last point before that. Several exporters that share one
stream may give a series different first starts; a reset has the same start in all that saw the point before it.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import ge

from heeler.otlp.names import Kind, Metric
from heeler.otlp.points import Number, Points

MOST_SETS = 1000


@dataclass(slots=True)
class _Row:
    """What is remembered of one component."""

    boot: str
    ts_ns: int
    start_ns: int
    names: tuple[Metric, ...]
    values: tuple[Number | None, ...]
    resets: dict[Metric, int] = field(default_factory=dict)  # counters that began after start_ns


class Starts:
    """The start times of all components seen lately, at most `most` of them; the longest unseen are forgotten."""

    def __init__(self, most: int = 500_000) -> None:
        self._rows: OrderedDict[tuple[str, str, str, str], _Row] = OrderedDict()
        self._names: dict[tuple[Metric, ...], tuple[Metric, ...]] = {}
        self._most = most

    def __len__(self) -> int:
        """Return how many components are remembered."""
        return len(self._rows)

    def fill(self, points: Points) -> None:
        """Set ``points.starts``."""
        cumulative = [(at, metric) for at, (metric, _) in enumerate(points.columns) if metric.kind is not Kind.GAUGE]
        at = [position for position, metric in cumulative if metric.kind is Kind.COUNTER]
        names = tuple([points.columns[position][0] for position in at])
        if len(self._names) > MOST_SETS:
            self._names.clear()
        names = self._names.setdefault(names, names)  # all GPUs have the same few sets of counters
        rows = zip(*(points.columns[position][1] for position in at), strict=True) if at else ()
        values = list(rows) or [()] * len(points.ids)
        points.starts = [self._row(points, name, names, values[row], cumulative) for row, name in enumerate(points.ids)]

    def _row(
        self,
        points: Points,
        name: str,
        names: tuple[Metric, ...],
        values: tuple[Number | None, ...],
        cumulative: list[tuple[int, Metric]],
    ) -> int | dict[int, int]:
        key = (*points.scope, name)
        known = self._rows.get(key)
        if known is None:
            known = _Row(points.boot, points.ts_ns, points.start_ns or points.ts_ns, names, values)
            self._rows[key] = known
            if len(self._rows) > self._most:
                self._rows.popitem(last=False)
        elif points.ts_ns > known.ts_ns:
            self._rows.move_to_end(key)
            _update(known, points, names, values)
        return _starts(known, points.ts_ns, cumulative)


def _update(known: _Row, points: Points, names: tuple[Metric, ...], values: tuple[Number | None, ...]) -> None:
    """Take in a newer reading."""
    if known.boot != points.boot:
        known.boot, known.start_ns = points.boot, points.start_ns or known.ts_ns
        known.resets.clear()
    elif not _grown(known, names, values):
        before = dict(zip(known.names, known.values, strict=True))
        for metric, value in zip(names, values, strict=True):
            old = before.pop(metric, None)
            if value is not None and old is not None and value < old:
                known.resets[metric] = known.ts_ns
        values = tuple(
            before_value if value is None else value
            for value, before_value in zip(values, _old(known, names), strict=True)
        )
    known.ts_ns, known.names, known.values = points.ts_ns, names, values


def _grown(known: _Row, names: tuple[Metric, ...], values: tuple[Number | None, ...]) -> bool:
    """Say whether the same counters were all read again and none fell: the common case, and quick to see."""
    try:
        return known.names is names and all(map(ge, values, known.values))  # type: ignore[arg-type]
    except TypeError:  # None among them
        return False


def _old(known: _Row, names: tuple[Metric, ...]) -> tuple[Number | None, ...]:
    """Return the last known values in the order of these names: an unread counter keeps its last value."""
    if known.names == names:
        return known.values
    before: Mapping[Metric, Number | None] = dict(zip(known.names, known.values, strict=True))
    return tuple(before.get(metric) for metric in names)


def _starts(known: _Row, ts_ns: int, cumulative: list[tuple[int, Metric]]) -> int | dict[int, int]:
    """Return the starts for a point in time. A late point can't start after itself."""
    if not known.resets:
        return min(known.start_ns, ts_ns)
    return {at: min(known.resets.get(metric, known.start_ns), ts_ns) for at, metric in cumulative}
