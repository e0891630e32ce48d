"""The drainer as a process would run it: real bus, a program in the place of scontrol."""

import time
from collections.abc import Awaitable, Callable

import pytest
from drainsite import Instance, Site
from drainworld import controller, node, xid
from waiting import until

pytestmark = pytest.mark.bus

Start = Callable[..., Awaitable[Instance]]


async def test_a_dry_run_proposes_once_and_touches_nothing(site: Site, start: Start) -> None:
    await start(dry_run=True)
    for _ in range(3):
        await site.say("Finding", xid(ts=time.time_ns()))
    await site.say("Finding", xid("n002", ts=time.time_ns()))
    await site.hears("proposed", "refused")
    assert site.told[1] == ("n002", "refused", "drained_at_once")
    assert all(action["dry_run"] for action in site.actions)
    assert site.scontrol.calls == []


async def test_an_armed_drainer_drains_and_verifies(site: Site, start: Start) -> None:
    await start()
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "done", "verified")
    reason = "heeler:xid:xid-n001-79 GPU 3 on n001 has fallen off the bus (XID 79)"
    assert site.scontrol["n001"]["state"] == "ALLOCATED+DRAIN"
    assert site.scontrol["n001"]["reason"] == reason
    assert [call[:2] for call in site.scontrol.calls] == [
        ["show", "node"],
        ["update", "nodename=n001"],
        ["show", "node"],
    ]
    verified = site.actions[2]
    assert verified["before"]["state"] == "allocated"
    assert verified["before"]["window_ms"] > 0
    assert verified["after"]["reason"] == reason
    assert verified["after"]["reason_ts"] == site.scontrol["n001"]["ts"] * 1_000_000_000
    assert {action["reason"] for action in site.actions} == {reason}


async def test_the_same_finding_again_drains_nothing_again(site: Site, start: Start) -> None:
    await start()
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "done", "verified")
    site.scontrol.put("n001", state="IDLE", reason="")  # an operator resumes it
    await site.say("NodeState", node("n001", time.time_ns(), state="idle", flags=("DRAIN",)))
    await site.say("NodeState", node("n001", time.time_ns(), state="idle"))
    drained = len(site.scontrol.calls)
    await site.say("Finding", xid(ts=time.time_ns(), state="update"))
    await site.say("Finding", xid("stranger", ts=time.time_ns()))
    await until(lambda: ("stranger", "refused", "node_unknown") in site.told, f"the stranger's answer, {site.told}")
    assert len(site.scontrol.calls) == drained


async def test_an_operators_drain_that_the_feed_has_not_shown_yet_is_kept(site: Site, start: Start) -> None:
    await start()
    site.scontrol.drained_by_hand("n001", "ADMIN: psu swap (ops)")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "refused")
    assert site.told[1] == ("n001", "refused", "already_drained")
    assert "psu swap" in site.actions[1]["why"]
    assert site.scontrol["n001"]["reason"] == "ADMIN: psu swap (ops)"
    assert site.scontrol["n001"]["user"] == "ops"
    assert site.scontrol.updates == []


async def test_an_operators_drain_that_came_over_ours_is_theirs(site: Site, start: Start) -> None:
    await start()
    site.scontrol.behave("foreign-after")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "failed")
    assert site.told[1][2] == "foreign_reason"
    assert "psu swap" in site.actions[1]["why"]


async def test_a_scontrol_that_lies_is_found_out(site: Site, start: Start) -> None:
    await start()
    site.scontrol.behave("lie")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "failed")
    assert site.told[1][2] == "not_applied"
    assert "wanted drain not applied" in site.actions[1]["why"]


async def test_a_refusal_by_slurm_is_told_in_its_words(site: Site, start: Start) -> None:
    await start()
    site.scontrol.behave("denied")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "failed")
    assert site.told[1][2] == "command_failed"
    assert "Invalid user id" in site.actions[1]["why"]


async def test_a_failed_drain_is_tried_again_later_and_not_for_ever(site: Site, start: Start) -> None:
    await start(retry_after_s=0.2, attempts=3)
    site.scontrol.behave("denied")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears(*["approved", "failed"] * 3)
    assert len({action["id"] for action in site.actions}) == 6
    await site.say("Finding", xid("stranger", ts=time.time_ns()))
    await site.hears(*["approved", "failed"] * 3, "refused")
    assert site.scontrol.updates == ["n001"] * 3


async def test_a_second_try_that_works_ends_it(site: Site, start: Start) -> None:
    await start(retry_after_s=0.2)
    site.scontrol.behave("denied")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "failed")
    site.scontrol.behave()
    await site.hears("approved", "failed", "approved", "done", "verified")


