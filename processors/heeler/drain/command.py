"""An operator's command, decided: the DrainAction that answers it. Pure; what it changes is in `heeler.drain.hand`.

Who commands is the last token of the subject, which the bus lets only that operator publish on. A command is done once:
the same id again, whenever it comes, gets the answer of the first time.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heeler.bus import TokenError, subjects, unescape
from heeler.drain.hand import BREAKERS, DRAIN, PROLOG
from heeler.drain.settings import Policy
from heeler.drain.world import SECOND_NS, World
from heeler.engine.step import Event, Inbound

EVERYWHERE = "*"  # in the place of a node
STALE_NS = 60 * SECOND_NS
MAX_PAUSE_S = 400 * 86400.0
MAX_WHY = 500
NOTHING_TO_DO = "nothing_to_do"

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Reply:
    """What is to be said of a command."""

    verdict: str  # ordered, refused
    rule: str
    why: str
    node: str = EVERYWHERE
    extra: tuple[tuple[str, Any], ...] = ()


def actor_of(message: Inbound) -> str | None:
    """Return who commands or asks, or None for a token that nobody's name makes."""
    try:
        return unescape(message.subject.rsplit(".", 1)[-1])
    except TokenError:
        return None


def action_id(actor: str, command_id: str) -> str:
    """Return the id of the DrainAction that answers a command; ids are text of anybody's choice."""
    parts = [part if _PLAIN.fullmatch(part) else _digest(part) for part in (actor, command_id)]
    return ".".join(("command", *parts))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def answer(policy: Policy, world: World, message: Inbound, now_ns: int) -> Event | None:
    """Decide about a command and return the DrainAction, which `Hand.apply` takes in.

    None for one that was answered before, or that nobody can have given: then there is nothing to say on the bus.
    """
    actor, command = actor_of(message), message.data
    if actor is None or action_id(actor, command["id"]) in world.hand.answered:
        return None
    reply = _too_old(command, now_ns) or _HANDLERS.get(command["command"], _unknown)(policy, world, command, now_ns)
    return _event(world, actor, command, reply, now_ns)


def _event(world: World, actor: str, command: Mapping[str, Any], reply: Reply, now_ns: int) -> Event:
    cluster, ident = command["cluster"], action_id(actor, command["id"])
    why = f"{reply.why}: {command['why'][:MAX_WHY]}" if command.get("why") else reply.why
    message = {
        "v": 1,
        "cluster": cluster,
        "id": ident,
        "node": reply.node,
        "ts": now_ns,
        "verdict": reply.verdict,
        "dry_run": world.dry_run,
        "why": why[:1000],
        "rule": reply.rule,
        "actor": actor,
        "command": command["command"],
        **dict(reply.extra),
    }
    return Event("DrainAction", subjects.drain_action(cluster, reply.node), message, f"DrainAction.{cluster}.{ident}")


def _too_old(command: Mapping[str, Any], now_ns: int) -> Reply | None:
    age_ns = now_ns - command["ts"]
    if abs(age_ns) > STALE_NS:
        side = f"{age_ns / SECOND_NS:.0f} s old" if age_ns > 0 else f"{-age_ns / SECOND_NS:.0f} s ahead of the bus"
        return Reply("refused", "stale", f"the command is {side}, at most {STALE_NS / SECOND_NS:g} s may lie between")
    if now_ns > command.get("deadline_ts", now_ns):
        return Reply("refused", "stale", "the command's deadline has passed")
    return None


def _unknown(_policy: Policy, _world: World, command: Mapping[str, Any], _now_ns: int) -> Reply:
    return Reply("refused", "unknown_command", f"not a command that this drainer knows ({command['command']})")


def _pause(_policy: Policy, _world: World, command: Mapping[str, Any], now_ns: int) -> Reply:
    span_s = command.get("for_s")
    if span_s is None:
        return Reply("ordered", "pause", "paused until it is resumed")
    if not 0 < span_s <= MAX_PAUSE_S:
        return Reply("refused", "bad_time", f"a pause of {span_s:g} s: above 0, at most {MAX_PAUSE_S:g}")
    until = ("until_ts", now_ns + int(span_s * SECOND_NS))
    return Reply("ordered", "pause", f"paused for {span_s:g} s", extra=(until,))


