"""Operators at the command line, the drainer at work, a real bus between them."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
from drainhand import Operator, Said
from drainsite import Instance, Process, Site
from drainworld import node, xid
from natsserver import NatsServer
from waiting import until

from heeler.bus import decode, encode, subjects
from heeler.bus.claims import Claims

pytestmark = [pytest.mark.bus, pytest.mark.timeout(120)]

Start = Callable[..., Awaitable[Instance]]
Spawn = Callable[..., Process]


@pytest.fixture
def operator(tmp_path: Path, nats_server: NatsServer) -> Operator:
    return Operator.at(tmp_path, nats_server.url)


def orders(site: Site) -> list[dict[str, Any]]:
    """What drainers said of commands."""
    return [action for action in site.actions if "command" in action]


async def stops(site: Site, nodes: int = 60) -> None:
    """More nodes go down than may, and a finding meets that."""
    for n in range(20, 30):
        await site.say("NodeState", node(f"n{n:03d}", time.time_ns(), state="down"))
    await site.say("Finding", xid(ts=time.time_ns()))


async def recovers(site: Site) -> None:
    for n in range(20, 30):
        await site.say("NodeState", node(f"n{n:03d}", time.time_ns()))


async def test_status_without_a_drainer_says_what_stands_on_the_bus(site: Site, operator: Operator) -> None:
    said = await operator("status")
    assert said.status == 4
    assert "none answers; none holds the lease" in said.out
    assert "breaker of prologs: none stands, so nodes enforce nothing" in said.out
    told = (await operator("status", "--json")).json
    assert (told["answered"], told["lease_holder"], told["prologs"]) == (False, None, None)
    refused = await operator("reset-breaker", "drain", "--why", "x")
    assert refused.status == 4
    assert "no drainer answers 'jane'" in refused.err
    assert site.actions == []


async def test_status_tells_who_is_active_what_is_open_and_what_is_left(
    site: Site, start: Start, operator: Operator
) -> None:
    await start(dry_run=True)
    await start("two", dry_run=True, active=False)
    for name in ("n001", "n002"):
        await site.say("Finding", xid(name, ts=time.time_ns()))
    await site.hears("proposed", "refused")
    said = await operator("status")
    assert said.status == 0, said
    for words in (
        "drainer: one, active for",
        "dry run: it drains nothing",
        "paused: no",
        "breaker of the drainer: closed",
        "breaker of prologs: closed",
        "open findings that ask for a drain: 2",
        "refused (drained_at_once)",
        "drains that stand: 1",
        "nodes that we have drained: 1 of 1, 0 left",
        "drains for hard evidence in the last hour: 1 of 3, 2 left",
    ):
        assert words in said.out, said.out
    told = (await operator("status", "--json")).json
    assert (told["instance"], told["dry_run"], told["pause"], told["cases_total"]) == ("one", True, None, 2)
    assert 0 < told["lease_s"] <= 3
    assert [case["node"] for case in told["cases"]] == ["n001", "n002"]
    assert {one["name"]: one["left"] for one in told["budgets"]}["unavailable"] == 5
    assert orders(site) == [], "a question leaves no action"


async def test_an_armed_drainers_drain_is_shown_as_ours_until_someone_edits_it(
    site: Site, start: Start, operator: Operator
) -> None:
    await start()
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("approved", "done", "verified")
    shown = site.scontrol["n001"]
    about: dict[str, Any] = {
        "flags": ("DRAIN",),
        "reason": shown["reason"],
        "reason_user": shown["user"],
        "reason_ts": shown["ts"] * 1_000_000_000,
    }
    await site.say("NodeState", node("n001", time.time_ns(), **about))
    [drain] = (await operator("status", "--json")).json["drains"]
    assert (drain["node"], drain["ours"], drain["dry_run"]) == ("n001", True, False)
    await site.say("NodeState", node("n001", time.time_ns(), **{**about, "reason_user": "ops"}))
    assert "not ours any more" in (await operator("status")).out


async def test_too_many_nodes_out_open_the_breaker_and_only_an_operator_closes_it(
    site: Site, start: Start, operator: Operator
) -> None:
    await start()
    await stops(site)
    await site.hears("tripped", "refused")
    assert site.actions[0]["node"] == "*"
    assert "10 of 60" in site.actions[0]["why"]
    await recovers(site)
    await site.say("Finding", xid("n002", ts=time.time_ns()))
    await site.hears("tripped", "refused", "refused")
    assert site.told[2] == ("n002", "refused", "breaker")
    assert site.scontrol.updates == []
    stopped = await operator("status")
    assert stopped.status == 3
    assert "breaker of the drainer: open" in stopped.out

    done = await operator("reset-breaker", "drain", "--why", "switch replaced")
    assert (done.status, done.err) == (0, "")
    assert "the breaker of the drainer is closed: switch replaced" in done.out
    await until(lambda: site.scontrol.updates == ["n001"], "the oldest finding drains at once")
    [order] = orders(site)
    assert (order["verdict"], order["command"], order["breaker"], order["actor"], order["node"]) == (
        "ordered",
        "reset_breaker",
        "drain",
        "jane",
        "*",
    )
    assert order["why"].endswith(": switch replaced")
    again = await operator("reset-breaker", "drain", "--why", "again")
    assert again.status == 3
    assert "refused (nothing_to_do): the breaker of the drainer is closed" in again.err


async def test_an_open_breaker_outlives_every_instance_and_the_stream(
    site: Site, spawn: Spawn, operator: Operator
) -> None:
    first = spawn("first")
    await first.is_active()
    await stops(site)
    await site.hears("tripped", "refused")
    await until_kept(site)
    first.signal(signal.SIGKILL)
    await recovers(site)
    await site.bus.js.purge_stream("DRAIN")  # as if it were a year later
    second = spawn("second")
    await second.is_active()
    await site.say("Finding", xid("n002", ts=time.time_ns()))
    await until(lambda: site.told[-1] == ("n002", "refused", "breaker"), "the breaker is still open")
    assert (await operator("status")).status == 3
    assert (await operator("reset-breaker", "drain", "--why", "looked at it")).status == 0
    await until(lambda: len(site.scontrol.updates) == 1, "it acts again")


async def until_kept(site: Site) -> dict[str, Any]:
    """Wait until the drainer's breaker stands open in the bucket."""
    claims = await Claims.open(site.bus, "breakers")
    found: dict[str, Any] = {}

    async def has() -> bool:
        claim = await claims.get("north.drain")
        found.update(json.loads(claim.value) if claim is not None else {})
        return bool(found.get("breakers", {}).get("drain", {}).get("on"))

    await until(has, "kept")
    return found


