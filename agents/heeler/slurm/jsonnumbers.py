"""Slurm's numbers: plain, as text, or as ``{"set", "infinite", "number"}``, with sentinels for "not set"."""

from math import inf
from typing import Any

from heeler.slurm.errors import ParseError

MAX_INTEGER = (1 << 63) - 1
NO_VAL16, INFINITE16 = 0xFFFE, 0xFFFF
NO_VAL32, INFINITE32 = 0xFFFFFFFE, 0xFFFFFFFF
NO_VAL64, INFINITE64 = 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF

# Some versions print 64-bit sentinels as if they were signed.
_UNSET = frozenset((NO_VAL32, NO_VAL64, -2))
_ENDLESS = frozenset((INFINITE32, INFINITE64, -1, inf, -inf))
_NULLS = frozenset(("", "none", "n/a", "(null)", "null", "unknown", "nan", "-nan"))
_ENDLESS_WORDS = frozenset(("infinite", "unlimited", "infinity", "inf"))


def number(value: Any, *, bits16: bool = False, signed: bool = False) -> float | None:
    """Return a number, infinity, or None for one that is not set. Whole numbers come as int.

    `bits16`: the field has 16 bits, so that 65534 and 65535 are its sentinels; elsewhere they are numbers.
    `signed`: the field may be negative (`nice`), so that -1 and -2 are numbers. Raises ParseError.
    """
    if isinstance(value, dict):
        return _wrapped(value, bits16=bits16, signed=signed)
    if isinstance(value, str):
        value = _from_text(value)
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParseError("not a number", value)
    plain = signed and value < 0
    if not plain and (value in _UNSET or (bits16 and value == NO_VAL16)):
        return None
    if not plain and (value in _ENDLESS or (bits16 and value == INFINITE16)):
        return inf
    return value


def integer(value: Any, *, bits16: bool = False, signed: bool = False) -> int | None:
    """Return a whole number, or None for one that is not set or without end.

    Raises ParseError, also for one below 0 unless `signed`, and for one that needs more than 63 bits.
    """
    found = number(value, bits16=bits16, signed=signed)
    if found is None or found == inf:
        return None
    whole = int(found)
    if found != whole or whole > MAX_INTEGER or whole < (-MAX_INTEGER if signed else 0):
        raise ParseError("not a whole number in range", value)
    return whole


def identifier(value: Any) -> int | None:
    """Return an id of a job or user; 0 means none, as Slurm's ids start at 1. Raises ParseError."""
    found = integer(value)
    return found or None


def epoch_ns(value: Any) -> int | None:
    """Return nanoseconds of a time in whole seconds since the epoch; 0 means none. Raises ParseError."""
    found = integer(value)
    if found is not None and found >= 1 << 33:
        raise ParseError("not a time", value)
    return found * 1_000_000_000 if found else None


def cpu_load(value: Any) -> float | None:
    """Return the load of a JSON answer, which holds it times 100; text answers don't. Raises ParseError."""
    found = number(value)
    return None if found is None or found == inf or found < 0 else found / 100


def _wrapped(value: dict[str, Any], *, bits16: bool, signed: bool) -> float | None:
    if value.get("infinite") is True:
        return inf
    if value.get("set") is False:
        return None
    if "number" not in value:
        raise ParseError("not a number", value)
    if isinstance(value["number"], dict):
        raise ParseError("not a number", value)
    return number(value["number"], bits16=bits16, signed=signed)


def _from_text(text: str) -> float | None:
    word = text.strip().lower()
    if word in _NULLS:
        return None
    if word in _ENDLESS_WORDS:
        return inf
    if len(word) > 32 or "_" in word:  # Python would read 1_000
        raise ParseError("not a number", text)
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        raise ParseError("not a number", text) from None
