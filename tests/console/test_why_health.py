"""What `heeler why` says of health checks, drains by them, and accounting."""

from typing import Any

import pytest

from heeler.console import health, why
from heeler.console.facts import Facts, Message

S = 1_000_000_000
NOW = 1_800_000_000 * S
REASON = "heeler:prolog:gpu_ecc: GPU 3 has 2 uncorrectable errors"


def run(verdict: str = "fail", age_s: int = 7200, **more: Any) -> dict[str, Any]:
    return {
        "node": "n3", "ts": NOW - age_s * S, "run": "r1", "phase": "prolog", "verdict": verdict, "job_id": "481",
        "why": "gpu_ecc: GPU 3 has 2 uncorrectable errors", **more,
    }  # fmt: skip


def result(outcome: str = "bad", age_s: int = 7200, **more: Any) -> dict[str, Any]:
    return {
        "node": "n3", "ts": NOW - age_s * S, "run": "r1", "phase": "prolog", "check": "gpu_ecc", "outcome": outcome,
        "why": "GPU 3 has 2 uncorrectable errors", **more,
    }  # fmt: skip


def node(reason: str, user: str = "root") -> dict[str, Any]:
    return {"node": "n3", "ts": NOW, "state": "idle", "flags": ["DRAIN"], "reason": reason, "reason_user": user,
            "reason_ts": NOW - 7200 * S}  # fmt: skip


def told(facts: Facts) -> list[str]:
    return list(why.node("n3", facts))


def test_a_drain_by_a_prolog_names_the_check_the_job_the_author_and_the_time() -> None:
    lines = told(Facts(NOW, nodes=[node(REASON)], health_runs=[run("pass", 60), run(reason=REASON)]))
    at = lines.index(f'  Slurm: idle+DRAIN: "{REASON}", set by root, 2 h ago')
    assert lines[at + 1] == "    the prolog's check gpu_ecc failed 2 h ago for job 481"


def test_a_drain_whose_run_is_gone_from_the_bus_says_so() -> None:
    lines = told(Facts(NOW, nodes=[node("heeler:epilog:gpu_ecc: x")], health_runs=[run(reason=REASON)]))
    assert "    the epilog's check gpu_ecc failed, in a run that the bus no longer has" in lines


def test_a_drain_by_the_drainer_names_its_finding() -> None:
    lines = told(Facts(NOW, nodes=[node("heeler:gpu_lag:f81-2 GPU 3 is slow")]))
    assert "    by Heeler's drainer, for finding f81-2 (gpu_lag)" in lines


def test_an_operators_reason_is_nobody_elses() -> None:
    lines = told(Facts(NOW, nodes=[node("psu swap, see heeler: ticket 5", "ops")], health_runs=[run()]))
    at = lines.index('  Slurm: idle+DRAIN: "psu swap, see heeler: ticket 5", set by ops, 2 h ago')
    assert lines[at + 1] == "    by ops, or a tool of theirs: not by Heeler; look at: ask ops"


@pytest.mark.parametrize(
    ("reason", "user", "words"),
    [
        ("Not responding", "slurm", "by Slurm itself: slurmd does not answer the controller"),
        ("gres/gpu count reported lower than configured (7 < 8)", "slurm", "by Slurm itself: slurmd found fewer GPUs"),
        (
            "Low RealMemory (reported:512 < 1024)",
            "root",
            "by Slurm itself: the node has less memory",
        ),
        ("Kill task failed", "root", "by Slurm itself: processes of a job did not end in time"),
        ("Node unexpectedly rebooted", "slurm", "by Slurm itself: the node booted without being asked to"),
        ("NHC: check_fs_mount: /scratch not mounted", "root", "by Node Health Check (NHC): its check failed"),
        ("maintenance tonight", "root", "by root: an operator or a tool of the site: not by Heeler"),
        ("lower fan is loud", None, "by somebody whose name Slurm does not tell: not by Heeler"),
    ],
)
def test_every_reason_has_an_origin_whoever_set_it(reason: str, user: str | None, words: str) -> None:
    state: dict[str, Any] = {"node": "n3", "ts": NOW, "state": "idle", "flags": ["DRAIN"], "reason": reason}
    if user is not None:
        state["reason_user"] = user
    assert any(line.startswith(f"    {words}") for line in told(Facts(NOW, nodes=[state])))


def test_a_drain_without_a_reason_and_an_old_reason_without_a_drain() -> None:
    bare = {"node": "n3", "ts": NOW, "state": "idle", "flags": ["DRAIN"]}
    assert "    Slurm tells no reason" in told(Facts(NOW, nodes=[bare]))
    left = {"node": "n3", "ts": NOW, "state": "idle", "flags": [], "reason": "psu swap", "reason_user": "ops"}
    assert not any(line.startswith("    by ") for line in told(Facts(NOW, nodes=[left])))


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([run()], "; its checks failed 2 h ago: gpu_ecc: GPU 3 has 2 uncorrectable errors"),
        ([run("pass")], "; no run of Heeler's checks failed here in the last 24 h"),
        ([run(phase="epilog")], "; no run of Heeler's checks failed here in the last 24 h"),
    ],
)
def test_slurms_own_prolog_error_is_told_with_what_our_checks_say(runs: list[Message], words: str) -> None:
    lines = told(Facts(NOW, nodes=[node("Prolog error")], health_runs=runs))
    assert f"    Slurm's own words for a failed prolog{words}" in lines


