"""Around a job: the bus hears of it first, once more when NVML knows more, and only a failing run leaves a reason."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from heeler.bus import decode, encode
from heeler.health.around import CHECKS_S, MARK_S, MINORS, Around, drains
from heeler.health.breaker import Breaker
from heeler.health.judging import Result
from heeler.health.model import Case, Check, Context, Job, NoSettings, Outcome, Phase, Probe, Unread, Verdict
from heeler.health.origin import Origin
from heeler.health.outbox import Letter
from heeler.health.policy import Policy, make_policy
from heeler.health.runner import Read
from heeler.health.table import PROFILES
from heeler.health.verdict import Judged, Run

NODE = Origin("north", "gn.1", "boot-1")
JOB = Job("81234", uid=1000, gpu_minors=(5, 2))
UUIDS = {2: "GPU-5f7f2a1c-0b5e-4c7d-9a3e-000000000002", 5: "GPU-5f7f2a1c-0b5e-4c7d-9a3e-000000000005"}
NOW = 1_800_000_000 * 10**9


def never(_facts: Any, _settings: Any, _case: Case) -> Verdict:
    raise AssertionError


CHECKS = tuple(
    Check(name, name, Probe(name, lambda _context, _asked: None), never, NoSettings, hardware=hardware)
    for name, hardware in (("ecc", True), ("disk", False))
)


def policy(folder: Path, **table: Any) -> Policy:
    profiles = {name: replace(profile, checks=()) for name, profile in PROFILES.items()}
    return make_policy({"cache": str(folder), **table}, "gn.1", CHECKS, profiles)


def around(folder: Path, phase: Phase, job: Job | None = JOB, deadline_s: float = 40.0) -> tuple[Around, list[Letter]]:
    sent: list[Letter] = []

    def put(letters: Sequence[Letter]) -> None:
        for letter in letters:
            assert decode(letter.kind, encode(letter.kind, letter.message)) == letter.message
        sent.extend(letters)

    context = Context(Case(phase, "gn.1", NOW, job), root=folder)
    return Around(policy(folder), NODE, context, time.monotonic() + deadline_s, put), sent


def information(root: Path, minor: int) -> None:
    folder = root / f"proc/driver/nvidia/gpus/0000:0{minor}:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(f"GPU UUID: \t {UUIDS[minor]}\nDevice Minor: \t {minor}\n")


@pytest.mark.parametrize(("phase", "event"), [(Phase.PROLOG, "started"), (Phase.EPILOG, "ended")])
def test_a_job_is_told_at_once_with_what_is_known(tmp_path: Path, phase: Phase, event: str) -> None:
    for minor in UUIDS:
        information(tmp_path, minor)
    run, sent = around(tmp_path, phase)
    run.begin()
    [letter] = sent
    assert letter.subject == "heeler.v1.north.prolog.event.gn=2E1"
    assert letter.message["event"] == event
    assert (letter.message["job_id"], letter.message["indices"]) == ("81234", [5, 2])
    assert letter.message["uuids"] == [UUIDS[5], UUIDS[2]]
    assert run.case.job is not None
    assert run.case.job.gpu_uuids == (UUIDS[5], UUIDS[2]), "the checks know them too"
    assert run.probes() == {}, "NVML need not be asked"


def test_slurms_own_uuids_go_first(tmp_path: Path) -> None:
    information(tmp_path, 2)
    run, sent = around(tmp_path, Phase.PROLOG, replace(JOB, gpu_uuids=("MIG-1",)))
    run.begin()
    assert sent[0].message["uuids"] == ["MIG-1"]


def test_what_nvml_tells_meanwhile_is_told_again_and_kept(tmp_path: Path) -> None:
    run, sent = around(tmp_path, Phase.PROLOG)
    run.begin()
    assert "uuids" not in sent[0].message
    assert list(run.probes()) == [MINORS.name]
    run.learn({MINORS.name: Read(UUIDS | {0: "GPU-x"}, 1)})
    assert sent[1].message["uuids"] == [UUIDS[5], UUIDS[2]]
    assert sent[1].message["ts"] == sent[0].message["ts"], "the same start"
    assert sent[1].id != sent[0].id
    again, later = around(tmp_path, Phase.EPILOG)
    again.begin()
    assert later[0].message["uuids"] == [UUIDS[5], UUIDS[2]]
    assert json.loads((tmp_path / "gpus.json").read_text())["boot"] == "boot-1"


@pytest.mark.parametrize("facts", [Unread("hung", "the driver"), {}, {5: UUIDS[5]}])
def test_what_nvml_does_not_tell_is_not_told(tmp_path: Path, facts: Any) -> None:
    run, sent = around(tmp_path, Phase.PROLOG)
    run.begin()
    run.learn({MINORS.name: Read(facts, 1)})
    assert len(sent) == 1


def gpu(minor: int, **values: Any) -> dict[str, Any]:
    return {"index": 0, "errors": {}, "values": {"minor": minor, "uuid": UUIDS[minor], **values}}


def test_what_the_checks_read_of_gpus_is_enough(tmp_path: Path) -> None:
    run, sent = around(tmp_path, Phase.PROLOG)
    run.begin()
    assert run.probes(["gpus"]) == {}
    run.learn({"gpus": Read({"gpus": [gpu(2), gpu(5)]}, 1)})
    assert sent[1].message["uuids"] == [UUIDS[5], UUIDS[2]]
    divided, told = around(tmp_path / "other", Phase.PROLOG)
    divided.begin()
    divided.learn({"gpus": Read({"gpus": [gpu(2, mig={"enabled": True}), gpu(5)]}, 1)})
    assert len(told) == 1, "Slurm numbers MIG devices too"


@pytest.mark.parametrize("job", [Job("7"), None])
def test_a_job_without_gpus_asks_nvml_for_nothing(tmp_path: Path, job: Job | None) -> None:
    run, sent = around(tmp_path, Phase.PROLOG, job)
    run.begin()
    assert run.probes() == {}
    assert [set(one.message) & {"uuids", "indices"} for one in sent] == ([set()] if job else [])


@pytest.mark.parametrize("phase", [Phase.PERIODIC, Phase.NAGIOS, Phase.APP, Phase.TASK_PROLOG, Phase.REQUEST])
def test_other_runs_tell_of_no_job(tmp_path: Path, phase: Phase) -> None:
    run, sent = around(tmp_path, phase)
    run.begin()
    assert sent == []
    assert run.clear().ended == ()


def test_the_checks_leave_time_for_the_reason(tmp_path: Path) -> None:
    run, _ = around(tmp_path, Phase.PROLOG, deadline_s=40)
    assert 40 - MARK_S - 1 < run.probes_deadline - time.monotonic() <= 40 - MARK_S
    short, _ = around(tmp_path, Phase.PROLOG, deadline_s=3)
    assert short.probes_deadline - time.monotonic() > CHECKS_S - 0.5


def failed(check: Check, outcome: Outcome = Outcome.BAD) -> Run:
    judged = Judged(Result(check, Verdict(outcome, "two errors")), "fail")
    return Run("fail", "two errors", "on", (judged,), None)


def test_a_periodic_run_drains_only_for_enforced_hardware(tmp_path: Path) -> None:
    enforced = policy(tmp_path, checks={name: {"enforce": ["periodic"]} for name in ("ecc", "disk")})
    ecc, disk = CHECKS
    assert [one.check for one in drains(failed(ecc), enforced)] == [ecc]
    assert drains(failed(disk), enforced) == [], "no evidence against the hardware"
    assert drains(failed(ecc), policy(tmp_path)) == []
    assert drains(failed(ecc), policy(tmp_path, checks={"ecc": {"enforce": True}})) == []


@pytest.mark.parametrize("state", ["open", "unknown"])
def test_a_periodic_run_under_a_breaker_that_is_not_closed_drains_nothing_and_tells_that_it_would(
    tmp_path: Path, state: Literal["open", "unknown"]
) -> None:
    run, _ = around(tmp_path, Phase.PERIODIC)
    run.policy = policy(tmp_path, checks={"ecc": {"enforce": ["periodic"]}})
    assert run.end(failed(CHECKS[0]), Breaker(state, "")) == {"enforcement": f"breaker_{state}"}
    run.policy = policy(tmp_path)
    assert run.end(failed(CHECKS[0]), Breaker(state, "")) == {}


@pytest.mark.parametrize("phase", [Phase.APP, Phase.NAGIOS, Phase.REQUEST, Phase.TASK_PROLOG])
def test_no_other_run_ever_touches_a_node(tmp_path: Path, phase: Phase) -> None:
    run, _ = around(tmp_path, phase)
    failing = replace(failed(CHECKS[0]), culprit=failed(CHECKS[0]).results[0].result)
    assert run.end(failing, Breaker("closed", "")) == {}


def test_a_run_that_passes_or_would_fail_touches_nothing(tmp_path: Path) -> None:
    run, _ = around(tmp_path, Phase.PROLOG)
    for verdict in ("pass", "would_fail"):
        made = replace(failed(CHECKS[0]), verdict=verdict, culprit=failed(CHECKS[0]).results[0].result)
        assert run.end(made, Breaker("closed", "")) == {}
