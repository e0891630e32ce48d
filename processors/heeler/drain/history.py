"""What the drainer did: read back from its own DrainActions, so that every instance knows the same."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from heeler.drain.ownership import Mark
from heeler.drain.stay import DRAIN, step_of

HARD_RULE, SOFT_RULE = "hard_evidence", "soft_evidence"

# standing: the node is drained by us, or may be (a command whose effect could not be read counts as one).
# failed: the command did not drain. withdrawn: approved, then not carried out. over: undrained.
EffectState = Literal["standing", "failed", "withdrawn", "over"]


@dataclass(slots=True)
class Effect:
    """A drain of one node for one finding, done or (dry run) proposed."""

    node: str
    finding_id: str
    ts_ns: int
    hard: bool
    dry_run: bool
    job_id: str | None = None
    state: EffectState = "standing"
    tries: int = 1  # approvals so far
    failures: int = 0
    ended_ns: int = 0  # when it failed, was withdrawn or undone
    mark: Mark | None = None
    seen: bool = False  # the Slurm feed has shown it


@dataclass(slots=True)
class History:
    """Effects by finding, and the ids of actions already said."""

    effects: dict[tuple[str, bool], Effect] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)

    def apply(self, action: Mapping[str, Any], ts_ns: int) -> None:
        """Take in a DrainAction. The same action twice changes nothing."""
        if action["id"] in self.said:
            return
        self.said[action["id"]] = ts_ns
        finding_id, verdict = action.get("finding_id"), action["verdict"]
        if finding_id is None or (step_of(action) != DRAIN and verdict != "undrained"):
            return  # what follows a drain is in its stay
        key = (finding_id, action["dry_run"])
        if verdict in ("proposed", "approved"):
            self._begin(key, action, ts_ns)
            return
        effect = self.effects.get(key)
        if effect is None:
            if verdict not in ("done", "verified"):
                return
            effect = self._begin(key, action, ts_ns)  # its approval lies before what was read
        _settle(effect, action, ts_ns)

    def _begin(self, key: tuple[str, bool], action: Mapping[str, Any], ts_ns: int) -> Effect:
        known = self.effects.get(key)
        effect = Effect(
            node=action["node"],
            finding_id=key[0],
            ts_ns=ts_ns,
            hard=action.get("rule") != SOFT_RULE,
            dry_run=key[1],
            job_id=action.get("job_id"),
            tries=known.tries + 1 if known else 1,
            failures=known.failures if known else 0,
        )
        self.effects[key] = effect
        return effect

    def withdraw(self, finding_id: str, now_ns: int) -> None:
        """Note that an approval was not carried out by this instance."""
        effect = self.effects.get((finding_id, False))
        if effect is not None and effect.state == "standing":
            effect.state, effect.ended_ns = "withdrawn", now_ns

    def retract(self, action: Mapping[str, Any], now_ns: int) -> None:
        """Undo an action that was applied here but never went out."""
        self.said.pop(action["id"], None)
        if step_of(action) != DRAIN:
            return
        if action["verdict"] == "proposed":
            self.effects.pop((action["finding_id"], True), None)
        elif action["verdict"] == "approved":
            self.withdraw(action["finding_id"], now_ns)

    def of(self, finding_id: str, *, dry_run: bool) -> Effect | None:
        """Return the effect for a finding; a dry run's proposals count only in a dry run."""
        effect = self.effects.get((finding_id, False))
        return effect or (self.effects.get((finding_id, True)) if dry_run else None)

    def counted(self, *, dry_run: bool) -> Iterator[Effect]:
        """Yield the effects that budgets count."""
        return (effect for effect in self.effects.values() if dry_run or not effect.dry_run)

    def prune(self, before_ns: int, live_ids: frozenset[str]) -> None:
        """Forget what is older, except for findings that are still open."""
        self.effects = {k: e for k, e in self.effects.items() if e.ts_ns >= before_ns or e.finding_id in live_ids}
        self.said = {action: ts for action, ts in self.said.items() if ts >= before_ns}


def _settle(effect: Effect, action: Mapping[str, Any], ts_ns: int) -> None:
    verdict = action["verdict"]
    if verdict in ("done", "verified"):
        effect.state = "standing"
        after = action.get("after") or {}
        if {"reason", "reason_user", "reason_ts"} <= after.keys():
            effect.mark = Mark(after["reason"], after["reason_user"], after["reason_ts"])
    elif verdict == "failed" and action.get("rule") != "unverified":
        effect.state, effect.ended_ns = "failed", ts_ns
        effect.failures += 1
    elif verdict == "refused" and effect.state == "standing" and not effect.dry_run:
        effect.state, effect.ended_ns = "withdrawn", ts_ns
    elif verdict == "undrained":
        effect.state, effect.ended_ns = "over", ts_ns
