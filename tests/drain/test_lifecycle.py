"""What comes next for a node that we have drained: one move at a time, and nothing on silence."""

from dataclasses import replace
from typing import Any

import pytest
from drainstay import (
    ENDED,
    REASON,
    failed,
    life,
    move,
    passed,
    said,
    sight,
    stay_after,
    terms,
    told,
    verified,
    view,
)
from drainworld import T0, S

from heeler.bus import ConfigError
from heeler.drain.lifecycle import why_not_back
from heeler.drain.settings import load_policy
from heeler.drain.stay import Stays

SOFT = verified(advice="drain_after_job", action="drain_after_job")
TWICE = (ENDED, passed(1), passed(2))


# The way back.


def test_a_node_with_jobs_is_waited_for_and_that_is_said_once() -> None:
    stay = stay_after()
    for state, *flags in (("allocated",), ("mixed", "COMPLETING"), ("idle", "COMPLETING")):
        assert told(move(stay, sight(view(state, *flags)))) == ("wait", "waiting", "jobs_run")
        assert move(stay_after(said("wait", "waiting", "jobs_run")), sight(view(state, *flags))) is None


def test_a_node_whose_jobs_have_ended_is_checked_as_often_as_the_policy_wants_and_given_back() -> None:
    assert told(move(stay_after())) == ("wait", "done", "jobs_ended")
    first = move(stay_after(ENDED))
    assert told(first) == ("check", "approved", "by_policy")
    assert first is not None
    assert first.round == 1
    assert move(stay_after(ENDED, said("check", "approved", round=1)), at_s=100) is None  # it is being asked
    assert move(stay_after(ENDED, passed(1)), at_s=30) is None  # not yet again
    assert told(move(stay_after(ENDED, passed(1)))) == ("check", "approved", "by_policy")
    assert told(move(stay_after(*TWICE), at_s=70)) == ("undrain", "approved", "healthy")


def test_passes_that_are_old_count_no_more() -> None:
    assert told(move(stay_after(*TWICE), at_s=2 + 900)) == ("undrain", "approved", "healthy")
    assert told(move(stay_after(*TWICE), at_s=3 + 900)) == ("check", "approved", "by_policy")


def test_a_pass_after_a_failure_begins_to_count_anew() -> None:
    stay = stay_after(ENDED, passed(1), failed(2), passed(3))
    assert (len(stay.passed_ns), stay.misses) == (1, 0)
    assert told(move(stay)) == ("check", "approved", "by_policy")


def test_by_default_a_healthy_node_is_only_proposed_to_be_given_back() -> None:
    assert load_policy().lifecycle.undrain is False
    may = terms(life(undrain=False))
    assert told(move(stay_after(*TWICE), may=may, at_s=70)) == ("undrain", "proposed", "healthy")
    proposed = stay_after(*TWICE, said("undrain", "proposed", "healthy"))
    assert move(proposed, may=may, at_s=70) is None
    assert move(proposed, may=may, at_s=7200) is None  # and nothing is asked again and again
    assert told(move(proposed, at_s=70)) == ("undrain", "approved", "healthy")  # the policy allows it by now


def test_a_dry_run_asks_no_node_and_gives_none_back() -> None:
    may = terms(dry_run=True)
    assert told(move(stay_after(ENDED), may=may)) == ("check", "proposed", "by_policy")
    assert told(move(stay_after(*TWICE), may=may, at_s=70)) == ("undrain", "proposed", "healthy")


# What keeps a node drained.


@pytest.mark.parametrize(
    "changed",
    [
        {"reason": "ADMIN: psu swap"},
        {"reason": None},
        {"reason": REASON + " (ops)"},
        {"reason_user": "ops"},
        {"reason_ts_ns": T0 + S},
    ],
)
def test_a_drain_that_someone_has_touched_is_theirs_for_good(changed: dict[str, Any]) -> None:
    seen = sight(view(**changed))
    stay = stay_after(*TWICE)
    assert told(move(stay, seen, at_s=70)) == ("person", "held", "foreign_reason")
    let_go = stay_after(*TWICE, said("person", "held", "foreign_reason"))
    assert move(let_go, seen, at_s=70) is None
    assert move(let_go, sight(), at_s=70) is None  # even if it looks like ours again
    assert why_not_back(stay, seen, terms(), T0 + 70 * S) is not None


