"""Run a Slurm command: argv only, a deadline of our own, and no child left behind.

Slurm's clients wait 10 s and longer for a controller that does not answer, print warnings on stderr without end, and
take settings from the environment (`SQUEUE_FORMAT`, `SLURM_CLUSTERS` ...). So each command runs in a process group of
its own that is killed at the deadline, both its pipes are drained, and its environment is made here.
"""

import asyncio
import contextlib
import fcntl
import os
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Self

from heeler.slurm.errors import (
    CommandFailedError,
    CommandMissingError,
    CommandTimeoutError,
    OutputTooLargeError,
)
from heeler.slurm.gcpause import gc_paused

MAX_OUTPUT_BYTES = 1 << 30  # squeue --json of 100,000 jobs is some 300 MB
MAX_STDERR_BYTES = 64 << 10  # the end of it is kept
PIPE_BYTES = 1 << 20  # as large as a pipe may be for everybody
ENDS_BYTES = 4096  # of an output that is handed on, from its beginning and from its end
GRACE_S = 2.0
STEERING = ("SLURM_", "SQUEUE_", "SINFO_", "SCONTROL_", "SACCT_", "SBATCH_", "SRUN_", "SALLOC_")


Take = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended: its exit status (negative: the signal) and what it wrote."""

    argv: tuple[str, ...]
    rc: int
    stdout: bytes
    stderr: bytes
    duration_s: float

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        """Standard error as text."""
        return self.stderr.decode(errors="replace")

    def check(self) -> Self:
        """Return self. Raises CommandFailedError for an exit status other than 0."""
        if self.rc != 0:
            raise CommandFailedError(self.argv, self.rc, self.error_text)
        return self


def slurm_env(
    *, bin_dir: str | None = None, conf: str | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment for Slurm's clients, without variables that change what they print.

    `bin_dir` goes first in PATH; `conf` becomes SLURM_CONF; `base` is this process's own environment unless given.
    """
    base = os.environ if base is None else base
    env = {key: value for key, value in base.items() if not key.startswith(STEERING)}
    for kept in ("SLURM_CONF", "SLURM_JWT"):
        if base.get(kept):
            env[kept] = base[kept]
    if bin_dir:
        env["PATH"] = f"{bin_dir}:{env.get('PATH', os.defpath)}"
    if conf:
        env["SLURM_CONF"] = conf
    env["LC_ALL"] = "C"
    return env


class Child:
    """A running command. `wait` is for one thread; `kill` may come from another."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None, answer: bytes = b"") -> None:
        """Start it; `answer` is what it reads. Raises CommandMissingError."""
        self.argv = tuple(argv)
        self._started = time.monotonic()
        self._lock = threading.Lock()
        env = slurm_env() if env is None else env
        stdin = _said(answer) if answer else subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
                [_find(self.argv[0], env), *self.argv[1:]],
                env=dict(env),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as err:
            raise CommandMissingError(self.argv, str(err)) from err
        else:
            with contextlib.suppress(OSError):  # a user may have had all that he may: then it stays as it is
                fcntl.fcntl(_fileno(self._process.stdout), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        finally:
            if stdin >= 0:
                os.close(stdin)

    def wait(self, timeout_s: float, max_bytes: int = MAX_OUTPUT_BYTES, take: Take | None = None) -> Completed:
        """Return the command when it has ended. Raises CommandTimeoutError, OutputTooLargeError.

        `take` gets standard output as it comes; only its ends are kept then. What it does with it is not the command's
        time.
        """
        try:
            out, err = self._drain(timeout_s, max_bytes, take)
        finally:
            self.kill()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe:
                    pipe.close()
        return Completed(self.argv, self._process.returncode, out, err, time.monotonic() - self._started)

    def kill(self) -> None:
        """Kill what is left of the command's group, and reap it. Does nothing once it is reaped."""
        with self._lock:  # the group's number may be used again once its leader is reaped: here and nowhere else
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def _drain(self, timeout_s: float, max_bytes: int, take_out: Take | None) -> tuple[bytes, bytes]:
        """Read both pipes until the command has ended, without reaping it."""
        out, err = _Kept() if take_out is None else _Passed(take_out), bytearray()
        deadline = self._started + timeout_s
        ended = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector, out:
                for pipe, take in ((self._process.stdout, out.write), (self._process.stderr, err.extend)):
                    selector.register(_fileno(pipe), selectors.EVENT_READ, take)
                selector.register(ended, selectors.EVENT_READ)
                while selector.get_map():
                    ready = selector.select(max(deadline - time.monotonic(), 0.0))
                    if not ready and time.monotonic() >= deadline:
                        if ended not in selector.get_map():
                            break
                        raise CommandTimeoutError(self.argv, f"no answer in {timeout_s:g} s")
                    for key, _ in ready:
                        if key.fd == ended:
                            selector.unregister(ended)
                            # A grandchild may hold the pipes open: nothing that it says is the answer.
                            deadline = min(deadline, time.monotonic() + GRACE_S)
                            continue
                        chunk = os.read(key.fd, PIPE_BYTES)
                        if not chunk:
                            selector.unregister(key.fd)
                        key.data(chunk)
                    deadline += out.spent_s()
                    if out.size > max_bytes:
                        raise OutputTooLargeError(self.argv, f"more than {max_bytes} bytes of output")
                    del err[:-MAX_STDERR_BYTES]
        finally:
            os.close(ended)
        return out.kept(), bytes(err)


