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
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar

import structlog

from heeler.slurm.command import Completed, Take, run_slurm_async, slurm_env
from heeler.slurm.errors import CommandFailedError, OutageError, ParseError, RestError, SlurmError
from heeler.slurm.rest import NEWEST, Rest
from heeler.slurm.settings import SlurmSettings

log = structlog.get_logger("heeler.slurm")

Answer = TypeVar("Answer")
Made_co = TypeVar("Made_co", covariant=True)
Kind = Literal["rest", "json", "text"]

NO_SUCH_OPTION = ("unrecognized option", "invalid option", "unknown option", "Unknown field")
REPROBE_S = 600.0  # so that a slurmrestd that was away is used again
TAIL = 4096  # bytes of an answer's beginning and end in which its version stands
ASKS_MORE = 40  # from v0.0.40 on slurmrestd takes parameters, and 22.05 refuses a question that has some
_DATA_PARSER = re.compile(rb"data_parser/v0\.0\.(\d{1,3})")


class Reader(Protocol[Made_co]):
    """Takes an answer in pieces as it comes."""

    def feed(self, data: bytes | memoryview, /) -> None:
        """Take a piece. Raises nothing: what is wrong is said at the end."""
        ...

    def result(self) -> Made_co:
        """Return what it says. Raises ParseError."""
        ...


@dataclass(frozen=True, slots=True)
class Way(Generic[Answer]):
    """One way to ask. `parse` reads what came, in a thread of its own, and raises ParseError.

    rest: `question` is ("slurm" or "slurmdb", path behind the version, and what v0.0.40 and newer must be asked beside
    it to tell what the older ones tell unasked). json: argv without ``--json``. text: argv.
    """

    kind: Kind
    question: tuple[str, ...]
    parse: Callable[[bytes], Answer]
    timeout_s: float | None = None  # that of the settings otherwise
    reader: Callable[[], Reader[Answer]] | None = None  # in the place of `parse`, for what a command prints
    env: Mapping[str, str] | None = None  # added to the command's environment


@dataclass(frozen=True, slots=True)
class _Kept:
    way: int
    since_s: float


