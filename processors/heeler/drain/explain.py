"""What would happen to a finding or a node now, and why: every check of the policy with its numbers. Pure."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from heeler.drain import policy as rules
from heeler.drain.budgets import Part, partitions, racks
from heeler.drain.care import sight_of, terms_of
from heeler.drain.lifecycle import next_move, why_not_back
from heeler.drain.node import condition, untouchable
from heeler.drain.policy import HOUR_NS, Check, Question, decide, ns, recent
from heeler.drain.settings import ASKING, Policy
from heeler.drain.world import SECOND_NS, Case, World
from heeler.engine.step import Inbound

DAY_S = 86400.0
NOT_SOFT, NOT_HARD = "not asked of soft evidence", "not asked of hard evidence"


def explain(
    policy: Policy, world: World, name: str, now_ns: int, hooks: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the keys of the answer about a finding's id or a node's name. ``hooks``: repairs that can be started."""
    cases = [case for case in world.cases.values() if name in (case.id, case.node)]
    cases.sort(key=lambda case: (case.onset_ns, case.id))
    node = cases[0].node if cases else name
    known = node in world.fleet.nodes
    if not cases and not known:
        ended = " (that finding was closed)" if name in world.closed else ""
        why = f"no open finding {name[:120]!r} asks for a drain, and Slurm has no node of that name{ended}"
        return {"outcome": "refused", "rule": "unknown_name", "why": why}
    told = {"node": _node(policy, world, node, now_ns, hooks)} if known else {}
    why = (
        f"{len(cases)} open findings of {node} ask for a drain"
        if cases
        else f"no open finding asks for a drain of {node}"
    )
    return {"outcome": "done", "why": why, "cases": [explained(policy, world, case, now_ns) for case in cases], **told}


def explain_untracked(policy: Policy, world: World, message: Inbound, now_ns: int) -> dict[str, Any]:
    """Return the keys of the answer about a finding of the stream that the drainer does not follow."""
    finding = message.data
    node = str(finding.get("node") or "")
    case = Case(finding, node, message.ts_ns, min(finding["first_ts"], message.ts_ns))
    told = explained(policy, world, case, now_ns)
    if finding["state"] not in ("open", "update"):
        # Whatever it advised: of what is over nothing is asked any more.
        told |= {"rule": "closed", "why": f"the finding is {finding['state']}", "checks": []}
    elif finding["advice"] in ASKING:
        told |= {
            "verdict": "hold",
            "rule": "not_followed",
            "why": "its subject and its words do not name the same node",
        }
    told["why"] += ": nothing is done for it"
    effect = world.history.of(case.id, dry_run=world.dry_run)
    if effect is not None:
        told["why"] += f"; it has led to a drain of {effect.node}, which is {effect.state}"
    known = {"node": _node(policy, world, node, now_ns, frozenset())} if node in world.fleet.nodes else {}
    return {"outcome": "done", "why": told["why"], "cases": [told], **known}


def explained(policy: Policy, world: World, case: Case, now_ns: int) -> dict[str, Any]:
    """Return a case, the decision and every check, for JSON."""
    decision, finding = decide(policy, world, case, now_ns), case.finding
    q = rules.ask(policy, world, case, now_ns)
    return {
        "finding_id": case.id,
        "node": case.node,
        "kind": finding["kind"],
        "summary": finding["summary"],
        "since_ns": finding["first_ts"],
        "confirmed_ns": case.confirmed_ns,
        "verdict": decision.verdict,
        "rule": decision.rule,
        "why": decision.why,
        "checks": _checked(q),
    }


def name_of(check: Check) -> str:
    """Return the name of a check."""
    return str(getattr(check, "__name__", "")).lstrip("_")


def _checked(q: Question) -> list[dict[str, Any]]:
    """Return what each check says. Those after `known` may ask for the node, so they can't where there is none."""
    found: list[dict[str, Any]] = []
    for check in rules.CHECKS:
        blind = q.node is None and any(one["check"] == "known" for one in found)
        found.append(_one(check, q, blind=blind))
    return found


def _one(check: Check, q: Question, *, blind: bool) -> dict[str, Any]:
    name = name_of(check)
    if blind:
        return {"check": name, "ok": None, "why": "Slurm has said nothing of the node"}
    if no := check(q):
        return {"check": name, "ok": False, "rule": no[0], "why": no[1]}
    numbers = NUMBERS.get(name)
    return {"check": name, "ok": True, "why": numbers(q) if numbers is not None else "nothing against it"}


