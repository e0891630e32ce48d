"""Metrics of others on their way through: an OTLP request that goes on as it is."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Request = ExportMetricsServiceRequest


def count(request: Request) -> int:
    """Return how many points a request has."""
    return sum(
        len(_points(metric))
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def _points(metric: Any) -> Any:
    kind = metric.WhichOneof("data")
    return () if kind is None else getattr(metric, kind).data_points


@dataclass(slots=True)
class RawMetrics:
    """A request, as sinks take it: whole, in halves, or as maps."""

    request: Request
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = count(self.request)

    def __len__(self) -> int:
        return self.count

    def data(self) -> bytes:
        """Return the bytes of the request."""
        return bytes(self.request.SerializeToString())

    def halves(self) -> "tuple[RawMetrics, RawMetrics] | None":
        """Return two requests with half the points each, or None when there is but one."""
        if self.count < 2:
            return None
        half = self.count // 2
        return RawMetrics(_part(self.request, 0, half)), RawMetrics(_part(self.request, half, self.count))

    def pieces(self, most_bytes: int) -> "list[RawMetrics]":
        """Return requests of at most so many bytes each; one point alone may be larger."""
        halves = self.halves() if self.request.ByteSize() > most_bytes else None
        return [self] if halves is None else [*halves[0].pieces(most_bytes), *halves[1].pieces(most_bytes)]

    def flat(self) -> Iterator[dict[str, Any]]:
        """Yield each point as a map: the form of the stdout and file sinks."""
        for resource in self.request.resource_metrics:
            about = _values(resource.resource.attributes)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    for point in _points(metric):
                        yield {
                            "metric": metric.name,
                            "unit": metric.unit,
                            "kind": kind,
                            "value": _value(point),
                            "ts": point.time_unix_nano,
                            "attributes": {**about, **_values(point.attributes)},
                        }


def _part(request: Request, low: int, high: int) -> Request:
    """Return a request with the points from `low` to `high`, each in its own resource, scope and metric."""
    made, at = Request(), 0
    for resource in request.resource_metrics:
        into = None
        for scope in resource.scope_metrics:
            inner = None
            for metric in scope.metrics:
                size = len(_points(metric))
                first, last = max(low - at, 0), min(high - at, size)
                at += size
                if first >= last:
                    continue
                if into is None:
                    into = made.resource_metrics.add(schema_url=resource.schema_url)
                    into.resource.CopyFrom(resource.resource)
                if inner is None:
                    inner = into.scope_metrics.add(schema_url=scope.schema_url)
                    inner.scope.CopyFrom(scope.scope)
                copy = inner.metrics.add()
                copy.CopyFrom(metric)
                points = _points(copy)
                del points[last:]
                del points[:first]
    return made


def _value(point: Any) -> Any:
    """Return a number, or what a histogram or summary sums up to."""
    if "as_double" in point.DESCRIPTOR.fields_by_name:
        kind = point.WhichOneof("value")
        return None if kind is None else getattr(point, kind)
    return {"count": point.count, "sum": point.sum}


def _values(attributes: Any) -> dict[str, Any]:
    found = {}
    for one in attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind) if kind is not None else None
        found[one.key] = value if isinstance(value, (str, int, float, bool, bytes, type(None))) else str(value)
    return found
