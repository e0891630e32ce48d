"""One bad link or switch shows on several GPUs at once: that is one finding, and nobody knows which end is to blame."""

from typing import Any

import pytest
from samples import (
    T0,
    Columns,
    Inbound,
    Job,
    Played,
    S,
    cold_twin,
    inventory,
    job_samples,
    kernel_event,
    merged,
    node_state,
    play,
)

from heeler.detect import DetectStep

JOB = Job(nodes=2)
NODE = JOB.node(0)
DRAINS = {"drain_now", "drain_after_job", "reset", "reboot", "rma"}
DOWN = {"unit": "NETIR_LINK_EVT", "fatal": True, "injected": False, "link": 3, "registers": [0, 0, 0]}


def link(gpu: int, at_s: float, code: int = 149, *, seq: int | None = None, **more: Any) -> Inbound:
    told = {"detail": DOWN, "uuid": JOB.uuid(0, gpu), "jobs": [JOB.id]} | more
    return kernel_event(NODE, code, ts_ns=T0 + int(at_s * S), seq=int(at_s * 100) if seq is None else seq, **told)


def switch(code: int, at_s: float) -> Inbound:
    seq = int(at_s * 100)
    return kernel_event(NODE, code, ts_ns=T0 + int(at_s * S), seq=seq, kind="sxid", pci="0000:c1:00", jobs=[JOB.id])


def run(*messages: Inbound, until_s: float = 0.0) -> Played:
    until_ns = T0 + int(until_s * S) if until_s else None
    return play(DetectStep(), merged([inventory(JOB, 0)], messages), until_ns=until_ns)


def settled(*messages: Inbound) -> dict[str, Any]:
    (only,) = run(*messages, until_s=300.0).last("xid", "sxid").values()
    return only


def counts(finding: dict[str, Any]) -> dict[int, int]:
    return {item["value"]: item["count"] for item in finding["evidence"] if "count" in item}


def test_a_link_that_goes_down_at_both_ends_is_one_finding_of_the_node_that_names_both() -> None:
    finding = settled(link(2, 1.0), link(5, 1.2))
    assert (finding["entity"]["type"], finding["advice"]) == ("node", "drain_now")
    assert finding["entity"]["gpus"] == [JOB.uuid(0, 2), JOB.uuid(0, 5)]
    assert "gpu_uuid" not in finding["entity"]
    assert finding["summary"] == "2 GPUs of n0000: XID 149, NVLink 5 link down, 2 times; job 81234."
    assert counts(finding) == {149: 2}


@pytest.mark.parametrize("first", ["switch", "gpu"])
def test_a_switch_error_and_the_link_errors_of_all_gpus_are_one_finding_whichever_came_first(first: str) -> None:
    begin = 1.0 if first == "switch" else 2.55
    links = [link(gpu, 2.0 + gpu / 10, 74, detail={"link": 1, "registers": [1 << 16] + [0] * 6}) for gpu in range(8)]
    finding = settled(switch(23001, begin), *links)
    assert (finding["code"], finding["advice"]) == (23001, "drain_now")
    assert counts(finding) == {23001: 1, 74: 8}
    assert len(finding["entity"]["gpus"]) == 8
    assert finding["summary"].startswith("8 GPUs and NVSwitch of n0000: SXid 23001")


def test_what_the_driver_asks_of_each_gpu_counts_and_the_gravest_stands() -> None:
    def verdict(gpu: int, at_s: float, to: int) -> Inbound:
        return link(gpu, at_s, 154, detail={"from": 0, "to": to})

    both = [link(2, 1.0), link(5, 1.2), verdict(2, 1.5, 1), verdict(5, 1.6, 2)]
    assert settled(*both)["advice"] == "drain_now"
    assert settled(*both, verdict(5, 20, 0))["advice"] == "drain_after_job"
    assert settled(*both, verdict(5, 20, 0), verdict(2, 21, 0))["advice"] == "none"


def test_nvmls_recovery_action_of_another_end_belongs_to_it_too() -> None:
    def change(_window: int, c: Columns) -> None:
        c["recovery_action"][0, 5] = 2

    samples = [m for m in job_samples(JOB, windows=4, change=change) if m.data["node"] == NODE]
    finding = settled(link(2, 1.0), link(5, 1.2), *samples)
    assert finding["advice"] == "drain_now"
    assert [e["gpu_uuid"] for e in finding["evidence"] if e["metric"] == "recovery_action"] == [JOB.uuid(0, 5)]


