"""An OTLP receiver for demos and tests: gRPC and HTTP, counts what arrives, checks it, writes it as JSON lines.

``python -m heeler.sim.receiver`` prints its two addresses as one JSON line, answers ``GET /counts`` on its HTTP
port while it runs, and prints the counts as its last line when it is stopped.
"""

import gzip
import json
import signal
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TextIO

import click
import grpc  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status

MESSAGES: Mapping[str, Any] = {
    "metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse, "rejected_data_points"),
    "logs": (ExportLogsServiceRequest, ExportLogsServiceResponse, "rejected_log_records"),
    "traces": (ExportTraceServiceRequest, ExportTraceServiceResponse, "rejected_spans"),
}
COUNTED: Mapping[str, str] = {"metrics": "points", "logs": "logs", "traces": "spans"}


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request as it came."""

    signal: str
    protocol: str  # grpc or http
    size: int  # uncompressed
    headers: Mapping[str, str]
    items: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver says: by default that it took everything.

    ``grpc`` or ``http`` is a status other than success; ``rejected`` and ``message`` are a partial success. With
    ``hold`` nothing is said until the event is set.
    """

    grpc: Any = None
    http: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    trailers: tuple[tuple[str, bytes], ...] = ()
    rejected: int = 0
    message: str = ""
    hold: threading.Event | None = None

    @property
    def takes(self) -> bool:
        """Say whether what came counts as received."""
        return self.grpc is None and self.http < 300


OK = Answer()


def plain(value: AnyValue) -> Any:
    """Return an attribute's value as Python's."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    return getattr(value, kind) if kind else None


def attributes(pairs: Any) -> dict[str, Any]:
    """Return attributes as a map."""
    return {pair.key: plain(pair.value) for pair in pairs}


def tally(signal_: str, request: Any) -> Counter[str]:
    """Return how many points of each metric a request has; of logs and traces, how many, under an empty name.

    A point without a value says that its series has ended, and is none.
    """
    if signal_ == "traces":
        spans = (scope for resource in request.resource_spans for scope in resource.scope_spans)
        return Counter({"": sum(len(scope.spans) for scope in spans)})
    if signal_ == "logs":
        scopes = (scope for resource in request.resource_logs for scope in resource.scope_logs)
        return Counter({"": sum(len(scope.log_records) for scope in scopes)})
    found: Counter[str] = Counter()
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = getattr(metric, metric.WhichOneof("data")).data_points
                found[metric.name] += sum(not point.flags & DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK for point in points)
    return found


def read(signal_: str, request: Any, every: int = 1, turn: int = 0) -> Iterator[dict[str, Any]]:
    """Yield what is in a request as flat maps: all records and spans, one point of each metric in `every`."""
    if signal_ == "metrics":
        for resource in request.resource_metrics:
            about = attributes(resource.resource.attributes)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    yield from _points(metric, about, every, turn)
        return
    if signal_ == "traces":
        for resource in request.resource_spans:
            about = attributes(resource.resource.attributes)
            yield from (_span(span, about) for scope in resource.scope_spans for span in scope.spans)
        return
    for resource in request.resource_logs:
        about = attributes(resource.resource.attributes)
        for scope in resource.scope_logs:
            for record in scope.log_records:
                yield {
                    "event": record.event_name,
                    "severity": record.severity_number,
                    "body": plain(record.body),
                    "ts": record.time_unix_nano,
                    "trace_id": record.trace_id.hex(),
                    "span_id": record.span_id.hex(),
                    "attributes": attributes(record.attributes),
                    "resource": about,
                }


def _span(span: Any, resource: dict[str, Any]) -> dict[str, Any]:
    return {
        "span": span.name,
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex(),
        "start_ts": span.start_time_unix_nano,
        "ts": span.end_time_unix_nano,
        "links": [{"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex()} for link in span.links],
        "error": span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
        "attributes": attributes(span.attributes),
        "resource": resource,
    }


def _points(metric: Any, resource: dict[str, Any], every: int, turn: int) -> Iterator[dict[str, Any]]:
    form = metric.WhichOneof("data")
    data = getattr(metric, form)
    kind = "gauge" if form == "gauge" else "counter" if data.is_monotonic else "updowncounter"
    for point in data.data_points[turn % every :: every] if every > 1 else data.data_points:
        one = point.WhichOneof("value")
        yield {
            "metric": metric.name,
            "unit": metric.unit,
            "kind": kind,
            "cumulative": kind != "gauge" and data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE,
            "value": getattr(point, one) if one else None,
            "ts": point.time_unix_nano,
            "start_ts": point.start_time_unix_nano,
            "attributes": attributes(point.attributes),
            "resource": resource,
            "ended": bool(point.flags & DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK),
        }


def faults(item: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a point or record by the rules that every one must keep."""
    about = item["attributes"]
    found = [f"attribute {key} is empty" for key, value in about.items() if value in (None, "", [], {})]
    # What Slurm tells is of a cluster, an account or a file system, and not of a node.
    whose = ("heeler.cluster",) if "heeler.slurm.feed" in about else ("host.name", "heeler.cluster")
    found += [f"no {key}" for key in whose if "metric" in item and key not in about]
    if not item["ts"]:
        found.append("no time")
    if "span" in item:
        return [*found, *_span_faults(item)]
    if "metric" not in item:
        return [*found, *(["no body"] if not item["body"] else [])]
    if item["metric"].startswith(("hw.", "heeler.gpu.")) and not (about.get("hw.id") and about.get("hw.type")):
        found.append("no hw.id or hw.type")
    if (item["value"] is None) != item.get("ended", False) or not item["unit"]:
        found.append("no value or unit")
    if item["kind"] != "gauge" and not item["cumulative"]:
        found.append("not cumulative")
    if item["kind"] != "gauge" and not item.get("ended") and not 0 < item["start_ts"] <= item["ts"]:
        found.append("start time")
    return found


