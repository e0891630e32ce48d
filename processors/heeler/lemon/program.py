"""lemon as a process."""

from collections.abc import Mapping
from typing import Any

from heeler.engine import config
from heeler.engine.process import Context, Program
from heeler.engine.standby import Standby
from heeler.lemon.settings import LemonSettings
from heeler.lemon.step import LemonStep


async def main(context: Context) -> None:
    """Read four weeks back, then go on; say what is ours by its shard's lease."""
    engine = Standby(context.bus, LemonStep(context.settings["lemon"]), context.instance)
    context.metrics["engine"] = engine.metrics
    await engine.run(context.stop)


PROGRAM = Program("lemon", "Find nodes that are in trouble again and again.", main, {"lemon": LemonSettings})


def make_step(tables: Mapping[str, Any]) -> LemonStep:
    """Return the step for `heeler replay`, with the limits in the tables' ``[lemon]``."""
    return LemonStep(config.build(LemonSettings, tables.get("lemon", {}), "lemon"))
