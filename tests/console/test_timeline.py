"""From messages to entries of one line of time."""

from typing import Any

import pytest

from heeler.console.timeline import Entry, Timeline

S = 1_000_000_000
NOW = 1_800_000_000 * S


def finding(state: str = "open", age_s: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "id": "f1", "kind": "gpu_lag", "state": state, "severity": "warning", "advice": "observe", "node": "n3",
        "job_id": "7", "first_ts": NOW - 840 * S, "ts": NOW - age_s * S, "cause": "thermal_slowdown",
        "summary": "GPU 3 on n3 runs at 1,155 MHz while its 511 peers run at 1,980.", **more,
    }  # fmt: skip


def check(outcome: str, age_s: int = 0, **more: Any) -> dict[str, Any]:
    return {"node": "n3", "ts": NOW - age_s * S, "check": "gpu_ecc", "phase": "periodic", "outcome": outcome,
            "why": "2 errors", **more}  # fmt: skip


def kernel(**more: Any) -> dict[str, Any]:
    return {"node": "n3", "ts": NOW, "boot": "b", "seq": 9, "kind": "xid", "code": 79, "witness": ["kmsg"],
            "pci": "0000:3b:00", "text": "GPU has fallen off the bus", **more}  # fmt: skip


def told(*messages: tuple[str, dict[str, Any]]) -> list[Entry]:
    timeline = Timeline()
    return [entry for kind, data in messages for entry in timeline.on(kind, data)]


def said(*messages: tuple[str, dict[str, Any]]) -> list[str]:
    return [entry.says for entry in told(*messages)]


def test_a_finding_is_told_as_it_opens_changes_and_closes_and_not_as_it_is_confirmed() -> None:
    lines = said(
        ("Finding", finding()),
        ("Finding", finding("update")),
        ("Finding", finding("update", severity="critical", advice="drain_now")),
        ("Finding", finding("update", severity="critical", advice="drain_now")),
        ("Finding", finding("closed", close_reason="clear for 10 min")),
        ("Finding", finding("closed", close_reason="clear for 10 min")),
    )
    assert lines == [
        (
            "GPU 3 on n3 runs at 1,155 MHz while its 511 peers run at 1,980 "
            "(warning, advice observe, cause thermal slowdown, job 7)."
        ),
        "Now critical, advice drain now: GPU 3 on n3 runs at 1,155 MHz while its 511 peers run at 1,980.",
        "Closed after 14 min (clear for 10 min): GPU 3 on n3 runs at 1,155 MHz while its 511 peers run at 1,980.",
    ]


def test_a_finding_that_opens_again_is_told_again() -> None:
    assert len(told(("Finding", finding()), ("Finding", finding("closed")), ("Finding", finding()))) == 3


def test_a_finding_that_opened_before_the_window_is_not_told_as_if_it_had_changed() -> None:
    assert told(("Finding", finding("update"))) == []


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("proposed", "The drainer proposes to drain n3 (dry run): two signals."),
        ("refused", "The drainer does not drain n3 (dry run): two signals."),
        ("done", "The drainer drained n3 (dry run): two signals."),
        ("failed", "The drainer could not drain n3 (dry run): two signals."),
        ("undrained", "The drainer gave n3 back (dry run): two signals."),
        ("postponed", "The drainer says postponed of n3 (dry run): two signals."),
    ],
)
def test_what_the_drainer_did_is_a_sentence(verdict: str, words: str) -> None:
    action = {"verdict": verdict, "node": "n3", "ts": NOW, "dry_run": True, "why": "two signals"}
    assert said(("DrainAction", action)) == [words]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verdict": "ordered", "command": "pause"}, "jane commands the drainer: pause: a new driver."),
        ({"verdict": "ordered", "command": "reset_breaker"}, "jane commands the drainer: reset breaker: a new driver."),
        ({"verdict": "refused", "command": "approve"}, "The drainer refuses jane's approve: a new driver."),
        ({"verdict": "tripped"}, "The drainer opens its own breaker (dry run): a new driver."),
    ],
)
def test_what_operators_wanted_is_told_with_their_names(changes: dict[str, Any], words: str) -> None:
    action = {"node": "*", "actor": "jane", "ts": NOW, "dry_run": True, "why": "a new driver", **changes}
    (entry,) = told(("DrainAction", action))
    assert (entry.says, entry.node) == (words, None)


