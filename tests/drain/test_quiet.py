"""Quiet hours by the clock on the wall of their own zone."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from drainstay import ENDED, life, move, passed, sight, stay_after, terms, told, verified, view
from drainworld import T0, Cluster, lag, xid
from drainworld import told as said

from heeler.drain.lifecycle import why_not_back
from heeler.drain.quiet import Quiet, quiet_for
from heeler.drain.settings import load_policy


def at(text: str, zone: str = "Europe/Berlin", fold: int = 0) -> int:
    when = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(when.timestamp()) * 1_000_000_000


NIGHT = Quiet("22:00", "06:00", "Europe/Berlin", ("fri",))


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("2026-12-04 21:59", False),  # a Friday
        ("2026-12-04 22:00", True),
        ("2026-12-05 05:59", True),  # Saturday's morning is Friday's night
        ("2026-12-05 06:00", False),
        ("2026-12-05 22:00", False),
        ("2026-12-04 03:00", False),  # Friday's morning is Thursday's night
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_it_begins_on(when: str, holds: bool) -> None:
    assert NIGHT.holds(at(when)) is holds


def test_a_window_is_by_its_own_zone_in_summer_and_winter() -> None:
    window = Quiet("09:00", "17:00", "America/New_York")
    assert window.holds(at("2026-07-01 09:00", "America/New_York"))
    assert window.holds(at("2026-12-01 14:00", "UTC"))
    assert not window.holds(at("2026-12-01 13:59", "UTC"))
    assert window.holds(at("2026-07-01 13:00", "UTC"))


def test_the_hour_that_comes_twice_is_quiet_twice_and_the_one_that_does_not_come_is_no_fault() -> None:
    window = Quiet("02:00", "03:00", "Europe/Berlin")
    assert window.holds(at("2026-10-25 02:30"))
    assert window.holds(at("2026-10-25 02:30", fold=1))
    assert not window.holds(at("2026-03-29 03:00"))


def test_a_whole_day_can_be_quiet() -> None:
    window = Quiet("00:00", "24:00", "UTC", ("sun",))
    assert window.holds(at("2026-12-06 23:59", "UTC"))
    assert not window.holds(at("2026-12-07 00:00", "UTC"))


def test_hard_evidence_is_left_only_where_a_window_says_so() -> None:
    always = {"begins": "00:00", "ends": "24:00", "zone": "UTC"}
    calm = Cluster(found=load_policy(quiet=[always]))
    assert said(calm.say("Finding", lag())) == [("n002", "refused", "quiet_hours")]
    assert said(calm.say("Finding", xid())) == [("n001", "proposed", "hard_evidence")]
    calm = Cluster(found=load_policy(quiet=[{**always, "leaves": ["hard"]}]))
    (action,) = calm.say("Finding", xid())
    assert (action["rule"], action["why"]) == ("quiet_hours", "left until later: quiet hours, 00:00 to 24:00 UTC")
    assert said(calm.say("Finding", lag())) == [("n002", "proposed", "soft_evidence")]


def test_a_finding_that_is_open_when_they_end_is_answered_then() -> None:
    begins = datetime.fromtimestamp(T0 // 10**9, ZoneInfo("UTC"))
    ends = datetime.fromtimestamp(T0 // 10**9 + 60, ZoneInfo("UTC"))
    window = {"begins": f"{begins:%H:%M}", "ends": f"{ends:%H:%M}", "zone": "UTC"}
    cluster = Cluster(found=load_policy(quiet=[window]))
    assert said(cluster.say("Finding", lag())) == [("n002", "refused", "quiet_hours")]
    assert said(cluster.pass_to(T0 + 60 * 10**9)) == [("n002", "proposed", "soft_evidence")]


def test_what_follows_a_drain_waits_too() -> None:
    ready = stay_after(ENDED, passed(1), passed(2))
    assert told(move(ready, sight(), at_s=70)) == ("undrain", "approved", "healthy")
    quiet = sight(quiet=frozenset({"undrain", "repair", "requeue"}))
    assert move(ready, quiet, at_s=70) is None
    assert (why_not_back(ready, quiet, terms(), T0 + 70 * 10**9) or ("",))[0] == "quiet_hours"
    reset = stay_after(ENDED, first=verified(action="reset"))
    assert move(reset, sight(closed=False, quiet=quiet.quiet), terms(hooks=("reset",))) is None
    job = stay_after(first=verified(action="drain_and_requeue", jobs=["7"]))
    still = sight(view("allocated"), closed=False, quiet=quiet.quiet)
    assert told(move(job, still)) == ("wait", "waiting", "jobs_run")


def test_a_node_on_the_opt_out_list_is_not_given_back() -> None:
    left = sight(opted_out="n001 is left alone: node n001 is on the opt-out list")
    ready = stay_after(ENDED, passed(1), passed(2))
    assert told(move(ready, left, at_s=70)) == ("person", "held", "opted_out")
    assert (why_not_back(ready, left, terms(life()), T0 + 70 * 10**9) or ("",))[0] == "opted_out"


def test_no_window_no_quiet() -> None:
    assert quiet_for((), "soft", T0) is None
