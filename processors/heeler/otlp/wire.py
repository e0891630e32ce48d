"""Points, log records and spans to OTLP bytes.

Why not the SDK's encoder: it wants an object for each point and each attribute, and a GPU has fifty points a window
that share ten attributes. Here the official protobuf classes serialise the shared parts once (a GPU's attributes,
a metric's head, the resource), and a point is those bytes with its times and its value behind them. Protobuf
promises that serialised messages and fields may be joined so. A test reads every kind back with the official
classes, and bench/otlp_points.py compares the speed.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from struct import Struct
from typing import Any, Literal

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK,
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from heeler.otlp.names import SCHEMA_URL, Kind
from heeler.otlp.names_tables import ABOUT
from heeler.otlp.points import Attributes, Content, LogEntry, Number, Points, SpanEntry

Signal = Literal["metrics", "logs", "traces"]
Descriptor = tuple[str, str, Kind]

LIMIT = 1 << 63
MAX_DEPTH = 8
ENVELOPE_BYTES, METRIC_BYTES = 1024, 256  # what a request and a metric need beside their points, generously
_FIELD = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value", bytes: "bytes_value"}
_LENGTH_DELIMITED, _FIXED64, _VARINT = 2, 1, 0
SAMPLED = 1  # a trace flag of W3C's: it was kept


def varint(number: int) -> bytes:
    """Return a number as protobuf writes lengths."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _tag(message: Any, field: str, wire_type: int = _LENGTH_DELIMITED) -> bytes:
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | wire_type)


_POINT = _tag(Gauge, "data_points")  # the same number in Sum
_START = _tag(NumberDataPoint, "start_time_unix_nano", _FIXED64)
_TIME = _tag(NumberDataPoint, "time_unix_nano", _FIXED64)
_ENDED = _tag(NumberDataPoint, "flags", _VARINT) + varint(DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)
_DOUBLE, _INT = (ord(_tag(NumberDataPoint, field, _FIXED64)) for field in ("as_double", "as_int"))
_METRIC, _GAUGE, _SUM = _tag(ScopeMetrics, "metrics"), _tag(Metric, "gauge"), _tag(Metric, "sum")
_RECORD = _tag(ScopeLogs, "log_records")
_SPAN = _tag(ScopeSpans, "spans")
_SCOPE: dict[Signal, bytes] = {
    "metrics": _tag(ResourceMetrics, "scope_metrics"),
    "logs": _tag(ResourceLogs, "scope_logs"),
    "traces": _tag(ResourceSpans, "scope_spans"),
}
_RESOURCE: dict[Signal, bytes] = {
    "metrics": _tag(ExportMetricsServiceRequest, "resource_metrics"),
    "logs": _tag(ExportLogsServiceRequest, "resource_logs"),
    "traces": _tag(ExportTraceServiceRequest, "resource_spans"),
}
_VERSION = version("heeler")
_DOUBLE64, _INT64, _AS_TIME = Struct("<Bd").pack, Struct("<Bq").pack, Struct("<Q").pack  # B: the tag
_VALUE_SIZE = Struct("<Bd").size


@dataclass(slots=True)
class Payload:
    """A request in parts: serialised points by metric (or log records, or spans), so that it can be halved."""

    signal: Signal
    groups: list[tuple[Descriptor | None, list[bytes]]]
    count: int

    def data(self) -> bytes:
        """Return the bytes of the whole request."""
        return metrics_request(self.groups) if self.signal == "metrics" else flat_request(self.signal, self.groups)

    def halves(self) -> "tuple[Payload, Payload] | None":
        """Return two requests with half the points each, or None when there is but one."""
        if self.count < 2:
            return None
        left: list[tuple[Descriptor | None, list[bytes]]] = []
        right: list[tuple[Descriptor | None, list[bytes]]] = []
        room = self.count // 2
        for descriptor, parts in self.groups:
            if room:
                left.append((descriptor, parts[:room]))
            if room < len(parts):
                right.append((descriptor, parts[room:]))
            room = max(0, room - len(parts))
        half = self.count // 2
        return Payload(self.signal, left, half), Payload(self.signal, right, self.count - half)


