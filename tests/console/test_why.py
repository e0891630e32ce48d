"""The answers of `heeler why`, from facts to words."""

from typing import Any

import pytest

from heeler.console import why
from heeler.console.facts import Facts

S = 1_000_000_000
NOW = 1_800_000_000 * S


def finding(**more: Any) -> dict[str, Any]:
    return {
        "v": 1, "cluster": "c", "id": "f1", "kind": "gpu_lag", "state": "open", "severity": "warning",
        "confidence": 0.9, "entity": {"type": "gpu", "node": "n3", "gpu_uuid": "GPU-a"}, "node": "n3", "job_id": "7",
        "first_ts": NOW - 840 * S, "ts": NOW - 5 * S, "advice": "observe",
        "summary": "GPU 3 on n3 runs at 1,155 MHz while its 511 peers run at 1,980: thermal slowdown.",
        "evidence": [
            {"metric": "sm_clock_mhz", "value": 1155.0, "unit": "MHz", "peers_median": 1980.0, "peers": 511,
             "deviation_ratio": -0.4167, "windows": 5, "of_windows": 6},
            {"metric": "clock_event_reasons", "text": "HW thermal slowdown", "value": 64},
        ],
        **more,
    }  # fmt: skip


def test_a_finding_is_told_with_its_evidence_and_numbers() -> None:
    lines = list(why.node("n3", Facts(NOW, findings=[finding()])))
    assert lines[0] == "node n3: 1 open finding"
    assert "  warning: GPU 3 on n3 runs at 1,155 MHz while its 511 peers run at 1,980: thermal slowdown." in lines
    assert "    gpu_lag, open for 14 min, confidence 0.90, advice observe" in lines
    assert "    evidence: sm_clock_mhz 1,155 MHz, 511 peers 1,980 MHz (-42%), in 5 of 6 windows" in lines
    assert "    evidence: clock_event_reasons: HW thermal slowdown" in lines


def test_a_finding_with_others_of_one_cause_is_told_with_the_cause() -> None:
    incident = finding(id="i1", kind="incident", summary="3 nodes behind switch leaf1 lost links within 4 s.")
    facts = Facts(NOW, findings=[finding(incident="i1"), finding(id="f2")], incidents={"i1": incident})
    lines = list(why.node("n3", facts))
    assert lines.count("    not alone: 3 nodes behind switch leaf1 lost links within 4 s.") == 1
    assert why.as_json(facts)["incidents"] == [incident]


def test_a_node_in_drain_is_explained_whoever_drained_it() -> None:
    node = {"node": "n3", "ts": NOW, "state": "idle", "flags": ["DRAIN"], "reason": "ADMIN: psu swap",
            "reason_user": "ops", "reason_ts": NOW - 7200 * S}  # fmt: skip
    lines = list(why.node("n3", Facts(NOW, nodes=[node])))
    assert '  Slurm: idle+DRAIN: "ADMIN: psu swap", set by ops, 2 h ago' in lines


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    text = "\n".join(why.node("n3", Facts(NOW)))
    assert "not known on this bus" in text
    assert "Slurm: not known" in text
    assert "agent: has never reported" in text


def test_a_job_names_its_nodes_and_the_finding_that_hurts_it() -> None:
    job = {"job_id": "7", "nodes": [f"n{i}" for i in range(16)], "state": "RUNNING", "user": "ada", "name": "llm",
           "start_ts": NOW - 3600 * S, "event": "started", "ts": NOW}  # fmt: skip
    action = {"verdict": "refused", "dry_run": True, "ts": NOW - 3 * S, "node": "n3", "why": "under 4 minutes"}
    lines = list(why.job("7", Facts(NOW, jobs=[job], findings=[finding()], actions=[action])))
    assert "  RUNNING of ada (llm) on 16 nodes: n0, n1, n2, n3 and 12 more" in lines
    assert "  drain refused (dry run) 3 s ago: n3: under 4 minutes" in lines


def test_closed_findings_come_after_open_ones_with_their_reason() -> None:
    facts = Facts(NOW, findings=[finding(state="closed", close_reason="clear for 10 min"), finding(id="f2")])
    assert [f["id"] for f in why.open_findings(facts)] == ["f2"]
    assert any("(clear for 10 min)" in line for line in why.node("n3", facts))
    assert len(why.as_json(facts)["closed_findings"]) == 1


def test_what_only_the_driver_said_is_not_called_a_line_of_the_kernel_log() -> None:
    line = {"ts": NOW - 5 * S, "kind": "xid", "code": 79, "witness": ["kmsg", "nvml"], "text": "fallen off the bus"}
    alone = {"ts": NOW - 5 * S, "kind": "gpu_event", "witness": ["nvml"], "detail": {"event": "poison"}}
    bare = {"ts": NOW - 5 * S, "kind": "xid", "code": 43, "witness": ["nvml"]}
    lines = list(why.node("n3", Facts(NOW, events=[line, alone, bare])))
    assert "  kernel log 5 s ago: xid 79: fallen off the bus" in lines
    assert "  driver 5 s ago: gpu_event: poison" in lines
    assert "  driver 5 s ago: xid 43" in lines


def test_the_worst_finding_comes_first() -> None:
    facts = Facts(
        NOW, findings=[finding(id="w"), finding(id="i", severity="info"), finding(id="c", severity="critical")]
    )
    assert [f["id"] for f in why.open_findings(facts)] == ["c", "w", "i"]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"metric": "power_w", "value": None, "unit": "W"}, "power_w unknown W"),
        ({"metric": "link_downed", "value": 3}, "link_downed 3"),
        ({"metric": "util_ratio", "value": 0.973, "unit": "1"}, "util_ratio 0.973"),
    ],
)
def test_evidence_in_words(item: dict[str, Any], words: str) -> None:
    assert why.evidence(item) == words
