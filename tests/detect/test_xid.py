"""XIDs, SXids and lost GPUs: one incident makes one finding, with the advice that it deserves and no other."""

from dataclasses import replace
from typing import Any

import pytest
from samples import (
    T0,
    Inbound,
    Job,
    Played,
    S,
    agent_status,
    inventory,
    job_event,
    job_samples,
    kernel_event,
    merged,
    node_state,
    play,
    put,
)

from heeler.detect import DetectStep

JOB = Job(nodes=2)
NODE, UUID = JOB.node(0), JOB.uuid(0, 3)
DRAINS = {"drain_now", "drain_after_job", "reset", "reboot", "rma"}


def line(code: int | None, at_s: float = 1.0, seq: int = 1, **more: Any) -> Inbound:
    known: dict[str, Any] = {"uuid": UUID, "jobs": [JOB.id]} | more
    return kernel_event(known.pop("node", NODE), code, ts_ns=T0 + int(at_s * S), seq=seq, **known)


def lines(*codes: int, every_s: float = 1.0, **more: Any) -> list[Inbound]:
    return [line(code, 1.0 + every_s * at, at + 1, **more) for at, code in enumerate(codes)]


def run(*messages: Inbound, until_s: float = 0.0) -> Played:
    return play(
        DetectStep(), merged([inventory(JOB, 0)], messages), until_ns=T0 + int(until_s * S) if until_s else None
    )


def third_lost(_window: int, node: int) -> list[str] | None:
    return ["ok"] * 3 + ["lost"] + ["ok"] * 4 if node == 0 else None


def final(played: Played) -> dict[str, Any]:
    (only,) = played.last().values()
    return only


def test_a_lost_gpu_that_was_read_again_at_once_is_certain() -> None:
    finding = final(run(line(79, gpu_state="lost")))
    assert (finding["kind"], finding["code"], finding["advice"]) == ("xid", 79, "drain_now")
    assert finding["confidence"] == 0.99
    assert finding["severity"] == "critical"
    assert finding["entity"]["gpu_uuid"] == UUID
    assert finding["entity"]["gpu_index"] == 3
    assert finding["job_id"] == JOB.id
    assert finding["summary"] == (
        "GPU 3 (GPU-00000000…) on n0000: XID 79, GPU has fallen off the bus, confirmed lost; job 81234."
    )


def test_a_gpu_that_hangs_after_79_is_confirmed_too() -> None:
    assert final(run(line(79, gpu_state="hung")))["advice"] == "drain_now"


def test_79_alone_waits_for_a_second_witness() -> None:
    finding = final(run(line(79)))
    assert finding["advice"] == "observe"
    assert finding["confidence"] < 0.9


def test_79_of_a_gpu_that_answers_is_hardly_believed() -> None:
    finding = final(run(line(79, gpu_state="ok")))
    assert finding["advice"] == "observe"
    assert finding["confidence"] <= 0.3


@pytest.mark.parametrize("second", ["sample", "kernel line", "nvml"])
def test_a_second_witness_confirms_79(second: str) -> None:
    messages: list[Inbound] = [line(79, 5.0)]
    if second == "sample":
        messages += job_samples(JOB, windows=2, states=third_lost)
    elif second == "kernel line":
        messages.append(line(None, 6.0, 2, kind="gpu_lost"))
    else:
        messages.append(line(79, 6.0, 2, witness=["nvml"]))
    finding = final(run(*messages))
    assert finding["advice"] == "drain_now"
    assert finding["code"] == 79


def test_a_loss_without_any_xid_and_the_79_that_follows_are_one_incident() -> None:
    played = run(line(None, 1.0, 1, kind="gpu_lost"), line(79, 40.0, 2))
    finding = final(played)
    assert finding["kind"] == "gpu_lost"
    assert finding["advice"] == "drain_now"


def test_a_gpu_that_samples_call_lost_is_a_finding_without_any_line() -> None:
    samples = job_samples(JOB, windows=3, states=third_lost)
    finding = final(run(*samples))
    assert (finding["kind"], finding["advice"], finding["confidence"]) == ("gpu_lost", "drain_now", 0.99)
    assert finding["jobs"] == [JOB.id]


def test_one_hung_reading_is_not_enough_and_two_are() -> None:
    samples = job_samples(JOB, windows=2, states=lambda _w, n: ["hung"] + ["ok"] * 7 if n == 0 else None)
    first, second = samples[0], next(m for m in samples[1:] if m.data["node"] == NODE)
    assert final(run(first))["advice"] == "observe"
    assert final(run(first, second))["advice"] == "drain_now"


