"""Capture files: a piece of the stream on disk.

A capture is a sequence of MessagePack maps, one a message, nothing else:

    {"subject": str, "ts": int, "headers": {str: str}, "data": bytes}

``ts`` is the server's time stamp in nanoseconds since the epoch and ``data`` the payload as published.
Unknown keys are ignored. A file that ends in the middle of a map (a full disk, a kill) is read up to there
and the rest is said to be missing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

MAX_MESSAGE = 64 << 20


class CaptureError(ValueError):
    """A file that is no capture; says at which byte."""


@dataclass(frozen=True, slots=True)
class Captured:
    """One message of a capture."""

    subject: str
    ts_ns: int
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)


def write(out: BinaryIO, message: Captured) -> None:
    """Append a message to an open capture."""
    out.write(
        msgpack.packb(
            {
                "subject": message.subject,
                "ts": message.ts_ns,
                "headers": message.headers,
                "data": message.data,
            }
        )
    )


def read(path: Path | str) -> Iterator[Captured]:
    """Yield the messages of a capture in the order of the file.

    Raises CaptureError where the file is no capture or ends inside a message, after all whole ones.
    """
    with Path(path).open("rb") as source:
        unpacker = msgpack.Unpacker(source, raw=False, max_buffer_size=MAX_MESSAGE)
        good = 0
        try:
            for item in unpacker:
                yield _message(item)
                good = unpacker.tell()
        except CaptureError as err:
            raise CaptureError(f"{path}: byte {good}: {err}") from None
        except Exception as err:  # msgpack raises unrelated kinds
            raise CaptureError(f"{path}: byte {good}: not MessagePack: {err}") from err
        if good != Path(path).stat().st_size:
            raise CaptureError(f"{path}: byte {good}: ends inside a message")


def _message(item: Any) -> Captured:
    if not isinstance(item, dict):
        raise CaptureError("not a map")
    try:
        subject, ts, data = item["subject"], item["ts"], item["data"]
    except KeyError as err:
        raise CaptureError(f"missing {err}") from None
    if not (isinstance(subject, str) and type(ts) is int and isinstance(data, bytes)):
        raise CaptureError("subject, ts or data of the wrong type")
    return Captured(subject, ts, data, item.get("headers") or {})
