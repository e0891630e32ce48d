"""Where what is about to be done is claimed before, and what became of it is told after.

One intent for a node at a time, claimed by compare-and-set. At every point at which this process may die, the next
active instance finds either nothing done, or an intent that tells it what to look for.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from heeler.bus import escape
from heeler.bus.claims import Claim, Claims
from heeler.bus.client import RETRYABLE
from heeler.drain.actions import Intent, action, message_of
from heeler.drain.backend import Slurm, look
from heeler.drain.node import NodeView
from heeler.drain.world import World
from heeler.engine.step import Event
from heeler.slurm.errors import SlurmError

log = structlog.get_logger("heeler.drain")


@dataclass(slots=True)
class Ledger:
    """The intents of one cluster, and the words about them."""

    claims: Claims
    actor: str
    world: Callable[[], World]
    publish: Callable[[Event], Awaitable[None]]
    now_ns: Callable[[], int]

    async def begin(self, intent: Intent, approval: Event) -> Claim | None:
        """Claim a node, then say that it begins. None if something else is under way there, or the bus is away."""
        node = intent.cause.node
        try:
            claim = await self._claim(intent)
        except (*RETRYABLE, ValueError) as err:
            log.warning("intent_not_claimed", node=node, error=f"{type(err).__name__}: {err}")
            return None
        if claim is None:
            log.warning("intent_not_ours", node=node, finding_id=intent.cause.finding_id)
            return None
        data = message_of(approval)
        log.info(
            "drain_action", node=node, step=intent.cause.step, verdict="approved", rule=intent.rule, why=data["why"]
        )
        await self.publish(approval)
        return claim

    async def _claim(self, intent: Intent) -> Claim | None:
        """Claim the node. None if an intent for it is not finished, or another instance was quicker.

        Raises ValueError where something else than an intent stands in its place.
        """
        key = claim_key(intent.cause.cluster, intent.cause.node)
        standing = await self.claims.get(key)
        if standing is not None and not Intent.unpack(standing.value).finished:
            return None
        return await self.claims.set(key, intent.pack(), standing)

    async def note(self, intent: Intent, claim: Claim) -> Claim | None:
        """Write down more about an intent of ours; None if it is no longer ours, or nobody knows if it was written."""
        try:
            return await self.claims.set(claim.key, intent.pack(), claim)
        except RETRYABLE as err:
            log.warning("intent_not_noted", node=intent.cause.node, error=f"{type(err).__name__}: {err}")
            return None

    async def unfinished(self, cluster: str) -> list[tuple[Intent, Claim]]:
        """Return what was begun and whose end nobody reported. Raises `RETRYABLE`."""
        found = []
        for claim in await self.claims.all(f"{escape(cluster)}."):
            try:
                intent = Intent.unpack(claim.value)
            except ValueError as err:
                log.error("intent_unreadable", key=claim.key, error=str(err))  # noqa: TRY400 - its words say it all
                continue
            if not intent.finished:
                found.append((intent, claim))
        return found

    async def look(self, slurm: Slurm, intent: Intent, problem: str, again_s: float) -> NodeView | None:
        """Return the node after a command that complained of ``problem`` (or of nothing).

        None where it can't be read: that is said, and nothing is finished. The effect may be there, so the claim
        stays, and is looked at again.
        """
        try:
            return await look(slurm, intent.cause.node, self.now_ns, again_s)
        except SlurmError as err:
            await self.say(intent, "failed", "unverified", f"{problem or 'done'}; the node can't be read: {err}")
            return None

    async def say(
        self,
        intent: Intent,
        verdict: str,
        rule: str,
        why: str,
        *,
        after: NodeView | None = None,
        then: str = "",
        answer: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what became of an intent."""
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
            after=after.record() if after else None,
            then=then,
            answer=answer,
        )
        self.world().take(message_of(event), self.now_ns())
        log.info("drain_action", node=intent.cause.node, step=intent.cause.step, verdict=verdict, rule=rule, why=why)
        await self.publish(event)

    async def end(
        self,
        intent: Intent,
        claim: Claim,
        verdict: str,
        rule: str,
        why: str,
        *,
        before: NodeView | None = None,
        after: NodeView | None = None,
        then: str = "",
        answer: Mapping[str, Any] | None = None,
    ) -> None:
        """Say the last word about an intent and finish it."""
        if before is not None:
            intent = replace(intent, before=before.record())
        await self.say(intent, verdict, rule, why, after=after, then=then, answer=answer)
        try:
            if await self.claims.set(claim.key, replace(intent, finished=verdict).pack(), claim) is None:
                log.warning("intent_taken_over", node=intent.cause.node)
        except RETRYABLE as err:  # it stays open, is looked at again, and says the same again under the same id
            log.warning("intent_not_finished", node=intent.cause.node, error=f"{type(err).__name__}: {err}")


def claim_key(cluster: str, node: str) -> str:
    """Return the key of a node's intent."""
    return f"{escape(cluster)}.{escape(node)}"
