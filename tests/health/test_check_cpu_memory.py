"""Processors, clock and memory: what /proc, /sys and the firmware's table say."""

from pathlib import Path
from typing import Any

import pytest
from healthkit import check_of, machine, run

from heeler.health.checks import cpu, memory
from heeler.health.checks.cpu import ClocksourceSettings, CpuFrequencySettings, CpuOnlineSettings
from heeler.health.checks.memory import BuddyinfoSettings, MemoryEccSettings, MemorySizeSettings, parse_module
from heeler.health.model import Check, Outcome, Verdict

CHECKS = (*cpu.CHECKS, *memory.CHECKS)


def check(name: str) -> Check:
    return check_of(CHECKS, name)


def cpus(
    root: Path, khz: int, *, count: int = 4, top: int = 3_000_000, governor: str = "performance", load: float = 0.0
) -> Path:
    files = {"proc/loadavg": f"{load} 0.0 0.0 1/2 3\n", "proc/cpuinfo": "processor : 0\n"}
    for at in range(count):
        folder = f"sys/devices/system/cpu/cpu{at}/cpufreq/"
        files[f"{folder}scaling_cur_freq"] = f"{khz}\n"
        files[f"{folder}scaling_max_freq"] = f"{top}\n"
        files[f"{folder}scaling_governor"] = f"{governor}\n"
    return machine(root, files)


# cpu_frequency


def test_cpu_frequency_good(tmp_path: Path) -> None:
    verdict = run(check("cpu_frequency"), cpus(tmp_path, 2_400_000))
    assert (verdict.outcome, verdict.perf["cpu_mhz"]) == (Outcome.OK, 2400.0)


def test_cpu_frequency_good_from_cpuinfo(tmp_path: Path) -> None:
    root = machine(
        tmp_path, {"proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2000.5\nprocessor\t: 1\ncpu MHz\t: 3000.5\n"}
    )
    assert run(check("cpu_frequency"), root).perf["cpu_mhz"] == 2500.5


@pytest.mark.parametrize(
    "how",
    [{"governor": "performance"}, {"governor": "schedutil", "load": 4.0}, {"governor": "powersave", "top": 1_200_000}],
)
def test_cpu_frequency_bad_where_they_have_no_reason_to_be_slow(tmp_path: Path, how: dict[str, Any]) -> None:
    assert run(check("cpu_frequency"), cpus(tmp_path, 1_200_000, **how)).outcome is Outcome.BAD


def test_cpu_frequency_unknown_where_idle_ones_are_slow_or_nothing_is_read(tmp_path: Path) -> None:
    assert run(check("cpu_frequency"), cpus(tmp_path / "a", 800_000, governor="schedutil")).outcome is Outcome.UNKNOWN
    root = machine(tmp_path / "b", {"proc/cpuinfo": "processor : 0\nBogoMIPS : 2000.00\n"})
    assert run(check("cpu_frequency"), root, CpuFrequencySettings(min_mhz=1)).outcome is Outcome.UNKNOWN
    assert run(check("cpu_frequency"), tmp_path / "c").outcome is Outcome.UNKNOWN


# cpu_governor


def test_cpu_governor_good(tmp_path: Path) -> None:
    assert run(check("cpu_governor"), cpus(tmp_path, 1)).outcome is Outcome.OK


def test_cpu_governor_bad_where_one_of_them_has_another(tmp_path: Path) -> None:
    root = cpus(tmp_path, 1)
    (root / "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor").write_text("powersave\n")
    verdict = run(check("cpu_governor"), root)
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "not performance: 1 powersave")


def test_cpu_governor_unknown_on_a_machine_without(tmp_path: Path) -> None:
    assert run(check("cpu_governor"), machine(tmp_path, {"proc/cpuinfo": "cpu MHz : 2.0\n"})).outcome is Outcome.UNKNOWN


# cpu_online


@pytest.mark.parametrize(
    ("online", "count", "outcome"),
    [
        ("0-3", 0, Outcome.OK),
        ("0-1,3", 0, Outcome.BAD),
        ("0-3", 8, Outcome.BAD),
        ("", 0, Outcome.UNKNOWN),
        ("0-x", 0, Outcome.UNKNOWN),
    ],
)
def test_cpu_online_good_bad_and_unknown(tmp_path: Path, online: str, count: int, outcome: Outcome) -> None:
    folder = "sys/devices/system/cpu/"
    root = machine(tmp_path, {f"{folder}online": f"{online}\n", f"{folder}present": "0-3\n"})
    assert run(check("cpu_online"), root, CpuOnlineSettings(count)).outcome is outcome


