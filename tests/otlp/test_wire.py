"""What is written is what the official classes read."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlpsamples import T0, finding, ib_sample, job_sample, kernel_event

from heeler.otlp.logs import finding as map_finding
from heeler.otlp.logs import kernel_event as map_kernel_event
from heeler.otlp.map import gpu_points, ib_points
from heeler.otlp.points import Points
from heeler.otlp.starts import Starts
from heeler.otlp.wire import Payload, Rows, any_value, payloads, varint
from heeler.sim.receiver import plain, read

BIG = 1 << 40


def received(made: list[Payload]) -> list[dict[str, Any]]:
    """Read requests as a receiver would."""
    request: dict[str, Any] = {"metrics": ExportMetricsServiceRequest, "logs": ExportLogsServiceRequest}
    return [item for one in made for item in read(one.signal, request[one.signal].FromString(one.data()))]


def comparable(points: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            p["metric"],
            p["unit"],
            p["kind"],
            p["value"],
            p["ts"],
            p.get("start_ts", 0),
            str(sorted(p["attributes"].items())),
        )
        for p in points
    )


def check(*points: Points, max_bytes: int = BIG) -> list[Payload]:
    starts = Starts()
    for one in points:
        starts.fill(one)
    made = payloads("metrics", points, max_bytes, Rows())
    got = received(made)
    assert comparable(got) == comparable([p for one in points for p in one.flat()])
    assert all(p["cumulative"] for p in got if p["kind"] != "gauge")
    assert sum(one.count for one in made) == len(got)
    return made


def test_a_samples_points_are_read_back_as_they_were() -> None:
    check(gpu_points(job_sample()), gpu_points(job_sample("n2", window=1)), ib_points(ib_sample()))


def test_points_of_a_metric_share_its_head() -> None:
    (made,) = check(gpu_points(job_sample()), gpu_points(job_sample("n2")))
    request = ExportMetricsServiceRequest.FromString(made.data())
    found = [metric.name for metric in request.resource_metrics[0].scope_metrics[0].metrics]
    assert len(found) == len(set(found))
    assert request.resource_metrics[0].scope_metrics[0].scope.name == "heeler.otlp"


def test_counters_beyond_63_bits_and_fractions_survive_as_doubles() -> None:
    last = {"ecc_corrected_volatile": [(1 << 64) - 1, 1.5], "ecc_uncorrected_volatile": [(1 << 63) - 1, 3.0]}
    points = gpu_points(job_sample(last=last))
    got = {
        (p["attributes"]["error.type"], p["attributes"]["hw.id"]): p["value"]
        for p in received(payloads("metrics", [points], BIG, Rows()))
        if p["metric"] == "hw.errors"
    }
    assert got == {
        ("corrected", "GPU-n1-0"): float((1 << 64) - 1),
        ("corrected", "GPU-n1-1"): 1.5,
        ("uncorrected", "GPU-n1-0"): (1 << 63) - 1,
        ("uncorrected", "GPU-n1-1"): 3,
    }


def test_a_reset_gives_one_series_another_start() -> None:
    check(gpu_points(job_sample(window=2)), gpu_points(job_sample(window=3, last={"energy_j": [1.0, 5000.0]})))


def test_requests_keep_under_the_limit_and_lose_no_point() -> None:
    made = check(*(gpu_points(job_sample(f"n{i}", gpus=8)) for i in range(40)), max_bytes=40_000)
    assert len(made) > 10
    assert max(len(one.data()) for one in made) <= 40_000


def test_a_thousand_gpus_with_long_labels_are_cut_below_four_mib() -> None:
    def sample(node: int) -> Points:
        gpu = {"uuid": [f"GPU-{node}-{i}-" + "x" * 60 for i in range(8)], "model": ["m" * 200] * 8}
        last = {f"counter_{column}": [column] * 8 for column in range(40)}
        return gpu_points(job_sample(f"n{node}", gpus=8, gpu=gpu, last=last, job=["j" * 100] * 8))

    made = payloads("metrics", [sample(node) for node in range(125)], 3 << 20, Rows())
    assert sum(one.count for one in made) > 40_000
    assert max(len(one.data()) for one in made) < 4 << 20


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 60), st.integers(1, 4))
def test_halves_hold_all_points_between_them(size: int, times: int) -> None:
    points = gpu_points(job_sample(gpus=size))
    parts = payloads("metrics", [points], BIG, Rows())
    for _ in range(times):
        parts = [half for part in parts for half in part.halves() or (part,)]
    assert comparable(received(parts)) == comparable(list(points.flat()))


def test_a_single_point_has_no_halves() -> None:
    points = gpu_points(job_sample(gpus=1, mean={"power_w": [1.0]}, last={}, state=[None]))
    (made,) = payloads("metrics", [points], BIG, Rows())
    assert made.count == 1
    assert made.halves() is None


def test_a_job_change_changes_the_attributes_at_once_and_memory_stays_flat() -> None:
    rows = Rows()
    for number in range(500):
        points = gpu_points(job_sample(gpus=1, window=number, job=[str(number)], jobs={}))
        got = received(payloads("metrics", [points], BIG, rows))
        assert {p["attributes"]["slurm.job.id"] for p in got} == {str(number)}
    assert len(rows) == 1


def test_rows_forget_the_oldest_at_their_limit() -> None:
    rows = Rows(most=10)
    for number in range(30):
        payloads("metrics", [gpu_points(job_sample(f"n{number}", gpus=1))], BIG, rows)
    assert len(rows) == 10


def test_records_are_read_back_as_they_were() -> None:
    entries = [
        map_finding(finding()),
        map_kernel_event(kernel_event(detail={"link": [1, None, {"deep": True}], "none": None})),
    ]
    made = payloads("logs", entries, BIG, Rows())
    got = received(made)
    assert [(one["event"], one["body"], one["severity"], one["ts"]) for one in got] == [
        (entry.event, entry.body, entry.severity, entry.ts_ns) for entry in entries
    ]
    assert got[0]["attributes"] == entries[0].attributes
    assert got[1]["attributes"]["heeler.kernel.detail"] == {"link": [1, None, {"deep": True}]}
    assert got[0]["ts"] == T0 + 10_000_000_000


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def without_none(value: Any) -> Any:
    """A map's unknown values are left out; a list keeps its places."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=40, deadline=None)
@given(_values)
def test_any_decoded_value_has_a_form(value: Any) -> None:
    assert plain(any_value(value)) == without_none(value)


def test_what_has_no_form_becomes_text_and_depth_has_an_end() -> None:
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]
    assert any_value(1 << 70).string_value == str(1 << 70)
    assert any_value(deep).ByteSize() < 2000
    assert any_value(object()).string_value.startswith("<object")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, (1 << 63) - 1))
def test_lengths_are_written_as_protobuf_does(number: int) -> None:
    from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[import-untyped]

    assert varint(number) == _VarintBytes(number)