def any_value(value: Any, depth: int = 0) -> AnyValue:
    """Return any decoded value as OTLP's. What has no form there becomes text."""
    if isinstance(value, (list, tuple, dict)) and depth >= MAX_DEPTH:
        return AnyValue(string_value="...")
    if isinstance(value, (list, tuple)):
        return AnyValue(array_value=ArrayValue(values=[any_value(item, depth + 1) for item in value]))
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=key_values(value.items(), depth + 1)))
    if value is None:
        return AnyValue()
    field = _FIELD.get(type(value), "")
    if not field or (field == "int_value" and not -LIMIT <= value < LIMIT):
        field, value = "string_value", str(value)[:1024]
    return AnyValue(**{field: value})


def key_values(items: Iterable[tuple[str, Any]], depth: int = 0) -> list[KeyValue]:
    """Return attributes; one whose value is not known is left out."""
    return [KeyValue(key=str(key), value=any_value(value, depth)) for key, value in items if value is not None]


def _attributes(attributes: Attributes) -> bytes:
    """Return attributes as fields of a point."""
    return bytes(NumberDataPoint(attributes=key_values(attributes)).SerializeToString())


_metric_attributes = lru_cache(maxsize=4096)(_attributes)


class Rows:
    """The serialised attributes of each component, as they were last.

    Kept by component and not by attributes: jobs come and go without end, components don't, so memory stays flat.
    """

    def __init__(self, most: int = 500_000) -> None:
        self._known: OrderedDict[tuple[str, str, str, str], tuple[Attributes, bytes]] = OrderedDict()
        self._most = most

    def __len__(self) -> int:
        """Return how many components are known."""
        return len(self._known)

    def of(self, points: Points) -> list[bytes]:
        """Return the serialised attributes of each row."""
        return [
            self._one((*points.scope, name), attributes)
            for name, attributes in zip(points.ids, points.attributes, strict=True)
        ]

    def _one(self, key: tuple[str, str, str, str], attributes: Attributes) -> bytes:
        known = self._known.get(key)
        if known is None or known[0] != attributes:
            known = self._known[key] = (attributes, _attributes(attributes))
            self._known.move_to_end(key)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return known[1]


@lru_cache(maxsize=4096)
def _head(descriptor: Descriptor) -> tuple[bytes, bytes]:
    """Return what stands before a metric's data, and what stands in the data before the points."""
    name, unit, kind = descriptor
    head = Metric(name=name, unit=unit, description=ABOUT.get(name, "")).SerializeToString()
    if kind is Kind.GAUGE:
        return head + _GAUGE, b""
    data = Sum(aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE, is_monotonic=kind is Kind.COUNTER)
    return head + _SUM, data.SerializeToString()


@lru_cache(maxsize=1)
def _envelope() -> dict[Signal, tuple[bytes, bytes]]:
    """Return what stands in the resource and in the scope before the data, by signal."""
    resource = Resource(attributes=key_values((("service.name", "heeler"), ("service.version", _VERSION))))
    scope = InstrumentationScope(name="heeler.otlp", version=_VERSION)
    return {
        "metrics": (
            ResourceMetrics(resource=resource, schema_url=SCHEMA_URL).SerializeToString(),
            ScopeMetrics(scope=scope, schema_url=SCHEMA_URL).SerializeToString(),
        ),
        "logs": (
            ResourceLogs(resource=resource, schema_url=SCHEMA_URL).SerializeToString(),
            ScopeLogs(scope=scope, schema_url=SCHEMA_URL).SerializeToString(),
        ),
        "traces": (
            ResourceSpans(resource=resource, schema_url=SCHEMA_URL).SerializeToString(),
            ScopeSpans(scope=scope, schema_url=SCHEMA_URL).SerializeToString(),
        ),
    }


