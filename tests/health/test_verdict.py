"""What a run comes to: a prolog fails on enforced hardware evidence about this job alone, and never while in doubt."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.health.breaker import Breaker
from heeler.health.judging import Chosen, Result, judge_all, off
from heeler.health.model import Case, Check, Outcome, Phase, Probe, Unread, Verdict
from heeler.health.policy import Profile, make_policy
from heeler.health.report import exit_status, nagios
from heeler.health.runner import Read
from heeler.health.verdict import Run, decide

PROBE = Probe("p", lambda _context, _asked: 1)
CASE = Case(Phase.PROLOG, "n1", 0)


def judge(facts: Any, _settings: Any, _case: Case) -> Verdict:
    return facts  # type: ignore[no-any-return]


GPU = Check("gpu", "A GPU.", PROBE, judge, hardware=True)
DISK = Check("disk", "A disk.", PROBE, judge)
CLOSED = Breaker("closed", "")
ENFORCED = {"checks": {"gpu": {"enforce": ["prolog"]}, "disk": {"enforce": ["prolog"]}}}


def decided(
    *results: Result,
    table: dict[str, Any] | None = None,
    phase: Phase = Phase.PROLOG,
    gpus: tuple[str, ...] | None = ("A",),
    breaker: Breaker = CLOSED,
) -> Run:
    policy = make_policy(table if table is not None else ENFORCED, "n1", (GPU, DISK), {"prolog": Profile()})
    return decide(results, policy, phase, gpus, breaker)


def result(check: Check, outcome: Outcome, *gpus: str) -> Result:
    return Result(check, Verdict(outcome, f"it is {outcome}", gpus=gpus))


BAD = result(GPU, Outcome.BAD, "A")


def test_bad_hardware_of_the_job_fails_a_prolog_where_enforced() -> None:
    run = decided(BAD)
    assert (run.verdict, run.enforcement, run.culprit) == ("fail", "on", BAD)
    assert exit_status(run, Phase.PROLOG) == 1
    assert exit_status(run, Phase.PROLOG, 99) == 99


@pytest.mark.parametrize(
    ("change", "enforcement"),
    [
        ({"table": {}}, "off"),
        ({"gpus": ("B",)}, "not_ours"),
        ({"gpus": None}, "not_ours"),
        ({"breaker": Breaker("open", "3 nodes in 10 min")}, "breaker_open"),
        ({"breaker": Breaker("unknown", "no file")}, "breaker_unknown"),
        ({"phase": Phase.EPILOG}, "off"),
    ],
)
def test_otherwise_it_would_have_failed_and_the_job_goes_on(change: dict[str, Any], enforcement: str) -> None:
    run = decided(BAD, **change)
    assert (run.verdict, run.enforcement) == ("would_fail", enforcement)
    assert run.why.startswith("gpu: it is bad; ")
    assert run.failed == ("gpu",)
    assert exit_status(run, Phase.PROLOG, 99) == 0


def test_a_check_that_is_no_hardware_fails_no_prolog() -> None:
    assert decided(result(DISK, Outcome.BAD)).verdict == "would_fail"


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.WARN, Outcome.UNKNOWN, Outcome.OFF])
def test_what_is_not_bad_fails_no_prolog(outcome: Outcome) -> None:
    run = decided(result(GPU, outcome, "A"))
    assert run.verdict == "pass"
    assert exit_status(run, Phase.PROLOG) == 0


def test_unknown_fails_a_prolog_only_where_the_site_says_so() -> None:
    table = {"checks": {"gpu": {"enforce": ["prolog"], "on_unknown": "fail"}}}
    assert decided(result(GPU, Outcome.UNKNOWN), table=table).verdict == "fail"


def test_evidence_about_the_node_as_a_whole_concerns_every_job() -> None:
    assert decided(result(GPU, Outcome.BAD)).verdict == "fail"


def test_the_job_s_own_fault_counts_beside_another_s() -> None:
    run = decided(result(GPU, Outcome.BAD, "B"), BAD)
    assert (run.verdict, run.culprit) == ("fail", BAD)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([], 0),
        (["ok"], 0),
        (["ok", "off"], 0),
        (["ok", "warn"], 1),
        (["unknown", "warn"], 3),
        (["unknown", "bad", "warn"], 2),
    ],
)
def test_the_status_for_nagios_is_the_worst_by_policy(outcomes: list[str], status: int) -> None:
    run = decided(*(result(GPU, Outcome(outcome)) for outcome in outcomes), phase=Phase.NAGIOS)
    assert exit_status(run, Phase.NAGIOS) == status


def test_a_run_of_nothing_but_switched_off_checks_does_not_read_as_ok() -> None:
    run = decided(off(GPU, "switched off by policy"), phase=Phase.APP)
    assert run.counts == {"off": 1}
    assert run.why == "0 of 0 checks ok, 1 off"


def test_a_nagios_line_has_status_words_and_numbers_behind_one_bar() -> None:
    verdict = Verdict(Outcome.BAD, "GPU 3: 91 °C | hot\nvery", perf={"temp_max_c": 91.0, "count": 8})
    run = decided(Result(GPU, verdict), result(DISK, Outcome.OK), phase=Phase.NAGIOS)
    assert nagios(run) == "HEELER CRITICAL - gpu: GPU 3: 91 °C / hot very | 'gpu.count'=8 'gpu.temp_max_c'=91"
    assert nagios(decided(result(DISK, Outcome.OK), phase=Phase.NAGIOS)) == "HEELER OK - 1 of 1 checks ok"


# Judging


def judged(facts: Any, check: Check = GPU) -> Result:
    return judge_all([Chosen(check, None)], {"p": Read(facts, 5)}, CASE)[0]


def test_what_was_not_read_is_unknown() -> None:
    found = judged(Unread("hung", "it can't be killed"))
    assert (found.verdict.outcome, found.hung, found.timed_out) == (Outcome.UNKNOWN, True, False)
    assert "it can't be killed" in found.verdict.why
    assert judge_all([Chosen(GPU, None)], {}, CASE)[0].verdict.outcome is Outcome.UNKNOWN


def broken(facts: Any, _settings: Any, _case: Case) -> Verdict:
    if facts == "loop":
        while True:
            pass
    if facts == "none":
        return None  # type: ignore[return-value]
    raise KeyError(facts)


@pytest.mark.parametrize(("facts", "word"), [("x", "KeyError"), ("none", "None"), ("loop", "did not come to an end")])
def test_a_judge_that_is_broken_is_unknown_and_says_how(facts: str, word: str) -> None:
    found = judged(facts, Check("b", "Broken.", PROBE, broken))
    assert found.verdict.outcome is Outcome.UNKNOWN
    assert word in found.verdict.why


results = st.builds(
    lambda check, outcome, gpus: Result(check, Verdict(outcome, "why", gpus=tuple(gpus))),
    st.sampled_from([GPU, DISK]),
    st.sampled_from(list(Outcome)),
    st.sets(st.sampled_from("ABC")),
)


@given(
    st.lists(results, max_size=6),
    st.sampled_from([{}, ENFORCED]),
    st.sampled_from([Phase.PROLOG, Phase.EPILOG]),
    st.one_of(st.none(), st.tuples(st.sampled_from("ABC"))),
    st.sampled_from(["closed", "open", "unknown"]),
)
def test_no_job_is_stopped_without_enforced_evidence_about_it(
    some: list[Result], table: dict[str, Any], phase: Phase, gpus: tuple[str, ...] | None, state: Any
) -> None:
    run = decided(*some, table=table, phase=phase, gpus=gpus, breaker=Breaker(state, ""))
    if run.verdict == "fail":
        assert run.culprit is not None
        assert run.culprit.verdict.outcome is Outcome.BAD
        assert run.culprit.check.hardware
        assert table == ENFORCED
        assert phase is Phase.PROLOG
        assert state == "closed"
        assert not run.culprit.verdict.gpus or set(run.culprit.verdict.gpus) & set(gpus or ())
    assert sum(run.counts.values()) == len(some)
