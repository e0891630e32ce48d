"""What happened on a node, as lanes of a time line: pure.

An item has a lane, a beginning, an end (None: it lasts), words, and how bad it is (0 to 3, or None: not judged).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from heeler.console.facts import Facts, Message
from heeler.console.model import SEVERITIES, Job, node_state

LANES = ("jobs", "slurm", "findings", "kernel", "checks", "drain")
MOST = 400  # of a lane, the newest
_STATE_LEVEL = {"down": 3, "drained": 2, "draining": 2, "unknown": None, "gone": None}
_OUTCOME_LEVEL = {"ok": 0, "warn": 2, "bad": 3, "unknown": None, "off": None}
_VERDICT_LEVEL = {"pass": 0, "would_fail": 2, "fail": 3, "refused": None}
_DRAIN_LEVEL = {
    "done": 3,
    "verified": 3,
    "failed": 3,
    "proposed": 2,
    "approved": 2,
    "refused": 1,
    "undrained": 0,
    "ordered": 0,
}


def timeline(facts: Facts, states: Sequence[Message], jobs: Iterable[Job], start_ns: int) -> list[dict[str, Any]]:
    """Return all items since a time, each lane's newest."""
    found: list[dict[str, Any]] = []
    for lane in (
        _jobs(jobs),
        _states(states, facts.nodes),
        _findings(facts.findings),
        _kernel(facts.events),
        _checks(facts),
        _drains(facts.actions),
    ):
        items = [one for one in lane if one["to"] is None or one["to"] >= start_ns]
        found += sorted(items, key=lambda one: one["from"])[-MOST:]
    return found


def _item(lane: str, begin: int, end: int | None, text: str, level: int | None, **more: str) -> dict[str, Any]:
    return {"lane": lane, "from": begin, "to": end, "text": text, "level": level, **more}


def _jobs(jobs: Iterable[Job]) -> Iterator[dict[str, Any]]:
    for job in jobs:
        if job.start_ts is None:
            continue
        name, user = job.about.get("name"), job.about.get("user")
        words = f"job {job.id}" + (f" {name}" if name else "") + (f" of {user}" if user else "")
        yield _item("jobs", job.start_ts, job.end_ts, f"{words}: {job.state}", 0, job=job.id)


def _states(history: Sequence[Message], now: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Tell each stretch in which Slurm said the same of the node; the newest lasts."""
    told = sorted({message["ts"]: message for message in (*history, *now)}.values(), key=lambda one: int(one["ts"]))
    begin: Message | None = None
    for message in told:
        if begin is not None and _same(begin, message):
            continue
        if begin is not None:
            yield _stretch(begin, message["ts"])
        begin = message
    if begin is not None:
        yield _stretch(begin, None)


def _same(one: Message, other: Message) -> bool:
    return (node_state(one), one.get("reason")) == (node_state(other), other.get("reason"))


def _stretch(message: Message, end: int | None) -> dict[str, Any]:
    state, reason = node_state(message), message.get("reason")
    text = "+".join((message["state"], *message["flags"])) + (f": {reason}" if reason else "")
    return _item("slurm", message["ts"], end, text, _STATE_LEVEL.get(state, 0))


def _findings(findings: Iterable[Message]) -> Iterator[dict[str, Any]]:
    for one in findings:
        end = one["ts"] if one["state"] == "closed" else None
        level = SEVERITIES.get(one["severity"])
        yield _item("findings", one["first_ts"], end, f"{one['kind']}: {one['summary']}", level, finding=one["id"])


def _kernel(events: Iterable[Message]) -> Iterator[dict[str, Any]]:
    for event in events:
        code = f" {event['code']}" if "code" in event else ""
        text = event.get("text") or event.get("raw") or ""
        words = f"{event['kind']}{code}" + (f": {text[:300]}" if text else "")
        yield _item("kernel", event["ts"], event["ts"], words, None)


def _checks(facts: Facts) -> Iterator[dict[str, Any]]:
    for run in facts.health_runs:
        words = f"{run['phase']} {run['verdict']}: {run['why']}"
        yield _item("checks", run["ts"], run["ts"], words, _VERDICT_LEVEL.get(run["verdict"]))
    for result in facts.health_results:
        if result["outcome"] in ("bad", "warn"):
            words = f"{result['check']} {result['outcome']} ({result['phase']}): {result['why']}"
            yield _item("checks", result["ts"], result["ts"], words, _OUTCOME_LEVEL.get(result["outcome"]))


def _drains(actions: Iterable[Message]) -> Iterator[dict[str, Any]]:
    for one in actions:
        dry = " (dry run)" if one["dry_run"] else ""
        level = _DRAIN_LEVEL.get(one["verdict"])
        yield _item("drain", one["ts"], one["ts"], f"{one['verdict']}{dry}: {one['why']}", level)


def checks_now(facts: Facts) -> list[dict[str, Any]]:
    """Return the last word of each check on the node, the worst first."""
    last: dict[tuple[str, str], Mapping[str, Any]] = {}
    for result in facts.health_results:  # the newest first
        last.setdefault((result["check"], result["phase"]), result)
    order = {"bad": 0, "unknown": 1, "warn": 2}
    rows = sorted(last.values(), key=lambda one: (order.get(one["outcome"], 3), one["check"]))
    return [{key: one[key] for key in ("check", "phase", "outcome", "why", "ts")} for one in rows]