def _stay(policy: Policy, world: World, name: str, now_ns: int, hooks: frozenset[str]) -> dict[str, Any] | None:
    """Return what follows our drain of a node, and what keeps it from being given back."""
    stay = world.stays.by_node.get(name)
    if stay is None:
        return None
    sight, terms = sight_of(world, stay, policy, now_ns), terms_of(world, policy, hooks)
    move, keeps = next_move(stay, sight, terms, now_ns), why_not_back(stay, sight, terms, now_ns)
    if pause := world.hand.paused(now_ns):
        move, keeps = None, ("paused", f"paused by {pause.actor}: {pause.why}")
    return {
        "finding_id": stay.finding_id,
        "since_ns": stay.since_ns,
        "held": stay.held or None,
        "checks_passed": len(stay.passed_ns),
        "next": None
        if move is None
        else {"step": move.step, "verdict": move.verdict, "rule": move.rule, "why": move.why},
        "stays": None if keeps is None else {"rule": keeps[0], "why": keeps[1]},
    }


def _node(policy: Policy, world: World, name: str, now_ns: int, hooks: frozenset[str]) -> dict[str, Any]:
    view, limits = world.fleet.nodes[name], policy.limits
    left_alone = untouchable(view, frozenset(limits.benign_flags))
    drains = [e for e in world.history.counted(dry_run=world.dry_run) if e.node == name]
    return {
        "name": name,
        "slurm": view.words(),
        "seen_s": round((now_ns - view.seen_ns) / SECOND_NS, 1),
        "reason": view.reason,
        "reason_user": view.reason_user,
        "partitions": list(view.partitions) if view.partitions is not None else None,
        "condition": condition(view, frozenset(limits.benign_flags)),
        "left_alone": None if left_alone is None else left_alone[1],
        "stay": _stay(policy, world, name, now_ns, hooks),
        "drains": [
            {"finding_id": e.finding_id, "ts_ns": e.ts_ns, "state": e.state, "dry_run": e.dry_run}
            for e in sorted(drains, key=lambda e: e.ts_ns)
        ],
    }


# What a check that says yes has looked at.


def _late(q: Question) -> str:
    gap_s = (q.case.confirmed_ns - q.case.finding["ts"]) / SECOND_NS
    side = "before" if gap_s >= 0 else "after"
    return f"written {abs(gap_s):.1f} s {side} the bus had it, at most {q.limits.clock_gap_s:g} s"


def _old_data(q: Question) -> str:
    if "data_ts" not in q.case.finding:
        return "it does not say how old its data are"
    if q.hard:
        age_s = q.case.data_lag_ns / SECOND_NS
        return f"its data were {age_s:.0f} s old when it came, at most {q.limits.hard_data_age_s:g} s"
    return f"its data are {q.age_s(q.case.finding['data_ts']):.0f} s old, at most {q.limits.soft_data_age_s:g} s"


def _table(q: Question) -> str:
    assert q.rule is not None  # or the check had said no
    needs = f"confidence {q.case.finding['confidence']:.2f}, at least {q.rule.min_confidence:.2f}"
    return f"the policy's rule for {q.rule.kind}: {q.rule.action} on {q.rule.evidence} evidence; {needs}"


def _known(q: Question) -> str:
    assert q.node is not None
    return f"Slurm said {q.node.words()} {q.age_s(q.node.seen_ns):.0f} s ago"


def _opted_out(q: Question) -> str:
    limits = q.limits
    count = len(limits.opt_out_nodes) + len(limits.opt_out_partitions) + len(limits.opt_out_features)
    return f"none of {count} patterns to leave alone fits"


def _touchable(q: Question) -> str:
    assert q.node is not None
    return f"{q.node.words()}: in service, without a reason"


def _mass(q: Question) -> str:
    if not q.hard:
        return NOT_SOFT
    together = q.world.failing_together(q.case.onset_ns, ns(q.limits.mass_window_s), q.limits.mass_nodes)
    return f"{together} nodes began to fail within {q.limits.mass_window_s:g} s, at most {q.limits.mass_nodes}"


def _slower(q: Question) -> str:
    if q.hard or not q.needs("slowdown"):
        return NOT_HARD if q.hard else "the policy does not ask for it"
    ratio = q.case.finding.get("impact", {}).get("job_slowdown_ratio")
    return f"the job's steps take {ratio:.2f} times as long, at least {q.limits.soft_slowdown_ratio:g}"


def _second_signal(q: Question) -> str:
    if q.hard or not q.needs("cause"):
        return NOT_HARD if q.hard else "the policy does not ask for it"
    return f"a physical cause was found: {q.case.finding.get('cause')}"


