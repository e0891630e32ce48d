"""What a processor is: a pure step from the state of one key and a message to new state and events.

A step never logs, sleeps, awaits, reads a clock or the environment. Time comes as ``now_ns``, the bus server's
time. So the same step runs live, in tests and over a month of captured stream (`heeler replay`).

A state belongs to the engine and is handed to one step at a time, so a step may change it in place; what it
returns is the state from then on, and None forgets the key.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

from heeler.bus import ROUTES, Choice, TokenError, shard_of, unescape


@dataclass(frozen=True, slots=True)
class Inbound:
    """A checked message as it came from the bus (or from a capture)."""

    kind: str
    subject: str
    data: dict[str, Any]
    ts_ns: int  # the server's time stamp
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Event:
    """A message that a step wants on the bus.

    ``id`` derives from the cause, so that the same cause always gives the same id and twins are dropped;
    it is needed where the message's stream is written with ack. ``data`` is a message of the contract, or
    its bytes where the step has them already.
    """

    kind: str
    subject: str
    data: Mapping[str, Any] | bytes
    id: str = ""


@dataclass(frozen=True, slots=True)
class Input:
    """A kind of message that a step reads, and from where on.

    ``work``: a shared durable consumer (stateless steps) or the look-back (keyed steps).
    ``last``: the newest of each subject first, then all that follows, in every instance: context such as jobs.
    """

    kind: str
    mode: Literal["work", "last"] = "work"
    only: str = ""  # a part of its subjects, after the cluster's token

    @property
    def stream(self) -> str:
        """The stream to read."""
        route = ROUTES[self.kind]
        return route.last or route.stream if self.mode == "last" else route.stream

    @property
    def pattern(self) -> str:
        """The subjects to read, after the cluster's token."""
        return self.only or ROUTES[self.kind].pattern


Result = tuple[Any, Sequence[Event]]
NOTHING: tuple[Event, ...] = ()


class Step(Protocol):
    """A processor's decision. See the module's words for what it may do."""

    @property
    def name(self) -> str:
        """Name of the processor."""
        ...

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What it reads."""
        ...

    @property
    def tick_s(self) -> float | None:
        """How often `tick` is wanted, in the stream's time."""
        ...

    @property
    def memory_s(self) -> float:
        """How far back a cold start must read to reach the state of a warm one."""
        ...

    def keys(self, message: Inbound) -> Iterable[str]:
        """Return the keys whose state this message concerns; their shards follow from the text after the colon."""
        ...

    def on(self, key: str, state: Any, message: Inbound, now_ns: int) -> Result:
        """Return the key's new state and events after a message."""
        ...

    def tick(self, key: str, state: Any, now_ns: int) -> Result:
        """Return the key's new state and events after time has passed: silence is seen here."""
        ...


@runtime_checkable
class Sleeper(Protocol):
    """What a step has besides when many of its keys wait for nothing."""

    def asleep(self, state: Any) -> bool:
        """Say whether ticks do nothing for a key, but for forgetting it, until its next message."""
        ...


@runtime_checkable
class Chooser(Protocol):
    """What a step has besides when it needs little of large samples: the rest is not even decoded."""

    @property
    def choices(self) -> Mapping[str, Choice]:
        """What is needed, by kind of sample."""
        ...


def key_shard(key: str) -> int:
    """Return the shard of a key such as ``job:81234`` or ``node:n017``: that of the name after the colon."""
    return shard_of(key.partition(":")[2])


@runtime_checkable
class Timeless(Protocol):
    """What a step has besides when a wrong clock of the sender is itself news."""

    @property
    def any_clock(self) -> frozenset[str]:
        """Kinds of messages that it takes whatever time they claim."""
        ...


# What the tokens after the cluster say: two literal ones, or one before a parameter (finding.<kind>..., dead.<stream>).
_BY_TOKENS = {
    tuple(token for token in route.subject.split(".")[:2] if not token.startswith("<")): name
    for name, route in ROUTES.items()
}


@dataclass(frozen=True, slots=True)
class Address:
    """What a subject says: type of the message, cluster, and the name in its last token (None: no name of ours)."""

    kind: str
    cluster: str | None
    name: str | None


@lru_cache(maxsize=1 << 16)
def address_of(subject: str) -> Address | None:
    """Return what a subject says, or None for one that is not ours. A fleet's subjects are few and come often."""
    tokens = subject.split(".")
    if len(tokens) < 5 or tokens[:2] != ["heeler", "v1"]:
        return None
    kind = _BY_TOKENS.get((tokens[3], tokens[4])) or _BY_TOKENS.get((tokens[3],))
    return None if kind is None else Address(kind, _name(tokens[2]), _name(tokens[-1]))


def _name(token: str) -> str | None:
    try:
        return unescape(token)
    except TokenError:
        return None


def kind_of(subject: str) -> str | None:
    """Return the message type that a subject carries, or None for a subject that is not ours."""
    address = address_of(subject)
    return None if address is None else address.kind


@dataclass(slots=True)
class Counters:
    """What an engine counts; the names are those of its metrics."""

    received: int = 0
    events: int = 0
    dead: int = 0
    ignored: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def count(self, reason: str) -> None:
        """Count something by name."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
