"""The verdict of a run: what counts as an answer, and what is a problem."""

from collections import Counter
from typing import Any

import pytest

from heeler.engine import Inbound
from heeler.sim.demo.verdict import Answer, Exported, Passage, answer, problems_of, strangers

AT = 1_000_000_000_000
THERMAL = {"kind": "thermal", "node": "n007", "gpu_index": 3, "gpu_uuid": "GPU-3", "job_id": "81000", "at_ns": AT}
LOST = {"kind": "gpu_lost", "node": "n008", "gpu_index": 1, "gpu_uuid": "GPU-1", "job_id": "81000", "at_ns": AT}
FLAP = {"kind": "ib_flap", "node": "n009", "port": "mlx5_0/1", "job_id": "81000", "at_ns": AT}


def finding(kind: str, after_s: float = 8.0, fid: str = "f1", **entity: Any) -> Inbound:
    more: dict[str, Any] = {key: entity.pop(key) for key in ("state", "code") if key in entity}
    data: dict[str, Any] = {"id": fid, "kind": kind, "state": "open", "summary": "words", "entity": entity, **more}
    return Inbound("Finding", "", data, AT + int(after_s * 1e9))


def action(verdict: str, after_s: float = 9.0, fid: str = "f1", *, dry_run: bool = True) -> Inbound:
    data = {"finding_id": fid, "verdict": verdict, "dry_run": dry_run, "why": "words"}
    return Inbound("DrainAction", "", data, AT + int(after_s * 1e9))


LAG = finding("gpu_lag", node="n007", gpu_uuid="GPU-3")


def test_the_first_finding_and_the_first_right_word_are_the_answer() -> None:
    later = finding("gpu_lag", 30.0, node="n007", gpu_uuid="GPU-3", state="update")
    found = answer(THERMAL, [LAG, later], [action("refused", 9.0), action("proposed", 25.0), action("proposed", 26.0)])
    assert (found.finding_s, found.action_s) == (8.0, 25.0)
    report = found.report()
    assert (report["finding_to_action_s"], report["node"], report["gpu_index"]) == (17.0, "n007", 3)
    assert problems_of([found]) == []


@pytest.mark.parametrize(
    "wrong",
    [
        finding("gpu_lag", node="n007", gpu_uuid="GPU-4"),  # a peer is blamed
        finding("gpu_lag", node="n008", gpu_uuid="GPU-3"),
        finding("agent_silent", node="n007", gpu_uuid="GPU-3"),
        finding("gpu_lag", node="n007", gpu_uuid="GPU-3", state="closed"),
    ],
)
def test_a_finding_about_something_else_is_no_answer(wrong: Inbound) -> None:
    found = answer(THERMAL, [wrong], [action("proposed")])
    assert found.finding is None
    assert problems_of([found]) == ["thermal on n007: no finding"]


def test_a_refusal_is_no_answer_where_a_drain_is_right_and_one_where_it_is_a_matter_of_budget() -> None:
    assert answer(THERMAL, [LAG], [action("refused")]).action is None
    flap = finding("ib_flap", node="n009", port="mlx5_0/1")
    assert answer(FLAP, [flap], [action("refused")]).action is not None


def test_a_word_about_another_finding_is_no_answer() -> None:
    assert answer(THERMAL, [LAG], [action("proposed", fid="f2")]).action is None


def test_an_xid_of_another_code_does_not_name_a_lost_gpu() -> None:
    assert answer(LOST, [finding("xid", node="n008", gpu_uuid="GPU-1", code=31)], []).finding is None
    assert answer(LOST, [finding("xid", node="n008", gpu_uuid="GPU-1", code=79)], []).finding is not None
    assert answer(LOST, [finding("gpu_lost", node="n008", gpu_uuid="GPU-1")], []).finding is not None


def test_an_act_that_was_no_dry_run_is_a_problem() -> None:
    found = answer(THERMAL, [LAG], [action("proposed", dry_run=False)])
    assert problems_of([found]) == ["thermal on n007: the drainer's proposed is not a dry run"]


def test_silence_is_a_problem() -> None:
    assert problems_of([Answer(THERMAL), answer(THERMAL, [LAG], [])]) == [
        "thermal on n007: no finding",
        "thermal on n007: the drainer gave no expected word",
    ]


def test_a_finding_that_no_fault_explains_is_a_problem_and_so_is_one_opened_twice() -> None:
    stranger = finding("gpu_lag", node="n030", gpu_uuid="GPU-9", fid="f9")
    assert strangers([THERMAL], [LAG, stranger]) == ["unexplained finding f9: words"]
    assert strangers([], [LAG]) == ["unexplained finding f1: words"]
    assert strangers([THERMAL], [LAG, LAG]) == ["finding f1 was opened more than once"]
    update = finding("gpu_lag", node="n007", gpu_uuid="GPU-3", state="update")
    assert strangers([THERMAL], [LAG, update, update]) == []


def test_a_job_that_hangs_since_it_has_lost_a_gpu_is_explained_and_another_is_not() -> None:
    hangs = [finding("hang", fid=f"f{job}", job_id=str(job)) for job in (7, 8)]
    assert strangers([{**LOST, "job_id": "7"}], hangs) == ["unexplained finding f8: words"]
    assert strangers([LOST], hangs[:1]) == ["unexplained finding f7: words"]
    assert strangers([{**THERMAL, "job_id": "7"}], hangs[:1]) == ["unexplained finding f7: words"]


def test_every_metric_with_too_few_or_too_many_points_is_named() -> None:
    exported = Exported(Counter({"hw.power": 80, "hw.energy": 8, "logs": 2}), Counter({"hw.power": 80, "hw.energy": 7}))
    assert exported.differences() == ["hw.energy: 7 of 8", "logs: 0 of 2"]
    assert Exported(Counter(a=1), Counter(a=2)).differences() == ["a: 2 of 1"]


def gpus(node: str, seq: int, count: int, **more: Any) -> dict[str, Any]:
    return {"node": node, "boot": "b", "seq": seq, "gpu": {"uuid": [str(i) for i in range(count)]}, **more}


def test_a_sample_is_through_when_all_its_gpus_are_over_however_many_shards() -> None:
    passage = Passage()
    for seq in (1, 2, 3):
        passage.sample(gpus("n1", seq, 8))
    passage.job_sample(gpus("n1", 1, 4, shard=3))
    passage.job_sample(gpus("n1", 1, 4, shard=5))
    passage.job_sample(gpus("n1", 2, 4, shard=3))
    assert passage.lost() == 2  # half of the second and all of the third
    assert passage.twins == 0
    passage.job_sample(gpus("n1", 2, 4, shard=5))
    passage.job_sample(gpus("n1", 3, 8, shard=1))
    passage.job_sample(gpus("n1", 3, 8, shard=1))
    assert (passage.lost(), passage.twins) == (0, 1)
