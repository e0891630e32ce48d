"""Asking a drained node whether it is well: the request, and what its answer is worth. Pure.

Only `pass` with every check that was asked for, each of them ok, is healthy. What a check can't tell, a check that did
not run, and no answer at all are unknown; and unknown is never healthy.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

SHOWN = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a check."""

    health: Literal["healthy", "bad", "unknown"]
    why: str
    results: Mapping[str, str] = field(default_factory=dict)  # check -> outcome

    @property
    def verdict(self) -> str:
        """The verdict of the DrainAction that tells it."""
        return "done" if self.health == "healthy" else "failed"

    @property
    def rule(self) -> str:
        """The rule of the DrainAction that tells it."""
        return {"healthy": "check_passed", "bad": "check_bad", "unknown": "check_unknown"}[self.health]


def run_id(finding_id: str, number: int, now_ns: int) -> str:
    """Return the id of a request: letters and digits, and another for each time it is asked."""
    return "drain-" + hashlib.sha256(f"{finding_id}.{number}.{now_ns}".encode()).hexdigest()[:24]


def request(
    cluster: str, node: str, checks: Sequence[str], run: str, why: str, now_ns: int, timeout_s: float
) -> dict[str, Any]:
    """Return a HealthRequest."""
    return {
        "v": 1,
        "cluster": cluster,
        "node": node,
        "ts": now_ns,
        "id": run,
        "checks": list(checks),
        "why": why[:200],
        "deadline_ts": now_ns + int(timeout_s * 1e9),
    }


def judge(run: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> Answer:
    """Return what a HealthRun is worth as the answer to a request; None: nobody answered."""
    why = _unfit(run, asked)
    if run is None or why is not None:
        return Answer("unknown", why or "no answer")
    results = {str(one.get("check")): str(one.get("outcome")) for one in run.get("results") or ()}
    bad = sorted(name for name, outcome in results.items() if outcome in ("bad", "warn"))
    if bad:
        return Answer("bad", f"{run['node']} is not well: {_words(run, bad)}", results)
    unsure = sorted(name for name in asked["checks"] if results.get(name) != "ok")
    unsure += sorted(name for name, outcome in results.items() if outcome != "ok" and name not in unsure)
    if unsure:
        told = ", ".join(f"{name} {results.get(name, 'did not run')}" for name in unsure[:SHOWN])
        return Answer("unknown", f"{run['node']} can't tell: {told}", results)
    if run["verdict"] != "pass":
        return Answer("unknown", f"{run['node']} says {run['verdict']}: {run['why']}", results)
    return Answer("healthy", f"{run['node']} passed {', '.join(sorted(results))}", results)


def _unfit(run: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> str | None:
    """Return why something is no answer to a request at all; None where it is one."""
    if run is None:
        return f"{asked['node']} did not answer: no heeler-health serve there, or not in time"
    if (run["cluster"], run["node"], run["run"]) != (asked["cluster"], asked["node"], asked["id"]):
        return f"the answer is about run {run['run']!r} of {run['node']}, not about what was asked"
    return f"{run['node']} refused: {run['why']}" if run["verdict"] == "refused" else None


def _words(run: Mapping[str, Any], bad: Sequence[str]) -> str:
    told = {str(one.get("check")): one for one in run.get("results") or ()}
    return "; ".join(f"{name} {told[name].get('outcome')}: {told[name].get('why', '')}"[:200] for name in bad[:SHOWN])
