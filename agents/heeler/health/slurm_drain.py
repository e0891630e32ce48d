"""The reason of a drain that a failed run leaves on its node: read before, set, read after.

Slurm drains the node of a failed prolog or epilog by itself, with the reason 'Prolog error', unless the node drains
already: so ours has to stand before the exit status. Slurm has no compare-and-set; the time between reading and setting
is a few milliseconds, and what stands there afterwards is told as it is.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from heeler.slurm.command import run_slurm, slurm_env
from heeler.slurm.errors import ParseError, SlurmError
from heeler.slurm.nodes import Node, parse_nodes_text
from heeler.slurm.reason import plain
from heeler.slurm.times import local_zone

MAX_REASON = 200
PREFIX = "heeler:"
WORKING = ("IDLE", "ALLOCATED", "MIXED")
# A node with one of these is in the hands of someone, or not there: a run that is not about a job leaves it alone.
IN_HANDS = frozenset(
    (
        "FAIL",
        "INVALID",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_DRAIN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "RESERVED",
    )
)


def reason_text(phase: str, check: str, why: str) -> str:
    """Return `heeler:<phase>:<check>: <why>`, plain ASCII on one line, at most 200 bytes."""
    head = f"{PREFIX}{plain(phase)}:{plain(check) or 'check'}"
    return f"{head}: {plain(why)}"[:MAX_REASON].rstrip(" :")


def why_not(node: Node, *, for_job: bool) -> str | None:
    """Return why a node's drain and reason must be left as they are, or None.

    `for_job`: a prolog or epilog that fails, after which Slurm drains the node whatever we do; a reservation or a
    maintenance in which the job runs is then no obstacle.
    """
    state = node.state
    note = f" (reason {node.reason[:120]!r} by {node.reason_user or 'nobody known'})" if node.reason else ""
    if "DRAIN" in state.flags:
        return f"it drains already{note}"
    if state.base not in WORKING or state.unparsed:
        return f"it is {'+'.join((state.base, *state.flags))}{note}"
    if node.reason:
        return f"it bears a reason that is not ours{note}"
    if not for_job and (held := sorted(IN_HANDS & set(state.flags))):
        return f"it is {'+'.join((state.base, *held))}"
    return None


class Slurm(Protocol):
    """What shows and drains a node. Both raise SlurmError."""

    def show(self, name: str) -> Node:
        """Return the node as it is now."""
        ...

    def drain(self, name: str, reason: str) -> None:
        """Drain the node."""
        ...


@dataclass(frozen=True, slots=True)
class Marked:
    """What became of it: the reason that stands because of us, or why there is none."""

    reason: str | None
    why: str


def mark(slurm: Slurm, node: str, reason: str, *, for_job: bool) -> Marked:
    """Drain a node with our reason, where nobody else has a hand on it. Never raises for what Slurm does."""
    try:
        before = why_not(slurm.show(node), for_job=for_job)
    except SlurmError as err:
        return Marked(None, f"the node could not be read: {err}")
    if before is not None:
        return Marked(None, f"left as it is: {before}")
    problem = ""
    try:
        slurm.drain(node, reason)
    except SlurmError as err:
        problem = str(err)
    try:
        after = slurm.show(node)
    except SlurmError as err:
        return Marked(None, f"wanted drain not verified: {problem or 'it was set'}; {err}")
    if "DRAIN" in after.state.flags and after.reason == reason:
        return Marked(reason, "drained with this reason" + (f", although {problem}" if problem else ""))
    stands = f"{'+'.join((after.state.base, *after.state.flags))} with reason {str(after.reason)[:120]!r}"
    return Marked(None, f"wanted drain not applied: {problem or 'scontrol reported success'}; the node is {stands}")


@dataclass(frozen=True, slots=True)
class Scontrol:
    """Slurm by its command line, all calls together within a deadline on the monotonic clock."""

    deadline_s: float
    bin_dir: str | None = None
    conf: str | None = None
    call_s: float = 4.0
    clock: Callable[[], float] = time.monotonic

    def show(self, name: str) -> Node:
        """Return the node as it is now. Raises SlurmError."""
        text = self._run("show", "node", _plain_name(name), "-d", "-o")  # -d: which GPUs are in use
        for node in parse_nodes_text(text, local_zone()).nodes:
            if node.name == name:
                return node
        raise ParseError(f"no node {name} in the answer", text)

    def drain(self, name: str, reason: str) -> None:
        """Drain the node. Raises SlurmError."""
        self._run("update", f"nodename={_plain_name(name)}", "state=drain", f"reason={reason}")

    def _run(self, *arguments: str) -> str:
        left_s = min(self.call_s, self.deadline_s - self.clock())
        if left_s <= 0:
            raise SlurmError("no time left for scontrol")
        env = slurm_env(bin_dir=self.bin_dir, conf=self.conf)
        return run_slurm(("scontrol", *arguments), left_s, env).check().text


def _plain_name(name: str) -> str:
    """Return a name that can stand for one node only. Raises SlurmError."""
    if not name.replace("-", "a").replace("_", "a").replace(".", "a").isalnum() or name.upper() == "ALL":
        raise SlurmError(f"not one plain node name: {name!r}")
    return name
