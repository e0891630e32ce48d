"""Processes and memory on the GPUs of a job, judged; and read from the fake NVML with real processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml

from heeler.health.epilog import Cleared, KillSettings, choose, clear
from heeler.health.gpu_processes import LeftoverSettings, MemorySettings, judge_leftovers, judge_memory, wait_s
from heeler.health.leftover import Process
from heeler.health.model import Case, Job, Outcome, Phase

JOB = Job("81", uid=1000, gpu_minors=(2, 5))
NOW = 1_800_000_000 * 10**9
MIB = 1 << 20


def gpu(index: int, minor: int | None, used: int | None = 10 * MIB, *, mig: bool = False) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-{index}", "minor": minor, "used_bytes": used, "mig": mig}


# Minors in another order than NVML's indices: GPU-0 has minor 5, GPU-1 minor 2.
GPUS = [gpu(0, 5), gpu(1, 2), gpu(2, 0), gpu(3, 1)]


def process(pid: int, *gpus: str, job: str | None = "81", comm: str = "python3", **more: Any) -> dict[str, Any]:
    return {
        "pid": pid,
        "start_ticks": 7,
        "comm": comm,
        "uid": 1000,
        "job": job,
        "unclear": None,
        "gpus": list(gpus),
        **more,
    }


def facts(*processes: dict[str, Any], gpus: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"gpus": GPUS if gpus is None else gpus, "unread": [], "processes": list(processes), "running": ["82"]}


def case(phase: Phase, job: Job | None = JOB) -> Case:
    return Case(phase, "n1", NOW, job)


def leftovers(found: dict[str, Any], phase: Phase, job: Job | None = JOB) -> tuple[Outcome, tuple[str, ...]]:
    verdict = judge_leftovers(found, LeftoverSettings(), case(phase, job))
    return verdict.outcome, verdict.gpus


@pytest.mark.parametrize("phase", [Phase.PROLOG, Phase.EPILOG])
def test_empty_gpus_are_ok(phase: Phase) -> None:
    assert leftovers(facts(), phase)[0] is Outcome.OK


@pytest.mark.parametrize(
    ("left", "outcome"),
    [
        (process(7, "GPU-0", job="80"), Outcome.BAD),  # a job that has no slurmstepd any more
        (process(7, "GPU-0", job="82"), Outcome.WARN),  # a job that runs: it may share the GPU
        (process(7, "GPU-0", job=None), Outcome.BAD),  # a user outside of all jobs
        (process(7, "GPU-0", job=None, uid=0), Outcome.WARN),  # the system's
        (process(7, "GPU-0", job=None, unclear="no slurmstepd"), Outcome.WARN),
    ],
)
def test_who_may_not_be_on_the_gpus_of_a_job_that_begins(left: dict[str, Any], outcome: Outcome) -> None:
    assert leftovers(facts(left), Phase.PROLOG) == (outcome, ("GPU-0",))


def test_processes_on_the_gpus_of_others_are_none_of_ours() -> None:
    assert leftovers(facts(process(7, "GPU-2", job="80")), Phase.PROLOG)[0] is Outcome.OK
    assert leftovers(facts(process(7, "GPU-3", job=None)), Phase.EPILOG)[0] is Outcome.OK


@pytest.mark.parametrize("comm", ["nvidia-cuda-mps", "nvidia-persiste", "nv-hostengine", "dcgm-exporter"])
def test_services_are_not_left_over(comm: str) -> None:
    for phase in (Phase.PROLOG, Phase.EPILOG):
        assert leftovers(facts(process(7, "GPU-0", job=None, comm=comm)), phase)[0] is Outcome.OK


def test_the_ended_jobs_own_are_left_over_and_others_only_told() -> None:
    assert leftovers(facts(process(7, "GPU-0")), Phase.EPILOG) == (Outcome.BAD, ("GPU-0",))
    assert leftovers(facts(process(7, "GPU-0", job="82")), Phase.EPILOG)[0] is Outcome.WARN


def test_all_gpus_count_not_only_the_last() -> None:
    found = leftovers(facts(process(7, "GPU-0"), process(8, "GPU-1")), Phase.EPILOG)
    assert found == (Outcome.BAD, ("GPU-0", "GPU-1"))


@pytest.mark.parametrize(
    ("found", "job"),
    [
        (facts(), replace(JOB, gpu_minors=None)),
        (facts(gpus=[gpu(0, 5, mig=True), gpu(1, 2)]), JOB),
        (facts(gpus=[gpu(0, 5)]), JOB),
        (facts(gpus=[gpu(0, None), gpu(1, None)]), JOB),
        (facts(gpus=[]), JOB),
        (facts(gpus=[gpu(0, 5)]), replace(JOB, gpu_uuids=("GPU-0", "GPU-1"))),  # one is lost
        (facts(), replace(JOB, gpu_uuids=("MIG-1", "MIG-2"))),
    ],
)
def test_what_can_not_be_told_is_unknown(found: dict[str, Any], job: Job) -> None:
    assert leftovers(found, Phase.EPILOG, job)[0] is Outcome.UNKNOWN
    assert judge_memory(found, MemorySettings(), case(Phase.EPILOG, job)).outcome is Outcome.UNKNOWN


def test_between_jobs_only_processes_of_no_job_are_told() -> None:
    assert leftovers(facts(process(7, "GPU-0", job="80")), Phase.PERIODIC, None)[0] is Outcome.OK
    assert leftovers(facts(process(7, "GPU-0", job=None, uid=0)), Phase.PERIODIC, None)[0] is Outcome.OK
    assert leftovers(facts(process(7, "GPU-0", job=None)), Phase.PERIODIC, None)[0] is Outcome.WARN


def memory(*gpus: dict[str, Any], processes: tuple[dict[str, Any], ...] = ()) -> Outcome:
    return judge_memory(facts(*processes, gpus=list(gpus)), MemorySettings(), case(Phase.EPILOG)).outcome


def test_memory_that_nobody_has_did_not_come_back() -> None:
    assert memory(gpu(0, 5), gpu(1, 2)) is Outcome.OK
    assert memory(gpu(0, 5), gpu(1, 2, 9000 * MIB)) is Outcome.BAD
    assert memory(gpu(0, 5, 9000 * MIB), gpu(1, 2)) is Outcome.BAD
    assert memory(gpu(0, 5), gpu(1, 2), gpu(2, 0, 9000 * MIB)) is Outcome.OK, "another job's"
    assert memory(gpu(0, 5), gpu(1, 2, None)) is Outcome.UNKNOWN
    assert memory(gpu(0, 5), gpu(1, 2, 9000 * MIB), processes=(process(7, "GPU-1"),)) is Outcome.OK


BOTH = (LeftoverSettings(settle_s=2.0), MemorySettings(settle_s=5.0))
FULL = [gpu(0, 5, 9000 * MIB), gpu(1, 2)]


@pytest.mark.parametrize(
    ("found", "phase", "waits_s"),
    [
        (facts(), Phase.EPILOG, 0.0),
        (facts(process(7, "GPU-0")), Phase.EPILOG, 2.0),
        (facts(process(7, "GPU-0", job="80")), Phase.PROLOG, 2.0),
        (facts(gpus=FULL), Phase.EPILOG, 5.0),
        (facts(process(7, "GPU-1"), gpus=FULL), Phase.EPILOG, 5.0),
        # What would be bad for nobody, or stays.
        (facts(process(7, "GPU-2")), Phase.EPILOG, 0.0),
        (facts(process(7, "GPU-0", job="82"), gpus=FULL), Phase.EPILOG, 0.0),
        (facts(process(7, "GPU-0", job="82"), gpus=FULL), Phase.PROLOG, 0.0),
        (facts(process(7, "GPU-0", job=None), gpus=FULL), Phase.EPILOG, 0.0),
        (facts(process(7, "GPU-0", comm="nv-hostengine"), gpus=FULL), Phase.EPILOG, 0.0),
        (facts(process(7, "GPU-0", unclear="two jobs"), gpus=FULL), Phase.EPILOG, 0.0),
        (facts(gpus=[gpu(0, 5, 9000 * MIB, mig=True), gpu(1, 2)]), Phase.EPILOG, 0.0),
        (facts(gpus=[gpu(0, 5, None), gpu(1, 2)]), Phase.EPILOG, 0.0),
    ],
)
def test_only_what_would_be_bad_and_may_go_by_itself_is_waited_for(
    found: dict[str, Any], phase: Phase, waits_s: float
) -> None:
    assert wait_s(found, case(phase), BOTH) == waits_s
    assert wait_s(found, case(phase), ()) == 0.0
    outcomes = {
        judge_leftovers(found, BOTH[0], case(phase)).outcome,
        judge_memory(found, BOTH[1], case(phase)).outcome,
    }
    assert (Outcome.BAD in outcomes) == (waits_s > 0), "what is waited for is what would be bad"


def test_where_the_gpus_are_not_known_nothing_is_waited_for() -> None:
    found = facts(process(7, "GPU-0"), gpus=FULL)
    assert wait_s(found, case(Phase.PERIODIC, None), BOTH) == 0.0
    assert wait_s(found, case(Phase.EPILOG, Job("81", uid=1000)), BOTH) == 0.0


def test_the_ended_jobs_processes_are_chosen_and_no_others() -> None:
    made = [
        Process(7, 1, "python3", 1000, "81", None, ("GPU-0",)),
        Process(8, 1, "python3", 1000, "81", None, ("GPU-1",)),
        Process(9, 1, "python3", 1000, "82", None, ("GPU-0",)),
        Process(10, 1, "python3", 1000, None, None, ("GPU-0",)),
        Process(11, 1, "nvidia-cuda-mps", 1000, "81", None, ("GPU-0",)),
        Process(12, 1, "python3", 0, "81", None, ("GPU-0",)),
        Process(13, 1, "python3", 1000, "81", None, ("GPU-0",)),
    ]
    chosen, spared = choose(made, JOB, own_pids=(13,))
    assert [one.pid for one in chosen] == [7, 8]
    assert [one.pid for one, _ in spared] == [9, 10, 11, 12, 13]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "100"])
    yield child
    child.kill()
    child.wait()


def own_facts(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    stat = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    one = process(child.pid, "GPU-0", job="81", comm="sleep")
    return facts(one | {"start_ticks": int(stat[19]), "uid": os.getuid()})


def test_without_a_cgroup_of_the_job_nothing_is_ended(sleeper: subprocess.Popen[bytes]) -> None:
    """Facts that claim it are not believed: its cgroup is read again just before the signal."""
    job = replace(JOB, uid=os.getuid())
    done = clear(own_facts(sleeper), job, KillSettings(enabled=True, term_s=0.2), time.monotonic() + 30)
    assert done.killed() == []
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    ("settings", "job", "deadline_s"),
    [
        (KillSettings(), JOB, 30.0),
        (KillSettings(enabled=True), None, 30.0),
        (KillSettings(enabled=True), JOB, 1.0),
    ],
)
def test_nothing_is_ended_by_default_nor_without_a_job_nor_without_time(
    sleeper: subprocess.Popen[bytes], settings: KillSettings, job: Job | None, deadline_s: float
) -> None:
    assert clear(own_facts(sleeper), job, settings, time.monotonic() + deadline_s).ended == ()
    assert clear(None, JOB, settings, time.monotonic() + deadline_s) == Cleared()


READ = """
import json, sys
from pathlib import Path
from heeler.health.gpu_processes import *
from heeler.health.gpu_processes import CHECKS
from heeler.health.model import *
job = Job("81", gpu_minors=(0, 1))
context = Context(Case(Phase(sys.argv[2]), "n1", 0, job), timeout_s=float(sys.argv[1]))
try:
    print(json.dumps(PROCESSES.read(context, [check.settings() for check in CHECKS])))
