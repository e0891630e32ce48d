"""How things stand with the drainer, for people: pause, breakers, cases, drains, budgets. Pure."""

from dataclasses import dataclass
from typing import Any

from heeler.drain.hand import Switch
from heeler.drain.history import Effect
from heeler.drain.ownership import is_ours
from heeler.drain.policy import HOUR_NS, Question, decide, ns, recent
from heeler.drain.settings import Limits, Policy
from heeler.drain.world import Case, World

SHOWN = 200


@dataclass(frozen=True, slots=True)
class Budget:
    """What is used of a budget, and how much there is."""

    name: str
    about: str
    used: int
    limit: float

    def plain(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.name,
            "about": self.about,
            "used": self.used,
            "limit": self.limit,
            "left": max(0, int(self.limit) - self.used),
        }


def standing(policy: Policy, world: World, now_ns: int) -> dict[str, Any]:
    """Return how things stand, for JSON. Times are nanoseconds since the epoch."""
    cases = sorted(world.cases.values(), key=lambda case: (case.onset_ns, case.id))
    drains = drains_of(policy.limits, world, now_ns)
    pause = world.hand.paused(now_ns)
    own = world.hand.breakers.get("drain")
    return {
        "now_ns": now_ns,
        "dry_run": world.dry_run,
        "active_ns": world.active_ns,
        "pause": None
        if pause is None
        else {"since_ns": pause.at_ns, "until_ns": pause.until_ns, "actor": pause.actor, "why": pause.why},
        "breaker": _breaker(own, binding=world.hand.tripped(dry_run=world.dry_run) is not None),
        "slurm": world.controller.trouble(now_ns, policy.limits.slurm_age_s),
        "nodes": {"size": world.fleet.size, "unavailable": world.fleet.unavailable(), "ours": len(world.fleet.marked)},
        "cases_total": len(cases),
        "cases": [_case(policy, world, case, now_ns) for case in cases[:SHOWN]],
        "approvals": approvals(policy, world, now_ns),
        "drains_total": len(drains),
        "drains": [_drain(world, effect) for effect in drains[:SHOWN]],
        "budgets": [budget.plain() for budget in budgets(policy.limits, world, now_ns)],
    }


def drains_of(limits: Limits, world: World, now_ns: int) -> list[Effect]:
    """Return the drains that stand now, the oldest first."""
    found = world.standing(now_ns, ns(limits.slurm_age_s), ns(limits.cooldown_s))
    return sorted(found, key=lambda effect: (effect.ts_ns, effect.finding_id))


def budgets(limits: Limits, world: World, now_ns: int) -> list[Budget]:
    """Return the budgets that hold for the cluster, as a finding of a node that nobody has touched meets them."""
    nobody = Case({"id": "", "advice": "none"}, "", 0, 0)
    q = Question(limits, None, nobody, None, world, now_ns, drains_of(limits, world, now_ns))
    past, size = recent(q, HOUR_NS), world.fleet.size
    hard = sum(effect.hard for effect in past)
    ours = len(q.claimed | world.fleet.marked)
    return [
        Budget("hard_per_hour", "drains for hard evidence in the last hour", hard, limits.hard_per_hour(size)),
        Budget("soft_per_hour", "drains for soft evidence in the last hour", len(past) - hard, limits.soft_per_hour),
        Budget("drained_at_once", "nodes that we have drained", ours, limits.most_drained(size)),
        Budget(
            "unavailable",
            "nodes that take no jobs, before the breaker opens",
            world.fleet.unavailable(q.claimed),
            limits.most_unavailable(size),
        ),
    ]


def _breaker(switch: Switch | None, *, binding: bool) -> dict[str, Any]:
    if switch is None:
        return {"state": "closed", "why": "it has never been open", "since_ns": None, "actor": None}
    note = "" if binding or not switch.on else " (in a dry run, which does not bind an armed drainer)"
    state = "open" if binding else "closed"
    return {"state": state, "why": switch.why + note, "since_ns": switch.at_ns, "actor": switch.actor}


def approvals(policy: Policy, world: World, now_ns: int) -> dict[str, Any]:
    """Return what waits for a person's yes, and which yes is good and not used yet."""
    waiting, given = [], []
    for case in sorted(world.cases.values(), key=lambda case: (case.onset_ns, case.id)):
        finding = case.finding
        about = {"finding_id": case.id, "node": case.node, "kind": finding["kind"], "summary": finding["summary"]}
        yes = world.hand.approval(finding, now_ns, ns(policy.limits.approval_s))
        if yes is not None and world.history.of(case.id, dry_run=world.dry_run) is None:
            until_ns = yes.at_ns + ns(policy.limits.approval_s)
            given.append({**about, "actor": yes.actor, "at_ns": yes.at_ns, "until_ns": until_ns})
        elif decide(policy, world, case, now_ns).rule == "needs_approval":
            until_ns = case.confirmed_ns + ns(policy.limits.confirm_within_s)
            waiting.append({**about, "since_ns": finding["first_ts"], "until_ns": until_ns})
    return {"good_for_s": policy.limits.approval_s, "waiting": waiting[:SHOWN], "given": given[:SHOWN]}


def _case(policy: Policy, world: World, case: Case, now_ns: int) -> dict[str, Any]:
    finding, decision = case.finding, decide(policy, world, case, now_ns)
    return {
        "finding_id": case.id,
        "node": case.node,
        "kind": finding["kind"],
        "job_id": finding.get("job_id"),
        "since_ns": finding["first_ts"],
        "confirmed_ns": case.confirmed_ns,
        "summary": finding["summary"],
        "verdict": decision.verdict,
        "rule": decision.rule,
        "why": decision.why,
    }


def _drain(world: World, effect: Effect) -> dict[str, Any]:
    view = world.fleet.nodes.get(effect.node)
    ours = None if effect.dry_run or view is None else is_ours(view, effect.mark)
    return {
        "node": effect.node,
        "finding_id": effect.finding_id,
        "since_ns": effect.ts_ns,
        "dry_run": effect.dry_run,
        "evidence": "hard" if effect.hard else "soft",
        "ours": ours,
        "slurm": None if view is None else view.words(),
        "reason": None if view is None else view.reason,
    }
