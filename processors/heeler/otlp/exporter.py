"""The OTLP sink: gRPC and HTTP with protobuf.

The official exporters' `export` hides what is needed here: they throw the answer away (partial success), retry on
their own while blocking, and report any failure as one word. So the official messages, the services' method names
and the transports under those exporters (grpcio, requests) are used, and answers are read.

Which answer means what follows the OTLP specification, with one difference: an answer that refuses *us* rather than
the data (401, 403, 404, 415, UNAUTHENTICATED ...) is an outage. The stream holds the data until someone mends it.
"""

import gzip
import os
import threading
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import requests
import structlog
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.util.re import parse_env_headers
from urllib3.exceptions import HTTPError

from heeler.otlp.points import Content
from heeler.otlp.raw import RawMetrics
from heeler.otlp.settings import SinkSettings
from heeler.otlp.sinks import Receipt, Rejected, TooLarge, Unavailable
from heeler.otlp.wire import Payload, Rows, Signal, payloads

log = structlog.get_logger("heeler.otlp")

LEAST_BYTES = 16 << 10
MAX_ANSWER = 1 << 20

_RESPONSE: Mapping[Signal, Any] = {
    "metrics": ExportMetricsServiceResponse,
    "logs": ExportLogsServiceResponse,
    "traces": ExportTraceServiceResponse,
}
_REJECTED: Mapping[Signal, str] = {
    "metrics": "rejected_data_points",
    "logs": "rejected_log_records",
    "traces": "rejected_spans",
}
_METHOD: Mapping[Signal, str] = {
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
}

_CODE = grpc.StatusCode
_GRPC_LATER = {
    _CODE.CANCELLED,
    _CODE.DEADLINE_EXCEEDED,
    _CODE.ABORTED,
    _CODE.OUT_OF_RANGE,
    _CODE.UNAVAILABLE,
    _CODE.DATA_LOSS,
    # refuse us, not the data:
    _CODE.UNAUTHENTICATED,
    _CODE.PERMISSION_DENIED,
    _CODE.UNIMPLEMENTED,
}
_HTTP_LATER = {429, 502, 503, 504} | {401, 403, 404, 405, 407, 415}


class Transport(Protocol):
    """Carries the bytes of requests of one signal."""

    def send(self, data: bytes) -> Receipt:
        """Send a request and read the answer. Raises SinkError."""
        ...

    def close(self) -> None:
        """Let go of the connection; a `send` under way ends soon."""
        ...


