"""Requests of others in pieces, and as lines."""

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from heeler.otlp.raw import RawMetrics


def request() -> ExportMetricsServiceRequest:
    """Two resources, of which each has a counter of three points, a histogram, and a metric without data."""
    made = ExportMetricsServiceRequest()
    for node in ("n1", "n2"):
        resource = made.resource_metrics.add(schema_url="s")
        resource.resource.attributes.add(key="host.name").value.string_value = node
        scope = resource.scope_metrics.add()
        scope.scope.name = "exporter"
        total = scope.metrics.add(name="total", unit="By").sum
        total.is_monotonic = True
        for number in range(3):
            total.data_points.add(as_int=number, time_unix_nano=9)
        scope.metrics.add(name="times").histogram.data_points.add(count=2, sum=3.0)
        scope.metrics.add(name="empty")
    return made


def shown(*parts: RawMetrics) -> list[tuple[str, str, object]]:
    return [(line["attributes"]["host.name"], line["metric"], line["value"]) for part in parts for line in part.flat()]


def test_halves_have_all_points_once_each_in_its_own_metric() -> None:
    whole = RawMetrics(request())
    assert len(whole) == 8
    halves = whole.halves()
    assert halves is not None
    assert [len(half) for half in halves] == [4, 4]
    assert shown(*halves) == shown(whole)
    for half in halves:
        scope = half.request.resource_metrics[0].scope_metrics[0]
        assert (scope.scope.name, scope.metrics[0].unit, scope.metrics[0].sum.is_monotonic) == ("exporter", "By", True)


def test_pieces_are_as_small_as_they_must_be_down_to_one_point() -> None:
    whole = RawMetrics(request())
    assert whole.pieces(1 << 20) == [whole]
    ones = whole.pieces(1)
    assert [len(one) for one in ones] == [1] * 8
    assert shown(*ones) == shown(whole)
    assert all(one.halves() is None for one in ones)


def test_a_point_without_a_number_has_none() -> None:
    made = ExportMetricsServiceRequest()
    made.resource_metrics.add().scope_metrics.add().metrics.add(name="x").gauge.data_points.add()
    (line,) = RawMetrics(made).flat()
    assert line["value"] is None
