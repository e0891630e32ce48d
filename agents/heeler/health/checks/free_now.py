"""The GPUs that a diagnostic may have at this moment, by Slurm and the driver. The rule itself is free_gpus.py."""

from typing import Any

from heeler.health.checks.tool import run_tool
from heeler.health.model import Context, Phase, ProbeError

AROUND_JOBS = (Phase.PROLOG, Phase.EPILOG, Phase.TASK_PROLOG)


def free_now(context: Context, level: int) -> set[str]:
    """Return the UUIDs of GPUs that are allocated to nobody. Raises ProbeError for none, or any doubt."""
    from heeler.health.free_gpus import free_gpus  # noqa: PLC0415 - few runs have such a check
    from heeler.health.gpu_map import by_driver  # noqa: PLC0415

    minors = by_driver(context.root)
    free = free_gpus(level, context.case.phase, _slurm_node(context), context.case.job, frozenset(minors))
    if not free.minors:
        raise ProbeError("failed", f"no diagnostic: {free.why}")
    return {minors[minor] for minor in free.minors}


def refuse_all_around_jobs(phase: Phase) -> None:
    """Raise ProbeError where a setting says `all` and a job begins or has ended: others may run here."""
    if phase in AROUND_JOBS:
        raise ProbeError("failed", "no diagnostic: around a job it may not have all GPUs")


def _slurm_node(context: Context) -> Any:
    """Return the node as Slurm has it just now; None where that can't be told."""
    from heeler.slurm.errors import ParseError  # noqa: PLC0415
    from heeler.slurm.nodes import parse_nodes_text  # noqa: PLC0415
    from heeler.slurm.times import local_zone  # noqa: PLC0415

    try:
        argv = ("scontrol", "--oneliner", "--details", "show", "node", context.case.node)
        nodes = parse_nodes_text(run_tool(context, argv, timeout_s=10.0).checked().stdout, local_zone()).nodes
    except (ProbeError, ParseError):
        return None
    return next((node for node in nodes if node.name == context.case.node), None)
