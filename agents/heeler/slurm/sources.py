"""Ask for jobs and nodes: a complete answer, or an outage with its reason. There is nothing in between.

An outage is: a command that fails, hangs or is missing, an empty body, something that is no JSON, a status of
slurmrestd other than 200, and JSON with a filled list of errors. None of them says that there are no jobs.
"""

import time
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from heeler.slurm.clients import Clients, Way
from heeler.slurm.errors import ParseError, SlurmError
from heeler.slurm.jobs import JobsAnswer
from heeler.slurm.jobsjson import JobsReader, parse_jobs_json
from heeler.slurm.jobstext import ENVIRONMENT, JobsTextReader, argv, new_marks, parse_jobs_text
from heeler.slurm.nodes import NodesAnswer, parse_nodes_json, parse_nodes_text

Answer = TypeVar("Answer", JobsAnswer, NodesAnswer)

# states=all: without it newer versions leave out the jobs that have just ended, and with them how they ended.
JOBS_ARGV = ("squeue", "--all", "--states=all")


@dataclass(frozen=True, slots=True)
class Outage:
    """Slurm could not be asked, or gave no answer that can be believed."""

    why: str


@dataclass(frozen=True, slots=True)
class Polled(Generic[Answer]):
    """An answer or an outage, how it was asked, and how long that took."""

    answer: Answer | Outage
    source: str
    duration_ns: int


class Source(Protocol):
    """A way to ask Slurm. Neither method raises: what goes wrong is an outage."""

    async def jobs(self, now_ns: int = 0, *, with_table: bool = False) -> Polled[JobsAnswer]:
        """Ask for all jobs, with the table `jobs` as of `now_ns` where asked for."""
        ...

    async def nodes(self, *, with_table: bool = False) -> Polled[NodesAnswer]:
        """Ask for all nodes, with the table `nodes` where asked for."""
        ...


@dataclass(slots=True)
class SlurmSource:
    """Asks slurmrestd or Slurm's own commands, in the first way that this Slurm has."""

    clients: Clients

    async def jobs(self, now_ns: int = 0, *, with_table: bool = False) -> Polled[JobsAnswer]:
        """Ask for all jobs."""
        marks, zone = new_marks(), self.clients.zone

        def json(data: bytes) -> JobsAnswer:
            return parse_jobs_json(data, now_ns=now_ns, with_table=with_table)

        def text(data: bytes) -> JobsAnswer:
            return parse_jobs_text(data, marks, zone, now_ns=now_ns, with_table=with_table)

        read_json = partial(JobsReader, now_ns=now_ns, with_table=with_table)
        read_text = partial(JobsTextReader, marks, zone, now_ns=now_ns, with_table=with_table)
        ways: tuple[Way[JobsAnswer], ...] = (
            Way("rest", ("slurm", "jobs"), json),
            Way("json", JOBS_ARGV, json, reader=read_json),
            Way("text", argv(marks), text, env=ENVIRONMENT, reader=read_text),
        )
        return await self._polled(self.clients.ask("jobs", ways), JOBS_ARGV[0])

    async def nodes(self, *, with_table: bool = False) -> Polled[NodesAnswer]:
        """Ask for all nodes. A cluster without any is not believed."""
        zone = self.clients.zone

        def json(data: bytes) -> NodesAnswer:
            return _some(parse_nodes_json(data, with_table=with_table))

        def text(data: bytes) -> NodesAnswer:
            return _some(parse_nodes_text(data.decode(errors="replace"), zone, with_table=with_table))

        ways = (
            Way("rest", ("slurm", "nodes"), json),
            Way("json", ("scontrol", "--all", "show", "nodes"), json),
            Way("json", ("sinfo", "--all"), json),  # up to 22.05; later it lists groups of nodes
            Way("text", ("scontrol", "--all", "--details", "--oneliner", "show", "nodes"), text),
        )
        return await self._polled(self.clients.ask("nodes", ways), "scontrol")

    async def _polled(self, asking: Awaitable[Answer], program: str) -> Polled[Answer]:
        started = time.monotonic_ns()
        answer: Answer | Outage
        try:
            answer = await asking
        except SlurmError as err:
            answer = Outage(str(err))
        source = None if isinstance(answer, Outage) else answer.source
        return Polled(answer, source or program, time.monotonic_ns() - started)


def _some(answer: NodesAnswer) -> NodesAnswer:
    if not answer.nodes and not answer.unreadable:
        raise ParseError("an answer without any node", "")
    return answer
