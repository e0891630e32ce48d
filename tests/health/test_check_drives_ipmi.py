"""Drives and the board's controller: exit statuses with many meanings, events that went again, tables with nothing."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from healthkit import check_of, machine, prints, run, tool

from heeler.bus import ConfigError
from heeler.health.checks import drives, ipmi
from heeler.health.checks.drives import BlockdevSettings, NvmeSettings
from heeler.health.checks.ipmi import IpmiSelSettings, IpmiSensorsSettings, parse_sel
from heeler.health.model import Check, Outcome, Verdict

CHECKS = (*drives.CHECKS, *ipmi.CHECKS)
NVME = {
    "device": {"name": "/dev/nvme0n1", "type": "nvme", "protocol": "NVMe"},
    "model_name": "SSD 9",
    "smart_status": {"passed": True},
    "user_capacity": {"blocks": 1, "bytes": 3840755982336},
    "nvme_smart_health_information_log": {
        "critical_warning": 0,
        "available_spare": 100,
        "available_spare_threshold": 10,
        "percentage_used": 3,
        "media_errors": 0,
    },
}


def check(name: str) -> Check:
    return check_of(CHECKS, name)


def smart(
    root: Path, rc: int = 0, settings: BlockdevSettings | None = None, text: str | None = None, **change: Any
) -> Verdict:
    log = {**NVME["nvme_smart_health_information_log"], **change.pop("log", {})}  # type: ignore[dict-item]
    found = {**NVME, "nvme_smart_health_information_log": log, **change}
    found = {key: value for key, value in found.items() if value is not None}
    if not (root / "sys").exists():
        machine(root, {"sys/block/nvme0n1/device/x": "", "sys/block/dm-0/size": "1", "sys/block/vda/device/x": ""})
    prints(root / "bin", "smartctl", text if text is not None else json.dumps(found), rc)
    return run(check("blockdev"), root, settings, tools=root / "bin")


# blockdev


def test_blockdev_good_also_with_bits_of_the_exit_status_that_are_no_failure(tmp_path: Path) -> None:
    assert smart(tmp_path).outcome is Outcome.OK
    assert smart(tmp_path, rc=4).outcome is Outcome.OK  # a command that the drive does not know
    assert smart(tmp_path, rc=64).outcome is Outcome.OK  # old entries in its error log


@pytest.mark.parametrize(
    ("change", "rc", "outcome", "why"),
    [
        ({"smart_status": {"passed": False}}, 8, Outcome.BAD, "nvme0n1 says that it fails"),
        ({"log": {"critical_warning": 0b1001}}, 0, Outcome.BAD, "nvme0n1 warns: spare is low, read-only"),
        ({"log": {"available_spare": 9}}, 0, Outcome.BAD, "nvme0n1: 9 % of its spare left"),
        ({"log": {"percentage_used": 101}}, 0, Outcome.BAD, "nvme0n1: 101 % of its life used"),
        ({"log": {"percentage_used": 81}}, 0, Outcome.WARN, "nvme0n1: 81 % of its life used"),
        ({"log": {"percentage_used": 100}}, 0, Outcome.WARN, "nvme0n1: 100 % of its life used"),
        ({"log": {"media_errors": 2}}, 0, Outcome.WARN, "nvme0n1: 2 errors of its media"),
        ({}, 16, Outcome.BAD, "nvme0n1: a value is below its limit"),
        ({}, 32, Outcome.WARN, "nvme0n1: a value was below its limit once"),
    ],
)
def test_blockdev_bad_is_bad_and_a_warning_a_warning(
    tmp_path: Path, change: dict[str, Any], rc: int, outcome: Outcome, why: str
) -> None:
    verdict = smart(tmp_path, rc, **change)
    assert (verdict.outcome, verdict.why) == (outcome, why)


def test_blockdev_bad_by_the_manifest_missing_or_too_small(tmp_path: Path) -> None:
    disks = {"0": {"blockdev": "nvme0n1", "size": "7.68T"}, "1": {"blockdev": "/dev/nvme1n1", "size": 3840755982336}}
    machine(tmp_path, {"etc/manifest.json": json.dumps({"disks": disks}), "sys/block/nvme0n1/device/x": ""})
    verdict = smart(tmp_path)
    assert verdict.why == "nvme0n1: 3840755982336 bytes, not 7680000000000; nvme1n1 is not there"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"rc": 1}, "smartctl ended with 1"),
        ({"rc": 2}, "smartctl ended with 2"),
        ({"rc": 127}, "could not be run"),
        ({"text": "smartctl 7.3\nno JSON here\n"}, "no JSON"),
        ({"text": "[]"}, "not a map"),
        ({"nvme_smart_health_information_log": None}, "has no health log"),
        ({"smart_status": None, "nvme_smart_health_information_log": None}, "does not tell its health"),
    ],
)
def test_blockdev_unknown(tmp_path: Path, how: dict[str, Any], words: str) -> None:
    verdict = smart(tmp_path, **how)
    assert verdict.outcome is Outcome.UNKNOWN
    assert words in verdict.why


def test_blockdev_unknown_without_drives_or_the_tool(tmp_path: Path) -> None:
    virtual = machine(tmp_path / "a", {"sys/block/vda/device/x": ""})
    assert run(check("blockdev"), virtual, tools=tmp_path / "none").outcome is Outcome.UNKNOWN
    real = machine(tmp_path / "b", {"sys/block/sda/device/x": ""})
    assert "smartctl is not installed" in run(check("blockdev"), real, tools=tmp_path / "none").why


@pytest.mark.skipif(not shutil.which("smartctl"), reason="no smartctl")
def test_blockdev_unknown_by_the_real_smartctl_of_what_is_no_drive() -> None:
    verdict = run(check("blockdev"), "/", BlockdevSettings(("loop0", "vda")))
    assert verdict.outcome in (Outcome.UNKNOWN, Outcome.BAD)


# nvme


def test_nvme_good_bad_and_unknown(tmp_path: Path) -> None:
    def having(name: str, **states: str) -> Path:
        files = {f"sys/class/nvme/{each}/state": f"{state}\n" for each, state in states.items()}
        return machine(tmp_path / name, files | {"sys/class/net/lo/type": "772"})

    nvme = check("nvme")
    assert run(nvme, having("a", nvme0="live", nvme1="live"), NvmeSettings(2)).outcome is Outcome.OK
    assert run(nvme, having("b", nvme0="dead")).why == "nvme0 is dead"
    assert run(nvme, having("c", nvme0="resetting")).outcome is Outcome.WARN
    assert run(nvme, having("d", nvme0="live"), NvmeSettings(2)).outcome is Outcome.BAD
    assert run(nvme, having("e"), NvmeSettings(1)).why == "0 of 1 controllers"
    assert run(nvme, having("f", nvme0="")).outcome is Outcome.UNKNOWN
    assert run(nvme, tmp_path / "none").outcome is Outcome.UNKNOWN


# ipmi_sel

AC_LOST = "   1 | 05/01/2025 | 10:00:00 UTC | Power Supply #0x74 | Power Supply AC lost | Asserted\n"
AC_BACK = "   2 | 05/01/2025 | 10:05:00 UTC | Power Supply #0x74 | Power Supply AC lost | Deasserted\n"
OTHER = "   3 |  Pre-Init  |0000000009| Fan #0x30 | Upper Non-critical going high | Asserted\n"
OEM = "   4 | OEM record c0 | 000137 | 00112233445566\n"


def sel(root: Path, text: str, settings: IpmiSelSettings | None = None, rc: int = 0, name: str = "ipmitool") -> Verdict:
    prints(root / "bin", name, text, rc)
    return run(check("ipmi_sel"), root, settings or IpmiSelSettings(tool=name), tools=root / "bin")


def test_ipmi_sel_good_where_it_is_empty_or_what_was_bad_went_again(tmp_path: Path) -> None:
    assert sel(tmp_path, "SEL has no entries\n").outcome is Outcome.OK
    verdict = sel(tmp_path, AC_LOST + AC_BACK + OTHER + OEM)
    assert (verdict.outcome, verdict.perf["sel_entries"]) == (Outcome.OK, 4)


@pytest.mark.parametrize(
    "event",
    [
        "Power Supply #0x74 | Power Supply AC lost | Asserted",
        "OEM #0xd7 | NVIDIA_MCA_Error | Asserted",
        "Memory #0x87 | Uncorrectable ECC | Asserted",
        "Processor #0x62 | Uncorrectable machine check exception | Asserted",
        "Critical Interrupt #0x5 | Bus Fatal Error | Asserted",
        "Critical Interrupt #0x5 | PCI SERR | Asserted",
        "Processor #0x11 | Throttled | Asserted",
        "System Firmwares #0x0 | BIOS corruption detected | Asserted",
    ],
)
@pytest.mark.parametrize("name", ["ipmitool", "nvipmitool"])
def test_ipmi_sel_bad_where_an_alarming_event_holds(tmp_path: Path, event: str, name: str) -> None:
    assert sel(tmp_path, f"   9 | 05/02/25 | 11:00:00 | {event}\n", name=name).outcome is Outcome.BAD


def test_ipmi_sel_bad_where_it_came_back_after_it_went(tmp_path: Path) -> None:
    assert sel(tmp_path, AC_LOST + AC_BACK + AC_LOST).outcome is Outcome.BAD
    assert sel(tmp_path, AC_BACK + AC_LOST.replace("#0x74", "#0x75")).outcome is Outcome.BAD


def test_ipmi_sel_good_and_bad_by_age(tmp_path: Path) -> None:
    fresh = time.strftime("   5 | %m/%d/%Y | %H:%M:%S UTC | Memory #0x87 | Uncorrectable ECC | Asserted\n")
    assert sel(tmp_path, AC_LOST, IpmiSelSettings(days=30)).outcome is Outcome.OK
    assert sel(tmp_path, fresh, IpmiSelSettings(days=30)).outcome is Outcome.BAD
    undated = OTHER.replace("Upper Non-critical going high", "Uncorrectable ECC")
    assert sel(tmp_path, undated, IpmiSelSettings(days=30)).outcome is Outcome.BAD


@pytest.mark.parametrize(
    ("text", "rc"),
    [
        ("", 0),
        ("Could not open device at /dev/ipmi0\n", 1),
        ("garbage\n", 0),
        (AC_LOST, 127),
        (AC_LOST + "cut | of", 0),
    ],
)
def test_ipmi_sel_unknown(tmp_path: Path, text: str, rc: int) -> None:
    assert sel(tmp_path, text, rc=rc).outcome is Outcome.UNKNOWN


def recording(root: Path, entries: int, save: str) -> Path:
    lines = "".join(f"   {at + 1} | 05/01/2025 | 10:00:00 | Fan #0x30 | x | Asserted\n" for at in range(entries))
    (root / "list").write_text(lines)
    script = f'echo "$*" >> {root}/calls\ncase $2 in list) cat {root}/list;; save) {save};; esac'
    return tool(root / "bin", "ipmitool", script).parent


def test_ipmi_sel_is_never_cleared_unless_asked_and_then_saved_first(tmp_path: Path) -> None:
    tools = recording(tmp_path, 50, "echo saved > $3")
    run(check("ipmi_sel"), tmp_path, tools=tools)
    assert (tmp_path / "calls").read_text() == "sel list\n"
    settings = IpmiSelSettings(clear_above=40, save_to=str(tmp_path / "kept"))
    verdict = run(check("ipmi_sel"), tmp_path, settings, tools=tools)
    calls = (tmp_path / "calls").read_text().splitlines()[1:]
    assert [call.split()[1] for call in calls] == ["list", "save", "clear"]
    assert "and cleared" in str(verdict.evidence[-1].value)
    assert [path.read_text() for path in (tmp_path / "kept").iterdir()] == ["saved\n"]


@pytest.mark.parametrize("save", ["exit 1", ": > $3", "true"])
def test_ipmi_sel_is_not_cleared_where_it_could_not_be_saved(tmp_path: Path, save: str) -> None:
    tools = recording(tmp_path, 50, save)
    settings = IpmiSelSettings(clear_above=40, save_to=str(tmp_path / "kept"))
    verdict = run(check("ipmi_sel"), tmp_path, settings, tools=tools)
    assert "sel clear" not in (tmp_path / "calls").read_text()
    assert str(verdict.evidence[-1].value).startswith("not cleared")


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="tool"):
        IpmiSelSettings(tool="rm").validate()
    with pytest.raises(ConfigError):
        IpmiSelSettings(bad=("(",)).validate()
    assert parse_sel(OEM) == [["4", "", "00112233445566", "", ""]]


@pytest.mark.skipif(not shutil.which("ipmitool") or Path("/dev/ipmi0").exists(), reason="no ipmitool, or a real BMC")
def test_ipmi_sel_unknown_by_the_real_ipmitool_without_a_controller() -> None:
    assert "Could not open device" in run(check("ipmi_sel"), "/").why


# ipmi_sensors

HEADER = "ID,Name,Type,State,Reading,Units,Event\n"
GOOD = HEADER + "1,FAN1,Fan,Nominal,5000.00,RPM,'OK'\n2,PSU1,Power Supply,Nominal,N/A,N/A,'Presence detected'\n"


def sensors(root: Path, text: str, rc: int = 0, settings: IpmiSensorsSettings | None = None) -> Verdict:
    prints(root / "bin", "ipmi-sensors", text, rc)
    return run(check("ipmi_sensors"), root, settings, tools=root / "bin")


def test_ipmi_sensors_good(tmp_path: Path) -> None:
    more = "3,PSU Red,Power Supply,Nominal,N/A,N/A,'Fully Redundant'\n4,FAN9,Fan,N/A,N/A,RPM,N/A\n"
    assert sensors(tmp_path, GOOD + more).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("3,FAN2,Fan,Critical,0.00,RPM,'At or Below (<=) Lower Critical Threshold'\n", Outcome.BAD),
        ("3,FAN2,Fan,Nominal,0.00,RPM,'Device Removed'\n", Outcome.BAD),
        ("3,PSU2,Power Supply,Critical,N/A,N/A,'Presence detected' 'Power Supply input lost (AC/DC)'\n", Outcome.BAD),
        ("3,PSU2,Power Supply,Critical,N/A,N/A,'Presence detected'\n", Outcome.BAD),
        ("3,PSU Red,Power Supply,Critical,N/A,N/A,'Redundancy Lost'\n", Outcome.WARN),
        ("3,FAN2,Fan,Warning,900.00,RPM,'OK'\n", Outcome.WARN),
    ],
)
def test_ipmi_sensors_bad(tmp_path: Path, line: str, outcome: Outcome) -> None:
    assert sensors(tmp_path, GOOD + line).outcome is outcome
    assert (
        sensors(tmp_path, GOOD + line, settings=IpmiSensorsSettings(ignore=("FAN2", "PSU2", "PSU Red"))).outcome
        is Outcome.OK
    )


@pytest.mark.parametrize(
    ("text", "rc"),
    [
        ("", 0),
        (HEADER, 0),
        (HEADER + "1,FAN1,Fan,N/A,N/A,RPM,N/A\n", 0),
        ("FAN1 | ok\n", 0),
        (GOOD + "3,cut\n", 0),
        ("could not find inband device\n", 1),
        (GOOD, 127),
    ],
)
def test_ipmi_sensors_unknown_where_nothing_can_be_read(tmp_path: Path, text: str, rc: int) -> None:
    assert sensors(tmp_path, text, rc).outcome is Outcome.UNKNOWN


@pytest.mark.skipif(
    not shutil.which("ipmi-sensors") or Path("/dev/ipmi0").exists(), reason="no FreeIPMI, or a real BMC"
)
def test_ipmi_sensors_unknown_by_the_real_tool_without_a_controller() -> None:
    assert run(check("ipmi_sensors"), "/").outcome is Outcome.UNKNOWN
