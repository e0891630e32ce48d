"""Durations, limits and timestamps as Slurm prints them."""

import os
import re
from datetime import UTC, datetime, tzinfo
from math import inf
from pathlib import Path
from zoneinfo import ZoneInfo

from heeler.slurm.errors import ParseError

_NULLS = frozenset(("", "0", "none", "n/a", "unknown", "(null)", "null", "invalid", "not_set", "partition_limit"))
_ENDLESS = frozenset(("unlimited", "infinite"))

_DURATION = re.compile(
    r"(?:(?P<days>\d{1,7})-(?P<d_hours>\d{1,2})(?::(?P<d_minutes>\d{1,2})(?::(?P<d_seconds>\d{1,2}(?:\.\d{1,9})?))?)?"
    r"|(?P<hours>\d{1,7}):(?P<h_minutes>\d{1,2}):(?P<h_seconds>\d{1,2}(?:\.\d{1,9})?)"
    r"|(?P<minutes>\d{1,9}):(?P<seconds>\d{1,2}(?:\.\d{1,9})?)"
    r"|(?P<bare>\d{1,9}))",
    re.ASCII,
)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = re.compile(r"\d{6,10}", re.ASCII)
# NO_VAL and INFINITE of 32 and 64 bits.
_UNSET = frozenset(("4294967294", "4294967295", "18446744073709551614", "18446744073709551615"))
NS = 1_000_000_000


def parse_duration(text: str) -> float | None:
    """Return seconds of an elapsed time or a limit; infinity for no limit, None for none given.

    ``1-02:03:04``, ``02:03`` (minutes and seconds), ``2-12`` (days and hours), ``1-02:03`` (days, hours and minutes);
    a bare number is minutes, as everywhere in Slurm. Raises ParseError.
    """
    word = text.strip().removesuffix("(limit)").strip()
    lower = word.lower()
    if lower in _ENDLESS:
        return inf
    if lower in _NULLS - {"0"}:
        return None
    found = _DURATION.fullmatch(word)
    if not found:
        raise ParseError("not a duration", text)
    part = {name: float(value) for name, value in found.groupdict(default="0").items()}
    minutes = part["d_minutes"] + part["h_minutes"] + part["minutes"] + part["bare"]
    seconds = part["d_seconds"] + part["h_seconds"] + part["seconds"]
    hours = part["d_hours"] + part["hours"]
    if max(part["d_minutes"], part["h_minutes"], seconds) >= 60 or part["d_hours"] >= 24:
        raise ParseError("not a duration", text)
    total = 86400 * part["days"] + 3600 * hours + 60 * minutes + seconds
    return int(total) if total == int(total) else total


def parse_timestamp(text: str, zone: tzinfo) -> int | None:
    """Return nanoseconds since the epoch, or None for each spelling of "no time".

    Slurm prints the controller's local time without saying so: `zone` is the controller's. A time in the hour that
    autumn repeats is taken as the first of the two. Raises ParseError.
    """
    word = text.strip()
    if word.lower() in _NULLS or word in _UNSET:
        return None
    if _EPOCH.fullmatch(word):
        return int(word) * NS
    found = _STAMP.fullmatch(word)
    if not found:
        raise ParseError("not a timestamp", text)
    try:
        stamp = datetime.fromisoformat(f"{found[1]}T{found[2]}{found[3] or ''}")
        utc = (stamp if stamp.tzinfo else stamp.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError) as err:
        raise ParseError(f"not a timestamp ({err})", text) from None
    if utc.year < 1970:
        raise ParseError("not a timestamp (before 1970)", text)
    whole = int(utc.replace(microsecond=0).timestamp())
    # Second 0 of the epoch is "no time", printed as if it were one.
    return whole * NS + utc.microsecond * 1000 or None


def local_zone() -> tzinfo:
    """Return this machine's zone with its rules for summer time, or UTC where it can't be found."""
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        link = Path("/etc/localtime").resolve()
        name = str(link).partition("zoneinfo/")[2]
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, ValueError, OSError):
        return UTC


def utc_text(ts_ns: int) -> str:
    """Return a time as ISO text in UTC, to the second."""
    return datetime.fromtimestamp(ts_ns // NS, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