def test_who_and_when_that_the_feed_does_not_show_are_no_change_but_no_proof() -> None:
    seen = sight(view(reason_user=None, reason_ts_ns=None))
    assert told(move(stay_after(*TWICE), seen, at_s=70)) == ("undrain", "approved", "healthy")
    assert (why_not_back(stay_after(*TWICE), seen, terms(), T0 + 70 * S) or ("",))[0] == "foreign_reason"


def test_a_drain_whose_author_was_never_shown_is_left_to_a_person() -> None:
    stay = stay_after(ENDED, first=verified(after={"state": "idle", "flags": ["DRAIN"], "reason": REASON}))
    assert told(move(stay)) == ("person", "held", "mark_unknown")


def test_a_node_that_is_not_shown_or_away_is_left_as_it_is() -> None:
    stay = stay_after(*TWICE)
    assert move(stay, replace(sight(), view=None), at_s=70) is None
    assert move(stay, sight(shown=False), at_s=70) is None
    for state, *flags in (("down",), ("idle", "NOT_RESPONDING"), ("idle", "REBOOT_ISSUED"), ("idle", "POWERED_DOWN")):
        assert move(stay, sight(view(state, *flags)), at_s=70) is None
        no = why_not_back(stay, sight(view(state, *flags)), terms(), T0 + 70 * S)
        assert (no or ("",))[0] == "node_not_still"
    assert move(stay, sight(view("idle", "SOMETHING_NEW")), at_s=70) is None


def test_an_open_finding_keeps_a_node_and_the_next_step_is_told() -> None:
    for advice, rule, then in (
        ("reset", "needs_reset", "reset"),
        ("reboot", "needs_reboot", "reboot"),
        ("rma", "finding_open", "person"),
        ("drain_after_job", "finding_open", "wait"),
    ):
        stay = stay_after(ENDED, first=verified(advice=advice))
        found = move(stay, sight(closed=False))
        assert told(found) == ("person", "held", rule)
        assert found is not None
        assert found.next == then
        assert told(move(stay_after(ENDED, said("person", "held", rule), first=verified(advice=advice)))) == (
            *("check", "approved"),
            "by_policy",
        )  # closed meanwhile: it goes on


def test_another_open_finding_keeps_a_node() -> None:
    seen = sight(others=("ecc-n001",))
    assert told(move(stay_after(*TWICE), seen, at_s=70)) == ("person", "held", "other_finding")
    assert (why_not_back(stay_after(*TWICE), seen, terms(), T0 + 70 * S) or ("",))[0] == "other_finding"
    waited = stay_after(*TWICE, said("person", "held", "other_finding"))
    assert told(move(waited, at_s=70)) == ("undrain", "approved", "healthy")


def test_a_node_that_is_drained_again_and_again_goes_to_a_person() -> None:
    assert told(move(stay_after(*TWICE), sight(drains=2), at_s=70)) == ("person", "held", "repeat_offender")
    kept = stay_after(*TWICE, said("person", "held", "repeat_offender"))
    assert move(kept, sight(drains=1), at_s=70) is None


def test_without_checks_a_node_is_not_given_back() -> None:
    may = terms(life(undrain=False, checks=()))
    assert told(move(stay_after(ENDED), may=may)) == ("person", "held", "no_checks")
    with pytest.raises(ConfigError, match="undrain: true without any checks"):
        life(checks=())


# Checks that do not pass.


@pytest.mark.parametrize("rule", ["check_bad", "check_unknown"])
def test_checks_that_do_not_pass_end_with_a_person(rule: str) -> None:
    misses = (failed(1, rule), failed(2, rule), failed(3, rule))
    assert told(move(stay_after(ENDED, *misses[:2]))) == ("check", "approved", "by_policy")
    stay = stay_after(ENDED, *misses, first=SOFT)
    found = move(stay)
    assert told(found) == ("person", "held", rule)
    assert found is not None
    assert found.next == "person"
    assert move(stay_after(ENDED, *misses, said("person", "held", rule))) is None
    assert why_not_back(stay, sight(), terms(), T0 + 70 * S) is not None