def _resume(_policy: Policy, world: World, _command: Mapping[str, Any], now_ns: int) -> Reply:
    pause = world.hand.paused(now_ns)
    if pause is None:
        return Reply("refused", NOTHING_TO_DO, "it is not paused")
    return Reply("ordered", "resume", f"resumed; it was paused by {pause.actor}")


def _trip_breaker(_policy: Policy, world: World, command: Mapping[str, Any], _now_ns: int) -> Reply:
    name = command.get("breaker")
    if name not in BREAKERS:
        return _no_breaker(name)
    is_open = _open(world, name)
    if is_open is not None:
        return Reply("refused", NOTHING_TO_DO, f"the breaker of {_WHOSE[name]} is open already: {is_open}")
    return Reply("ordered", "trip_breaker", f"the breaker of {_WHOSE[name]} is opened", extra=(("breaker", name),))


def _reset_breaker(policy: Policy, world: World, command: Mapping[str, Any], _now_ns: int) -> Reply:
    name = command.get("breaker")
    if name not in BREAKERS:
        return _no_breaker(name)
    is_open = _open(world, name)
    if is_open is None:
        none = name == PROLOG and world.prologs is None
        return Reply(
            "refused", NOTHING_TO_DO, f"the breaker of {_WHOSE[name]} {'is not known' if none else 'is closed'}"
        )
    why, size = f"the breaker of {_WHOSE[name]} is closed", world.fleet.size
    out, most = world.fleet.unavailable(), policy.limits.most_unavailable(size)
    if name == DRAIN and out > most:
        why += f"; still {out} of {size} nodes are unavailable, {most:g} may be: the next finding opens it again"
    return Reply("ordered", "reset_breaker", why, extra=(("breaker", name),))


def _open(world: World, name: str) -> str | None:
    """Return why a breaker is open, or None for one that is closed or not known."""
    if name == PROLOG:
        return world.prologs.why if world.prologs is not None and world.prologs.state == "open" else None
    switch = world.hand.tripped(dry_run=True)
    return switch.why if switch is not None else None


def _approve(policy: Policy, world: World, command: Mapping[str, Any], _now_ns: int) -> Reply:
    finding_id = str(command.get("finding_id"))
    case = world.cases.get(finding_id)
    if case is None:
        return Reply("refused", "unknown_finding", f"no open finding {finding_id[:120]!r} asks for a drain")
    rule = policy.rule_for(case.finding)
    if rule is None or not rule.approval:
        return Reply("refused", NOTHING_TO_DO, f"the policy wants no approval of {finding_id}")
    effect = world.history.of(finding_id, dry_run=world.dry_run)
    if effect is not None and effect.state in ("standing", "over"):
        return Reply("refused", "acted", f"{finding_id} has led to a drain already; a finding leads to one at most")
    about = (("finding_id", finding_id), ("kind", case.finding["kind"]), ("finding_ts", case.confirmed_ns))
    return Reply("ordered", "approve", f"a drain of {case.node} for {finding_id} is approved", case.node, about)


def _no_breaker(name: str | None) -> Reply:
    return Reply("refused", "unknown_breaker", f"no breaker {name!r}: one of {', '.join(BREAKERS)}")


_WHOSE = {DRAIN: "the drainer", PROLOG: "prologs"}
_HANDLERS = {
    "pause": _pause,
    "resume": _resume,
    "approve": _approve,
    "trip_breaker": _trip_breaker,
    "reset_breaker": _reset_breaker,
}


def trip(world: World, cluster: str, actor: str, why: str, now_ns: int) -> Event:
    """Return the DrainAction of the drainer's own breaker that opens."""
    ident = f"breaker.tripped.{now_ns}" + (".dry" if world.dry_run else "")
    message = {
        "v": 1,
        "cluster": cluster,
        "id": ident,
        "node": EVERYWHERE,
        "ts": now_ns,
        "verdict": "tripped",
        "dry_run": world.dry_run,
        "why": why[:1000],
        "rule": "breaker",
        "actor": actor,
        "breaker": DRAIN,
    }
    return Event("DrainAction", subjects.drain_action(cluster, EVERYWHERE), message, f"DrainAction.{cluster}.{ident}")
