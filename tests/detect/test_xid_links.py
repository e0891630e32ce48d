"""Errors of NVLinks: decided by registers, units and status, and by how often one link has them."""

from typing import Any

import pytest
from samples import T0, Inbound, Job, Played, S, cold_twin, inventory, kernel_event, merged, play

from heeler.detect import DetectStep
from heeler.detect.xid_table import load_table

JOB = Job(nodes=2)
NODE, UUID = JOB.node(0), JOB.uuid(0, 3)
DRAINS = {"drain_now", "drain_after_job", "reset", "reboot", "rma"}
TABLE = load_table()


def bits(register: int, *numbers: int) -> list[int]:
    found = [0] * 7
    found[register] = sum(1 << number for number in numbers)
    return found


def line(code: int, at_s: float = 1.0, seq: int = 1, **more: Any) -> Inbound:
    return kernel_event(NODE, code, ts_ns=T0 + int(at_s * S), seq=seq, uuid=UUID, jobs=[JOB.id], **more)


def run(*messages: Inbound, until_s: float = 0.0) -> Played:
    until_ns = T0 + int(until_s * S) if until_s else None
    return play(DetectStep(), merged([inventory(JOB, 0)], messages), until_ns=until_ns)


def nvlink4(*registers: list[int], link: int = 4, every_s: float = 3600.0) -> Played:
    lines = [
        line(74, 1 + at * every_s, at + 1, detail={"link": link, "fatal": True, "registers": found})
        for at, found in enumerate(registers)
    ]
    return run(*lines)


def advice(played: Played) -> str:
    return str(played.of()[-1]["advice"])


@pytest.mark.parametrize("quiet", [(0,), (23,), (30,), (0, 23, 30)])
def test_bits_that_mean_nothing_ask_for_nothing(quiet: tuple[int, ...]) -> None:
    (finding,) = nvlink4(bits(0, *quiet)).last().values()
    assert (finding["severity"], finding["advice"]) == ("info", "none")


@pytest.mark.parametrize("hard", [(0, 4), (0, 5), (0, 8), (0, 16), (0, 21), (0, 28), (2, 0), (2, 6)])
def test_bits_of_hardware_drain(hard: tuple[int, int]) -> None:
    assert advice(nvlink4(bits(*hard))) == "drain_now"


@pytest.mark.parametrize("follows", [(0, 1), (0, 20)])
def test_bits_that_follow_another_error_are_observed(follows: tuple[int, int]) -> None:
    assert advice(nvlink4(bits(*follows))) == "observe"


@pytest.mark.parametrize("odd", [(0, 27), (0, 29)])
def test_bits_that_should_not_occur_drain_when_they_come_twice(odd: tuple[int, int]) -> None:
    assert advice(nvlink4(bits(*odd))) == "observe"
    assert advice(nvlink4(bits(*odd), bits(*odd))) == "drain_after_job"


@pytest.mark.parametrize("unknown", [(0, 2), (0, 31), (2, 9), (3, 1), (4, 7)])
def test_bits_that_nobody_knows_are_observed_and_for_the_vendor(unknown: tuple[int, int]) -> None:
    (finding,) = nvlink4(bits(*unknown)).last().values()
    assert (finding["advice"], finding["evidence"][0]["action"]) == ("observe", "ask the vendor")


@pytest.mark.parametrize("silent", [1, 5, 6])
def test_registers_without_a_meaning_are_not_read(silent: int) -> None:
    assert advice(nvlink4(bits(silent, 3))) == "none"


def test_hardware_outranks_what_may_be_ignored() -> None:
    assert advice(nvlink4(bits(0, 0, 23, 16))) == "drain_now"


def test_a_link_that_has_memory_errors_again_and_again_has_to_go() -> None:
    three = [bits(0, 4)] * 3
    played = nvlink4(*three)
    assert [f["advice"] for f in played.of() if f["advice"] != "observe"][-1] == "rma"
    assert "3 times at link4" in played.of()[-1]["summary"]
    assert advice(nvlink4(*three[:2])) == "drain_now"


def test_three_links_with_one_error_each_are_no_repetition() -> None:
    lines = [line(74, 1 + at * 3600, at, detail={"link": at, "registers": bits(0, 4)}) for at in (1, 2, 3)]
    assert "rma" not in {f["advice"] for f in run(*lines).of()}


def test_many_lines_of_one_burst_are_one_occurrence_at_a_link() -> None:
    assert advice(nvlink4(*[bits(0, 4)] * 6, every_s=2.0)) == "drain_now"


def test_a_line_whose_registers_cannot_be_read_is_believed() -> None:
    assert advice(run(line(74, detail={"link": 3}))) == "drain_now"


FATAL: list[tuple[int, str, int]] = [
    *((144, "SAW_MVB", status) for status in (0x2, 0x10)),
    *((145, "RLW_REMAP", status) for status in (0x40, 0x80)),
    (145, "RLW_RSPCOL", 0x2),
    *((145, "RLW_SRC_TRACK", status) for status in (0x1, 0x10, 0x20)),
    *((145, "RLW_TAGSTATE", status) for status in (0x2, 0x20000, 0x100000)),
    *((146, unit, 0x4) for unit in ("TLW_CTRL", "TLW_RX", "TLW_RX_PIPE0", "TLW_TX_PIPE1")),
    *((149, "NETIR_MFDE_EVENT", status) for status in (0x1, 0x4, 0x5, 0x7)),
    (149, "NETIR_LINK_EVT", 0),
    (149, "NETIR_INT", 0),
    (149, "NETIR", 0),
    (150, "MSE_WATCHDOG", 0),
]