except ProbeError as err:
    print(json.dumps({"error": err.kind}))
"""


def read(fake: FakeNvml | None, timeout_s: float = 2.5) -> dict[str, Any]:
    env = os.environ | (fake.env() if fake else {})
    argv = [sys.executable, "-c", READ, str(timeout_s), "epilog"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_processes_of_all_gpus_are_read_with_their_names(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    fake = FakeNvml(tmp_path)
    fake.write(
        f"gpus 4\nminor 0 3\nminor 3 0\n0 process {sleeper.pid} 1048576\n2 process {sleeper.pid} 1048576\n1 lost\n"
    )
    found = read(fake)
    assert [(one["index"], one["minor"]) for one in found["gpus"]] == [(0, 3), (2, 2), (3, 0)]
    assert [one["index"] for one in found["unread"]] == [1]
    [one] = found["processes"]
    assert (one["pid"], one["comm"], one["job"]) == (sleeper.pid, "sleep", None)
    assert one["gpus"] == [found["gpus"][0]["uuid"], found["gpus"][1]["uuid"]]


def test_processes_that_go_meanwhile_are_waited_for_a_little(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path)
    # A user's process outside of all jobs.
    child = subprocess.Popen(["sleep", "0.6"], user=65534 if os.geteuid() == 0 else None)
    fake.write(f"gpus 2\n0 process {child.pid} 1048576\n")
    began = time.monotonic()
    env, argv = os.environ | fake.env(), [sys.executable, "-c", READ, "6", "prolog"]
    running = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    child.wait()
    out, _ = running.communicate(timeout=20)
    assert json.loads(out)["processes"] == []
    assert time.monotonic() - began < 5


def test_no_driver_is_said_so(tmp_path: Path) -> None:
    assert read(None) == {"error": "missing"}
    fake = FakeNvml(tmp_path)
    fake.write("init_error 999\n")
    assert read(fake) == {"error": "failed"}
