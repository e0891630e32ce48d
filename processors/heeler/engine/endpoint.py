"""A process's own metrics and health over HTTP: /metrics (Prometheus text) and /healthz."""

import asyncio
import re
from collections.abc import Callable, Mapping

import structlog

log = structlog.get_logger("heeler.process")

_REASON = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


class Endpoint:
    """Answers two GET paths; health is the connection to the bus."""

    def __init__(self, process: str, read: Callable[[], Mapping[str, float]]) -> None:
        self._process = process
        self._read = read
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, listen: str) -> None:
        """Listen on HOST:PORT; port 0 takes a free one."""
        host, _, port = listen.rpartition(":")
        self._server = await asyncio.start_server(self._answer, host or "127.0.0.1", int(port))
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("endpoint", host=host, port=self.port)

    async def stop(self) -> None:
        """Close the socket."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            parts = request.split(b" ", 2)
            status, body = self.respond(parts[1].decode(errors="replace") if len(parts) > 1 else "")
            head = f"HTTP/1.1 {status} {_REASON[status]}\r\nContent-Type: text/plain; version=0.0.4\r\n"
            writer.write(f"{head}Content-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n{body}".encode())
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # a client that says nothing or goes away is no concern of ours
        finally:
            writer.close()

    def respond(self, path: str) -> tuple[int, str]:
        """Return status and body for a path."""
        values = self._read()
        if path == "/healthz":
            good = bool(values.get("bus_connected"))
            return (200, "ok\n") if good else (503, "not connected to the bus\n")
        if path == "/metrics":
            return 200, "".join(self._line(name, value) for name, value in sorted(values.items()))
        return 404, "try /metrics or /healthz\n"

    def _line(self, name: str, value: float) -> str:
        name, _, label = name.partition(".")
        labels = f'process="{self._process}"' + (f',reason="{re.sub(r"[^a-z_]", "_", label)}"' if label else "")
        return f"heeler_{name}{{{labels}}} {value:g}\n"
