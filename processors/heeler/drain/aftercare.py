"""Carrying out what follows a drain: jobs are requeued, nodes given back.

As with a drain: claim, look, decide again, command, look again, say what became of it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from heeler.bus.claims import Claim
from heeler.bus.lease import Lease
from heeler.drain.actions import Cause, Intent, message_of
from heeler.drain.backend import LeaseTooShortError, NotSupportedError, Slurm, enough
from heeler.drain.care import sight_of, terms_of
from heeler.drain.ledger import Ledger
from heeler.drain.lifecycle import why_not_back, why_not_requeue
from heeler.drain.node import NodeView
from heeler.drain.requeue import HeldJob, choose, comment_for, outcome
from heeler.drain.settings import Policy
from heeler.drain.stay import Stay
from heeler.drain.world import SECOND_NS
from heeler.engine.step import Event
from heeler.slurm.errors import SlurmError

log = structlog.get_logger("heeler.drain")

AGAIN_NS = 30 * SECOND_NS  # what could not even be begun


@dataclass(slots=True)
class Aftercare:
    """Carries out the steps after a drain that change something in Slurm."""

    policy: Policy
    slurm: Slurm
    ledger: Ledger
    lease: Lease
    look_again_s: float = 1.0
    under_way: set[str] = field(default_factory=set)  # keys of intents that this process works on beside others

    async def carry_out(self, approval: Event) -> None:
        """Carry an approval out, or say why not. Never raises for what Slurm does."""
        data = message_of(approval)
        begun = await self.begin(approval)
        if begun is None:
            return
        intent, claim, stay = begun
        if data["step"] == "undrain":
            await self._give_back(intent, claim, stay)
        else:
            await self._requeue(intent, claim, stay)

    async def begin(self, approval: Event) -> tuple[Intent, Claim, Stay] | None:
        """Claim the node of an approval; None where that can't be, and then it may be approved again later."""
        data, world = message_of(approval), self.ledger.world()
        node, now_ns = str(data["node"]), self.ledger.now_ns()
        stay = world.stays.by_node.get(node)
        if stay is not None and stay.finding_id == data["finding_id"] and enough(self.lease, self.slurm.timeout_s):
            cause = Cause.after(stay, str(data["step"]), int(data.get("round", 0)))
            reason = stay.mark.reason if stay.mark else ""
            intent = Intent(cause, str(data["rule"]), reason, self.ledger.actor, now_ns)
            claim = await self.ledger.begin(intent, approval)
            if claim is not None:
                return intent, claim, stay
        world.retract(data, now_ns)
        world.stays.not_before[node] = now_ns + AGAIN_NS
        return None

    @property
    def deadline_s(self) -> float:
        """When the lease ends, on the monotonic clock."""
        return time.monotonic() + self.lease.remaining_s

    async def look_after(self, intent: Intent, claim: Claim, problem: str) -> None:
        """Say what became of a step whose end nobody reported. Runs no command."""
        if intent.cause.step == "undrain":
            await self._verify_back(intent, claim, problem)
        elif intent.cause.step == "requeue":
            await self._verify_requeue(intent, claim, problem)
        else:
            # Whether a hook ran, and what it did, nothing here can tell: so it is not run again.
            step = intent.cause.step
            await self.ledger.end(intent, claim, "failed", f"{step}_lost", f"{step}: {problem}", then="person")

    # Giving a node back.

    async def _give_back(self, intent: Intent, claim: Claim, stay: Stay) -> None:
        end, node = self.ledger.end, stay.node
        try:
            before = await self.slurm.show(node, self.ledger.now_ns())
        except SlurmError as err:
            why = f"the node could not be read just before: {err}"
            await end(intent, claim, "refused", "slurm_unreadable", why, then="undrain")
            return
        read_s = time.monotonic()
        if no := self._why_not(node, before):
            await end(intent, claim, "refused", no[0], f"just before the command: {no[1]}", before=before, then="check")
            return
        try:
            problem = (await self.slurm.undrain(node, self.deadline_s)).problem
        except (LeaseTooShortError, NotSupportedError) as err:
            rule = "lease_too_short" if isinstance(err, LeaseTooShortError) else "not_supported"
            await end(intent, claim, "refused", rule, str(err), before=before, then="undrain")
            return
        except SlurmError as err:
            problem = str(err)
        window = {"window_ms": round(1000 * (time.monotonic() - read_s), 1)}
        await self._verify_back(replace(intent, before=before.record() | window), claim, problem)

    def _why_not(self, node: str, live: NodeView) -> tuple[str, str] | None:
        """Decide again with what was just read from Slurm."""
        world, now_ns = self.ledger.world(), self.ledger.now_ns()
        stay = world.stays.by_node.get(node)
        if stay is None:
            return "over", "the node is not drained by us any more"
        if pause := world.hand.paused(now_ns):
            return "paused", f"paused by {pause.actor}: {pause.why}"
        sight = replace(sight_of(world, stay, self.policy, now_ns), view=live)
        return why_not_back(stay, sight, terms_of(world, self.policy), now_ns)

    async def _verify_back(self, intent: Intent, claim: Claim, problem: str) -> None:
        node, ledger = intent.cause.node, self.ledger
        after = await ledger.look(self.slurm, intent, problem, self.look_again_s)
        if after is None:
            return
        words = f"{node} is {after.words()}"
        if not after.draining:
            note = f", although {problem}" if problem else ""
            await ledger.end(intent, claim, "undrained", intent.rule, f"{words}{note}", after=after, then="none")
        elif after.reason != intent.reason:
            why = f"{words} with another's reason {str(after.reason)[:120]!r} by {after.reason_user}: it is theirs"
            await ledger.end(intent, claim, "failed", "foreign_reason", why, after=after, then="person")
        else:
            rule = "command_failed" if problem else "not_applied"
            why = f"wanted undrain not applied: {problem or 'success was reported'}; {words}"
            await ledger.end(intent, claim, "failed", rule, why, after=after, then="undrain")

    # Requeueing its jobs.

    async def _requeue(self, intent: Intent, claim: Claim, stay: Stay) -> None:
        end, node = self.ledger.end, stay.node
        try:
            before = await self.slurm.show(node, self.ledger.now_ns())
            jobs = await self.slurm.jobs_on(node)
        except SlurmError as err:
            rule = "not_supported" if isinstance(err, NotSupportedError) else "slurm_unreadable"
            why = f"node or jobs could not be read just before: {err}"
            await end(intent, claim, "refused", rule, why, then="wait")
            return
        if no := self._why_not_requeue(node, before):
            why = f"just before the command: {no[1]}"
            await end(intent, claim, "refused", no[0], why, before=before, then="wait")
            return
        chosen, left = choose(jobs, stay.jobs)
        answer: dict[str, Any] = {"left": left}
        if not chosen:
            why = "; ".join(f"job {job}: {reason}" for job, reason in left.items())
            await end(intent, claim, "refused", "no_job", why, before=before, then="wait", answer=answer)
            return
        counts = {job.id: job.restarts or 0 for job in chosen}
        intent = replace(intent, before=before.record() | {"restarts": counts})
        noted = await self.ledger.note(intent, claim)
        if noted is None:
            log.warning("requeue_left", node=node)  # nothing was done: whoever looks after the intent says so
            return
        problems = await self._requeue_each(intent, chosen)
        await self._verify_requeue(intent, noted, "; ".join(problems), left)

    def _why_not_requeue(self, node: str, live: NodeView) -> tuple[str, str] | None:
        """Decide again with what was just read from Slurm."""
        world, now_ns = self.ledger.world(), self.ledger.now_ns()
        stay, pause = world.stays.by_node.get(node), world.hand.paused(now_ns)
        if stay is None:
            return "over", "the node is not drained by us any more"
        sight = replace(sight_of(world, stay, self.policy, now_ns), view=live)
        return why_not_requeue(stay, live, sight, f"paused by {pause.actor}: {pause.why}" if pause else "")

    async def _requeue_each(self, intent: Intent, chosen: list[HeldJob]) -> list[str]:
        problems = []
        for job in chosen:
            comment = comment_for(job, intent.cause.node, intent.cause.finding_id, intent.cause.kind)
            try:
                done = await self.slurm.requeue(job, comment, self.deadline_s)
            except SlurmError as err:
                problems.append(f"job {job.id}: {err}")
                continue
            if done.problem:
                problems.append(f"job {job.id}: {done.problem}")
        return problems

    async def _verify_requeue(
        self, intent: Intent, claim: Claim, problem: str, left: Mapping[str, str] | None = None
    ) -> None:
        counts: Mapping[str, int] = (intent.before or {}).get("restarts", {})
        now: dict[str, HeldJob | None] = {}
        for job_id in counts:
            try:
                now[job_id] = await self.slurm.job(job_id)
            except SlurmError as err:
                log.warning("job_not_read", job=job_id, error=str(err))
        found = outcome(counts, now)
        if found.unknown:
            await self.ledger.say(intent, "failed", "unverified", f"{problem or 'done'}; {found.words}", then="wait")
            return
        answer = {"requeued": list(found.requeued), "not_requeued": list(found.not_requeued), "left": dict(left or {})}
        why = f"{found.words}{f' ({problem})' if problem else ''}"
        verdict, rule = ("verified", intent.rule) if found.requeued else ("failed", "command_failed")
        await self.ledger.end(intent, claim, verdict, rule, why, then="wait", answer=answer)
