"""What a rule of single GPUs is: it looks at a sample of a node, and says of each GPU what is wrong with it.

A rule holds no state, so one object serves all nodes; what it has seen stands in `hardware`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from heeler.detect.findings import Evidence
from heeler.detect.marks import Patience
from heeler.detect.node_context import NodeContext

Advice = Literal["observe", "person", "drain_after_job"]


@dataclass(frozen=True, slots=True)
class Sight:
    """Something wrong with one GPU in one sample. `amount`: how much of it, where that adds up."""

    cause: str
    words: str
    evidence: list[Evidence]
    amount: float = 1.0
    confidence: float = 0.8
    severity: str = "warning"
    drains: bool = False  # grave enough to drain for, once it has lasted


@dataclass(slots=True)
class Reading:
    """A sample of some GPUs of a node, and the one before it."""

    sample: Mapping[str, Any]
    before: Mapping[str, Any] | None  # its `last`, of the same GPUs and boot
    passed_ns: int  # between the two
    node: NodeContext
    now_ns: int

    def last(self, name: str, at: int) -> Any:
        """Return a state or counter of one GPU; None where it was not read."""
        column = self.sample["last"].get(name)
        return None if column is None else column[at]

    def mean(self, name: str, at: int) -> Any:
        """Return the mean of a GPU's readings; None where there are none."""
        column = self.sample["mean"].get(name)
        return None if column is None else column[at]

    def growth(self, name: str, at: int) -> float | None:
        """Return by how much a counter grew; None where that is not known, or it was reset."""
        now, column = self.last(name, at), None if self.before is None else self.before.get(name)
        before = None if column is None else column[at]
        return None if now is None or before is None or now < before else float(now - before)

    def grew(self, names: Sequence[str]) -> bool:
        """Say whether any GPU's counter of these changed: quick, for the many samples in which none did."""
        if self.before is None:
            return False
        last, before = self.sample["last"], self.before
        return any(last.get(name) != before.get(name) for name in names)


class Rule(ABC):
    """One kind of trouble that a GPU itself tells of. `patience`: when it is said and when it is over."""

    kind: ClassVar[str]  # of its finding
    states: ClassVar[tuple[str, ...]] = ()  # columns that hardly ever change: while they don't, `odd` stays False

    def __init__(self, patience: Patience) -> None:
        self.patience = patience

    def hot(self, sample: Mapping[str, Any]) -> bool:  # noqa: ARG002 - most ask for nothing besides
        """Say whether what moves all the time is where it should not be."""
        return False

    @abstractmethod
    def odd(self, reading: Reading) -> bool:
        """Say whether any GPU may be in trouble. False costs no more."""

    @abstractmethod
    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Return what is wrong with one GPU, False where nothing is, None where that can't be said."""

    @abstractmethod
    def advice(self, lasted_s: float, sights: Sequence[Sight], gpus: int) -> Advice:
        """Return what to do about the GPUs in trouble, of so many on the node."""


class DrainRule(Rule):
    """Trouble for which a node is drained in the end, where few of its GPUs have it.

    One bad GPU among good ones is its own fault; many at once are the room, the board, the driver or the power.
    """

    def __init__(self, patience: Patience, drain_after_s: float, few_share: float) -> None:
        super().__init__(patience)
        self.drain_after_s, self.few_share = drain_after_s, few_share

    def advice(self, lasted_s: float, sights: Sequence[Sight], gpus: int) -> Advice:
        """Advise a drain for what is grave, has lasted, and is no matter of the whole node."""
        few = len(sights) <= max(1, self.few_share * gpus) and gpus > 1
        grave = lasted_s >= self.drain_after_s and any(sight.drains for sight in sights)
        return "drain_after_job" if few and grave else "observe"


class RuleSet:
    """The rules of single GPUs, the same for all nodes. `more`: states that others of the node look at."""

    def __init__(self, rules: Sequence[Rule], more: Iterable[str] = ()) -> None:
        self.rules = tuple(rules)
        self.kinds = frozenset(rule.kind for rule in rules)
        self.states = tuple(dict.fromkeys((*(name for rule in rules for name in rule.states), *more)))
        self.hot = tuple(rule.hot for rule in rules if type(rule).hot is not Rule.hot)

    def shown(self, sample: Mapping[str, Any]) -> list[Any]:
        """Return what hardly ever changes: while it doesn't, only what is hot can be news."""
        return [sample["gpu"]["uuid"], sample.get("state"), *map(sample["last"].get, self.states)]

    def is_hot(self, sample: Mapping[str, Any]) -> bool:
        """Say whether anything that moves all the time is where it should not be."""
        for hot in self.hot:  # noqa: SIM110 - `any` costs three times as much
            if hot(sample):
                return True
        return False


def memory_s(rules: Sequence[Rule]) -> float:
    """Return how far back a cold start must read for some rules: one sample more than they look back."""
    return max(rule.patience.memory_s for rule in rules) + 60.0
