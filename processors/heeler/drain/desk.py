"""The drainer's desk on the bus: commands and questions of operators come here, the active instance answers.

Who speaks is the last token of the subject: the bus lets each operator publish on their own only (deploy/nats).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from heeler.bus import Bus, encode, subjects
from heeler.bus.client import RETRYABLE, Msg
from heeler.drain.command import action_id, actor_of
from heeler.drain.world import World
from heeler.engine.intake import Refused, intake
from heeler.engine.step import Inbound

log = structlog.get_logger("heeler.drain")

MAX_ANSWER = 700_000  # bytes; a server takes 1 MiB unless told otherwise
Fields = dict[str, Any]


class Office(Protocol):
    """What the desk asks of the drainer behind it."""

    @property
    def may_answer(self) -> bool:
        """Say whether this instance is active and holds the lease."""
        ...

    @property
    def world(self) -> World:
        """The picture of the cluster."""
        ...

    async def command(self, message: Inbound) -> None:
        """Carry a command through the step, publish what it says, and keep what has changed."""
        ...

    async def question(self, message: Inbound) -> Fields:
        """Return the keys of the answer to a question."""
        ...


class Desk:
    """Hears commands and questions, one after another."""

    def __init__(self, bus: Bus, instance: str, office: Office, now_ns: Callable[[], int]) -> None:
        self._bus, self._instance, self._office, self._now_ns = bus, instance, office, now_ns
        self._waiting: asyncio.Queue[Msg] = asyncio.Queue(maxsize=1000)
        self.counts: dict[str, float] = {}

    async def open(self) -> None:
        """Begin to hear."""
        for build in (subjects.drain_command, subjects.drain_question):
            await self._bus.subscribe(build(self._bus.cluster, "x").rpartition(".")[0] + ".*", self._hear)

    async def _hear(self, message: Msg) -> None:
        if not self._office.may_answer:  # the active one hears it too
            return
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self._count("desk_full_total")

    async def serve(self) -> None:
        """Answer, until cancelled."""
        while True:
            message = await self._waiting.get()
            try:
                await self._answer(message)
            except RETRYABLE as error:
                log.warning("answer_not_sent", error=f"{type(error).__name__}: {error}")

    async def _answer(self, raw: Msg) -> None:
        try:
            message = intake(raw.subject, raw.headers, raw.data, self._now_ns())
        except Refused as refused:
            self._count("desk_refused_total")
            log.warning("command_refused", subject=raw.subject[:200], error=str(refused)[:500])
            return
        if not self._office.may_answer:  # no longer: it was frozen, or the lease is gone
            return
        fields = await self._work(message)
        if fields is None or not raw.reply:
            return
        answer = {
            "v": 1,
            "cluster": self._bus.cluster,
            "ts": self._now_ns(),
            "id": message.data["id"],
            "by": self._instance,
            **fields,
        }
        await self._bus.publish(raw.reply, "DrainAnswer", _packed(answer))

    async def _work(self, message: Inbound) -> Fields | None:
        self._count(f"desk_heard_total.{message.kind}")
        if message.kind == "DrainQuestion":
            return await self._office.question(message)
        actor = actor_of(message)
        if actor is None:
            return None
        ident = action_id(actor, message.data["id"])
        again = ident in self._office.world.hand.answered
        if not again:
            await self._office.command(message)
        said = self._office.world.hand.answered.get(ident)
        if said is None:
            return None
        outcome = "done" if said.verdict == "ordered" else "refused"
        log.warning("command", actor=actor, command=message.data["command"], outcome=outcome, why=said.why, again=again)
        found: Fields = {"outcome": outcome, "why": said.why, "rule": said.rule, "actor": actor}
        return found | ({"again": True} if again else {})

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


def _packed(answer: Fields) -> bytes:
    """Return the bytes of an answer; of one that is too much for the bus, those of a refusal."""
    payload = encode("DrainAnswer", answer)
    if len(payload) <= MAX_ANSWER:
        return payload
    short = {key: value for key, value in answer.items() if key not in ("cases", "standing", "node")}
    why = f"the answer of {len(payload)} bytes is too much for the bus"
    return encode("DrainAnswer", {**short, "outcome": "refused", "rule": "too_large", "why": why})
