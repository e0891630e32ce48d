"""What the drainer answers to a question. Pure."""

from collections.abc import Mapping
from typing import Any

from heeler.drain.explain import explain
from heeler.drain.settings import Policy
from heeler.drain.standing import standing
from heeler.drain.world import World


def reply(
    policy: Policy,
    world: World,
    question: Mapping[str, Any],
    now_ns: int,
    about: Mapping[str, Any],
    hooks: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the keys of the answer; ``about`` is what only the instance itself knows."""
    if question["about"] == "status":
        return {"outcome": "done", "why": "so it stands", "standing": {**standing(policy, world, now_ns), **about}}
    if question["about"] == "explain" and "name" in question:
        return explain(policy, world, question["name"], now_ns, hooks)
    return {"outcome": "refused", "rule": "unknown_question", "why": "not a question that this drainer knows"}