class OtlpSink:
    """Sends to an OTLP receiver, over a connection for each signal."""

    def __init__(self, settings: SinkSettings) -> None:
        self._limits = dict.fromkeys(_METHOD, settings.max_bytes)
        self._most = settings.max_bytes
        self._rows = Rows()
        make = GrpcTransport if settings.protocol == "grpc" else HttpTransport
        self._transports: dict[Signal, Transport] = {signal: make(settings, signal) for signal in _METHOD}

    def prepare(self, signal: Signal, items: Sequence[Content | RawMetrics]) -> list[Payload | RawMetrics]:
        """Return requests under the size that the receiver is known to take."""
        limit = self._limits[signal]
        raw = [piece for item in items if isinstance(item, RawMetrics) for piece in item.pieces(limit)]
        own = [item for item in items if not isinstance(item, RawMetrics)]
        return [*raw, *(payloads(signal, own, limit, self._rows) if own else ())]

    def send(self, request: Payload | RawMetrics) -> Receipt:
        """Send one request. Raises SinkError; what was too large teaches a lower limit, what was not a higher one."""
        data = request.data()
        signal: Signal = "metrics" if isinstance(request, RawMetrics) else request.signal
        try:
            receipt = self._transports[signal].send(data)
        except TooLarge as error:
            if error.after_s is None:
                self._limits[signal] = max(LEAST_BYTES, min(len(data), self._limits[signal]) // 2)
            raise
        self._limits[signal] = min(self._most, self._limits[signal] + self._limits[signal] // 16)
        return receipt

    def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            transport.close()


class GrpcTransport:
    """OTLP over gRPC. After a failed connection the channel is made anew, and certificates are read again."""

    OPTIONS = (
        ("grpc.initial_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 5000),
        ("grpc.primary_user_agent", "heeler-otlp"),
    )

    def __init__(self, settings: SinkSettings, signal: Signal) -> None:
        self._settings, self._signal = settings, signal
        self._headers = tuple((key.lower(), value) for key, value in _headers(settings).items())
        self._gzip = settings.compression == "gzip"
        self._lock = threading.Lock()
        self._channel: Any = None
        self._call: Any = None
        self._closed = False

    def send(self, data: bytes) -> Receipt:
        """Send a request and read the answer. Raises SinkError."""
        try:
            return _receipt(self._signal, self._export(data))
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            code = error.code() if isinstance(error, grpc.RpcError) else _CODE.CANCELLED
            why = f"{code.name}: {error.details()}" if isinstance(error, grpc.RpcError) else "closed"
            if code is _CODE.UNIMPLEMENTED and self._gzip and self._settings.gzip_fallback:
                log.warning("gzip_refused", endpoint=self._settings.endpoint, signal=self._signal, now="plain")
                self._gzip = False
                raise Unavailable(why, after_s=0.0) from error
            if code in (_CODE.UNAVAILABLE, _CODE.CANCELLED):
                self._drop_channel()
            if code is _CODE.UNIMPLEMENTED:
                why += _no_such_signal(self._signal)
            raise _grpc_error(code, why, _retry_after(error)) from error

    def _export(self, data: bytes) -> Any:
        with self._lock:
            if self._closed:
                raise Unavailable("closed")
            if self._channel is None:
                self._channel = self._connect()
            export = self._channel.unary_unary(
                _METHOD[self._signal], response_deserializer=_RESPONSE[self._signal].FromString
            )
            call = self._call = export.future(data, timeout=self._settings.timeout_s, metadata=self._headers)
        return call.result()

    def _connect(self) -> Any:
        settings = self._settings
        target = urlsplit(settings.endpoint)
        secure = target.scheme == "https"
        compression = grpc.Compression.Gzip if self._gzip else grpc.Compression.NoCompression
        port = target.port or (443 if secure else 4317)
        address = f"[{target.hostname}]:{port}" if ":" in (target.hostname or "") else f"{target.hostname}:{port}"
        if not secure:
            return grpc.insecure_channel(address, options=self.OPTIONS, compression=compression)
        try:
            credentials = grpc.ssl_channel_credentials(_read(settings.ca), _read(settings.key), _read(settings.cert))
        except OSError as error:
            raise Unavailable(f"{error.filename}: {error.strerror}") from error
        return grpc.secure_channel(address, credentials, options=self.OPTIONS, compression=compression)

    def _drop_channel(self) -> None:
        with self._lock:
            channel, self._channel, self._call = self._channel, None, None
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Cancel the call under way and close the channel."""
        with self._lock:
            self._closed = True
            call = self._call
        if call is not None:
            call.cancel()
        self._drop_channel()


class HttpTransport:
    """OTLP over HTTP with protobuf. After a failed connection the session is made anew, certificates are read again."""

    def __init__(self, settings: SinkSettings, signal: Signal) -> None:
        self._settings, self._signal = settings, signal
        self._url = f"{settings.endpoint.rstrip('/')}/v1/{signal}"
        self._gzip = settings.compression == "gzip"
        self._session: requests.Session | None = None
        self._closed = False

    def send(self, data: bytes) -> Receipt:
        """Send a request and read the answer. Raises SinkError."""
        status, headers, body = self._post(data, zipped=self._gzip)
        if status in (400, 415) and self._gzip and self._settings.gzip_fallback:
            plain = self._post(data, zipped=False)
            if plain[0] < 300:
                log.warning("gzip_refused", endpoint=self._settings.endpoint, signal=self._signal, now="plain")
                self._gzip = False
                status, headers, body = plain
        if 200 <= status < 300:
            return _receipt(self._signal, _answer(self._signal, headers, body))
        why = f"HTTP {status}: {_reason(headers, body)}"
        if status == 413:
            raise TooLarge(why)
        if status == 404:
            why += _no_such_signal(self._signal)
        if status in _HTTP_LATER or 300 <= status < 400:
            raise Unavailable(why, _seconds(headers.get("Retry-After")))
        raise Rejected(why)

    def _post(self, data: bytes, *, zipped: bool) -> tuple[int, Mapping[str, str], bytes]:
        if self._closed:
            raise Unavailable("closed")
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": "heeler-otlp", **_headers(self._settings)}
        if zipped:
            # Points repeat their attributes: the quickest level is as good as any.
            data = gzip.compress(data, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        try:
            if self._session is None:
                self._session = requests.Session()
            settings = self._settings
            with self._session.post(
                self._url,
                data=data,
                headers=headers,
                timeout=settings.timeout_s,
                # Here and not on the session, where REQUESTS_CA_BUNDLE would go before them.
                verify=settings.ca or True,
                cert=(settings.cert, settings.key) if settings.cert and settings.key else None,
                allow_redirects=False,
                stream=True,
            ) as response:
                return response.status_code, response.headers, response.raw.read(MAX_ANSWER, decode_content=True) or b""
        except (requests.RequestException, OSError, HTTPError) as error:
            self._drop_session()
            raise Unavailable(f"{type(error).__name__}: {_innermost(error)}") from error

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def close(self) -> None:
        """Close what is idle. A request under way ends by its own time limit, in a thread nobody waits for."""
        self._closed = True
        self._drop_session()


def _no_such_signal(signal: Signal) -> str:
    return f" (if nobody takes {signal} there, leave {signal} out of `signals`)"


def _headers(settings: SinkSettings) -> dict[str, str]:
    return {
        **settings.headers,
        **parse_env_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""), liberal=True),
    }


def _read(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None


def _grpc_error(code: Any, why: str, after_s: float | None) -> Exception:
    if code is _CODE.RESOURCE_EXHAUSTED:
        return TooLarge(why, after_s)
    return Unavailable(why, after_s) if code in _GRPC_LATER else Rejected(why)


def _retry_after(error: Any) -> float | None:
    """Return the seconds of a RetryInfo in the status or in its own trailer."""
    for key, value in error.trailing_metadata() or () if isinstance(error, grpc.RpcError) else ():
        info = RetryInfo()
        try:
            if key == "google.rpc.retryinfo-bin":
                info.ParseFromString(value)
            elif key == "grpc-status-details-bin":
                details = Status.FromString(value).details
                if not any(detail.Is(RetryInfo.DESCRIPTOR) and detail.Unpack(info) for detail in details):
                    continue
            else:
                continue
        except DecodeError:
            continue
        return float(max(0.0, info.retry_delay.seconds + info.retry_delay.nanos / 1e9))
    return None


def _seconds(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(int(value)))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _answer(signal: Signal, headers: Mapping[str, str], body: bytes) -> Any:
    """Return the answer to a request that was taken. A body that isn't one says nothing."""
    if "protobuf" in headers.get("Content-Type", ""):
        try:
            return _RESPONSE[signal].FromString(body)
        except DecodeError:
            pass
    return _RESPONSE[signal]()


def _receipt(signal: Signal, answer: Any) -> Receipt:
    partial = answer.partial_success
    return Receipt(getattr(partial, _REJECTED[signal]), partial.error_message)


def _reason(headers: Mapping[str, str], body: bytes) -> str:
    """Return what a refusal says of itself, on one short line."""
    if "protobuf" in headers.get("Content-Type", ""):
        try:
            return str(Status.FromString(body).message)[:300]
        except DecodeError:
            pass
    return " ".join(body[:300].decode(errors="replace").split())


def _innermost(error: BaseException) -> str:
    """Return the cause that says most: requests wraps three deep."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error)[:300]
