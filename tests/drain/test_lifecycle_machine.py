"""Hypothesis plays cluster, operator and misfortune: whatever comes, the drainer keeps its laws and comes to rest.

The drainer's parts are the real ones, over a site in memory (`drainsim`), which raises as soon as a law is broken: no
drain over another's, of a last node, over a budget or twice for a finding; none and no requeue for what is closed,
unconfirmed, or while an operator has stopped it; a node given back only if the drain is still ours, no job is left, and
a check was passed that was asked for since the drain, since the last finding here ended and since the last boot.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import structlog
from drainorders import order
from drainsim import CLOSED, LIFE, LIMITS, OURS, BrokenError, CrashError, Play
from drainworld import S, xid
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heeler.drain.settings import Policy, load_policy

NODES = st.sampled_from(["n001", "n002", "n003", "n004", "n005", "n006"])
RULES: list[dict[str, Any]] = [{"kind": "xid", "action": "drain_and_requeue", "evidence": "hard"}]


@pytest.fixture(autouse=True, scope="module")
def _silent() -> Iterator[None]:
    """A line for each step of some thousand plays helps nobody."""
    known = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**known)


@cache
def policy() -> Policy:
    """Two nodes drained at once, three an hour, at most two unavailable; between two checks something may happen."""
    limits = {**LIMITS, "drained_min": 2, "unavailable_min": 2, "attempts": 3, "retry_after_s": 5.0, "mass_nodes": 9}
    return load_policy(
        limits=limits,
        lifecycle={**LIFE, "check_interval_s": 30.0, "check_passes": 2, "check_fresh_s": 900.0},
        rules=RULES,
    )


class Lifecycle(RuleBasedStateMachine):
    """One cluster of six nodes, each with a job of its own at first."""

    def __init__(self) -> None:
        super().__init__()
        self.play = Play(policy(), nodes=6)
        for number, name in enumerate(self.site.nodes, 1):
            self.site.nodes[name] = replace(self.site.nodes[name], job=str(number))
        self.known: list[dict[str, Any]] = []  # all that was ever said of findings
        self.orders = 0
        self.steps = 0
        self.happens(lambda: None)

    @property
    def site(self) -> Any:
        return self.play.site

    def happens(self, what: Callable[[], Any]) -> None:
        """Let something happen, and all that follows; a process that dies meanwhile is started again."""

        def safely() -> None:
            try:
                what()
            except CrashError:
                self.play.drainer = None

        self.steps += 1
        self.play.go(safely)
        self.play.check()

    def do(self, *op: str) -> None:
        self.steps += 1
        self.play.do((op[0], op[1]))
        self.play.check()

    # Findings.

    @rule(node=NODES)
    def a_gpu_is_lost(self, node: str) -> None:
        self.a_job_suffers(node, named=False)

    @rule(node=NODES, named=st.just(True))
    def a_job_suffers(self, node: str, *, named: bool) -> None:
        if self.site.muted:
            return
        job = self.site.nodes[node].job
        name = f"f{len(self.site.findings)}"
        about = {"job_id": job, "jobs": [job]} if named and job else {}
        at = self.site.now + S
        finding = xid(node, at, id=name, first_ts=at, **about)
        self.known.append(dict(finding))
        self.happens(lambda: self.site.findings.update({name: finding}))

    @precondition(lambda self: any(f["state"] != CLOSED for f in self.site.findings.values()))
    @rule(pick=st.integers(0, 99))
    def a_finding_ends(self, pick: int) -> None:
        open_ = [name for name, finding in self.site.findings.items() if finding["state"] != CLOSED]
        name = open_[pick % len(open_)]
        self.do("close", name)
        self.known.append(dict(self.site.findings[name]))

    @precondition(lambda self: self.known)
    @rule(pick=st.integers(0, 99))
    def an_old_word_comes_again(self, pick: int) -> None:
        word = self.known[pick % len(self.known)]

        def come() -> None:
            if self.play.drainer is not None:
                self.play.drainer.take("Finding", word, self.site.now)

        self.happens(come)

    @precondition(lambda self: any(row.user == OURS for row in self.site.nodes.values()))
    @rule(pick=st.integers(0, 9))
    def the_trouble_of_a_drained_node_is_over(self, pick: int) -> None:
        ours = [name for name, row in self.site.nodes.items() if row.user == OURS]
        self.its_job_ends(node := ours[pick % len(ours)])
        for name, finding in list(self.site.findings.items()):
            if finding["node"] == node:
                self.do("close", name)

    @precondition(lambda self: any(row.user == OURS for row in self.site.nodes.values()))
    @rule(pick=st.integers(0, 9))
    def more_trouble_of_a_drained_node_comes_and_goes(self, pick: int) -> None:
        ours = [name for name, row in self.site.nodes.items() if row.user == OURS]
        known = len(self.site.findings)
        self.a_gpu_is_lost(ours[pick % len(ours)])
        if len(self.site.findings) > known:
            self.do("close", list(self.site.findings)[-1])

    @rule(muted=st.sampled_from([False, False, True]))
    def detect_is_silent_or_speaks(self, muted: bool) -> None:
        self.site.muted = muted
        self.happens(lambda: None)

    # The cluster.

    @rule(node=NODES)
    def its_job_ends(self, node: str) -> None:
        row = self.site.nodes[node]
        if row.state == "allocated":
            self.happens(lambda: self.site.nodes.update({node: replace(row, state="idle", job="")}))

    @rule(node=NODES, what=st.sampled_from(["ops drain", "ops resume", "ops resume", "down"]))
    def an_operator_or_a_failure(self, node: str, what: str) -> None:
        self.do(what, node)
        if what == "down":
            self.site.nodes[node] = replace(self.site.nodes[node], job="")

    @rule(node=NODES)
    def it_boots(self, node: str) -> None:
        def boot() -> None:
            self.site.now += 100 * S
            self.site.nodes[node] = replace(self.site.nodes[node], state="idle", job="", boot=self.site.now)
            self.site.trouble(node)

        self.happens(boot)

    @rule(word=st.sampled_from(["ok", "ok", "bad", "silent"]))
    def nodes_answer(self, word: str) -> None:
        self.do("answer", word)

    # Operators.

    @rule(what=st.sampled_from(["resume", "reset_breaker", "resume", "reset_breaker", "pause", "trip_breaker"]))
    def an_order(self, what: str) -> None:
        self.orders += 1
        about = {"breaker": "drain"} if what.endswith("breaker") else {}

        def give() -> None:
            self.site.now += S
            if self.play.drainer is not None:
                message = order(what, self.site.now, f"c{self.orders}", **about)
                drainer = self.play.drainer
                drainer.handle([event for _, event in drainer.keyed.on(message)])

        self.happens(give)

    # Misfortune.

    @rule(span_s=st.sampled_from([-90, 60, 200, 1000, 4000]))
    def the_clock_jumps(self, span_s: int) -> None:
        self.happens(lambda: setattr(self.site, "now", self.site.now + span_s * S))

    @rule()
    def it_is_started_anew(self) -> None:
        self.play.drainer = None
        self.happens(lambda: None)

    @rule(calls=st.integers(1, 12), done=st.booleans())
    def it_will_die(self, calls: int, done: bool) -> None:
        self.site.crash = (self.site.calls + calls, done)

    # What must hold at rest, besides what the site itself watches.

    @invariant()
    def nothing_grows_without_bound(self) -> None:
        site = self.site
        assert len(site.bucket) <= len(site.nodes), "one intent for a node"
        by_finding: dict[str, int] = {}
        for action in site.actions.values():
            if "finding_id" in action:
                by_finding[action["finding_id"]] = by_finding.get(action["finding_id"], 0) + 1
        assert max(by_finding.values(), default=0) <= 40 + 3 * self.steps, "words about one finding"
        if self.play.drainer is not None:
            world = self.play.drainer.world
            assert set(world.stays.by_node) <= set(site.nodes)
            assert len(world.cases) <= len(site.findings)

    @invariant()
    def what_is_ours_is_known(self) -> None:
        if self.play.drainer is None:
            return
        world = self.play.drainer.world
        for name, row in self.site.nodes.items():
            ours = row.drained and row.user == OURS
            assert not ours or name in world.stays.by_node, f"{name} is drained by us, and nobody looks after it"


# The same plays each time. To hunt, raise the number and leave `derandomize` out.
TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=30, stateful_step_count=40, deadline=None, derandomize=True)


def test_the_site_sees_a_broken_law() -> None:
    play = Play(policy(), nodes=6)
    play.site.findings["a"] = xid("n001", play.site.now, id="a")
    play.site.nodes["n001"] = replace(play.site.nodes["n001"], drained=True, reason="ADMIN: psu", user="ops")
    drain, back = play.site.drain("n001", "heeler:xid:a x", 0.0), play.site.undrain("n001", 0.0)
    for work in (drain, back):
        with pytest.raises(BrokenError):
            work.send(None)
