"""Carrying a drain out: claim, look, decide again, command, look again, say what became of it.

At every point at which this process may die, the next active instance finds either nothing done, or an intent in the
bucket that tells it what to look for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from heeler.bus import escape
from heeler.bus.claims import Claim, Claims
from heeler.bus.client import RETRYABLE
from heeler.bus.lease import Lease
from heeler.drain.actions import Cause, Intent, action
from heeler.drain.node import NodeView
from heeler.drain.policy import Decision, decide
from heeler.drain.scontrol import LeaseTooShortError
from heeler.drain.settings import Policy
from heeler.drain.world import World
from heeler.engine.step import Event
from heeler.slurm.command import Completed
from heeler.slurm.errors import SlurmError

log = structlog.get_logger("heeler.drain")

SPARE = 6  # this part of a lease must be left over the command's timeout before anything begins
LOOKS = 3  # readings of a node after a command, while Slurm does not answer


class Slurm(Protocol):
    """What drains nodes."""

    @property
    def timeout_s(self) -> float:
        """Longest time one command may take."""
        ...

    async def show(self, name: str, now_ns: int) -> NodeView:
        """Return a node as it is now. Raises SlurmError."""
        ...

    async def drain(self, name: str, reason: str, deadline_s: float) -> Completed:
        """Drain a node. Raises LeaseTooShortError, SlurmError."""
        ...


@dataclass(slots=True)
class Actuator:
    """Carries out approved decisions, one at a time."""

    policy: Policy
    slurm: Slurm
    claims: Claims
    lease: Lease
    actor: str
    world: Callable[[], World]
    publish: Callable[[Event], Awaitable[None]]
    now_ns: Callable[[], int]
    look_again_s: float = 1.0
    # One thing at a time, or a drain under way would look like one that was left half done.
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def carry_out(self, approval: Event) -> None:
        """Carry an approval out, or say why not. Never raises for what Slurm does."""
        async with self._busy:
            await self._carry_out(approval)

    async def _carry_out(self, approval: Event) -> None:
        assert not isinstance(approval.data, bytes)
        world, finding_id = self.world(), str(approval.data["finding_id"])
        case, effect = world.cases.get(finding_id), world.history.of(finding_id, dry_run=False)
        if case is None or effect is None or self.lease.remaining_s < self.slurm.timeout_s + self.lease.ttl_s / SPARE:
            world.history.withdraw(finding_id, self.now_ns())
            return
        rule, reason = str(approval.data["rule"]), str(approval.data["reason"])
        intent = Intent(Cause.of(case, effect.tries), rule, reason, self.actor, self.now_ns())
        try:
            claim = await self._claim(intent)
        except (*RETRYABLE, ValueError) as err:
            log.warning("intent_not_claimed", node=case.node, error=f"{type(err).__name__}: {err}")
            claim = None
        if claim is None:
            log.warning("intent_not_ours", node=case.node, finding_id=finding_id)
            world.history.withdraw(finding_id, self.now_ns())
            return
        log.info("drain_action", node=case.node, verdict="approved", rule=rule, why=approval.data["why"])
        await self.publish(approval)
        await self._act(intent, claim)

    async def _claim(self, intent: Intent) -> Claim | None:
        """Claim the node. None if another drain of it is under way, or another instance was quicker.

        Raises ValueError where something else than an intent stands in its place.
        """
        key = claim_key(intent.cause.cluster, intent.cause.node)
        standing = await self.claims.get(key)
        if standing is not None and not Intent.unpack(standing.value).finished:
            return None
        return await self.claims.set(key, intent.pack(), standing)

    async def _act(self, intent: Intent, claim: Claim) -> None:
        cause = intent.cause
        try:
            before = await self.slurm.show(cause.node, self.now_ns())
        except SlurmError as err:
            await self._end(
                intent, claim, "refused", "slurm_unreadable", f"the node could not be read just before: {err}"
            )
            return
        read_s = time.monotonic()
        again = self._again(cause, before)
        if again.verdict != "approved":
            await self._end(
                intent, claim, "refused", again.rule, f"just before the command: {again.why}", before=before
            )
            return
        problem = ""
        try:
            done = await self.slurm.drain(cause.node, intent.reason, time.monotonic() + self.lease.remaining_s)
            if done.rc != 0:
                problem = f"scontrol ended with {done.rc}: {done.error_text.strip()[:300] or 'no message'}"
        except LeaseTooShortError as err:
            await self._end(intent, claim, "refused", "lease_too_short", str(err), before=before)
            return
        except SlurmError as err:
            problem = str(err)
        window = {"window_ms": round(1000 * (time.monotonic() - read_s), 1)}
        await self.verify(replace(intent, before=before.record() | window), claim, problem)

    def _again(self, cause: Cause, live: NodeView) -> Decision:
        """Decide with what was just read from Slurm."""
        world = self.world()
        case = world.cases.get(cause.finding_id)
        if case is None:
            return Decision("refused", "closed", "the finding was closed meanwhile")
        return decide(self.policy, world, case, self.now_ns(), live=live)

    async def verify(self, intent: Intent, claim: Claim, problem: str) -> None:
        """Look at the node and say what became of the command: done and verified, or failed and how.

        ``problem``: what the command itself complained of; empty where it reported success.
        """
        node = intent.cause.node
        try:
            after = await self._look(node)
        except SlurmError as err:
            # Not finished: the effect may be there. The claim stays, and is looked at again.
            await self._say(intent, "failed", "unverified", f"{problem or 'done'}; the node can't be read: {err}")
            return
        if after.draining and after.reason == intent.reason:
            note = f" although {problem}" if problem else ""
            await self._say(intent, "done", intent.rule, f"{node} is draining{note}", after=after)
            why = f"read back: {after.words()}, reason set by {after.reason_user or 'nobody known'}"
            await self._end(intent, claim, "verified", intent.rule, why, after=after)
        elif after.draining:
            why = f"{node} bears another's reason {str(after.reason)[:120]!r} by {after.reason_user}: it is theirs"
            await self._end(intent, claim, "failed", "foreign_reason", f"{why}; {problem}".rstrip("; "), after=after)
        elif problem:
            why = f"wanted drain not applied: {problem}; {node} is {after.words()}"
            await self._end(intent, claim, "failed", "command_failed", why, after=after)
        else:
            why = f"wanted drain not applied: scontrol reported success, but {node} is {after.words()}"
            await self._end(intent, claim, "failed", "not_applied", why, after=after)

    async def _look(self, node: str) -> NodeView:
        for _ in range(LOOKS - 1):
            try:
                return await self.slurm.show(node, self.now_ns())
            except SlurmError as err:
                log.warning("node_not_read", node=node, error=str(err))
                await asyncio.sleep(self.look_again_s)
        return await self.slurm.show(node, self.now_ns())

    async def resume(self, cluster: str) -> None:
        """Look at every node whose drain was begun and whose end nobody reported. Runs no command."""
        async with self._busy:
            await self._resume(cluster)

    async def _resume(self, cluster: str) -> None:
        for claim in await self.claims.all(f"{escape(cluster)}."):
            try:
                intent = Intent.unpack(claim.value)
            except ValueError as err:
                log.error("intent_unreadable", key=claim.key, error=str(err))  # noqa: TRY400 - its words say it all
                continue
            if not intent.finished:
                log.warning("intent_resumed", node=intent.cause.node, owner=intent.owner)
                problem = f"interrupted: {intent.owner} did not report the end"
                await self.verify(intent, claim, problem)

    async def _say(self, intent: Intent, verdict: str, rule: str, why: str, *, after: NodeView | None = None) -> None:
        record = after.record() if after else None
        event = action(
            intent.cause,
            verdict,
            rule,
            why,
            self.now_ns(),
            dry_run=False,
            actor=self.actor,
            reason=intent.reason,
            before=intent.before,
            after=record,
        )
        self.world().history.apply(_message(event), self.now_ns())
        log.info("drain_action", node=intent.cause.node, verdict=verdict, rule=rule, why=why)
        await self.publish(event)

    async def _end(
        self,
        intent: Intent,
        claim: Claim,
        verdict: str,
        rule: str,
        why: str,
        *,
        before: NodeView | None = None,
        after: NodeView | None = None,
    ) -> None:
        """Say the last word about an intent and finish it."""
        if before is not None:
            intent = replace(intent, before=before.record())
        await self._say(intent, verdict, rule, why, after=after)
        try:
            if await self.claims.set(claim.key, replace(intent, finished=verdict).pack(), claim) is None:
                log.warning("intent_taken_over", node=intent.cause.node)
        except RETRYABLE as err:  # it stays open, is looked at again, and says the same again under the same id
            log.warning("intent_not_finished", node=intent.cause.node, error=f"{type(err).__name__}: {err}")


def claim_key(cluster: str, node: str) -> str:
    """Return the key of a node's intent."""
    return f"{escape(cluster)}.{escape(node)}"


def _message(event: Event) -> dict[str, Any]:
    assert not isinstance(event.data, bytes)
    return dict(event.data)
