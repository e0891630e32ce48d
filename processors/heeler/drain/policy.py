"""The decision: may this node be drained for this finding, now? Pure; every refusal names its rule and its numbers.

The checks stand in the order in which they are worth saying: whether the finding can be believed, what the table
allows, whether Slurm's state is known, whether the node may be touched, what the evidence must show, and budgets.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from heeler.drain.budgets import partition_spent, rack_spent
from heeler.drain.hand import Approval
from heeler.drain.history import HARD_RULE, SOFT_RULE, Effect
from heeler.drain.node import NodeView, untouchable
from heeler.drain.ownership import reason_text
from heeler.drain.quiet import Quiet, quiet_for
from heeler.drain.settings import ASKING, Limits, Policy, Rule, cause_of
from heeler.drain.world import SECOND_NS, Case, World

HOUR_NS = 3600 * SECOND_NS

# Refusals that ask for a person at once: something larger than one node is wrong, or a node keeps failing.
PAGES = frozenset({"mass_failure", "breaker", "repeat_offender", "person", "needs_approval", "gave_up"})


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy says of a case.

    ``proposed``: drain it (a dry run says so and stops there, an armed drainer makes it ``approved``);
    ``refused``: no, and it is worth saying; ``hold``: nothing to say now.
    """

    verdict: Literal["proposed", "approved", "refused", "hold"]
    rule: str
    why: str
    reason: str = ""


No = tuple[str, str]  # rule, why


@dataclass(frozen=True, slots=True)
class Question:
    """One case before the policy."""

    limits: Limits
    rule: Rule | None
    case: Case
    node: NodeView | None
    world: World
    now_ns: int
    standing: list[Effect]
    quiet: tuple[Quiet, ...] = ()

    def needs(self, what: Literal["cause", "slowdown"]) -> bool:
        """Say whether soft evidence needs something here: by the rule, or else by the limits."""
        own = None if self.rule is None else getattr(self.rule, f"needs_{what}")
        return bool(getattr(self.limits, f"soft_needs_{what}") if own is None else own)

    @property
    def ours(self) -> set[str]:
        """Nodes drained by us, or under a reason of Heeler's form, other than this one."""
        return self.claimed | (self.world.fleet.marked - {self.case.node})

    @property
    def claimed(self) -> set[str]:
        """Nodes out of service by us, other than this one."""
        return {effect.node for effect in self.standing} - {self.case.node}

    @property
    def hard(self) -> bool:
        """Say whether the table counts this as hard evidence."""
        return self.rule is not None and self.rule.evidence == "hard"

    def age_s(self, ts_ns: int) -> float:
        """Return how long ago something was, in seconds."""
        return (self.now_ns - ts_ns) / SECOND_NS


def decide(policy: Policy, world: World, case: Case, now_ns: int, *, live: NodeView | None = None) -> Decision:
    """Return the decision for a case. ``live`` is a node just read from Slurm, and then counts instead of the feed's.

    In a check of a live reading the approval that led to it does not count against itself.
    """
    if case.finding["advice"] not in ASKING:
        return Decision("hold", "no_advice", f"the finding advises {case.finding['advice']}")
    if case.finding["state"] not in ("open", "update"):
        return Decision("hold", "closed", f"the finding is {case.finding['state']}")
    question = ask(policy, world, case, now_ns, live=live, own=True)
    if why := _hold(question, live=live is not None):
        return Decision("hold", *why)
    for check in (_gave_up, *CHECKS):
        if no := check(question):
            return Decision("refused", *no)
    return _yes(question)


def ask(
    policy: Policy, world: World, case: Case, now_ns: int, *, live: NodeView | None = None, own: bool = False
) -> Question:
    """Return a case as it comes before the policy. ``own``: the drain that it led to counts against it."""
    limits = policy.limits
    standing = world.standing(now_ns, ns(limits.slurm_age_s), ns(limits.cooldown_s))
    if live is not None or not own:
        standing = [effect for effect in standing if effect.finding_id != case.id]
    node = live or world.fleet.nodes.get(case.node)
    return Question(limits, policy.rule_for(case.finding), case, node, world, now_ns, standing, policy.quiet)


_AFTER = {
    "drain_after_job": "running jobs finish first",
    "drain_and_requeue": "jobs of the finding that may be requeued are",
    "reset": "jobs finish first, then a reset",
    "reboot": "jobs finish first, then a reboot",
}


