"""The columns of `stats` that are of nodes: sums over rows of the table `nodes`, each node once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from heeler.slurm.errors import ParseError
from heeler.slurm.gres import SHARED_KINDS, Gres, parse_gres
from heeler.slurm.sums import count, total

BASES = ("IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE", "UNKNOWN")
FLAGS = (
    "COMPLETING",
    "MAINTENANCE",
    "REBOOT_ISSUED",
    "REBOOT_REQUESTED",
    "PERFCTRS",
    "PLANNED",
    "POWER_DOWN",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
    "RESERVED",
    "NOT_RESPONDING",
    "BLOCKED",
)
INVALID = frozenset(("INVALID", "INVALID_REG"))


class NodeRow(NamedTuple):
    """Columns of the table `nodes`."""

    state: str | None = None
    flags: Sequence[str] | None = None
    unknown_flags: Sequence[str] | None = None
    state_unparsed: str | None = None
    available: bool | None = None
    drained: bool | None = None
    draining: bool | None = None
    partitions: Sequence[str] | None = None
    cpus: int | None = None
    cpus_allocated: int | None = None
    gpus: int | None = None
    gpus_used: int | None = None
    gres_used: str | None = None
    shards: int | None = None
    shards_used: int | None = None
    mps: int | None = None
    mps_used: int | None = None


def node_sums(nodes: Sequence[NodeRow]) -> dict[str, Any]:
    """Return sums over different nodes."""
    flags = [frozenset(node.flags or ()) for node in nodes]
    busy = [_busy(node, some) for node, some in zip(nodes, flags, strict=True)]
    shared = [shared_gpus(node) for node in nodes]
    in_service = [node.available for node in nodes]
    return {
        "nodes": len(nodes),
        **{f"nodes_{base.lower()}": sum(node.state == base for node in nodes) for base in BASES},
        **{f"nodes_{flag.lower()}": sum(flag in some for some in flags) for flag in FLAGS},
        **_with("DRAIN", ("nodes_drained", "nodes_draining"), flags, busy),
        **_with("FAIL", ("nodes_fail", "nodes_failing"), flags, busy),
        "nodes_invalid": sum(bool(some & INVALID) for some in flags),
        "nodes_with_jobs": count(busy),
        "nodes_up": in_service.count(True),
        "nodes_unavailable": in_service.count(False),
        "nodes_service_unknown": in_service.count(None),
        "nodes_state_unparsed": sum(bool(node.state_unparsed or node.unknown_flags) for node in nodes),
        **_resource("cpus", nodes, [(node.cpus, node.cpus_allocated, 0) for node in nodes]),
        **_resource("gpus", nodes, [(node.gpus, node.gpus_used, one) for node, one in zip(nodes, shared, strict=True)]),
        "gpus_shared": total(shared),
    }


def _busy(node: NodeRow, flags: frozenset[str]) -> bool | None:
    """Whether a node has jobs; None where its state does not say."""
    if node.state in ("ALLOCATED", "MIXED") or "COMPLETING" in flags or node.draining:
        return True
    return None if node.state == "UNKNOWN" and not node.drained else False


def _with(
    flag: str, names: tuple[str, str], flags: Sequence[frozenset[str]], busy: Sequence[bool | None]
) -> dict[str, int | None]:
    """Count the nodes with a flag, those without jobs and those with."""
    found = [has_jobs for some, has_jobs in zip(flags, busy, strict=True) if flag in some]
    with_jobs = count(found)
    return {names[0]: None if with_jobs is None else len(found) - with_jobs, names[1]: with_jobs}


def _resource(
    name: str, nodes: Sequence[NodeRow], amounts: Sequence[tuple[int | None, int | None, int | None]]
) -> dict[str, int | None]:
    """Sum up processors or GPUs: (all, allocated, otherwise in use) of each node.

    What is free on a node out of service is no use to anybody.
    """
    up = [some for node, some in zip(nodes, amounts, strict=True) if node.available is True]
    return {
        name: total(have for have, _, _ in amounts),
        f"{name}_up": total(have for have, _, _ in up),
        f"{name}_down": total(
            have for node, (have, _, _) in zip(nodes, amounts, strict=True) if node.available is False
        ),
        f"{name}_allocated": total(used for _, used, _ in amounts),
        f"{name}_available": total(_free(*some) for some in up),
    }


def _free(have: int | None, *taken: int | None) -> int | None:
    lost = total(taken)
    return None if have is None or lost is None else max(have - lost, 0)


def shared_gpus(node: NodeRow) -> int | None:
    """Return how many GPUs are in use by their shards or MPS shares: no job gets these whole."""
    if not node.shards and not node.mps:
        return 0
    used = total((node.shards_used, node.mps_used))
    if not used:
        return None if used is None else 0
    have, taken = node.gpus, node.gpus_used
    if have is not None and taken is not None and have - taken <= 1:
        return max(int(have - taken), 0)
    try:
        parts = [gres for gres in parse_gres(node.gres_used) if gres.name in SHARED_KINDS and gres.count]
    except ParseError:
        return None
    return _gpus_of(parts)


def _gpus_of(shares: Sequence[Gres]) -> int | None:
    """Return of how many GPUs these shares are."""
    if all(part.indices is not None for part in shares):
        return len({index for part in shares for index in part.indices or ()})
    # Of several lists nobody says whether they begin with the same GPU.
    if len(shares) != 1 or shares[0].mismatch or not shares[0].use:
        return None
    return sum(part > 0 for part, _ in shares[0].use)
