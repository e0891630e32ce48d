"""The page over HTTP: read only, for browsers that came by a name we know.

Whoever can make a browser resolve a name to this address could read the page through it; so the header Host must be
one of ours. Scripts and styles come from here only, and nothing is ever put into the page as HTML.
"""

import gzip
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from aiohttp import web

from heeler.bus.client import RETRYABLE
from heeler.console.assets import Asset, load
from heeler.console.hub import Hub

log = structlog.get_logger("heeler.console")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Frame-Options": "DENY",
}
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
LONGEST_NAME = 512

Question = Callable[[Mapping[str, str]], Awaitable[Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NotKnownError(LookupError):
    """Nothing is known of what was asked for."""


class Web:
    """The application."""

    def __init__(
        self,
        hub: Hub,
        snapshot: Callable[[], tuple[int, bytes]],
        questions: Mapping[str, Question],
        hosts: frozenset[str],
    ) -> None:
        self._hub, self._snapshot, self._questions = hub, snapshot, questions
        self._hosts = hosts | LOOPBACK
        self._assets = load()
        self._zipped: tuple[int, bytes] = (-1, b"")
        self.app = web.Application(middlewares=[self._guard], client_max_size=1024)
        self.app.router.add_get("/", self._index)
        self.app.router.add_get("/static/{name}", self._static)
        self.app.router.add_get("/api/snapshot", self._whole)
        self.app.router.add_get("/api/stream", self._stream, allow_head=False)
        self.app.router.add_get("/api/{question}", self._answer)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse foreign names, and put our headers on all answers."""
        host = request.headers.get("Host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name.lower() not in self._hosts:
            return _refuse(421, f"this console is not called {name[:100]!r}; add it to console.hosts")
        try:
            return await handler(request)
        except web.HTTPException as err:
            return _refuse(err.status, err.reason)

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return self._file(request, self._assets["index.html"])

    async def _static(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.get(request.match_info["name"])
        return _refuse(404, "no such file") if asset is None else self._file(request, asset)

    def _file(self, request: web.Request, asset: Asset) -> web.StreamResponse:
        headers = {**HEADERS, "ETag": asset.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("If-None-Match") == asset.etag:
            return web.Response(status=304, headers=headers)
        body = asset.data
        if _takes_gzip(request):
            body, headers["Content-Encoding"] = asset.zipped, "gzip"
        return web.Response(body=body, headers={**headers, "Content-Type": asset.kind})

    async def _whole(self, request: web.Request) -> web.StreamResponse:
        seq, body = self._snapshot()
        headers = {**HEADERS, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        if _takes_gzip(request):
            if self._zipped[0] != seq:
                self._zipped = (seq, gzip.compress(body, 1, mtime=0))
            body, headers["Content-Encoding"] = self._zipped[1], "gzip"
        return web.Response(body=body, headers={**headers, "Content-Type": "application/octet-stream"})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Send updates until the page goes, or does not keep up."""
        transport = request.transport
        client = None if transport is None else self._hub.join(transport.abort)
        if client is None:
            return _refuse(503, "too many pages are open (console.most_pages)")
        try:
            headers = {**HEADERS, "Cache-Control": "no-store", "Content-Type": "text/event-stream"}
            response = web.StreamResponse(headers={**headers, "X-Accel-Buffering": "no"})
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n")
            while (data := await client.queue.get()) is not None:
                await response.write(b"data: " + data + b"\n\n")
        except ConnectionError:
            pass  # it went away
        finally:
            self._hub.leave(client)
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        question = self._questions.get(request.match_info["question"])
        if question is None:
            return _refuse(404, "no such question")
        if any(len(value) > LONGEST_NAME for value in request.query.values()):
            return _refuse(400, "a name is too long")
        try:
            found = await question(request.query)
        except NotKnownError as err:
            return _refuse(404, str(err))
        except (KeyError, ValueError) as err:
            return _refuse(400, f"this can't be asked: {err}")
        except RETRYABLE as err:
            return _refuse(503, f"the bus does not answer: {err or type(err).__name__}")
        return _said(found)


def _said(found: Any) -> web.Response:
    try:
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")
    except ValueError:
        return _refuse(500, "a number in the answer is beyond all measure")
    response = web.Response(body=text, headers={**HEADERS, "Cache-Control": "no-store"})
    response.content_type = "application/json"
    response.enable_compression()
    return response


def _refuse(status: int, why: str) -> web.Response:
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.json_response({"error": why}, status=status, headers=headers)


def _takes_gzip(request: web.Request) -> bool:
    return "gzip" in request.headers.get("Accept-Encoding", "")