def test_a_kernel_event_names_its_gpu_its_jobs_and_who_saw_it() -> None:
    (line,) = said(("JobKernelEvent", kernel(jobs=["7", "8"], gpu_state="lost")))
    event = "xid 79 at 0000:3b:00 (job 7, 8): GPU has fallen off the bus; read again, the GPU is lost."
    assert line == f"The kernel of n3 reports {event}"
    assert said(("KernelEvent", kernel(witness=["nvml"], text="x", pci=None, count=3))) == [
        "The driver of n3 reports xid 79, 3 times: x."
    ]


def test_both_messages_of_one_kernel_event_are_known_as_twins() -> None:
    first, second = told(("KernelEvent", kernel()), ("JobKernelEvent", kernel(jobs=["7"])))
    assert first.id == second.id
    assert (first.jobs, second.jobs) == ((), ("7",))
    (other,) = told(("KernelEvent", kernel(seq=10)))
    assert other.id != first.id


def test_a_check_is_told_when_its_word_changes_and_an_ok_only_after_trouble() -> None:
    lines = said(
        ("HealthResult", check("ok")),
        ("HealthResult", check("bad")),
        ("HealthResult", check("bad")),
        ("HealthResult", check("ok")),
        ("HealthResult", check("ok")),
        ("HealthResult", check("unknown", job_id="7", phase="prolog")),
        ("HealthResult", check("off", check="dcgm")),
    )
    assert lines == [
        "Check gpu_ecc on n3 is bad (periodic): 2 errors.",
        "Check gpu_ecc on n3 is ok again (periodic).",
        "Check gpu_ecc on n3 is unknown (prolog, job 7): 2 errors.",
    ]


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("fail", ['The prolog of job 7 on n3 failed: gpu_ecc: 2 errors; the node was drained with "r".']),
        (
            "would_fail",
            [
                (
                    "The prolog of job 7 on n3 would have failed if it were enforced: gpu_ecc: 2 errors; "
                    'the node was drained with "r".'
                )
            ],
        ),
        ("pass", []),
    ],
)
def test_a_run_is_told_unless_it_passed(verdict: str, words: list[str]) -> None:
    run = {"node": "n3", "ts": NOW, "phase": "prolog", "job_id": "7", "verdict": verdict, "why": "gpu_ecc: 2 errors.",
           "reason": "r"}  # fmt: skip
    assert said(("HealthRun", run)) == words


def test_jobs_and_nodes_are_told_as_they_change() -> None:
    job = {
        "job_id": "7",
        "ts": NOW,
        "event": "started",
        "user": "ada",
        "nodes": ["n1", "n2", "n3", "n4"],
        "state": "RUNNING",
    }
    node = {"node": "n3", "ts": NOW, "state": "idle", "flags": ["DRAIN"], "reason": "psu swap", "reason_user": "ops"}
    lines = said(
        ("JobEvent", job),
        ("JobEvent", {**job, "event": "changed"}),
        ("JobEvent", {**job, "event": "ended", "state": "FAILED"}),
        ("NodeState", node),
        ("NodeState", {**node, "cpu_load": 3.0}),
        ("NodeState", {**node, "event": "gone"}),
    )
    assert lines == [
        "Job 7 of ada started on 4 nodes: n1, n2, n3 and 1 more.",
        "Job 7 of ada ended (FAILED) on 4 nodes: n1, n2, n3 and 1 more.",
        'n3 is idle+DRAIN in Slurm: "psu swap", set by ops.',
        'n3 is no longer in Slurm: "psu swap", set by ops.',
    ]


def test_a_job_concerns_each_of_its_nodes() -> None:
    (entry,) = told(("JobEvent", {"job_id": "7", "ts": NOW, "event": "started", "nodes": ["n1", "n2"]}))
    assert entry.of_node("n2")
    assert not entry.of_node("n3")


def test_what_is_not_known_to_this_version_is_no_fault() -> None:
    assert told(("GpuSample", {}), ("HealthRun", {"verdict": "unknown"})) == []
