"""A reset by the site's own hook: once, on an empty node of ours, and never again where its end is not known."""

import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from drainsite import Instance, Process, Site
from drainworld import node, xid
from waiting import until

from heeler.drain.hooks import ExecHook

pytestmark = pytest.mark.bus

Start = Callable[..., Awaitable[Instance]]
Spawn = Callable[..., Process]
RULES: list[dict[str, Any]] = [{"kind": "xid", "action": "reset", "evidence": "hard"}]
LIFE: dict[str, Any] = {
    "undrain": True,
    "checks": ["gpu_count"],
    "check_timeout_s": 1.0,
    "check_interval_s": 0.1,
    "check_passes": 1,
}


def hook(folder: Path, text: str = "") -> Path:
    path = folder / "reset"
    path.write_text(f"#!{sys.executable}\nimport sys, time\nopen({str(folder / 'runs')!r}, 'a').write('x')\n{text}\n")
    path.chmod(0o755)
    return path


def runs(folder: Path) -> int:
    path = folder / "runs"
    return len(path.read_text()) if path.exists() else 0


async def drained(site: Site, *, empty: bool = True) -> None:
    await site.say("Finding", xid(ts=time.time_ns()))
    await until(lambda: "verified" in [verdict for _, verdict, _ in site.told], f"verified, heard {site.told}")
    if empty:
        site.scontrol.put("n001", state="IDLE+DRAIN")
    await site.shows("n001")


async def told(site: Site, *words: tuple[str, str, str]) -> None:
    await until(lambda: set(words) <= set(site.steps), f"{words}, heard {site.steps}")


async def test_a_reset_is_run_once_no_job_is_left_and_the_node_comes_back(
    site: Site, start: Start, tmp_path: Path
) -> None:
    await site.answers("n001", lambda: "ok")
    await start(rules=RULES, lifecycle=LIFE, hooks={"reset": ExecHook((str(hook(tmp_path)),), 20.0)})
    await drained(site, empty=False)
    await told(site, ("wait", "waiting", "jobs_run"))
    assert runs(tmp_path) == 0
    site.scontrol.put("n001", state="IDLE+DRAIN")
    await site.shows("n001")
    await told(site, ("reset", "done", "by_policy"), ("undrain", "undrained", "healthy"))
    assert runs(tmp_path) == 1
    assert site.scontrol["n001"]["state"] == "IDLE"


async def test_a_reset_that_fails_leaves_the_node_to_a_person(site: Site, start: Start, tmp_path: Path) -> None:
    found = ExecHook((str(hook(tmp_path, "sys.exit('GPU 3 does not reset')")),), 20.0)
    await start(rules=RULES, lifecycle=LIFE, hooks={"reset": found})
    await drained(site)
    await told(site, ("reset", "failed", "hook_failed"), ("person", "held", "repair_failed"))
    assert "GPU 3 does not reset" in next(a["why"] for a in site.actions if a["rule"] == "hook_failed")
    assert runs(tmp_path) == 1


async def test_a_job_that_the_feed_has_not_shown_yet_stops_the_reset(site: Site, start: Start, tmp_path: Path) -> None:
    await start(rules=RULES, lifecycle=LIFE, hooks={"reset": ExecHook((str(hook(tmp_path)),), 20.0)})
    await drained(site, empty=False)
    # What the feed says comes before what Slurm says by now: a job is there.
    mark = site.scontrol["n001"]
    more = {"reason": mark["reason"], "reason_user": mark["user"], "reason_ts": mark["ts"] * 1_000_000_000}
    await site.say("NodeState", node("n001", time.time_ns(), "idle", ("DRAIN",), **more))
    await told(site, ("reset", "refused", "node_not_still"), ("person", "held", "repair_failed"))
    assert runs(tmp_path) == 0


async def test_other_work_goes_on_while_a_reset_runs(site: Site, start: Start, tmp_path: Path) -> None:
    found = ExecHook((str(hook(tmp_path, "time.sleep(3)")),), 20.0)
    await start(rules=RULES, hooks={"reset": found}, drained_min=2, partition_drained_min=2)
    await drained(site)
    await told(site, ("reset", "approved", "by_policy"))
    await site.say("Finding", xid("n002", ts=time.time_ns()))
    await until(lambda: ("n002", "verified", "hard_evidence") in site.told, "n002 drained")
    assert ("reset", "done", "by_policy") not in site.steps
    await told(site, ("reset", "done", "by_policy"))
    assert runs(tmp_path) == 1


async def test_a_reset_whose_drainer_dies_is_not_run_again(site: Site, spawn: Spawn, tmp_path: Path) -> None:
    path = hook(tmp_path, "time.sleep(4)")
    more = (
        f"[[drain.rules]]\nkind = 'xid'\naction = 'reset'\nevidence = 'hard'\n[drain.hooks.reset]\nargv = ['{path}']\n"
        "timeout_s = 30.0\n"
    )
    first = spawn("first", lifecycle=more)
    await first.is_active()
    second = spawn("second", lifecycle=more)
    await drained(site)
    await until(lambda: runs(tmp_path) == 1, "the hook runs")
    first.signal(signal.SIGKILL)
    await second.is_active()
    await told(site, ("reset", "failed", "reset_lost"), ("person", "held", "repair_failed"))
    assert "did not report the end" in next(a["why"] for a in site.actions if a["rule"] == "reset_lost")
    assert runs(tmp_path) == 1


async def test_without_a_hook_a_reset_is_proposed(site: Site, start: Start) -> None:
    await start(rules=RULES, lifecycle=LIFE)
    await drained(site)
    await told(site, ("reset", "proposed", "by_policy"), ("person", "held", "needs_reset"))
