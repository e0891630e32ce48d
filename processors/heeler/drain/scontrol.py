"""Slurm by its command line: read one node, drain one node."""

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from heeler.drain import guard
from heeler.drain.node import NodeView, is_plain_name
from heeler.slurm.command import Completed, run_slurm_async, slurm_env
from heeler.slurm.errors import ParseError, SlurmError
from heeler.slurm.nodes import Node, parse_nodes_text
from heeler.slurm.times import local_zone

START_S = 2.0  # for the guard's own start, over the command's time


class NotOneNodeError(SlurmError):
    """A name that Slurm could take for an option, a list, or all nodes."""


class LeaseTooShortError(SlurmError):
    """The command was not run: the lease would not have outlasted it."""


@dataclass(frozen=True, slots=True)
class Scontrol:
    """The scontrol of one cluster."""

    program: str = "scontrol"
    conf: str | None = None
    timeout_s: float = 10.0
    _env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, program: str, conf: str, timeout_s: float) -> "Scontrol":
        """Return the command with its environment fixed now. Raises SlurmError if there is no such program."""
        env = slurm_env(conf=conf or None)
        path = shutil.which(program, path=env.get("PATH", os.defpath))
        if path is None:
            raise SlurmError(f"no program {program!r}")
        return cls(path, conf or None, timeout_s, env)

    async def show(self, name: str, now_ns: int) -> NodeView:
        """Return a node as the controller has it now. Raises SlurmError, also for an answer about another node."""
        argv = (self.program, "show", "node", _checked(name), "-o")
        done = (await run_slurm_async(argv, self.timeout_s, self._env)).check()
        for node in parse_nodes_text(done.text, local_zone()).nodes:
            if node.name == name:
                return _view(node, now_ns)
        raise ParseError(f"no node {name} in the answer", done.text)

    async def drain(self, name: str, reason: str, deadline_s: float) -> Completed:
        """Drain a node, unless the lease (its end on the monotonic clock) is too short by the time of the exec.

        Returns whatever the command's exit status. Raises LeaseTooShortError if it was not run, SlurmError if it was
        killed at its timeout or could not be started; after that only a look at the node can tell.
        """
        update = (self.program, "update", f"nodename={_checked(name)}", "state=drain", f"reason={reason}")
        guarded = (sys.executable, "-I", "-S", str(Path(guard.__file__)), str(deadline_s), str(self.timeout_s), *update)
        done = await run_slurm_async(guarded, self.timeout_s + START_S, self._env)
        if done.rc == guard.TOO_LATE and guard.SAID in done.error_text:
            raise LeaseTooShortError(f"{name}: {guard.SAID}")
        return done


def _checked(name: str) -> str:
    if not is_plain_name(name):
        raise NotOneNodeError(f"not one plain node name: {name!r}")
    return name


def _view(node: Node, now_ns: int) -> NodeView:
    return NodeView(
        name=node.name,
        state=node.state.base.lower(),
        flags=frozenset(node.state.flags) | ({"UNPARSED"} if node.state.unparsed else set()),
        seen_ns=now_ns,
        reason=node.reason,
        reason_user=node.reason_user,
        reason_ts_ns=node.reason_ts_ns,
        partitions=node.partitions,
        features=node.features,
        reservation=node.reservation,
    )
