"""What comes next for a node that we have drained: pure, one move at a time.

    drained ─▶ its jobs end (or are requeued, by policy) ─▶ repair, where the finding asks for one
            ─▶ active checks on the node ─▶ given back, if it is still ours; else it stays, and the next step is told

Nothing here trusts silence: a node that is not shown, a check that is not answered and a finding that nobody closed
are unknown, and then the node stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from heeler.drain.lifecycle_settings import Lifecycle
from heeler.drain.node import BENIGN, WORKING, NodeView, condition
from heeler.drain.ownership import Mark, is_ours
from heeler.drain.settings import Limits
from heeler.drain.stay import FINAL, REPAIRS, STICKY, Stay, is_later_boot

SECOND_NS = 1_000_000_000
# Words that a person should hear at once.
PAGES = STICKY | {"jobs_run_long"}
ANSWER_SPARE_S = 10.0  # an answer travels, and its word is written by another instance where this one dies
LOST_AFTER_S = 60.0  # what was begun and whose intent nobody could look after


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known now about a stay's node."""

    view: NodeView | None
    shown: bool  # the feed has had the time to show our drain
    closed: bool  # the finding is closed
    others: tuple[str, ...] = ()  # other open findings that ask for something here
    drains: int = 1  # how often we drained it lately, this time included
    opted_out: str = ""  # why it is left alone whatever happens
    quiet: frozenset[str] = frozenset()  # what is left until later: requeue, repair, undrain
    confirmed: bool = False  # the finding is open, and was told lately
    ended_ns: int = 0  # when the last finding ended that asked for something here, as far as is known


@dataclass(frozen=True, slots=True)
class Terms:
    """What may be done."""

    life: Lifecycle
    limits: Limits
    dry_run: bool = True
    hooks: frozenset[str] = frozenset()  # repairs that can be started from here


@dataclass(frozen=True, slots=True)
class Move:
    """The next word about a stay; an approved one has to be carried out."""

    step: str
    verdict: str
    rule: str
    why: str
    next: str
    round: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """One stay and all that the next step depends on."""

    stay: Stay
    sight: Sight
    terms: Terms
    now_ns: int

    @property
    def node(self) -> str:
        """The node's name."""
        return self.stay.node

    def age_s(self, ts_ns: int) -> float:
        """Return how long ago something was, in seconds."""
        return (self.now_ns - ts_ns) / SECOND_NS

    @property
    def gives_back(self) -> bool:
        """Whether nodes may be given back at all."""
        return self.terms.life.undrain and not self.terms.dry_run

    @property
    def rebooted(self) -> bool:
        """Whether a node that was left to a person has booted since."""
        view, held_ns = self.sight.view, self.stay.held_boot_ns
        return is_later_boot(None if view is None else view.boot_ts_ns, held_ns)

    @property
    def passes(self) -> int:
        """How many checks in a row were passed, lately, since the last finding here ended, and since the last boot."""
        view, life = self.sight.view, self.terms.life
        if view is not None and is_later_boot(view.boot_ts_ns, self.stay.boot_ns):
            return 0
        since = [ts_ns for ts_ns in self.stay.passed_ns if ts_ns >= self.sight.ended_ns]
        return sum(self.age_s(ts_ns) <= life.check_fresh_s for ts_ns in since)

    @property
    def passed(self) -> bool:
        """Whether that is enough."""
        return self.passes >= self.terms.life.check_passes


WAIT: Final = "wait"
Next = Move | Literal["wait"] | None  # a word to say; nothing for now; or: ask the next part


def next_move(stay: Stay, sight: Sight, terms: Terms, now_ns: int) -> Move | None:
    """Return what comes next for a stay; None while there is nothing to say or do."""
    question = Question(stay, sight, terms, now_ns)
    found = next((found for part in PARTS if (found := part(question)) is not None), None)
    return found if isinstance(found, Move) else None


def _hold(q: Question, rule: str, why: str, then: str) -> Next:
    """Leave a stay to a person, which is said once for each rule and round of checks."""
    return WAIT if rule in q.stay.said else Move("person", "held", rule, why, then, q.stay.round)


