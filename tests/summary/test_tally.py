"""Sums over GPU seconds: what was not observed is never idle, and nothing counts twice."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heeler.summary.tally import Coverage, Tally, amounts, tally_of, whole_rows

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted).map(tuple), max_size=30)
RATIO = st.one_of(st.none(), st.floats(0, 1))


@given(SPANS)
def test_a_second_counts_once_however_often_and_in_whatever_order_it_is_told(spans: list[tuple[int, int]]) -> None:
    cover = Coverage()
    counted = sum(cover.take(start, end) for start, end in spans)
    assert counted == len({second for start, end in spans for second in range(start, end)})
    assert cover.total() == counted
    assert all(cover.take(start, end) == 0 for start, end in spans)


def window(util: list[float | None], **more: Any) -> dict[str, Any]:
    return {"gpu": {"uuid": [f"GPU-{n}" for n in range(len(util))]}, "mean": {"util_ratio": util}, **more}


def flat(found: dict[str, Any]) -> dict[str, float]:
    parts = {key: value for key, value in found.items() if not isinstance(value, dict)}
    return parts | {
        f"{key}.{k}": v for key, value in found.items() if isinstance(value, dict) for k, v in value.items()
    }


@given(
    st.lists(st.tuples(st.lists(RATIO, min_size=1, max_size=8), st.floats(0.001, 60)), max_size=20),
    st.one_of(st.none(), st.floats(0, 20_000)),
)
@example([([0.0], 2.0)], 1.1e-308)
@example([([0.0, 1.0], 2.0)], 0.0)
def test_allocated_is_active_and_idle_and_unknown_whatever_was_observed(
    windows: list[tuple[list[float | None], float]], allocated: float | None
) -> None:
    tally = Tally()
    for util, seconds in windows:
        tally.add_window(window(util), range(len(util)), seconds)
    found = amounts(tally, allocated)
    assert 0 <= found["busy_gpu_s"] <= found["active_gpu_s"] + 1e-9
    if allocated is None:
        assert "unknown_gpu_s" not in found
        return
    parts = found["active_gpu_s"] + found["idle_gpu_s"] + found["unknown_gpu_s"]
    assert found["allocated_gpu_s"] == pytest.approx(parts)
    assert found["allocated_gpu_s"] == pytest.approx(allocated)
    assert found["unknown_gpu_s"] >= 0
    assert found["beyond_gpu_s"] == pytest.approx(max(0.0, tally.observed_s - allocated))
    back, again = tally_of(found)
    assert again == pytest.approx(allocated)
    assert back.observed_s == pytest.approx(tally.observed_s)
    if allocated > 0.1:
        assert (back.active_s, back.idle_s) == pytest.approx((tally.active_s, tally.idle_s))


@given(st.lists(st.lists(RATIO, min_size=3, max_size=3), min_size=2, max_size=10))
def test_sums_of_parts_are_the_sum(windows: list[list[float | None]]) -> None:
    whole, left, right = Tally(), Tally(), Tally()
    for at, util in enumerate(windows):
        whole.add_window(window(util), range(3), 10.0)
        (left if at % 2 else right).add_window(window(util), range(3), 10.0)
    left.add(right)
    assert flat(amounts(left, 600.0)) == pytest.approx(flat(amounts(whole, 600.0)))


def test_a_window_is_sorted_by_its_utilisation() -> None:
    tally = Tally()
    tally.add_window(window([0.0, 0.049, 0.05, 0.5, 1.0, None]), range(6), 10.0)
    assert (tally.idle_s, tally.active_s, tally.busy_s) == (20.0, 30.0, 20.0)
    assert amounts(tally, 60.0)["unknown_gpu_s"] == 10.0


def test_a_gpu_that_is_lost_is_unknown_and_told_apart() -> None:
    tally = Tally()
    tally.add_window(window([0.9, 0.9], state=["ok", "lost"]), range(2), 10.0)
    found = amounts(tally, 20.0)
    assert (found["active_gpu_s"], found["unknown_gpu_s"], found["lost_gpu_s"]) == (10.0, 10.0, 10.0)


def test_energy_and_means_are_over_what_could_be_read_alone() -> None:
    tally = Tally()
    sample = window([1.0, 1.0])
    sample["mean"] |= {"power_w": [600.0, None], "temp_c": [70.0, 80.0]}
    tally.add_window(sample, range(2), 10.0)
    found = amounts(tally, 20.0)
    assert (found["energy_j"], found["energy_gpu_s"]) == (6000.0, 10.0)
    assert found["means"] == {"util_ratio": 1.0, "power_w": 600.0}
    assert found["mean_gpu_s"] == {"util_ratio": 20.0, "power_w": 10.0}
    assert found["max"] == {"power_w": 600.0, "temp_c": 80.0}
    assert "energy_j" not in amounts(Tally(), 20.0)


def test_of_a_divided_gpu_its_devices_count_by_the_cycles_of_their_sms() -> None:
    sample = {
        "gpu": {"uuid": ["GPU-a", "MIG-1", "MIG-2", "GPU-b"], "parent": [None, "GPU-a", "GPU-a", None]},
        "mean": {"util_ratio": [None, None, None, 1.0], "sm_active_ratio": [0.5, 0.9, 0.0, 0.9]},
    }
    rows = whole_rows(sample, [0, 1, 2, 3])
    assert rows == [1, 2, 3]
    tally = Tally()
    tally.add_window(sample, rows, 10.0)
    assert (tally.active_s, tally.idle_s) == (20.0, 10.0)