async def test_what_cant_be_read_in_the_bucket_counts_as_an_open_breaker(
    site: Site, start: Start, operator: Operator
) -> None:
    await (await Claims.open(site.bus, "breakers")).set("north.drain", b'{"cluster": "north"}', None)
    await start()
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("refused")
    assert site.told == [("n001", "refused", "breaker")]
    assert "can't be read" in site.actions[0]["why"]
    assert (await operator("reset-breaker", "drain", "--why", "was nonsense")).status == 0
    await until(lambda: site.scontrol.updates == ["n001"])


async def test_a_breaker_can_be_opened_by_hand(site: Site, start: Start, operator: Operator) -> None:
    await start()
    for name in ("drain", "prolog"):
        assert (await operator("trip-breaker", name, "--why", "maintenance of the racks")).status == 0
        assert (await operator("trip-breaker", name, "--why", "again")).status == 3
    told = (await operator("status", "--json")).json
    assert [(told[name]["state"], told[name]["actor"]) for name in ("breaker", "prologs")] == [("open", "jane")] * 2
    assert "maintenance of the racks" in told["prologs"]["why"]
    await site.say("Finding", xid(ts=time.time_ns()))
    await until(lambda: site.told[-1] == ("n001", "refused", "breaker"))
    assert site.scontrol.calls == []


