"""A sink of one's own: each request is a POST of JSON lines, as many collectors of logs take them."""

from collections.abc import Sequence
from typing import Any

import requests

from heeler.bus import ConfigError
from heeler.otlp.points import Content
from heeler.otlp.settings import SinkSettings
from heeler.otlp.sinks import Lines, Receipt, Rejected, Unavailable, lines
from heeler.otlp.wire import Signal


class JsonHttp:
    """Posts to `url` in the sink's `options`; `token` goes with each request, if there is one."""

    def __init__(self, settings: SinkSettings) -> None:
        options = settings.options
        if not isinstance(options.get("url"), str) or options.keys() - {"url", "token"}:
            raise ConfigError(f"options: {sorted(options)}: url, and token if need be")
        self._url: str = options["url"]
        self._headers = {"Content-Type": "application/x-ndjson"}
        if "token" in options:
            self._headers["Authorization"] = f"Bearer {options['token']}"
        self._timeout_s = settings.timeout_s

    def prepare(self, signal: Signal, items: Sequence[Content]) -> list[Lines]:
        """Return requests that hold all items; `lines` writes each point, record and span as a line of JSON."""
        return [lines(items)]

    def send(self, request: Lines) -> Receipt:
        """Send one request, and say in Heeler's words what became of it."""
        try:
            answer = requests.post(self._url, data=request.data, headers=self._headers, timeout=self._timeout_s)
        except requests.RequestException as error:
            raise Unavailable(str(error)) from error  # not now: it comes again
        if answer.status_code in (429, 502, 503, 504):
            raise Unavailable(f"HTTP {answer.status_code}", _seconds(answer.headers.get("Retry-After")))
        if not answer.ok:
            raise Rejected(f"HTTP {answer.status_code}")  # never: it is counted, and the next is sent
        return Receipt()

    def close(self) -> None:
        """Let go of what is held: nothing here."""


def _seconds(value: Any) -> float | None:
    return float(value) if str(value or "").isdigit() else None
