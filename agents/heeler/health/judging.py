"""From facts to results: every chosen check says something, whatever happened to its probe or its judge."""

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heeler.health.model import Case, Check, Outcome, Unread, Verdict, unknown
from heeler.health.runner import Read

JUDGE_S = 1.0  # a judge only looks at values


@dataclass(frozen=True, slots=True)
class Chosen:
    """A check that is to be run, with its settings."""

    check: Check
    settings: Any


@dataclass(frozen=True, slots=True)
class Result:
    """What a check said, and how it went."""

    check: Check
    verdict: Verdict
    duration_ns: int = 0
    timed_out: bool = False
    hung: bool = False


class _TooSlowError(Exception):
    """A judge that does not come to an end."""


def judge_all(chosen: Sequence[Chosen], read: Mapping[str, Read], case: Case) -> list[Result]:
    """Return one result for each check, in order. Never raises for what a judge does."""
    return [_judge(one, read.get(one.check.probe.name), case) for one in chosen]


def off(check: Check, why: str) -> Result:
    """Return the result of a check that the policy has switched off: it is neither good nor bad."""
    return Result(check, Verdict(Outcome.OFF, why))


def _judge(one: Chosen, read: Read | None, case: Case) -> Result:
    check = one.check
    if read is None:
        return Result(check, unknown("not read"))
    if isinstance(read.facts, Unread):
        kind = read.facts.kind
        return Result(
            check,
            unknown(f"could not be read: {read.facts.why}"),
            read.duration_ns,
            timed_out=kind == "timeout",
            hung=kind == "hung",
        )
    try:
        with _at_most(JUDGE_S):
            verdict = check.judge(read.facts, one.settings, case)
    except _TooSlowError:
        verdict = unknown(f"its judge did not come to an end in {JUDGE_S:g} s")
    except Exception as err:  # noqa: BLE001 - a bug of one check must not cost the others
        verdict = unknown(f"its judge failed: {type(err).__name__}: {err}"[:300])
    if not isinstance(verdict, Verdict) or not isinstance(verdict.outcome, Outcome):
        verdict = unknown(f"its judge returned {verdict!r:.100}")
    return Result(check, replace(verdict, why=verdict.why or "no words"), read.duration_ns)


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def late(_signal: int, _frame: Any) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