def _cooldown(q: Question) -> str:
    past = [e for e in recent(q, ns(q.limits.repeat_window_s)) if e.node == q.case.node]
    past = [e for e in past if e.state in ("standing", "over")]
    last = f", the last {q.age_s(max(e.ts_ns for e in past)) / 3600:.1f} h ago" if past else ""
    most, days, hours = q.limits.repeat_limit, q.limits.repeat_window_s / DAY_S, q.limits.cooldown_s / 3600
    return f"drained {len(past)} times in {days:g} days{last}; {most}, or one within {hours:g} h, are too many"


def _breaker(q: Question) -> str:
    size = q.world.fleet.size
    gone, most = q.world.fleet.unavailable(q.claimed), q.limits.most_unavailable(size)
    return f"closed; {gone} of {size} nodes are unavailable, at most {most:g}"


def _last_in_partition(q: Question) -> str:
    assert q.node is not None
    others = [f"{p} has {q.world.fleet.others_up(q.node, p, q.claimed)} others" for p in q.node.partitions or ()]
    return f"of its partitions {', '.join(others)} that take jobs" if others else "it is in no partition"


def _drained_at_once(q: Question) -> str:
    size = q.world.fleet.size
    return f"{len(q.ours)} nodes are drained by us, {q.limits.most_drained(size)} of {size} may be with this one"


def _partition(q: Question) -> str:
    assert q.node is not None
    return _parts(partitions(q.world.fleet, q.node, q.ours, q.limits), "it is in no partition")


def _rack(q: Question) -> str:
    assert q.node is not None
    return _parts(racks(q.world.fleet, q.node, q.ours, q.limits), "its rack is not known, so it has no such budget")


def _parts(parts: Collection[Part], none: str) -> str:
    told = [f"{part.drained} nodes of {part.kind} {part.name}, {part.allowed} may be" for part in parts]
    return f"drained by us: {'; '.join(told)} with this one" if told else none


def _per_hour(q: Question) -> str:
    done = sum(e.hard == q.hard for e in recent(q, HOUR_NS))
    most = q.limits.hard_per_hour(q.world.fleet.size) if q.hard else q.limits.soft_per_hour
    return f"{done} drains for {'hard' if q.hard else 'soft'} evidence in the last hour, {most} may be with this one"


def _per_job(q: Question) -> str:
    job = q.case.finding.get("job_id")
    if job is None:
        return "it concerns no job"
    if q.hard:
        done, most = sum(e.hard and e.job_id == job for e in recent(q, HOUR_NS)), q.limits.hard_per_job
        return f"job {job} had {done} nodes drained in the last hour, {most or 'any number'} may be with this one"
    return f"job {job} had no drain for soft evidence in the last {q.limits.soft_job_interval_s:g} s"


def _approved(q: Question) -> str:
    given = rules.approval(q) if q.rule is not None and q.rule.approval else None
    if given is None:
        return "the policy asks for no approval"
    return f"approved by {given.actor} {q.age_s(given.at_ns):.0f} s ago, good for {q.limits.approval_s:g} s"


NUMBERS: Mapping[str, Callable[[Question], str]] = {
    "stale": lambda q: (
        f"last confirmed {q.age_s(q.case.confirmed_ns):.0f} s ago, at most {q.limits.confirm_within_s:g} s"
    ),
    "late": _late,
    "old_data": _old_data,
    "beyond_memory": lambda q: (
        f"open for {q.age_s(q.case.finding['first_ts']) / DAY_S:.1f} days, at most {q.limits.repeat_window_s / DAY_S:g}"
    ),
    "table": _table,
    "quiet": lambda q: f"none of {len(q.quiet)} quiet hours is now",
    "controller": lambda q: f"a feed has known Slurm's state within {q.limits.slurm_age_s:g} s",
    "known": _known,
    "opted_out": _opted_out,
    "already_ours": lambda _q: "it is not drained by us for another finding",
    "touchable": _touchable,
    "confirmed": lambda q: (
        f"{q.case.confirmations} confirmations, at least {q.limits.hard_confirmations}" if q.hard else NOT_SOFT
    ),
    "mass": _mass,
    "shared_cause": lambda q: NOT_HARD if q.hard else f"part of none of {len(q.world.incidents.open)} open incidents",
    "life": lambda q: (
        NOT_HARD
        if q.hard
        else f"the trouble is {q.age_s(q.case.finding['first_ts']):.0f} s old, at least {q.limits.soft_life_s:g} s"
    ),
    "second_signal": _second_signal,
    "slower": _slower,
    "cooldown": _cooldown,
    "breaker": _breaker,
    "last_in_partition": _last_in_partition,
    "drained_at_once": _drained_at_once,
    "partition": _partition,
    "rack": _rack,
    "per_hour": _per_hour,
    "per_job": _per_job,
    "approved": _approved,
}
