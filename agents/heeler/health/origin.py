"""Who speaks: what all messages of this node have in common, and the number that each of them gets."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heeler.health.policy import Policy


@dataclass(frozen=True, slots=True)
class Origin:
    """The cluster, the node as Slurm calls it, and this boot of it."""

    cluster: str
    node: str
    boot: str


def origin_of(policy: Policy, env: Mapping[str, str], node: str, root: Path = Path("/")) -> Origin:
    """Return who this is: as the policy says, else as the environment does."""
    return Origin(policy.cluster or env.get("HEELER_CLUSTER") or "local", policy.node or node, boot_id(root))


def boot_id(root: Path = Path("/")) -> str:
    """Return the id of this boot of the machine."""
    with suppress(OSError):
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip() or "unknown"
    return "unknown"


def next_seq() -> int:
    """Return a number that grows with each message since boot, without a state: microseconds since then."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def run_id(now_ns: int) -> str:
    """Return an id for a run that no other on this node has."""
    return f"{now_ns}-{os.getpid()}"
