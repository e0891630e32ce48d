"""The manifest of a machine that is known to be good, for checks of PCIe, Ethernet, InfiniBand and drives.

What is down, or can't be read, is not written down as if it should be so: it is left out and named.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heeler.health.checks.files import maybe, maybe_int, names_in
from heeler.health.checks.infiniband import read_infiniband
from heeler.health.checks.pcie import kind_of, link_of
from heeler.health.model import Case, Context, Phase, ProbeError

_SECTOR_BYTES = 512  # of /sys/block/*/size, whatever the drive's own


@dataclass(slots=True)
class Survey:
    """What a machine has, and what was left out."""

    manifest: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def survey(root: Path = Path("/")) -> Survey:
    """Return the manifest of a machine. Raises ProbeError where nothing can be read."""
    found = Survey()
    parts = {"pci": _pci, "eth": _ethernet, "ib": _infiniband, "disks": _disks}
    for name, part in parts.items():
        try:
            found.manifest[name] = part(root, found.left_out)
        except ProbeError as err:
            found.left_out.append(f"{name}: {err}")
    if not any(found.manifest.values()):
        raise ProbeError("missing", f"nothing found for a manifest: {'; '.join(found.left_out) or 'no hardware'}")
    return found


def _pci(root: Path, left_out: list[str]) -> dict[str, Any]:
    folder = root / "sys/bus/pci/devices"
    found = {}
    for name in names_in(folder):
        vendor = maybe_int(folder / name / "vendor")
        kind = kind_of(maybe_int(folder / name / "class"), vendor)
        if not kind:
            continue
        link = link_of(folder / name)
        # A GPU at rest lowers its speed, so its best is written down; of others what they have.
        speed = link["max_speed"] if kind == "gpu" else link["speed"]
        if link["width"] is None or speed is None:
            left_out.append(f"pci {name} ({kind}): its link can't be read")
            continue
        device = maybe_int(folder / name / "device")
        found[name] = {
            "type": kind,
            "dev": f"{vendor or 0:04x}:{device or 0:04x}",
            "link_speed": [f"{speed:g} GT/s PCIe"],
            "link_width": link["width"],
        }
        if link["max_width"] and link["width"] < link["max_width"]:
            left_out.append(
                f"pci {name} ({kind}): note: {link['width']} of {link['max_width']} lanes are taken as right"
            )
    return found


def _ethernet(root: Path, left_out: list[str]) -> dict[str, Any]:
    folder = root / "sys/class/net"
    found = {}
    for name in names_in(folder):
        if maybe_int(folder / name / "type") != 1 or not (folder / name / "device").exists():
            continue
        state, speed = maybe(folder / name / "operstate"), maybe_int(folder / name / "speed")
        if state != "up":
            left_out.append(f"eth {name}: {state}")
            continue
        one: dict[str, Any] = {"netdev": name, "mtu": maybe_int(folder / name / "mtu"), "flags": ["UP"]}
        if speed is not None and speed > 0:
            one["speed"] = speed
        found[name] = {key: value for key, value in one.items() if value is not None}
    return found


def _infiniband(root: Path, left_out: list[str]) -> dict[str, Any]:
    context = Context(Case(Phase.APP, "", 0), root)
    interfaces: dict[str, Any] = {}
    firmware: set[str] = set()
    for device, one in read_infiniband(context, ())["devices"].items():
        up = {}
        for number, port in one["ports"].items():
            if port["state"] == "ACTIVE" and port["phys"] == "LinkUp":
                up[number] = port
            else:
                left_out.append(f"ib {device}/{number}: {port['state']}, {port['phys']}")
        for number, port in up.items():
            name = device if len(one["ports"]) == 1 else f"{device}/{number}"
            interfaces[name] = {"mlx": name}
            if port["rate_gbps"] is not None:
                interfaces[name]["rate"] = port["rate_gbps"]
        if up and one["firmware"]:
            firmware.add(one["firmware"])
    if not interfaces:
        return {}
    rates = [each["rate"] for each in interfaces.values() if "rate" in each]
    common = {"link_rate": min(rates)} if rates else {}
    return {**common, "firmware_version": sorted(firmware), "interfaces": interfaces}


def _disks(root: Path, left_out: list[str]) -> dict[str, Any]:
    folder = root / "sys/block"
    found = {}
    for name in names_in(folder):
        if not name.startswith(("nvme", "sd")) or not (folder / name / "device").exists():
            continue
        sectors = maybe_int(folder / name / "size")
        if not sectors:
            left_out.append(f"disks {name}: its size can't be read")
            continue
        found[name] = {"blockdev": name, "size": sectors * _SECTOR_BYTES}
    return found


def as_json(manifest: dict[str, Any]) -> str:
    """Return a manifest as the text of its file."""
    return json.dumps(manifest, indent=2, sort_keys=True) + "\n"