@pytest.mark.parametrize("first", ["noise", "fault"])
def test_a_corrected_event_of_another_gpu_is_no_part_of_it(first: str) -> None:
    noise = link(5, 1.0 if first == "noise" else 1.4, 145, detail={**DOWN, "unit": "RLW_RXPIPE", "fatal": False})
    played = run(link(2, 1.2), noise)
    fault = [f for f in played.last().values() if f["code"] == 149]
    assert fault[0]["entity"]["gpu_uuid"] == JOB.uuid(0, 2)
    assert len(played.opened()) == 2


def test_programs_that_the_link_ended_are_counted_with_it() -> None:
    finding = settled(link(2, 1.0), link(5, 1.2), link(5, 2.0, 45, detail={}), link(2, 2.1, 45, detail={}))
    assert counts(finding) == {149: 2, 45: 2}


def test_a_program_that_fails_an_hour_later_is_another_matter() -> None:
    played = run(link(2, 1.0), link(5, 1.2), link(5, 3600.0, 43, detail={}))
    assert len(played.opened()) == 2


def test_links_of_two_gpus_an_hour_apart_are_two_findings() -> None:
    assert len(run(link(2, 1.0), link(5, 3600.0)).opened()) == 2


def test_a_gpu_of_the_group_that_says_it_again_is_counted_there() -> None:
    assert counts(settled(link(2, 1.0), link(5, 1.2), link(5, 120.0))) == {149: 3}


def test_a_memory_error_of_another_gpu_at_the_same_time_is_its_own() -> None:
    played = run(link(2, 1.0), link(5, 1.3, 48, detail={}))
    assert {f["entity"]["type"] for f in played.last().values()} == {"gpu"}
    assert len(played.opened()) == 2


def test_a_gpu_of_the_group_that_is_lost_has_a_finding_of_its_own() -> None:
    lost = link(5, 3.0, 79, detail={}, gpu_state="lost")
    played = run(link(2, 1.0), link(5, 1.2), lost)
    (own,) = [f for f in played.last().values() if f["code"] == 79]
    assert own["entity"]["gpu_uuid"] == JOB.uuid(0, 5)


def test_tests_and_forgeries_are_not_mixed_with_true_ones() -> None:
    injected = link(5, 1.2, detail={**DOWN, "injected": True})
    played = run(link(2, 1.0), injected)
    assert sorted(f["advice"] for f in played.last().values()) == ["drain_now", "none"]


def test_two_witnesses_of_one_end_count_once_and_two_ends_twice() -> None:
    def nvml(gpu: int, at_s: float) -> Inbound:
        return link(gpu, at_s, seq=(1 << 62) + int(at_s * 1e6), witness=["nvml"], pci=None, trusted=None)

    assert counts(settled(link(2, 1.0), nvml(2, 1.1), link(5, 1.2), nvml(5, 1.3))) == {149: 2}
    assert counts(settled(link(2, 1.0), nvml(5, 1.3))) == {149: 2}


def test_errors_of_one_link_of_one_gpu_are_not_added_to_those_of_another() -> None:
    parity = {"link": 4, "registers": [1 << 4] + [0] * 6}
    lines = [link(gpu, 1 + at * 3600, 74, seq=at, detail=parity) for at, gpu in enumerate((2, 2, 5))]
    assert "rma" not in {f["advice"] for f in run(*lines).of()}


def test_an_operator_who_resumes_the_node_closes_it_for_all_its_gpus() -> None:
    states = [node_state(NODE, ts_ns=T0), node_state(NODE, ts_ns=T0 + 60 * S, flags=["DRAIN"])]
    resumed = node_state(NODE, ts_ns=T0 + 600 * S)
    again = link(5, 1.2)
    late = Inbound(again.kind, again.subject, {**again.data, "seq": 99}, T0 + 700 * S)
    played = run(*states, link(2, 1.0), link(5, 1.2), resumed, late)
    assert [f["state"] for f in played.of()][-1] == "closed"


@pytest.mark.parametrize("cut", range(2, 1500, 111))
def test_a_cold_start_says_what_a_warm_instance_says(cut: int) -> None:
    lines = [
        link(2, 1.0), link(5, 1.2), switch(12028, 30.0), link(5, 31.0, 154, detail={"from": 0, "to": 1}),
        link(7, 400.0), link(5, 900.0), link(5, 1300.0, 154, detail={"from": 1, "to": 0}),
    ]  # fmt: skip
    messages = merged([inventory(JOB, 0)], lines)
    warm = play(DetectStep(), messages)
    last = messages[-1].ts_ns
    said = [f for f in cold_twin(DetectStep(), messages, warm, T0 + cut * S) if f["ts"] <= last]
    assert said == [f for f in warm.of() if T0 + cut * S < f["ts"] <= last]