def test_what_a_node_needs_is_told_where_its_repair_was_not_done() -> None:
    stay = stay_after(ENDED, failed(1), failed(2), failed(3), first=verified(advice="reset"))
    found = move(stay)
    assert found is not None
    assert (found.rule, found.next) == ("check_bad", "reset")


def test_a_reboot_gives_a_node_that_was_not_well_another_chance() -> None:
    held = said("person", "held", "check_bad", round=3, before={"boot_ts": T0 - 9 * S})
    stay = stay_after(ENDED, failed(1), failed(2), failed(3), held)
    assert move(stay) is None
    again = move(stay, sight(view(boot_ts_ns=T0 + 60 * S)))
    assert told(again) == ("check", "approved", "by_policy")
    assert again is not None
    assert again.round == 4
    anew = stay_after(ENDED, failed(1), failed(2), failed(3), held, said("check", "approved", round=4), passed(4))
    assert (anew.held, len(anew.passed_ns), anew.misses) == ("", 1, 0)


def test_a_question_that_nobody_can_answer_any_more_counts_as_unknown() -> None:
    stay = stay_after(ENDED, said("check", "approved", round=1))
    assert told(move(stay, at_s=1 + 131)) is None
    assert told(move(stay, at_s=2 + 131)) == ("check", "failed", "check_unknown")


def test_an_answer_to_an_older_question_changes_nothing() -> None:
    stay = stay_after(ENDED, said("check", "approved", round=1), failed(1, "check_unknown"))
    late = stay_after(
        ENDED,
        said("check", "approved", round=1),
        failed(1, "check_unknown"),
        said("check", "approved", round=2),
        passed(1),
    )
    assert (stay.passed_ns, late.passed_ns, late.asked_ns) == ((), (), T0 + 4 * S)


# Commands.


def test_a_failed_undrain_is_tried_again_later_and_not_for_ever() -> None:
    life_ = life(return_attempts=2)
    tries = [said("undrain", "failed", "command_failed", attempt=n) for n in (1, 2)]
    once = stay_after(*TWICE, tries[0])
    assert move(once, may=terms(life_), at_s=4 + 50) is None
    assert told(move(once, may=terms(life_), at_s=4 + 61)) == ("undrain", "approved", "healthy")
    assert told(move(stay_after(*TWICE, *tries), may=terms(life_), at_s=400)) == ("person", "held", "return_failed")


def test_nothing_is_said_while_a_command_is_under_way() -> None:
    assert move(stay_after(*TWICE, said("undrain", "approved", "healthy")), at_s=70) is None
    unverified = stay_after(*TWICE, said("undrain", "approved", "healthy"), said("undrain", "failed", "unverified"))
    assert move(unverified, at_s=70) is None


def test_a_node_that_someone_gave_back_ends_the_stay() -> None:
    back = replace(view(), flags=frozenset(), reason=None, reason_user=None, reason_ts_ns=None)
    found = move(stay_after(*TWICE), sight(back), at_s=70)
    assert told(found) == ("undrain", "undrained", "by_another")
    stays = Stays()
    for action in (verified(), said("undrain", "undrained", "by_another")):
        stays.apply(action, T0)
    assert stays.by_node == {}
    assert stays.drained_since("n001", T0) == 1


def test_requeue_is_asked_for_once_and_only_by_its_own_action() -> None:
    busy = sight(view("allocated"), closed=False)
    requeues = verified(action="drain_and_requeue", job_id="7", jobs=["7"])
    assert told(move(stay_after(first=requeues), busy)) == ("requeue", "approved", "by_policy")
    assert told(move(stay_after(first=requeues), busy, terms(dry_run=True))) == ("requeue", "proposed", "by_policy")
    for verdict in ("verified", "failed", "refused"):
        done = stay_after(said("requeue", verdict), first=requeues)
        assert told(move(done, busy)) == ("wait", "waiting", "jobs_run")
    assert told(move(stay_after(first=verified(jobs=["7"])), busy)) == ("wait", "waiting", "jobs_run")
    assert told(move(stay_after(first=verified(action="drain_and_requeue")), busy)) == ("wait", "waiting", "jobs_run")


