"""The memory of a GPU from the first uncorrectable error to its replacement: one incident, with the kernel's lines."""

from typing import Any

import numpy as np
import pytest
from samples import (
    T0,
    Change,
    Columns,
    Inbound,
    Job,
    Played,
    S,
    agent_status,
    inventory,
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


def flag(name: str, value: float = 1.0, *, since: int = 5, until: int = 1 << 30) -> Change:
    """A column that everybody has, set for one GPU."""

    def change(window: int, c: Columns) -> None:
        c.setdefault(name, np.zeros(c["power_w"].shape))
        if since <= window < until:
            c[name][0, 3] = value

    return change


def run(*change: Change, windows: int = 30, more: list[Inbound] | None = None, first: int = 0) -> Played:
    samples = job_samples(JOB, windows=windows, change=change, first=first)
    return play(DetectStep(), merged([inventory(JOB, 0)], samples, more or []))


def line(code: int, at_s: float, seq: int = 1) -> Inbound:
    return kernel_event(NODE, code, ts_ns=T0 + int(at_s * S), seq=seq, uuid=UUID, jobs=[JOB.id])


def only(played: Played) -> dict[str, Any]:
    (finding,) = played.last().values()
    return finding


def states(finding: dict[str, Any]) -> dict[Any, int]:
    return {e["value"]: e["count"] for e in finding["evidence"] if e["metric"] in ("memory_state", "xid")}


def test_a_row_that_waits_for_its_remapping_asks_for_a_reset_after_the_job() -> None:
    finding = only(run(flag("remap_pending")))
    assert (finding["kind"], finding["severity"], finding["advice"]) == ("ecc", "warning", "drain_after_job")
    assert (finding["cause"], finding["jobs"], finding["entity"]["gpu_uuid"]) == ("pending_reset", [JOB.id], UUID)
    assert finding["summary"] == ("GPU 3 (GPU-00000000…) on n0000: a memory row waits to be remapped; job 81234.")
    assert "code" not in finding


def test_a_failed_remapping_asks_for_the_part_to_be_replaced() -> None:
    finding = only(run(flag("remap_failed")))
    assert (finding["kind"], finding["severity"], finding["advice"]) == ("ecc", "critical", "rma")
    assert (finding["cause"], finding["confidence"]) == ("remap_failed", 0.95)


def test_the_whole_way_is_one_finding() -> None:
    played = run(
        flag("ecc_uncorrected_volatile", 2.0, since=4),
        flag("remap_pending", since=6, until=20),
        flag("remap_failed", since=20),
        more=[line(94, 52, 1), line(63, 53, 2), line(64, 206, 3)],
    )
    finding = only(played)
    assert [(f["cause"], f["advice"]) for f in played.of() if f["state"] == "open"] == [
        ("pending_reset", "drain_after_job")
    ]
    assert (finding["advice"], finding["state"]) == ("rma", "update")
    assert states(finding) == {
        "uncorrectable_errors": 2,
        "remap_pending": 1,
        "remap_failed": 1,
        94: 1,
        63: 1,
        64: 1,
    }


def test_a_line_of_the_kernel_first_makes_the_same_one_finding() -> None:
    finding = only(run(flag("remap_pending"), more=[line(63, 45)]))
    assert (finding["kind"], finding["code"], finding["advice"]) == ("xid", 63, "drain_after_job")
    assert states(finding) == {63: 1, "remap_pending": 1}


def test_a_reset_puts_it_right() -> None:
    played = run(flag("remap_pending", until=12), windows=40, more=[line(63, 62)])
    finding = only(played)
    assert finding["close_reason"] == "the GPU was reset and its memory is in order"
    assert 120 <= (finding["ts"] - T0) / S - 130 <= 140


def test_a_reset_does_not_close_what_else_is_wrong() -> None:
    finding = only(run(flag("remap_pending", until=12), windows=40, more=[line(119, 62)]))
    assert finding["state"] != "closed"


def test_a_reading_that_is_missing_is_no_reset() -> None:
    played = run(flag("remap_pending"), flag("remap_pending", np.nan, since=12), windows=60)
    assert only(played)["state"] != "closed"


def test_errors_that_come_now_ask_for_a_reset_after_the_job() -> None:
    finding = only(run(flag("ecc_uncorrected_volatile", 3.0)))
    assert (finding["kind"], finding["advice"]) == ("ecc", "drain_after_job")
    assert states(finding) == {"uncorrectable_errors": 3}
    closed = only(run(flag("ecc_uncorrected_volatile", 3.0, until=20), windows=40))
    assert closed["state"] == "closed"


def test_errors_that_stood_there_before_are_none() -> None:
    stood = flag("ecc_uncorrected_volatile", 5.0, since=0)
    assert not run(stood, flag("ecc_uncorrected_volatile", 0.0, since=12)).findings
    assert not run(stood, flag("ecc_uncorrected_volatile", np.nan, since=12, until=14)).findings


def test_corrected_errors_and_remapped_rows_are_none() -> None:
    assert not run(
        flag("ecc_corrected_volatile", 30.0),
        flag("remapped_rows_correctable", 4.0),
        flag("remapped_rows_uncorrectable"),
    ).findings


def test_a_reboot_ends_it_and_a_flag_that_stays_says_it_again() -> None:
    before = job_samples(JOB, windows=20, change=[flag("remap_failed")])
    after = job_samples(JOB, windows=30, first=0, change=[flag("remap_failed", since=0)])[40:]
    for message in after:
        message.data["boot"] = "next-" + message.data["boot"]
    played = play(DetectStep(), merged([inventory(JOB, 0)], before, after))
    assert [f["close_reason"] for f in played.of(state="closed")] == ["the node was rebooted"]
    assert len(played.opened("ecc")) == 2


def test_an_operator_who_resumes_the_node_is_not_told_again_until_it_changes() -> None:
    told = [
        node_state(NODE, ts_ns=T0 + 80 * S, flags=["DRAIN"]),
        node_state(NODE, ts_ns=T0 + 120 * S),
    ]
    played = run(flag("remap_pending"), windows=40, more=told)
    assert [f["state"] for f in played.of() if f["state"] != "update"] == ["open", "closed"]
    worse = run(flag("remap_pending"), flag("remap_failed", since=20), windows=40, more=told)
    assert [f["advice"] for f in worse.opened()] == ["drain_after_job", "rma"]
    again = run(flag("remap_pending"), flag("remap_pending", 0.0, since=15, until=20), windows=40, more=told)
    assert len(again.opened()) == 2


@pytest.mark.parametrize("name", ["remap_pending", "remap_failed", "retired_pages_pending"])
def test_columns_that_nobody_has_say_nothing(name: str) -> None:
    assert not run(flag(name, np.nan, since=0), put("ecc_uncorrected_volatile", np.nan)).findings


def test_redelivered_samples_count_no_error_twice() -> None:
    samples = job_samples(JOB, windows=30, change=[flag("ecc_uncorrected_volatile", 1.0)])
    twins = [m for m in samples if m.data["node"] == NODE]
    mixed = [*samples[:24], *twins[3:9], *samples[24:]]
    assert states(only(play(DetectStep(), [inventory(JOB, 0), *mixed]))) == {"uncorrectable_errors": 1}


def test_silence_of_the_samples_closes_nothing() -> None:
    samples = job_samples(JOB, windows=12, change=[flag("remap_failed")])
    alive = [agent_status(NODE, ts_ns=T0 + at * S) for at in range(130, 4000, 30)]
    played = play(DetectStep(), merged([inventory(JOB, 0)], samples, alive))
    (finding,) = played.last("ecc").values()
    assert finding["state"] != "closed"
