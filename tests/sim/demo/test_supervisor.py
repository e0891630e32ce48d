"""Child processes: none survives, each death is noticed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from waiting import until

from heeler.sim.demo.settings import DemoError, Settings, clean_environment
from heeler.sim.demo.supervisor import Supervisor

SLEEP = (sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)",
)


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    found = Supervisor(tmp_path, clean_environment())
    yield found
    found.kill_all()
    await found.stop_all()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_all_end_when_told_and_the_stubborn_ones_too(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heeler.sim.demo.supervisor.STOP_S", 0.3)
    children = [await supervisor.start("a", SLEEP), await supervisor.start("b", STUBBORN)]
    await supervisor.logged("a", "ready")
    await supervisor.logged("b", "ready")
    pids = [child.pid for child in children]
    await supervisor.stop_all()
    assert [alive(pid) for pid in pids] == [False, False]
    supervisor.check()


async def test_grandchildren_end_with_their_parent(supervisor: Supervisor) -> None:
    script = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    child = await supervisor.start("parent", (sys.executable, "-c", script))
    await supervisor.logged("parent", "\n")
    grandchild = int(child.log.read_text())
    await supervisor.stop_all()
    await until(lambda: not alive(grandchild) or _zombie(grandchild), "the grandchild's end")


def _zombie(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


async def test_a_death_is_noticed_and_told_with_the_last_words(supervisor: Supervisor) -> None:
    await supervisor.start("bad", (sys.executable, "-c", "raise SystemExit('no such luck')"))
    with pytest.raises(DemoError, match=r"bad ended with status 1: no such luck \(log: "):
        await asyncio.wait_for(supervisor.watch(), 20)


async def test_a_killed_process_starts_again_and_is_no_failure(supervisor: Supervisor) -> None:
    child = await supervisor.start("a", SLEEP)
    first = child.pid
    await child.kill()
    supervisor.check()
    await child.start()
    assert child.pid not in (0, first)
    assert supervisor.by_pid(child.pid) is child
    assert supervisor.by_pid(first) is None
    os.kill(child.pid, signal.SIGKILL)  # by somebody else
    assert child.process is not None
    await child.process.wait()
    with pytest.raises(DemoError):
        supervisor.check()


async def test_what_can_not_be_started_is_one_clear_line(supervisor: Supervisor) -> None:
    with pytest.raises(DemoError, match="x does not start: /no/such/program: No such file"):
        await supervisor.start("x", ("/no/such/program",))


async def test_a_process_that_is_not_ready_in_time_is_named(supervisor: Supervisor) -> None:
    await supervisor.start("a", SLEEP)
    with pytest.raises(DemoError, match="a is not ready"):
        await supervisor.logged("a", "never written", timeout_s=0.5)


def test_children_end_when_the_demo_itself_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, os, pathlib, signal
from heeler.sim.demo.supervisor import Supervisor

async def main():
    supervisor = Supervisor(pathlib.Path({str(tmp_path)!r}), dict(os.environ))
    child = await supervisor.start("a", ("sleep", "600"))
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    asyncio.run(until(lambda: not alive(pid) or _zombie(pid), "the child's end"))


def test_nothing_in_the_environment_leads_to_another_bus() -> None:
    env = {"HEELER_NATS_URL": "nats://prod:4222", "OTEL_EXPORTER_OTLP_HEADERS": "key=1", "NATS_CA": "x", "PATH": "/bin"}
    cleaned = clean_environment(env)
    assert cleaned["PATH"] == "/bin"
    assert not [key for key in cleaned if key.startswith(("HEELER", "OTEL", "NATS"))]


@pytest.mark.parametrize(("changed", "words"), [({"nodes": 5}, "NODES=5"), ({"real_agents": 99}, "REAL_AGENTS=99")])
def test_settings_that_make_no_demo_are_refused(changed: dict[str, int], words: str) -> None:
    values = {"nodes": 64, "real_agents": 4, **changed}
    settings = Settings(values["nodes"], 1, once=True, faults=True, real_agents=values["real_agents"])
    with pytest.raises(DemoError, match=words):
        settings.validate()
