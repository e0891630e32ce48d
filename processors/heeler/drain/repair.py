"""Starting a reset or a reboot by the site's own hook: once for a drain, on a node that is ours, still and empty.

What a hook did can't be told from outside. So it is claimed before, run at most once, and where nobody saw its end it
is left to a person.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from heeler.bus.claims import Claim
from heeler.drain.actions import Intent
from heeler.drain.aftercare import Aftercare
from heeler.drain.backend import LeaseTooShortError
from heeler.drain.care import sight_of
from heeler.drain.hooks import ExecHook
from heeler.drain.lifecycle import why_not_repair
from heeler.drain.stay import Stay
from heeler.engine.step import Event
from heeler.slurm.errors import CommandMissingError, SlurmError

log = structlog.get_logger("heeler.drain")


@dataclass(slots=True)
class Repairer:
    """Runs hooks beside all else: a reset may take minutes."""

    after: Aftercare
    hooks: Mapping[str, ExecHook]
    busy: asyncio.Lock  # of the actuator: an intent is claimed while nobody looks after intents

    async def carry_out(self, approval: Event) -> None:
        """Carry an approval out, or say why not. Never raises for what Slurm or the hook does."""
        async with self.busy:
            begun = await self.after.begin(approval)
            if begun is None:
                return
            self.after.under_way.add(begun[1].key)
        try:
            await self._repair(*begun)
        finally:
            self.after.under_way.discard(begun[1].key)

    async def _repair(self, intent: Intent, claim: Claim, stay: Stay) -> None:
        ledger, step = self.after.ledger, intent.cause.step
        try:
            before = await self.after.slurm.show(stay.node, ledger.now_ns())
        except SlurmError as err:
            why = f"the node could not be read just before: {err}"
            await ledger.end(intent, claim, "refused", "slurm_unreadable", why, then="person")
            return
        world = ledger.world()
        sight = sight_of(world, stay, self.after.policy, ledger.now_ns())
        if no := why_not_repair(stay, before, sight, paused=world.hand.paused(ledger.now_ns()) is not None):
            await ledger.end(intent, claim, "refused", no[0], no[1], before=before, then="person")
            return
        order = message_of_order(intent)
        lease = (time.monotonic() + self.after.lease.remaining_s, self.after.slurm.timeout_s)
        try:
            done = await self.hooks[step].run(order, lease)
        except (LeaseTooShortError, CommandMissingError) as err:
            rule = "lease_too_short" if isinstance(err, LeaseTooShortError) else "hook_missing"
            await ledger.end(intent, claim, "refused", rule, str(err), before=before, then="person")
        except SlurmError as err:
            why = f"whether the {step} was done is not known: {err}"
            await ledger.end(intent, claim, "failed", f"{step}_lost", why, before=before, then="person")
        else:
            verdict, rule = ("failed", "hook_failed") if done.problem else ("done", intent.rule)
            why = done.problem or f"the hook for a {step} of {stay.node} ended well: {done.said}".rstrip(": ")
            then = "person" if done.problem else "check"
            await ledger.end(intent, claim, verdict, rule, why, before=before, then=then, answer={"said": done.said})


def message_of_order(intent: Intent) -> dict[str, object]:
    """Return what a hook is told."""
    cause = intent.cause
    return {
        "v": 1,
        "cluster": cause.cluster,
        "node": cause.node,
        "step": cause.step,
        "finding_id": cause.finding_id,
        "kind": cause.kind,
        "reason": intent.reason,
        "id": f"{cause.finding_id}.{cause.step}",
        "ts": intent.ts_ns,
    }
