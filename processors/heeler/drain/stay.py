"""A node's stay out of service because of us, as the drainer's own DrainActions tell it.

What is known of a stay is folded from the stream of DrainActions and from nothing else, so that every instance, and
one that starts tomorrow, knows the same. The same action twice changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from heeler.drain.ownership import Mark

DRAIN = "drain"
RESET, REBOOT = "reset", "reboot"
REPAIRS = (RESET, REBOOT)
# What leaves a stay to a person, whatever comes; the first of these also after a reboot.
FINAL = frozenset({"foreign_reason", "repeat_offender", "mark_unknown"})
STICKY = FINAL | {"check_bad", "check_unknown", "repair_failed", "return_failed"}

MOST_KEPT = 100  # passes

# none: not begun. running: said that it begins, its end is not known. lost: nobody can say whether it was done.
Course = Literal["none", "proposed", "running", "done", "failed", "lost"]
_COURSES: Mapping[str, Course] = {
    "proposed": "proposed",
    "approved": "running",
    "done": "done",
    "verified": "done",
    "failed": "failed",
    "refused": "failed",
}


# Slurm reckons a node's boot time anew at each registration, and is seconds off each time.
BOOT_WAVERS_NS = 60 * 1_000_000_000


def is_later_boot(boot_ns: int | None, than_ns: int | None) -> bool:
    """Say whether a node has booted since; what is not known is no boot."""
    return boot_ns is not None and than_ns is not None and boot_ns > than_ns + BOOT_WAVERS_NS


def step_of(action: Mapping[str, Any]) -> str:
    """Return which step of a stay an action is about."""
    return str(action.get("step", DRAIN))


@dataclass(frozen=True, slots=True)
class Stay:
    """One node, drained by us for one finding."""

    cluster: str
    node: str
    finding_id: str
    kind: str
    since_ns: int
    mark: Mark | None
    action: str = "drain_now"
    advice: str = "person"  # what is not known is a person's
    job_id: str | None = None
    jobs: tuple[str, ...] = ()
    finding_ts_ns: int = 0
    empty_ns: int = 0  # when no job was left on it
    said: frozenset[str] = frozenset()  # rules of what is said once
    requeue: Course = "none"
    repair: Course = "none"
    round: int = 0  # how many checks were asked for
    asked_ns: int = 0  # when the one that is under way was; 0: none is
    began_ns: int = 0  # when the last one was, under way or not
    boot_ns: int | None = None  # since when the node was up then
    answered_ns: int = 0
    passed_ns: tuple[int, ...] = ()  # when those were asked for that were passed, in a row
    misses: int = 0
    bad: bool = False  # the last answer said that something is bad, not only that it can't tell
    giving_back: Course = "none"
    tries: int = 0  # commands that were to give it back
    tried_ns: int = 0
    held: str = ""  # the rule that leaves it to a person; empty: none does
    held_boot_ns: int | None = None


def begun(action: Mapping[str, Any], ts_ns: int) -> Stay | None:
    """Return the stay that a verified drain begins; None for any other action."""
    if action["verdict"] != "verified" or action["dry_run"] or step_of(action) != DRAIN:
        return None
    finding_id = action.get("finding_id")
    if finding_id is None:
        return None
    after = action.get("after") or {}
    whole = {"reason", "reason_user", "reason_ts"} <= after.keys()
    job = action.get("job_id")
    return Stay(
        cluster=action["cluster"],
        node=action["node"],
        finding_id=finding_id,
        kind=action.get("kind", "unknown"),
        since_ns=ts_ns,
        mark=Mark(after["reason"], after["reason_user"], after["reason_ts"]) if whole else None,
        action=action.get("action", "drain_now"),
        advice=action.get("advice", "person"),
        job_id=job,
        jobs=tuple(action.get("jobs") or ((job,) if job else ())),
        finding_ts_ns=action.get("finding_ts", 0),
    )


def after(stay: Stay, action: Mapping[str, Any], ts_ns: int) -> Stay | None:
    """Return a stay after one more action about it; None where the action ends it."""
    step, verdict, rule = step_of(action), action["verdict"], str(action.get("rule", ""))
    if verdict == "undrained":
        return None
    if verdict in ("waiting", "held"):
        return _told(stay, action, rule)
    if step == "wait" and verdict == "done":
        return replace(stay, empty_ns=ts_ns)
    if step == "check":
        number = int(action.get("round", stay.round))
        return _asked(stay, action, ts_ns, number) if verdict == "approved" else _answered(stay, action, ts_ns, number)
    course = "lost" if rule.endswith("_lost") else _COURSES.get(verdict)
    return stay if course is None else _run(stay, step, course, rule, ts_ns)


def _run(stay: Stay, step: str, course: Course, rule: str, ts_ns: int) -> Stay:
    """Take in how a command goes that was to change something."""
    if step == "requeue":
        return replace(stay, requeue=course)
    if step in REPAIRS:
        return replace(stay, repair=course)
    if step != "undrain" or rule == "unverified":
        return stay  # unverified: its end is not known, and the intent is looked at again
    tries = stay.tries + 1 if course == "failed" else stay.tries
    return replace(stay, giving_back=course, tries=tries, tried_ns=ts_ns)


def _told(stay: Stay, action: Mapping[str, Any], rule: str) -> Stay:
    stay = replace(stay, said=stay.said | {rule})
    if action["verdict"] == "waiting" or rule not in STICKY:
        return stay
    boot_ns = (action.get("before") or {}).get("boot_ts")
    return replace(stay, held=rule, held_boot_ns=boot_ns, giving_back="none", asked_ns=0)


def _asked(stay: Stay, action: Mapping[str, Any], ts_ns: int, number: int) -> Stay:
    boot_ns = (action.get("before") or {}).get("boot_ts", stay.boot_ns)
    if stay.held:  # looked at again, as if it had never been
        stay = replace(stay, held="", passed_ns=(), misses=0, said=stay.said - STICKY)
    if is_later_boot(boot_ns, stay.boot_ns):
        stay = replace(stay, passed_ns=())
    return replace(stay, round=max(stay.round, number), asked_ns=ts_ns, began_ns=ts_ns, boot_ns=boot_ns)


def _answered(stay: Stay, action: Mapping[str, Any], ts_ns: int, number: int) -> Stay:
    verdict = action["verdict"]
    if number < stay.round or verdict not in ("done", "failed", "refused"):
        return stay
    # What was seen is as old as the question: its answer may have been held up for hours.
    seen_ns = stay.began_ns if stay.began_ns and number == stay.round else ts_ns
    stay = replace(stay, round=number, asked_ns=0, answered_ns=ts_ns)
    if verdict == "done":
        return replace(stay, passed_ns=(*stay.passed_ns, seen_ns)[-MOST_KEPT:], misses=0)
    return replace(stay, passed_ns=(), misses=stay.misses + 1, bad=action.get("rule") == "check_bad")


@dataclass(slots=True)
class Stays:
    """The stays that last, by node, and how often each node was drained. A dry run's own words count in a dry run."""

    dry_run: bool = False
    by_node: dict[str, Stay] = field(default_factory=dict)
    drains: dict[str, dict[str, int]] = field(default_factory=dict)  # node -> finding id -> when
    not_before: dict[str, int] = field(default_factory=dict)  # node -> when it may be tried again, here only
    _told: dict[str, list[tuple[Mapping[str, Any], int]]] = field(default_factory=dict)  # node -> its stay's actions
    _known: dict[str, int] = field(default_factory=dict)

    def apply(self, action: Mapping[str, Any], ts_ns: int) -> None:
        """Take in a DrainAction. The same action twice changes nothing."""
        if action["id"] in self._known or (action["dry_run"] and not self.dry_run):
            return
        self._known[action["id"]] = ts_ns
        node = action["node"]
        new = begun(action, ts_ns)
        if new is not None:
            self.by_node[node], self._told[node] = new, [(action, ts_ns)]
            self.drains.setdefault(node, {})[new.finding_id] = ts_ns
            return
        stay = self.by_node.get(node)
        if stay is None or action.get("finding_id") != stay.finding_id:
            return
        self._told[node].append((action, ts_ns))
        self._put(node, after(stay, action, ts_ns))

    def _put(self, node: str, stay: Stay | None) -> None:
        if stay is None:
            for known in (self.by_node, self._told, self.not_before):
                known.pop(node, None)
        else:
            self.by_node[node] = stay

    def retract(self, action: Mapping[str, Any]) -> None:
        """Undo an action that was applied here but never went out."""
        told = self._told.get(action["node"], [])
        kept = [item for item in told if item[0]["id"] != action["id"]]
        self._known.pop(action["id"], None)
        if len(kept) == len(told) or not kept:
            return
        stay = begun(*kept[0])
        for one, ts_ns in kept[1:]:
            stay = stay and after(stay, one, ts_ns)
        self._told[action["node"]] = kept
        self._put(action["node"], stay)

    def drained_since(self, node: str, since_ns: int) -> int:
        """Return how often a node was drained by us since then."""
        return sum(ts_ns >= since_ns for ts_ns in self.drains.get(node, {}).values())

    def prune(self, before_ns: int) -> None:
        """Forget what is older. A node whose drain is forgotten stays drained, for a person."""
        for node in [node for node, stay in self.by_node.items() if stay.since_ns < before_ns]:
            self._put(node, None)
        kept = {node: {k: ts for k, ts in of.items() if ts >= before_ns} for node, of in self.drains.items()}
        self.drains = {node: of for node, of in kept.items() if of}
        self._known = {known: ts_ns for known, ts_ns in self._known.items() if ts_ns >= before_ns}