# clocksource


def clock(root: Path, current: str) -> Path:
    folder = "sys/devices/system/clocksource/clocksource0/"
    return machine(
        root, {f"{folder}current_clocksource": current, f"{folder}available_clocksource": "tsc hpet acpi_pm\n"}
    )


def test_clocksource_good(tmp_path: Path) -> None:
    assert run(check("clocksource"), clock(tmp_path, "tsc\n")).outcome is Outcome.OK


def test_clocksource_bad_says_which_there_are(tmp_path: Path) -> None:
    verdict = run(check("clocksource"), clock(tmp_path, "hpet\n"))
    assert verdict.outcome is Outcome.BAD
    assert "available: tsc hpet acpi_pm" in verdict.why
    assert run(check("clocksource"), tmp_path, ClocksourceSettings(("hpet",))).outcome is Outcome.OK


def test_clocksource_unknown_without_the_file_or_text(tmp_path: Path) -> None:
    assert run(check("clocksource"), tmp_path / "none").outcome is Outcome.UNKNOWN
    assert run(check("clocksource"), clock(tmp_path, "\n")).outcome is Outcome.UNKNOWN


# memory_size


def module(mib: int | None, place: bytes = b"DIMM_A1") -> bytes:
    raw = bytearray(0x28)
    raw[0], raw[1], raw[0x10] = 17, 0x28, 1
    size = 0xFFFF if mib is None else min(mib, 0x7FFF)
    raw[0x0C:0x0E] = size.to_bytes(2, "little")
    if size == 0x7FFF and mib:
        raw[0x1C:0x20] = mib.to_bytes(4, "little")
    return bytes(raw) + place + b"\0\0"


def memory_of(root: Path, *modules: bytes, total_kib: int = 2_113_000_000) -> Path:
    files: dict[str, str | bytes] = {"proc/meminfo": f"MemTotal:       {total_kib} kB\nMemFree: 1 kB\n"}
    for at, raw in enumerate(modules):
        files[f"sys/firmware/dmi/entries/17-{at}/raw"] = raw
    return machine(root, files)


def test_memory_size_good_by_the_firmwares_table(tmp_path: Path) -> None:
    root = memory_of(tmp_path, *[module(65536)] * 32, module(0))
    verdict = run(check("memory_size"), root, MemorySizeSettings(total_gib=2048, dimms=32))
    assert verdict.outcome is Outcome.OK


def test_memory_size_good_by_what_the_kernel_has_less_what_it_took(tmp_path: Path) -> None:
    root = memory_of(tmp_path, total_kib=int(2048 * 0.96 * (1 << 20)))
    assert run(check("memory_size"), root, MemorySizeSettings(total_gib=2048)).outcome is Outcome.OK


def test_memory_size_bad_where_a_module_is_missing(tmp_path: Path) -> None:
    root = memory_of(tmp_path, *[module(65536)] * 31, module(0, b"DIMM_B2"))
    verdict = run(check("memory_size"), root, MemorySizeSettings(total_gib=2048, dimms=32))
    assert verdict.outcome is Outcome.BAD
    assert "31 memory modules" in verdict.why
    assert verdict.evidence[0].text == "empty: DIMM_B2"


def test_memory_size_bad_where_the_kernel_has_too_little(tmp_path: Path) -> None:
    root = memory_of(tmp_path, total_kib=1024 << 20)
    assert run(check("memory_size"), root, MemorySizeSettings(total_gib=2048)).outcome is Outcome.BAD


def test_memory_size_unknown_where_modules_can_not_be_read(tmp_path: Path) -> None:
    root = memory_of(tmp_path)
    assert run(check("memory_size"), root, MemorySizeSettings(dimms=32)).outcome is Outcome.UNKNOWN
    broken = memory_of(tmp_path / "broken", b"\x11\x05", b"garbage")
    assert run(check("memory_size"), broken, MemorySizeSettings(dimms=32)).outcome is Outcome.UNKNOWN
    assert run(check("memory_size"), root, MemorySizeSettings()).outcome is Outcome.UNKNOWN


