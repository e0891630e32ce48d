"""PCIe links and Ethernet interfaces, by the manifest and without one."""

import json
from pathlib import Path
from typing import Any

import pytest
from healthkit import check_of, machine, run

from heeler.bus import ConfigError
from heeler.health.checks.pcie import CHECKS, EthlinkSettings, PcieErrorsSettings, PciSettings, address_of
from heeler.health.model import Check, Outcome

GPU, NIC = "0000:1b:00.0", "0000:1c:00.0"
UUID = "GPU-5d1a0000-77c0-4e1b-9f20-a1b2c3d40000"


def check(name: str) -> Check:
    return check_of(CHECKS, name)


def device(address: str, code: str, *, width: Any = 16, speed: str = "32.0 GT/s PCIe", **more: str) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{address}/"
    files = {"class": code, "vendor": "0x10de", "current_link_width": f"{width}", "current_link_speed": speed}
    files |= {"max_link_width": "16", "max_link_speed": "32.0 GT/s PCIe", **more}
    return {f"{folder}{name}": f"{text}\n" for name, text in files.items()}


def board(
    root: Path, *, gpu: Any = 16, nic: Any = 16, gpu_speed: str = "32.0 GT/s PCIe", nic_speed: str = "32.0 GT/s PCIe"
) -> Path:
    files = device(GPU, "0x030200", width=gpu, speed=gpu_speed) | device(NIC, "0x020700", width=nic, speed=nic_speed)
    files |= device("0000:00:00.0", "0x060000", width=1)
    files[f"proc/driver/nvidia/gpus/{GPU}/information"] = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {UUID}\n"
    return machine(root, files)


def manifest(root: Path, **extra: Any) -> Path:
    one = {"link_speed": ["32.0 GT/s PCIe"], "link_width": 16}
    pci = {"00000000:1B:00.0": {"type": "gpu", **one}, NIC: {"type": "hca", **one}} | extra
    return machine(root, {"etc/manifest.json": json.dumps({"pci": pci})})


# pci


def test_pci_good_by_the_manifest_and_without(tmp_path: Path) -> None:
    assert run(check("pci"), board(tmp_path)).outcome is Outcome.OK
    assert run(check("pci"), manifest(tmp_path)).outcome is Outcome.OK


def test_pci_good_where_an_idle_gpu_has_lowered_its_speed(tmp_path: Path) -> None:
    root = manifest(board(tmp_path, gpu_speed="2.5 GT/s PCIe"))
    assert run(check("pci"), root).outcome is Outcome.OK
    assert run(check("pci"), root, PciSettings(judge_speed="always")).outcome is Outcome.BAD


def test_pci_bad_where_a_link_is_narrower_names_the_gpu(tmp_path: Path) -> None:
    verdict = run(check("pci"), manifest(board(tmp_path, gpu=8)))
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, f"gpu {GPU}: 8 of 16 lanes")
    assert verdict.gpus == (UUID,)


def test_pci_bad_where_an_adapter_is_slower_or_a_device_missing(tmp_path: Path) -> None:
    verdict = run(check("pci"), manifest(board(tmp_path / "a", nic_speed="16.0 GT/s PCIe")))
    assert verdict.why == f"hca {NIC}: 16 GT/s, not 32"
    gone = manifest(board(tmp_path / "b"), **{"0000:9b:00.0": {"type": "gpu", "topology_critical": True}})
    verdict = run(check("pci"), gone)
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "gpu 0000:9b:00.0 is not there")
    assert verdict.gpus == ()


def test_pci_bad_without_a_manifest_is_only_a_warning(tmp_path: Path) -> None:
    assert run(check("pci"), board(tmp_path, nic=8)).outcome is Outcome.WARN


@pytest.mark.parametrize("width", [63, 255, 0, "", "x"])
def test_pci_unknown_where_a_device_does_not_tell(tmp_path: Path, width: Any) -> None:
    assert run(check("pci"), manifest(board(tmp_path, gpu=width))).outcome is Outcome.UNKNOWN


def test_pci_unknown_without_devices_or_with_a_broken_manifest(tmp_path: Path) -> None:
    assert run(check("pci"), machine(tmp_path / "a", {"x": ""})).outcome is Outcome.UNKNOWN
    none = machine(tmp_path / "b", device("0000:00:00.0", "0x060000"))
    assert run(check("pci"), none).outcome is Outcome.UNKNOWN
    for text in ("", "[]", "{", '{"pci": []}', '{"pci": {"a": 1}}'):
        assert (
            run(check("pci"), machine(board(tmp_path / f"c{len(text)}"), {"etc/manifest.json": text})).outcome
            is Outcome.UNKNOWN
        )
    assert run(check("pci"), board(tmp_path / "d"), PciSettings(manifest="/etc/no.json")).outcome is Outcome.UNKNOWN


def test_a_broken_manifest_is_no_business_of_checks_that_need_none(tmp_path: Path) -> None:
    root = machine(errors(tmp_path, 5), {"etc/manifest.json": "{"})
    assert run(check("pcie_errors"), root).outcome is Outcome.OK