def test_a_state_that_is_not_known_is_no_loss() -> None:
    samples = job_samples(JOB, windows=5, states=lambda _w, _n: ["unknown"] * 8)
    assert not run(*samples).findings


def test_a_lost_gpu_that_answers_again_for_two_minutes_is_back() -> None:
    samples = job_samples(JOB, windows=30, states=lambda w, n: ["lost" if w < 5 and n == 0 else "ok"] + ["ok"] * 7)
    played = run(*samples)
    assert final(played)["state"] == "closed"
    assert final(played)["close_reason"] == "the GPU answers again"


def test_a_memory_error_with_its_followers_is_one_finding() -> None:
    played = run(*lines(48, 63, 94, 45, 45, 45), until_s=100)
    finding = final(played)
    assert len(played.opened()) == 1
    assert (finding["code"], finding["advice"], finding["count"]) == (48, "drain_now", 6)
    counted = {item["value"]: item["count"] for item in finding["evidence"]}
    assert counted == {48: 1, 63: 1, 94: 1, 45: 3}


def test_the_worst_code_of_a_burst_counts_whatever_came_first() -> None:
    played = run(*lines(63, 94, 48))
    assert [f["code"] for f in played.of()][-1] == 48
    assert len(played.opened()) == 1


def test_45_alone_is_none_of_its_own_and_goes_with_what_follows() -> None:
    assert not run(*lines(45, 45)).findings
    finding = final(run(*lines(45, 119)))
    assert finding["code"] == 119
    assert {item["value"] for item in finding["evidence"]} == {45, 119}


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 69, 109])
def test_a_programs_error_never_drains_and_is_over_by_itself(code: int) -> None:
    played = run(line(code), until_s=700)
    assert not {f["advice"] for f in played.of()} & DRAINS
    assert all(f["state"] == "closed" for f in played.last().values())


def test_a_programs_error_names_its_job() -> None:
    finding = final(run(line(31)))
    assert (finding["severity"], finding["advice"], finding["cause"]) == ("info", "none", "application")
    assert finding["jobs"] == [JOB.id]


@pytest.mark.parametrize("code", [46, 48, 62, 64, 95, 110, 119, 120, 140, 143, 158, 167])
def test_hardware_codes_advise_a_drain_at_once(code: int) -> None:
    finding = final(run(line(code)))
    assert finding["advice"] == "drain_now"
    assert finding["confidence"] >= 0.9


@pytest.mark.parametrize("code", [63, 94, 156])
def test_a_pending_reset_waits_for_the_end_of_the_job(code: int) -> None:
    finding = final(run(line(code)))
    assert (finding["advice"], finding["cause"]) == ("drain_after_job", "pending_reset")


def test_an_unknown_code_stays_visible_with_its_line() -> None:
    finding = final(run(line(9123, text="something new")))
    assert (finding["severity"], finding["code"]) == ("info", 9123)
    assert finding["advice"] not in DRAINS
    assert finding["evidence"][0]["text"] == "something new"


def test_a_line_that_is_not_the_kernels_never_drains() -> None:
    finding = final(run(line(79, trusted=False, gpu_state="lost")))
    assert (finding["severity"], finding["advice"], finding["cause"]) == ("info", "none", "untrusted")


def test_a_forged_line_does_not_spoil_a_true_one() -> None:
    played = run(line(79, 1, 1, trusted=False), line(79, 2, 2, gpu_state="lost"))
    assert sorted(f["advice"] for f in played.last().values()) == ["drain_now", "none"]


def test_an_injected_link_error_is_a_test() -> None:
    detail = {"unit": "NETIR", "fatal": True, "injected": True, "link": None}
    finding = final(run(line(149, detail=detail)))
    assert (finding["advice"], finding["cause"]) == ("none", "injected")


