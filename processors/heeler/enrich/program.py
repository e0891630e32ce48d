"""enrich as a process."""

from collections.abc import Mapping
from typing import Any

from heeler.engine.process import Context, Program
from heeler.engine.shared import Shared
from heeler.enrich.step import EnrichStep


async def main(context: Context) -> None:
    """Share the samples and kernel events with all other instances."""
    engine = Shared(context.bus, EnrichStep(), context.instance)
    context.metrics["engine"] = engine.metrics
    await engine.run(context.stop)


PROGRAM = Program("enrich", "Write the job of each GPU onto samples and kernel events.", main)


def make_step(tables: Mapping[str, Any]) -> EnrichStep:  # noqa: ARG001 - enrich has no thresholds
    """Return the step for `heeler replay`."""
    return EnrichStep()
