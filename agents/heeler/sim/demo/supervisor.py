"""Child processes: started in groups of their own, logged, watched, and all gone at the end."""

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heeler.sim.demo.settings import DemoError

STOP_S = 6.0
LAST = ("nats-server", "receiver")
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def cpu_s_of(pid: int) -> float:
    """Return the user and system seconds that a process has used. Raises OSError where there is none."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _die_with_parent() -> None:
    """Ask the kernel to end this child should the demo itself be killed."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


@dataclass(slots=True)
class Child:
    """One process and how to start it again."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    talks: bool = False  # stdin and stdout are pipes for us
    process: asyncio.subprocess.Process | None = None
    expected_end: bool = False
    starts: int = 0

    @property
    def pid(self) -> int:
        """Return the id of the running process, 0 if there is none."""
        return self.process.pid if self.process is not None and self.process.returncode is None else 0

    async def start(self) -> None:
        """Start the process in a session of its own: a Ctrl-C in the terminal is the demo's to handle."""
        self.expected_end = False
        self.starts += 1
        pipe = asyncio.subprocess.PIPE if self.talks else None
        with self.log.open("ab") as log:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *self.argv,
                    stdin=pipe or asyncio.subprocess.DEVNULL,
                    stdout=pipe or log,
                    stderr=log,
                    env=dict(self.env),
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            except OSError as err:
                raise DemoError(f"{self.name} does not start: {self.argv[0]}: {err.strerror}") from None

    def cpu_s(self) -> float | None:
        """Return the CPU time that the running process has used; None where it can't be read."""
        try:
            return cpu_s_of(self.pid)
        except OSError:
            return None

    def signal(self, number: int) -> None:
        """Send a signal to the process and whatever it started."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def kill(self) -> None:
        """End the process at once, as a crash would."""
        self.expected_end = True
        self.signal(signal.SIGKILL)
        if self.process is not None:
            await self.process.wait()

    async def stop(self) -> None:
        """End the process in good order, and after some seconds without mercy."""
        self.expected_end = True
        if not self.pid or self.process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), STOP_S)
        except TimeoutError:
            await self.kill()

    def last_words(self) -> str:
        """Return the end of the log, for an error message."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it wrote nothing"


@dataclass(slots=True)
class Supervisor:
    """All processes of a run; the order of starting is the reverse order of stopping."""

    run_dir: Path
    env: Mapping[str, str]
    children: dict[str, Child] = field(default_factory=dict)

    async def start(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, talks: bool = False
    ) -> Child:
        """Start a process. Raises DemoError."""
        logs = self.run_dir / "logs"
        logs.mkdir(exist_ok=True)
        child = Child(name, tuple(argv), {**self.env, **(env or {})}, logs / f"{name}.log", talks)
        self.children[name] = child
        await child.start()
        return child

    def check(self) -> None:
        """Raise DemoError if a process ended that should run."""
        for child in self.children.values():
            ended = child.process is not None and child.process.returncode is not None
            if ended and not child.expected_end and child.process is not None:
                status = child.process.returncode
                raise DemoError(f"{child.name} ended with status {status}: {child.last_words()} (log: {child.log})")

    async def watch(self) -> None:
        """Check for ever."""
        while True:
            self.check()
            await asyncio.sleep(0.2)

    async def logged(self, name: str, word: str, timeout_s: float = 20.0) -> None:
        """Wait until a process has written a word to its log. Raises DemoError."""
        child = self.children[name]
        until = time.monotonic() + timeout_s
        while word not in child.log.read_text(errors="replace"):
            self.check()
            if time.monotonic() > until:
                raise DemoError(f"{name} is not ready after {timeout_s:g} s: {child.last_words()} (log: {child.log})")
            await asyncio.sleep(0.05)

    async def stop(self, *names: str) -> None:
        """Stop some processes side by side."""
        await asyncio.gather(*(self.children[name].stop() for name in names if name in self.children))

    async def stop_all(self) -> None:
        """Stop all: what writes first, then what it writes to."""
        last = [name for name in self.children if name in LAST]
        await self.stop(*(name for name in self.children if name not in LAST))
        await self.stop(*last)

    def kill_all(self) -> None:
        """End everything at once: for a second Ctrl-C."""
        for child in self.children.values():
            child.expected_end = True
            child.signal(signal.SIGKILL)

    def by_pid(self, pid: int) -> Child | None:
        """Return the child with a process id."""
        return next((child for child in self.children.values() if pid and child.pid == pid), None)