@pytest.mark.parametrize(
    ("code", "detail", "drains"),
    [
        (145, {"unit": "RLW_RXPIPE", "fatal": False, "link": 17}, False),
        (145, {"unit": "RLW_RSPCOL", "severity": "Fatal", "error_status": "0x2"}, True),
        (145, {"unit": "RLW_RSPCOL", "severity": "Nonfatal"}, False),
        (149, {"unit": "NETIR_BER", "fatal": True}, False),
        (149, {"unit": "NETIR_LINK", "fatal": True}, True),
        (150, {"unit": "MSE", "fatal": True}, True),
        (146, {"unit": "TLW_RX", "fatal": True, "error_status": 0x80000004}, False),
        (74, {"registers": ["0x1", "0x0", "0x0", "0x0", "0x0", "0x0", "0x0"]}, False),
        (74, {"registers": ["0x10000", "0x0", "0x0", "0x0", "0x0", "0x0", "0x0"]}, True),
        (74, {"registers": [0, 0, 2, 0, 0, 0, 0]}, True),
    ],
)
def test_link_errors_are_decided_by_their_details(code: int, detail: dict[str, Any], drains: bool) -> None:
    assert (final(run(line(code, detail=detail)))["advice"] in DRAINS) is drains


@pytest.mark.parametrize(
    ("action", "advice"),
    [
        (1, "drain_after_job"),
        ("0x2", "drain_now"),
        (3, "drain_after_job"),
        (4, "drain_now"),
        (5, "person"),
        (9, "person"),
    ],
)
def test_the_drivers_own_verdict_outranks_the_table(action: object, advice: str) -> None:
    played = run(line(43), line(154, 2, 2, detail={"from": 0, "to": action}))
    assert final(played)["advice"] == advice


def test_the_drivers_verdict_is_taken_back() -> None:
    to_reset, to_none = {"from": 0, "to": 1}, {"from": 1, "to": 0}
    finding = final(run(line(154, 1, 1, detail=to_reset), line(154, 30, 2, detail=to_none)))
    assert finding["state"] == "closed"


def test_nvmls_recovery_action_is_a_verdict_too() -> None:
    samples = job_samples(JOB, windows=5, change=put("recovery_action", 2, node=0, gpu=3, since=2))
    finding = final(run(*samples))
    assert (finding["code"], finding["advice"]) == (154, "drain_now")


def test_162_takes_163_back() -> None:
    played = run(line(163), line(162, 100, 2))
    assert [f["state"] for f in played.of("xid") if f["code"] == 163][-1] == "closed"


def test_one_place_on_the_chip_in_two_jobs_is_hardware() -> None:
    place = {"gpc": 3, "tpc": 1, "sm": 0}
    played = run(line(13, 1, 1, detail=place, jobs=["1"]), line(13, 2000, 2, detail=place, jobs=["2"]), until_s=2001)
    last = played.of()[-1]
    assert (last["cause"], last["advice"]) == ("repeated_place", "drain_after_job")


def test_different_places_in_two_jobs_are_bugs() -> None:
    played = run(
        line(13, 1, 1, detail={"gpc": 3, "tpc": 1, "sm": 0}, jobs=["1"]),
        line(13, 2000, 2, detail={"gpc": 2, "tpc": 1, "sm": 0}, jobs=["2"]),
    )
    assert not {f["advice"] for f in played.of()} & DRAINS


def test_a_job_with_the_error_on_two_gpus_has_a_bug() -> None:
    place = {"gpc": 3, "tpc": 1, "sm": 0}
    other = JOB.uuid(0, 5)
    played = run(
        line(13, 1, 1, detail=place, jobs=["1"]),
        line(13, 1.5, 2, detail=place, jobs=["1"], uuid=other),
        line(13, 2000, 3, detail=place, jobs=["2"]),
        line(13, 2000.5, 4, detail=place, jobs=["2"], uuid=other),
    )
    assert not [f for f in played.of() if f["advice"] in DRAINS and f["ts"] > T0 + 2000 * S + S]


def test_a_code_that_comes_again_and_again_asks_for_a_drain() -> None:
    played = run(*[line(109, 100.0 * at, at) for at in range(1, 4)])
    assert [f["advice"] for f in played.of()][-1] == "drain_after_job"
    assert len(played.opened()) == 1


def test_many_lines_of_one_minute_are_one_repetition() -> None:
    played = run(*[line(109, 1 + at * 0.1, at) for at in range(100)], until_s=60)
    assert final(played)["advice"] == "observe"
    assert final(played)["count"] == 100


def test_eight_hundred_thousand_equal_lines_are_one_finding_with_their_count() -> None:
    played = run(*[line(95, 1 + 60 * at, at + 1, count=80_000) for at in range(10)], until_s=700)
    assert len(played.opened()) == 1
    assert final(played)["count"] == 800_000


