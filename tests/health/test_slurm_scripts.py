"""The scripts that slurm.conf names can't fail a job for any fault but the one that heeler-health was sure of."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "deploy/slurm"
SCRIPTS = ("prolog.sh", "epilog.sh", "healthcheck.sh", "task_prolog.sh")
CAN_FAIL = ("prolog.sh", "epilog.sh")
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
FREEZER = Path("/sys/fs/cgroup/freezer")


class Script:
    """A script beside a program that stands for heeler-health."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "heeler-health"
        self.called = folder / "called"

    def stand_in(self, text: str) -> None:
        self.program.write_text(f'#!/bin/sh\necho "$@" >{self.called}\n{text}\n')
        self.program.chmod(0o755)

    def run(
        self, name: str, shell: str = "dash", *, deadline_s: str = "20", program: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        # As empty as what HealthCheckProgram gets.
        env = {"SLURMD_NODENAME": "n1", "HEELER_HEALTH": program or str(self.program), "HEELER_DEADLINE_S": deadline_s}
        argv = [*({"bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}.get(shell, [shell])), str(FOLDER / name)]
        return subprocess.run(
            [shutil.which(argv[0]) or "", *argv[1:]], env=env, capture_output=True, text=True, timeout=30, check=False
        )


@pytest.fixture
def script(tmp_path: Path) -> Script:
    made = Script(tmp_path)
    made.stand_in("exit 0")
    return made


def left_over(folder: Path) -> list[str]:
    """Return the command lines of processes that still name the test's folder, or sleep for it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if str(folder) in line or line == "sleep 20.25":
            found.append(line)
    return found


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("status", [0, 1, 2, 3, 64, 98, 100, 126, 127, 255])
def test_no_status_but_its_own_fails_a_script(script: Script, name: str, shell: str, status: int) -> None:
    script.stand_in(f"echo noise; echo trouble >&2; exit {status}")
    done = script.run(name, shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_only_prolog_and_epilog_fail_and_only_when_told(script: Script, name: str, shell: str) -> None:
    script.stand_in("exit 99")
    assert script.run(name, shell).returncode == (1 if name in CAN_FAIL else 0)
    asked = script.called.read_text()
    mode = {"prolog.sh": "prolog", "epilog.sh": "epilog", "healthcheck.sh": "periodic", "task_prolog.sh": "task_prolog"}
    assert f"run --mode {mode[name]} " in asked
    assert ("--fail-status 99" in asked) == (name in CAN_FAIL)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("program", ["/no/such/heeler-health", "heeler-health-that-is-not-in-path", "/", "/etc/passwd"])
def test_a_missing_program_fails_nothing(script: Script, name: str, program: str) -> None:
    done = script.run(name, program=program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_crash_fails_nothing(script: Script, name: str) -> None:
    script.stand_in("kill -SEGV $$")
    assert script.run(name).returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_program_that_ignores_signals_is_not_waited_for(
    script: Script, tmp_path: Path, name: str, shell: str
) -> None:
    script.stand_in("trap '' TERM INT HUP ALRM\nwhile :; do sleep 0.2; done")
    began = time.monotonic()
    assert script.run(name, shell, deadline_s="1").returncode == 0
    assert time.monotonic() - began < 5
    time.sleep(0.3)  # its last sleep
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_deadline_that_is_no_number_fails_nothing(script: Script, name: str) -> None:
    assert script.run(name, deadline_s="soon").returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_is_left_behind(script: Script, tmp_path: Path, name: str, shell: str) -> None:
    script.stand_in("sleep 0.2")
    assert script.run(name, shell, deadline_s="20.25").returncode == 0
    time.sleep(0.1)
    assert left_over(tmp_path) == []


@pytest.fixture
def frozen_group() -> Iterator[Path]:
    """A cgroup in which a process stands still: no signal, not even SIGKILL, ends it there."""
    if not os.access(FREEZER, os.W_OK) or not (FREEZER / "cgroup.procs").exists():
        pytest.skip("no freezer of cgroup version 1 that this user may write")
    group = FREEZER / f"heeler-test-{os.getpid()}"
    group.mkdir()
    yield group
    (group / "freezer.state").write_text("THAWED")
    until = time.monotonic() + 10
    while (group / "cgroup.procs").read_text().strip() and time.monotonic() < until:
        time.sleep(0.05)
    group.rmdir()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_process_that_can_not_be_killed_is_not_waited_for(script: Script, frozen_group: Path, name: str) -> None:
    script.stand_in(f"echo $$ >{frozen_group}/cgroup.procs; echo FROZEN >{frozen_group}/freezer.state; sleep 60")
    began = time.monotonic()
    assert script.run(name, deadline_s="1").returncode == 0
    assert time.monotonic() - began < 5
    assert (frozen_group / "cgroup.procs").read_text().strip(), "it is still there"


def test_a_task_prolog_lets_only_prints_through(script: Script) -> None:
    script.stand_in(
        "echo 'print GPU 3 is slow'; echo export PATH=/evil; echo unset HOME; echo Traceback; echo 'print b'"
    )
    assert script.run("task_prolog.sh").stdout == "print GPU 3 is slow\nprint b\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_executable_and_portable(name: str) -> None:
    path = FOLDER / name
    assert path.stat().st_mode & 0o777 == 0o755
    assert path.read_text().startswith("#!/bin/sh\n")
    for shell in SHELLS:
        argv = ["busybox", "sh"] if shell == "busybox" else [shell]
        subprocess.run([*argv, "-n", str(path)], check=True)
