"""Probes run in children of their own: whatever one does, the others bring their facts and the run ends in time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import until_sync

from heeler.health.model import Case, Context, Phase, Probe, ProbeError, Unread
from heeler.health.runner import MAX_FACTS_BYTES, Read, run_probes

CONTEXT = Context(Case(Phase.APP, "n1", 0))


def run(*probes: Probe, seconds: float = 5.0) -> dict[str, Read]:
    return run_probes({probe.name: (probe, [None]) for probe in probes}, CONTEXT, time.monotonic() + seconds)


def probe(name: str, read: Callable[[], Any], timeout_s: float = 3.0) -> Probe:
    return Probe(name, lambda _context, _asked: read(), timeout_s)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_facts_come_back_as_they_are() -> None:
    facts = {"a": [1, 2.5, None, True], "b": {"c": "ü"}, "7": b"\x00"}
    assert run(probe("p", lambda: facts))["p"].facts == facts


def test_a_probe_gets_the_settings_of_all_its_checks() -> None:
    def read(_context: Context, asked: Sequence[Any]) -> Any:
        return list(asked)

    found = run_probes({"p": (Probe("p", read), ["a", "b"])}, CONTEXT, time.monotonic() + 5)
    assert found["p"].facts == ["a", "b"]


def test_a_library_is_imported_once_and_where_it_is_absent_the_probe_says_so(tmp_path: Path) -> None:
    code = """
import sys, time
from heeler.health.model import Case, Context, Phase, Probe
from heeler.health.runner import run_probes

def read(_context, _asked):
    import slow
    return slow.PID

def missing(_context, _asked):
    import absent

probes = [Probe("a", read, library="slow"), Probe("b", read, library="slow"), Probe("c", missing, library="absent")]
asked = {one.name: (one, []) for one in probes}
found = run_probes(asked, Context(Case(Phase.APP, "n1", 0)), time.monotonic() + 60)
assert found["a"].facts == found["b"].facts == sys.modules["slow"].PID, found
print(found["c"].facts.why)
"""
    (tmp_path / "slow.py").write_text("import os\nPID = os.getpid()\n")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ModuleNotFoundError: No module named 'absent'\n"


def test_large_facts_come_whole() -> None:
    assert run(probe("p", lambda: "x" * 3_000_000))["p"].facts == "x" * 3_000_000


def test_too_large_facts_are_refused() -> None:
    found = run(probe("p", lambda: "x" * (MAX_FACTS_BYTES + 1)))["p"].facts
    assert isinstance(found, Unread)
    assert found.kind == "unreadable"


def test_what_a_probe_raises_is_told_and_costs_no_other() -> None:
    def denied() -> Any:
        raise ProbeError("denied", "/dev/kmsg: Operation not permitted")

    found = run(probe("a", denied), probe("b", lambda: 1 / 0), probe("c", lambda: 3))
    assert found["a"].facts == Unread("denied", "/dev/kmsg: Operation not permitted")
    assert found["b"].facts == Unread("failed", "ZeroDivisionError: division by zero")
    assert found["c"].facts == 3


def test_a_probe_that_dies_or_writes_nonsense_is_told() -> None:
    def killed() -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    found = run(probe("a", killed), probe("b", lambda: os._exit(3)), probe("c", object))
    assert found["a"].facts == found["b"].facts == Unread("failed", "it ended without an answer")
    assert isinstance(found["c"].facts, Unread)


def test_a_probe_that_hangs_is_ended_at_its_deadline_with_all_that_it_started(tmp_path: Path) -> None:
    def read() -> Any:
        child = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        (tmp_path / "pids").write_text(f"{os.getpid()} {child.pid} {child.stdout.readline()}")
        time.sleep(60)

    started = time.monotonic()
    found = run(probe("slow", read, 0.8), probe("good", lambda: 1))
    assert time.monotonic() - started < 3
    assert found["good"].facts == 1
    assert isinstance(found["slow"].facts, Unread)
    assert found["slow"].facts.kind == "timeout"
    assert found["slow"].facts.why.startswith("no answer in 0.8 s")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    until_sync(lambda: not any(map(alive, pids)))


def test_what_a_good_probe_leaves_running_is_ended_too(tmp_path: Path) -> None:
    def read() -> Any:
        child = subprocess.Popen(["sleep", "60"])
        return child.pid

    pid = run(probe("p", read))["p"].facts
    until_sync(lambda: not alive(pid))


def test_the_deadline_of_the_run_ends_a_probe_before_its_own() -> None:
    started = time.monotonic()
    found = run(probe("p", lambda: time.sleep(60), 30.0), seconds=0.5)
    assert time.monotonic() - started < 3
    assert isinstance(found["p"].facts, Unread)


def test_probes_run_side_by_side() -> None:
    def read() -> Any:
        time.sleep(0.7)
        return 1

    started = time.monotonic()
    found = run(*(probe(f"p{number}", read) for number in range(8)))
    assert [one.facts for one in found.values()] == [1] * 8
    assert time.monotonic() - started < 8 * 0.7 / 2


def test_a_child_holds_none_of_our_pipes() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    saved = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)
    try:
        pid = run(probe("p", lambda: str(Path("/proc/self/fd/1").readlink())))["p"].facts
    finally:
        os.dup2(saved, 1)
        os.close(saved)
    os.close(reader)
    assert pid == "/dev/null"


def test_a_stopped_child_is_ended_as_well() -> None:
    def read() -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)

    found = run(probe("p", read, 0.5))["p"].facts
    assert isinstance(found, Unread)
    assert "state T" in found.why


def test_a_child_that_cannot_be_killed_is_left_behind_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # A process in the kernel that ignores SIGKILL can't be made here: its killing is kept from it instead.
    pids: list[int] = []

    def spared(pid: int, _signal: int) -> None:
        pids.append(pid)

    monkeypatch.setattr(os, "killpg", spared)
    monkeypatch.setattr(os, "kill", spared)
    started = time.monotonic()
    found = run(probe("p", lambda: time.sleep(60), 0.3))["p"].facts
    assert time.monotonic() - started < 3
    assert isinstance(found, Unread)
    assert found.kind == "hung"
    monkeypatch.undo()
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)
