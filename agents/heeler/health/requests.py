"""What a request for checks may get: pure, so that it can be tested that nothing else ever runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heeler.health.policy import Policy

MOST_CHECKS = 100


@dataclass(frozen=True, slots=True)
class Grant:
    """The names that are run, or why nothing is."""

    names: tuple[str, ...] = ()
    why: str | None = None


def grant(request: Mapping[str, Any], policy: Policy, node: str, now_ns: int, *, busy: bool) -> Grant:
    """Return what is run for a request: names that the policy allows, all of them or nothing."""
    if request["node"] != node:
        return Grant(why=f"this is {node}, not {request['node']}")
    deadline = request.get("deadline_ts")
    if deadline is not None and deadline <= now_ns:
        return Grant(why="the deadline has passed")
    names = tuple(dict.fromkeys(request["checks"]))
    if not names or len(names) > MOST_CHECKS:
        return Grant(why=f"{len(names)} checks asked for: from 1 to {MOST_CHECKS}")
    refused = [name for name in names if name not in policy.request]
    if refused:
        return Grant(why=f"not allowed by the policy: {', '.join(refused)}"[:400])
    if busy:
        return Grant(why="busy: another run is under way")
    return Grant(names)


def answer_of(head: Mapping[str, Any], output: bytes, rc: int | None, node: str, now_ns: int) -> dict[str, Any]:
    """Return the HealthRun that answers, out of what a run has printed as JSON lines."""
    try:
        rows = [json.loads(line) for line in output.splitlines() if line.strip()]
    except ValueError:
        rows = []
    run, results = (rows[-1], rows[:-1]) if rows else (None, [])
    if not isinstance(run, dict) or "verdict" not in run:
        why = "the run was ended at its deadline" if rc is None else f"the run ended with {rc} and without a word"
        return refusal(head, why, node, now_ns)
    known = {key: value for key, value in run.items() if value is not None}
    return {**head, **known, "node": node, "ts": now_ns, "results": _plain(results)}


def refusal(head: Mapping[str, Any], why: str, node: str, now_ns: int) -> dict[str, Any]:
    """Return the HealthRun that says that nothing was run, or nothing came of it."""
    return {**head, "node": node, "ts": now_ns, "verdict": "refused", "why": why}


def _plain(results: Sequence[Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if value is not None} for row in results if isinstance(row, dict)]
