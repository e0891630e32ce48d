"""Sending a check's request to its node over the bus, and telling what came back. It changes nothing anywhere."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from heeler.bus import Bus, DecodeError, decode, encode, subjects
from heeler.bus.client import RETRYABLE
from heeler.drain.actions import Cause, action, message_of
from heeler.drain.checking import Answer, judge, request, run_id
from heeler.drain.settings import Policy
from heeler.drain.world import World
from heeler.engine.step import Event

log = structlog.get_logger("heeler.drain")

SPARE_S = 2.0  # the node's answer travels


@dataclass(slots=True)
class Checker:
    """Asks nodes, each of them on its own."""

    bus: Bus
    policy: Policy
    actor: str
    world: Callable[[], World]
    publish: Callable[[Event], Awaitable[None]]
    now_ns: Callable[[], int]

    async def carry_out(self, approval: Event) -> None:
        """Ask, and say what came of it. Never raises for what the node or the bus does."""
        data, node = message_of(approval), str(message_of(approval)["node"])
        stay = self.world().stays.by_node.get(node)
        if stay is None or stay.finding_id != data["finding_id"]:
            return
        log.info("drain_action", node=node, step="check", verdict="approved", rule=data["rule"], why=data["why"])
        await self.publish(approval)
        number = int(data.get("round", 0))
        answer = await self._ask(node, stay.finding_id, number, str(data["why"]))
        event = action(
            Cause.after(stay, "check", number),
            answer.verdict,
            answer.rule,
            answer.why,
            self.now_ns(),
            dry_run=bool(data["dry_run"]),
            actor=self.actor,
            then="undrain" if answer.health == "healthy" else "check",
            answer={"checks": dict(answer.results)},
        )
        self.world().take(message_of(event), self.now_ns())
        log.info("drain_action", node=node, step="check", verdict=answer.verdict, rule=answer.rule, why=answer.why)
        await self.publish(event)

    async def _ask(self, node: str, finding_id: str, number: int, why: str) -> Answer:
        life, now_ns = self.policy.lifecycle, self.now_ns()
        run = run_id(finding_id, number, now_ns)
        asked = request(self.bus.cluster, node, life.checks, run, why, now_ns, life.check_timeout_s)
        subject, payload = subjects.health_request(self.bus.cluster, node), encode("HealthRequest", asked)
        try:
            found = await self.bus.request(subject, "HealthRequest", payload, timeout_s=life.check_timeout_s + SPARE_S)
            return judge(None if found is None else decode("HealthRun", found), asked)
        except RETRYABLE as err:
            return Answer("unknown", f"{node} could not be asked: {type(err).__name__}: {err}"[:300])
        except DecodeError as err:
            return Answer("unknown", f"what {node} answered is no HealthRun: {err}"[:300])