def _span_faults(span: Mapping[str, Any]) -> list[str]:
    names = {span["trace_id"]: 16, span["span_id"]: 8, **{link["trace_id"]: 16 for link in span["links"]}}
    found = [f"id {name!r}" for name, size in names.items() if len(name) != 2 * size or not int(name, 16)]
    if span["parent_span_id"] == span["span_id"]:
        found.append("its own parent")
    if not span["span"] or not 0 < span["start_ts"] <= span["ts"]:
        found.append("no name, or ends before it begins")
    return found


class Receiver:
    """Listens on 127.0.0.1, or `host`.

    What it takes is in ``counts``, and in ``points``, ``logs`` and ``spans`` if it keeps them.

    Everything is counted. With ``check_every`` one point of each metric in so many is looked at, each in its turn:
    a look costs ten times a count.
    """

    def __init__(
        self,
        *,
        keep: bool = True,
        out: TextIO | None = None,
        answer: Callable[[Arrival], Answer] = lambda _: OK,
        grpc_port: int = 0,
        http_port: int = 0,
        max_grpc_bytes: int = 4 << 20,
        http_gzip: bool = True,
        tls: tuple[Path, Path] | None = None,  # certificate and key
        check_every: int = 1,
        host: str = "127.0.0.1",
    ) -> None:
        self._every = check_every
        self.answer = answer
        self.http_gzip = http_gzip
        self.points: list[dict[str, Any]] = []
        self.logs: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self.arrivals: list[Arrival] = []
        self.counts: Counter[str] = Counter()
        self.metrics: Counter[str] = Counter()
        self._keep, self._out = keep, out
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._grpc = grpc.server(ThreadPoolExecutor(8), options=(("grpc.max_receive_message_length", max_grpc_bytes),))
        metrics_grpc.add_MetricsServiceServicer_to_server(_MetricsService(self), self._grpc)  # type: ignore[no-untyped-call]
        logs_grpc.add_LogsServiceServicer_to_server(_LogsService(self), self._grpc)  # type: ignore[no-untyped-call]
        traces_grpc.add_TraceServiceServicer_to_server(_TraceService(self), self._grpc)  # type: ignore[no-untyped-call]
        self._host = host
        self._http = _HttpServer((host, http_port), self)
        address = f"{host}:{grpc_port}"
        if tls is None:
            self.grpc_port: int = self._grpc.add_insecure_port(address)
        else:
            cert, key = tls
            credentials = grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
            self.grpc_port = self._grpc.add_secure_port(address, credentials)
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(cert, key)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self._scheme = "http" if tls is None else "https"
        self.http_port: int = self._http.server_address[1]

    @property
    def grpc_url(self) -> str:
        """Endpoint for OTLP over gRPC."""
        return f"{self._scheme}://{self._host}:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        """Endpoint for OTLP over HTTP."""
        return f"{self._scheme}://{self._host}:{self.http_port}"

    def start(self) -> None:
        """Listen."""
        self._grpc.start()
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Close both ports and every connection."""
        self._closing.set()
        self._grpc.stop(None).wait()
        self._http.shutdown()
        self._http.server_close()

    def summary(self) -> dict[str, Any]:
        """Return the counts: points, logs, spans, requests, faults, and points by metric."""
        with self._lock:
            return {"points": 0, "logs": 0, "spans": 0, "faults": 0, **self.counts, "metrics": dict(self.metrics)}

    def take(self, arrival: Arrival, request: Any) -> Answer:
        """Count and keep a request, unless the answer refuses it."""
        answer = self.answer(arrival)
        if answer.hold is not None:
            while not answer.hold.wait(0.05) and not self._closing.is_set():
                pass
        with self._lock:
            turn = len(self.arrivals)
            self.arrivals.append(arrival)
            self.counts["requests"] += 1
            self.counts["refused"] += not answer.takes
        if answer.takes:
            counted = tally(arrival.signal, request)
            items = list(read(arrival.signal, request, self._every, turn))
            with self._lock:
                self.counts[COUNTED[arrival.signal]] += counted.total()
                self.metrics.update({name: count for name, count in counted.items() if name})
                for item in items:
                    self._look(item)
        return answer

    def _look(self, item: dict[str, Any]) -> None:
        wrong = faults(item)
        if wrong:
            self.counts["faults"] += 1
            item = {**item, "faults": wrong}
        if self._keep:
            (self.points if "metric" in item else self.spans if "span" in item else self.logs).append(item)
        if self._out is not None:
            self._out.write(json.dumps(item, default=str) + "\n")