def test_jobs_that_run_too_long_are_told_to_a_person() -> None:
    stay = stay_after(said("wait", "waiting", "jobs_run"))
    busy, may = sight(view("allocated")), terms(life(job_wait_s=7200.0))
    assert move(stay, busy, may, at_s=7200) is None
    assert told(move(stay, busy, may, at_s=7201)) == ("wait", "waiting", "jobs_run_long")


# Repairs.


@pytest.mark.parametrize("what", ["reset", "reboot"])
def test_a_repair_is_begun_once_by_its_hook_on_an_empty_node(what: str) -> None:
    first = verified(action=what, advice=what)
    may, is_open = terms(hooks=(what,)), sight(closed=False)
    assert told(move(stay_after(first=first), sight(view("mixed"), closed=False), may)) == (
        "wait",
        "waiting",
        "jobs_run",
    )
    assert told(move(stay_after(ENDED, first=first), is_open, may)) == (what, "approved", "by_policy")
    assert move(stay_after(ENDED, said(what, "approved"), first=first), is_open, may) is None
    done = stay_after(ENDED, said(what, "approved"), said(what, "done"), first=first)
    assert told(move(done, is_open, may)) == ("check", "approved", "by_policy")
    for rule in ("hook_failed", f"{what}_lost"):
        broken = stay_after(ENDED, said(what, "approved"), said(what, "failed", rule), first=first)
        assert told(move(broken, is_open, may)) == ("person", "held", "repair_failed")


def test_a_repair_without_a_hook_is_proposed_once() -> None:
    first = verified(action="reset", advice="reset")
    stay = stay_after(ENDED, first=first)
    assert told(move(stay, sight(closed=False))) == ("reset", "proposed", "by_policy")
    proposed = stay_after(ENDED, said("reset", "proposed"), first=first)
    assert told(move(proposed, sight(closed=False))) == ("person", "held", "needs_reset")


# The record.


def test_the_same_action_twice_changes_nothing_and_a_retracted_one_never_was() -> None:
    stays = Stays()
    for action in (verified(), ENDED, passed(1), passed(1), failed(2)):
        stays.apply(action, T0)
    assert (len(stays.by_node["n001"].passed_ns), stays.by_node["n001"].misses) == (0, 1)
    stays.retract(failed(2))
    assert (len(stays.by_node["n001"].passed_ns), stays.by_node["n001"].misses) == (1, 0)
    stays.apply(failed(2), T0)
    assert stays.by_node["n001"].misses == 1


def test_a_dry_runs_words_are_no_record_of_an_armed_one() -> None:
    armed, dry = Stays(), Stays(dry_run=True)
    for stays in (armed, dry):
        stays.apply(verified(), T0)
        stays.apply({**ENDED, "dry_run": True}, T0)
        stays.apply({**verified(), "dry_run": True, "node": "n002"}, T0)
    assert armed.by_node["n001"].empty_ns == 0
    assert dry.by_node["n001"].empty_ns == T0
    assert armed.by_node.keys() == dry.by_node.keys() == {"n001"}


def test_old_stays_are_forgotten() -> None:
    stays = Stays()
    stays.apply(verified(), T0)
    stays.prune(T0 + 1)
    assert (stays.by_node, stays.drained_since("n001", 0)) == ({}, 0)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"undrian": True}, "lifecycle.undrian: unknown key"),
        ({"check_timeout_s": -1.0}, "check_timeout_s: -1.0 is negative"),
        ({"check_passes": 0}, "check_passes: 0"),
        ({"check_timeout_s": 7200.0}, "check_timeout_s"),
        ({"checks": [" "]}, "checks: ' '"),
        ({"check_fresh_s": 10.0}, "check_fresh_s"),
    ],
)
def test_a_setting_that_can_not_be_meant_is_refused_by_name(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_policy(lifecycle=table)
