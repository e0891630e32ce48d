"""OTLP in, over gRPC and HTTP: bytes to the relay, its word back as the OTLP specification says."""

import math
import ssl
import zlib
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from aiohttp import web
from google.protobuf.any_pb2 import Any as AnyMessage  # type: ignore[import-untyped]
from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from heeler.otlpin.relay import Relay, Reply
from heeler.otlpin.settings import OtlpInSettings

SERVICE = "opentelemetry.proto.collector.metrics.v1.MetricsService"
PROTOBUF = "application/x-protobuf"
_GRPC = {
    "bad": grpc.StatusCode.INVALID_ARGUMENT,
    "too_large": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "away": grpc.StatusCode.UNAVAILABLE,
}
_HTTP = {"taken": 200, "bad": 400, "too_large": 413, "busy": 429, "away": 503}


class TooMuchError(ValueError):
    """A body that is larger than may be."""


def unzipped(data: bytes, most: int) -> bytes:
    """Return what a gzip body holds, at most so much. Raises TooMuchError, ValueError."""
    packed = zlib.decompressobj(wbits=31)
    try:
        found = packed.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"gzip: {error}") from None
    if len(found) > most:
        raise TooMuchError(f"more than {most} bytes")
    if not packed.eof:
        raise ValueError("gzip: cut off")
    return found


def _answer(reply: Reply) -> bytes:
    partial = ExportMetricsPartialSuccess(rejected_data_points=reply.rejected, error_message=reply.message)
    return bytes(ExportMetricsServiceResponse(partial_success=partial if reply.rejected else None).SerializeToString())


def _status(reply: Reply) -> Status:
    status = Status(code=_GRPC[reply.verdict].value[0], message=reply.message)
    if reply.after_s is not None:
        detail = AnyMessage()
        seconds = int(reply.after_s)
        delay = Duration(seconds=seconds, nanos=int((reply.after_s - seconds) * 1e9))
        detail.Pack(RetryInfo(retry_delay=delay))
        status.details.append(detail)
    return status


class Server:
    """Listens on both ports."""

    def __init__(self, relay: Relay, settings: OtlpInSettings) -> None:
        self._relay, self._settings = relay, settings
        self.grpc_port = self.http_port = 0
        self._grpc: Any = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError where an address can't be had."""
        if self._settings.grpc:
            await self._start_grpc(self._settings.grpc)
        if self._settings.http:
            await self._start_http(self._settings.http)

    async def stop(self) -> None:
        """Take no more, and wait a moment for what is under way."""
        if self._grpc is not None:
            await self._grpc.stop(self._settings.stop_s)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _start_grpc(self, address: str) -> None:
        most = self._settings.max_bytes
        options = (("grpc.max_receive_message_length", most), ("grpc.so_reuseport", 0))
        self._grpc = grpc.aio.server(options=options)
        # Bytes in, bytes out: the relay reads them in a thread.
        handler = grpc.unary_unary_rpc_method_handler(self._on_grpc)
        self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),))
        cert, key, client_ca = (_read(path) for path in self._files())
        try:
            if cert is None:
                self.grpc_port = self._grpc.add_insecure_port(address)
            else:
                demands = client_ca is not None
                credentials = grpc.ssl_server_credentials([(key, cert)], client_ca, require_client_auth=demands)
                self.grpc_port = self._grpc.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"{address}: {error}") from error
        await self._grpc.start()

    def _files(self) -> tuple[str | None, str | None, str | None]:
        return self._settings.cert, self._settings.key, self._settings.client_ca

    async def _on_grpc(self, data: bytes, context: Any) -> bytes:
        reply = await self._relay.take(data)
        if reply.verdict != "taken":
            trailers = (("grpc-status-details-bin", _status(reply).SerializeToString()),)
            await context.abort(_GRPC[reply.verdict], reply.message, trailers)
        return _answer(reply)

    async def _start_http(self, address: str) -> None:
        app = web.Application(client_max_size=self._settings.max_bytes)
        app.router.add_post("/v1/metrics", self._on_http)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=self._settings.stop_s,
            auto_decompress=False,  # by us, with a bound on what comes out
        )
        await self._runner.setup()
        host, _, port = address.rpartition(":")
        site = web.TCPSite(self._runner, host.strip("[]") or None, int(port), ssl_context=self._context())
        await site.start()
        self.http_port = self._runner.addresses[0][1]

    def _context(self) -> ssl.SSLContext | None:
        cert, key, client_ca = self._files()
        if cert is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        context.load_cert_chain(cert, key)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def _on_http(self, request: web.Request) -> web.Response:
        if request.content_type != PROTOBUF:
            return web.Response(status=415, text=f"only {PROTOBUF}")
        return _http(await self._read_and_take(request))

    async def _read_and_take(self, request: web.Request) -> Reply:
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            return Reply("bad", f"Content-Encoding {encoding[:40]!r}: gzip or identity")
        try:
            data = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return Reply("too_large", f"more than {self._settings.max_bytes} bytes")
        if encoding == "gzip":
            try:
                data = unzipped(data, self._settings.max_bytes)
            except TooMuchError as error:
                return Reply("too_large", str(error))
            except ValueError as error:
                return Reply("bad", str(error))
        return await self._relay.take(data)


def _http(reply: Reply) -> web.Response:
    if reply.verdict == "taken":
        return web.Response(body=_answer(reply), content_type=PROTOBUF)
    headers = {} if reply.after_s is None else {"Retry-After": str(max(1, math.ceil(reply.after_s)))}
    body = _status(reply).SerializeToString()
    return web.Response(status=_HTTP[reply.verdict], body=body, content_type=PROTOBUF, headers=headers)


def _read(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
