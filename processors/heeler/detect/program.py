"""detect as a process."""

from collections.abc import Mapping
from typing import Any

from heeler.detect.step import DetectStep
from heeler.detect.thresholds import Thresholds, from_tables
from heeler.engine.process import Context, Program
from heeler.engine.standby import Standby


async def main(context: Context) -> None:
    """Step every shard; emit those whose lease this instance holds."""
    engine = Standby(context.bus, DetectStep(context.settings["detect"]), context.instance)
    context.metrics["engine"] = engine.metrics
    await engine.run(context.stop)


PROGRAM = Program("detect", "Find trouble in jobs, nodes and agents.", main, {"detect": Thresholds})


def make_step(tables: Mapping[str, Any]) -> DetectStep:
    """Return the step for `heeler replay`, with the thresholds in the tables' ``[detect]``."""
    return DetectStep(from_tables(tables))