def nvlink5(code: int, unit: str, status: int, *, fatal: bool, subcode: int = 0, link: int = 9) -> dict[str, Any]:
    registers = [subcode << 20 | 0x5C6, status, 0, 0, 0, 0]
    detail = {"unit": unit, "fatal": fatal, "injected": False, "link": link, "xc": 0, "registers": registers}
    (finding,) = run(line(code, detail=detail)).last().values()
    return finding


@pytest.mark.parametrize(("code", "unit", "status"), FATAL)
def test_a_fatal_status_of_its_unit_drains(code: int, unit: str, status: int) -> None:
    finding = nvlink5(code, unit, status, fatal=True)
    assert (finding["advice"], finding["severity"]) == ("drain_now", "critical")


@pytest.mark.parametrize(("code", "unit", "status"), FATAL)
def test_the_same_said_to_be_nonfatal_never_drains(code: int, unit: str, status: int) -> None:
    assert nvlink5(code, unit, status, fatal=False)["advice"] == "none"


@pytest.mark.parametrize(
    ("code", "unit", "status"),
    [(145, "RLW_REMAP", 1 << n) for n in range(6)] + [(145, "RLW_SRC_TRACK", 0x4), (145, "RLW_SRC_TRACK", 0x8)],
)
def test_what_only_the_driver_can_decide_waits_for_it(code: int, unit: str, status: int) -> None:
    assert nvlink5(code, unit, status, fatal=False)["advice"] == "observe"
    detail = {"unit": unit, "fatal": False, "link": 1, "registers": [0, status]}
    played = run(line(code, detail=detail), line(154, 1.4, 2, detail={"from": 0, "to": 1}))
    assert (len(played.opened()), advice(played)) == (1, "drain_after_job")


@pytest.mark.parametrize("code", range(144, 151))
def test_what_is_put_down_to_software_never_drains(code: int) -> None:
    assert nvlink5(code, "RLW_REMAP", 0x80000000, fatal=True)["advice"] == "none"


@pytest.mark.parametrize(
    ("code", "unit", "status"), [(147, "TREX", 1), (148, "NVLPW_CTRL", 0), (149, "NETIR_BER_EVENT", 3)]
)
def test_units_that_are_never_a_reason_to_drain(code: int, unit: str, status: int) -> None:
    assert nvlink5(code, unit, status, fatal=True)["advice"] == "none"


def test_the_same_status_of_two_units_means_two_things() -> None:
    assert nvlink5(145, "RLW_SRC_TRACK", 0x1, fatal=True)["advice"] == "drain_now"
    assert nvlink5(145, "RLW_RSPCOL", 0x1, fatal=True)["advice"] == "observe"


def test_a_fatal_status_that_nobody_knows_is_left_to_the_driver() -> None:
    assert nvlink5(145, "RLW_NEW", 0x40, fatal=True)["advice"] == "observe"


@pytest.mark.parametrize(
    ("subcode", "advised"),
    [
        (0, "drain_now"), (1, "drain_now"), (4, "drain_now"), (10, "drain_now"), (42, "drain_now"),
        (15, "observe"), (21, "observe"), (32, "observe"), (37, "observe"), (38, "none"), (40, "none"),
    ],
)  # fmt: skip
def test_why_a_link_went_down_decides(subcode: int, advised: str) -> None:
    assert nvlink5(149, "NETIR_LINK_EVT", 0, fatal=True, subcode=subcode)["advice"] == advised


def test_a_link_that_its_other_end_took_down_is_not_blamed_on_this_gpu() -> None:
    finding = nvlink5(149, "NETIR_LINK_DOWN", 0, fatal=True, subcode=33)
    assert "other end" in finding["summary"]


def test_an_error_of_no_single_link_has_no_place() -> None:
    assert "places" not in nvlink5(149, "NETIR", 0, fatal=True, link=-1)["evidence"][0]


@pytest.mark.parametrize("mark", [True, 1, "1"])
def test_an_injected_error_is_a_test_however_that_is_written(mark: object) -> None:
    detail = {"unit": "NETIR_LINK_EVT", "fatal": True, "injected": mark, "link": 2}
    (finding,) = run(line(149, detail=detail)).last().values()
    assert (finding["advice"], finding["cause"]) == ("none", "injected")


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (74, {"link": 1, "registers": bits(0, 0)}),
        (74, {"link": 1, "registers": bits(0, 4)}),
        (145, {"unit": "RLW_SRC_TRACK", "fatal": False, "link": 2, "registers": [0, 4]}),
        (149, {"unit": "NETIR_LINK_EVT", "fatal": True, "link": 2, "registers": [33 << 20, 0]}),
    ],
)
def test_a_cold_start_judges_as_the_line_said_and_not_as_the_bare_number(code: int, detail: dict[str, Any]) -> None:
    lines = [line(code, detail=detail), line(45, 400.0, 2), line(code, 900.0, 3, detail=detail)]
    messages = merged([inventory(JOB, 0)], lines)
    warm = play(DetectStep(), messages, until_ns=T0 + 1000 * S)
    said = cold_twin(DetectStep(), messages, warm, T0 + 880 * S)
    last = messages[-1].ts_ns
    assert [f for f in said if f["ts"] <= last] == [f for f in warm.of() if T0 + 880 * S < f["ts"] <= last]
