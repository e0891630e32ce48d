"""Which GPUs a diagnostic may have: those that are allocated to nobody, and stay so while it runs. In doubt none.

A diagnostic takes a GPU for itself for seconds (level 1) to an hour (level 4), and a job that meets it fails or crawls.
"""

from dataclasses import dataclass

from heeler.health.model import Job, Phase
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import SHARED_KINDS, gpu_indices, parse_gres
from heeler.slurm.nodes import Node

QUICK_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Free:
    """Device minors that may be taken, or why none may."""

    minors: frozenset[int]
    why: str = ""


def none(why: str) -> Free:
    """Return that no GPU may be taken."""
    return Free(frozenset(), why)


def free_gpus(level: int, phase: Phase, node: Node | None, job: Job | None, present: frozenset[int]) -> Free:
    """Return the GPUs that a diagnostic of a level may have.

    `node`: as `scontrol show node -d` has it just now, None where it could not be read; `present`: minors of all GPUs.
    An epilog may have the GPUs of its own job, since Slurm gives a node that completes a job nothing new; all others
    only on a node that drains, where nothing new can come.
    """
    if phase in (Phase.PROLOG, Phase.TASK_PROLOG):
        return none("a job begins on these GPUs")
    if phase is Phase.EPILOG and level > QUICK_LEVEL:
        return none(f"level {level} takes longer than an epilog may")
    if node is None:
        return none("what Slurm has allocated is not known")
    used = _used(node)
    if used is None:
        return none(f"which GPUs are in use is not known from {node.gres_used!r}")
    return _of_epilog(job, present, used) if phase is Phase.EPILOG else _between_jobs(node, present, used)


def _of_epilog(job: Job | None, present: frozenset[int], used: frozenset[int]) -> Free:
    if job is None or not job.gpu_minors:
        return none("which GPUs the ended job had is not known")
    free = (frozenset(job.gpu_minors) & present) - used
    return Free(free) if free else none("another job has the ended job's GPUs")


def _between_jobs(node: Node, present: frozenset[int], used: frozenset[int]) -> Free:
    if "DRAIN" not in node.state.flags:
        return none("a job could come at any time: drain the node first")
    if node.state.base not in ("IDLE", "ALLOCATED", "MIXED") or node.state.unparsed:
        return none(f"the node is {node.state.base}")
    free = present - used
    return Free(free) if free else none("all GPUs are allocated")


def _used(node: Node) -> frozenset[int] | None:
    """Return the minors in use; None unless each one is known."""
    if node.gres_used is None:
        return None
    try:
        resources = parse_gres(node.gres_used)
    except ParseError:
        return None
    if not any(one.name == "gpu" for one in resources) or any(
        one.name in SHARED_KINDS and one.count for one in resources
    ):
        return None
    found = gpu_indices(resources)
    return None if found is None else frozenset(found)