def is_empty(view: NodeView) -> bool:
    """Say whether no job is on a node, nor the end of one."""
    return view.state == "idle" and "COMPLETING" not in view.flags


def _still(view: NodeView) -> bool:
    """Say whether a drained node is plainly there: not down, rebooting, powered off, or in a state not known here."""
    return condition(view) == "drained" and view.state in WORKING and not view.flags - BENIGN - {"DRAIN", "RESERVED"}


def _is_anothers(view: NodeView, mark: Mark) -> bool:
    """Say whether what the feed shows differs from our record. What it does not show is no difference."""
    if view.reason != mark.reason:
        return True
    return view.reason_user not in (None, mark.user) or view.reason_ts_ns not in (None, mark.ts_ns)


def _whose(view: NodeView) -> str:
    reason = f"reason {view.reason[:120]!r}" if view.reason else "no reason"
    return f"{view.name} bears {reason} by {view.reason_user or 'nobody known'} now: it is no longer ours"


# Whether it is still our affair.


def _shown(q: Question) -> Next:
    return None if q.sight.view is not None and q.sight.shown else WAIT


def _returned(q: Question) -> Next:
    if _view(q).draining:
        return None
    if q.stay.giving_back == "running" and q.age_s(q.stay.tried_ns) < LOST_AFTER_S:
        return WAIT  # most likely by us; its verification says so
    return Move("undrain", "undrained", "by_another", f"{q.node} takes jobs again: someone gave it back", "none")


def _taken(q: Question) -> Next:
    view, mark = _view(q), q.stay.mark
    return _hold(q, "foreign_reason", _whose(view), "person") if mark and _is_anothers(view, mark) else None


def _left_alone(q: Question) -> Next:
    return _hold(q, "opted_out", q.sight.opted_out, "person") if q.sight.opted_out else None


def _pending(q: Question) -> Next:
    """Wait for what is under way, whose end is told by whoever carries it out or looks after it."""
    stay = q.stay
    final = stay.held in FINAL
    return WAIT if final or "running" in (stay.requeue, stay.repair, stay.giving_back) or not _still(_view(q)) else None


# While jobs run.


def _requeue(q: Question) -> Next:
    stay, jobs = q.stay, ", ".join(q.stay.jobs)
    if is_empty(_view(q)) or stay.action != "drain_and_requeue" or not jobs or "requeue" in q.sight.quiet:
        return None
    if not q.sight.confirmed:
        return None  # what is over by now, or told by nobody, ends no job
    if q.terms.dry_run and stay.requeue == "none":
        return Move("requeue", "proposed", "by_policy", f"would requeue what can be of {jobs}", "wait")
    if not q.terms.dry_run and stay.requeue in ("none", "proposed"):
        return Move("requeue", "approved", "by_policy", f"requeue what can be of {jobs} on {q.node}", "wait")
    return None


def _jobs(q: Question) -> Next:
    view, said = _view(q), q.stay.said
    if is_empty(view):
        if q.stay.empty_ns:
            return None
        then = "check" if q.sight.closed else needs(q.stay) or "check"
        return Move("wait", "done", "jobs_ended", f"{q.node} has no jobs ({view.words()})", then)
    if "jobs_run" not in said:
        return Move("wait", "waiting", "jobs_run", f"{q.node} is {view.words()}: its jobs finish first", "wait")
    limit_s, age_s = q.terms.life.job_wait_s, q.age_s(q.stay.since_ns)
    if limit_s and age_s > limit_s and "jobs_run_long" not in said:
        why = f"{q.node} has had jobs for {age_s:.0f} s since its drain, more than {limit_s:g} s"
        return Move("wait", "waiting", "jobs_run_long", why, "person")
    return WAIT


# Once they have ended.


def needs(stay: Stay) -> str:
    """Return what has to be done to a node before it is checked: reset, reboot, person or nothing."""
    if stay.action in REPAIRS:
        return stay.action
    return {"reset": "reset", "reboot": "reboot", "rma": "person", "person": "person"}.get(stay.advice, "")


def _ours(q: Question) -> Next:
    if q.stay.mark is not None:
        return None
    why = f"author or time of the reason on {q.node} was never shown: that the drain is ours can't be proved"
    return _hold(q, "mark_unknown", why, "person")