async def test_a_pause_stops_an_armed_drainer_until_it_is_resumed_and_outlives_restarts(
    site: Site, spawn: Spawn, operator: Operator
) -> None:
    first = spawn("first")
    await first.is_active()
    paused = await operator("pause", "--for", "2h", "--why", "new driver")
    assert (paused.status, paused.out) == (0, "paused for 7200 s: new driver\n"), paused
    await site.say("Finding", xid(ts=time.time_ns()))
    said = await operator("status")
    assert said.status == 3
    assert "paused: by jane" in said.out
    assert "new driver" in said.out
    assert "hold (paused)" in said.out

    async def kept() -> bool:
        claim = await (await Claims.open(site.bus, "breakers")).get("north.drain")
        return claim is not None and bool(json.loads(claim.value)["pause"]["on"])

    await until(kept)
    first.signal(signal.SIGKILL)
    await site.bus.js.purge_stream("DRAIN")
    second = spawn("second")
    await second.is_active()
    await site.say("Finding", xid(ts=time.time_ns(), state="update"))
    explained = await operator("explain", "n001")
    assert explained.status == 0
    assert "nothing is done now (paused)" in explained.out
    assert site.scontrol.calls == []
    assert (await operator("resume")).status == 0
    await site.say("Finding", xid(ts=time.time_ns(), state="update"))
    await until(lambda: site.scontrol.updates == ["n001"], "it acts again")
    assert (await operator("resume")).status == 3


async def test_a_leader_that_was_frozen_does_not_carry_out_what_it_finds_when_it_wakes(
    site: Site, spawn: Spawn, operator: Operator
) -> None:
    first = spawn("first")
    await first.is_active()
    second = spawn("second")
    first.signal(signal.SIGSTOP)
    await second.is_active()
    for what in (("pause",), ("resume",), ("trip-breaker", "drain", "--why", "a try")):
        assert (await operator(*what)).status == 0
    first.signal(signal.SIGCONT)
    await until(lambda: "standing_by" in first.log.read_text(), "the first knows that it has lost its lease")
    told = (await operator("status", "--json")).json
    assert (told["breaker"]["state"], told["pause"]) == ("open", None)
    assert [(one["command"], one["verdict"]) for one in orders(site)] == [
        ("pause", "ordered"),
        ("resume", "ordered"),
        ("trip_breaker", "ordered"),
    ]
    assert '"event": "command"' not in first.log.read_text()
    second.signal(signal.SIGKILL)  # the first, which has only read of it, leads again
    await until(lambda: first.log.read_text().count('"active"') == 2, "the first is active again")
    assert (await operator("status", "--json")).json["breaker"]["state"] == "open"
    assert (await operator("reset-breaker", "drain", "--why", "tried")).status == 0


async def test_a_command_that_comes_twice_is_done_once_and_answered_twice(site: Site, start: Start) -> None:
    await start(dry_run=True)
    now = time.time_ns()
    said = {"v": 1, "cluster": "north", "ts": now, "id": "c1", "command": "pause", "for_s": 600.0}
    subject = subjects.drain_command("north", "jane")
    answers = []
    for _ in range(2):
        found = await site.bus.request(subject, "DrainCommand", encode("DrainCommand", said), timeout_s=5)
        assert found is not None
        answers.append(decode("DrainAnswer", found))
    assert [one["outcome"] for one in answers] == ["done", "done"]
    assert [one.get("again") for one in answers] == [None, True]
    assert answers[0]["why"] == answers[1]["why"]
    await until(lambda: len(orders(site)) == 1)


