"""Checks of GPUs on the fake NVML library: good, bad, and not to be told."""

import time
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml, missing_tool
from gpunode import case, read_facts

from heeler.health import gpu_checks
from heeler.health.model import Case, Outcome, Phase, Unread, Verdict

pytestmark = pytest.mark.skipif(missing_tool() is not None, reason=missing_tool() or "")
CHECKS = {check.name: check for check in gpu_checks.CHECKS}


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path)


def judged(fake: FakeNvml, name: str, scenario: str = "", about: Case | None = None, **settings: Any) -> Verdict:
    fake.write(scenario)
    check = CHECKS[name]
    facts = read_facts(fake)
    assert not isinstance(facts, Unread), facts
    verdict = check.judge(facts, check.settings(**settings), about or case())
    assert isinstance(verdict, Verdict)
    return verdict


A100 = "model NVIDIA A100-SXM4-80GB"
# name -> (scenario, settings) for good, bad with the words and the GPUs it must name, and unknown
GOOD: list[tuple[str, str, dict[str, Any]]] = [
    ("gpu_count", "gpus 8", {"expected": 8}),
    ("gpu_count", "gpus 16", {"expected": 16}),
    ("gpu_reachable", "all busy", {}),
    ("gpu_uuids", "0 uuid GPU-a\n1 uuid GPU-b\ngpus 2", {"expected": ("GPU-a", "GPU-b")}),
    ("gpu_clocks", "", {}),
    ("gpu_clocks", "all app_graphics_clock_mhz 1980\nall app_mem_clock_mhz 2619", {}),
    ("gpu_temperature", "all temp_c 60", {}),
    ("gpu_memory_used", "", {}),
    ("gpu_ecc_uncorrected", "", {}),
    ("gpu_ecc_uncorrected", "all unsupported ecc", {}),
    ("gpu_ecc_corrected", "all ecc_corrected_volatile 17", {}),
    ("gpu_retired_pages", "", {}),
    ("gpu_retired_pages", "all retired_pages_sbe 4\nall retired_pages_dbe 1\nall retired_pending 0", {}),
    ("gpu_row_remap", "all remapped_rows_uncorrectable 1", {}),
    ("gpu_row_remap_pending", "", {}),
    ("gpu_row_remap_failed", "all unsupported remapped_rows", {}),
    ("gpu_vbios", "", {}),
    ("gpu_vbios", "all vbios 96.00.74", {"versions": ("96.00.74", "96.00.89")}),
    ("gpu_pcie", "all pcie_gen 1", {}),
    ("gpu_pcie", "all busy", {}),
    ("gpu_nvlink", "", {}),
    ("gpu_nvlink", "model NVIDIA L40S", {}),
    ("gpu_nvlink", "all nvlink 5 down", {"links_up": 12}),
    ("gpu_nvlink_errors", "2 nvlink 3 replay 4", {"most_replay": 10}),
    ("gpu_fabric", "", {}),
    ("gpu_persistence", "", {}),
    ("gpu_recovery_action", "", {}),
    ("gpu_clock_events", "all clock_event_reasons 4", {}),
    ("gpu_clock_events", "all clock_event_reasons 1", {}),
    ("gpu_mig", "", {}),
    ("gpu_mig", "gpus 1\n0 mig 1g.10gb 7 0\n0 mig 1g.10gb 8 0", {"enabled": True, "devices": 2}),
]
BAD: list[tuple[str, str, dict[str, Any], str]] = [
    ("gpu_count", "gpus 7", {"expected": 8}, "7 GPUs, 8 expected"),
    ("gpu_count", "gpus 8", {"expected": 4}, "8 GPUs, 4 expected"),
    ("gpu_reachable", "2 lost", {}, "GPU 2: lost: it fell off the bus"),
    ("gpu_reachable", "5 error all 16", {}, "GPU 5: needs a reset"),
    ("gpu_reachable", "1 lost\n1 ok handle uuid", {}, "GPU 1: lost"),
    ("gpu_uuids", "gpus 1\n0 uuid GPU-c", {"expected": ("GPU-a",)}, "GPU-c"),
    ("gpu_uuids", "gpus 1\n0 uuid GPU-a", {"expected": ("GPU-a", "GPU-b")}, "not there: GPU-b"),
    (
        "gpu_clocks",
        "3 app_graphics_clock_mhz 345\nall app_mem_clock_mhz 2619",
        {},
        "GPU 3: app_graphics_clock of 345 MHz",
    ),
    ("gpu_clocks", "all unsupported app_clocks\n3 mem_clock_max_mhz 405", {}, "GPU 3: mem_clock_max of 405 MHz"),
    ("gpu_temperature", "6 temp_c 91", {}, "GPU 6: 91 °C, above 85"),
    ("gpu_memory_used", "4 fb_used_bytes 1073741824", {}, "GPU 4: 1024 MiB in use"),
    ("gpu_ecc_uncorrected", "1 ecc_uncorrected_volatile 2", {}, "GPU 1: 2 uncorrected ECC errors, 0 may be"),
    ("gpu_ecc_corrected", "1 ecc_corrected_volatile 60000000", {}, "GPU 1: 60000000 corrected"),
    ("gpu_retired_pages", "all retired_pages_sbe 8\nall retired_pages_dbe 3\nall retired_pending 0", {}, "11 pages"),
    ("gpu_retired_pages", "0 retired_pages_sbe 0\n0 retired_pages_dbe 0\n0 retired_pending 1", {}, "GPU 0: pages wait"),
    ("gpu_row_remap_pending", "7 remap_pending 1", {}, "GPU 7: a row remapping waits"),
    ("gpu_row_remap_failed", "0 remap_failed 1", {}, "GPU 0: a row could not be remapped"),
    ("gpu_vbios", "3 vbios 96.00.00", {}, "GPU 3 has VBIOS 96.00.00"),
    ("gpu_vbios", "", {"versions": ("1",)}, "not 1"),
    ("gpu_pcie", "2 pcie_width 8", {}, "GPU 2: PCIe width 8, not 16"),
    ("gpu_pcie", "all busy\n2 pcie_gen 3", {}, "GPU 2: PCIe generation 3 under load, not 5"),
    ("gpu_nvlink", "3 nvlink 5 down", {}, "GPU 3: 17 of 18 NVLinks are up: 5 down"),
    (
        "gpu_nvlink_errors",
        "model NVIDIA A100-SXM4-80GB\n2 nvlink 3 replay 4",
        {},
        "GPU 2: NVLink 3 has counted 4 replay",
    ),
    ("gpu_recovery_action", "4 recovery_action 1", {}, "GPU 4: the driver asks: reset the GPU"),
    ("gpu_clock_events", "1 clock_event_reasons 0x40", {}, "GPU 1: hardware thermal slowdown"),
    ("gpu_clock_events", "1 clock_event_reasons 0x88", {}, "GPU 1: hardware slowdown, power brake"),
    ("gpu_mig", "0 mig 1g.10gb 7 0", {}, "GPU 0: MIG is on"),
    ("gpu_mig", "gpus 1\n0 mig 1g.10gb 7 0", {"enabled": True, "devices": 2}, "1 MIG devices, not 2"),
    ("gpu_fabric", "3 fabric_state 2", {}, "GPU 3: fabric registration in progress"),
]
WARN: list[tuple[str, str, dict[str, Any], str]] = [
    ("gpu_row_remap", "2 remapped_rows_uncorrectable 9", {}, "GPU 2: 9 rows"),
    ("gpu_ecc_uncorrected", "2 ecc_mode 0", {}, "GPU 2: ECC is switched off"),
    ("gpu_persistence", "0-7 persistence 0", {}, "GPU 0: off"),
]
UNKNOWN: list[tuple[str, str, dict[str, Any], str]] = [
    ("gpu_temperature", "3 error temp 4", {}, "GPU 3: temp_c"),
    ("gpu_temperature", "3 lost", {}, "GPU 3: temp_c: lost"),
    ("gpu_temperature", "all unsupported temp", {}, "not_supported"),
    ("gpu_memory_used", "3 error memory 999", {}, "GPU 3: memory"),
    ("gpu_clocks", "3 error app_clocks 999", {}, "GPU 3: app_graphics_clock_mhz"),
    ("gpu_ecc_uncorrected", "3 error ecc 4", {}, "GPU 3: ecc_uncorrected_volatile: no_permission"),
    ("gpu_ecc_corrected", "3 lost", {}, "GPU 3: ecc_corrected_volatile: lost"),
    ("gpu_retired_pages", "3 error retired_pages 999", {}, "GPU 3: retired_pages_sbe"),
    ("gpu_row_remap", "3 error remapped_rows 999", {}, "GPU 3: remapped_rows"),
    ("gpu_row_remap_pending", "3 lost", {}, "GPU 3: remapped_rows: lost"),
    ("gpu_row_remap_failed", "3 error remapped_rows 4", {}, "GPU 3: remapped_rows: no_permission"),
    ("gpu_vbios", "3 error vbios 999", {}, "GPU 3: vbios"),
    ("gpu_pcie", "3 error pcie_width 999", {}, "GPU 3: pcie_width"),
    ("gpu_nvlink", "3 nvlink 0 state_error 999", {}, "GPU 3: nvlinks"),
    ("gpu_nvlink_errors", "3 lost", {}, "GPU 3: nvlinks: lost"),
    ("gpu_fabric", "3 lost", {}, "GPU 3: fabric: lost"),
    ("gpu_persistence", "3 lost", {}, "GPU 3: persistence: lost"),
    ("gpu_recovery_action", "3 lost", {}, "GPU 3: recovery_action: lost"),
    ("gpu_clock_events", "3 lost", {}, "GPU 3: clock_event_reasons: lost"),
    ("gpu_mig", "3 lost", {}, "GPU 3: mig: lost"),
    ("gpu_uuids", "gpus 2\n0 uuid GPU-a\n1 lost", {"expected": ("GPU-a", "GPU-b")}, "1 GPUs don't tell"),
]


