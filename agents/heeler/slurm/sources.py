"""Ask Slurm: a complete answer, or an outage with its reason. There is nothing in between.

An outage is: a command that fails, hangs or is missing, an empty body, something that is no JSON, and JSON with a
filled list of errors. None of them says that there are no jobs.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Generic, Protocol, TypeVar

from heeler.slurm.command import Completed, run_slurm_async, slurm_env
from heeler.slurm.errors import CommandFailedError, ParseError, SlurmError
from heeler.slurm.jobs import JobsAnswer, parse_jobs_json
from heeler.slurm.nodes import NodesAnswer, parse_nodes_json, parse_nodes_text
from heeler.slurm.times import local_zone

Answer = TypeVar("Answer")

# states=all: without it newer versions leave out the jobs that have just ended, and with them how they ended.
JOBS_ARGV = ("squeue", "--all", "--states=all", "--json")
NO_SUCH_OPTION = ("unrecognized option", "invalid option", "unknown option")


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

    async def jobs(self) -> Polled[JobsAnswer]:
        """Ask for all jobs."""
        ...

    async def nodes(self) -> Polled[NodesAnswer]:
        """Ask for all nodes."""
        ...


@dataclass(frozen=True, slots=True)
class _Way:
    argv: tuple[str, ...]
    parse: Callable[[Completed], NodesAnswer]


@dataclass(slots=True)
class SlurmClients:
    """Asks through Slurm's own commands.

    `bin_dir` goes first in PATH, `conf` is SLURM_CONF. `zone` is the controller's, which text answers don't say.
    """

    bin_dir: str | None = None
    conf: str | None = None
    timeout_s: float = 30.0
    zone: tzinfo = field(default_factory=local_zone)
    _way: int = 0  # of asking for nodes: the last that worked

    async def jobs(self) -> Polled[JobsAnswer]:
        """Ask squeue."""
        started = time.monotonic_ns()
        answer = await self._ask(JOBS_ARGV, lambda done: parse_jobs_json(done.stdout))
        return Polled(_believed(answer), JOBS_ARGV[0], time.monotonic_ns() - started)

    async def nodes(self) -> Polled[NodesAnswer]:
        """Ask for nodes in the first way that this version of Slurm has; which one is kept."""
        started = time.monotonic_ns()
        ways = self._ways()
        answer: NodesAnswer | Exception = ParseError("no way to ask for nodes", "")
        for turn in range(len(ways)):
            at = (self._way + turn) % len(ways)
            answer = await self._ask(ways[at].argv, ways[at].parse)
            if isinstance(answer, NodesAnswer):
                self._way = at
                break
            if not _is_missing_feature(answer):
                break  # a controller that is away is so for every command
        if isinstance(answer, NodesAnswer) and not answer.nodes and not answer.unreadable:
            answer = ParseError("an answer without any node", ways[self._way].argv[0])
        return Polled(_believed(answer), ways[self._way].argv[0], time.monotonic_ns() - started)

    def _ways(self) -> tuple[_Way, ...]:
        def json(done: Completed) -> NodesAnswer:
            return parse_nodes_json(done.stdout)

        def text(done: Completed) -> NodesAnswer:
            return parse_nodes_text(done.text, self.zone)

        return (
            _Way(("scontrol", "--all", "show", "nodes", "--json"), json),
            _Way(("sinfo", "--all", "--json"), json),  # up to 22.05; later it lists groups of nodes
            _Way(("scontrol", "--all", "--details", "--oneliner", "show", "nodes"), text),
        )

    async def _ask(self, argv: tuple[str, ...], parse: Callable[[Completed], Answer]) -> Answer | Exception:
        try:
            env = slurm_env(bin_dir=self.bin_dir, conf=self.conf)
            done = (await run_slurm_async(argv, self.timeout_s, env)).check()
            return await asyncio.to_thread(parse, done)
        except SlurmError as err:
            return err


def _believed(answer: Answer | Exception) -> Answer | Outage:
    return Outage(str(answer)) if isinstance(answer, Exception) else answer


def _is_missing_feature(error: Exception) -> bool:
    """Whether this version of Slurm can't be asked so, but perhaps in another way."""
    if isinstance(error, CommandFailedError):
        return any(words in error.stderr for words in NO_SUCH_OPTION)
    return isinstance(error, ParseError) and error.what.startswith("no list of nodes")
