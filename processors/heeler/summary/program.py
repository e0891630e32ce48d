"""summary as a process."""

from collections.abc import Mapping
from typing import Any

from heeler.engine.process import Context, Program
from heeler.engine.standby import Standby
from heeler.summary.step import SummaryStep


async def main(context: Context) -> None:
    """Count all jobs; publish those whose shard's lease this instance holds."""
    engine = Standby(context.bus, SummaryStep(), context.instance)
    context.metrics["engine"] = engine.metrics
    await engine.run(context.stop)


PROGRAM = Program("summary", "Sum up what the GPUs of each run of a job did.", main)


def make_step(tables: Mapping[str, Any]) -> SummaryStep:  # noqa: ARG001 - summary has no thresholds
    """Return the step for `heeler replay`."""
    return SummaryStep()
