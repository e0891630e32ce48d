"""When cumulative values began to count."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from otlpsamples import T0, WINDOW, agent_status, job_sample

from heeler.otlp.map import agent_points, gpu_points
from heeler.otlp.points import Points
from heeler.otlp.starts import Starts


def at(window: int, energy: float | None = None, errors: int | None = None, **changes: Any) -> Points:
    last = {"energy_j": [energy], "ecc_corrected_volatile": [errors]}
    return gpu_points(job_sample(gpus=1, window=window, last=last, **changes))


def start_of(points: Points, metric: str) -> int:
    found: int = next(p["start_ts"] for p in points.flat() if p["metric"] == metric)
    return found


def run(starts: Starts, *points: Points) -> list[Points]:
    for one in points:
        starts.fill(one)
    return list(points)


def test_a_series_starts_where_it_was_first_seen_and_stays_there() -> None:
    first, second = run(Starts(), at(0, 10, 1), at(1, 20, 1))
    assert start_of(first, "hw.energy") == start_of(second, "hw.energy") == T0


def test_a_value_that_falls_starts_its_series_anew_and_no_other() -> None:
    *_, last = run(Starts(), at(0, 10, 5), at(1, 20, 5), at(2, 3, 5), at(3, 9, 5))
    assert start_of(last, "hw.energy") == T0 + WINDOW
    assert start_of(last, "hw.errors") == T0
    assert start_of(last, "hw.gpu.memory.usage") == T0


def test_a_boot_starts_all_series_of_the_node_anew() -> None:
    *_, last = run(Starts(), at(0, 10, 5), at(1, 20, 5), at(2, 30, 5, boot="b2"))
    assert start_of(last, "hw.energy") == start_of(last, "hw.errors") == T0 + WINDOW


def test_a_boot_forgets_earlier_resets() -> None:
    *_, last = run(Starts(), at(0, 10, 5), at(1, 2, 5), at(2, 30, 5, boot="b2"))
    assert start_of(last, "hw.energy") == start_of(last, "hw.errors") == T0 + WINDOW


def test_a_reading_that_is_missing_hides_no_reset() -> None:
    *_, last = run(Starts(), at(0, 10, 5), at(1, None, 5), at(2, 3, 5))
    assert start_of(last, "hw.energy") == T0 + WINDOW


def test_a_late_or_repeated_sample_is_no_reset() -> None:
    _, _, again, late, last = run(Starts(), at(1, 10, 5), at(3, 20, 5), at(3, 20, 5), at(2, 15, 5), at(4, 30, 5))
    assert {start_of(one, "hw.energy") for one in (again, late, last)} == {T0 + WINDOW}


def test_a_sample_from_before_the_first_one_starts_no_later_than_itself() -> None:
    _, late = run(Starts(), at(5, 10, 5), at(2, 5, 5))
    assert start_of(late, "hw.energy") == T0 + 2 * WINDOW


def test_a_job_that_ends_is_no_reset() -> None:
    _, last = run(Starts(), at(0, 10, 5), at(1, 20, 5, job=[None], jobs={}))
    assert start_of(last, "hw.energy") == T0


def test_columns_may_come_and_go() -> None:
    starts = Starts()
    run(starts, at(0, 10, 5))
    other = gpu_points(job_sample(gpus=1, window=1, last={"ecc_corrected_volatile": [2]}))
    starts.fill(other)
    assert start_of(other, "hw.errors") == T0


def test_an_agents_counters_start_with_the_agent() -> None:
    starts = Starts()
    first, second = agent_points(agent_status()), agent_points(agent_status(ts=T0 + 9 * WINDOW, started_ts=T0 + 7))
    run(starts, first, second)
    assert start_of(first, "heeler.agent.dropped_samples") == T0 - 5 * WINDOW
    assert start_of(second, "heeler.agent.dropped_samples") == T0 + 7


def test_memory_is_bounded_by_components_not_by_jobs() -> None:
    starts = Starts(most=100)
    for number in range(300):
        starts.fill(at(number, number, 1, job=[str(number)], jobs={}))
    assert len(starts) == 1
    for number in range(300):
        starts.fill(at(0, 1, 1, node=f"n{number}"))
    assert len(starts) == 100


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, 50), st.sampled_from(["b1", "b2"]))))
def test_no_history_makes_a_point_that_ends_before_it_starts(history: list[tuple[int, int | None, str]]) -> None:
    starts = Starts()
    for window, energy, boot in history:
        points = at(window, energy, 1, boot=boot)
        starts.fill(points)
        assert all(0 < p["start_ts"] <= p["ts"] for p in points.flat() if "start_ts" in p)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=30))
def test_rising_values_in_any_order_have_one_start_each_but_for_the_early_ones(windows: list[int]) -> None:
    starts = Starts()
    first = windows[0]
    for window in windows:
        points = at(window, 100 + window, 1)
        starts.fill(points)
        assert start_of(points, "hw.energy") == T0 + min(first, window) * WINDOW
