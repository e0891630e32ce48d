"""The last look at the lease, in the child, immediately before the command."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from heeler.drain import guard


def run(deadline_s: float, timeout_s: float, *command: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-S", str(Path(guard.__file__)), str(deadline_s), str(timeout_s), *command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


def test_with_enough_lease_the_command_runs_in_its_place(tmp_path: Path) -> None:
    done = run(time.monotonic() + 60, 5, "sh", "-c", 'echo "$0 $1"; exit 3', "a b", "reason=x;y")
    assert (done.returncode, done.stdout) == (3, "a b reason=x;y\n")


def test_with_too_little_lease_the_command_does_not_run(tmp_path: Path) -> None:
    done = run(time.monotonic() + 4, 5, "touch", str(tmp_path / "ran"))
    assert done.returncode == guard.TOO_LATE
    assert guard.SAID in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_lease_that_is_over_is_too_little(tmp_path: Path) -> None:
    assert run(time.monotonic() - 1, 5, "touch", str(tmp_path / "ran")).returncode == guard.TOO_LATE


def test_a_command_that_hangs_ends_even_if_nobody_is_left_to_kill_it() -> None:
    assert run(time.monotonic() + 60, 0.2, "sleep", "60").returncode == -signal.SIGALRM