def _yes(q: Question) -> Decision:
    finding = q.case.finding
    kind = HARD_RULE if q.hard else SOFT_RULE
    after = _AFTER.get(q.rule.action if q.rule else "", "no new jobs from now on")
    cause = f", cause {finding['cause']}" if cause_of(finding) else ""
    given = approval(q) if q.rule and q.rule.approval else None
    after += f"; approved by {given.actor}" if given else ""
    why = f"{finding['kind']} at confidence {finding['confidence']:.2f}{cause}: {finding['summary']} ({after})"
    reason = reason_text(finding["kind"], q.case.id, finding["summary"])
    return Decision("proposed" if q.world.dry_run else "approved", kind, why, reason)


def _hold(q: Question, *, live: bool) -> No | None:
    """Return why there is nothing to say yet (or any more)."""
    world, case = q.world, q.case
    if world.active_ns is None:
        return "standby", "this instance is not the active one"
    if pause := world.hand.paused(q.now_ns):
        return "paused", f"paused by {pause.actor}: {pause.why}"
    if case.confirmations == 0:
        return "history", "not confirmed since this instance is active"
    if q.age_s(world.active_ns) < q.limits.settle_s:
        return "settling", f"active for {q.age_s(world.active_ns):.0f} s of {q.limits.settle_s:g} s"
    effect = world.history.of(case.id, dry_run=world.dry_run)
    return None if effect is None or live else _after(q, effect)


def _after(q: Question, effect: Effect) -> No | None:
    """Return why a finding that led to a drain before is left alone now; None where another try is due."""
    if effect.state in ("standing", "over"):
        return "acted", "a finding leads to one drain at most"
    wait_s = q.limits.retry_after_s * 2 ** min(effect.tries - 1, 10)
    if q.age_s(effect.ended_ns) < wait_s:
        return "waiting", f"{effect.state} {q.age_s(effect.ended_ns):.0f} s ago, next try after {wait_s:.0f} s"
    return None


def _gave_up(q: Question) -> No | None:
    effect = q.world.history.of(q.case.id, dry_run=q.world.dry_run)
    if effect is None or effect.failures < q.limits.attempts or effect.state != "failed":
        return None
    return "gave_up", f"page a person: {effect.failures} commands to drain {q.case.node} failed, no more are tried"


# Whether the finding can be believed.


def _stale(q: Question) -> No | None:
    age_s = q.age_s(q.case.confirmed_ns)
    if age_s <= q.limits.confirm_within_s:
        return None
    return "stale", f"last confirmed {age_s:.0f} s ago, more than {q.limits.confirm_within_s:g} s"


def _late(q: Question) -> No | None:
    gap_s = (q.case.confirmed_ns - q.case.finding["ts"]) / SECOND_NS
    if abs(gap_s) <= q.limits.clock_gap_s:
        return None
    side = "old when the bus received it (late or replayed)" if gap_s > 0 else "ahead of the bus server's clock"
    return "late", f"written {abs(gap_s):.0f} s {side}, more than {q.limits.clock_gap_s:g} s"


def _old_data(q: Question) -> No | None:
    """Soft evidence must be of now. Hard evidence may stand for hours, but must have been fresh when it came."""
    data_ts = q.case.finding.get("data_ts")
    if data_ts is None:
        return None
    if q.hard:
        age_s, limit_s, when = q.case.data_lag_ns / SECOND_NS, q.limits.hard_data_age_s, "was already"
    else:
        age_s, limit_s, when = q.age_s(data_ts), q.limits.soft_data_age_s, "is"
    if age_s <= limit_s:
        return None
    return "old_data", f"its newest data {when} {age_s:.0f} s old{' when it came' * q.hard}, more than {limit_s:g} s"


def _beyond_memory(q: Question) -> No | None:
    age_s = q.age_s(q.case.finding["first_ts"])
    if age_s <= q.limits.repeat_window_s:
        return None
    return "beyond_memory", f"open for {age_s / 86400:.1f} days, longer than drains are remembered: a person must look"


# What the table allows.


def _table(q: Question) -> No | None:
    finding, rule = q.case.finding, q.rule
    name = f"{finding['kind']} {finding['code']}" if "code" in finding else finding["kind"]
    action = None if rule is None else rule.action
    # A person's matter becomes the drainer's only by a rule that names this very advice.
    taken = rule is not None and "person" in rule.advice
    if action == "person" or (finding["advice"] == "person" and action != "observe" and not taken):
        return "person", f"the policy leaves {name} with advice {finding['advice']} to a person"
    if rule is None or action == "observe":
        return "observe", f"the policy only observes {name} with advice {finding['advice']}"
    if finding["confidence"] < rule.min_confidence:
        return "confidence", f"confidence {finding['confidence']:.2f} is below {rule.min_confidence:.2f} for {name}"
    return None