@lru_cache(maxsize=4096)
def _head_of(size: int) -> bytes:
    """Return tag and length of a point, `size` being its bytes before the value."""
    return _POINT + varint(size + _VALUE_SIZE)


def encode_points(points: Points, known: Rows) -> Iterator[tuple[Descriptor, list[bytes]]]:
    """Yield the serialised points of each column.

    All points of a row begin with the same bytes, but for a column's own attributes and start: these beginnings
    are made once for all columns that share them, so that a point costs one join.
    """
    time = _TIME + _AS_TIME(points.ts_ns)
    if points.ended:
        yield from _ends(points, time)
        return
    rows = [attributes + time for attributes in known.of(points)]
    made: dict[Any, list[bytes]] = {}
    for at, (metric, values) in enumerate(points.columns):
        starts = points.column_starts(at) if metric.kind is not Kind.GAUGE else None
        key = (metric.attributes, starts)
        heads = made.get(key)
        if heads is None:
            heads = made[key] = _heads(rows, metric.attributes, starts)
        pack = _integer if metric.integer else _double
        found = [head + pack(value) for head, value in zip(heads, values, strict=True) if value is not None]
        if found:
            yield (metric.name, metric.unit, metric.kind), found


def _ends(points: Points, time: bytes) -> Iterator[tuple[Descriptor, list[bytes]]]:
    """Yield for each column the points that say that its series have ended."""
    rows = [_attributes(attributes) + time + _ENDED for attributes in points.attributes]
    for metric, _ in points.columns:
        extra = _metric_attributes(metric.attributes) if metric.attributes else b""
        yield (metric.name, metric.unit, metric.kind), [_field(_POINT, row, extra) for row in rows]


def _double(value: Number) -> bytes:
    return _DOUBLE64(_DOUBLE, value)


def _integer(value: Number) -> bytes:
    """Return a counter's value; one beyond 63 bits, or with a fraction, as a double."""
    if type(value) is int and -LIMIT <= value < LIMIT:
        return _INT64(_INT, value)
    whole = int(value)
    return _INT64(_INT, whole) if whole == value and -LIMIT <= whole < LIMIT else _DOUBLE64(_DOUBLE, value)


def _heads(rows: list[bytes], attributes: tuple[tuple[str, str], ...], starts: tuple[int, ...] | None) -> list[bytes]:
    """Return each row's point up to its value, tag and length included."""
    extra = _metric_attributes(attributes) if attributes else b""
    ends = [extra] * len(rows) if starts is None else [extra + _START + _AS_TIME(start) for start in starts]
    return [_head_of(len(row) + len(end)) + row + end for row, end in zip(rows, ends, strict=True)]


def encode_log(entry: LogEntry) -> bytes:
    """Return a serialised log record as a field of its scope."""
    record = LogRecord(
        time_unix_nano=entry.ts_ns,
        observed_time_unix_nano=entry.ts_ns,
        severity_number=entry.severity,  # type: ignore[arg-type]  # the stub wants its own enum, an int is one
        severity_text=entry.severity_text,
        event_name=entry.event,
        body=AnyValue(string_value=entry.body),
        attributes=key_values(entry.attributes.items()),
    )
    if entry.ids is not None:
        record.trace_id, record.span_id = entry.ids
        record.flags = SAMPLED
    return _field(_RECORD, record.SerializeToString())


def encode_span(entry: SpanEntry) -> bytes:
    """Return a serialised span as a field of its scope."""
    span = Span(
        trace_id=entry.ids.trace,
        span_id=entry.ids.span,
        parent_span_id=entry.parent or b"",
        flags=SAMPLED,
        name=entry.name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=entry.start_ns,
        end_time_unix_nano=entry.end_ns,
        attributes=key_values(entry.attributes.items()),
        links=[Span.Link(trace_id=link.trace, span_id=link.span, flags=SAMPLED) for link in entry.links],
    )
    if entry.error is not None:
        span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=entry.error[:1000]))
    return _field(_SPAN, span.SerializeToString())


