"""The breaker of prologs as this node last heard of it: a file that the service on the node keeps fresh."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CACHE = Path("/run/heeler/breaker.json")
MAX_AGE_S = 900.0
AHEAD_S = 60.0
NS = 1_000_000_000
State = Literal["closed", "open", "unknown"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """Whether failed prologs may count. Unknown is as good as open: nothing is enforced."""

    state: State
    why: str


def read_breaker(path: Path, now_ns: int, max_age_s: float = MAX_AGE_S) -> Breaker:
    """Return the breaker of the cache file. Never raises: what can't be read, or is old, is unknown."""
    try:
        with path.open("rb") as file:
            data = file.read(1 << 16)
    except OSError as err:
        return Breaker("unknown", f"{path}: {err.strerror or err}")
    return judge(data, str(path), now_ns, max_age_s)


def judge(data: bytes, name: str, now_ns: int, max_age_s: float = MAX_AGE_S) -> Breaker:
    """Return the breaker that the file's content tells. `ts_ns` is when the service last heard of it."""
    try:
        value = json.loads(data)
        state, ts_ns = value["state"], value["ts_ns"]
        why = str(value.get("why") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Breaker("unknown", f"{name}: not a breaker: {data[:100]!r}")
    if type(ts_ns) is not int or state not in ("closed", "open"):
        return Breaker("unknown", f"{name}: not a breaker: {data[:100]!r}")
    if state == "open":
        return Breaker("open", why or "open")  # however old: it stays open until somebody resets it
    age_s = (now_ns - ts_ns) / NS
    if age_s > max_age_s:
        return Breaker("unknown", f"{name}: heard {age_s:.0f} s ago, {max_age_s:.0f} s may be")
    if age_s < -AHEAD_S:
        return Breaker("unknown", f"{name}: from {-age_s:.0f} s in the future")
    return Breaker("closed", why or "closed")
