"""Which checks let a node back, and which findings may end a job: only what was seen since the last trouble."""

from typing import Any

import pytest
from drainstay import ENDED, failed, life, move, passed, said, sight, stay_after, terms, told, verified, view
from drainworld import T0, Cluster, S, node, xid

from heeler.bus import ConfigError
from heeler.drain.care import sight_of
from heeler.drain.lifecycle import why_not_back, why_not_requeue
from heeler.drain.settings import load_policy
from heeler.drain.stay import Stay, Stays

TWICE = (ENDED, passed(1), passed(2))
BOOT = T0 - 9 * S


def asked(number: int, boot_ns: int = BOOT) -> dict[str, Any]:
    """The word that a check is asked for, with the boot that the node is on."""
    return said("check", "approved", round=number, before={"boot_ts": boot_ns})


def no(stay: Stay, seen: Any, at_s: float = 70) -> str:
    """The rule that keeps a node from being given back; empty where none does."""
    return (why_not_back(stay, seen, terms(), T0 + int(at_s * S)) or ("",))[0]


# Checks.


def test_passes_from_before_a_reboot_do_not_let_a_node_back() -> None:
    stay = stay_after(ENDED, asked(1), passed(1), asked(2), passed(2))
    assert no(stay, sight()) == ""
    later = sight(view(boot_ts_ns=BOOT + 600 * S))
    assert no(stay, later) == "not_checked"
    assert told(move(stay, later, at_s=70)) == ("check", "approved", "by_policy")
    again = stay_after(ENDED, asked(1), passed(1), asked(2), passed(2), asked(3, BOOT + 600 * S), passed(3))
    assert no(again, later) == "not_checked", "one since the boot, two are needed"


def test_a_boot_time_that_wavers_by_seconds_is_no_reboot() -> None:
    """Slurm reckons it anew at each registration, from how long the node says it has been up."""
    held = said("person", "held", "check_bad", round=3, before={"boot_ts": BOOT})
    bad = stay_after(ENDED, failed(1), failed(2), failed(3), held)
    well = stay_after(ENDED, asked(1), passed(1), asked(2), passed(2))
    for waver_s in (-30, -1, 1, 30):
        seen = sight(view(boot_ts_ns=BOOT + waver_s * S))
        assert move(bad, seen) is None, "it is left to a person"
        assert no(well, seen) == ""
    assert told(move(bad, sight(view(boot_ts_ns=BOOT + 600 * S)))) == ("check", "approved", "by_policy")


def test_passes_from_before_another_finding_of_the_node_ended_do_not_let_it_back() -> None:
    stay = stay_after(*TWICE)
    assert no(stay, sight(ended_ns=T0 + S)) == ""
    assert no(stay, sight(ended_ns=T0 + 3 * S)) == "not_checked"
    assert told(move(stay, sight(ended_ns=T0 + 3 * S), at_s=70)) == ("check", "approved", "by_policy")


def test_when_the_last_finding_of_a_node_ended_is_known_also_after_a_restart() -> None:
    for last in ("closed", "observe"):
        cluster = Cluster()
        cluster.say("Finding", xid())
        more: dict[str, Any] = {"state": "closed"} if last == "closed" else {"state": "update", "advice": "observe"}
        end = xid(ts=T0 + 5 * S, **more)
        cluster.say("Finding", end)
        assert cluster.world.ended == {"n001": T0 + 5 * S}
    fresh = Cluster()
    fresh.say("Finding", xid(ts=T0 + 5 * S, state="closed"))
    fresh.say("Finding", xid("n002", ts=T0 + 5 * S, state="closed", advice="observe"))
    assert fresh.world.ended == {"n001": T0 + 5 * S}, "n002's has never asked for anything"
    stays = Stays()
    stays.apply(verified(), T0)
    seen = sight_of(fresh.world, stays.by_node["n001"], fresh.step.policy, T0 + 9 * S)
    assert seen.ended_ns == T0 + 5 * S


def test_a_finding_that_ends_after_the_bus_servers_clock_was_set_back_ends_now() -> None:
    cluster = Cluster()
    cluster.say("Finding", xid())
    cluster.pass_to(T0 + 100 * S)
    cluster.say("Finding", xid(ts=T0 + 50 * S, state="closed"), T0 + 50 * S)
    assert cluster.world.ended == {"n001": T0 + 100 * S}