@pytest.mark.parametrize(("name", "scenario", "settings"), GOOD)
def test_gpu_good(fake: FakeNvml, name: str, scenario: str, settings: dict[str, Any]) -> None:
    verdict = judged(fake, name, scenario, **settings)
    assert verdict.outcome is Outcome.OK, verdict.why


@pytest.mark.parametrize(("name", "scenario", "settings", "words"), BAD)
def test_gpu_bad(fake: FakeNvml, name: str, scenario: str, settings: dict[str, Any], words: str) -> None:
    verdict = judged(fake, name, scenario, **settings)
    assert verdict.outcome is Outcome.BAD, verdict.why
    assert words in verdict.why
    assert verdict.evidence


@pytest.mark.parametrize(("name", "scenario", "settings", "words"), WARN)
def test_gpu_warn(fake: FakeNvml, name: str, scenario: str, settings: dict[str, Any], words: str) -> None:
    verdict = judged(fake, name, scenario, **settings)
    assert verdict.outcome is Outcome.WARN, verdict.why
    assert words in verdict.why


@pytest.mark.parametrize(("name", "scenario", "settings", "words"), UNKNOWN)
def test_gpu_unknown(fake: FakeNvml, name: str, scenario: str, settings: dict[str, Any], words: str) -> None:
    verdict = judged(fake, name, scenario, **settings)
    assert verdict.outcome is Outcome.UNKNOWN, verdict.why
    assert words in verdict.why


