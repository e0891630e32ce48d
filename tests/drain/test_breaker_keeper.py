"""The breaker of prologs on a real bus: who counts, what is kept, and that only one instance keeps it."""

import json
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from drainsite import Instance, Process, Site
from drainworld import node
from healthruns import health_run, tell
from waiting import until

from heeler.bus.claims import Claims
from heeler.drain.prolog_breaker import Breaker, Kept

pytestmark = pytest.mark.bus

Start = Callable[..., Awaitable[Instance]]
Spawn = Callable[..., Process]
S = 1_000_000_000


async def kept(site: Site) -> Kept | None:
    """Return what stands in the bucket."""
    claim = await (await Claims.open(site.bus, "breakers")).get("north.prolog")
    return None if claim is None else Kept.unpack(claim.value)


async def is_kept(site: Site, state: str) -> Kept:
    """Wait until the bucket has this state."""
    found: list[Kept] = []

    async def has() -> bool:
        one = await kept(site)
        found.extend([one] if one is not None and one.breaker.state == state else [])
        return bool(found)

    await until(has, state)
    return found[-1]


async def fail(site: Site, *nodes: str, **more: Any) -> None:
    for name in nodes:
        await tell(site.bus, health_run(name, **more))


async def stays_closed(site: Site, instance: Instance, received: int) -> None:
    """Wait until so many runs were taken in, and see that nothing has opened."""
    runs = instance.drainer._consumers[-1]
    await until(lambda: runs.received >= received, f"{received} runs")
    await instance.drainer.breaker.keep()
    found = await kept(site)
    assert found is not None
    assert found.breaker.state == "closed"


async def test_too_many_failing_nodes_open_it_and_a_dry_run_keeps_it_too(site: Site, start: Start) -> None:
    instance = await start(dry_run=True)
    closed = await is_kept(site, "closed")
    assert closed.keeper == "one"
    await fail(site, "n001", "n002")
    await stays_closed(site, instance, 2)
    await fail(site, "n003")
    opened = await is_kept(site, "open")
    assert "n001, n002, n003" in opened.breaker.why
    assert "3 nodes of a fleet of 60" in opened.breaker.why
    assert instance.drainer.metrics()["breaker_open"] == 1


async def test_stale_replayed_repeated_and_unenforced_runs_do_not_count(site: Site, start: Start) -> None:
    instance = await start(dry_run=True)
    await is_kept(site, "closed")
    hour_ago = time.time_ns() - 3600 * S
    await fail(site, "n001", "n002", "n003", "n004", ts_ns=hour_ago)  # kept back in an outbox, or replayed
    again = health_run("n005")
    for count in range(4):
        await tell(site.bus, again, f"again.{count}")  # twins that the stream has not dropped
    await fail(site, "n006", "n007", "n008", verdict="would_fail", enforcement="off")
    await fail(site, "n009", "n010", "n011", phase="app")
    await fail(site, "n012", "n013", "n014", cluster="south")
    await stays_closed(site, instance, 17)
    assert instance.drainer.breaker.count.failed == ("n005",)
    assert instance.drainer.metrics()["breaker_runs_late_total"] == 4


async def test_runs_that_only_the_breaker_held_back_count(site: Site, start: Start) -> None:
    await start(dry_run=True)
    await is_kept(site, "closed")
    await fail(site, "n001", verdict="would_fail", enforcement="breaker_unknown")
    await fail(site, "n002", phase="epilog")
    await fail(site, "n003", phase="periodic", reason="heeler:periodic:gpu_ecc: two errors")
    await is_kept(site, "open")


async def test_nodes_that_slurm_shows_as_drained_by_checks_open_it_without_a_run(site: Site, start: Start) -> None:
    await start(dry_run=True)
    await is_kept(site, "closed")
    for n in range(1, 4):
        now = time.time_ns()
        reason: dict[str, Any] = {
            "reason": "heeler:prolog:gpu_ecc: two errors",
            "reason_user": "root",
            "reason_ts": now,
        }
        await site.say("NodeState", node(f"n{n:03d}", now, flags=("DRAIN",), **reason))
    await is_kept(site, "open")


async def test_drains_and_runs_from_long_before_the_start_are_history(site: Site, start: Start) -> None:
    old = time.time_ns() - 3600 * S
    for n in range(1, 6):
        reason: dict[str, Any] = {
            "reason": "heeler:prolog:gpu_ecc: two errors",
            "reason_user": "root",
            "reason_ts": old,
        }
        await site.say("NodeState", node(f"n{n:03d}", time.time_ns(), flags=("DRAIN",), **reason))
    await fail(site, "n001", "n002", "n003", ts_ns=old)
    instance = await start(dry_run=True)
    await is_kept(site, "closed")
    await stays_closed(site, instance, 3)


