"""`heeler why gpu`: found by UUID, its beginning, or its place; and what a job's answer says after its end."""

from typing import Any

import pytest

from heeler.console import why
from heeler.console.facts import Facts, nodes_of
from heeler.console.gpus import Found, indexed, keep, matches

S = 1_000_000_000
NOW = 1_800_000_000 * S
A, B = "GPU-aaaaaaaa-1111", "GPU-aaaaaaaa-2222"
MIG = "MIG-cccccccc-1111"
INVENTORIES: list[dict[str, Any]] = [
    {"node": "n1", "gpus": [{"uuid": A, "index": 0, "pci": "0000:3b:00", "model": "H100"}, {"uuid": B, "index": 1}]},
    {
        "node": "n2",
        "gpus": [{"uuid": "GPU-bbbbbbbb-1111", "index": 0, "mig_devices": [{"uuid": MIG, "profile": "1g.10gb"}]}],
    },
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (A, [("n1", A)]),
        ("GPU-bbbb", [("n2", "GPU-bbbbbbbb-1111")]),
        ("GPU-aaaaaaaa", [("n1", A), ("n1", B)]),
        ("n1:1", [("n1", B)]),
        (MIG, [("n2", MIG)]),
        ("MIG-cccc", [("n2", MIG)]),
        ("GPU-", []),
        ("n1:7", []),
        ("n3:0", []),
        ("", []),
    ],
)
def test_a_name_means_the_gpus_that_it_can_mean(name: str, found: list[tuple[str, str]]) -> None:
    assert [(one.node, one.gpu["uuid"]) for one in matches(name, INVENTORIES)] == found


def facts(**more: Any) -> Facts:
    return Facts(NOW, gpus=matches(A, INVENTORIES), **more)


def finding(name: str, **entity: Any) -> dict[str, Any]:
    return {
        "id": name, "kind": "xid", "state": "open", "severity": "critical", "confidence": 0.99, "node": "n1",
        "entity": {"type": "gpu", **entity}, "first_ts": NOW - 60 * S, "ts": NOW, "evidence": [], "advice": "drain_now",
        "summary": f"finding {name}",
    }  # fmt: skip


def test_a_gpu_that_has_lost_its_index_is_the_one_that_was_found_under_it() -> None:
    told = [
        finding("port", node="n1", port="mlx5_0/1"),
        finding("newest", node="n1", gpu_uuid=B, gpu_index=1),
        finding("older", node="n1", gpu_uuid=A, gpu_index=1),
        finding("elsewhere", node="n2", gpu_uuid="GPU-x", gpu_index=2),
    ]
    assert indexed("n1:1", told) == B
    assert indexed("n1:2", told) is None
    assert indexed("n1:", told) is None


def test_only_what_is_about_the_gpu_is_kept() -> None:
    found = facts(
        findings=[finding("mine", gpu_uuid=A), finding("other", gpu_uuid=B), finding("both", gpus=[B, A])],
        actions=[{"finding_id": "mine"}, {"finding_id": "other"}, {}],
        events=[{"uuid": A}, {"uuid": B}, {"pci": "0000:3b:00"}, {"pci": "0000:00:00"}, {}],
        health_results=[{"gpus": [A]}, {"evidence": [{"gpu_uuid": A}]}, {"gpus": [B]}, {}],
        health_runs=[{}],
    )
    keep(found, A)
    assert [one["id"] for one in found.findings] == ["mine", "both"]
    assert (len(found.actions), len(found.events), len(found.health_results), found.health_runs) == (1, 2, 2, [])


def test_the_answer_says_where_the_gpu_is_how_it_does_and_where_to_look() -> None:
    sample = {"ts": NOW - 5 * S, "gpu": {"uuid": [B, A]}, "state": ["ok", "ok"], "job": [None, "7"],
              "mean": {"util_ratio": [0.1, 0.97], "power_w": [None, None], "temp_c": [40.0, 61.0]}}  # fmt: skip
    lines = list(why.gpu(A, facts(samples=[sample])))
    assert lines[0] == f"gpu {A}: no open finding"
    assert lines[1] == "  GPU 0 of n1 (0000:3b:00, H100)"
    assert lines[2] == (
        "  now: ok, utilisation 97 %, power unknown, temperature 61 °C, clock unknown, job 7; read 5 s ago"
    )
    assert lines[-1] == (
        f"  look further: heeler why node n1; heeler events --node n1 --since 1d; on n1: nvidia-smi -q -i {A}"
    )


def test_a_gpu_that_nothing_was_read_of_lately_says_so() -> None:
    assert "  now: nothing was read of it in the last 2 min" in list(why.gpu(A, facts()))


def test_a_name_of_several_gpus_is_answered_with_their_names() -> None:
    lines = list(why.gpu("GPU-aaaaaaaa", Facts(NOW, gpus=matches("GPU-aaaaaaaa", INVENTORIES))))
    assert lines == [
        "gpu GPU-aaaaaaaa: not the name of one GPU", "  2 GPUs begin so; name one:", f"    {A} on n1", f"    {B} on n1",
    ]  # fmt: skip


def test_a_gpu_that_left_its_node_is_still_known_by_its_findings() -> None:
    lines = list(why.gpu(A, Facts(NOW, findings=[finding("f", gpu_uuid=A)])))
    assert lines[:2] == [f"gpu {A}: 1 open finding", "  no node's inventory has it"]
    assert "look further: heeler why node n1" in lines[-1]


def test_an_unknown_gpu_is_not_told_to_be_well() -> None:
    assert list(why.gpu("GPU-x", Facts(NOW))) == ["gpu GPU-x: not known on this bus", "  no node's inventory has it"]


def test_a_mig_device_names_its_gpu() -> None:
    found = Facts(NOW, gpus=[Found("n2", {"uuid": MIG, "profile": "1g.10gb", "parent": "GPU-b"})])
    assert list(why.gpu(MIG, found))[1] == "  a MIG device of GPU-b of n2 (1g.10gb)"


def test_the_nodes_of_a_job_that_has_ended_are_those_of_accounting() -> None:
    record = {"job_id": "7", "run": "1", "state": "FAILED", "nodes": "n[08-11],m1"}
    assert nodes_of(Facts(NOW, records=[record])) == ["n08", "n09", "n10", "n11", "m1"]
    assert nodes_of(Facts(NOW, records=[{**record, "nodes": "None assigned"}])) == []
    assert nodes_of(Facts(NOW, records=[{**record, "nodes": "n[1-"}])) == []
    assert nodes_of(Facts(NOW, jobs=[{"nodes": ["n1"]}], records=[record])) == ["n1"]
    lines = list(why.job("7", Facts(NOW, records=[record])))
    assert "  Slurm's feed has not named this job; accounting has it on n08, n09, n10, n11 and 1 more" in lines
    assert lines[-1].endswith("heeler report job 7; sacct -j 7 -o JobID,State,ExitCode,Reason,NodeList")


def test_kernel_events_of_a_job_name_their_node() -> None:
    event = {"node": "n2", "ts": NOW - 5 * S, "kind": "xid", "code": 79, "text": "gone", "jobs": ["7"]}
    assert "  kernel log on n2 5 s ago: xid 79: gone" in list(why.job("7", Facts(NOW, events=[event])))


def test_commands_are_safe_to_paste() -> None:
    assert "scontrol show node 'n1; rm -rf /'" in list(why.node("n1; rm -rf /", Facts(NOW)))[-1]
    assert "heeler report job '7 $(x)'" in list(why.job("7 $(x)", Facts(NOW)))[-1]
