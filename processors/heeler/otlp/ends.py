"""When a series ends: a component whose attributes are others now, as a GPU's are with its next job.

A receiver goes on showing the last value of a series for minutes (Prometheus: five), so that a sum over GPUs counts a
GPU twice where its job has changed. OTLP has a word for it, a point without a value, and Prometheus and the
Collector's Prometheus exporter understand it. What falls silent with its node ends by their own clock.
"""

from collections import OrderedDict
from dataclasses import dataclass

from heeler.otlp.names import Metric
from heeler.otlp.points import Attributes, Points

MOST_SETS = 1000


@dataclass(slots=True)
class _Row:
    ts_ns: int
    attributes: Attributes
    metrics: tuple[Metric, ...]


class Ends:
    """The attributes of all components seen lately, at most `most`; the longest unseen are forgotten.

    Exporters that share a stream each know what they have seen: one that sees a component again under other
    attributes ends what it has sent of it, and a series that two have sent ends twice, which is once.
    """

    def __init__(self, most: int = 500_000) -> None:
        self._rows: OrderedDict[tuple[str, str, str, str], _Row] = OrderedDict()
        self._sets: dict[tuple[Metric, ...], tuple[Metric, ...]] = {}
        self._most = most

    def look(self, points: Points) -> tuple[list[int], list[Points]]:
        """Return the rows whose attributes have changed, and the ends of the series that they had before."""
        metrics = tuple([metric for metric, _ in points.columns])
        if len(self._sets) > MOST_SETS:
            self._sets.clear()
        metrics = self._sets.setdefault(metrics, metrics)  # all GPUs have the same few
        changed: list[int] = []
        ended: dict[tuple[Metric, ...], list[tuple[str, Attributes]]] = {}
        for row, (name, attributes) in enumerate(zip(points.ids, points.attributes, strict=True)):
            key = (*points.scope, name)
            known = self._rows.get(key)
            if known is None:
                self._rows[key] = _Row(points.ts_ns, attributes, metrics)
                if len(self._rows) > self._most:
                    self._rows.popitem(last=False)
            elif points.ts_ns > known.ts_ns:
                self._rows.move_to_end(key)
                known.ts_ns = points.ts_ns
                if known.attributes != attributes:
                    changed.append(row)
                    ended.setdefault(known.metrics, []).append((name, known.attributes))
                    known.attributes = attributes
                known.metrics = metrics
        return changed, [_ends(points, had, rows) for had, rows in ended.items()]


def _ends(points: Points, metrics: tuple[Metric, ...], rows: list[tuple[str, Attributes]]) -> Points:
    return Points(
        scope=points.scope,
        boot=points.boot,
        ts_ns=points.ts_ns,
        ids=[name for name, _ in rows],
        attributes=[attributes for _, attributes in rows],
        columns=[(metric, [None] * len(rows)) for metric in metrics],
        ended=True,
    )