async def test_failures_from_just_before_the_start_count(site: Site, start: Start) -> None:
    await fail(site, "n001", "n002", "n003")
    await start(dry_run=True)
    await is_kept(site, "open")


async def test_a_closed_breaker_is_told_anew_and_an_unreadable_one_counts_as_open(site: Site, start: Start) -> None:
    claims = await Claims.open(site.bus, "breakers")
    await claims.set("north.prolog", b"nonsense", None)
    await start(dry_run=True)
    opened = await is_kept_after(site)
    assert opened.breaker.state == "open"
    assert "nonsense" in opened.breaker.why


async def is_kept_after(site: Site) -> Kept:
    """Wait until what stands in the bucket can be read."""
    found: list[Kept] = []

    async def has() -> bool:
        try:
            one = await kept(site)
        except ValueError:
            return False
        found.extend([one] if one is not None else [])
        return bool(found)

    await until(has)
    return found[-1]


async def test_two_clusters_on_one_bus_have_a_breaker_each(site: Site, start: Start) -> None:
    claims = await Claims.open(site.bus, "breakers")
    theirs = Breaker("open", "its own trouble", 1).pack("south", "x", 2)
    for key in ("south.prolog", "prolog"):  # as it was before keys named their cluster
        await claims.set(key, theirs, None)
    await start(dry_run=True)
    assert (await is_kept(site, "closed")).cluster == "north"
    for key in ("south.prolog", "prolog"):
        standing = await claims.get(key)
        assert standing is not None
        assert standing.value == theirs


async def test_what_another_cluster_wrote_under_our_key_is_left_alone(site: Site, start: Start) -> None:
    claims = await Claims.open(site.bus, "breakers")
    theirs = Breaker("closed", "", 1).pack("south", "x", 2)
    await claims.set("north.prolog", theirs, None)
    instance = await start(dry_run=True)
    await fail(site, "n001", "n002", "n003")
    await until(lambda: len(instance.drainer.breaker.failures) == 3)
    await instance.drainer.breaker.keep()
    standing = await claims.get("north.prolog")
    assert standing is not None
    assert standing.value == theirs


async def test_only_the_active_instance_keeps_it_and_a_stale_one_changes_nothing(site: Site, start: Start) -> None:
    one = await start("one", dry_run=True)
    two = await start("two", dry_run=True, active=False)
    await is_kept(site, "closed")
    await two.drainer.breaker.keep()  # it knows what stands: a former holder that was frozen
    await fail(site, "n001", "n002", "n003")
    opened = await is_kept(site, "open")
    assert opened.keeper == "one"
    assert one.active
    assert not two.active
    assert await two.drainer.breaker.put(Breaker("closed", "a late word", time.time_ns())) is False
    assert (await is_kept(site, "open")).breaker == opened.breaker


async def test_a_leader_that_is_killed_leaves_its_breaker_and_its_counts_to_the_next(site: Site, spawn: Spawn) -> None:
    first = spawn("first")
    await first.is_active()
    second = spawn("second")
    closed = await is_kept(site, "closed")
    await fail(site, "n001", "n002")
    first.signal(signal.SIGKILL)
    await second.is_active()
    # The next one has heard of both failures, and since when it is closed stands.
    await fail(site, "n003")
    opened = await is_kept(site, "open")
    assert opened.keeper != closed.keeper
    assert "3 nodes" in opened.breaker.why
    third = spawn("third")
    second.signal(signal.SIGKILL)
    await third.is_active()
    await until_kept_by_another(site, opened.keeper)
    assert (await is_kept(site, "open")).breaker == opened.breaker


async def until_kept_by_another(site: Site, keeper: str) -> None:
    """Wait until another instance keeps the breaker: it does so when it is time, or something has changed."""
    claims = await Claims.open(site.bus, "breakers")
    # As if it were long ago that it was told.
    standing = await claims.get("north.prolog")
    assert standing is not None
    old = json.loads(standing.value) | {"ts_ns": 1}
    await claims.set("north.prolog", json.dumps(old).encode(), standing)

    async def has() -> bool:
        found = await kept(site)
        return found is not None and found.keeper != keeper

    await until(has, "kept by another")