def _field(tag: bytes, *parts: bytes) -> bytes:
    return b"".join((tag, varint(sum(map(len, parts))), *parts))


class _Nested:
    """A message of fields, joined once at the end: the points of a request are megabytes, copied at each level."""

    def __init__(self, start: bytes = b"") -> None:
        self.parts = [start]
        self.size = len(start)

    def add(self, tag: bytes, parts: list[bytes], size: int) -> None:
        """Append a field that is made of parts."""
        head = tag + varint(size)
        self.parts.append(head)
        self.parts += parts
        self.size += len(head) + size

    def nest(self, tag: bytes, start: bytes = b"") -> "_Nested":
        """Return a message that has this one as its field, behind a start."""
        outer = _Nested(start)
        outer.add(tag, self.parts, self.size)
        return outer


def _request(signal: Signal, content: _Nested) -> bytes:
    resource, _ = _envelope()[signal]
    return b"".join(content.nest(_SCOPE[signal], resource).nest(_RESOURCE[signal]).parts)


def metrics_request(groups: Iterable[tuple[Descriptor | None, list[bytes]]]) -> bytes:
    """Return an ExportMetricsServiceRequest."""
    scope = _Nested(_envelope()["metrics"][1])
    for descriptor, parts in groups:
        assert descriptor is not None
        head, data = _head(descriptor)
        size = len(data) + sum(map(len, parts))
        head += varint(size)
        scope.add(_METRIC, [head, data, *parts], len(head) + size)
    return _request("metrics", scope)


def flat_request(signal: Signal, groups: Iterable[tuple[Descriptor | None, list[bytes]]]) -> bytes:
    """Return a request of log records or of spans."""
    scope = _Nested(_envelope()[signal][1])
    for _, parts in groups:
        scope.parts += parts
        scope.size += sum(map(len, parts))
    return _request(signal, scope)


def payloads(signal: Signal, items: Sequence[Content], max_bytes: int, known: Rows) -> list[Payload]:
    """Return requests of at most `max_bytes` each; one point alone may be larger."""
    merged: dict[Descriptor | None, list[bytes]] = {}
    for item in items:
        if isinstance(item, LogEntry):
            merged.setdefault(None, []).append(encode_log(item))
        elif isinstance(item, SpanEntry):
            merged.setdefault(None, []).append(encode_span(item))
        else:
            for found, points in encode_points(item, known):
                merged.setdefault(found, []).extend(points)
    made: list[Payload] = []
    room = budget = max_bytes - ENVELOPE_BYTES
    for descriptor, parts in merged.items():
        for part, size in _pieces(parts, room - METRIC_BYTES, budget - METRIC_BYTES):
            if not made or size + METRIC_BYTES > room:
                made.append(Payload(signal, [], 0))
                room = budget
            made[-1].groups.append((descriptor, part))
            made[-1].count += len(part)
            room -= size + METRIC_BYTES
    return made


def _pieces(parts: list[bytes], first: int, most: int) -> Iterator[tuple[list[bytes], int]]:
    """Yield the parts in lists of at most `most` bytes, the first of at most `first`, with their sizes.

    One part alone may be larger.
    """
    size = sum(map(len, parts))
    if size <= first or len(parts) == 1:
        yield parts, size
        return
    begin = size = 0
    for at, part in enumerate(parts):
        if at > begin and size + len(part) > first:
            yield parts[begin:at], size
            begin, size, first = at, 0, most
        size += len(part)
    yield parts[begin:], size


__all__ = [
    "Payload",
    "Rows",
    "Signal",
    "any_value",
    "encode_log",
    "encode_points",
    "encode_span",
    "key_values",
    "payloads",
]
