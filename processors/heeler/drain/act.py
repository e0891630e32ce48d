"""Carrying a drain out: claim, look, decide again, command, look again, say what became of it.

What follows a drain (requeue, repair, undrain) goes the same way, in `heeler.drain.aftercare`. At every point at which
this process may die, the next active instance finds either nothing done, or an intent in the bucket that tells it what
to look for.
"""

import asyncio
import time
from dataclasses import dataclass, field, replace

import structlog

from heeler.bus.claims import Claim
from heeler.bus.lease import Lease
from heeler.drain.actions import Cause, Intent, message_of
from heeler.drain.aftercare import Aftercare
from heeler.drain.backend import Slurm, enough
from heeler.drain.ledger import Ledger
from heeler.drain.node import NodeView
from heeler.drain.policy import Decision, decide
from heeler.drain.scontrol import LeaseTooShortError
from heeler.drain.settings import Policy
from heeler.drain.stay import DRAIN, step_of
from heeler.engine.step import Event
from heeler.slurm.errors import SlurmError

log = structlog.get_logger("heeler.drain")


@dataclass(slots=True)
class Actuator:
    """Carries out approved decisions, one at a time."""

    policy: Policy
    slurm: Slurm
    ledger: Ledger
    lease: Lease
    after: Aftercare
    look_again_s: float = 1.0
    # One thing at a time, or a drain under way would look like one that was left half done.
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def carry_out(self, approval: Event) -> None:
        """Carry an approval out, or say why not. Never raises for what Slurm does."""
        async with self.busy:
            if step_of(message_of(approval)) != DRAIN:
                await self.after.carry_out(approval)
            else:
                await self._carry_out(approval)

    async def _carry_out(self, approval: Event) -> None:
        data, world, now_ns = message_of(approval), self.ledger.world(), self.ledger.now_ns()
        finding_id = str(data["finding_id"])
        case, effect = world.cases.get(finding_id), world.history.of(finding_id, dry_run=False)
        if case is None or effect is None or not enough(self.lease, self.slurm.timeout_s):
            world.history.withdraw(finding_id, now_ns)
            return
        rule = self.policy.rule_for(case.finding)
        cause = Cause.of(case, effect.tries, rule.action if rule else "")
        intent = Intent(cause, str(data["rule"]), str(data["reason"]), self.ledger.actor, now_ns)
        claim = await self.ledger.begin(intent, approval)
        if claim is None:
            world.history.withdraw(finding_id, self.ledger.now_ns())
            return
        await self._act(intent, claim)

    async def _act(self, intent: Intent, claim: Claim) -> None:
        cause, end = intent.cause, self.ledger.end
        try:
            before = await self.slurm.show(cause.node, self.ledger.now_ns())
        except SlurmError as err:
            await end(intent, claim, "refused", "slurm_unreadable", f"the node could not be read just before: {err}")
            return
        read_s = time.monotonic()
        again = self._again(cause, before)
        if again.verdict != "approved":
            why = f"just before the command: {again.why}"
            await end(intent, claim, "refused", again.rule, why, before=before)
            return
        problem = ""
        try:
            done = await self.slurm.drain(cause.node, intent.reason, time.monotonic() + self.lease.remaining_s)
            problem = done.problem
        except LeaseTooShortError as err:
            await end(intent, claim, "refused", "lease_too_short", str(err), before=before)
            return
        except SlurmError as err:
            problem = str(err)
        window = {"window_ms": round(1000 * (time.monotonic() - read_s), 1)}
        await self.verify(replace(intent, before=before.record() | window), claim, problem)

    def _again(self, cause: Cause, live: NodeView) -> Decision:
        """Decide with what was just read from Slurm."""
        world = self.ledger.world()
        case = world.cases.get(cause.finding_id)
        if case is None:
            return Decision("refused", "closed", "the finding was closed meanwhile")
        return decide(self.policy, world, case, self.ledger.now_ns(), live=live)

    async def verify(self, intent: Intent, claim: Claim, problem: str) -> None:
        """Look at the node and say what became of the command: done and verified, or failed and how.

        ``problem``: what the command itself complained of; empty where it reported success.
        """
        node, ledger = intent.cause.node, self.ledger
        after = await ledger.look(self.slurm, intent, problem, self.look_again_s)
        if after is None:
            return
        if after.draining and after.reason == intent.reason:
            note = f" although {problem}" if problem else ""
            await ledger.say(intent, "done", intent.rule, f"{node} is draining{note}", after=after)
            why = f"read back: {after.words()}, reason set by {after.reason_user or 'nobody known'}"
            await ledger.end(intent, claim, "verified", intent.rule, why, after=after, then="wait")
        elif after.draining:
            why = f"{node} bears another's reason {str(after.reason)[:120]!r} by {after.reason_user}: it is theirs"
            why = f"{why}; {problem}".rstrip("; ")
            await ledger.end(intent, claim, "failed", "foreign_reason", why, after=after)
        elif problem:
            why = f"wanted drain not applied: {problem}; {node} is {after.words()}"
            await ledger.end(intent, claim, "failed", "command_failed", why, after=after)
        else:
            why = f"wanted drain not applied: success was reported, but {node} is {after.words()}"
            await ledger.end(intent, claim, "failed", "not_applied", why, after=after)

    async def resume(self, cluster: str) -> None:
        """Look at every node at which something was begun and whose end nobody reported. Runs no command."""
        async with self.busy:
            for intent, claim in await self.ledger.unfinished(cluster):
                if claim.key in self.after.under_way:
                    continue  # by this very process
                log.warning("intent_resumed", node=intent.cause.node, step=intent.cause.step, owner=intent.owner)
                problem = f"interrupted: {intent.owner} did not report the end"
                if intent.cause.step == DRAIN:
                    await self.verify(intent, claim, problem)
                else:
                    await self.after.look_after(intent, claim, problem)
