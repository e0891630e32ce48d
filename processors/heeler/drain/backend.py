"""What carries the drainer's decisions to a cluster: one small protocol, and what any of them may say.

`heeler.drain.scontrol` is the command line, `heeler.drain.slurmrest` slurmrestd.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from heeler.bus.lease import Lease
from heeler.drain.node import NodeView
from heeler.drain.requeue import HeldJob
from heeler.slurm.errors import SlurmError

log = structlog.get_logger("heeler.drain")

SPARE = 6  # this part of a lease must be left over the command's timeout before anything begins
LOOKS = 3  # readings of a node after a command, while Slurm does not answer


class LeaseTooShortError(SlurmError):
    """The command was not run: the lease would not have outlasted it."""


class NotSupportedError(SlurmError):
    """This way to Slurm has no such command."""


class NotOneNodeError(SlurmError):
    """A name that Slurm could take for an option, a list, or all nodes."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended; what it complained of, empty where it reported success."""

    problem: str = ""
    said: str = ""


class Slurm(Protocol):
    """A cluster's Slurm. A deadline is the end of the lease on the monotonic clock.

    Commands return whatever came of them. They raise LeaseTooShortError if the command was not run, SlurmError if it
    did not end in time or could not be started; after that only a look can tell.
    """

    @property
    def timeout_s(self) -> float:
        """Longest time one command may take."""
        ...

    async def show(self, name: str, now_ns: int) -> NodeView:
        """Return a node as it is now. Raises SlurmError."""
        ...

    async def drain(self, name: str, reason: str, deadline_s: float) -> Done:
        """Drain a node."""
        ...

    async def undrain(self, name: str, deadline_s: float) -> Done:
        """Give a node back to the jobs, whatever else its state is left as it is."""
        ...

    async def jobs_on(self, name: str) -> list[HeldJob]:
        """Return the jobs that a node has now. Raises SlurmError."""
        ...

    async def job(self, job_id: str) -> HeldJob | None:
        """Return a job; None where Slurm knows it no more. Raises SlurmError."""
        ...

    async def requeue(self, job: HeldJob, comment: str, deadline_s: float) -> Done:
        """Tell a job's owner by its comment, then requeue it."""
        ...


def enough(lease: Lease, timeout_s: float) -> bool:
    """Say whether a lease lasts for a command, with some to spare."""
    return lease.remaining_s >= timeout_s + lease.ttl_s / SPARE


async def look(slurm: Slurm, node: str, now_ns: Callable[[], int], again_s: float) -> NodeView:
    """Return a node after a command, trying some times. Raises SlurmError."""
    for _ in range(LOOKS - 1):
        try:
            return await slurm.show(node, now_ns())
        except SlurmError as err:
            log.warning("node_not_read", node=node, error=str(err))
            await asyncio.sleep(again_s)
    return await slurm.show(node, now_ns())
