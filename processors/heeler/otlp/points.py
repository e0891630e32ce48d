"""What a message becomes, whatever the sink: data points as columns, log records, spans."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from heeler.otlp.names import Kind, Metric
from heeler.otlp.trace_ids import SpanIds

Number = int | float
Attributes = tuple[tuple[str, str | int], ...]


def scaled(values: list[Number | None], scale: float | None) -> list[Number | None]:
    """Return a column in the unit of its metric."""
    if scale is None:
        return values
    return [None if value is None else value * scale for value in values]


@dataclass(slots=True)
class Points:
    """The data points of one kind of component in a message.

    A row is a component (a GPU, a port, a collector), a column a metric with one value per row, None where it was
    not read. ``attributes`` name each row in full; ``ids`` name it within ``scope`` (kind, cluster, node) and stay
    the same when a job comes or goes. ``start_ns`` is when the writer's counters began, where it says so.
    ``starts`` is filled in by `heeler.otlp.starts`: per row the start of all cumulative columns, or one per column.
    ``ended``: made by `heeler.otlp.ends`, each column is None throughout and says that the row's series has ended.
    """

    scope: tuple[str, str, str]
    boot: str
    ts_ns: int
    ids: list[str]
    attributes: list[Attributes]
    columns: list[tuple[Metric, list[Number | None]]]
    start_ns: int | None = None
    starts: list[int | dict[int, int]] = field(default_factory=list)
    skipped: int = 0  # values that have no name outside
    ended: bool = False  # no values: these series have ended

    def __len__(self) -> int:
        """Return how many data points there are."""
        if self.ended:
            return len(self.ids) * len(self.columns)
        return sum(len(values) - values.count(None) for _, values in self.columns)

    def start(self, row: int, column: int) -> int:
        """Return the start time of a cumulative value, 0 where nothing is known."""
        if not self.starts:
            return 0
        found = self.starts[row]
        return found if isinstance(found, int) else found[column]

    def column_starts(self, column: int) -> tuple[int, ...]:
        """Return the start time of each row's value in a cumulative column."""
        return tuple([one if isinstance(one, int) else one[column] for one in self.starts or [0] * len(self.ids)])

    def only(self, rows: list[int]) -> "Points":
        """Return the points of some rows."""
        return Points(
            scope=self.scope,
            boot=self.boot,
            ts_ns=self.ts_ns,
            ids=[self.ids[row] for row in rows],
            attributes=[self.attributes[row] for row in rows],
            columns=[(metric, [values[row] for row in rows]) for metric, values in self.columns],
            start_ns=self.start_ns,
            starts=[self.starts[row] for row in rows] if self.starts else [],
        )

    def flat(self) -> Iterator[dict[str, Any]]:
        """Yield each point as a map: the form of the stdout and file sinks."""
        for position, (metric, values) in enumerate(self.columns):
            for row, value in enumerate(values):
                if value is None and not self.ended:
                    continue
                point: dict[str, Any] = {
                    "metric": metric.name,
                    "unit": metric.unit,
                    "kind": metric.kind.value,
                    "value": value,
                    "ts": self.ts_ns,
                }
                if self.ended:
                    point["ended"] = True
                elif metric.kind is not Kind.GAUGE:
                    point["start_ts"] = self.start(row, position)
                point["attributes"] = dict(self.attributes[row] + metric.attributes)
                yield point


@dataclass(slots=True)
class LogEntry:
    """One log record. Severities are OpenTelemetry's: 9 info, 13 warning, 17 error, 0 not judged."""

    event: str
    ts_ns: int
    severity: int
    severity_text: str
    body: str
    attributes: dict[str, Any]
    ids: SpanIds | None = None  # of the span that it belongs to

    def __len__(self) -> int:
        return 1

    def flat(self) -> Iterator[dict[str, Any]]:
        """Yield this record as a map: the form of the stdout and file sinks."""
        record = {
            "log": self.event,
            "severity": self.severity_text,
            "body": self.body,
            "ts": self.ts_ns,
            "attributes": self.attributes,
        }
        yield record if self.ids is None else {**record, **_hex(self.ids)}


@dataclass(slots=True)
class SpanEntry:
    """One span that is over. ``parent`` is a span of the same trace, ``links`` lead to others; ``error``: it failed."""

    name: str
    ids: SpanIds
    parent: bytes | None
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    links: tuple[SpanIds, ...] = ()
    error: str | None = None

    def __len__(self) -> int:
        return 1

    def flat(self) -> Iterator[dict[str, Any]]:
        """Yield this span as a map: the form of the stdout and file sinks."""
        span: dict[str, Any] = {"span": self.name, **_hex(self.ids)}
        if self.parent is not None:
            span["parent_span_id"] = self.parent.hex()
        span |= {"start_ts": self.start_ns, "ts": self.end_ns, "attributes": self.attributes}
        if self.links:
            span["links"] = [_hex(link) for link in self.links]
        if self.error is not None:
            span["error"] = self.error
        yield span


def _hex(ids: SpanIds) -> dict[str, str]:
    return {"trace_id": ids.trace.hex(), "span_id": ids.span.hex()}


Content = Points | LogEntry | SpanEntry