def test_a_redelivered_line_counts_once() -> None:
    event = line(95)
    assert final(run(event, event, event))["count"] == 1


def test_a_reboot_closes_what_went_before() -> None:
    played = run(line(79, gpu_state="lost"), agent_status(NODE, ts_ns=T0 + 300 * S, boot="after"))
    assert (final(played)["state"], final(played)["close_reason"]) == ("closed", "the node was rebooted")


def test_a_line_from_before_the_reboot_opens_nothing() -> None:
    late = replace(line(79, 1, 1, gpu_state="lost"), ts_ns=T0 + 5 * S)
    alive = agent_status(NODE, ts_ns=T0 + 300 * S, boot="after")
    assert not play(DetectStep(), [alive, late]).findings


def test_an_operator_who_resumes_the_node_closes_the_finding_and_the_old_line_stays_closed() -> None:
    event = line(48)
    drained = node_state(NODE, ts_ns=T0 + 60 * S, flags=["DRAIN"])
    resumed = node_state(NODE, ts_ns=T0 + 600 * S)
    again = replace(event, ts_ns=T0 + 700 * S, data={**event.data, "seq": 7})
    played = run(node_state(NODE, ts_ns=T0), event, drained, resumed, again)
    assert final(played)["state"] == "closed"

    fresh = line(48, 800, 9)
    played = run(node_state(NODE, ts_ns=T0), event, drained, resumed, again, fresh)
    assert len(played.opened()) == 2


def test_a_node_that_left_the_cluster_takes_its_findings_along() -> None:
    gone = node_state(NODE, ts_ns=T0 + 600 * S, event="gone", state="unknown")
    assert final(run(line(48), gone))["state"] == "closed"


def test_a_slurm_outage_resumes_nothing() -> None:
    unknown = node_state(NODE, ts_ns=T0 + 600 * S, state="unknown")
    drained = node_state(NODE, ts_ns=T0 + 60 * S, flags=["DRAIN"])
    played = run(node_state(NODE, ts_ns=T0), line(48), drained, unknown)
    assert final(played)["state"] != "closed"


def test_a_switch_error_concerns_the_node_and_all_its_jobs() -> None:
    event = kernel_event(NODE, 23001, ts_ns=T0 + S, seq=1, kind="sxid", pci="0000:c1:00", jobs=["5", "6"])
    finding = final(run(event))
    assert (finding["kind"], finding["entity"]["type"], finding["advice"]) == ("sxid", "node", "drain_now")
    assert finding["jobs"] == ["5", "6"]
    assert "gpu_uuid" not in finding["entity"]


def test_a_switch_error_that_was_corrected_is_information() -> None:
    event = kernel_event(NODE, 24001, ts_ns=T0 + S, seq=1, kind="sxid")
    assert final(run(event))["advice"] == "none"


def test_a_gpu_known_by_its_address_only_is_named_by_it() -> None:
    event = kernel_event("other", 48, ts_ns=T0 + S, seq=1)
    finding = final(run(event))
    assert finding["entity"]["pci"] == "0000:30:00"
    assert "gpu_uuid" not in finding["entity"]


def test_the_inventory_turns_an_address_into_a_gpu() -> None:
    finding = final(run(kernel_event(NODE, 48, ts_ns=T0 + S, seq=1)))
    assert finding["entity"]["gpu_uuid"] == UUID


def test_lines_of_two_gpus_are_two_findings() -> None:
    played = run(line(48, 1, 1), line(48, 1.5, 2, uuid=JOB.uuid(0, 4)))
    assert len(played.opened()) == 2


@pytest.mark.parametrize("kind", ["oom", "aer", "gap", "link", "gpu_uuid", "unknown"])
def test_other_lines_are_not_this_rules(kind: str) -> None:
    assert not run(line(None, kind=kind)).findings


def test_a_finding_of_a_lost_gpu_keeps_fresh_data_while_samples_say_so() -> None:
    samples = job_samples(JOB, windows=60, states=lambda _w, n: ["lost"] + ["ok"] * 7 if n == 0 else None)
    last = play(DetectStep(), merged([job_event(JOB), inventory(JOB, 0)], samples)).of("gpu_lost")[-1]
    assert last["ts"] - last["data_ts"] <= 60 * S


# Places on the chip.

HERE, THERE = {"gpc": 3, "tpc": 1, "sm": 0}, {"gpc": 2, "tpc": 4, "sm": 1}