@dataclass(slots=True)
class Clients:
    """Asks. Never more than what a caller awaits: who asks one after the other has one question under way."""

    settings: SlurmSettings = field(default_factory=SlurmSettings)
    cluster: str = ""  # the bus's, for collectors that publish other messages than tables
    source: str = ""  # the way of the last answer, for the messages
    memory: dict[str, Any] = field(default_factory=dict)  # a collector's own, by its name: what it asked for before
    release: str | None = None  # of the Slurm that answered last
    rest: Rest | None = field(init=False)
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _json: str = "--json"
    _told: str = ""

    def __post_init__(self) -> None:
        chosen = self.settings
        wanted = chosen.rest_url is not None and chosen.source in ("auto", "rest")
        self.rest = (
            Rest(chosen.rest_url, chosen.rest_user, chosen.token_file, chosen.rest_ca)
            if wanted and chosen.rest_url is not None
            else None
        )

    @property
    def zone(self) -> tzinfo:
        """The controller's zone: text answers don't say it."""
        return self.settings.zone()

    async def run(
        self,
        argv: Sequence[str],
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        answer: bytes = b"",
        take: Take | None = None,
    ) -> Completed:
        """Run one of Slurm's commands; `answer` is for one that asks back, `take` gets what it prints as it comes.

        Raises SlurmError, also for an exit status other than 0.
        """
        limit = self.settings.timeout_s if timeout_s is None else timeout_s
        env = {**environment(self.settings), **(env or {})}
        return (await run_slurm_async(argv, limit, env, answer, take)).check()

    async def ask(self, name: str, ways: Sequence[Way[Answer]]) -> Answer:
        """Ask in the first way that this Slurm has; which one is kept under `name`. Raises SlurmError."""
        usable = [way for way in ways if self._is_wanted(way)]
        if not usable:
            raise ParseError("no way to ask", f"{name} from {self.settings.source}")
        kept = self._kept.get(name)
        first = kept.way if kept is not None and time.monotonic() - kept.since_s < REPROBE_S else 0
        errors: list[SlurmError] = []
        for turn in range(len(usable)):
            at = (first + turn) % len(usable)
            try:
                answer = await self._ask(usable[at])
            except SlurmError as err:
                errors.append(err)
                if not is_missing_feature(err) and not self._may_fall_back(usable[at]):
                    break
                continue
            if kept is None or kept.way != at or first != kept.way:
                self._tell(name, usable[at], errors)
                self._kept[name] = _Kept(at, time.monotonic())
            self._note(answer)
            return answer
        raise _worst(errors)

    def _tell(self, name: str, way: Way[Any], errors: Sequence[SlurmError]) -> None:
        """Say once that a slurmrestd was wanted and did not answer: the commands hide what is wrong with it."""
        why = "; ".join(str(err) for err in errors if isinstance(err, RestError) and not is_missing_feature(err))
        if why and why != self._told:
            log.warning("asked_otherwise", question=name, way=way.kind, error=why)
        self._told = why

    def _is_wanted(self, way: Way[Any]) -> bool:
        return self.settings.source in ("auto", way.kind) and (way.kind != "rest" or self.rest is not None)

    def _may_fall_back(self, way: Way[Any]) -> bool:
        """Whether another way may have an answer where this one has none: a slurmrestd may be away by itself."""
        return way.kind == "rest" and self.settings.source == "auto"

    async def _ask(self, way: Way[Answer]) -> Answer:
        if way.kind == "rest":
            return await self._ask_rest(way)
        if way.kind == "json":
            return await self._ask_json(way)
        _, read = await self._run(way, way.question)
        return await self._read(read, way.question[0])

    async def _run(self, way: Way[Answer], argv: Sequence[str]) -> tuple[Completed, Callable[[], Answer]]:
        """Run a way's command; return it, and what reads its answer."""
        if way.reader is None:
            done = await self.run(argv, way.timeout_s, way.env)
            return done, partial(way.parse, done.stdout)
        reader = way.reader()
        return await self.run(argv, way.timeout_s, way.env, take=reader.feed), reader.result

    async def _ask_json(self, way: Way[Answer]) -> Answer:
        done, read = await self._run(way, (*way.question, self._json))
        try:
            answer = await self._read(read, f"{way.question[0]} {self._json}")
        except ParseError:
            # Newer than what is known here, and other than that: the same Slurm can speak an older version too.
            if self._json != "--json" or (newest_version(done.stdout) or 0) <= NEWEST:
                raise
            self._json = f"--json=v0.0.{NEWEST}"
            _, read = await self._run(way, (*way.question, self._json))
            answer = await self._read(read, f"{way.question[0]} {self._json}")
        return answer

    async def _ask_rest(self, way: Way[Answer]) -> Answer:
        assert self.rest is not None, "only asked for where there is one"
        api, path, *more = way.question
        limit = self.settings.timeout_s if way.timeout_s is None else way.timeout_s
        try:
            version = await _in_thread(self.rest, lambda rest: rest.version(api, limit))
            if more and int(version.rpartition(".")[2]) >= ASKS_MORE:
                path += more[0]
            body = await _in_thread(self.rest, lambda rest: rest.get(f"/{api}/{version}/{path}", limit))
        except RestError as err:
            if err.status == 404:
                self.rest.forget_version()
            raise
        return await self._read(partial(way.parse, body), f"slurmrestd {version}")

    async def _read(self, read: Callable[[], Answer], source: str) -> Answer:
        answer = await asyncio.to_thread(read)
        self.source = source
        return _with_source(answer, source)

    def _note(self, answer: Any) -> None:
        """After a change of Slurm's version all ways are tried anew."""
        release = getattr(answer, "version", None)
        if release is None or release == self.release:
            return
        if self.release is not None:
            self._kept.clear()
            self._json = "--json"
            if self.rest is not None:
                self.rest.forget_version()
        self.release = release


async def _in_thread(rest: Rest, work: Callable[[Rest], Any]) -> Any:
    """Work without blocking the loop; the question ends when this is cancelled."""
    try:
        return await asyncio.to_thread(work, rest)
    except asyncio.CancelledError:
        rest.cancel()
        raise


def _with_source(answer: Answer, source: str) -> Answer:
    """Write down how it was asked, where the answer has a place for that."""
    if getattr(answer, "source", "") is None:
        return replace(answer, source=source)  # type: ignore[type-var]
    return answer


def _worst(errors: Sequence[SlurmError]) -> SlurmError:
    """Return one error for all. That a command lacks an option is said only where nothing else is wrong."""
    real = [err for err in errors if not (isinstance(err, CommandFailedError) and is_missing_feature(err))]
    if len(real) > 1:
        return OutageError("; ".join(dict.fromkeys(map(str, real))))
    return real[0] if real else errors[0]


def newest_version(data: bytes) -> int | None:
    """Return the version of the data parser that wrote a JSON answer, where it says so."""
    found = _DATA_PARSER.search(data, max(len(data) - TAIL, 0)) or _DATA_PARSER.search(data, 0, TAIL)
    return int(found[1]) if found else None


def is_missing_feature(error: Exception) -> bool:
    """Whether this Slurm can't be asked so, but perhaps in another way."""
    if isinstance(error, CommandFailedError):
        return any(words in error.stderr for words in NO_SUCH_OPTION)
    if isinstance(error, RestError):
        return error.status == 404
    return isinstance(error, ParseError) and error.what.startswith("no list of ")


def environment(settings: SlurmSettings) -> dict[str, str]:
    """Return the environment of Slurm's commands under these settings."""
    return slurm_env(bin_dir=settings.bin_dir, conf=settings.conf)
