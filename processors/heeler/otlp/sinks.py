"""What a sink is, the two simple ones, and plug-ins.

A sink is told what to send by a lane, from a thread of the lane's own, and may block there. It says what happened:

SinkError
 +- Unavailable    not now: the lane waits and sends the same again
 +- TooLarge       never this much at once: the lane halves it
 +- Rejected       never: the lane counts it and goes on

A plug-in is somebody else's code: one that can't be made is a `PluginError`, and what it does otherwise than it should
is an outage of its sink, which loses nothing and is none of the other sinks' business.
"""

import json
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

from heeler.bus import ConfigError
from heeler.otlp.points import Content
from heeler.otlp.settings import GROUP, SinkSettings
from heeler.otlp.wire import Signal


class PluginError(ConfigError):
    """A plug-in can't be loaded, or makes no sink."""


class SinkError(Exception):
    """A sink did not take a request."""


class Unavailable(SinkError):  # noqa: N818 - a state of the sink
    """Not now. ``after_s`` is the receiver's own word on when to try again."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class TooLarge(SinkError):  # noqa: N818 - a state of the request
    """Not so much at once. With ``after_s`` the receiver may be short of room rather than limited."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Rejected(SinkError):  # noqa: N818 - a state of the request
    """The receiver will never take this request."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a sink says of a request that it took: how many points it refused nevertheless, and why."""

    rejected: int = 0
    message: str = ""


class Request(Protocol):
    """Something that a sink can send: so many points, records or spans, in two halves if need be."""

    @property
    def count(self) -> int:
        """How many points, records or spans."""
        ...

    def halves(self) -> tuple[Self, Self] | None:
        """Return two smaller requests, or None when it can't be smaller."""
        ...


class Sink(Protocol):
    """Where points, records and spans go. `prepare` and `send` run in a thread, one for each signal."""

    def prepare(self, signal: Signal, items: Sequence[Content]) -> Sequence[Any]:
        """Return requests that together hold all items. Raises for items that have no form in this sink."""
        ...

    def send(self, request: Any) -> Receipt:
        """Send one request. Raises SinkError."""
        ...

    def close(self) -> None:
        """Let go of connections and end a `send` that is under way as far as possible."""
        ...


@dataclass(frozen=True, slots=True)
class Lines:
    """JSON lines."""

    data: bytes
    count: int

    def halves(self) -> None:
        """Return nothing: no line sink says that it is too much."""


def lines(items: Sequence[Content]) -> Lines:
    """Return one JSON line for each point, record or span."""
    found = [json.dumps(one, default=_text, separators=(",", ":")) for item in items for one in item.flat()]
    return Lines("".join(f"{line}\n" for line in found).encode(), len(found))


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


class StdoutSink:
    """JSON lines to standard output."""

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = sys.stdout.buffer if out is None else out
        self._lock = threading.Lock()

    def prepare(self, signal: Signal, items: Sequence[Content]) -> list[Lines]:  # noqa: ARG002 - see Sink
        """Return all items as one request."""
        return [lines(items)]

    def send(self, request: Lines) -> Receipt:
        """Write and flush. Raises Unavailable when nobody reads."""
        try:
            with self._lock:
                self._out.write(request.data)
                self._out.flush()
        except OSError as error:
            raise Unavailable(f"standard output: {error.strerror}") from error
        return Receipt()

    def close(self) -> None:
        """Leave standard output open."""


class FileSink:
    """JSON lines to a file: whole batches, on disk before they count as sent; rotated by size between batches."""

    def __init__(self, path: Path, rotate_bytes: int, keep: int) -> None:
        self._path, self._rotate_bytes, self._keep = path, rotate_bytes, keep
        self._lock = threading.Lock()

    def prepare(self, signal: Signal, items: Sequence[Content]) -> list[Lines]:  # noqa: ARG002 - see Sink
        """Return all items as one request."""
        return [lines(items)]

    def send(self, request: Lines) -> Receipt:
        """Append and sync. Raises Unavailable (a full disk, a missing folder); then nothing of it is in the file."""
        try:
            with self._lock:
                self._append(request.data)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error
        return Receipt()

    def _append(self, data: bytes) -> None:
        if self._path.exists() and 0 < self._path.stat().st_size > self._rotate_bytes - len(data):
            self._rotate()
        with self._path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)  # half a batch would come twice
                raise

    def _rotate(self) -> None:
        """Shift name.1 to name.2 and so on; the oldest goes."""
        for number in range(self._keep - 1, 0, -1):
            old = self._path.with_name(f"{self._path.name}.{number}")
            if old.exists():
                old.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))

    def close(self) -> None:
        """Leave the file: it is open only while a batch is written."""


def open_sink(settings: SinkSettings) -> Sink:
    """Return the sink that (valid) settings name. Raises PluginError."""
    match settings.kind:
        case "otlp":
            os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else it writes notes among our logs
            from heeler.otlp.exporter import OtlpSink  # noqa: PLC0415 - gRPC is loaded only where it is used

            return OtlpSink(settings)
        case "stdout":
            return StdoutSink()
        case "file":
            assert settings.path is not None
            return FileSink(Path(settings.path), settings.rotate_bytes, settings.keep)
    return _plug_in(settings)


def _plug_in(settings: SinkSettings) -> Sink:
    """Return the sink that an entry point makes. Raises PluginError, whatever the plug-in raises."""
    found = {point.value: point for point in entry_points(group=GROUP, name=settings.kind)}
    if len(found) != 1:  # also looked at with the settings; packages may come and go since
        raise PluginError(f"sink {settings.label}: {len(found)} entry points {settings.kind} of {GROUP}")
    (point,) = found.values()
    where = f"sink {settings.label}: {point.value}"
    try:
        sink: Sink = point.load()(settings)
    except (Exception, SystemExit) as error:
        why = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise PluginError(f"{where}: {why[:500]}") from error
    lacking = [name for name in ("prepare", "send", "close") if not callable(getattr(sink, name, None))]
    if lacking:
        raise PluginError(f"{where}: made a {type(sink).__name__}, which has no {', '.join(lacking)}")
    return sink