def test_no_check_of_gpus_is_without_its_cases() -> None:
    for cases in (GOOD, BAD + WARN):
        assert {one[0] for one in cases} == CHECKS.keys()
    # Not to be told: a count comes with the first answer of NVML or not at all, and then nothing is read.
    assert {one[0] for one in UNKNOWN} == CHECKS.keys() - {"gpu_count", "gpu_reachable"}


def test_gpu_count_unknown_without_a_driver(fake: FakeNvml) -> None:
    fake.write("init_error 9")
    facts = read_facts(fake)
    assert isinstance(facts, Unread)
    assert facts.kind == "missing"


def test_gpu_reachable_unknown_while_nvml_hangs(fake: FakeNvml) -> None:
    fake.write("hang count")
    started = time.monotonic()
    facts = read_facts(fake, 1.5)
    assert isinstance(facts, Unread)
    assert facts.kind == "timeout"
    assert time.monotonic() - started < 6


def test_a_gpu_that_hangs_is_bad_and_hides_no_other(fake: FakeNvml) -> None:
    fake.write("4 hang all\n6 remap_failed 1")
    facts = read_facts(fake, 2.0)
    verdict = CHECKS["gpu_reachable"].judge(facts, CHECKS["gpu_reachable"].settings(), case())
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "GPU 4: hung: the driver does not answer for it")
    assert CHECKS["gpu_row_remap_failed"].judge(facts, None, case()).why.startswith("GPU 6: ")


def test_one_value_that_hangs_leaves_what_was_read_before(fake: FakeNvml) -> None:
    fake.write("4 hang ecc")
    facts = read_facts(fake, 2.0)
    assert facts["gpus"][4]["values"]["temp_c"] == 31
    assert facts["gpus"][4]["errors"]["ecc_uncorrected_volatile"] == "hung"