def _quiet(q: Question) -> No | None:
    quiet = quiet_for(q.quiet, "hard" if q.hard else "soft", q.now_ns)
    return None if quiet is None else ("quiet_hours", f"left until later: {quiet}")


# Whether Slurm's state is known and the node may be touched.


def _controller(q: Question) -> No | None:
    trouble = q.world.controller.trouble(q.now_ns, q.limits.slurm_age_s)
    return None if trouble is None else ("slurm_unknown", f"Slurm's state is not known: {trouble}")


def _known(q: Question) -> No | None:
    return None if q.node is not None else ("node_unknown", f"Slurm has said nothing of {q.case.node!r}")


def _opted_out(q: Question) -> No | None:
    why = opted_out(_node(q), q.limits)
    return None if why is None else ("opted_out", why)


def opted_out(node: NodeView, limits: Limits) -> str | None:
    """Return why a node is left alone whatever happens, or None."""
    asked = (
        ("node", (node.name,), limits.opt_out_nodes),
        ("partition", node.partitions or (), limits.opt_out_partitions),
        ("feature", node.features, limits.opt_out_features),
    )
    for what, names, patterns in asked:
        for name in names:
            if pattern := _matching(name, patterns):
                return f"{node.name} is left alone: {what} {name} is on the opt-out list ({pattern})"
    return None


def _matching(name: str, patterns: Iterable[str]) -> str | None:
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


def _already_ours(q: Question) -> No | None:
    effect = next((e for e in q.standing if e.node == q.case.node and e.finding_id != q.case.id), None)
    if effect is None:
        return None
    how = "would be" if effect.dry_run else "is"
    return "already_ours", f"{q.case.node} {how} drained by us already, for finding {effect.finding_id}"


def _touchable(q: Question) -> No | None:
    return untouchable(_node(q), q.limits.benign_flags)


# What the evidence must show.


def _confirmed(q: Question) -> No | None:
    if not q.hard or q.case.confirmations >= q.limits.hard_confirmations:
        return None
    return "unconfirmed", f"{q.case.confirmations} confirmations of {q.limits.hard_confirmations}"


def _mass(q: Question) -> No | None:
    if not q.hard:
        return None
    limits = q.limits
    together = q.world.failing_together(q.case.onset_ns, ns(limits.mass_window_s), limits.mass_nodes)
    if together <= limits.mass_nodes:
        return None
    return "mass_failure", (
        f"page a person: more than {limits.mass_nodes} nodes ({together} or more) began to fail within "
        f"{limits.mass_window_s:g} s, so the nodes are hardly the cause"
    )


def _shared_cause(q: Question) -> No | None:
    """Soft evidence that is part of an incident is hardly the node's. Hard evidence stands, and `_mass` counts it."""
    incident = None if q.hard else q.world.incidents.of(q.case.finding)
    if incident is None:
        return None
    return "shared_cause", f"part of {': '.join(filter(None, incident))}"


def _life(q: Question) -> No | None:
    age_s = q.age_s(q.case.finding["first_ts"])
    if q.hard or age_s >= q.limits.soft_life_s:
        return None
    return "too_young", f"the trouble is {max(0, age_s):.0f} s old, soft evidence needs {q.limits.soft_life_s:g} s"


def _second_signal(q: Question) -> No | None:
    if q.hard or not q.needs("cause") or cause_of(q.case.finding):
        return None
    return "no_second_signal", "no physical cause was found besides the lag itself"


def _slower(q: Question) -> No | None:
    if q.hard or not q.needs("slowdown"):
        return None
    ratio = q.case.finding.get("impact", {}).get("job_slowdown_ratio")
    limit = q.limits.soft_slowdown_ratio
    if ratio is None:
        return "slowdown_unknown", f"whether the job is slower is not known; a step time ratio of {limit:g} is needed"
    if ratio < limit:
        return "job_not_slower", f"the job's steps take {ratio:.2f} times as long, less than {limit:g}"
    return None


# Budgets.


def _cooldown(q: Question) -> No | None:
    limits = q.limits
    past = [e for e in q.world.history.counted(dry_run=q.world.dry_run) if e.node == q.case.node]
    past = [e for e in past if e.state in ("standing", "over") and e.finding_id != q.case.id]
    recent = [e for e in past if q.age_s(e.ts_ns) < limits.repeat_window_s]
    if len(recent) >= limits.repeat_limit:
        days = limits.repeat_window_s / 86400
        return "repeat_offender", f"page a person: {q.case.node} was drained {len(recent)} times in {days:g} days"
    newest = max((e.ts_ns for e in recent), default=None)
    if newest is not None and q.age_s(newest) < limits.cooldown_s:
        return "cooldown", f"{q.case.node} was drained {q.age_s(newest):.0f} s ago, less than {limits.cooldown_s:g} s"
    return None


