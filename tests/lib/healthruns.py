"""HealthRuns as nodes' prologs tell them."""

import time
from typing import Any

from heeler.bus import Bus, encode, subjects


def health_run(node: str, ts_ns: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a prolog that failed, enforced, unless told otherwise."""
    ts_ns = time.time_ns() if ts_ns is None else ts_ns
    return {
        "v": 1,
        "cluster": "north",
        "node": node,
        "ts": ts_ns,
        "boot": "b",
        "seq": 1,
        "run": f"{ts_ns}-1",
        "phase": "prolog",
        "verdict": "fail",
        "enforcement": "on",
        "why": "gpu_ecc: two errors",
        **more,
    }


async def tell(bus: Bus, run: dict[str, Any], ident: str | None = None) -> None:
    """Publish a HealthRun, as the node's agent does."""
    subject = subjects.health_run(run["cluster"], run["node"])
    ident = ident or f"HealthRun.{run['node']}.{run['run']}"
    await bus.publish_acked(subject, "HealthRun", encode("HealthRun", run), ident)
