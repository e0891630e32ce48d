"""A look at the stream for a finding that this instance does not follow."""

import structlog

from heeler.bus import Bus, escape, snapshot
from heeler.bus.client import RETRYABLE
from heeler.engine.intake import Refused, intake
from heeler.engine.step import Inbound

log = structlog.get_logger("heeler.drain")

LOOK_S = 2.0


async def last_finding(bus: Bus, finding_id: str) -> Inbound | None:
    """Return the last word about a finding by its id; None where there is none, or where it can't be read now."""
    try:
        pattern = f"finding.*.*.{escape(finding_id)}"
        for found in await snapshot(bus, "FINDINGS_LAST", (pattern,), timeout_s=LOOK_S, cluster=bus.cluster):
            return intake(found.subject, found.headers, found.data, found.ts_ns)
    except (*RETRYABLE, Refused, ValueError) as error:
        log.warning("finding_not_read", finding_id=finding_id[:200], error=f"{type(error).__name__}: {error}")
    return None