def _breaker(q: Question) -> No | None:
    limits, size = q.limits, q.world.fleet.size
    if switch := q.world.hand.tripped(dry_run=q.world.dry_run):
        return "breaker", f"the drainer's breaker is open until an operator resets it: {switch.why}"
    gone, allowed = q.world.fleet.unavailable(q.claimed), limits.most_unavailable(size)
    if gone <= allowed:
        return None
    return "breaker", (
        f"page a person: {gone} of {size} nodes are unavailable, more than max({limits.unavailable_min}, "
        f"{limits.unavailable_ratio:.0%})"
    )


def _last_in_partition(q: Question) -> No | None:
    node = _node(q)
    if node.partitions is None:
        return "partition_unknown", f"the partitions of {node.name} are not known"
    for partition in node.partitions:
        if q.world.fleet.others_up(node, partition, q.claimed) < 1:
            return "last_in_partition", f"{node.name} is the last available node of partition {partition}"
    return None


def _drained_at_once(q: Question) -> No | None:
    limits, size = q.limits, q.world.fleet.size
    ours = q.ours
    allowed = limits.most_drained(size)
    if len(ours) < allowed:
        return None
    return "drained_at_once", (
        f"{len(ours)} nodes are drained by us, at most {allowed} of {size} may be "
        f"(max({limits.drained_min}, {limits.drained_ratio:.0%}))"
    )


def _partition(q: Question) -> No | None:
    return partition_spent(q.world.fleet, _node(q), q.ours, q.limits)


def _rack(q: Question) -> No | None:
    return rack_spent(q.world.fleet, _node(q), q.ours, q.limits)


def _per_hour(q: Question) -> No | None:
    limits, size = q.limits, q.world.fleet.size
    done = len([e for e in recent(q, HOUR_NS) if e.hard == q.hard])
    allowed = limits.hard_per_hour(size) if q.hard else limits.soft_per_hour
    if done < allowed:
        return None
    return "per_hour", f"{done} drains for {'hard' if q.hard else 'soft'} evidence in the last hour, at most {allowed}"


def _per_job(q: Question) -> No | None:
    job = q.case.finding.get("job_id")
    if job is None:
        return None
    hour = [e for e in recent(q, HOUR_NS) if e.hard and e.job_id == job]
    if q.hard and len(hour) >= q.limits.hard_per_job > 0:
        return "per_job", f"job {job} had {len(hour)} nodes drained in the last hour, at most {q.limits.hard_per_job}"
    if q.hard:
        return None
    span_s = q.limits.soft_job_interval_s
    done = [e for e in recent(q, ns(span_s)) if not e.hard and e.job_id == job]
    if not done:
        return None
    return "per_job", f"job {job} had a drain {q.age_s(max(e.ts_ns for e in done)):.0f} s ago, less than {span_s:g} s"


def recent(q: Question, span_ns: int) -> list[Effect]:
    """Return the drains of this span that budgets count: all tried ones, whether they worked or not."""
    return [
        effect
        for effect in q.world.history.counted(dry_run=q.world.dry_run)
        if effect.state != "withdrawn" and q.now_ns - effect.ts_ns < span_ns and effect.finding_id != q.case.id
    ]


# The last word is a person's.


def _approved(q: Question) -> No | None:
    if q.rule is None or not q.rule.approval or approval(q) is not None:
        return None
    return "needs_approval", f"the policy wants a person's approval: heeler drain approve {q.case.id}"


def approval(q: Question) -> Approval | None:
    """Return the approval that is good for this case now."""
    return q.world.hand.approval(q.case.finding, q.now_ns, ns(q.limits.approval_s))


def _node(q: Question) -> NodeView:
    assert q.node is not None  # checks of the node come after _known
    return q.node


def ns(seconds: float) -> int:
    """Return seconds as nanoseconds."""
    return int(seconds * SECOND_NS)


Check = Callable[[Question], No | None]
CHECKS: tuple[Check, ...] = (
    *(_stale, _late, _old_data, _beyond_memory),
    *(_table, _quiet),
    *(_controller, _known, _opted_out, _already_ours, _touchable),
    *(_confirmed, _mass, _shared_cause, _life, _second_signal, _slower),
    *(_cooldown, _breaker, _last_in_partition, _drained_at_once, _partition, _rack),
    *(_per_hour, _per_job),
    _approved,
)
