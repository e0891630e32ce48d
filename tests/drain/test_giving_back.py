"""From the drain to the way back on a real bus: checks over the bus, ownership just before, and verification after."""

import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from drainsite import Instance, Process, Site
from drainworld import xid
from waiting import until

pytestmark = pytest.mark.bus

Start = Callable[..., Awaitable[Instance]]
Spawn = Callable[..., Process]
CHECKS = ["gpu_count", "gpu_row_remap_pending"]
LIFE: dict[str, Any] = {
    "undrain": True,
    "checks": CHECKS,
    "check_timeout_s": 1.0,
    "check_interval_s": 0.1,
    "check_passes": 2,
}
TABLE = (
    "[drain.lifecycle]\nundrain = true\nchecks = ['gpu_count']\ncheck_timeout_s = 2.0\ncheck_interval_s = 0.1\n"
    "check_passes = 1\n"
)


async def drained(site: Site, *, closed: bool = True) -> None:
    """A node drained for a finding that has closed since, without jobs, as the feed shows it."""
    await site.say("Finding", xid(ts=time.time_ns()))
    await until(lambda: "verified" in [verdict for _, verdict, _ in site.told], f"verified, heard {site.told}")
    if closed:
        await site.say("Finding", xid(ts=time.time_ns(), state="closed"))
    site.scontrol.put("n001", state="IDLE+DRAIN")
    await site.shows("n001")


async def told(site: Site, *words: tuple[str, str, str]) -> None:
    await until(lambda: set(words) <= set(site.steps), f"{words}, heard {site.steps}")


async def test_a_node_that_is_well_is_given_back_after_its_checks(site: Site, start: Start) -> None:
    await site.answers("n001", lambda: "ok")
    await start(lifecycle=LIFE)
    await drained(site)
    await told(site, ("undrain", "undrained", "healthy"))
    assert site.steps[3:] == [
        ("wait", "done", "jobs_ended"),
        ("check", "approved", "by_policy"),
        ("check", "done", "check_passed"),
        ("check", "approved", "by_policy"),
        ("check", "done", "check_passed"),
        ("undrain", "approved", "healthy"),
        ("undrain", "undrained", "healthy"),
    ]
    assert site.scontrol["n001"]["state"] == "IDLE"
    assert [asked["checks"] for asked in site.asked] == [CHECKS, CHECKS]
    assert all(asked["deadline_ts"] - asked["ts"] == 1_000_000_000 for asked in site.asked)
    assert site.actions[-1]["before"]["window_ms"] > 0
    assert site.actions[-1]["after"]["flags"] == []


async def test_without_leave_of_the_policy_a_healthy_node_stays_drained(site: Site, start: Start) -> None:
    await site.answers("n001", lambda: "ok")
    await start(lifecycle={**LIFE, "undrain": False})
    await drained(site)
    await told(site, ("undrain", "proposed", "healthy"))
    assert site.actions[-1]["next"] == "person"
    assert site.scontrol.updates == ["n001"]
    assert site.scontrol["n001"]["state"] == "IDLE+DRAIN"


@pytest.mark.parametrize(
    ("outcome", "rule"), [("bad", "check_bad"), ("warn", "check_bad"), ("unknown", "check_unknown")]
)
async def test_a_node_that_is_not_plainly_well_stays(site: Site, start: Start, outcome: str, rule: str) -> None:
    await site.answers("n001", lambda: outcome)
    await start(lifecycle=LIFE)
    await drained(site)
    await told(site, ("person", "held", rule))
    assert site.steps.count(("check", "failed", rule)) == 3
    assert site.scontrol.updates == ["n001"]


async def test_a_node_that_does_not_answer_is_never_healthy(site: Site, start: Start) -> None:
    await start(lifecycle={**LIFE, "check_attempts": 1})
    await drained(site)
    await told(site, ("check", "failed", "check_unknown"), ("person", "held", "check_unknown"))
    assert site.scontrol.updates == ["n001"]


async def test_an_operators_reason_that_the_feed_has_not_shown_yet_keeps_the_node(site: Site, start: Start) -> None:
    def answer() -> str:
        if len(site.asked) == 2:  # the last check before the undrain
            site.scontrol.drained_by_hand("n001", "ADMIN: psu swap (ops)")
        return "ok"

    await site.answers("n001", answer)
    await start(lifecycle=LIFE)
    await drained(site)
    await told(site, ("undrain", "refused", "foreign_reason"))
    assert site.scontrol.updates == ["n001"]
    assert site.scontrol["n001"]["reason"] == "ADMIN: psu swap (ops)"
    await site.shows("n001")
    await told(site, ("person", "held", "foreign_reason"))


async def test_a_finding_that_is_open_keeps_the_node(site: Site, start: Start) -> None:
    await site.answers("n001", lambda: "ok")
    await start(lifecycle=LIFE)
    await drained(site, closed=False)
    await told(site, ("person", "held", "needs_reboot"))
    assert site.asked == []
    await site.say("Finding", xid(ts=time.time_ns(), state="closed"))
    await told(site, ("undrain", "undrained", "healthy"))


async def test_an_undrain_that_is_not_applied_is_told_and_tried_again(site: Site, start: Start) -> None:
    await site.answers("n001", lambda: "ok")
    await start(lifecycle={**LIFE, "return_attempts": 2}, retry_after_s=0.1)
    await drained(site)
    site.scontrol.behave("lie")
    await told(site, ("undrain", "failed", "not_applied"), ("person", "held", "return_failed"))
    assert site.scontrol.updates == ["n001"] * 3
    assert site.scontrol["n001"]["state"] == "IDLE+DRAIN"


async def test_a_drain_that_came_over_the_undrain_is_theirs(site: Site, start: Start) -> None:
    await site.answers("n001", lambda: "ok")
    await start(lifecycle=LIFE)
    await drained(site)
    site.scontrol.behave("redrained")
    await told(site, ("undrain", "failed", "foreign_reason"))
    assert site.scontrol["n001"]["reason"] == "ADMIN: psu swap"


async def test_a_node_that_an_operator_gave_back_is_let_go(site: Site, start: Start) -> None:
    await start(lifecycle=LIFE)
    await drained(site, closed=False)
    await told(site, ("person", "held", "needs_reboot"))
    site.scontrol.put("n001", state="IDLE", reason="")
    await site.shows("n001")
    await told(site, ("undrain", "undrained", "by_another"))
    assert site.scontrol.updates == ["n001"]


@pytest.mark.parametrize(("how", "rule"), [("kill-parent", "healthy"), ("kill-before", "command_failed")])
async def test_an_undrain_whose_drainer_dies_is_reported_by_the_next(
    site: Site, spawn: Spawn, how: str, rule: str
) -> None:
    await site.answers("n001", lambda: "ok")
    first = spawn("first", lifecycle=TABLE)
    await first.is_active()
    spawn("second", lifecycle=TABLE)
    await site.say("Finding", xid(ts=time.time_ns()))
    await until(lambda: len(site.told) == 3)
    await site.say("Finding", xid(ts=time.time_ns(), state="closed"))
    site.scontrol.behave(how)
    site.scontrol.put("n001", state="IDLE+DRAIN")
    await site.shows("n001")
    assert await first.ends() == -signal.SIGKILL
    site.scontrol.behave()
    await told(site, ("undrain", "undrained" if rule == "healthy" else "failed", rule))
    done = [action for action in site.actions if action.get("step") == "undrain" and action["verdict"] != "approved"]
    assert "did not report the end" in done[0]["why"]
    assert site.scontrol.updates == ["n001", "n001"]
