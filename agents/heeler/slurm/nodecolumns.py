"""The columns of the table `nodes`, from a row of JSON or from the fields of ``scontrol show node``."""

from collections.abc import Mapping
from datetime import tzinfo
from functools import lru_cache
from math import inf
from typing import Any

from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS, Gres, parse_gres
from heeler.slurm.jsonnumbers import epoch_ns, integer, number
from heeler.slurm.rows import Row, free_text, optional, words
from heeler.slurm.state import NodeFlags
from heeler.slurm.times import parse_timestamp
from heeler.slurm.tres import parse_tres

MIB = 1 << 20
MAX_WATTS = 1_000_000
_gres = lru_cache(1 << 12)(parse_gres)
_tres = lru_cache(1 << 12)(parse_tres)


def from_json(row: Row) -> dict[str, Any]:
    """Return the columns that JSON has beyond those of `heeler.slurm.nodes.Node`. Raises ParseError."""
    free = row.get("free_mem", row.get("free_memory"))
    energy = row.get("energy")
    return {
        "features": list(words(row.get("features"))),
        "cpus": integer(row.get("cpus")),
        "cpus_allocated": integer(row.get("alloc_cpus")),
        "memory_bytes": _mib(row.get("real_memory")),
        "memory_allocated_bytes": _mib(row.get("alloc_memory")),
        "memory_free_bytes": _mib(free),
        "tmp_disk_bytes": _mib(row.get("temporary_disk")),
        "tres": _values(optional(row, "tres")),
        "tres_used": _values(optional(row, "tres_used")),
        "weight": integer(row.get("weight")),
        "sockets": integer(row.get("sockets")),
        "cores_per_socket": integer(row.get("cores")),
        "threads_per_core": integer(row.get("threads")),
        "address": optional(row, "address"),
        "hostname": optional(row, "hostname"),
        "slurmd_start_ts": epoch_ns(row.get("slurmd_start_time")),
        "last_busy_ts": epoch_ns(row.get("last_busy")),
        "version": optional(row, "version") or optional(row, "slurmd_version"),
        "arch": optional(row, "architecture"),
        "os": optional(row, "operating_system"),
        "owner": optional(row, "owner"),
        "comment": free_text(row, "comment"),
        "extra": free_text(row, "extra"),
        "instance_id": optional(row, "instance_id"),
        "instance_type": optional(row, "instance_type"),
        "power_w": _watts(energy.get("current_watts")) if isinstance(energy, dict) else None,
    }


def from_text(found: Mapping[str, str], zone: tzinfo) -> dict[str, Any]:
    """Return the same from the fields of ``scontrol show node``. Raises ParseError."""

    def text(key: str) -> str | None:
        value = found.get(key)
        return None if value is None or value.lower() in NULLS else value

    def whole(key: str) -> int | None:
        return integer(found.get(key))

    def stamp(key: str) -> int | None:
        return parse_timestamp(found.get(key, ""), zone)

    return {
        "features": list(words(found.get("AvailableFeatures"))),
        "cpus": whole("CPUTot"),
        "cpus_allocated": whole("CPUAlloc"),
        "memory_bytes": _mib(found.get("RealMemory")),
        "memory_allocated_bytes": _mib(found.get("AllocMem")),
        "memory_free_bytes": _mib(found.get("FreeMem")),
        "tmp_disk_bytes": _mib(found.get("TmpDisk")),
        "tres": _values(text("CfgTRES")),
        "tres_used": _values(text("AllocTRES")),
        "weight": whole("Weight"),
        "sockets": whole("Sockets"),
        "cores_per_socket": whole("CoresPerSocket"),
        "threads_per_core": whole("ThreadsPerCore"),
        "address": text("NodeAddr"),
        "hostname": text("NodeHostName"),
        "slurmd_start_ts": stamp("SlurmdStartTime"),
        "last_busy_ts": stamp("LastBusyTime"),
        "version": text("Version"),
        "arch": text("Arch"),
        "os": text("OS"),
        "owner": text("Owner"),
        "comment": text("Comment"),
        "extra": text("Extra"),
        "instance_id": text("InstanceId"),
        "instance_type": text("InstanceType"),
        "power_w": _watts(found.get("CurrentWatts")),
    }


def processors(columns: Mapping[str, Any], state: NodeFlags) -> dict[str, int | None]:
    """Return idle and other processors, as sinfo counts them: what is free is idle only on a node in service."""
    total, allocated = columns["cpus"], columns["cpus_allocated"]
    if total is None or allocated is None or state.available is None:
        return {"cpus_idle": None, "cpus_other": None}
    free = max(total - allocated, 0)
    return {"cpus_idle": free if state.available else 0, "cpus_other": 0 if state.available else free}


def resources(gres: str | None, used: str | None) -> dict[str, Any]:
    """Return the columns of GPUs, shards and MPS; null where a text can't be read."""
    have, taken = _read(gres), _read(used)
    return {
        "gpus_by_type": _by_type(have),
        "gpus_used_by_type": _by_type(taken),
        "gpu_indices_used": _indices(taken),
        "shards": _total(have, "shard"),
        "shards_used": _total(taken, "shard"),
        "mps": _total(have, "mps"),
        "mps_used": _total(taken, "mps"),
    }


def _read(text: str | None) -> tuple[Gres, ...] | None:
    try:
        return None if text is None else _gres(text)
    except ParseError:
        return None


def _total(found: tuple[Gres, ...] | None, name: str) -> int | None:
    return None if found is None else sum(gres.count for gres in found if gres.name == name)


def _by_type(found: tuple[Gres, ...] | None) -> dict[str, int] | None:
    if found is None:
        return None
    counts: dict[str, int] = {}
    for gres in found:
        if gres.name == "gpu" and gres.type is not None:
            counts[gres.type] = counts.get(gres.type, 0) + gres.count
    return counts


def _indices(found: tuple[Gres, ...] | None) -> list[int] | None:
    """Return the indices in use, or None where those of one resource are not told."""
    gpus = [gres for gres in found or () if gres.name == "gpu"]
    if not gpus or any(gres.indices is None and gres.count for gres in gpus):
        return None
    return sorted({index for gres in gpus for index in gres.indices or ()})


def _values(text: str | None) -> dict[str, int] | None:
    try:
        return None if text is None else _tres(text).values
    except ParseError:
        return None


def _mib(value: Any) -> int | None:
    found = integer(value)
    return None if found is None else found * MIB


def _watts(value: Any) -> float | None:
    """Return power; 0 is what Slurm has where nothing is measured."""
    found = number(value)
    return None if found is None or found == inf or not 0 < found < MAX_WATTS else found
