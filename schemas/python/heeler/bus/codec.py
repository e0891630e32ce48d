"""Bytes to messages and back.

BusError
 +- DecodeError    bytes that are no message of their type
 +- EncodeError    a message that the contract does not allow (a bug of the writer)
"""

from collections.abc import Mapping
from itertools import chain
from math import isfinite
from typing import Any

import msgpack

from heeler.bus.messages import SHAPES
from heeler.bus.shape import ShapeError

CONTENT_TYPE = "application/msgpack"

_NUMBERS = frozenset((int, float, type(None)))
_LIST = frozenset((list,))
_STR = frozenset((str,))
_GROUPS = ("mean", "min", "max", "last")
_PER_GPU = ("state", "job", "job_source")
_COLUMNAR = frozenset(("GpuSample", "JobSample"))


class BusError(Exception):
    """Anything that goes wrong between a processor and the bus."""


class DecodeError(BusError):
    """Bytes that are no message of the type they claim."""


class EncodeError(BusError):
    """A message that the contract does not allow: a bug of the writer."""


def decode(kind: str, payload: bytes) -> dict[str, Any]:
    """Return a checked message: all required keys, right types, enums known or ``unknown``, no nulls at the top.

    Raises DecodeError; never returns half a message.
    """
    shape = SHAPES.get(kind)
    if shape is None:
        raise DecodeError(f"unknown type {kind!r}")
    try:
        message = msgpack.unpackb(payload, raw=False, strict_map_key=True)
    except Exception as err:
        raise DecodeError(f"not MessagePack: {type(err).__name__}: {err}") from err
    return check(kind, message)


def check(kind: str, message: Any) -> dict[str, Any]:
    """Check a decoded message in place and return it. Raises DecodeError."""
    try:
        SHAPES[kind].check(message, "")
        if kind in _COLUMNAR:
            check_columns(message)
    except ShapeError as err:
        raise DecodeError(f"{kind}: {err}") from None
    return message  # type: ignore[no-any-return]


def check_columns(message: dict[str, Any]) -> None:
    """Check that every column has one finite number or null per GPU. Raises ShapeError."""
    gpu = message["gpu"]
    uuids = gpu["uuid"]
    count = len(uuids)
    groups = [message[name] for name in _GROUPS if name in message]
    columns = [column for group in groups for column in group.values()]
    per_gpu = [col for col in gpu.values() if type(col) is list] + [message[n] for n in _PER_GPU if n in message]
    if not _LIST.issuperset(map(type, columns)):
        raise ShapeError("a column is not a list")
    if not _STR.issuperset(map(type, chain.from_iterable(groups))):
        raise ShapeError("a column's name is not a string")
    lengths = set(map(len, columns))
    lengths.update(map(len, per_gpu))
    if lengths != {count}:
        raise ShapeError(f"a column has not one entry for each of the {count} GPUs")
    values = list(chain.from_iterable(columns))
    kinds = set(map(type, values))
    if not kinds <= _NUMBERS:
        raise ShapeError("a column holds something other than numbers and null")
    numbers = list(filter(None, values)) if type(None) in kinds else values
    # One NaN or infinity makes the sum not finite; so do a few values at the end of the range.
    if not isfinite(sum(numbers)) and not all(map(isfinite, numbers)):
        raise ShapeError("a column holds NaN or infinity")
    if len(set(uuids)) != count:
        raise ShapeError("two GPUs have the same UUID")


def encode(kind: str, message: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message after checking it; null values are left out. Raises EncodeError."""
    clean = {key: value for key, value in message.items() if value is not None}
    try:
        packed: bytes = msgpack.packb(clean)
    except (TypeError, ValueError, OverflowError) as err:
        raise EncodeError(f"{kind}: {err}") from err
    try:
        decode(kind, packed)
    except DecodeError as err:
        raise EncodeError(str(err)) from err
    return packed


class Suffix:
    """Keys to add to packed maps, packed once."""

    __slots__ = ("body", "count")

    def __init__(self, extra: Mapping[str, Any]) -> None:
        self.count = len(extra)
        packed: bytes = msgpack.packb(extra)
        self.body = packed[_header(packed)[1] :]


def extend(payload: bytes, extra: Suffix) -> bytes:
    """Return a packed map with more keys, without packing the old ones again.

    `payload` must be a checked MessagePack map; a new key wins over an old one of the same name, since readers
    take the last. This is what lets enrich add jobs to a sample for a tenth of the cost of encoding it.
    """
    count, start = _header(payload)
    count += extra.count
    if count > 0xFFFF:
        raise EncodeError("too many keys")
    head = bytes((0x80 | count,)) if count < 16 else b"\xde" + count.to_bytes(2, "big")
    return b"".join((head, memoryview(payload)[start:], extra.body))


def _header(packed: bytes) -> tuple[int, int]:
    """Return how many keys a packed map has and where its first one starts."""
    first = packed[0] if packed else 0
    if 0x80 <= first <= 0x8F:
        return first & 0x0F, 1
    if first == 0xDE:
        return int.from_bytes(packed[1:3], "big"), 3
    if first == 0xDF:
        return int.from_bytes(packed[1:5], "big"), 5
    raise EncodeError("not a MessagePack map")