def _again_and_again(q: Question) -> Next:
    if not is_repeated(q.sight, q.terms):
        return None
    days = q.terms.limits.repeat_window_s / 86400
    why = f"{q.node} was drained {q.sight.drains} times in {days:g} days: a person looks at it"
    return _hold(q, "repeat_offender", why, "person")


def is_repeated(sight: Sight, terms: Terms) -> bool:
    """Say whether a node was drained so often lately that a person has to look."""
    return sight.drains >= terms.limits.repeat_limit > 0


def _repair(q: Question) -> Next:
    stay, terms, what = q.stay, q.terms, needs(q.stay)
    if q.sight.closed or stay.repair == "done":
        return None
    if stay.repair in ("failed", "lost"):
        how = "failed" if stay.repair == "failed" else "was begun, and its end is not known: it is not begun again"
        return _hold(q, "repair_failed", f"the {what} of {q.node} {how}", what)
    if stay.action in REPAIRS and what in terms.hooks and not terms.dry_run:
        begin = Move(what, "approved", "by_policy", f"{what} {q.node}: no job is on it", "check")
        return WAIT if "repair" in q.sight.quiet else begin
    if stay.action in REPAIRS and stay.repair == "none":
        how = "this is a dry run" if terms.dry_run else f"there is no hook for a {what}"
        return Move(what, "proposed", "by_policy", f"{q.node} should have a {what}: {how}", what)
    if what in REPAIRS:
        return _hold(q, f"needs_{what}", f"{q.node} waits for a {what} ({stay.kind})", what)
    why = f"finding {stay.finding_id} is still open, and advises {stay.advice}"
    return _hold(q, "finding_open", why, "person" if what == "person" else WAIT)


def _others(q: Question) -> Next:
    if not q.sight.others:
        return None
    why = f"{q.node} has other findings open: {', '.join(q.sight.others[:4])}"
    return _hold(q, "other_finding", why, WAIT)


# The active check.


def _has_checks(q: Question) -> Next:
    if q.terms.life.checks:
        return None
    why = f"no checks are named in the policy, and {q.node} is given back only after one"
    return _hold(q, "no_checks", why, "person")


def _answer(q: Question) -> Next:
    if not q.stay.asked_ns:
        return None
    waited_s = q.age_s(q.stay.asked_ns)
    if waited_s <= q.terms.life.check_timeout_s + ANSWER_SPARE_S:
        return WAIT
    why = f"nobody knows what {q.node} answered, {waited_s:.0f} s after it was asked"
    return Move("check", "failed", "check_unknown", why, "check", q.stay.round)


def _unhealthy(q: Question) -> Next:
    stay = q.stay
    if stay.held:
        return None if q.rebooted else WAIT
    if stay.misses < q.terms.life.check_attempts:
        return None
    what = needs(stay)
    then = what if stay.bad and what in REPAIRS and stay.repair == "none" else "person"
    why = f"{q.node} did not come back healthy in {stay.misses} checks"
    return _hold(q, "check_bad" if stay.bad else "check_unknown", why, then)


def _check(q: Question) -> Next:
    life, stay = q.terms.life, q.stay
    if q.passed and not stay.held:
        return None
    soon = stay.answered_ns and q.age_s(stay.answered_ns) < life.check_interval_s and not q.rebooted
    if soon or (stay.giving_back == "proposed" and not q.gives_back):
        return WAIT
    names = ", ".join(life.checks)
    if q.terms.dry_run:
        return Move("check", "proposed", "by_policy", f"would ask {q.node} for {names}", "check", stay.round + 1)
    return Move("check", "approved", "by_policy", f"ask {q.node} for {names}", "check", stay.round + 1)


# Back to the jobs.


