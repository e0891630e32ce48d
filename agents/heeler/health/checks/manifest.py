"""What hardware a machine should have: one file, TOML or JSON. `heeler-health manifest` writes it from a good machine.

    {"pci": {"0000:1b:00.0": {"type": "gpu", "link_speed": ["32.0 GT/s PCIe"], "link_width": 16}},
     "eth": {"eth0": {"speed": 25000, "mtu": 9000}},
     "ib": {"link_rate": 400, "firmware_version": ["28.39.1002"], "interfaces": {"ib0": {"mlx": "mlx5_0"}}},
     "disks": {"0": {"blockdev": "nvme0n1", "size": 3840755982336}}}

These are the keys of GCM's /etc/manifest.json. Others are left alone.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heeler.health.checks.files import failure_of, read_bytes
from heeler.health.model import Context, ProbeError

PLACES = ("etc/heeler/manifest.toml", "etc/heeler/manifest.json", "etc/manifest.json")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def load_manifest(context: Context, path: str = "") -> dict[str, Any] | None:
    """Return the manifest of a path, or of the first of the usual places; None where there is none there.

    Raises ProbeError for one that can't be read, or is none, and where the named one is missing.
    """
    for place in (path.lstrip("/"),) if path else PLACES:
        full = context.root / place
        try:
            data = read_bytes(full)
        except OSError as err:
            if isinstance(err, FileNotFoundError) and not path:
                continue
            raise ProbeError(failure_of(err), f"{full}: {err.strerror}") from None
        return parse_manifest(data, full)
    return None


def manifest_facts(context: Context, path: str) -> dict[str, Any]:
    """Return {"found"} or {"error"}: what needs no manifest goes on where one is broken."""
    try:
        return {"found": load_manifest(context, path)}
    except ProbeError as err:
        return {"found": None, "error": str(err)}


def parse_manifest(data: bytes, path: Path) -> dict[str, Any]:
    """Return a manifest of plain values. Raises ProbeError."""
    try:
        found = tomllib.loads(data.decode()) if path.suffix == ".toml" else json.loads(data)
    except (ValueError, UnicodeDecodeError, RecursionError) as err:
        raise ProbeError("unreadable", f"{path}: {err}") from None
    if not isinstance(found, dict):
        raise ProbeError("unreadable", f"{path}: not a table")
    for name in ("pci", "eth", "ib", "disks"):
        part = found.get(name, {})
        if not isinstance(part, dict):
            raise ProbeError("unreadable", f"{path}: {name}: not a table")
        if name != "ib" and not all(isinstance(each, dict) for each in part.values()):
            raise ProbeError("unreadable", f"{path}: {name}: not a table of tables")
    return {name: found.get(name, {}) for name in ("pci", "eth", "ib", "disks")}


def first_number(value: Any) -> float | None:
    """Return the number that a value is, or begins with: 400, `400 Gb/sec (4X NDR)`, `16.0 GT/s PCIe`."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(value.strip()) if isinstance(value, str) else None
    return float(found[0]) if found else None


def each_of(value: Any) -> list[Any]:
    """Return a list of what may be a list, one value or nothing."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None or value == "" else [value]


def wanted_rdma_ports(manifest: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the RDMA ports (mlx5_0, or mlx5_0/1) of a manifest's interfaces and the rate of each in Gb/s; 0: any."""
    ib = (manifest or {}).get("ib") or {}
    interfaces = ib.get("interfaces")
    if not isinstance(interfaces, dict):
        return {}
    common = first_number(ib.get("link_rate")) or 0.0
    return {
        str(each["mlx"]): first_number(each.get("rate")) or common
        for each in interfaces.values()
        if isinstance(each, dict) and each.get("mlx")
    }
