"""How far back: 90s, 30m, 1h, 7d, 2w, or a time."""

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|sec|m|min|h|d|w)\Z")
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Since(click.ParamType[int]):
    """A time in nanoseconds since the epoch, given as a span before now or as a time, in UTC unless it says."""

    name = "span|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the time; wrong words are a usage error that says what is right."""
        if isinstance(value, int):
            return value
        now_ns = time.time_ns()
        found = since_ns(str(value), now_ns)
        if found is None:
            self.fail(f"{value!r} is neither a span such as 90s, 30m, 1h, 7d, 2w nor a time", param, ctx)
        if not 0 <= found <= now_ns:
            self.fail(f"{value!r} is not in the past", param, ctx)
        return found


class Span(click.ParamType[float]):
    """A span of time in seconds, given as 90s, 30m, 2h, 7d or 1w."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds; wrong words are a usage error that says what is right."""
        if isinstance(value, float):
            return value
        found = _SPAN.match(str(value).strip())
        if found is None or float(found[1]) == 0:
            self.fail(f"{value!r} is no span such as 90s, 30m, 2h, 7d, 1w", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]


def since_ns(text: str, now_ns: int) -> int | None:
    """Return the time that a text means; None where it means none."""
    if span := _SPAN.match(text.strip()):
        return now_ns - int(float(span[1]) * _SECONDS[span[2]] * 1e9)
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1e9)