async def test_bytes_that_are_no_command_are_answered_by_nobody_and_the_next_is_heard(
    site: Site, start: Start, operator: Operator
) -> None:
    await start(dry_run=True)
    for kind, payload in (("DrainCommand", b"\xc1"), ("DrainCommand", encode("DrainQuestion", QUESTION))):
        found = await site.bus.request(subjects.drain_command("north", "jane"), kind, payload, timeout_s=0.5)
        assert found is None
    theirs = encode("DrainQuestion", {**QUESTION, "cluster": "south"})
    found = await site.bus.request(subjects.drain_question("north", "jane"), "DrainQuestion", theirs, timeout_s=0.5)
    assert found is None
    assert (await operator("status")).status == 0


QUESTION = {"v": 1, "cluster": "north", "ts": 1, "id": "q", "about": "status"}
ASKS = """
[[drain.rules]]
kind = "xid"
action = "drain_now"
evidence = "hard"
approval = true
"""


async def test_a_finding_waits_for_a_persons_yes(site: Site, spawn: Spawn, operator: Operator) -> None:
    await spawn("first", limits=ASKS).is_active()
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("refused")
    assert "heeler drain approve xid-n001-79" in site.actions[0]["why"]
    explained = await operator("explain", "xid-n001-79")
    assert "is not drained (needs_approval)" in explained.out
    assert "NO  approved: the policy wants a person's approval" in explained.out
    assert (await operator("approve", "xid-n009-79")).status == 3
    assert site.scontrol.updates == []
    yes = await operator("approve", "xid-n001-79", "--why", "seen the LED", "--json")
    assert (yes.status, yes.json["outcome"], yes.json["actor"]) == (0, "done", "jane")
    await until(lambda: site.scontrol.updates == ["n001"], "it drains")
    await until(lambda: site.told[-1][1] == "verified")
    [order] = [one for one in orders(site) if one["verdict"] == "ordered"]
    assert (order["node"], order["finding_id"], order["why"].endswith(": seen the LED")) == (
        "n001",
        "xid-n001-79",
        True,
    )
    assert "approved by jane" in next(one["why"] for one in site.actions if one["verdict"] == "approved")


async def test_explain_says_every_check_and_knows_what_it_does_not_know(
    site: Site, start: Start, operator: Operator
) -> None:
    await start(dry_run=True)
    said = await operator("explain", "n007")
    assert (said.status, "n007: ALLOCATED" in said.out) == (0, True)
    assert "no open finding asks for a drain of n007" in said.out
    nothing = await operator("explain", "n999")
    assert nothing.status == 3
    assert "refused (unknown_name)" in nothing.err
    await site.say("Finding", xid(ts=time.time_ns()))
    await site.hears("proposed")
    told = (await operator("explain", "n001", "--json")).json
    [case] = told["cases"]
    assert (case["verdict"], case["rule"]) == ("hold", "acted")
    assert {one["ok"] for one in case["checks"]} == {True}
    assert orders(site) == [], "a question leaves no action"


async def test_wrong_words_are_an_error_of_use(operator: Operator) -> None:
    for words in (("pause", "--for", "soon"), ("reset-breaker", "toaster", "--why", "x"), ("reset-breaker", "drain")):
        assert (await operator(*words)).status == 2


CHECK = """
from heeler.health.model import Check, Probe, bad


def read(_context, _asked):
    return 2


CHECKS = (Check("always_bad", "Is bad.", Probe("p", read), lambda _f, _s, _c: bad("two errors"), hardware=True),)
"""