def test_a_modules_size_in_all_three_forms() -> None:
    assert parse_module(module(16384)) == {"place": "DIMM_A1", "mib": 16384}
    assert parse_module(module(131072)) == {"place": "DIMM_A1", "mib": 131072}
    assert parse_module(module(None)) == {"place": "DIMM_A1", "mib": None}
    raw = bytearray(module(0))
    raw[0x0C:0x0E] = (0x8000 | 2048).to_bytes(2, "little")
    assert parse_module(bytes(raw)) == {"place": "DIMM_A1", "mib": 2}


# buddyinfo

BUDDY = "Node 0, zone      DMA      1      1      1      0      2      1      1      0      1      1      3\n"


def buddy(root: Path, *large: int) -> Verdict:
    lines = [
        f"Node {at}, zone   Normal  900 800 700 600 500 400 300 200 {count} 0 0\n" for at, count in enumerate(large)
    ]
    return run(check("buddyinfo"), machine(root, {"proc/buddyinfo": BUDDY + "".join(lines)}), BuddyinfoSettings())


def test_buddyinfo_good(tmp_path: Path) -> None:
    verdict = buddy(tmp_path, 10, 4000)
    assert (verdict.outcome, verdict.perf["node0_large_blocks"]) == (Outcome.OK, 10)


def test_buddyinfo_bad_where_one_node_of_memory_is_in_pieces(tmp_path: Path) -> None:
    verdict = buddy(tmp_path, 4000, 9)
    assert (verdict.outcome, verdict.evidence[0].device) == (Outcome.BAD, "node1")


def test_buddyinfo_unknown_without_a_normal_zone_or_with_garbage(tmp_path: Path) -> None:
    assert buddy(tmp_path).outcome is Outcome.UNKNOWN
    root = machine(tmp_path, {"proc/buddyinfo": "no such thing here at all\n"})
    assert run(check("buddyinfo"), root).outcome is Outcome.UNKNOWN


def test_buddyinfo_of_this_machine() -> None:
    assert run(check("buddyinfo"), "/", BuddyinfoSettings(min_blocks=0)).outcome in (Outcome.OK, Outcome.UNKNOWN)


# memory_ecc


def ecc(root: Path, ue: str = "0", ce: str = "0", dimm_ce: str = "0") -> Path:
    folder = "sys/devices/system/edac/mc/mc0/"
    files = {f"{folder}ue_count": ue, f"{folder}ce_count": ce, "sys/devices/system/edac/mc/power/x": ""}
    files |= {f"{folder}dimm3/dimm_ue_count": "0", f"{folder}dimm3/dimm_ce_count": dimm_ce}
    return machine(root, files | {f"{folder}dimm3/dimm_label": "CPU0_DIMM_A1\n"})


def test_memory_ecc_good(tmp_path: Path) -> None:
    assert run(check("memory_ecc"), ecc(tmp_path, ce="3", dimm_ce="3")).outcome is Outcome.OK


def test_memory_ecc_bad_where_the_controller_counted_what_no_module_did(tmp_path: Path) -> None:
    verdict = run(check("memory_ecc"), ecc(tmp_path, ue="1"))
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "mc0: 1 uncorrected memory errors")


def test_memory_ecc_bad_names_the_module_once(tmp_path: Path) -> None:
    root = ecc(tmp_path, ce="500", dimm_ce="500")
    verdict = run(check("memory_ecc"), root)
    assert (verdict.outcome, verdict.why) == (Outcome.WARN, "CPU0_DIMM_A1: 500 corrected memory errors")
    assert run(check("memory_ecc"), root, MemoryEccSettings(bad_corrected=500)).outcome is Outcome.BAD


def test_memory_ecc_unknown_without_a_driver_or_counters(tmp_path: Path) -> None:
    assert (
        run(check("memory_ecc"), machine(tmp_path, {"sys/devices/system/edac/mc/power/x": ""})).outcome
        is Outcome.UNKNOWN
    )
    assert run(check("memory_ecc"), ecc(tmp_path / "b", ue="?")).outcome is Outcome.UNKNOWN
