"""DrainActions as messages: ids derived from (finding, step, verdict, rule), so that a repeat is a twin."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from heeler.bus import subjects
from heeler.drain.stay import DRAIN, Stay
from heeler.drain.world import Case
from heeler.engine.step import Event


@dataclass(frozen=True, slots=True)
class Cause:
    """What a DrainAction answers: enough of a case to speak about it after the finding is gone."""

    cluster: str
    node: str
    finding_id: str
    kind: str
    finding_ts_ns: int
    job_id: str | None = None
    attempt: int = 0  # which approval of the finding it goes with, from 1; 0: with none. Tells their ids apart
    step: str = DRAIN
    round: int = 0  # which try of a step that is done more than once
    action: str = ""  # what the policy's rule asks for
    advice: str = ""
    jobs: tuple[str, ...] = ()

    @classmethod
    def of(cls, case: Case, attempt: int = 0, action: str = "") -> Self:
        """Return the cause of decisions about a case."""
        finding = case.finding
        job = finding.get("job_id")
        return cls(
            finding["cluster"],
            case.node,
            case.id,
            finding["kind"],
            case.confirmed_ns,
            job,
            attempt,
            action=action,
            advice=finding["advice"],
            jobs=tuple(finding.get("jobs") or ((job,) if job else ())),
        )

    @classmethod
    def after(cls, stay: Stay, step: str, number: int = 0) -> Self:
        """Return the cause of what follows a drain."""
        return cls(
            stay.cluster,
            stay.node,
            stay.finding_id,
            stay.kind,
            stay.finding_ts_ns,
            stay.job_id,
            stay.tries + 1 if step == "undrain" else 0,
            step=step,
            round=number,
            action=stay.action,
            advice=stay.advice,
            jobs=stay.jobs,
        )

    @property
    def place(self) -> str:
        """What tells the ids of one step from those of another."""
        return "" if self.step == DRAIN else f"{self.step}{self.round or ''}."


def action(
    cause: Cause,
    verdict: str,
    rule: str,
    why: str,
    now_ns: int,
    *,
    dry_run: bool,
    actor: str,
    reason: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    then: str = "",
    answer: Mapping[str, Any] | None = None,
) -> Event:
    """Return the event of a DrainAction. `then`: the next step."""
    tail = ".dry" if dry_run else (f".{cause.attempt}" if cause.attempt else "")
    action_id = f"{cause.finding_id}.{cause.place}{verdict}.{rule}{tail}"
    message = {
        "v": 1,
        "cluster": cause.cluster,
        "id": action_id,
        "finding_id": cause.finding_id,
        "node": cause.node,
        "ts": now_ns,
        "verdict": verdict,
        "dry_run": dry_run,
        "reason": reason or None,
        "why": why[:1000],
        "rule": rule,
        "actor": actor,
        "finding_ts": cause.finding_ts_ns,
        "kind": cause.kind,
        "job_id": cause.job_id,
        "before": before,
        "after": after,
        "step": cause.step,
        "next": then or None,
        "round": cause.round or None,
        "action": cause.action or None,
        "advice": cause.advice or None,
        "jobs": list(cause.jobs) or None,
        "answer": answer,
    }
    message = {key: value for key, value in message.items() if value is not None}
    subject = subjects.drain_action(cause.cluster, cause.node)
    return Event("DrainAction", subject, message, f"DrainAction.{cause.cluster}.{action_id}")


def message_of(event: Event) -> dict[str, Any]:
    """Return an action as a mapping."""
    assert not isinstance(event.data, bytes)
    return dict(event.data)


@dataclass(frozen=True, slots=True)
class Intent:
    """A drain, or a step after it, that is about to be done.

    Claimed in the bucket before, finished after, so that none is done twice.
    """

    cause: Cause
    rule: str
    reason: str
    owner: str
    ts_ns: int
    finished: str = ""  # the last verdict; empty while nobody knows how it went
    before: Mapping[str, Any] | None = None

    def pack(self) -> bytes:
        """Return the bytes for the bucket."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpack(cls, value: bytes) -> Self:
        """Return an intent from the bucket. Raises ValueError."""
        try:
            found = json.loads(value)
            cause = Cause(**found.pop("cause"))
            cause = replace(cause, jobs=tuple(cause.jobs))
            return cls(cause, **{f.name: found[f.name] for f in fields(cls) if f.name != "cause"})
        except (TypeError, KeyError, AttributeError) as err:
            raise ValueError(f"not an intent: {err}") from None
