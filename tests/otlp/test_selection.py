"""Which metrics go out when nobody has said which."""

import pytest
from catalogue import every_point
from goldens import good
from otlplab import all_acked, exporting, publish, to
from otlpsamples import job_sample
from queries import metrics_of, queries
from waiting import until

from heeler.bus import Bus
from heeler.otlp.map import METRICS, gpu_points
from heeler.otlp.prometheus import metric_name
from heeler.otlp.selection import SELECTED, Selection
from heeler.otlp.settings import OtlpSettings
from heeler.sim.receiver import Receiver


def names(selection: Selection) -> set[str]:
    """Return the metrics that are let through, of all that there are."""
    kept = (selection.keep(points) for points in every_point())
    return {metric.name for points in kept if points is not None for metric, _ in points.columns}


def test_a_minute_and_a_selection_are_what_goes_out_unless_told_otherwise() -> None:
    assert (OtlpSettings().every_s, OtlpSettings().metrics) == (60.0, ("selected",))


def test_whatever_a_dashboard_or_an_alert_asks_for_is_selected() -> None:
    called = {metric_name(m.name, m.unit, m.kind): m.name for points in every_point() for m, _ in points.columns}
    asked = {called[name] for _, query, _ in queries() for name in metrics_of(query) if name in called}
    assert asked
    assert asked <= names(Selection(["selected"]))


BY_SETTING = {"DCGM_*", "heeler.gpu.job.info"}


@pytest.mark.parametrize("pattern", [one for one in SELECTED if one not in BY_SETTING])
def test_every_pattern_of_the_selection_matches_something(pattern: str) -> None:
    assert names(Selection([pattern]))


def test_a_selection_is_less_than_half_of_what_is_known_of_a_gpu() -> None:
    (*_, fullest) = sorted((value for _, _, value in good("JobSample")), key=lambda value: len(gpu_points(value)))
    every = len(gpu_points(fullest))
    kept = Selection(["selected"]).keep(gpu_points(fullest))
    assert kept is not None
    assert 0 < len(kept) < every / 2


def test_all_is_everything_and_patterns_add_and_take_away() -> None:
    everything = {metric.name for points in every_point() for metric, _ in points.columns}
    assert names(Selection(["all"])) == everything
    more = names(Selection(["selected", "heeler.gpu.pipe.*"], ["hw.energy"]))
    assert more == names(Selection(["selected"])) - {"hw.energy"} | {"heeler.gpu.pipe.active"}


def test_points_of_dcgm_exporter_s_names_are_selected() -> None:
    points = METRICS["JobSample"](job_sample())
    assert Selection(["DCGM_*"]).keep(points[0]) is None
    assert Selection(["selected"])._is_wanted("DCGM_FI_DEV_GPU_TEMP")


@pytest.mark.bus
async def test_what_is_not_wanted_is_not_sent(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver), metrics=("hw.*",), without=("hw.errors",)):
        await publish(bus, "JobSample", job_sample())
        await until(lambda: all_acked(bus), "acks")
    assert "hw.power" in receiver.metrics
    assert all(name.startswith("hw.") and name != "hw.errors" for name in receiver.metrics)
