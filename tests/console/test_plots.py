"""Curves of a victim and the band of its peers, from samples: pure."""

from typing import Any

import pytest
from consolekit import T0, S, finding, sample

from heeler.console.plots import BINS, Asked, Curves, asked_by, metrics_of, spread_out


def drawn(samples: list[dict[str, Any]], metrics: tuple[str, ...] = ("sm_clock_mhz",), **asked: Any) -> dict[str, Any]:
    what = {"start_ns": T0, "end_ns": T0 + 1800 * S, "job": "81", "nodes": ("n1", "n2"), **asked}
    curves = Curves(Asked(**what))
    for one in samples:
        curves.add(one)
    return curves.drawn(metrics)


def windows(count: int, *nodes: str, **more: Any) -> list[dict[str, Any]]:
    return [sample(node, at=10 * at, **more) for at in range(count) for node in nodes]


def test_the_victim_has_a_curve_and_its_peers_a_band() -> None:
    slow = [1980.0] * 3 + [1155.0] + [1980.0] * 4
    found = drawn(windows(6, "n1", mean={"sm_clock_mhz": slow}) + windows(6, "n2"), victims=frozenset(["GPU-n1-3"]))
    (plot,) = found["plots"]
    assert plot["curves"] == [{"uuid": "GPU-n1-3", "values": [1155.0] * 6}]
    assert plot["band"] == [[1980.0, 1980.0, 1980.0]] * 6
    assert (found["peers"], found["victims"], found["nodes"]) == (15, 1, 2)


def test_a_gap_stays_a_gap() -> None:
    samples = [one for one in windows(6, "n1") if one["ts"] != T0 + 20 * S]
    samples += windows(6, "n2", mean={"sm_clock_mhz": None})
    found = drawn(samples, victims=frozenset(["GPU-n1-3"]))
    values = found["plots"][0]["curves"][0]["values"]
    assert values.count(None) >= 1
    assert 0 not in values


def test_other_jobs_other_models_and_mig_devices_are_no_peers() -> None:
    other = sample("n2", at=0, job="82")
    old = sample("n3", at=0)
    old["gpu"]["model"] = ["A100"] * 8
    parts = sample("n4", at=0)
    parts["gpu"]["parent"] = [None, *["GPU-n4-0"] * 7]
    found = drawn([sample("n1", at=0), other, old, parts], victims=frozenset(["GPU-n1-0"]))
    assert found["peers"] == 7 + 1
    assert found["nodes"] == 3  # n2 has none of the job


def test_a_whole_node_may_be_the_victim() -> None:
    found = drawn(windows(2, "n1", "n2"), victim_node="n1")
    assert (found["victims"], found["peers"], len(found["plots"][0]["curves"])) == (8, 8, 8)


def test_many_windows_are_drawn_as_few_points() -> None:
    found = drawn(windows(900, "n1"), end_ns=T0 + 9000 * S)
    assert found["bins"] == BINS
    assert all(found["plots"][0]["band"])


def test_without_any_sample_nothing_is_drawn() -> None:
    found = drawn([])
    assert found["plots"] == [{"metric": "sm_clock_mhz", "band": [None], "curves": []}]
    assert found["peers"] == 0


def test_nodes_are_taken_evenly_and_the_victims_is_among_them() -> None:
    nodes = [f"n{number:03}" for number in range(100)]
    taken = spread_out(nodes, ["n050"], 5)
    assert taken == ("n050", "n000", "n025", "n051", "n076") or (taken[0] == "n050" and len(set(taken)) == 5)
    assert spread_out(nodes[:3], [], 5) == ("n000", "n001", "n002")
    assert spread_out(nodes, nodes[:9], 5) == tuple(nodes[:5])


def test_plots_show_the_metrics_of_the_evidence_that_are_kept_over_time() -> None:
    named = ("remapped_rows", "power_w", "sm_clock_mhz", "power_w", "util_ratio", "temp_c")
    assert metrics_of(finding(evidence=[{"metric": name} for name in named])) == [
        "power_w",
        "sm_clock_mhz",
        "util_ratio",
    ]


@pytest.mark.parametrize(
    ("kind", "entity", "some"),
    [
        ("xid", {"type": "gpu", "gpu_uuid": "GPU-n1-3"}, True),
        ("hang", {"type": "job", "job_id": "81"}, True),
        ("leftover", {"type": "node", "gpus": ["GPU-n1-3"]}, True),
        ("agent_silent", {"type": "agent"}, False),
        ("ib_flap", {"type": "port", "port": "mlx5_0/1"}, False),
    ],
)
def test_where_the_evidence_is_no_reading_activity_and_power_show_what_happened(
    kind: str, entity: dict[str, Any], some: bool
) -> None:
    assert bool(metrics_of(finding(kind=kind, entity=entity, evidence=[{"metric": "xid", "text": "line"}]))) is some


def test_a_finding_asks_for_its_node_and_some_of_its_peers() -> None:
    now = T0 + 600 * S
    asked = asked_by(finding(at=0), [f"n{number}" for number in range(50)], now, 4)
    assert isinstance(asked, Asked)
    assert (asked.nodes[0], len(asked.nodes), asked.job) == ("n1", 4, "81")
    assert (asked.victims, asked.victim_node) == (frozenset(["GPU-n1-3"]), None)
    assert asked.start_ns == T0 - 1200 * S
    assert asked.end_ns == now


def test_a_finding_of_a_whole_job_has_no_victim() -> None:
    hang = finding(kind="hang", entity={"type": "job", "job_id": "81"}, evidence=[])
    del hang["node"]
    asked = asked_by(hang, ["n1", "n2"], T0, 4)
    assert isinstance(asked, Asked)
    assert (asked.nodes, asked.victims, asked.victim_node) == (("n1", "n2"), frozenset(), None)
    assert isinstance(asked_by(hang, [], T0, 4), str)


def test_what_is_older_than_the_bus_remembers_has_no_plot() -> None:
    closed = finding(at=0, state="closed")
    assert "half an hour" in str(asked_by(closed, ["n1"], T0 + 7200 * S, 4))
    assert isinstance(asked_by(closed, ["n1"], T0 + 900 * S, 4), Asked)
