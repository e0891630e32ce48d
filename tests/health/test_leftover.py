"""Leftover processes: the innocent are never ended, whatever a pid means by the time of the signal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from heeler.health.leftover import Process, end, read_process, why_not

OURS = Process(pid=4242, start_ticks=7, comm="python3", uid=1000, job="81", gpus=("GPU-a",))


def test_a_process_of_the_ended_job_may_be_ended() -> None:
    assert why_not(OURS, "81", 1000) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"job": "82"}, "belongs to job 82"),
        ({"job": None}, "no job's cgroup"),
        ({"job": None, "unclear": "no slurmstepd"}, "can't be told"),
        ({"uid": 0}, "runs as user 0"),
        ({"uid": 1001}, "runs as user 1001"),
        ({"comm": "nvidia-cuda-mps"}, "service"),
        ({"comm": "nvidia-persiste"}, "service"),
        ({"comm": "nv-hostengine"}, "service"),
        ({"comm": "slurmstepd"}, "service"),
        ({"pid": 1}, "not a process of any job"),
        ({"pid": 0}, "not a process of any job"),
    ],
)
def test_all_others_are_innocent(change: dict[str, object], words: str) -> None:
    assert words in (why_not(replace(OURS, **change), "81", 1000) or "")  # type: ignore[arg-type]


def test_without_the_jobs_user_nothing_is_ended() -> None:
    assert why_not(OURS, "81", None) == "the job's user is not known"


def test_our_own_processes_are_not_ended() -> None:
    assert why_not(OURS, "81", 1000, own_pids={4242})


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for one in made:
        one.kill()
        one.wait()


def sleeper(started: list[subprocess.Popen[bytes]], *, stubborn: bool = False) -> Process:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if stubborn else ""
    code = f"import signal, time; {ignore} print(flush=True); time.sleep(100)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    started.append(child)
    assert child.stdout
    child.stdout.readline()
    found = read_process(child.pid)
    assert found is not None
    assert found.uid == os.getuid()
    return found


def test_sigterm_is_enough_for_most(started: list[subprocess.Popen[bytes]]) -> None:
    target = sleeper(started)
    [done] = end([target], read_process)
    assert (done.gone, done.signals) == (True, ("SIGTERM",))
    assert started[0].wait(5) == -signal.SIGTERM


def test_who_ignores_sigterm_gets_sigkill_and_time_is_bounded(started: list[subprocess.Popen[bytes]]) -> None:
    targets = [sleeper(started, stubborn=True) for _ in range(3)]
    began = time.monotonic()
    done = end(targets, read_process, term_s=0.2, kill_s=2)
    assert time.monotonic() - began < 2
    assert [(one.gone, one.signals) for one in done] == [(True, ("SIGTERM", "SIGKILL"))] * 3


def test_all_targets_are_ended_not_only_the_last(started: list[subprocess.Popen[bytes]]) -> None:
    targets = [sleeper(started) for _ in range(4)]
    end(targets, read_process)
    assert [one.wait(5) for one in started] == [-signal.SIGTERM] * 4


def test_a_number_that_is_used_again_is_not_hit(started: list[subprocess.Popen[bytes]]) -> None:
    innocent = sleeper(started)
    chosen = replace(innocent, start_ticks=innocent.start_ticks - 1)  # of the dead one that had this number before
    [done] = end([chosen], read_process, term_s=0.1, kill_s=0.1)
    assert (done.gone, done.signals) == (True, ())
    assert started[0].poll() is None


def test_a_process_that_changed_its_job_is_not_hit(started: list[subprocess.Popen[bytes]]) -> None:
    innocent = sleeper(started)

    def adopted(pid: int) -> Process | None:
        now = read_process(pid)
        return now and replace(now, job="82")

    end([replace(innocent, job="81")], adopted, term_s=0.1, kill_s=0.1)
    assert started[0].poll() is None


def test_a_process_replaced_between_look_and_signal_is_not_hit(started: list[subprocess.Popen[bytes]]) -> None:
    """The worst moment: it dies after the first look, and another gets its number."""
    first = sleeper(started)
    looks = 0

    def read(pid: int) -> Process | None:
        nonlocal looks
        looks += 1
        now = read_process(pid)
        return now if looks == 1 or now is None else replace(now, start_ticks=now.start_ticks + 1)

    end([first], read, term_s=0.1, kill_s=0.1)
    assert looks == 3
    assert started[0].poll() is None


def test_a_process_that_is_gone_is_gone(started: list[subprocess.Popen[bytes]]) -> None:
    target = sleeper(started)
    started[0].kill()
    started[0].wait()
    [done] = end([target], read_process)
    assert (done.gone, done.signals) == (True, ())


@pytest.mark.parametrize("comm", ["python3", "a) b (c", ")))", "x y z"])
def test_a_name_with_brackets_does_not_move_the_fields(tmp_path: Path, comm: str) -> None:
    folder = tmp_path / "proc/77"
    folder.mkdir(parents=True)
    rest = " ".join(["S", *map(str, range(4, 22)), "123456", "0", "0"])
    (folder / "stat").write_text(f"77 ({comm}) {rest}\n")
    (folder / "status").write_text("Name:\tx\nUid:\t1000\t0\t0\t0\n")
    (folder / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_81/step_0/user/task_0\n")
    assert read_process(77, tmp_path, ("GPU-a",)) == Process(77, 123456, comm, 1000, "81", None, ("GPU-a",))


def test_half_a_process_is_none(tmp_path: Path) -> None:
    (tmp_path / "proc/78").mkdir(parents=True)
    (tmp_path / "proc/78/stat").write_text("78 (x) S 1")
    assert read_process(78, tmp_path) is None
    assert read_process(79, tmp_path) is None
