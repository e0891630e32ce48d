"""PCIe and NVLink of single GPUs: judged under load, against siblings, and by errors that add up."""

from typing import Any

import numpy as np
import pytest
from samples import (
    DDP_SMALL,
    T0,
    Change,
    Columns,
    Inbound,
    Job,
    Played,
    S,
    job_event,
    job_samples,
    kernel_event,
    merged,
    play,
    put,
)

from heeler.detect import DetectStep

JOB = Job(nodes=1, gpus=4, level=DDP_SMALL)


def run(*change: Change, windows: int = 60, job: Job = JOB, more: list[Inbound] | None = None) -> Played:
    return play(DetectStep(), merged([job_event(job)], job_samples(job, windows=windows, change=change), more or []))


def column(name: str, usual: float, value: float, *, gpu: Any = 3, since: int = 10, until: int = 1 << 30) -> Change:
    """A column that all GPUs have, and another value of one of them."""

    def change(window: int, c: Columns) -> None:
        c[name] = np.full(c["power_w"].shape, usual)
        if since <= window < until:
            c[name][0, gpu] = value

    return change


def counts(name: str, each: float, *, gpu: Any = 3, since: int = 10, until: int = 1 << 30) -> Change:
    def change(window: int, c: Columns) -> None:
        c[name] = np.full(c["power_w"].shape, 7.0)
        c[name][0, gpu] += each * max(0, min(window, until) - since)

    return change


@pytest.mark.parametrize(
    ("name", "value", "words"), [("pcie_gen", 2.0, "gen 2 of 5"), ("pcie_width", 4.0, "width 4 of 16")]
)
def test_a_link_below_its_best_under_load_is_said_after_a_minute(name: str, value: float, words: str) -> None:
    (opened,) = run(put(name, value, gpu=3, since=10)).opened()
    assert (opened["kind"], opened["entity"]["gpu_index"], opened["advice"]) == ("pcie_degraded", 3, "observe")
    assert 45 <= (opened["ts"] - T0) / S - 100 <= 70
    assert opened["summary"] == f"GPU 3 on n0000: PCIe {words} under load, for 50 s; job 81234."


def test_it_drains_only_after_four_minutes() -> None:
    played = run(put("pcie_width", 8.0, gpu=3, since=10))
    drains = [f for f in played.of() if f["advice"] == "drain_after_job"]
    assert (drains[0]["ts"] - T0) / S - 100 >= 230


def test_an_idle_gpu_slows_its_link_by_design() -> None:
    assert not run(put("pcie_gen", 1.0), put("util_ratio", 0.0)).findings
    assert not run(put("pcie_gen", 1.0, gpu=3), put("util_ratio", 0.02, gpu=3)).of("pcie_degraded")


def test_a_link_without_a_known_load_is_not_judged() -> None:
    assert not run(put("pcie_gen", 1.0, gpu=3), put("util_ratio", np.nan, gpu=3)).of("pcie_degraded")


def test_a_node_whose_links_are_all_alike_was_built_so() -> None:
    assert not run(put("pcie_gen", 4.0)).findings
    assert not run(put("pcie_width", 8.0)).findings


def test_a_gpu_alone_on_its_node_is_judged() -> None:
    (opened,) = run(put("pcie_width", 8.0, since=10), job=Job(nodes=1, gpus=1, level=DDP_SMALL)).opened()
    assert opened["kind"] == "pcie_degraded"


def test_unknown_bests_say_nothing() -> None:
    assert not run(put("pcie_width", 8.0, gpu=3), put("pcie_width_max", np.nan)).of("pcie_degraded")


def test_it_closes_when_the_link_is_back_under_load_and_not_while_idle() -> None:
    idle = put("util_ratio", 0.0, since=30)
    assert not run(put("pcie_width", 8.0, gpu=3, until=30), idle, windows=100).of("pcie_degraded", state="closed")
    (closed,) = run(put("pcie_width", 8.0, gpu=3, until=30), windows=100).of(state="closed")
    assert 290 <= (closed["ts"] - T0) / S - 300 <= 320


