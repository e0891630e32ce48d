"""Whose a node's reason is, by its words: pure, a table of what Slurm and well-known tools write."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """What a reason means, and what to look at."""

    by: str
    means: str
    look: str


# Slurm's own words, as its source writes them; the first that fits counts.
_SLURM = (
    (r"not responding\b(?! to)", "slurmd does not answer the controller", "is the node up; slurmd; the network"),
    (r"low (realmemory|memory)", "the node has less memory than slurm.conf says", "slurmd -C; a DIMM that is gone"),
    (r"low (cpus|socket|core|tmpdisk|sockets)", "the node has less than slurm.conf says", "slurmd -C"),
    (r"gres/\w+.*count (reported lower|changed|too low)", "slurmd found fewer GPUs than slurm.conf says",
     "nvidia-smi -L; gres.conf; heeler health ask NODE gpu_count"),
    (r"(node )?unexpectedly rebooted", "the node booted without being asked to", "last -x; the kernel log; power"),
    (r"kill task failed", "processes of a job did not end in time", "ps on the node, state D; UnkillableStepTimeout"),
    (r"batch job complete failure", "a batch job could not be ended in order", "slurmd's log on the node"),
    (r"duplicate jobid", "slurmd reported a job twice", "slurmd's log; scontrol show job"),
    (r"slurmdspooldir is full|.*no space left", "a disk of the node is full", "df on the node"),
    (r"resumetimeout reached", "the node did not come up in time", "its power and its boot"),
    (r"(reboot|scheduled reboot|reboot asap|reboot issued)", "a reboot was asked for", "scontrol show node"),
    (r"(power|powered|powering)[ _-]?(save|down|up)", "Slurm's power saving", "ResumeProgram, SuspendProgram"),
)  # fmt: skip
_TOOLS = (
    (r"nhc[:\s]", "Node Health Check (NHC)", "its check failed", "NHC's log on the node"),
    (r"(pro|epi)log\b", "a prolog or epilog", "it failed", "slurmd's log on the node"),
)
_OF_SLURM = [(re.compile(pattern, re.IGNORECASE), means, look) for pattern, means, look in _SLURM]
_OF_TOOLS = [(re.compile(pattern, re.IGNORECASE), by, means, look) for pattern, by, means, look in _TOOLS]
_SYSTEM = frozenset(("slurm", "root"))


def origin(reason: str, user: str | None) -> Origin:
    """Return who wrote a reason that is none of Heeler's, as far as its words and its author tell."""
    for pattern, means, look in _OF_SLURM:
        if pattern.match(reason.strip()):
            return Origin("Slurm itself", means, look)
    for pattern, by, means, look in _OF_TOOLS:
        if pattern.match(reason.strip()):
            return Origin(by, means, look)
    if user is None:
        return Origin("somebody whose name Slurm does not tell", "not by Heeler", "ask the operators")
    if user in _SYSTEM:
        return Origin(f"{user}: an operator or a tool of the site", "not by Heeler", "the site's scripts and cron jobs")
    return Origin(f"{user}, or a tool of theirs", "not by Heeler", f"ask {user}")
