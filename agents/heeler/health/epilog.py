"""What an epilog does beside looking: it ends what the ended job left on its GPUs, where the site wants that."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heeler.health.leftover import Ended, Process, end, read_process, why_not
from heeler.health.model import Job

SPARE_S = 2.0
LEAST_S = 0.5


@dataclass(frozen=True, slots=True)
class KillSettings:
    """Whether leftover processes of the ended job are ended, and how patiently. Off unless the site says so."""

    enabled: bool = False
    term_s: float = 5.0
    kill_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was ended, and what was left alone and why."""

    ended: tuple[Ended, ...] = ()
    spared: tuple[tuple[Process, str], ...] = ()

    def killed(self) -> list[dict[str, Any]]:
        """Return what a HealthRun tells of those that were sent a signal."""
        return [
            {"pid": one.process.pid, "comm": one.process.comm, "job_id": one.process.job, "gone": one.gone}
            for one in self.ended
            if one.signals
        ]


def choose(
    processes: Sequence[Process], job: Job, own_pids: Sequence[int] = ()
) -> tuple[list[Process], list[tuple[Process, str]]]:
    """Return the processes on GPUs that may be ended for a job that has ended, and the others with the reason."""
    chosen, spared = [], []
    for process in processes:
        why = why_not(process, job.id, job.uid, own_pids)
        if why is None:
            chosen.append(process)
        else:
            spared.append((process, why))
    return chosen, spared


def clear(
    facts: Mapping[str, Any] | None, job: Job | None, settings: KillSettings, deadline: float, root: Path = Path("/")
) -> Cleared:
    """End the ended job's processes on all GPUs, within what is left until a deadline (monotonic, s).

    `facts` are those of the probe gpu_processes; None where it could not read, and then nothing is ended.
    """
    if facts is None or job is None or not settings.enabled:
        return Cleared()
    processes = [Process(**{**one, "gpus": tuple(one["gpus"])}) for one in facts["processes"]]
    chosen, spared = choose(processes, job, (os.getpid(), os.getppid()))
    left_s = deadline - time.monotonic() - SPARE_S
    if left_s < LEAST_S:
        return Cleared((), (*spared, *((one, "no time is left for it") for one in chosen)))
    term_s = min(settings.term_s, left_s / 2)
    kill_s = min(settings.kill_s, left_s / 2)
    ended = end(chosen, lambda pid: read_process(pid, root), term_s=term_s, kill_s=kill_s)
    return Cleared(tuple(ended), tuple(spared))