class _Service:
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def _export(self, signal_: str, request: Any, context: Any) -> Any:
        headers = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        count = tally(signal_, request).total()
        answer = self._receiver.take(Arrival(signal_, "grpc", request.ByteSize(), headers, count), request)
        if answer.grpc is not None:
            context.set_trailing_metadata(answer.trailers)
            context.abort(answer.grpc, answer.message or "refused")
        return respond(signal_, answer)


class _MetricsService(_Service, metrics_grpc.MetricsServiceServicer):
    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name for it
        return self._export("metrics", request, context)


class _LogsService(_Service, logs_grpc.LogsServiceServicer):
    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name for it
        return self._export("logs", request, context)


class _TraceService(_Service, traces_grpc.TraceServiceServicer):
    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name for it
        return self._export("traces", request, context)


def respond(signal_: str, answer: Answer) -> Any:
    """Return the protobuf answer."""
    _, response, rejected = MESSAGES[signal_]
    return response(partial_success={rejected: answer.rejected, "error_message": answer.message})


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], receiver: Receiver) -> None:
        super().__init__(address, _Handler)
        self.receiver = receiver
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close the port and every connection."""
        super().server_close()
        for request in list(self._open):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away or dislike our certificate."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def log_message(self, *_: Any) -> None:
        """Say nothing for each request."""

    def do_GET(self) -> None:
        """Answer with the counts."""
        if self.path == "/counts":
            self._say(200, json.dumps(self.server.receiver.summary()).encode(), "application/json")
        else:
            self._say(404, b"try /counts", "text/plain")

    def do_POST(self) -> None:
        """Take an export."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        signal_ = self.path.removeprefix("/v1/")
        if signal_ not in MESSAGES:
            self._say(404, b"no such signal", "text/plain")
            return
        if self.headers.get("Content-Encoding") == "gzip":
            if not self.server.receiver.http_gzip:
                self._say(415, b"no gzip here", "text/plain")
                return
            body = gzip.decompress(body)
        try:
            request = MESSAGES[signal_][0].FromString(body)
        except DecodeError:
            self._say(400, b"not protobuf", "text/plain")
            return
        count = tally(signal_, request).total()
        arrival = Arrival(signal_, "http", len(body), dict(self.headers.items()), count)
        answer = self.server.receiver.take(arrival, request)
        if answer.http >= 300:
            self._say(answer.http, answer.message.encode() or b"refused", "text/plain", answer.headers)
        else:
            self._say(200, respond(signal_, answer).SerializeToString(), "application/x-protobuf", answer.headers)

    def _say(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@click.command(help="Receive OTLP, count, check, and write JSON lines.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--grpc-port", default=0, help="Port for gRPC; 0 takes a free one.")
@click.option("--http-port", default=0, help="Port for HTTP and /counts; 0 takes a free one.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File for what arrives, as JSON lines.")
@click.option("--check-every", default=1, show_default=True, help="Look at one point of each metric in so many.")
def main(host: str, grpc_port: int, http_port: int, out: Path | None, check_every: int) -> None:
    """Be ``python -m heeler.sim.receiver``."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    file = out.open("w", buffering=1) if out else None
    receiver = Receiver(
        keep=False, out=file, grpc_port=grpc_port, http_port=http_port, check_every=check_every, host=host
    )
    receiver.start()
    click.echo(json.dumps({"grpc": receiver.grpc_url, "http": receiver.http_url}))
    ended.wait()
    receiver.stop()
    click.echo(json.dumps(receiver.summary()))


if __name__ == "__main__":
    main()
