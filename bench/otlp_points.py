"""Points per second: the otlp exporter beside the OpenTelemetry SDK's own pipeline, on the same samples.

Both send over gRPC to a server in another process that takes requests without reading them. Three ways:

ours         decode and check the message, map, encode, send
sdk export   the official exporter, given the SDK's data classes built from the decoded message
sdk meters   an instrument per metric, set per GPU, collected and exported by the SDK once per window; it can't
             keep our time stamps nor leave a series out, so it is the ceiling of what instruments could do here

python bench/otlp_points.py [--nodes 256] [--windows 3] [--gzip]
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import grpc  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from heeler.bus import encode, subjects
from heeler.engine.intake import intake
from heeler.otlp.exporter import OtlpSink
from heeler.otlp.map import gpu_points
from heeler.otlp.names import GPU, Kind
from heeler.otlp.points import Points
from heeler.otlp.settings import SinkSettings
from heeler.otlp.starts import Starts

T0, WINDOW = 1_767_225_600_000_000_000, 10_000_000_000
BATCH_MESSAGES = 20


def sample(node: int, window: int) -> dict[str, Any]:
    """Return a JobSample of 8 GPUs with every column of the contract."""
    name = f"node{node:05d}"
    return {
        "v": 1,
        "cluster": "bench",
        "node": name,
        "ts": T0 + window * WINDOW,
        "boot": "5f0c6a3e-8d1b-4b9a-9a53-0b5c1d2e3f40",
        "seq": window,
        "window_ns": WINDOW,
        "reads": 10,
        "gpu": {
            "uuid": [f"GPU-5c9b8f7e-{node:04x}-4a1d-9c3e-2f1a0b9c8d{i:02x}" for i in range(8)],
            "index": list(range(8)),
            "model": ["NVIDIA H100 80GB HBM3"] * 8,
        },
        **{
            group: {column: [0.25 + i + window + at for i in range(8)] for at, column in enumerate(GPU[group])}
            for group in ("mean", "min", "max")
        },
        "last": {column: [1000 + i + window for i in range(8)] for column in GPU["last"]},
        "state": ["ok"] * 8,
        "job": ["81234"] * 8,
        "jobs": {"81234": {"user": "alice", "account": "ml", "partition": "gpu"}},
        "shard": 3,
    }


def serve(pipe: Connection) -> None:
    """Take every request unread, until told to end; then say how many bytes came."""
    received = [0]

    def take(request: bytes, _: Any) -> bytes:
        received[0] += len(request)
        return b""

    service = "opentelemetry.proto.collector.metrics.v1.MetricsService"
    handler = grpc.unary_unary_rpc_method_handler(take)
    server = grpc.server(ThreadPoolExecutor(4), options=(("grpc.max_receive_message_length", 64 << 20),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
    pipe.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    pipe.recv()
    server.stop(None).wait()


def ours(messages: list[tuple[str, bytes, int]], url: str, gzip: bool) -> int:
    """Return the points sent."""
    sink = OtlpSink(SinkSettings(kind="otlp", endpoint=url, compression="gzip" if gzip else "none"))
    starts, sent, batch = Starts(), 0, list[Points]()
    for number, (subject, payload, ts) in enumerate(messages, 1):
        points = gpu_points(intake(subject, None, payload, ts).data)
        starts.fill(points)
        batch.append(points)
        if len(batch) == BATCH_MESSAGES or number == len(messages):
            for request in sink.prepare("metrics", batch):
                sink.send(request)
                sent += request.count
            batch = []
    sink.close()
    return sent


def data_of(batch: list[Points]) -> tuple[MetricsData, int]:
    """Return the SDK's form of some points."""
    metrics: dict[Any, list[NumberDataPoint]] = {}
    count = 0
    for points in batch:
        rows = [dict(attributes) for attributes in points.attributes]
        for at, (metric, values) in enumerate(points.columns):
            found = metrics.setdefault((metric.name, metric.unit, metric.kind), [])
            for row, value in enumerate(values):
                if value is not None:
                    found.append(
                        NumberDataPoint(
                            attributes={**rows[row], **dict(metric.attributes)},
                            start_time_unix_nano=points.start(row, at),
                            time_unix_nano=points.ts_ns,
                            value=value,
                        )
                    )
                    count += 1
    made = [Metric(name, "", unit, _data(kind, points)) for (name, unit, kind), points in metrics.items()]
    scope = ScopeMetrics(InstrumentationScope("heeler.otlp"), made, "")
    return MetricsData([ResourceMetrics(Resource({"service.name": "heeler"}), [scope], "")]), count