def test_one_place_in_two_jobs_counts_though_the_first_finding_is_still_open() -> None:
    played = run(line(13, 1, 1, detail=HERE, jobs=["1"]), line(13, 300, 2, detail=HERE, jobs=["2"]))
    assert (played.of()[-1]["cause"], len(played.opened())) == ("repeated_place", 1)


def test_two_jobs_at_different_places_are_bugs_though_the_first_finding_is_still_open() -> None:
    played = run(line(13, 1, 1, detail=HERE, jobs=["1"]), line(13, 300, 2, detail=THERE, jobs=["2"]))
    assert not {f["advice"] for f in played.of()} & DRAINS


def test_jobs_that_have_it_all_over_the_chip_have_a_bug_though_places_are_the_same() -> None:
    everywhere = [{"gpc": gpc, "tpc": tpc, "sm": 0} for gpc in range(4) for tpc in range(2)]
    lines = [
        line(13, 1 + 2000 * job + 0.1 * at, 100 * job + at, detail=place, jobs=[str(job)])
        for job in (1, 2, 3)
        for at, place in enumerate(everywhere)
    ]
    assert not {f["advice"] for f in run(*lines).of()} & DRAINS


def test_a_page_fault_is_placed_by_the_unit_that_asked() -> None:
    def fault(job: str, at_s: float, client: str) -> Inbound:
        detail = {"gpc": 5, "client": client, "engine": "GRAPHICS"}
        return line(31, at_s, int(at_s), detail=detail, jobs=[job])

    same = run(fault("1", 1, "GPC5 GPCCLIENT_T1_3"), fault("2", 2000, "GPC5 GPCCLIENT_T1_3"))
    assert same.of()[-1]["cause"] == "repeated_place"
    other = run(fault("1", 1, "GPC5 GPCCLIENT_T1_3"), fault("2", 2000, "GPC5 GPCCLIENT_T1_0"))
    assert not {f["advice"] for f in other.of()} & DRAINS


@pytest.mark.parametrize(
    ("users", "cause", "advice"),
    [
        (("ada", "bob"), "repeated_place", "drain_after_job"),
        (("ada", "ada"), "repeated_by_user", "person"),
        (("ada", None), "repeated_place", "drain_after_job"),
    ],
)
def test_one_place_in_two_jobs_of_one_user_may_be_the_users_program(
    users: tuple[str | None, str | None], cause: str, advice: str
) -> None:
    jobs = [
        job_event(Job(id=str(at), nodes=2), ts_ns=T0, **({"user": user} if user else {}))
        for at, user in enumerate(users)
    ]
    lines_ = [line(13, 1 + 2000 * at, 1 + at, detail=HERE, jobs=[str(at)]) for at in range(2)]
    last = run(*jobs, *lines_).of("xid")[-1]
    assert (last["cause"], last["advice"]) == (cause, advice)


# What belongs together.


def test_all_cleanups_before_their_cause_are_counted_with_it() -> None:
    assert counts(settled(*lines(45, 45, 45, 48))) == {48: 1, 45: 3}


def test_a_cleanup_long_after_an_error_is_not_put_down_to_it() -> None:
    assert counts(settled(line(48, 1, 1), line(45, 130, 2))) == {48: 1}


@pytest.mark.parametrize("code", [171, 172])
def test_what_tells_dram_from_sram_goes_with_48_and_is_seen_alone_too(code: int) -> None:
    together = settled(*lines(code, 48))
    assert (together["code"], counts(together)) == (48, {48: 1, code: 1})
    alone = settled(line(code))
    assert (alone["severity"], alone["code"]) == ("info", code)


def test_each_code_of_a_burst_is_counted_by_itself() -> None:
    assert counts(settled(*lines(62, 45, 31, 31))) == {62: 1, 45: 1, 31: 2}


def test_a_verdict_whose_text_cannot_be_read_does_not_undo_the_one_before() -> None:
    played = run(line(43), line(154, 2, 2, detail={"from": 0, "to": 2}), line(154, 3, 3, text="changed"))
    assert final(played)["advice"] == "drain_now"


def test_evidence_says_what_each_code_means_and_what_to_do() -> None:
    shown = final(run(line(48)))["evidence"][0]
    assert (shown["meaning"], shown["action"]) == ("uncorrectable memory error", "drain, reset the GPU")


# What only NVML saw.

NVML = 1 << 62