class _Kept:
    """Standard output as a whole."""

    def __init__(self) -> None:
        self._out = BytesIO()  # hands over its bytes without a copy

    def write(self, data: bytes) -> None:
        self._out.write(data)

    @property
    def size(self) -> int:
        return self._out.tell()

    def spent_s(self) -> float:
        return 0.0

    def kept(self) -> bytes:
        return self._out.getvalue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Passed:
    """Standard output that is handed on as it comes; its beginning and end are kept."""

    def __init__(self, take: Take) -> None:
        self._take, self.size, self._spent_s = take, 0, 0.0
        self._head, self._tail = b"", b""
        self._pause = contextlib.ExitStack()

    def write(self, data: bytes) -> None:
        if not self.size:
            self._pause.enter_context(gc_paused())
        self.size += len(data)
        started = time.monotonic()
        self._take(data)
        self._spent_s += time.monotonic() - started
        if len(self._head) < ENDS_BYTES:
            self._head += data[: ENDS_BYTES - len(self._head)]
        self._tail = data[-ENDS_BYTES:] if len(data) >= ENDS_BYTES else (self._tail + data)[-ENDS_BYTES:]

    def spent_s(self) -> float:
        """Return how long it took since this was last asked."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def kept(self) -> bytes:
        return self._head + self._tail

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pause.close()


def run_slurm(
    argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None, take: Take | None = None
) -> Completed:
    """Run a command and return it, whatever its exit status. `take`: as in `Child.wait`.

    Without `env` it gets `slurm_env()`. Raises CommandMissingError, CommandTimeoutError, OutputTooLargeError.
    """
    return Child(argv, env).wait(timeout_s, take=take)


async def run_slurm_async(
    argv: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    answer: bytes = b"",
    take: Take | None = None,
) -> Completed:
    """Run a command without blocking the loop; kills it when cancelled. `take`: as in `Child.wait`, in a thread."""
    child = Child(argv, env, answer)
    try:
        return await asyncio.to_thread(child.wait, timeout_s, take=take)
    except asyncio.CancelledError:
        child.kill()
        raise


def _find(program: str, env: Mapping[str, str]) -> str:
    """Return the program's path by the child's own PATH, not by ours."""
    if "/" in program:
        return program
    for folder in env.get("PATH", os.defpath).split(":"):
        path = Path(folder or ".") / program
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError("not found in PATH")


def _said(answer: bytes) -> int:
    """Return the end of a pipe at which an answer waits, or a file without a name where it is too long for a pipe."""
    if len(answer) > select.PIPE_BUF:
        whole = os.memfd_create("answer")
        with os.fdopen(os.dup(whole), "wb") as file:
            file.write(answer)
        os.lseek(whole, 0, os.SEEK_SET)
        return whole
    out, into = os.pipe()
    os.write(into, answer)
    os.close(into)
    return out


def _fileno(pipe: IO[bytes] | None) -> int:
    assert pipe is not None, "opened with PIPE"
    return pipe.fileno()