async def test_a_scontrol_that_hangs_is_killed_and_the_drain_has_failed(site: Site, start: Start) -> None:
    await start()
    site.scontrol.behave("hang")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "failed")
    assert site.told[1][2] == "command_failed"
    assert site.scontrol["n001"]["state"] == "ALLOCATED"


async def test_a_scontrol_that_hangs_after_its_work_has_done_it(site: Site, start: Start) -> None:
    await start()
    site.scontrol.behave("late-hang")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "done", "verified")
    assert "although" in site.actions[1]["why"]


async def test_a_node_that_can_not_be_read_is_not_drained(site: Site, start: Start) -> None:
    await start()
    site.scontrol.behave("show-down")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "refused")
    assert site.told[1][2] == "slurm_unreadable"
    assert site.scontrol.updates == []


async def test_an_effect_that_can_not_be_read_stays_open_until_it_can(site: Site, start: Start) -> None:
    await start()
    site.scontrol.behave("deaf-after")
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "failed")
    assert site.told[1][2] == "unverified"
    site.scontrol.behave()
    await start("two", active=False)
    # Whoever looks next, the same instance or another, reads it back and runs no command.
    await until(lambda: ("n001", "verified", "hard_evidence") in site.told, f"verified, heard {site.told}")
    assert site.scontrol.updates == ["n001"]


async def test_findings_from_before_the_start_do_nothing_until_they_are_confirmed(site: Site, start: Start) -> None:
    await site.say("Finding", xid(ts=time.time_ns()))
    await start(dry_run=True)
    await site.say("Finding", xid("stranger", ts=time.time_ns()))
    await site.hears("refused")  # the stranger's: the old finding has had its chance by then
    await site.say("Finding", xid(ts=time.time_ns(), state="update"))
    await site.hears("refused", "proposed")


async def test_a_finding_of_another_cluster_is_none_of_our_business(site: Site, start: Start) -> None:
    drainer = (await start(dry_run=True)).drainer
    await site.say("Finding", xid(ts=time.time_ns(), cluster="south"))
    await until(lambda: drainer.counters.ignored == 1)
    await site.say("Finding", xid("n002", ts=time.time_ns()))
    await site.hears("proposed")
    assert site.told[0][0] == "n002"


async def test_bad_bytes_are_buried_and_the_next_finding_is_answered(site: Site, start: Start) -> None:
    drainer = (await start(dry_run=True)).drainer
    await site.bus.publish_acked("heeler.v1.north.finding.xid.n001.bad", "Finding", b"\xc1", "bad")
    await site.say("Finding", xid("n002", ts=time.time_ns()))
    await site.hears("proposed")
    assert drainer.counters.dead == 1


async def test_of_two_drainers_one_acts(site: Site, start: Start) -> None:
    one, two = await start("one", active=False), await start("two", active=False)
    await until(lambda: one.active or two.active)
    for n in range(1, 4):
        await site.say("Finding", xid(f"n{n:03d}", ts=time.time_ns()))
    await until(lambda: len(site.told) >= 5)
    assert sorted(verdict for _, verdict, _ in site.told) == ["approved", "done", "refused", "refused", "verified"]
    assert site.scontrol.updates == ["n001"]
    assert not (one.active and two.active)


async def test_a_standby_takes_over_from_a_leader_that_leaves(site: Site, start: Start) -> None:
    one = await start("one")
    two = await start("two", active=False)
    assert not two.active
    await one.stop()
    await until(lambda: two.active)
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "done", "verified")
    assert {action["actor"] for action in site.actions} == {"two"}


async def test_a_new_leader_remembers_the_budgets_of_the_last(site: Site, start: Start) -> None:
    await start("one", dry_run=False)
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "done", "verified")
    await site.say("NodeState", node("n001", time.time_ns(), flags=("DRAIN",), reason=site.scontrol["n001"]["reason"]))
    two = await start("two", active=False)
    await until(lambda: len(two.drainer.world.history.effects) == 1)
    (effect,) = two.drainer.world.history.effects.values()
    assert (effect.state, effect.node, effect.hard) == ("standing", "n001", True)
    assert effect.mark is not None
    assert effect.mark.reason == site.scontrol["n001"]["reason"]


async def test_the_controller_that_goes_away_stops_everything(site: Site, start: Start) -> None:
    await start()
    await site.say("ClusterState", controller(time.time_ns(), "down"))
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("refused")
    assert site.told[0][2] == "slurm_unknown"
    await site.say("ClusterState", controller(time.time_ns()))
    await site.hears("refused", "approved", "done", "verified")


async def test_metrics_say_who_is_active_and_what_was_decided(site: Site, start: Start) -> None:
    drainer = (await start(dry_run=True)).drainer
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("proposed")
    found = drainer.metrics()
    assert (found["drain_active"], found["drain_armed"], found["drain_cases"], found["drain_nodes"]) == (1, 0, 1, 60)
    assert found["drain_actions_total.proposed"] == 1