class Node:
    """A node with the real heeler-health, whose one check finds a fault of its hardware."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder / name, name
        (self.folder / "outbox").mkdir(parents=True)
        (self.folder / "health.toml").write_text(
            'plugins = ["always_bad"]\n'
            f'cluster = "north"\nnode = "{name}"\noutbox = "{self.folder}/outbox"\ncache = "{self.folder}"\n'
            '[checks.always_bad]\nenforce = ["prolog"]\n[profiles.prolog]\nchecks = ["always_bad"]\n'
        )
        site = folder / "plugins"
        info = site / "always_bad-1.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: always_bad\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[heeler.health.checks]\nalways_bad = always_bad_checks:CHECKS\n")
        (site / "always_bad_checks.py").write_text(CHECK)
        self.env = {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"}

    def breaker(self) -> str | None:
        """What the node last heard of the breaker."""
        path = self.folder / "breaker.json"
        return json.loads(path.read_text())["state"] if path.exists() else None

    @asynccontextmanager
    async def serving(self, url: str) -> AsyncIterator[None]:
        """Run `heeler-health serve`."""
        config = self.folder / "serve.toml"
        config.write_text(f'[serve]\npolicy = "{self.folder}/health.toml"\nnode = "{self.name}"\ninterval_s = 0.0\n')
        argv = ("-m", "heeler.health.cli", "serve", "--config", str(config))
        env = {**self.env, "HEELER_NATS_URL": url, "HEELER_CLUSTER": "north"}
        child = await asyncio.create_subprocess_exec(
            sys.executable, *argv, env=env, stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            yield
        finally:
            child.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(child.wait(), 15) == 0

    async def prolog(self, site: Site) -> tuple[int, dict[str, Any]]:
        """Run the prolog's checks, and forward what they leave as the agent does; return status and HealthRun."""
        argv = ("-m", "heeler.health.cli", "run", "--mode", "prolog", "--fail-status", "99")
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *argv,
            *("--policy", str(self.folder / "health.toml")),
            env={**self.env, "SLURM_JOB_ID": "1", "SLURM_JOB_UID": "1000"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(child.communicate(), 60)
        runs = []
        for path in sorted((self.folder / "outbox").glob("[0-9]*.msg")):
            letter = msgpack.unpackb(path.read_bytes())
            kind = letter["type"].removesuffix("/1")
            await site.bus.publish_acked(letter["subject"], kind, letter["data"], letter["id"])
            runs += [decode(kind, letter["data"])] if kind == "HealthRun" else []
            path.unlink()
        assert len(runs) == 1, (child.returncode, out, err)
        return child.returncode or 0, runs[0]


async def test_failing_prologs_open_the_breaker_on_all_nodes_until_an_operator_resets_it(
    site: Site, start: Start, operator: Operator, tmp_path: Path, nats_server: NatsServer
) -> None:
    await start(dry_run=True)
    nodes = [Node(tmp_path, f"n{n:03d}") for n in range(1, 4)]
    first = nodes[0]
    async with first.serving(nats_server.url):
        await until(lambda: first.breaker() == "closed", "the node has heard that it is closed")
        for one in nodes[1:]:
            (one.folder / "breaker.json").write_text((first.folder / "breaker.json").read_text())
        for one in nodes:
            status, run = await one.prolog(site)
            assert (status, run["verdict"], run["enforcement"]) == (99, "fail", "on"), run
        await until(lambda: first.breaker() == "open", "the node has heard that it is open")
        status, run = await first.prolog(site)
        assert (status, run["verdict"], run["enforcement"]) == (0, "would_fail", "breaker_open")

        shown: Said = await operator("status")
        assert shown.status == 3
        assert "breaker of prologs: open" in shown.out
        assert "n001, n002, n003" in shown.out
        done = await operator("reset-breaker", "prolog", "--why", "driver rolled back")
        assert (done.status, done.out) == (0, "the breaker of prologs is closed: driver rolled back\n"), done
        await until(lambda: first.breaker() == "closed", "the node has heard that it is closed again")
        told = json.loads((first.folder / "breaker.json").read_text())
        assert told["why"] == "the breaker of prologs is closed: driver rolled back, by jane"
        status, run = await first.prolog(site)
        assert (status, run["enforcement"]) == (99, "on"), "what failed before the reset is not counted again"
        assert (await operator("status")).status == 0
    [order] = orders(site)
    assert (order["command"], order["breaker"], order["actor"]) == ("reset_breaker", "prolog", "jane")
    assert (await operator("reset-breaker", "prolog", "--why", "x")).status == 3