def from_nvml(code: int, at_s: float, **more: Any) -> Inbound:
    """An event without a record of the kernel log: its number is made of the time since boot."""
    return line(code, at_s, NVML + int(at_s * 1_000_000), witness=["nvml"], pci=None, trusted=None, **more)


def settled(*messages: Inbound) -> dict[str, Any]:
    """The finding when it is said again: a count alone is no news."""
    return final(run(*messages, until_s=200.0))


def counts(finding: dict[str, Any]) -> dict[int, int]:
    return {item["value"]: item["count"] for item in finding["evidence"]}


def test_an_xid_that_only_nvml_saw_is_a_finding_like_any_other() -> None:
    finding = settled(from_nvml(48, 1.0))
    assert (finding["kind"], finding["code"], finding["advice"]) == ("xid", 48, "drain_now")
    assert finding["entity"]["gpu_uuid"] == UUID


def test_lines_of_the_kernel_log_count_after_an_event_of_nvml() -> None:
    """Their numbers are far below NVML's, and are not old for that."""
    finding = settled(from_nvml(31, 1.0), line(31, 20.0, 7), line(31, 40.0, 8), from_nvml(31, 60.0))
    assert counts(finding) == {31: 4}


@pytest.mark.parametrize("first", ["kmsg", "nvml"])
def test_one_error_that_both_witnesses_sent_counts_once(first: str) -> None:
    pair = [line(31, 1.0, 7), from_nvml(31, 3.0)] if first == "kmsg" else [from_nvml(31, 1.0), line(31, 3.0, 7)]
    finding = settled(*pair)
    assert counts(finding) == {31: 1}
    assert finding["evidence"][0]["witness"] == ["kmsg", "nvml"]


def test_the_second_witness_confirms_a_79_that_counts_once() -> None:
    finding = settled(line(79, 1.0, 7), from_nvml(79, 2.0))
    assert (finding["advice"], finding["count"]) == ("drain_now", 1)


def test_errors_further_apart_than_witnesses_can_be_are_two() -> None:
    assert counts(settled(line(31, 1.0, 7), from_nvml(31, 6.5))) == {31: 2}


def test_one_witness_that_says_it_twice_means_it_twice() -> None:
    assert counts(settled(line(31, 1.0, 7), line(31, 2.0, 8))) == {31: 2}
    assert counts(settled(from_nvml(31, 1.0), from_nvml(31, 2.0))) == {31: 2}


def test_each_word_has_one_twin_at_most() -> None:
    assert counts(settled(line(31, 1.0, 7), line(31, 1.5, 8), from_nvml(31, 2.0), from_nvml(31, 2.5))) == {31: 2}
    assert counts(settled(line(31, 1.0, 7), from_nvml(31, 2.0), from_nvml(31, 2.5))) == {31: 2}


def test_an_event_that_the_agent_has_joined_is_nobodys_twin() -> None:
    joined = line(31, 1.0, 7, witness=["kmsg", "nvml"])
    assert counts(settled(joined, line(31, 2.0, 8))) == {31: 2}
    assert counts(settled(joined, from_nvml(31, 2.0))) == {31: 2}


def test_twins_of_two_gpus_or_codes_are_no_twins() -> None:
    other = from_nvml(31, 2.0, uuid=JOB.uuid(0, 4))
    assert [counts(one) for one in run(line(31, 1.0, 7), other, until_s=200.0).last().values()] == [{31: 1}, {31: 1}]
    assert counts(settled(line(48, 1.0, 7), from_nvml(94, 2.0))) == {48: 1, 94: 1}


def test_redelivery_of_either_witness_changes_nothing() -> None:
    pair = [line(31, 1.0, 7), from_nvml(31, 3.0)]
    later = [replace(message, ts_ns=message.ts_ns + 3 * S) for message in pair]
    assert counts(settled(*pair, *later)) == {31: 1}
    assert counts(settled(*pair, *later, from_nvml(31, 4.0))) == {31: 2}


@pytest.mark.parametrize("kind", ["gpu_event", "thermal", "raid", "nvlink", "unknown"])
def test_kinds_that_no_rule_reads_break_nothing(kind: str) -> None:
    more: dict[str, Any] = {"detail": {"event": "double_bit_ecc", "value": 1}, "witness": ["nvml"], "raw": None}
    for code in (None, 79):
        played = run(line(code, 1.0, NVML + 5, kind=kind, **more), line(31, 2.0, 3), until_s=200.0)
        assert counts(final(played)) == {31: 1}
