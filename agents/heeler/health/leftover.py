"""Processes that a job left on its GPUs: which of them may be ended, and how without ever hitting another.

A process may be ended only where all of it is so: its cgroup belongs to the job that has ended here, it runs as that
job's user, and it is no service of the node. All else is left alone and told.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from heeler.health.slurm_cgroup import AmbiguousError, Jobs

# As the kernel has them: a process's name is cut to 15 characters.
SERVICES = frozenset(
    name[:15]
    for name in (
        "nvidia-cuda-mps-control",
        "nvidia-cuda-mps-server",
        "nvidia-persistenced",
        "nvidia-fabricmanager",
        "nv-fabricmanager",
        "nv-hostengine",
        "nvidia-imex",
        "nvsm_core",
        "dcgm-exporter",
        "dcgmi",
        "slurmd",
        "slurmstepd",
        "heeler-agent",
        "heeler-health",
    )
)


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc has it. Number and start together name it; a number alone may be used again."""

    pid: int
    start_ticks: int
    comm: str
    uid: int
    job: str | None = None
    unclear: str | None = None  # why its job can't be told
    gpus: tuple[str, ...] = ()


def read_process(pid: int, root: Path = Path("/"), gpus: Iterable[str] = ()) -> Process | None:
    """Return a process, None where it is gone."""
    folder = root / "proc" / str(pid)
    try:
        start, comm = _start_and_comm((folder / "stat").read_text(errors="replace"))
        uid = _uid((folder / "status").read_text(errors="replace"))
        job, unclear = _job(pid, root)
    except (OSError, ValueError, IndexError):
        return None
    return Process(pid, start, comm, uid, job, unclear, tuple(gpus))


def _job(pid: int, root: Path) -> tuple[str | None, str | None]:
    try:
        return Jobs(root).of(pid), None
    except AmbiguousError as err:
        return None, str(err)


def _start_and_comm(stat: str) -> tuple[int, str]:
    head, _, rest = stat.rpartition(")")  # the name may hold anything, brackets too
    return int(rest.split()[19]), head.partition("(")[2]


def _uid(status: str) -> int:
    line = next(line for line in status.splitlines() if line.startswith("Uid:"))
    return int(line.split()[1])


def is_service(comm: str) -> bool:
    """Say whether a name is that of a service that uses GPUs for others."""
    return comm[:15] in SERVICES


def why_not(process: Process, job: str, uid: int | None, own_pids: Collection[int] = ()) -> str | None:
    """Return why a process must not be ended for a job that has ended; None where it may be."""
    reasons: tuple[tuple[bool, str], ...] = (
        (process.pid <= 1 or process.pid in own_pids, "it is not a process of any job"),
        (is_service(process.comm), f"{process.comm} is a service"),
        (process.unclear is not None, f"its job can't be told: {process.unclear}"),
        (process.job is None, "it is in no job's cgroup"),
        (process.job != job, f"it belongs to job {process.job}"),
        (uid is None, "the job's user is not known"),
        (process.uid != uid, f"it runs as user {process.uid}, the job as {uid}"),
    )
    return next((words for holds, words in reasons if holds), None)


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that was sent signals, and whether it is gone."""

    process: Process
    gone: bool
    signals: tuple[str, ...] = ()


Read = Callable[[int], Process | None]


def end(targets: Sequence[Process], read: Read, *, term_s: float = 5.0, kill_s: float = 5.0) -> list[Ended]:
    """End processes: SIGTERM, and after `term_s` SIGKILL to those still there. Takes `term_s + kill_s` at most.

    A handle is opened first, then the process is read again: what the handle stands for is then what was chosen, and
    the signal goes to the handle, never to a number. `read` gives a process as it is now, with its job.
    """
    with ExitStack() as stack:
        handles: dict[Process, int] = {}
        gone: list[Ended] = []
        for target in targets:
            handle = _open(target.pid)
            if handle is not None:
                stack.callback(os.close, handle)
            if handle is not None and _same(target, read(target.pid)):
                handles[target] = handle
            else:
                gone.append(Ended(target, gone=True))
        sent: dict[Process, list[str]] = {target: [] for target in handles}
        for number, wait_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, kill_s)):
            left = [target for target in handles if not _ended(handles[target])]
            for target in left:
                if _same(target, read(target.pid)):
                    with suppress(OSError):  # gone meanwhile
                        signal.pidfd_send_signal(handles[target], number)
                        sent[target].append(number.name)
            _wait([handles[target] for target in left], wait_s)
        ended = [Ended(target, _ended(handles[target]), tuple(sent[target])) for target in handles]
    return sorted([*gone, *ended], key=lambda one: one.process.pid)


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _same(target: Process, now: Process | None) -> bool:
    """Say whether a process is the one that was chosen, still in the same job."""
    return now is not None and (now.pid, now.start_ticks, now.job, now.uid) == (
        target.pid,
        target.start_ticks,
        target.job,
        target.uid,
    )


def _ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))


def _wait(handles: Sequence[int], wait_s: float) -> None:
    until = time.monotonic() + wait_s
    left = list(handles)
    while left and (rest := until - time.monotonic()) > 0:
        poll = select.poll()
        for handle in left:
            poll.register(handle, select.POLLIN)
        ready = {handle for handle, _ in poll.poll(rest * 1000)}
        left = [handle for handle in left if handle not in ready]
