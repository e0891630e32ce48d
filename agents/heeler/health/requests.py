"""What a request for checks may get: pure, so that it can be tested that nothing else ever runs."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heeler.health.policy import Policy

MOST_CHECKS = 100
# What the node agent takes as the id of a run when it forwards the results.
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Grant:
    """The names that are run, or why nothing is."""

    names: tuple[str, ...] = ()
    why: str | None = None


def grant(request: Mapping[str, Any], policy: Policy, node: str, now_ns: int, *, busy: bool) -> Grant:
    """Return what is run for a request: names that the policy allows, all of them or nothing."""
    names = tuple(dict.fromkeys(request["checks"]))
    why = _unfit(request, names, node, now_ns)
    refused = [name for name in names if name not in policy.request]
    if why is None and refused:
        why = f"not allowed by the policy: {', '.join(refused)}"[:400]
    if why is None and busy:
        why = "busy: another run is under way"
    return Grant(names) if why is None else Grant(why=why)


def _unfit(request: Mapping[str, Any], names: Sequence[str], node: str, now_ns: int) -> str | None:
    """Return what is wrong with a request whatever the policy; None where nothing is."""
    if request["node"] != node:
        return f"this is {node}, not {request['node']}"
    if "id" in request and id_of(request) is None:
        return f"an id has letters, digits, - and _, up to 200, unlike {request['id'][:80]!r}"
    deadline = request.get("deadline_ts")
    if deadline is not None and deadline <= now_ns:
        return "the deadline has passed"
    if not names or len(names) > MOST_CHECKS:
        return f"{len(names)} checks asked for: from 1 to {MOST_CHECKS}"
    return None


def id_of(request: Mapping[str, Any]) -> str | None:
    """Return the id that who asks has chosen; None without one, or with one that can't name a run."""
    ident = request.get("id")
    return ident if isinstance(ident, str) and _ID.fullmatch(ident) else None


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
