"""One point per series and interval."""

from hypothesis import given, settings
from hypothesis import strategies as st
from otlpsamples import T0, WINDOW, job_sample

from heeler.otlp.map import gpu_points
from heeler.otlp.sampler import Sampler
from heeler.otlp.starts import Starts


def test_without_an_interval_everything_passes() -> None:
    points = gpu_points(job_sample())
    assert Sampler(0).thin(points) is points


def test_one_sample_of_each_interval_passes() -> None:
    sampler = Sampler(60)
    passed = [window for window in range(18) if sampler.thin(gpu_points(job_sample(window=window)))]
    assert passed == [0, 6, 12]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 40)))
def test_never_two_points_of_a_gpu_in_one_interval_whatever_the_order(windows: list[int]) -> None:
    sampler = Sampler(60)
    passed = []
    for window in windows:
        points = sampler.thin(gpu_points(job_sample(window=window)))
        if points is not None:
            passed.append(points.ts_ns // 60_000_000_000)
    assert passed == sorted(set(passed))


def test_gpus_that_are_due_pass_alone() -> None:
    sampler = Sampler(60)
    sampler.thin(gpu_points(job_sample(gpus=1)))
    points = gpu_points(job_sample(gpus=2, window=1))
    Starts().fill(points)
    thinned = sampler.thin(points)
    assert thinned is not None
    assert thinned.ids == ["GPU-n1-1"]
    assert {p["attributes"]["hw.id"] for p in thinned.flat()} == {"GPU-n1-1"}
    assert {p["value"] for p in thinned.flat() if p["metric"] == "hw.power"} == {403.0}
    assert all(p["start_ts"] == T0 + WINDOW for p in thinned.flat() if "start_ts" in p)


def test_memory_is_bounded() -> None:
    sampler = Sampler(60, most=10)
    for number in range(50):
        sampler.thin(gpu_points(job_sample(f"n{number}")))
    assert len(sampler._seen) == 10
