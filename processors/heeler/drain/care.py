"""What follows for every node that we have drained: from the world to moves, and from moves to DrainActions."""

from collections.abc import Iterable, Iterator

from heeler.drain.actions import Cause, action, message_of
from heeler.drain.lifecycle import SECOND_NS, Move, Sight, Terms, next_move
from heeler.drain.node import NodeView
from heeler.drain.policy import opted_out
from heeler.drain.quiet import WHAT, quiet_for
from heeler.drain.settings import Policy
from heeler.drain.stay import Stay
from heeler.drain.world import World
from heeler.engine.step import Event


def care(world: World, policy: Policy, now_ns: int, *, actor: str, hooks: frozenset[str] = frozenset()) -> list[Event]:
    """Return the next word about each stay, taken in already. None while Slurm's state is not known."""
    return list(_care(world, policy, now_ns, actor, hooks))


def _care(world: World, policy: Policy, now_ns: int, actor: str, hooks: frozenset[str]) -> Iterator[Event]:
    limits = policy.limits
    if world.active_ns is None or (now_ns - world.active_ns) / SECOND_NS < limits.settle_s:
        return
    if world.hand.paused(now_ns) is not None:
        return
    if not world.stays.by_node or world.controller.trouble(now_ns, limits.slurm_age_s) is not None:
        return
    terms = terms_of(world, policy, hooks)
    for node, stay in sorted(world.stays.by_node.items()):
        if world.stays.not_before.get(node, 0) > now_ns:
            continue
        move = next_move(stay, sight_of(world, stay, policy, now_ns), terms, now_ns)
        if move is None:
            continue
        event = event_of(world, stay, move, now_ns, actor=actor)
        if is_new(world, event):
            world.take(message_of(event), now_ns)
            yield event


def is_new(world: World, event: Event) -> bool:
    """Say whether an action was not said before."""
    return message_of(event)["id"] not in world.history.said


def terms_of(world: World, policy: Policy, hooks: Iterable[str] = ()) -> Terms:
    """Return what may be done by this policy."""
    return Terms(policy.lifecycle, policy.limits, world.dry_run, frozenset(hooks))


def sight_of(world: World, stay: Stay, policy: Policy, now_ns: int) -> Sight:
    """Return what is known now about a stay's node."""
    limits, node = policy.limits, stay.node
    view = world.fleet.nodes.get(node)
    case = world.cases.get(stay.finding_id)
    others = sorted(case.id for case in world.cases.values() if case.node == node and case.id != stay.finding_id)
    return Sight(
        view,
        shown=view is not None and _shown(world, stay, view, now_ns - int(2 * limits.slurm_age_s * SECOND_NS)),
        closed=stay.finding_id in world.closed and stay.finding_id not in world.cases,
        others=tuple(others),
        drains=world.stays.drained_since(node, now_ns - int(limits.repeat_window_s * SECOND_NS)),
        opted_out=(opted_out(view, limits) if view is not None else None) or "",
        quiet=_left_for_later(world, policy, now_ns),
        confirmed=case is not None and now_ns - case.confirmed_ns <= int(limits.confirm_within_s * SECOND_NS),
        ended_ns=world.ended.get(node, 0),
    )


def _left_for_later(world: World, policy: Policy, now_ns: int) -> frozenset[str]:
    """Return what is left for now: in quiet hours, and what hurts while the breaker is open. Giving back does not."""
    found = {what for what in WHAT if quiet_for(policy.quiet, what, now_ns) is not None}
    return frozenset(found | ({"requeue", "repair"} if world.hand.tripped(dry_run=world.dry_run) else set()))


def _shown(world: World, stay: Stay, view: NodeView, before_ns: int) -> bool:
    """Say whether the feed has shown our drain, or whatever came after it.

    A feed tells of changes only, and what it tells may have been asked before the drain. But it knows Slurm's state
    (or there is no care at all), so a drain from long before is in its last answer.
    """
    effect = world.history.effects.get((stay.finding_id, False))
    bears = view.draining and stay.mark is not None and view.reason == stay.mark.reason
    return bears or (effect is not None and effect.seen) or stay.since_ns < before_ns


def event_of(world: World, stay: Stay, move: Move, now_ns: int, *, actor: str) -> Event:
    """Return the DrainAction of a move."""
    view = world.fleet.nodes.get(stay.node)
    return action(
        Cause.after(stay, move.step, move.round),
        move.verdict,
        move.rule,
        move.why,
        now_ns,
        dry_run=world.dry_run,
        actor=actor,
        before=view.record() if view is not None else None,
        then=move.next,
    )
