"""What results of health checks are called outside."""

import re
from functools import lru_cache
from typing import Final

from heeler.otlp.names import Metric
from heeler.otlp.names_tables import ABOUT, states
from heeler.otlp.units import unit_of

OUTCOMES: Final = ("ok", "warn", "bad", "unknown", "off")
VERDICTS: Final = ("pass", "fail", "would_fail", "refused", "unknown")

CHECK_STATE: Final = states(
    "heeler.health.check.state",
    "heeler.health.outcome",
    OUTCOMES,
    "What a check said last of a node, by phase: 1 for the outcome that holds, 0 for the others.",
)
CHECK_DURATION: Final = Metric("heeler.health.check.duration", "s")
CHECK_TIME: Final = Metric("heeler.health.check.last_run", "s")
RUN_VERDICT: Final = states(
    "heeler.health.run.state",
    "heeler.health.verdict",
    VERDICTS,
    "What the last run of checks came to, by phase: 1 for the verdict that holds, 0 for the others.",
)
RUN_DURATION: Final = Metric("heeler.health.run.duration", "s")
RUN_TIME: Final = Metric("heeler.health.run.last_run", "s")
ABOUT.update(
    {
        CHECK_DURATION.name: "How long the check took, from the start of the run to its word.",
        CHECK_TIME.name: "When the check was run, since the epoch.",
        RUN_DURATION.name: "From the start of the run to its verdict.",
        RUN_TIME.name: "When it was run, since the epoch.",
    }
)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


@lru_cache(maxsize=1024)
def perf(name: str) -> Metric | None:
    """Return the metric of a number that a check gives for graphs, or None if it can't be a name."""
    if not _NAME.match(name):
        return None
    stem, unit, scale = unit_of(name)
    return Metric(f"heeler.health.perf.{stem}", unit, scale=scale)
