"""Rows of a sample: which are GPUs in one piece, which parts of something else (MIG devices), and whose they are."""

from collections.abc import Mapping
from typing import Any

GONE = frozenset(("lost", "hung"))  # states of a GPU that does not answer


def whole_gpus(sample: Mapping[str, Any]) -> list[bool] | None:
    """Return which rows are GPUs in one piece; None where all are, which is the common case and quick to see.

    A MIG device has a share of a GPU, and of a divided GPU no utilisation can be read: neither is anybody's peer.
    """
    gpu, modes = sample["gpu"], sample["last"].get("mig_mode")
    parents = gpu.get("parent")
    if not (parents is not None and any(parents)) and not (modes is not None and any(modes)):
        return None
    uuids: list[str] = gpu["uuid"]
    nothing = [None] * len(uuids)
    divided = set(parents or ())
    return [
        not parent and not mode and uuid not in divided
        for uuid, parent, mode in zip(uuids, parents or nothing, modes or nothing, strict=True)
    ]


def jobs_at(sample: Mapping[str, Any], row: int) -> list[str]:
    """Return the jobs of a row: one, none, or the several that share it."""
    holder = sample["job"][row]
    return [holder] if holder is not None else list(sample.get("several", {}).get(str(row), ()))


def is_part(sample: Mapping[str, Any], row: int) -> bool:
    """Say whether a row is a MIG device, whose GPU has a row of its own."""
    parents = sample["gpu"].get("parent")
    return parents is not None and bool(parents[row])
