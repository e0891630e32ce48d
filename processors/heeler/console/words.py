"""How numbers, times and what others wrote are said."""

from typing import Any


def number(value: Any) -> str:
    """Return a value as people write it."""
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return "unknown" if value is None else str(value)


def span(seconds: float) -> str:
    """Return a length of time in its largest unit that it has twice."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def ago(ns: int) -> str:
    """Return a length of time, given in nanoseconds."""
    return span(max(0, ns) / 1e9)


def short(seconds: float) -> str:
    """Return a length of time in at most five characters, for columns."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{min(seconds / size, 9999):.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