def test_the_newest_run_and_those_that_did_not_pass_are_told() -> None:
    runs: list[Message] = [
        run("pass", 60, phase="periodic", job_id=None, counts={"ok": 14, "off": 2, "bad": 0}),
        run("pass", 600),
        run(reason=REASON),
        run("would_fail", 9000, enforcement="breaker_open"),
        run("refused", 10000, why="the policy can't be read"),
        run("would_fail", 11000),
    ]
    lines = [line for line in told(Facts(NOW, health_runs=runs)) if line.startswith("  health:")]
    ecc = "gpu_ecc: GPU 3 has 2 uncorrectable errors"
    assert lines == [
        "  health: periodic 60 s ago passed: 14 ok, 2 off",
        f'  health: prolog 2 h ago for job 481 failed: {ecc}; the node was drained with "{REASON}"',
        f"  health: prolog 2 h ago for job 481 would have failed (enforcement: breaker open): {ecc}",
        "  health: prolog 3 h ago for job 481 was not run: the policy can't be read",
        "  health: 1 more runs did not pass in the last 24 h",
    ]


def test_only_the_last_word_of_a_check_counts_the_worst_first() -> None:
    results: list[Message] = [
        result("ok", 60, check="gpu_temp"),
        result("bad", 600, check="gpu_temp"),
        result("warn", 60, check="memory"),
        result("unknown", 60, check="mounts", why="no answer within 5 s"),
        result("bad", 600),
        result("off", 60, check="dcgm_diag"),
    ]
    lines = [line for line in told(Facts(NOW, health_results=results)) if line.startswith("  check")]
    assert lines == [
        "  check gpu_ecc bad 10 min ago (prolog): GPU 3 has 2 uncorrectable errors",
        "  check mounts unknown 60 s ago (prolog): no answer within 5 s",
        "  check memory warn 60 s ago (prolog): GPU 3 has 2 uncorrectable errors",
    ]


def test_a_bad_check_that_was_well_since_in_another_phase_is_told_with_both() -> None:
    results: list[Message] = [result("ok", 60, phase="periodic"), result()]
    (line,) = [line for line in told(Facts(NOW, health_results=results)) if line.startswith("  check")]
    assert line.endswith("; since then ok (periodic, 60 s ago)")


def test_a_well_check_before_a_bad_one_is_no_comfort() -> None:
    results: list[Message] = [result("bad", 60), result("ok", 7200, phase="periodic")]
    (line,) = [line for line in told(Facts(NOW, health_results=results)) if line.startswith("  check")]
    assert "since then" not in line


def test_a_node_without_checks_says_that_none_has_run() -> None:
    assert "  health: no check has run here in the last 24 h" in told(Facts(NOW, nodes=[node("")]))


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (
            {"what": "temp_c", "value": 97, "limit": 90, "unit": "Cel", "gpu_index": 3},
            "temp_c 97 Cel, limit 90 Cel (GPU 3)",
        ),
        ({"what": "pcie_width", "value": None, "limit": 16}, "pcie_width unknown, limit 16"),
        ({"what": "used", "value": 0.97, "unit": "1", "device": "/"}, "used 0.97 (/)"),
        ({"what": "xid", "text": "NVRM: Xid 79", "pci": "0000:18:00"}, "xid (0000:18:00): NVRM: Xid 79"),
        ({"what": "persistence", "value": False, "limit": True}, "persistence False, limit True"),
    ],
)  # fmt: skip
def test_evidence_of_checks_in_words(item: dict[str, Any], words: str) -> None:
    assert health.seen(item) == words


def test_a_job_tells_its_prologs_by_node_and_what_accounting_has() -> None:
    job = {"job_id": "481", "nodes": ["n3", "n4"], "state": "COMPLETING", "event": "changed", "ts": NOW}
    records: list[Message] = [
        {"job_id": "481", "run": "2", "state": "NODE_FAIL", "elapsed_s": 5400.0, "nodes": "n[3-4]", "exit_code": 1,
         "signal": 9, "end_ts": NOW - 600 * S},
        {"job_id": "481", "run": "1", "state": "CANCELLED", "cancelled_by": "ada"},
    ]  # fmt: skip
    facts = Facts(NOW, jobs=[job], health_runs=[run(reason=REASON)], health_results=[result()], records=records)
    lines = list(why.job("481", facts))
    assert any(line.startswith("  health: n3: prolog 2 h ago for job 481 failed: gpu_ecc") for line in lines)
    assert "  accounting: NODE_FAIL, ran 90 min on n[3-4], ended 10 min ago, exit status 1, signal 9" in lines
    assert "  accounting: CANCELLED by ada" in lines


def test_a_job_says_which_nodes_were_not_looked_at() -> None:
    job = {"job_id": "481", "nodes": [f"n{i}" for i in range(70)], "event": "started", "ts": NOW}
    lines = list(why.job("481", Facts(NOW, jobs=[job], unseen_nodes=6)))
    assert "  health: 6 of its nodes were not looked at; ask for one: heeler why node NODE" in lines
    assert not any("no check ran" in line for line in lines)


def test_a_job_that_only_accounting_knows_is_known() -> None:
    facts = Facts(NOW, records=[{"job_id": "481", "run": "1", "state": "COMPLETED"}])
    assert facts.known()
    assert next(iter(why.job("481", facts))) == "job 481: no open finding"


def test_everything_behind_the_answer_is_in_the_json() -> None:
    found = why.as_json(Facts(NOW, health_runs=[run()], health_results=[result()], records=[{"state": "FAILED"}]))
    assert (len(found["health_runs"]), len(found["health_results"]), len(found["job_records"])) == (1, 1, 1)
