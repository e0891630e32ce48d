"""Commands end at their deadline with all that they started, and both their pipes are read."""

import asyncio
import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from natsserver import wait_for
from waiting import until

from heeler.slurm.command import Child, run_slurm, run_slurm_async, slurm_env
from heeler.slurm.errors import (
    CommandFailedError,
    CommandMissingError,
    CommandTimeoutError,
    OutputTooLargeError,
    SlurmError,
)

Program = Callable[[str], str]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Write a shell script; returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> list[int]:
    return [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_gives_its_exit_status_and_output(program: Program) -> None:
    done = run_slurm([program('echo "$1"; echo oh >&2; exit 3'), "a b"], 10)
    assert (done.rc, done.stdout, done.stderr) == (3, b"a b\n", b"oh\n")
    with pytest.raises(CommandFailedError, match="exit status 3: oh") as caught:
        done.check()
    assert caught.value.rc == 3
    assert run_slurm([program("exit 0")], 10).check().rc == 0


def test_arguments_are_no_shell(program: Program, tmp_path: Path) -> None:
    run_slurm([program("exit 0"), f"; touch {tmp_path}/owned", f"$(touch {tmp_path}/owned)"], 10)
    assert not (tmp_path / "owned").exists()


def test_a_flood_on_stderr_blocks_nothing(program: Program) -> None:
    done = run_slurm([program("head -c 1000000 /dev/zero >&2; echo end >&2; echo data")], 30)
    assert done.stdout == b"data\n"
    assert done.stderr.endswith(b"end\n")
    assert len(done.stderr) == 65536


def test_a_command_that_hangs_is_killed_with_its_children(program: Program, tmp_path: Path) -> None:
    path = program(f"sleep 1000 & echo $! >{tmp_path}/child; wait")
    with pytest.raises(CommandTimeoutError, match=r"no answer in 0\.5 s"):
        run_slurm([path], 0.5)
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not alive(child), "the child is still there")


def test_what_a_command_leaves_behind_is_killed_and_its_answer_counts(program: Program, tmp_path: Path) -> None:
    done = run_slurm([program(f"sleep 1000 & echo $! >{tmp_path}/child; echo data")], 30)
    assert (done.rc, done.stdout) == (0, b"data\n")
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not alive(child), "the child is still there")


def test_output_without_end_is_cut_off(program: Program) -> None:
    with pytest.raises(OutputTooLargeError, match="more than 100000 bytes"):
        Child([program("yes")]).wait(30, max_bytes=100_000)


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program", "/etc/passwd", "nul\0byte"])
def test_a_command_that_is_missing_says_so(name: str) -> None:
    with pytest.raises(CommandMissingError, match=r"not found|ermission|null|No such file"):
        run_slurm([name], 1)


def test_a_command_killed_from_outside_has_a_negative_status(program: Program) -> None:
    assert run_slurm([program("kill -9 $$")], 10).rc == -9


async def test_a_cancelled_command_is_killed(program: Program, tmp_path: Path) -> None:
    task = asyncio.create_task(run_slurm_async([program(f"echo $$ >{tmp_path}/pid; sleep 1000")], 1000))
    pid = tmp_path / "pid"
    await until(lambda: pid.exists() and pid.read_text().strip() != "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(int(pid.read_text()))


async def test_the_loop_goes_on_while_a_command_runs(program: Program) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await run_slurm_async([program("sleep 0.2")], 10)
    ticking.cancel()
    assert ticks > 10


def test_the_environment_steers_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SQUEUE_FORMAT", "SLURM_CLUSTERS", "SINFO_FORMAT", "SLURM_TIME_FORMAT"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/site/slurm.conf")
    env = slurm_env(bin_dir="/opt/slurm/bin")
    assert env["SLURM_CONF"] == "/site/slurm.conf"
    assert env["PATH"].split(":")[0] == "/opt/slurm/bin"
    assert env["LC_ALL"] == "C"
    assert not {"SQUEUE_FORMAT", "SLURM_CLUSTERS", "SINFO_FORMAT", "SLURM_TIME_FORMAT"} & env.keys()
    assert slurm_env(conf="/other.conf")["SLURM_CONF"] == "/other.conf"


def test_a_program_is_found_by_the_path_it_is_given(program: Program, tmp_path: Path) -> None:
    program("echo mine")
    assert run_slurm(["program"], 10, slurm_env(bin_dir=str(tmp_path))).stdout == b"mine\n"


def test_many_commands_leave_neither_zombies_nor_files(program: Program) -> None:
    path = program("echo x")
    run_slurm([path], 10)
    before = open_files()
    for _ in range(20):
        run_slurm([path], 10)
    assert open_files() == before
    with pytest.raises(SlurmError):
        run_slurm([program("sleep 1000")], 0.05)
    assert not [pid for pid in children() if not alive(pid)]


def test_output_that_is_handed_on_is_not_kept(program: Program) -> None:
    taken = bytearray()
    done = run_slurm([program("echo begins; head -c 3000000 /dev/zero; echo ends; exit 3")], 30, take=taken.extend)
    assert (len(taken), bytes(taken[:7]), bytes(taken[-5:])) == (3_000_012, b"begins\n", b"ends\n")
    assert (done.rc, done.stdout[:7], done.stdout[-5:], len(done.stdout)) == (3, b"begins\n", b"ends\n", 8192)


def test_what_is_done_with_an_output_is_not_the_commands_time(program: Program) -> None:
    # The command waits at a full pipe while its output is looked at.
    spent: list[bytes] = []

    def take(data: bytes) -> None:
        if not spent:
            time.sleep(1.0)
        spent.append(data)

    done = run_slurm([program("head -c 3000000 /dev/zero; sleep 0.1")], 0.8, take=take)
    assert (done.rc, sum(map(len, spent))) == (0, 3_000_000)


def test_output_without_end_that_is_handed_on_is_cut_off(program: Program) -> None:
    with pytest.raises(OutputTooLargeError):
        Child([program("yes")]).wait(60, max_bytes=1 << 20, take=lambda data: None)
    assert gc.isenabled()