def test_an_answer_that_comes_hours_late_is_as_old_as_its_question() -> None:
    """A drainer that was frozen with the answer in its hand says it when it goes on."""
    stays = Stays()
    told_at = [(verified(), 0), (ENDED, 1), (asked(1), 2), (failed(1, "check_unknown"), 140), (passed(1), 7200)]
    for action, at_s in told_at:
        stays.apply(action, T0 + at_s * S)
    once = terms(life(check_passes=1))
    assert (why_not_back(stays.by_node["n001"], sight(), once, T0 + 7201 * S) or ("",))[0] == "not_checked"


# Requeues.

REQUEUES = verified(action="drain_and_requeue", job_id="7", jobs=["7"])
BUSY = view("allocated")


def test_no_job_is_requeued_for_a_finding_that_is_over_or_that_nobody_confirms() -> None:
    stay = stay_after(first=REQUEUES)
    assert told(move(stay, sight(BUSY, closed=False))) == ("requeue", "approved", "by_policy")
    assert told(move(stay, sight(BUSY, closed=True))) == ("wait", "waiting", "jobs_run")
    assert told(move(stay, sight(BUSY, closed=False, confirmed=False))) == ("wait", "waiting", "jobs_run")


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"confirmed": False}, "not_confirmed"),
        ({"closed": True, "confirmed": False}, "closed"),
        ({"opted_out": "it is on the list"}, "opted_out"),
        ({"quiet": frozenset({"requeue"})}, "quiet_hours"),
    ],
)
def test_what_has_changed_since_the_approval_keeps_a_job_where_it_is(changed: dict[str, Any], rule: str) -> None:
    stay = stay_after(first=REQUEUES)
    assert why_not_requeue(stay, BUSY, sight(closed=False), "") is None
    found = why_not_requeue(stay, BUSY, sight(BUSY, **{"closed": False, **changed}), "")
    assert (found or ("",))[0] == rule
    assert (why_not_requeue(stay, BUSY, sight(closed=False), "paused by jane") or ("",))[0] == "paused"
    assert (why_not_requeue(stay, view("down"), sight(closed=False), "") or ("",))[0] == "node_not_still"
    theirs = view("allocated", reason="ADMIN: psu swap")
    assert (why_not_requeue(stay, theirs, sight(closed=False), "") or ("",))[0] == "foreign_reason"


def test_a_finding_is_confirmed_while_it_is_open_and_was_told_lately() -> None:
    cluster = Cluster()
    cluster.say("Finding", xid(ts=T0))
    cluster.say("NodeState", node("n001", T0, flags=("DRAIN",)))
    stay = stay_after()
    for at_s, confirmed in ((1, True), (119, True), (121, False)):
        assert sight_of(cluster.world, stay, cluster.step.policy, T0 + at_s * S).confirmed is confirmed
    cluster.say("Finding", xid(ts=T0 + 130 * S, state="closed"))
    assert not sight_of(cluster.world, stay, cluster.step.policy, T0 + 131 * S).confirmed


def test_a_rule_may_requeue_only_for_what_shows_a_job_dead_or_hung() -> None:
    def rules(**rule: Any) -> None:
        load_policy(rules=[{"action": "drain_and_requeue", **rule}])

    rules(kind="xid", evidence="hard")
    rules(kind="hang", advice=["person"])
    with pytest.raises(ConfigError, match="drain_and_requeue"):
        rules(kind="gpu_lag", evidence="soft")


# Drains that could not be done.


def test_a_drain_that_fails_again_and_again_is_told_to_a_person_once() -> None:
    cluster = Cluster(dry_run=False, retry_after_s=1.0, attempts=2)
    now = T0
    for attempt in (1, 2):
        [approval] = cluster.say("Finding", xid(ts=now, state="update"), now)
        assert approval["verdict"] == "approved"
        failure = {**approval, "verdict": "failed", "rule": "command_failed", "id": f"failure-{attempt}"}
        assert cluster.say("DrainAction", {**failure, "ts": now + S}, now + S) == []
        now += 30 * S
    for _ in range(3):
        now += 30 * S
        cluster.say("Finding", xid(ts=now, state="update"), now)
    told_last = [dict(event.data) for event in cluster.events if not isinstance(event.data, bytes)]
    assert [(a["verdict"], a["rule"]) for a in told_last if a["verdict"] != "approved"] == [("refused", "gave_up")]
    assert "page a person" in told_last[-1]["why"]
