"""What operators have told the drainer: a pause, breakers, approvals. Pure values.

Every part is the newest word about its own matter, so that words may come twice, late and in any order, from the
stream or from the bucket, and every instance ends with the same. Times are the bus server's.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self, TypeVar

DRAIN, PROLOG = "drain", "prolog"
BREAKERS = (DRAIN, PROLOG)


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause, or (``on`` is False) its end."""

    at_ns: int
    on: bool
    actor: str
    why: str = ""
    until_ns: int | None = None  # None: until it is resumed

    def holds(self, now_ns: int) -> bool:
        """Say whether nothing may be done now."""
        return self.on and (self.until_ns is None or now_ns < self.until_ns)


@dataclass(frozen=True, slots=True)
class Switch:
    """A breaker that was opened or closed, by a person or (the drainer's own) by the drainer."""

    at_ns: int
    on: bool  # open: nothing passes
    actor: str
    why: str = ""
    dry_run: bool = False  # opened by a dry run, whose drains are only proposed: it does not bind an armed drainer


@dataclass(frozen=True, slots=True)
class Approval:
    """An operator's yes to one finding."""

    at_ns: int
    actor: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a command."""

    at_ns: int
    verdict: str
    rule: str
    why: str


@dataclass(slots=True)
class Hand:
    """All that operators have said that still matters."""

    pause: Pause | None = None
    breakers: dict[str, Switch] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)  # by finding
    answered: dict[str, Answered] = field(default_factory=dict)  # by id of the DrainAction

    def paused(self, now_ns: int) -> Pause | None:
        """Return the pause that holds now, or None."""
        return self.pause if self.pause is not None and self.pause.holds(now_ns) else None

    def tripped(self, *, dry_run: bool) -> Switch | None:
        """Return the drainer's own breaker where it is open, or None."""
        switch = self.breakers.get(DRAIN)
        return switch if switch is not None and switch.on and (dry_run or not switch.dry_run) else None

    def approval(self, finding: Mapping[str, Any], now_ns: int, lasts_ns: int) -> Approval | None:
        """Return the approval that is good for a finding now: one given since it began, and not long ago."""
        given = self.approvals.get(finding["id"])
        if given is None or given.at_ns < finding["first_ts"] or now_ns - given.at_ns > lasts_ns:
            return None
        return given

    def apply(self, action: Mapping[str, Any]) -> None:
        """Take in a DrainAction; those that say nothing of this change nothing."""
        command, verdict, at_ns = action.get("command"), action["verdict"], action["ts"]
        actor, why = action["actor"], action["why"]
        if verdict == "tripped":
            self.switch(action.get("breaker", DRAIN), Switch(at_ns, True, actor, why, action["dry_run"]))
            return
        if command is None:
            return
        self.answered[action["id"]] = Answered(at_ns, verdict, action.get("rule", ""), why)
        if verdict != "ordered":
            return
        if command in ("pause", "resume"):
            self.set_pause(Pause(at_ns, command == "pause", actor, why, action.get("until_ts")))
        elif command in ("trip_breaker", "reset_breaker") and action.get("breaker") in BREAKERS:
            self.switch(action["breaker"], Switch(at_ns, command == "trip_breaker", actor, why))
        elif command == "approve" and "finding_id" in action:
            known = self.approvals.get(action["finding_id"])
            if known is None or known.at_ns < at_ns:
                self.approvals[action["finding_id"]] = Approval(at_ns, actor, why)

    def set_pause(self, new: Pause) -> None:
        """Take in a pause or its end; of two of the same moment the one that stops counts."""
        if self.pause is None or _newer(new, self.pause):
            self.pause = new

    def switch(self, name: str, new: Switch) -> None:
        """Take in that a breaker was opened or closed; of two of the same moment the one that stops counts."""
        known = self.breakers.get(name)
        if known is None or _newer(new, known):
            self.breakers[name] = new

    def forget(self, before_ns: int) -> None:
        """Forget answers and approvals from before; a pause and breakers stay for ever."""
        self.answered = {name: one for name, one in self.answered.items() if one.at_ns >= before_ns}
        self.approvals = {name: one for name, one in self.approvals.items() if one.at_ns >= before_ns}

    def merge(self, other: "Hand") -> None:
        """Take in what is kept elsewhere of the pause and the breakers."""
        if other.pause is not None:
            self.set_pause(other.pause)
        for name, switch in other.breakers.items():
            self.switch(name, switch)

    def pack(self) -> dict[str, Any]:
        """Return what has to outlive every instance and every stream, for the bucket."""
        return {
            "pause": asdict(self.pause) if self.pause is not None else None,
            "breakers": {name: asdict(switch) for name, switch in sorted(self.breakers.items())},
        }

    @classmethod
    def unpack(cls, found: Mapping[str, Any]) -> Self:
        """Return what was packed. Raises ValueError."""
        try:
            pause = None if found["pause"] is None else _made(Pause, found["pause"])
            breakers = {name: _made(Switch, found["breakers"][name]) for name in found["breakers"] if name in BREAKERS}
        except (TypeError, KeyError, AttributeError) as err:
            raise ValueError(f"not what operators said: {err!r}") from None
        return cls(pause, breakers)


T = TypeVar("T", "Pause", "Switch")


def _newer(one: Pause | Switch, than: Pause | Switch) -> bool:
    return (one.at_ns, one.on) > (than.at_ns, than.on)


def _made(kind: type[T], found: Mapping[str, Any]) -> T:
    one = kind(**{f.name: found[f.name] for f in fields(kind)})
    until_ns = getattr(one, "until_ns", None)
    whole = type(one.at_ns) is int and type(one.on) is bool and (until_ns is None or type(until_ns) is int)
    if not whole or not isinstance(one.actor, str) or not isinstance(one.why, str):
        raise TypeError(f"{kind.__name__}: {dict(found)!r}"[:200])
    return one
