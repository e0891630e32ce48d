"""One node as Slurm has it, and whether it may be touched at all."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

WORKING = frozenset({"idle", "allocated", "mixed"})
POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP", "POWER_DRAIN"})
PLANNED = frozenset({"MAINTENANCE", "MAINT", "REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED"})
RESERVED = frozenset({"RESERVED", "RES"})
BROKEN = frozenset({"FAIL", "NOT_RESPONDING", "NO_RESPOND", "INVALID", "INVALID_REG", "BLOCKED", "EXTERNAL"})
BENIGN = frozenset({"CLOUD", "COMPLETING", "PLANNED", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "PERFCTRS", "REBOOT_CANCELED"})

_KNOWN = POWER | PLANNED | RESERVED | BROKEN | BENIGN | {"DRAIN"}
# One plain name: no list, no range, no option, and not Slurm's word for every node.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

Condition = Literal["up", "drained", "broken", "powered_down", "planned", "reserved", "unknown"]


def is_plain_name(name: str) -> bool:
    """Say whether a name can stand for one node only on a command line of Slurm."""
    return _PLAIN.fullmatch(name) is not None and name.upper() != "ALL"


@dataclass(frozen=True, slots=True)
class NodeView:
    """What Slurm said of a node, and when the bus server (or a live reading) had it."""

    name: str
    state: str
    flags: frozenset[str]
    seen_ns: int
    reason: str | None = None
    reason_user: str | None = None
    reason_ts_ns: int | None = None
    partitions: tuple[str, ...] | None = None  # None: not known
    features: tuple[str, ...] = ()
    reservation: str | None = None
    boot_ts_ns: int | None = None

    @classmethod
    def of(cls, message: Mapping[str, Any], seen_ns: int) -> "NodeView":
        """Return the view of a checked NodeState."""
        partitions = message.get("partitions")
        return cls(
            name=message["node"],
            state=message["state"],
            flags=frozenset(flag.upper() for flag in message["flags"]),
            seen_ns=seen_ns,
            reason=message.get("reason") or None,
            reason_user=message.get("reason_user") or None,
            reason_ts_ns=message.get("reason_ts") or None,
            partitions=None if partitions is None else tuple(partitions),
            features=tuple(message.get("features", ())),
            reservation=message.get("reservation") or None,
            boot_ts_ns=message.get("boot_ts"),
        )

    @property
    def draining(self) -> bool:
        """Say whether the node takes no new jobs because someone drained it."""
        return "DRAIN" in self.flags

    def record(self) -> dict[str, Any]:
        """Return what a DrainAction keeps of this view."""
        kept = {
            "state": self.state,
            "flags": sorted(self.flags),
            "reason": self.reason,
            "reason_user": self.reason_user,
            "reason_ts": self.reason_ts_ns,
            "boot_ts": self.boot_ts_ns,
        }
        return {key: value for key, value in kept.items() if value is not None}

    def words(self) -> str:
        """Return state and flags as Slurm would write them."""
        return "+".join([self.state.upper(), *sorted(self.flags)])


def condition(view: NodeView, benign: Collection[str] = ()) -> Condition:
    """Return the one word that budgets need: planned absence first, then trouble, then the unknown."""
    flags = view.flags
    signs: tuple[tuple[Condition, object], ...] = (
        ("powered_down", flags & POWER),
        ("planned", flags & PLANNED),
        ("broken", view.state in ("down", "error") or flags & BROKEN),
        ("drained", view.draining),
        ("unknown", view.state not in WORKING or flags - _KNOWN - frozenset(benign)),
        ("reserved", flags & RESERVED or view.reservation),
    )
    return next((word for word, sign in signs if sign), "up")


def untouchable(view: NodeView, benign: Collection[str] = ()) -> tuple[str, str] | None:
    """Return (rule, why) of a node that must be left as it is, or None."""
    if not is_plain_name(view.name):
        return "node_name", f"{view.name!r} is not one plain node name"
    found = condition(view, benign)
    if found != "up":
        return _RULES[found], f"{view.name} is {_WORDS[found]} ({view.words()}{_note(view)})"
    if view.reason is not None:
        return "foreign_reason", f"{view.name} bears a reason that is not ours{_note(view)}"
    return None


_RULES: dict[str, str] = {
    "drained": "already_drained",
    "broken": "node_down",
    "powered_down": "node_powered_down",
    "planned": "node_maintenance",
    "reserved": "node_reserved",
    "unknown": "node_state_unknown",
}
_WORDS: dict[str, str] = {
    "drained": "already drained",
    "broken": "down or not responding",
    "powered_down": "powered down or on its way",
    "planned": "in planned maintenance",
    "reserved": "reserved",
    "unknown": "in a state that is not known here",
}


def _note(view: NodeView) -> str:
    if view.reason is None:
        return ", no reason given" if view.draining else ""
    return f", reason {view.reason[:120]!r} by {view.reason_user or 'nobody known'}"
