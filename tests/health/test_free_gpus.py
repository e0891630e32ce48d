"""A diagnostic gets GPUs that are allocated to nobody, and none in doubt."""

import pytest

from heeler.health.free_gpus import free_gpus
from heeler.health.model import Job, Phase
from heeler.slurm.nodes import Node
from heeler.slurm.state import parse_node_state

ALL = frozenset(range(8))
JOB = Job("81", gpu_minors=(2, 3))


def node(used: str | None, state: str = "MIXED+COMPLETING") -> Node:
    return Node("n1", parse_node_state(state), gres="gpu:h100:8", gres_used=used)


def test_an_epilog_may_have_its_own_jobs_gpus() -> None:
    # As real Slurm shows it: the job that completes is no longer counted.
    assert free_gpus(1, Phase.EPILOG, node("gpu:h100:1(IDX:0)"), JOB, ALL).minors == {2, 3}
    assert free_gpus(1, Phase.EPILOG, node("gpu:h100:0(IDX:N/A)"), JOB, ALL).minors == {2, 3}
    assert free_gpus(1, Phase.EPILOG, node("gpu:h100:1(IDX:2)"), JOB, ALL).minors == {3}
    assert free_gpus(1, Phase.EPILOG, node("gpu:h100:0(IDX:N/A)"), JOB, frozenset((0, 3))).minors == {3}


@pytest.mark.parametrize("level", [2, 3, 4])
def test_long_levels_never_run_in_an_epilog(level: int) -> None:
    assert not free_gpus(level, Phase.EPILOG, node("gpu:h100:0(IDX:N/A)"), JOB, ALL).minors


@pytest.mark.parametrize("phase", [Phase.PROLOG, Phase.TASK_PROLOG])
@pytest.mark.parametrize("level", [1, 3])
def test_no_diagnostic_before_a_job(phase: Phase, level: int) -> None:
    assert not free_gpus(level, phase, node("gpu:h100:0(IDX:N/A)", "IDLE+DRAIN"), JOB, ALL).minors


@pytest.mark.parametrize(
    "used",
    [
        None,
        "",
        "(null)",
        "gpu:h100:2",
        "gpu:h100:2(IDX:0)",
        "gpu:h100:x(IDX:0-1)",
        "gpu:h100:1(IDX:0),shard:h100:4(4/80,0/80)",
        "shard:h100:0",
        "rubbish((",
    ],
)
@pytest.mark.parametrize("phase", [Phase.EPILOG, Phase.PERIODIC])
def test_in_doubt_none(phase: Phase, used: str | None) -> None:
    found = free_gpus(1, phase, node(used, "MIXED+DRAIN"), JOB, ALL)
    assert (found.minors, bool(found.why)) == (frozenset(), True)


@pytest.mark.parametrize("job", [None, Job("81"), Job("81", gpu_minors=())])
def test_a_job_whose_gpus_are_not_known_gives_none(job: Job | None) -> None:
    assert not free_gpus(1, Phase.EPILOG, node("gpu:h100:0(IDX:N/A)"), job, ALL).minors


def test_a_slurm_that_can_not_be_read_gives_none() -> None:
    assert not free_gpus(1, Phase.EPILOG, None, JOB, ALL).minors


@pytest.mark.parametrize("phase", [Phase.PERIODIC, Phase.REQUEST, Phase.APP, Phase.NAGIOS])
def test_between_jobs_only_a_node_that_drains_gives_its_free_gpus(phase: Phase) -> None:
    for level in (1, 4):
        assert not free_gpus(level, phase, node("gpu:h100:0(IDX:N/A)", "IDLE"), None, ALL).minors
        assert free_gpus(level, phase, node("gpu:h100:2(IDX:0-1)", "MIXED+DRAIN"), None, ALL).minors == ALL - {0, 1}
        assert free_gpus(level, phase, node("gpu:h100:0(IDX:N/A)", "IDLE+DRAIN"), None, ALL).minors == ALL
        assert not free_gpus(level, phase, node("gpu:h100:8(IDX:0-7)", "ALLOCATED+DRAIN"), None, ALL).minors
        assert not free_gpus(level, phase, node("gpu:h100:0(IDX:N/A)", "DOWN+DRAIN"), None, ALL).minors
