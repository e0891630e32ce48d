"""Entries that wait for their turn."""

from hypothesis import given
from hypothesis import strategies as st

from heeler.console.held import Held
from heeler.console.timeline import Entry


def entry(ts: int, says: str = "x", *, jobs: tuple[str, ...] = (), twin: str = "") -> Entry:
    return Entry(ts, "kernel", says, jobs=jobs, id=twin)


@given(st.lists(st.integers(0, 50)), st.integers(0, 20))
def test_the_newest_come_out_in_order_and_the_others_are_counted(times: list[int], most: int) -> None:
    held = Held(most)
    for ts in times:
        held.add(entry(ts), 0.0)
    kept = sorted(times)[-most:] if most else sorted(times)
    assert [one.ts for one in held.release(0.0)] == kept
    assert held.left_out == len(times) - len(kept)
    assert held.release(9.0) == []


def test_only_what_has_waited_long_enough_comes_out() -> None:
    held = Held(0)
    held.add(entry(3), 10.0)
    held.add(entry(1), 11.0)
    assert [one.ts for one in held.release(10.5)] == [3]
    assert [one.ts for one in held.release(11.0)] == [1]


def test_of_twins_the_one_with_jobs_is_told_once() -> None:
    held = Held(0)
    held.add(entry(1, "bare", twin="a"), 0.0)
    held.add(entry(1, "with", jobs=("7",), twin="a"), 0.0)
    held.add(entry(1, "bare", twin="a"), 0.0)
    assert [one.says for one in held.release(1.0)] == ["with"]


def test_a_twin_that_comes_after_its_telling_is_dropped() -> None:
    held = Held(0)
    held.add(entry(1, "bare", twin="a"), 0.0)
    assert len(held.release(1.0)) == 1
    held.add(entry(1, "with", jobs=("7",), twin="a"), 2.0)
    assert held.release(3.0) == []
