"""Whatever operators and findings do: paused never acts, soft evidence waits for a yes, a repeat does nothing."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from drainmodel import NODES, OPS, Model
from drainorders import give, order
from drainworld import S
from hypothesis import given, settings
from hypothesis import strategies as st

from heeler.drain.explain import explain
from heeler.drain.settings import Policy
from heeler.engine import Inbound

MINUTE, HOUR = 60 * S, 3600 * S
FOR_EVER = 1 << 62
HANDS = st.one_of(
    st.tuples(st.just("pause"), st.sampled_from([None, 30.0, 600.0, 7200.0])),
    st.tuples(st.just("resume")),
    *[st.tuples(st.just("approve"), st.integers(0, 3)) for _ in range(3)],
    st.tuples(st.just("repeat"), st.integers(0, 9)),
    st.tuples(st.just("lag"), NODES),
    st.tuples(st.just("reset")),
)


def asks(policy: Policy) -> Policy:
    """The policy, with a person's yes for soft evidence."""
    rules = tuple(replace(rule, approval=True) if rule.evidence == "soft" else rule for rule in policy.rules)
    return replace(policy, rules=rules)


@dataclass
class Hands(Model):
    """A cluster with operators."""

    given: list[Inbound] = field(default_factory=list)
    paused_ns: int = 0  # until when
    approved: dict[str, int] = field(default_factory=dict)
    tripped: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cluster.step.policy = asks(self.cluster.step.policy)

    def restart(self) -> None:
        super().restart()
        self.cluster.step.policy = asks(self.cluster.step.policy)

    def check(self, actions: list[dict[str, Any]]) -> None:
        for action in actions:
            if action["verdict"] == "tripped":
                assert not self.tripped, "opened while it is open"
                self.tripped = True
        super().check([action for action in actions if action["verdict"] != "tripped"])

    def judge(self, action: dict[str, Any]) -> None:
        super().judge(action)
        assert action["ts"] >= self.paused_ns, "acted while it is paused"
        assert not self.tripped, "acted while the breaker is open"
        if action["rule"] == "soft_evidence":
            at = self.approved.get(action["finding_id"])
            assert at is not None, "acted on soft evidence without a person's yes"
            assert action["ts"] - at <= HOUR

    def do(self, op: tuple[Any, ...]) -> None:
        match op:
            case ("pause", for_s):
                self.order("pause", **({} if for_s is None else {"for_s": for_s}))
            case ("resume",):
                self.order("resume")
            case ("reset",):
                self.order("reset_breaker", breaker="drain")
            case ("approve", back) if self.findings:
                self.order("approve", finding_id=self.findings[-1 - back % len(self.findings)]["id"])
            case ("repeat", back) if self.given:
                self.repeat(self.given[-1 - back % len(self.given)])
            case _:
                super().do(op)
        told = explain(self.cluster.step.policy, self.cluster.world, self.name(1), self.now)
        assert told["outcome"] == "done"

    def order(self, what: str, **more: Any) -> None:
        """Give a command, and note what it must lead to by what it was answered."""
        self.now += 1
        message = order(what, self.now, f"c{len(self.given)}", **more)
        self.given.append(message)
        answer, *rest = give(self.cluster, message)
        assert rest == []
        done = answer["verdict"] == "ordered"
        if what == "pause":
            assert done
            self.paused_ns = answer.get("until_ts", FOR_EVER)
        elif what == "resume":
            assert done == (self.now < self.paused_ns)
            self.paused_ns = 0
        elif what == "reset_breaker":
            assert done == self.tripped
            self.tripped = False
        elif done:
            assert more["finding_id"] in self.open, "a yes to what is not open"
            self.approved[more["finding_id"]] = self.now

    def repeat(self, message: Inbound) -> None:
        """The same command comes again, now or after years: on another way, or from someone who kept it."""
        hand = self.cluster.world.hand
        before = hand.pack(), dict(hand.approvals), len(self.cluster.events)
        assert give(self.cluster, message, self.now) == []
        assert (hand.pack(), dict(hand.approvals), len(self.cluster.events)) == before


@pytest.mark.parametrize("dry_run", [False, True])
@settings(max_examples=60, deadline=None)
@given(size=st.sampled_from([4, 12, 60]), ops=st.lists(st.one_of(OPS, HANDS, HANDS), max_size=40))
def test_no_history_of_orders_and_findings_breaks_the_rules(
    dry_run: bool, size: int, ops: list[tuple[Any, ...]]
) -> None:
    model = Hands(size, dry_run, {"drained_ratio": 1.0})
    for op in ops:
        model.do(op)


def test_an_approval_lets_a_finding_through_once_and_a_repeat_after_a_resume_does_nothing() -> None:
    model = Hands(60, False, {})
    model.do(("lag", 1))
    assert model.drains == []
    model.do(("approve", 0))
    model.do(("wait", 2 * S))
    assert [drain["rule"] for drain in model.drains] == ["soft_evidence"]
    assert "approved by jane" in model.drains[0]["why"]
    model.do(("operator", 1, "resumes"))
    for op in (("repeat", 0), ("older", 0, "update"), ("wait", 45 * S), ("older", 0, "update"), ("approve", 0)):
        model.do(op)
    model.do(("wait", 25 * HOUR))
    model.do(("older", 0, "update"))
    model.do(("repeat", 0))
    assert len(model.drains) == 1


def test_an_approval_is_for_what_was_open_then_and_not_for_ever() -> None:
    model = Hands(60, False, {})
    model.do(("lag", 1))
    model.do(("pause", 7200.0))
    model.do(("approve", 0))
    model.do(("wait", 2 * HOUR))
    model.do(("older", 0, "update"))
    model.do(("wait", 2 * S))
    assert model.drains == [], "the approval has run out"


def test_the_pause_ends_by_itself_and_open_findings_are_answered_then() -> None:
    model = Hands(60, False, {})
    model.do(("pause", 30.0))
    model.do(("fault", 1))
    assert model.drains == []
    model.do(("wait", 45 * S))
    assert len(model.drains) == 1