# Around a job


def test_only_the_job_s_gpus_are_judged_by_device_minor_not_by_index(fake: FakeNvml) -> None:
    # Index 0 is /dev/nvidia4 and the other way round.
    scenario = "minor 0 4\nminor 4 0\n0 remap_failed 1"
    assert judged(fake, "gpu_row_remap_failed", scenario, case(Phase.PROLOG, 0)).outcome is Outcome.OK
    verdict = judged(fake, "gpu_row_remap_failed", scenario, case(Phase.PROLOG, 4))
    assert verdict.outcome is Outcome.BAD
    assert verdict.gpus == (read_facts(fake)["gpus"][0]["values"]["uuid"],)


def test_only_the_job_s_gpus_are_judged_by_uuid(fake: FakeNvml) -> None:
    scenario = "gpus 2\n0 uuid GPU-a\n1 uuid GPU-b\n0 remap_failed 1"
    assert judged(fake, "gpu_row_remap_failed", scenario, case(Phase.PROLOG, uuids=("GPU-b",))).outcome is Outcome.OK
    assert judged(fake, "gpu_row_remap_failed", scenario, case(Phase.PROLOG, uuids=("GPU-a",))).outcome is Outcome.BAD


def test_a_gpu_of_the_job_that_is_not_there_is_bad(fake: FakeNvml) -> None:
    verdict = judged(fake, "gpu_reachable", "gpus 7", case(Phase.PROLOG, 6, 7))
    assert (verdict.outcome, verdict.why) == (
        Outcome.BAD,
        "/dev/nvidia7 of this job is not among the 7 GPUs that answer",
    )
    assert judged(fake, "gpu_reachable", "gpus 7", case(Phase.PROLOG, 0, 6)).outcome is Outcome.OK


def test_a_gpu_of_the_job_that_is_lost_is_bad_and_another_s_is_not_this_job_s(fake: FakeNvml) -> None:
    assert judged(fake, "gpu_reachable", "2 lost", case(Phase.PROLOG, 2)).outcome is Outcome.BAD
    assert judged(fake, "gpu_reachable", "2 lost", case(Phase.PROLOG, 3)).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("scenario", "outcome"),
    [
        ("1 lost", Outcome.BAD),  # it does not even say its name any more
        ("gpus 1", Outcome.BAD),
        ("0 lost", Outcome.OK),  # another job's
        ("1 error all 16", Outcome.BAD),
        ("1 error uuid 999", Outcome.UNKNOWN),
        ("0 error uuid 999", Outcome.OK),
        ("", Outcome.OK),
    ],
)
def test_a_gpu_of_the_job_that_is_known_by_name_and_does_not_answer(
    fake: FakeNvml, scenario: str, outcome: Outcome
) -> None:
    found = judged(
        fake, "gpu_reachable", f"gpus 2\n0 uuid GPU-a\n1 uuid GPU-b\n{scenario}", case(Phase.PROLOG, uuids=("GPU-b",))
    )
    assert found.outcome is outcome
    assert found.gpus == (("GPU-b",) if outcome is Outcome.BAD else ())


def test_a_mig_device_that_is_not_found_by_name_proves_nothing(fake: FakeNvml) -> None:
    about = case(Phase.PROLOG, uuids=("MIG-GPU-a/7/0",))
    assert judged(fake, "gpu_reachable", "gpus 1\n0 uuid GPU-a", about).outcome is Outcome.UNKNOWN


def test_numbers_of_a_job_on_divided_gpus_are_not_believed(fake: FakeNvml) -> None:
    scenario = "gpus 2\n0 mig 1g.10gb 7 0"
    assert judged(fake, "gpu_reachable", scenario, case(Phase.PROLOG, 1)).outcome is Outcome.UNKNOWN


def test_a_missing_gpu_that_is_not_the_job_s_is_only_warned_of_around_it(fake: FakeNvml) -> None:
    assert judged(fake, "gpu_count", "gpus 7", case(Phase.PROLOG, 1), expected=8).outcome is Outcome.WARN


def test_a_job_without_gpus_here_is_no_reason_to_worry(fake: FakeNvml) -> None:
    fake.write("0 remap_failed 1")
    facts = read_facts(fake)
    from heeler.health.model import Job

    about = Case(Phase.PROLOG, "n1", 0, Job("1", gpu_minors=()))
    assert CHECKS["gpu_row_remap_failed"].judge(facts, None, about).outcome is Outcome.OK
