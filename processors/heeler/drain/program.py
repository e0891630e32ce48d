"""drain as a process."""

from collections.abc import Mapping
from typing import Any

import structlog

from heeler.drain.arm import require_arms
from heeler.drain.backend import Slurm
from heeler.drain.hooks import ExecHook
from heeler.drain.notify import Notifier
from heeler.drain.scontrol import Scontrol
from heeler.drain.settings import DrainSettings
from heeler.drain.shell import Drainer
from heeler.drain.slurmrest import SlurmRest
from heeler.drain.step import DrainStep
from heeler.engine.config import build
from heeler.engine.process import Context, Program

log = structlog.get_logger("heeler.drain")


async def main(context: Context) -> None:
    """Decide about findings that ask for a drain; carry the decisions out only if armed."""
    settings: DrainSettings = context.settings["drain"]
    slurm: Slurm | None = None
    if not settings.dry_run:
        await require_arms(settings, context.settings["bus"])
        slurm = backend_of(settings)
    step = DrainStep(
        settings.load_policy(),
        dry_run=settings.dry_run,
        actor=f"heeler-drain/{context.instance}",
        tick_s=settings.tick_s,
        waits_for_activation=True,
        hooks=settings.hooks or (),
    )
    hooks = {name: ExecHook(found.argv, found.timeout_s) for name, found in (settings.hooks or {}).items()}
    notifier = Notifier([(wanted, wanted.outlet()) for wanted in settings.notify])
    drainer = Drainer(context.bus, step, context.instance, slurm, hooks=hooks, notifier=notifier)
    context.metrics["drain"] = drainer.metrics
    log.info("policy", dry_run=settings.dry_run, rules=len(step.policy.rules))
    await drainer.run(context.stop)


def backend_of(settings: DrainSettings) -> Slurm:
    """Return the way to Slurm. Raises SlurmError if there is no such program."""
    if settings.backend == "scontrol":
        return Scontrol.of(settings.scontrol, settings.slurm_conf, settings.command_timeout_s)
    user, token, ca = (text or None for text in (settings.rest_user, settings.token_file, settings.rest_ca))
    return SlurmRest(settings.rest_url, user, token, ca, settings.command_timeout_s)


PROGRAM = Program(
    "drain", "Take broken nodes out of service; says what it would do unless armed.", main, {"drain": DrainSettings}
)


def make_step(tables: Mapping[str, Any]) -> DrainStep:
    """Return the dry-run step for `heeler replay`. Raises ConfigError."""
    return DrainStep.of(build(DrainSettings, tables.get("drain", {}), "drain"))