def _give_back(q: Question) -> Next:
    stay, terms = q.stay, q.terms
    if not q.gives_back:
        if stay.giving_back == "proposed":
            return WAIT
        how = "this is a dry run" if terms.dry_run else "the policy leaves that to a person"
        why = f"{q.node} is healthy and could be given back: {how}"
        return Move("undrain", "proposed", "healthy", why, "person", stay.round)
    if stay.tries >= terms.life.return_attempts:
        return _hold(q, "return_failed", f"{stay.tries} tries to give {q.node} back failed", "person")
    wait_s = terms.limits.retry_after_s * 2 ** min(max(stay.tries - 1, 0), 10)
    if "undrain" in q.sight.quiet or (stay.tries and q.age_s(stay.tried_ns) < wait_s):
        return WAIT
    why = f"{q.node} passed {q.passes} checks since finding {stay.finding_id} ended"
    return Move("undrain", "approved", "healthy", why, "none", stay.round)


PARTS: tuple[Callable[[Question], Next], ...] = (
    *(_shown, _returned, _taken, _left_alone, _pending),
    *(_requeue, _jobs),
    *(_ours, _again_and_again, _repair, _others),
    *(_has_checks, _answer, _unhealthy, _check),
    _give_back,
)


def why_not_back(stay: Stay, sight: Sight, terms: Terms, now_ns: int) -> tuple[str, str] | None:
    """Return why a node must stay drained, given a view of it just read; None where it may be given back.

    The last word before the command: all that led to the approval is asked again, and ownership strictly.
    """
    view, q = sight.view, Question(stay, sight, terms, now_ns)
    if view is None or not view.draining:
        return "not_drained", f"{stay.node} is not drained"
    asked: tuple[tuple[bool, str, str], ...] = (
        (is_ours(view, stay.mark), "foreign_reason", _whose(view)),
        (_still(view) and is_empty(view), "node_not_still", f"{stay.node} is {view.words()}"),
        (q.gives_back, "undrain_off", "the policy gives no node back"),
        (not sight.others, "other_finding", f"other findings are open: {', '.join(sight.others[:4])}"),
        (sight.closed or stay.repair == "done", "finding_open", f"finding {stay.finding_id} is open"),
        (not sight.opted_out, "opted_out", sight.opted_out),
        ("undrain" not in sight.quiet, "quiet_hours", "quiet hours"),
        (not stay.held and not is_repeated(sight, terms), "held", f"{stay.node} is left to a person"),
        (q.passed, "not_checked", f"{q.passes} checks passed lately, {terms.life.check_passes} are needed"),
    )
    return next(((rule, why) for holds, rule, why in asked if not holds), None)


def why_not_requeue(stay: Stay, live: NodeView, sight: Sight, paused: str) -> tuple[str, str] | None:
    """Return why no job may be requeued, given a view of the node just read; None where they may."""
    asked: tuple[tuple[bool, str, str], ...] = (
        (not paused, "paused", paused),
        (is_ours(live, stay.mark), "foreign_reason", f"{stay.node} is {live.words()}, and not drained by us any more"),
        (_still(live), "node_not_still", f"{stay.node} is {live.words()}"),
        (not sight.closed, "closed", "the finding was closed meanwhile"),
        (sight.confirmed, "not_confirmed", "nobody has confirmed the finding lately"),
        (not sight.opted_out, "opted_out", sight.opted_out),
        ("requeue" not in sight.quiet, "quiet_hours", "quiet hours, or the breaker is open"),
    )
    return next(((rule, why) for holds, rule, why in asked if not holds), None)


def why_not_repair(stay: Stay, live: NodeView, sight: Sight, *, paused: bool) -> tuple[str, str] | None:
    """Return why no repair may begin, given a view of the node just read; None where one may."""
    asked: tuple[tuple[bool, str, str], ...] = (
        (not paused, "paused", "the drainer is paused"),
        (live.draining, "not_drained", f"{stay.node} is not drained"),
        (is_ours(live, stay.mark), "foreign_reason", _whose(live)),
        (_still(live) and is_empty(live), "node_not_still", f"{stay.node} is {live.words()}"),
        (not sight.closed, "closed", "the finding was closed meanwhile"),
        (not sight.opted_out, "opted_out", sight.opted_out),
        ("repair" not in sight.quiet, "quiet_hours", "quiet hours"),
        (not stay.held, "held", f"{stay.node} is left to a person"),
    )
    return next(((rule, why) for holds, rule, why in asked if not holds), None)


def _view(q: Question) -> NodeView:
    assert q.sight.view is not None  # parts after _shown
    return q.sight.view
