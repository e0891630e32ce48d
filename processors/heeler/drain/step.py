"""The drainer as a pure step: one key for a cluster; findings, nodes and its own past in, DrainActions out.

The same step runs in `heeler replay` and in the live process. What it emits is a decision: ``proposed`` or
``refused`` in a dry run; an armed one says ``approved``, and carrying that out is the shell's work.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from heeler.bus import TokenError, escape, unescape
from heeler.drain.actions import Cause, action, message_of
from heeler.drain.care import care, is_new
from heeler.drain.command import answer, trip
from heeler.drain.incidents import KIND as INCIDENT
from heeler.drain.node import NodeView
from heeler.drain.policy import Decision, decide
from heeler.drain.settings import ASKING, DrainSettings, Policy, load_policy
from heeler.drain.world import SECOND_NS, Case, World
from heeler.engine.step import NOTHING, Event, Inbound, Input, Result

PRUNE_NS = 60 * SECOND_NS
MEMORY_S = 8 * 86400.0  # the longest window of the default policy and a day


class DrainStep:
    """Decides about every open finding that asks for a drain, again and again while it is open."""

    name = "drain"
    inputs = (
        Input("Finding", "last"),
        Input("NodeState", "last"),
        Input("ClusterState", "last"),
        Input("DrainAction", "work"),
        Input("DrainCommand"),  # in no stream: the shell hears them
    )

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        dry_run: bool = True,
        actor: str = "heeler-drain",
        tick_s: float = 1.0,
        waits_for_activation: bool = False,
        hooks: Iterable[str] = (),
    ) -> None:
        """Make a step. One that waits for activation decides nothing until `World.active_ns` is set by its shell."""
        self.policy = policy or load_policy()
        self.dry_run = dry_run
        self.actor = actor
        self.hooks = frozenset(hooks)  # repairs that this process can start
        self.tick_s: float | None = tick_s
        self.memory_s = max(MEMORY_S, self.policy.limits.repeat_window_s + 86400.0)
        self._waits = waits_for_activation

    @classmethod
    def of(cls, settings: DrainSettings) -> "DrainStep":
        """Return the dry-run step of a [drain] section."""
        return cls(settings.load_policy(), tick_s=settings.tick_s)

    def keys(self, message: Inbound) -> Iterable[str]:
        """Return the one key of the message's cluster."""
        return (f"cluster:{message.data['cluster']}",)

    def on(self, _key: str, state: World | None, message: Inbound, now_ns: int) -> Result:
        """Take a message in; a finding is decided about at once."""
        world = state or self.new_world(None if self._waits else now_ns)
        if message.kind == "Finding":
            case = self._finding(world, message, max(now_ns, message.ts_ns))
            return world, list(self._judge(world, case, now_ns)) if case else NOTHING
        if message.kind == "NodeState":
            _node(world, message)
        elif message.kind == "ClusterState":
            world.controller.put(message.data, message.ts_ns)
        elif message.kind == "DrainAction":
            world.take(message.data, message.ts_ns)
        elif message.kind == "DrainCommand" and world.active_ns is not None:
            return world, self._command(world, message, max(now_ns, message.ts_ns))
        return world, NOTHING

    def _command(self, world: World, message: Inbound, now_ns: int) -> list[Event]:
        event = answer(self.policy, world, message, now_ns)
        if event is None:
            return []
        world.take(message_of(event), now_ns)
        return [event]

    def tick(self, _key: str, world: World, now_ns: int) -> Result:
        """Look at every open case again, the oldest first."""
        events = [
            event
            for case in sorted(world.cases.values(), key=lambda case: (case.onset_ns, case.id))
            for event in self._judge(world, case, now_ns)
        ]
        events += care(world, self.policy, now_ns, actor=self.actor, hooks=self.hooks)
        if now_ns - world.pruned_ns >= PRUNE_NS:
            world.pruned_ns = now_ns
            self._forget(world, now_ns)
        return world, events

    def new_world(self, active_ns: int | None) -> World:
        """Return the state of a cluster of which nothing is known."""
        world = World(self.dry_run, active_ns=active_ns)
        world.fleet.benign = frozenset(self.policy.limits.benign_flags)
        world.fleet.rack_features = self.policy.limits.rack_features
        return world

    def _finding(self, world: World, message: Inbound, now_ns: int) -> Case | None:
        """Update the case of a finding; returns it if this message is a fresh word about it."""
        finding = message.data
        if finding["kind"] == INCIDENT:
            world.incidents.take(finding)
            return None
        finding_id, node = finding["id"], _speaks_of(message)
        known = world.cases.get(finding_id)
        ends = finding["state"] not in ("open", "update")
        newest = max(world.closed.get(finding_id, -1), known.finding["ts"] if known else -1)
        if finding["ts"] < newest or (finding["ts"] == newest and not ends):
            return None  # a twin, or older than what is known
        over = ends or node is None or finding["advice"] not in ASKING
        if over and (known is not None or finding["advice"] in ASKING):
            # Now, not its stamp: a server's clock that was set back would put it before checks that came earlier.
            _ended(world, known.node if known is not None else node, now_ns)
        if ends:
            world.closed[finding_id] = finding["ts"]
        if over or node is None:
            world.cases.pop(finding_id, None)
            return None
        onset_ns = min(finding["first_ts"], message.ts_ns)
        case = Case(finding, node, message.ts_ns, known.onset_ns if known else onset_ns)
        lag_ns = message.ts_ns - finding.get("data_ts", message.ts_ns)
        case.data_lag_ns = min(lag_ns, known.data_lag_ns) if known else lag_ns
        active = world.active_ns
        # Both stamps: a last-value stream that is filled anew stamps old findings afresh.
        if active is not None and min(message.ts_ns, finding["ts"]) >= active:
            case.confirmations = 1 + (known.confirmations if known else 0)
        world.cases[finding_id] = case
        rule = self.policy.rule_for(finding)
        if rule is not None and rule.evidence == "hard":
            world.hard_onsets[finding_id] = (case.onset_ns, node)
        return case

    def _judge(self, world: World, case: Case, now_ns: int) -> Iterator[Event]:
        decision = decide(self.policy, world, case, now_ns)
        if decision.verdict == "hold":
            return
        if decision.rule == "breaker" and world.hand.tripped(dry_run=world.dry_run) is None:
            opened = trip(world, case.finding["cluster"], self.actor, decision.why, now_ns)
            world.take(message_of(opened), now_ns)
            yield opened
        event = self.event(world, case, decision, now_ns)
        if is_new(world, event):
            world.take(message_of(event), now_ns)
            yield event

    def event(self, world: World, case: Case, decision: Decision, now_ns: int) -> Event:
        """Return the DrainAction of a decision."""
        effect = world.history.of(case.id, dry_run=self.dry_run)
        attempt = 0 if decision.verdict != "approved" else 1 if effect is None else effect.tries + 1
        return action(
            Cause.of(case, attempt, rule.action if (rule := self.policy.rule_for(case.finding)) else ""),
            decision.verdict,
            decision.rule,
            decision.why,
            now_ns,
            dry_run=self.dry_run,
            actor=self.actor,
            reason=decision.reason,
        )

    def _forget(self, world: World, now_ns: int) -> None:
        before_ns = now_ns - int(self.memory_s * SECOND_NS)
        world.history.prune(before_ns, frozenset(world.cases))
        world.hand.forget(before_ns)
        world.stays.prune(before_ns)
        world.incidents.prune(before_ns)
        world.closed = {known: ts for known, ts in world.closed.items() if ts >= before_ns}
        world.ended = {node: ts for node, ts in world.ended.items() if ts >= before_ns}
        hour_ns = now_ns - 3600 * SECOND_NS
        world.hard_onsets = {
            known: item for known, item in world.hard_onsets.items() if known in world.cases or item[0] >= hour_ns
        }


def _ended(world: World, node: str | None, ts_ns: int) -> None:
    """Note that trouble on a node is over: what was seen of it before says nothing about how well it is."""
    if node is not None:
        world.ended[node] = max(world.ended.get(node, 0), ts_ns)


def _node(world: World, message: Inbound) -> None:
    data: dict[str, Any] = message.data
    known = world.fleet.nodes.get(data["node"])
    if data.get("event") == "gone":
        world.fleet.drop(data["node"])
        return
    if known is not None and message.ts_ns < known.seen_ns:
        return
    view = NodeView.of(data, message.ts_ns)
    world.fleet.put(view)
    if view.draining:
        for effect in world.history.effects.values():
            if effect.node == view.name and not effect.dry_run and message.ts_ns >= effect.ts_ns:
                effect.seen = True


def _speaks_of(message: Inbound) -> str | None:
    """Return the node of a finding if its subject, its entity and its own key agree; None if it names none."""
    finding = message.data
    named = {name for name in (finding.get("node"), finding["entity"].get("node")) if name is not None}
    try:
        token = unescape(message.subject.split(".")[-2])
        named = {name for name in named if escape(name)}
    except (TokenError, IndexError):
        return None
    return token if named == {token} else None


__all__ = ["DrainStep"]