def test_beside_a_lag_that_says_why_nothing_is_said() -> None:
    job = Job(nodes=2, level=DDP_SMALL)
    fault = [put("pcie_width", 4.0, node=1, gpu=2, since=40), put("power_w", 330.0, node=1, gpu=2, since=40)]
    played = run(*fault, windows=90, job=job)
    assert played.last("gpu_lag")
    assert [f["state"] for f in played.last("pcie_degraded").values()] in ([], ["closed"])


def test_replays_add_up() -> None:
    assert not run(counts("pcie_replays", 5.0)).findings
    (opened,) = run(counts("pcie_replays", 60.0)).opened()
    assert (opened["kind"], opened["cause"], opened["advice"]) == ("pcie_errors", "pcie_errors", "observe")


@pytest.mark.parametrize("name", ["pcie_fatal_errors", "pcie_nonfatal_errors"])
def test_one_uncorrected_error_is_said_at_once(name: str) -> None:
    (opened,) = run(counts(name, 1.0, until=11)).opened()
    assert opened["kind"] == "pcie_errors"


def test_counts_that_stood_there_or_were_reset_are_none() -> None:
    assert not run(column("pcie_fatal_errors", 3.0, 0.0)).findings
    assert not run(column("nvlink_recovery_errors", 9.0, 0.0), column("pcie_replays", 1e6, 4.0)).findings


def test_fewer_nvlinks_than_its_siblings() -> None:
    (opened,) = run(column("nvlink_links_up", 18.0, 17.0)).opened()
    assert (opened["kind"], opened["cause"]) == ("nvlink_degraded", "nvlink_down")
    assert "17 of 18 NVLinks are up" in opened["summary"]
    assert opened["evidence"][0]["peers_median"] == 18


def test_a_gpu_without_bridge_among_bridged_pairs_is_not_judged() -> None:
    assert not run(column("nvlink_links_up", 4.0, 0.0, gpu=slice(2, 4))).findings
    assert not run(column("nvlink_links_up", 0.0, 0.0)).findings
    assert not run(column("nvlink_links_up", 18.0, np.nan)).findings


def test_two_gpus_of_a_node_have_nobody_to_compare_with() -> None:
    assert not run(column("nvlink_links_up", 12.0, 11.0, gpu=1), job=Job(nodes=1, gpus=2)).findings


@pytest.mark.parametrize(
    ("name", "each", "found"),
    [
        ("nvlink_recovery_errors", 1.0, True),
        ("nvlink_recoveries_failed", 1.0, True),
        ("nvlink_crc_errors", 3.0, False),
        ("nvlink_crc_errors", 50.0, True),
        ("nvlink_replay_errors", 50.0, True),
    ],
)
def test_nvlink_errors_add_up(name: str, each: float, found: bool) -> None:
    assert run(counts(name, each)).kinds() == ({"nvlink_errors"} if found else set())


def test_beside_an_xid_of_the_link_nothing_is_said() -> None:
    line = kernel_event(JOB.node(0), 74, ts_ns=T0 + 105 * S, seq=1, uuid=JOB.uuid(0, 3), jobs=[JOB.id])
    assert run(counts("nvlink_recovery_errors", 2.0), column("nvlink_links_up", 18.0, 17.0), more=[line]).kinds() == {
        "xid"
    }


def test_errors_of_half_an_hour_ago_are_over() -> None:
    played = run(counts("pcie_replays", 200.0, until=20), windows=120)
    (closed,) = played.of(state="closed")
    assert closed["close_reason"] == "in order again"


def test_a_link_that_stays_slow_when_the_load_begins_is_found() -> None:
    """Nothing that is stored of the link changes with the load."""
    started = column("util_ratio", 0.2, 0.2, gpu=slice(None), until=10)

    def busy(window: int, c: Columns) -> None:
        started(window, c)
        if window >= 10:
            c["util_ratio"][:] = 1.0

    (opened,) = run(put("pcie_gen", 1.0, gpu=3, since=0), busy).opened()
    assert opened["kind"] == "pcie_degraded"
    assert (opened["ts"] - T0) / S >= 150
