"""Bytes to messages and back.

BusError
 +- DecodeError    bytes that are no message of their type
 +- EncodeError    a message that the contract does not allow (a bug of the writer)
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Required, TypedDict, get_type_hints

import msgpack
import msgspec

from heeler.bus.messages import SHAPES
from heeler.bus.shape import ShapeError
from heeler.bus.wire_gen import WIRE, Columns

CONTENT_TYPE = "application/msgpack"

# Samples are nine tenths of all messages. msgspec decodes and checks one in less time than plain decoding takes.
_SAMPLES = {kind: msgspec.msgpack.Decoder(wire) for kind, wire in WIRE.items()}
_PACK_SAMPLE = msgspec.msgpack.Encoder().encode
_GROUPS = ("mean", "min", "max", "last")
_PER_GPU = ("state", "job", "job_source")


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
    decoder = _SAMPLES.get(kind)
    if decoder is not None:
        return _decode_sample(kind, decoder, payload)
    shape = SHAPES.get(kind)
    if shape is None:
        raise DecodeError(f"unknown type {kind!r}")
    try:
        message = msgpack.unpackb(payload, raw=False, strict_map_key=True)
    except Exception as err:
        raise DecodeError(f"not MessagePack: {type(err).__name__}: {err}") from err
    return check(kind, message)


def _decode_sample(kind: str, decoder: msgspec.msgpack.Decoder[Any], payload: bytes) -> dict[str, Any]:
    try:
        message: dict[str, Any] = decoder.decode(payload)
        check_columns(message)
    except (msgspec.ValidationError, ShapeError) as err:
        raise DecodeError(f"{kind}: {_plain(err)}") from None
    except Exception as err:
        raise DecodeError(f"not MessagePack: {type(err).__name__}: {err}") from err
    return message


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reader wants of a sample beside its required keys: optional keys, and columns by group."""

    keys: frozenset[str]
    columns: Mapping[str, frozenset[str]]  # of mean, min, max, last and gpu; a group that is not named is left out


Decode = Callable[[str, bytes], dict[str, Any]]


def decoder_for(choices: Mapping[str, Choice]) -> Decode:
    """Return a `decode` that skips what a reader has not chosen of some kinds of samples, and so takes half the time.

    What is skipped is not looked at, as with keys that nobody knows: it is for the readers of what enrich has checked
    as a whole. All else is checked as ever.
    """
    decoders = {kind: msgspec.msgpack.Decoder(_chosen(WIRE[kind], choice)) for kind, choice in choices.items()}

    def decode_chosen(kind: str, payload: bytes) -> dict[str, Any]:
        decoder = decoders.get(kind)
        return decode(kind, payload) if decoder is None else _decode_sample(kind, decoder, payload)

    return decode_chosen


def _chosen(wire: Any, choice: Choice) -> Any:
    """Return the type of a sample with the chosen keys and columns only."""
    hints = get_type_hints(wire, include_extras=True)
    fields = {key: hints[key] for key in (*wire.__required_keys__, *choice.keys)}
    of_gpu = get_type_hints(hints["gpu"].__args__[0], include_extras=True)
    fields["gpu"] = Required[_typed({name: of_gpu[name] for name in {"uuid", *choice.columns.get("gpu", ())}})]
    column = Columns.__args__[1]  # type: ignore[attr-defined]
    for group in _GROUPS:
        kind = _typed(dict.fromkeys(choice.columns.get(group, ()), column))
        if group in wire.__required_keys__:
            fields[group] = Required[kind]
        elif group in choice.columns:
            fields[group] = kind | None
    return _typed(fields)


def _typed(fields: dict[str, Any]) -> Any:
    return TypedDict("Chosen", fields, total=False)  # type: ignore[operator]


def check(kind: str, message: Any) -> dict[str, Any]:
    """Check a decoded message in place and return it. Raises DecodeError."""
    try:
        if kind in WIRE:
            message = msgspec.convert(message, WIRE[kind])
            check_columns(message)
        else:
            SHAPES[kind].check(message, "")
    except (ShapeError, msgspec.ValidationError) as err:
        raise DecodeError(f"{kind}: {_plain(err)}") from None
    return message  # type: ignore[no-any-return]


def _plain(err: Exception) -> str:
    """Return what is wrong; that a double is beyond the largest there is, is said of NaN and infinity only."""
    text = str(err)
    return f"NaN or infinity{text[text.rfind(' - at') :]}" if str(sys.float_info.max) in text else text


def check_columns(message: dict[str, Any]) -> None:
    """Check what types can't say: one entry per GPU in every column. Removes null keys. Raises ShapeError."""
    gpu = message["gpu"]
    for table in (message, gpu):
        if None in table.values():
            for key in [key for key, value in table.items() if value is None]:
                del table[key]
    uuids = gpu["uuid"]
    lengths = {*map(len, gpu.values())}
    for name in _GROUPS:
        group = message.get(name)
        if group:
            lengths.update(map(len, group.values()))
    lengths.update(len(message[name]) for name in _PER_GPU if name in message)
    if lengths != {len(uuids)}:
        raise ShapeError(f"a column has not one entry for each of the {len(uuids)} GPUs")
    if len(set(uuids)) != len(uuids):
        raise ShapeError("two GPUs have the same UUID")


def encode(kind: str, message: Mapping[str, Any], *, checked: bool = False) -> bytes:
    """Return the bytes of a message; null values are left out. Raises EncodeError for what readers would refuse.

    `checked` skips that last look, for messages that are made from checked ones on the hot path.
    """
    clean = {key: value for key, value in message.items() if value is not None}
    try:
        packed: bytes = _PACK_SAMPLE(clean) if kind in WIRE else msgpack.packb(clean)
    except (TypeError, ValueError, OverflowError) as err:
        raise EncodeError(f"{kind}: {err}") from err
    if not checked:
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
