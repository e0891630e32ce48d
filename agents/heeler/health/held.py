"""How long a check has been bad, in one periodic run after the other: what heals by itself is to drain no node."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from heeler.health.caches import keep

FILE = "held.json"
NS = 1_000_000_000
# Runs that are further apart than this say nothing of the time between them.
APART_NS = 3600 * NS


def since(
    before: Mapping[str, int], bad: Collection[str], well: Collection[str], last_ns: int, now_ns: int
) -> dict[str, int]:
    """Return since when each check is bad. `before`: what the run at `last_ns` returned.

    One that is well begins anew; one that can't be told now, or was not asked, stays what it was.
    """
    old = before if 0 <= now_ns - last_ns <= APART_NS else {}
    kept = {name: at for name, at in old.items() if name not in well and at <= now_ns}
    return kept | {name: kept.get(name, now_ns) for name in bad}


def remember(path: Path, boot: str, bad: Collection[str], well: Collection[str], now_ns: int) -> dict[str, int]:
    """Return since when each check is bad, and keep it for the next run. What can't be read or kept begins now."""
    before, last_ns = _read(path, boot)
    found = since(before, bad, well, last_ns, now_ns)
    if found or before:
        keep(path, {"boot": boot, "last_ns": now_ns, "since_ns": found})
    return found


def _read(path: Path, boot: str) -> tuple[dict[str, int], int]:
    try:
        value: Any = json.loads(path.read_bytes())
        if value["boot"] != boot:
            return {}, 0
        return {str(name): int(at) for name, at in value["since_ns"].items()}, int(value["last_ns"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}, 0
