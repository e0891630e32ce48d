"""The score board plays what it says, and counts rightly."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from scoreboard.contenders import Alarm, Heeler
from scoreboard.faults import FAULTS, with_fault
from scoreboard.play import windows
from scoreboard.scenario import TUNE, draw
from scoreboard.score import add_up, judge, run, upper_bound
from scoreboard.traps import TRAPS

from heeler.sim.workload import DDP_SMALL

# Nothing physical is read of these, so a drain is never advised.
UNEXPLAINED = {"clock_silent", "host_gpu", "host_node", "stolen"}


def faulty(kind: str, severity: float = 0.3) -> object:
    scenario, rng = draw(kind, 5, TUNE, lasts_s=420.0, nodes=4, workload=DDP_SMALL)
    return with_fault(scenario, kind, severity, rng)


@pytest.mark.parametrize("kind", FAULTS)
def test_every_kind_of_fault_is_found_at_30_percent_and_nobody_else_is_named(kind: str) -> None:
    outcome = run(faulty(kind), {"heeler": Heeler()})["heeler"]  # type: ignore[arg-type]
    assert outcome.in_time
    assert not outcome.false
    assert outcome.drain == (kind not in UNEXPLAINED)  # after four minutes


@pytest.mark.parametrize("trap", TRAPS)
def test_no_trap_names_anybody(trap: str) -> None:
    outcome = run(TRAPS[trap](3, TUNE), {"heeler": Heeler()})["heeler"]
    assert (outcome.false, outcome.false_drains) == ([], 0)


def test_a_seed_gives_the_same_windows() -> None:
    first, second = (list(windows(faulty("thermal"))) for _ in range(2))  # type: ignore[arg-type]
    assert len(first) == 42
    assert all(np.array_equal(a.values, b.values, equal_nan=True) for a, b in zip(first, second, strict=True))
    assert [m.data for m in first[30].messages] == [m.data for m in second[30].messages]


def test_all_ranks_wait_for_the_slowest() -> None:
    scenario = faulty("clock_silent", 0.5)
    truth = scenario.truth  # type: ignore[attr-defined]
    steps = list(windows(scenario))  # type: ignore[arg-type]
    tensor = steps[-1].values[3]
    peers = np.delete(tensor.reshape(-1), truth.node * 8 + truth.gpu)
    assert tensor[truth.node, truth.gpu] > 1.5 * np.nanmedian(peers)
    assert np.nanmedian(steps[5].values[3]) > 1.3 * np.nanmedian(peers)


def test_alarms_are_right_that_name_the_victim_after_the_fault_began() -> None:
    scenario = faulty("thermal")
    truth = scenario.truth  # type: ignore[attr-defined]
    other = (truth.gpu + 1) % 8
    alarms = [
        Alarm(truth.begin_s - 20, truth.node, truth.gpu),
        Alarm(truth.begin_s + 30, truth.node, other, advice="drain_after_job"),
        Alarm(truth.begin_s + 40, None, None),
        Alarm(truth.begin_s + 50, truth.node, None),
        Alarm(truth.begin_s + 90, truth.node, truth.gpu),
    ]
    outcome = judge(scenario, alarms)  # type: ignore[arg-type]
    assert outcome.found_s == 50
    assert [(a.node, a.gpu) for a in outcome.false] == [(truth.node, truth.gpu), (truth.node, other)]
    assert outcome.false_drains == 1
    score = add_up([outcome], least=0.2)
    assert score.recall == 1.0
    assert score.precision == pytest.approx(1 / 3)
    assert add_up([outcome], least=0.4).faults == 0


@pytest.mark.parametrize(("count", "mean"), [(0, 2.996), (1, 4.744), (10, 16.962), (100, 118.08)])
def test_the_bound_is_that_of_a_poisson_count(count: int, mean: float) -> None:
    assert upper_bound(count, 1000.0) == pytest.approx(mean, rel=1e-3)
