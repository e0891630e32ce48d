"""Quiet hours: times of the day in which some things are left until they end. Pure; each has a time zone of its own.

A window that ends before it begins goes over midnight, and belongs to the day on which it begins. What counts is what
a clock on the wall shows: in the night in which clocks change, a window is an hour longer or shorter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from heeler.bus import ConfigError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# hard, soft: drains for such evidence. requeue, repair, undrain: what follows a drain.
WHAT = ("hard", "soft", "requeue", "repair", "undrain")
BY_DEFAULT = ("soft", "requeue", "repair", "undrain")
DAY_MIN = 24 * 60


@dataclass(frozen=True, slots=True)
class Quiet:
    """One window, such as 22:00 to 06:00."""

    begins: str
    ends: str
    zone: str
    days: tuple[str, ...] = DAYS
    leaves: tuple[str, ...] = BY_DEFAULT

    def validate(self) -> None:
        """Raise ConfigError with every word that is not known."""
        faults = [f"days: {day!r}: one of {', '.join(DAYS)}" for day in self.days if day not in DAYS]
        faults += [f"leaves: {what!r}: one of {', '.join(WHAT)}" for what in self.leaves if what not in WHAT]
        faults += [f"{name}: empty" for name in ("days", "leaves") if not getattr(self, name)]
        for name in ("begins", "ends"):
            try:
                minutes(getattr(self, name))
            except ValueError as err:
                faults.append(f"{name}: {err}")
        if self.begins == self.ends:
            faults.append(f"ends: {self.ends!r} is when it begins; a whole day is 00:00 to 24:00")
        try:
            zone(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            faults.append(f"zone: {self.zone!r} is no time zone known here, such as Europe/Berlin or UTC")
        if faults:
            raise ConfigError("; ".join(faults))

    def holds(self, now_ns: int) -> bool:
        """Say whether a time lies within it."""
        local = datetime.fromtimestamp(now_ns // 1_000_000_000, zone(self.zone))
        begin, end = minutes(self.begins), minutes(self.ends)
        now = local.hour * 60 + local.minute
        if begin < end:
            return begin <= now < end and _day(local) in self.days
        if now >= begin:
            return _day(local) in self.days
        return now < end and _day(local - timedelta(days=1)) in self.days


def quiet_for(windows: Iterable[Quiet], what: str, now_ns: int) -> str | None:
    """Return the window in which something is left alone now, in words; None where it is not."""
    found = next((window for window in windows if what in window.leaves and window.holds(now_ns)), None)
    return None if found is None else f"quiet hours, {found.begins} to {found.ends} {found.zone}"


def minutes(text: str) -> int:
    """Return minutes since midnight of HH:MM, up to 24:00. Raises ValueError."""
    hour, colon, minute = text.partition(":")
    plain = colon and all(len(part) == 2 and part.isascii() and part.isdecimal() for part in (hour, minute))
    found = int(hour) * 60 + int(minute) if plain and int(minute) < 60 else -1
    if not 0 <= found <= DAY_MIN:
        raise ValueError(f"{text!r} is no time such as 22:00")
    return found


@cache
def zone(name: str) -> ZoneInfo:
    """Return a time zone. Raises ZoneInfoNotFoundError, ValueError."""
    return ZoneInfo(name)


def _day(local: datetime) -> str:
    return DAYS[local.weekday()]
