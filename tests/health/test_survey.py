"""A manifest made from a good machine passes there, and shows what is wrong on one that has lost something."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from healthkit import check_of, machine, run

from heeler.health.checks import infiniband, pcie
from heeler.health.checks.manifest import parse_manifest
from heeler.health.model import Outcome, ProbeError
from heeler.health.survey import as_json, survey

GPU = "sys/bus/pci/devices/0000:1b:00.0/"
NIC = "sys/bus/pci/devices/0000:1c:00.0/"
IB = "sys/class/infiniband/"
GOOD = {
    f"{GPU}class": "0x030200",
    f"{GPU}vendor": "0x10de",
    f"{GPU}device": "0x2330",
    f"{GPU}current_link_width": "16",
    f"{GPU}current_link_speed": "2.5 GT/s PCIe",
    f"{GPU}max_link_width": "16",
    f"{GPU}max_link_speed": "32.0 GT/s PCIe",
    f"{NIC}class": "0x020700",
    f"{NIC}vendor": "0x15b3",
    f"{NIC}device": "0x1021",
    f"{NIC}current_link_width": "16",
    f"{NIC}current_link_speed": "32.0 GT/s PCIe",
    "sys/bus/pci/devices/0000:00:00.0/class": "0x060000",
    "sys/class/net/eth0/type": "1",
    "sys/class/net/eth0/device/x": "",
    "sys/class/net/eth0/operstate": "up",
    "sys/class/net/eth0/speed": "25000",
    "sys/class/net/eth0/mtu": "9000",
    "sys/class/net/eth0/flags": "0x1003",
    "sys/class/net/eth1/type": "1",
    "sys/class/net/eth1/device/x": "",
    "sys/class/net/eth1/operstate": "down",
    "sys/class/net/docker0/type": "1",
    "sys/class/net/docker0/operstate": "up",
    f"{IB}mlx5_0/fw_ver": "28.39.1002",
    f"{IB}mlx5_0/ports/1/state": "4: ACTIVE",
    f"{IB}mlx5_0/ports/1/phys_state": "5: LinkUp",
    f"{IB}mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
    f"{IB}mlx5_1/fw_ver": "28.39.1002",
    f"{IB}mlx5_1/ports/1/state": "4: ACTIVE",
    f"{IB}mlx5_1/ports/1/phys_state": "5: LinkUp",
    f"{IB}mlx5_1/ports/1/rate": "100 Gb/sec (4X EDR)",
    f"{IB}mlx5_2/ports/1/state": "1: DOWN",
    f"{IB}mlx5_2/ports/1/phys_state": "2: Polling",
    f"{IB}mlx5_2/ports/1/rate": "10 Gb/sec (4X SDR)",
    "sys/block/nvme0n1/device/x": "",
    "sys/block/nvme0n1/size": "7501476528",
    "sys/block/loop0/size": "0",
}
CHECKS = (*pcie.CHECKS, *infiniband.CHECKS)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    root = machine(tmp_path, GOOD)
    return machine(root, {"etc/heeler/manifest.json": as_json(survey(root).manifest)})


def test_a_manifest_has_what_the_machine_has_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    found = survey(machine(tmp_path, GOOD))
    manifest = found.manifest
    assert manifest["pci"]["0000:1b:00.0"] == {
        "type": "gpu",
        "dev": "10de:2330",
        "link_speed": ["32 GT/s PCIe"],
        "link_width": 16,
    }
    assert list(manifest["pci"]) == ["0000:1b:00.0", "0000:1c:00.0"]
    assert manifest["eth"] == {"eth0": {"netdev": "eth0", "mtu": 9000, "flags": ["UP"], "speed": 25000}}
    assert manifest["ib"] == {
        "link_rate": 100.0,
        "firmware_version": ["28.39.1002"],
        "interfaces": {"mlx5_0": {"mlx": "mlx5_0", "rate": 400.0}, "mlx5_1": {"mlx": "mlx5_1", "rate": 100.0}},
    }
    assert manifest["disks"] == {"nvme0n1": {"blockdev": "nvme0n1", "size": 3840755982336}}
    assert found.left_out == ["eth eth1: down", "ib mlx5_2/1: DOWN, Polling"]
    assert parse_manifest(as_json(manifest).encode(), Path("manifest.json")) == manifest


def test_the_machine_it_was_made_from_passes(good: Path) -> None:
    for name in ("pci", "ethlink", "ib_links", "ib_firmware"):
        verdict = run(check_of(CHECKS, name), good)
        assert verdict.outcome is Outcome.OK, verdict


@pytest.mark.parametrize(
    ("name", "path", "text", "outcome"),
    [
        ("pci", f"{GPU}current_link_width", "8", Outcome.BAD),
        ("pci", f"{NIC}current_link_speed", "16.0 GT/s PCIe", Outcome.BAD),
        ("ib_links", f"{IB}mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)", Outcome.BAD),
        ("ib_links", f"{IB}mlx5_1/ports/1/phys_state", "2: Polling", Outcome.BAD),
        ("ib_firmware", f"{IB}mlx5_1/fw_ver", "28.10.0001", Outcome.WARN),
        ("ethlink", "sys/class/net/eth0/operstate", "down", Outcome.BAD),
        ("ethlink", "sys/class/net/eth0/speed", "10000", Outcome.WARN),
    ],
)
def test_a_machine_that_lost_something_does_not(good: Path, name: str, path: str, text: str, outcome: Outcome) -> None:
    (good / path).write_text(text)
    assert run(check_of(CHECKS, name), good).outcome is outcome


def test_a_machine_that_shows_nothing_has_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="nothing found"):
        survey(tmp_path)


def test_the_command_prints_it_or_writes_it(tmp_path: Path) -> None:
    root = machine(tmp_path, GOOD)
    argv = [sys.executable, "-m", "heeler.health.cli", "manifest", "--root", str(root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == survey(root).manifest
    assert "left out: eth eth1: down" in done.stderr
    subprocess.run([*argv, "--out", str(tmp_path / "m.json")], check=True, capture_output=True)
    assert json.loads((tmp_path / "m.json").read_text()) == survey(root).manifest
    empty = [*argv[:-1], str(tmp_path / "none")]
    assert subprocess.run(empty, capture_output=True, check=False).returncode == 1
