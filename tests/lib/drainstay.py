"""A drained node and what may be known of it, for tests of what follows a drain."""

from typing import Any

from drainworld import CLUSTER, T0, S, policy

from heeler.drain.lifecycle import Move, Sight, Terms, next_move
from heeler.drain.node import NodeView
from heeler.drain.ownership import Mark
from heeler.drain.settings import Policy, load_policy
from heeler.drain.stay import Stay, Stays

REASON = "heeler:xid:xid-n001-79 GPU 3 on n001 has fallen off the bus (XID 79)"
MARK = Mark(REASON, "heeler", T0)
CHECKS = ("gpu_count", "gpu_row_remap_pending")


def verified(**more: Any) -> dict[str, Any]:
    """The action that begins a stay."""
    return said("drain", "verified", "hard_evidence", **{"advice": "reboot", "action": "drain_now", **more})


def said(step: str, verdict: str, rule: str = "by_policy", **more: Any) -> dict[str, Any]:
    """A DrainAction about the stay of n001."""
    number = more.get("round", 0)
    return {
        "v": 1,
        "cluster": CLUSTER,
        "id": f"xid-n001-79.{step}{number or ''}.{verdict}.{rule}.{more.pop('attempt', '')}",
        "finding_id": "xid-n001-79",
        "node": "n001",
        "ts": T0,
        "verdict": verdict,
        "dry_run": False,
        "why": "so",
        "rule": rule,
        "actor": "one",
        "kind": "xid",
        "step": step,
        "after": {"state": "idle", "flags": ["DRAIN"], "reason": REASON, "reason_user": "heeler", "reason_ts": T0},
        **more,
    }


def stay_after(*actions: dict[str, Any], first: dict[str, Any] | None = None) -> Stay:
    """The stay of n001 after these actions, a second apart."""
    stays = Stays()
    for second, action in enumerate((first or verified(), *actions)):
        stays.apply(action, T0 + second * S)
    return stays.by_node["n001"]


def view(state: str = "idle", *flags: str, **more: Any) -> NodeView:
    """The node as drained by us."""
    facts: dict[str, Any] = {"reason": REASON, "reason_user": "heeler", "reason_ts_ns": T0, "boot_ts_ns": T0 - 9 * S}
    return NodeView("n001", state, frozenset({"DRAIN", *flags}), T0 + S, **{**facts, **more})


def sight(node: NodeView | None = None, *, closed: bool = True, **more: Any) -> Sight:
    """What is known: an idle drained node whose finding is closed, unless told otherwise."""
    more.setdefault("confirmed", not closed)
    return Sight(node or view(), shown=more.pop("shown", True), closed=closed, **more)


def life(*, undrain: bool = True, checks: tuple[str, ...] = CHECKS, **more: Any) -> Policy:
    """A policy that gives nodes back."""
    table = {"undrain": undrain, "checks": list(checks), "check_interval_s": 60.0, **more}
    return load_policy(lifecycle=table)


def terms(found: Policy | None = None, *, dry_run: bool = False, hooks: tuple[str, ...] = ()) -> Terms:
    """What may be done."""
    found = found or life()
    return Terms(found.lifecycle, found.limits, dry_run, frozenset(hooks))


def move(stay: Stay, seen: Sight | None = None, may: Terms | None = None, at_s: float = 3600.0) -> Move | None:
    """The next move, an hour after the drain unless told otherwise."""
    return next_move(stay, seen or sight(), may or terms(), T0 + int(at_s * S))


def told(found: Move | None) -> tuple[str, str, str] | None:
    """Step, verdict and rule of a move."""
    return None if found is None else (found.step, found.verdict, found.rule)


ENDED = said("wait", "done", "jobs_ended")


def passed(number: int) -> dict[str, Any]:
    """A check that found the node healthy."""
    return said("check", "done", "check_passed", round=number)


def failed(number: int, rule: str = "check_bad") -> dict[str, Any]:
    """A check that did not."""
    return said("check", "failed", rule, round=number)


__all__ = ["CHECKS", "ENDED", "MARK", "REASON", "failed", "life", "move", "passed", "policy", "said", "sight", "terms"]
