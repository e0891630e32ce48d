"""The ways to ask Slurm: slurmrestd, its commands with ``--json``, its commands as text.

    answer = await clients.ask("partitions", (
        Way("rest", ("slurm", "partitions"), parse_json),
        Way("json", ("scontrol", "show", "partitions"), parse_json),     # --json is added
        Way("text", ("scontrol", "--all", "--oneliner", "show", "partitions"), parse_text),
    ))

The first way that this Slurm has is kept for that question. A way that is not there (an old command without
``--json``, no slurmrestd) gives the word to the next; what a controller says that is away does not.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Generic, Literal, TypeVar

from heeler.slurm.command import Completed, run_slurm_async, slurm_env
from heeler.slurm.errors import CommandFailedError, ParseError, SlurmError
from heeler.slurm.settings import SlurmSettings

Answer = TypeVar("Answer")
Kind = Literal["rest", "json", "text"]

NO_SUCH_OPTION = ("unrecognized option", "invalid option", "unknown option")


@dataclass(frozen=True, slots=True)
class Way(Generic[Answer]):
    """One way to ask. `parse` reads what came, in a thread of its own, and raises ParseError.

    rest: `question` is ("slurm" or "slurmdb", path behind the version). json: argv without ``--json``. text: argv.
    """

    kind: Kind
    question: tuple[str, ...]
    parse: Callable[[bytes], Answer]
    timeout_s: float | None = None  # that of the settings otherwise


@dataclass(slots=True)
class Clients:
    """Asks. Never more than what a caller awaits: who asks one after the other has one question under way."""

    settings: SlurmSettings = field(default_factory=SlurmSettings)
    source: str = ""  # the way of the last answer, for the messages
    memory: dict[str, Any] = field(default_factory=dict)  # a collector's own, by its name: what it asked for before
    _kept: dict[str, int] = field(default_factory=dict)

    @property
    def zone(self) -> tzinfo:
        """The controller's zone: text answers don't say it."""
        return self.settings.zone()

    async def run(self, argv: Sequence[str], timeout_s: float | None = None) -> Completed:
        """Run one of Slurm's commands. Raises SlurmError, also for an exit status other than 0."""
        env = slurm_env(bin_dir=self.settings.bin_dir, conf=self.settings.conf)
        limit = self.settings.timeout_s if timeout_s is None else timeout_s
        return (await run_slurm_async(argv, limit, env)).check()

    async def ask(self, name: str, ways: Sequence[Way[Answer]]) -> Answer:
        """Ask in the first way that this Slurm has; which one is kept under `name`. Raises SlurmError."""
        usable = [way for way in ways if self._is_wanted(way)]
        if not usable:
            raise ParseError("no way to ask", f"{name} from {self.settings.source}")
        first = self._kept.get(name, 0)
        error: SlurmError | None = None
        for turn in range(len(usable)):
            at = (first + turn) % len(usable)
            try:
                answer = await self._ask(usable[at])
            except SlurmError as err:
                if not is_missing_feature(err):
                    raise
                error = error or err
                continue
            self._kept[name] = at
            return answer
        assert error is not None
        raise error

    def _is_wanted(self, way: Way[Any]) -> bool:
        return way.kind != "rest" and self.settings.source in ("auto", way.kind)

    async def _ask(self, way: Way[Answer]) -> Answer:
        argv = (*way.question, "--json") if way.kind == "json" else way.question
        done = await self.run(argv, way.timeout_s)
        answer = await asyncio.to_thread(way.parse, done.stdout)
        self.source = " ".join((argv[0], *(word for word in argv[1:] if word.startswith("--json"))))
        return _with_source(answer, self.source)


def _with_source(answer: Answer, source: str) -> Answer:
    """Write down how it was asked, where the answer has a place for that."""
    if getattr(answer, "source", "") is None:
        return replace(answer, source=source)  # type: ignore[type-var]
    return answer


def is_missing_feature(error: Exception) -> bool:
    """Whether this version of Slurm can't be asked so, but perhaps in another way."""
    if isinstance(error, CommandFailedError):
        return any(words in error.stderr for words in NO_SUCH_OPTION)
    return isinstance(error, ParseError) and error.what.startswith("no list of ")


def environment(settings: SlurmSettings) -> Mapping[str, str]:
    """Return the environment of Slurm's commands under these settings."""
    return slurm_env(bin_dir=settings.bin_dir, conf=settings.conf)