def _data(kind: Kind, points: list[NumberDataPoint]) -> Gauge | Sum:
    if kind is Kind.GAUGE:
        return Gauge(points)
    return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=kind is Kind.COUNTER)


def _official(url: str, gzip: bool, most: int | None = None) -> OTLPMetricExporter:
    compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
    return OTLPMetricExporter(endpoint=url, insecure=True, compression=compression, max_export_batch_size=most)


def sdk_export(messages: list[tuple[str, bytes, int]], url: str, gzip: bool) -> int:
    """Return the points sent."""
    exporter = _official(url, gzip)
    starts, sent, batch = Starts(), 0, list[Points]()
    for number, (subject, payload, ts) in enumerate(messages, 1):
        points = gpu_points(intake(subject, None, payload, ts).data)
        starts.fill(points)
        batch.append(points)
        if len(batch) == BATCH_MESSAGES or number == len(messages):
            data, count = data_of(batch)
            exporter.export(data)
            sent += count
            batch = []
    exporter.shutdown()
    return sent


def sdk_meters(messages: list[tuple[str, bytes, int]], url: str, gzip: bool) -> int:
    """Return the points sent."""
    exporter = _official(url, gzip, most=9000)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    provider = MeterProvider([reader])
    meter = provider.get_meter("heeler")
    instruments: dict[str, Any] = {}
    sent, window = 0, messages[0][2]
    for subject, payload, ts in messages:
        points = gpu_points(intake(subject, None, payload, ts).data)
        if ts != window:
            reader.collect(timeout_millis=60_000)
            window = ts
        rows = [dict(attributes) for attributes in points.attributes]
        for metric, values in points.columns:
            gauge = instruments.get(metric.name)
            if gauge is None:
                gauge = instruments[metric.name] = meter.create_gauge(metric.name, metric.unit)
            for row, value in enumerate(values):
                if value is not None:
                    gauge.set(value, {**rows[row], **dict(metric.attributes)})
                    sent += 1
    reader.collect(timeout_millis=60_000)
    provider.shutdown()
    return sent


def main() -> None:
    """Run all three and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--gzip", action="store_true")
    options = parser.parse_args()
    messages = [
        (subjects.job_sample("bench", "3", one["node"]), encode("JobSample", one), one["ts"])
        for window in range(options.windows)
        for one in (sample(node, window) for node in range(options.nodes))
    ]
    pipe, child = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(child,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{pipe.recv()}"
    result: dict[str, Any] = {"messages": len(messages), "gpus": 8 * options.nodes, "gzip": options.gzip}
    ways: list[tuple[str, Callable[[list[tuple[str, bytes, int]], str, bool], int]]] = [
        ("ours", ours),
        ("sdk_export", sdk_export),
        ("sdk_meters", sdk_meters),
    ]
    for name, way in ways:
        wall, cpu = time.perf_counter(), time.process_time()
        points = way(messages, url, options.gzip)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        result[name] = {"points": points, "points_per_s": round(points / wall), "points_per_cpu_s": round(points / cpu)}
        print(f"{name:11} {points:8} points  {points / wall:10.0f} /s  {points / cpu:10.0f} /CPU s", flush=True)
    pipe.send(None)
    server.join(10)
    for name in ("sdk_export", "sdk_meters"):
        result[f"ours_over_{name}"] = round(result["ours"]["points_per_cpu_s"] / result[name]["points_per_cpu_s"], 1)
    per_message = result["ours"]["points"] / len(messages)
    result["nodes_at_10s_windows"] = round(result["ours"]["points_per_s"] / per_message * 10)
    result["head_room_at_12500_nodes"] = round(result["nodes_at_10s_windows"] / 12_500, 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
