"""What a run prints, and its exit status: for people, for Nagios, for Slurm's log, for programs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from heeler.health.letters import result_fields, run_fields
from heeler.health.model import Outcome, Phase
from heeler.health.verdict import AROUND_JOBS, NAGIOS, Judged, Run

WORDS = {0: "OK", 1: "WARNING", 2: "CRITICAL", 3: "UNKNOWN"}
_ORDER = (Outcome.BAD, Outcome.UNKNOWN, Outcome.WARN, Outcome.OK, Outcome.OFF)
_MAX_LINE = 1000


def exit_status(run: Run, phase: Phase, fail_status: int = 1) -> int:
    """Return the exit status: for Slurm 0 or `fail_status`, else that of a Nagios plug-in."""
    if phase in AROUND_JOBS or phase is Phase.TASK_PROLOG:
        return fail_status if run.verdict == "fail" and phase in AROUND_JOBS else 0
    return NAGIOS[run.worst]


def nagios(run: Run) -> str:
    """Return one line after the Nagios plug-in guidelines: status, words, and performance data behind a bar."""
    status = WORDS[NAGIOS[run.worst]]
    worst = [one for one in _sorted(run.results) if one.action == run.worst and run.worst != "ignore"]
    said = "; ".join(f"{one.result.check.name}: {one.result.verdict.why}" for one in worst) or run.why
    line = f"HEELER {status} - {_line(said)}"[:_MAX_LINE]
    data = " ".join(
        f"'{one.result.check.name}.{name}'={value:.10g}"
        for one in run.results
        for name, value in sorted(one.result.verdict.perf.items())
    )
    return f"{line} | {data}" if data else line


def lines(run: Run) -> list[str]:
    """Return a line for each check, the worst first, and a summary."""
    width = max((len(one.result.check.name) for one in run.results), default=0)
    rows = []
    for one in _sorted(run.results):
        verdict = one.result.verdict
        rows.append(f"{verdict.outcome.value.upper():<8} {one.result.check.name:<{width}}  {_line(verdict.why)}")
    return [*rows, f"{run.verdict}: {_line(run.why)}"]


def brief(run: Run) -> list[str]:
    """Return what Slurm's log gets: only what is not well, and the verdict."""
    rows = [
        f"heeler-health: {one.result.check.name}: {one.result.verdict.outcome.value}: {_line(one.result.verdict.why)}"
        for one in _sorted(run.results)
        if one.action != "ignore"
    ]
    return [*rows, f"heeler-health: {run.verdict}: {_line(run.why)}"]


def prints(run: Run) -> list[str]:
    """Return what a TaskProlog puts into the job's own output: Slurm prints lines that begin so."""
    return [
        f"print heeler: {one.result.check.name}: {_line(one.result.verdict.why)}"
        for one in _sorted(run.results)
        if one.action in ("warn", "fail")
    ]


def json_lines(run: Run, more: Mapping[str, Any]) -> list[str]:
    """Return one JSON object for each check and one for the run."""
    rows: list[Mapping[str, Any]] = [result_fields(one) for one in run.results]
    return [json.dumps(row, ensure_ascii=False) for row in [*rows, {**run_fields(run), **more}]]


def _sorted(results: Sequence[Judged]) -> list[Judged]:
    return sorted(results, key=lambda one: _ORDER.index(one.result.verdict.outcome))


def _line(text: str) -> str:
    """Return text on one line, without what ends a Nagios message."""
    return " ".join(text.split()).replace("|", "/")
