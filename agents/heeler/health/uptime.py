"""How long the node is up: right after a boot, drivers and fabric may still be coming up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, ok, warn


@dataclass(frozen=True, slots=True)
class UptimeSettings:
    """A node that is up for less is warned of."""

    least_s: float = 600.0


def read_uptime(context: Context, _asked: Sequence[Any]) -> float:
    """Return seconds since boot, from /proc/uptime."""
    path = context.root / "proc/uptime"
    try:
        text = path.read_text()
    except OSError as err:
        raise ProbeError("missing", f"{path}: {err.strerror}") from None
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        raise ProbeError("unreadable", f"{path}: {text[:60]!r}") from None


def judge_uptime(uptime_s: float, settings: UptimeSettings, _case: Case) -> Verdict:
    """Warn for a node that has just booted."""
    seen = Evidence("uptime_s", uptime_s, settings.least_s, "s")
    if uptime_s < settings.least_s:
        return warn(f"up for {uptime_s:.0f} s only, below {settings.least_s:g} s", seen, uptime_s=uptime_s)
    return ok(f"up for {uptime_s / 86400:.1f} days", seen, uptime_s=uptime_s)


UPTIME = Probe("uptime", read_uptime, 2.0)
CHECKS = (Check("uptime", "The node has been up long enough.", UPTIME, judge_uptime, UptimeSettings),)
