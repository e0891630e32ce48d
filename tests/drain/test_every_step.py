"""Everything that can happen to two nodes and two findings, and a death at every step of the drainer.

The laws are in `drainsim.Site`: no foreign drain is touched, none is done twice, the budget holds, a node comes back
only if it is ours, empty, well and without findings; and at rest nothing is left that nobody reported.
"""

import logging
from collections import deque
from collections.abc import Iterator

import pytest
import structlog
from drainsim import OPS_ALL, Play, policy

pytestmark = pytest.mark.timeout(400)

Op = tuple[str, str]


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """A line for each step of some ten thousand plays helps nobody."""
    known = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**known)


DEPTH = 3  # things after the first: four in all
# What leads farthest in, each with what may come between.
ROADS: tuple[tuple[Op, ...], ...] = (
    (("find", "a"), ("jobs end", "n001"), ("close", "a")),
    (("jobs end", "n001"), ("find", "a"), ("find", "b"), ("close", "a"), ("close", "b")),
    (("find", "a"), ("jobs end", "n001"), ("answer", "bad"), ("close", "a"), ("ops resume", "n001"), ("find", "b")),
    (("find", "a"), ("jobs end", "n001"), ("answer", "silent"), ("close", "a"), ("answer", "ok")),
    (("find", "a"), ("ops drain", "n001"), ("jobs end", "n001"), ("close", "a")),
    (("find", "a"), ("jobs end", "n001"), ("find", "b"), ("close", "b"), ("close", "a")),
)


# Where a drainer that was away for a while comes to another end, and may: a finding that is closed by then is not
# answered any more, a node that answers by then is well. Of these only the laws are asked.
LATER_IS_ELSE = (ROADS[1], ROADS[3])


def play(road: tuple[Op, ...], where: tuple[str, str], crash: tuple[int, bool] | None = None) -> Play | None:
    """Play a road; None where a step of it can't be gone."""
    found = Play(policy(), where)
    found.site.crash = crash
    for op in road:
        if not found.do(op):
            return None
        found.check()
    found.rest()
    found.check()
    return found


@pytest.mark.parametrize("where", [("n001", "n002"), ("n001", "n001")])
def test_whatever_happens_in_any_order_no_law_is_broken(where: tuple[str, str]) -> None:
    seen: set[tuple[object, ...]] = set()
    waiting: deque[tuple[Op, ...]] = deque([()])
    played = 0
    while waiting:
        road = waiting.popleft()
        for op in OPS_ALL:
            found = play((*road, op), where)
            if found is None:
                continue
            played += 1
            if found.state in seen:
                continue
            seen.add(found.state)
            if len(road) < DEPTH:
                waiting.append((*road, op))
    assert played > 1000
    assert len(seen) > 200


@pytest.mark.parametrize("where", [("n001", "n002"), ("n001", "n001")])
@pytest.mark.parametrize("road", ROADS)
def test_a_death_at_any_step_breaks_no_law_and_ends_as_if_there_had_been_none(
    road: tuple[Op, ...], where: tuple[str, str]
) -> None:
    calm = play(road, where)
    assert calm is not None
    deaths = 0
    for call in range(1, calm.site.calls + 1):
        for done in (False, True):
            found = play(road, where, (call, done))
            assert found is not None
            deaths += found.site.crashed
            if road in LATER_IS_ELSE:
                continue
            assert found.site.drained_for == calm.site.drained_for
            assert {n: (r.drained, r.user) for n, r in found.site.nodes.items()} == {
                n: (r.drained, r.user) for n, r in calm.site.nodes.items()
            }
    assert deaths >= calm.site.calls


@pytest.mark.parametrize(("first", "second"), [(n, m) for n in (2, 4, 6, 8) for m in (1, 3, 5, 9)])
def test_two_deaths_one_after_the_other_break_no_law(first: int, second: int) -> None:
    road = ROADS[0]
    found = Play(policy())
    for done in (False, True):
        found = Play(policy())
        found.site.crash = (first, done)
        for op in road:
            found.do(op)
            if found.site.crashed == 1 and found.site.crash is None:
                found.site.crash = (found.site.calls + second, not done)
            found.check()
        assert found.site.drained_for == ["a"]