def test_a_manifest_may_be_toml(tmp_path: Path) -> None:
    root = machine(board(tmp_path, gpu=8), {"etc/heeler/manifest.toml": f'[pci."{GPU}"]\nlink_width = 16\n'})
    assert run(check("pci"), root).outcome is Outcome.BAD


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="judge_speed"):
        PciSettings(judge_speed="sometimes").validate()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0"),
        ("0000:3B:00", "0000:3b:00.0"),
        ("3b:00.0", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
    ],
)
def test_an_address_in_any_spelling(text: str, address: str) -> None:
    assert address_of(text) == address


# pcie_errors

CORRECTED = "RxErr 0\nBadTLP 2\nBadDLLP 3\nTOTAL_ERR_COR {}"


def errors(
    root: Path, corrected: int = 0, nonfatal: str = "Undefined 0\nTOTAL_ERR_NONFATAL 0", fatal: str = "TLP 0"
) -> Path:
    more = {"aer_dev_correctable": CORRECTED.format(corrected), "aer_dev_nonfatal": nonfatal, "aer_dev_fatal": fatal}
    return machine(root, device(GPU, "0x030200", **more))


def test_pcie_errors_good(tmp_path: Path) -> None:
    assert run(check("pcie_errors"), errors(tmp_path, 5)).outcome is Outcome.OK


def test_pcie_errors_bad_by_severity(tmp_path: Path) -> None:
    assert run(check("pcie_errors"), errors(tmp_path / "a", 1000)).outcome is Outcome.WARN
    assert run(check("pcie_errors"), errors(tmp_path / "b", nonfatal="TOTAL_ERR_NONFATAL 1")).outcome is Outcome.BAD
    fatal = errors(tmp_path / "c", fatal="TLP 0\nFCP 2")
    verdict = run(check("pcie_errors"), fatal)
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, f"gpu {GPU}: 2 fatal errors")
    assert run(check("pcie_errors"), fatal, PcieErrorsSettings(max_fatal=2)).outcome is Outcome.OK


def test_pcie_errors_unknown_without_counters(tmp_path: Path) -> None:
    assert run(check("pcie_errors"), board(tmp_path)).outcome is Outcome.UNKNOWN
    garbage = machine(tmp_path / "b", device(GPU, "0x030200", aer_dev_fatal="what is this"))
    assert run(check("pcie_errors"), garbage).outcome is Outcome.UNKNOWN


# ethlink


def net(
    root: Path, name: str, state: str = "up", speed: str = "25000", mtu: str = "9000", flags: str = "0x1003"
) -> Path:
    folder = f"sys/class/net/{name}/"
    files = {"operstate": state, "speed": speed, "mtu": mtu, "flags": flags, "address": "aa:bb:cc:dd:ee:ff"}
    return machine(root, {f"{folder}{key}": f"{text}\n" for key, text in files.items()})


def test_ethlink_good(tmp_path: Path) -> None:
    root = net(tmp_path, "eth0")
    assert run(check("ethlink"), root, EthlinkSettings(("eth0",), 25000, 9000)).outcome is Outcome.OK
    machine(
        root, {"etc/manifest.json": json.dumps({"eth": {"a": {"netdev": "eth0", "speed": 25000, "flags": ["UP"]}}})}
    )
    assert run(check("ethlink"), root, EthlinkSettings()).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("how", "outcome", "why"),
    [
        ({"state": "down", "speed": ""}, Outcome.BAD, "eth0 is down"),
        ({"speed": "10000"}, Outcome.WARN, "eth0: 10000 Mb/s, not 25000"),
        ({"mtu": "1500"}, Outcome.WARN, "eth0: an MTU of 1500, not 9000"),
        ({"speed": "-1"}, Outcome.UNKNOWN, "eth0: its speed can't be read"),
        ({"state": ""}, Outcome.UNKNOWN, "eth0: its state can't be read"),
        ({"state": "unknown", "speed": ""}, Outcome.OK, ""),
    ],
)
def test_ethlink_bad_and_unknown(tmp_path: Path, how: dict[str, str], outcome: Outcome, why: str) -> None:
    verdict = run(check("ethlink"), net(tmp_path, "eth0", **how), EthlinkSettings(("eth0",), 25000, 9000))
    assert verdict.outcome is outcome
    assert why in verdict.why


def test_ethlink_bad_where_an_interface_is_missing(tmp_path: Path) -> None:
    verdict = run(check("ethlink"), net(tmp_path, "eth00"), EthlinkSettings(("eth0",)))
    assert (verdict.outcome, verdict.why) == (Outcome.BAD, "eth0 is not there")


def test_ethlink_unknown_where_nobody_says_what_should_be(tmp_path: Path) -> None:
    assert run(check("ethlink"), net(tmp_path, "eth0"), EthlinkSettings()).outcome is Outcome.UNKNOWN
    assert run(check("ethlink"), tmp_path / "none", EthlinkSettings(("eth0",))).outcome is Outcome.UNKNOWN


def test_ethlink_of_this_machine_is_read() -> None:
    assert run(check("ethlink"), "/", EthlinkSettings(("lo",))).outcome is Outcome.OK
