"""Slurm by slurmrestd: read, drain and give back one node. It needs v0.0.39 (Slurm 23.02): older ones change no node.

A change is sent by a child of its own behind the same guard as a command, so that a process that was frozen sends
nothing on a lease that has ended. slurmrestd can't requeue a job.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from heeler.drain import guard
from heeler.drain.backend import Done, LeaseTooShortError, NotOneNodeError, NotSupportedError
from heeler.drain.node import NodeView, is_plain_name
from heeler.drain.requeue import HeldJob
from heeler.drain.scontrol import view_of
from heeler.slurm.command import run_slurm_async, slurm_env
from heeler.slurm.errors import ParseError, SlurmError
from heeler.slurm.nodes import parse_nodes_json
from heeler.slurm.rest import Rest

T = TypeVar("T")

OLDEST = 39
START_S = 3.0
SHOWN = 300


@dataclass(frozen=True, slots=True)
class SlurmRest:
    """The slurmrestd of one cluster. `url`: unix:///path, http://host:port or https://host:port."""

    url: str
    user: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    timeout_s: float = 10.0
    _env: dict[str, str] = field(default_factory=slurm_env)
    _version: list[str] = field(default_factory=list)  # once it is known

    async def show(self, name: str, now_ns: int) -> NodeView:
        """Return a node as the controller has it now. Raises SlurmError, also for an answer about another node."""
        body = await self._asked(lambda rest: rest.get(self._node(rest, name), self.timeout_s))
        answer = parse_nodes_json(body)
        for node in answer.nodes:
            if node.name == name:
                return view_of(node, now_ns)
        raise ParseError(f"no node {name} in the answer", body[:SHOWN])

    async def drain(self, name: str, reason: str, deadline_s: float) -> Done:
        """Drain a node. Raises LeaseTooShortError, SlurmError."""
        return await self._change(name, {"state": ["DRAIN"], "reason": reason}, deadline_s)

    async def undrain(self, name: str, deadline_s: float) -> Done:
        """Give a node back. Raises LeaseTooShortError, SlurmError."""
        return await self._change(name, {"state": ["UNDRAIN"]}, deadline_s)

    async def jobs_on(self, name: str) -> list[HeldJob]:
        """Refuse: what can't be requeued need not be read."""
        raise NotSupportedError(f"{name}: slurmrestd can't requeue jobs: use scontrol")

    async def job(self, job_id: str) -> HeldJob | None:
        """Refuse likewise."""
        raise NotSupportedError(f"job {job_id}: slurmrestd can't requeue jobs: use scontrol")

    async def requeue(self, job: HeldJob, comment: str, deadline_s: float) -> Done:
        """Refuse likewise."""
        raise NotSupportedError(f"job {job.id}: slurmrestd can't requeue jobs ({comment[:20]}, {deadline_s:g})")

    async def _change(self, name: str, body: dict[str, Any], deadline_s: float) -> Done:
        path = await self._asked(lambda rest: self._node(rest, name, changes=True))
        order = {
            "url": self.url,
            "user": self.user,
            "token_file": self.token_file,
            "ca_file": self.ca_file,
            "path": path,
            "body": body,
            "timeout_s": self.timeout_s,
        }
        guarded = (sys.executable, "-I", "-S", str(Path(guard.__file__)), str(deadline_s), str(self.timeout_s))
        sender = (sys.executable, "-m", "heeler.drain.rest_post")
        answer = json.dumps(order).encode()
        done = await run_slurm_async((*guarded, *sender), self.timeout_s + START_S, self._env, answer)
        if done.rc == guard.TOO_LATE and guard.SAID in done.error_text:
            raise LeaseTooShortError(f"{name}: {guard.SAID}")
        if done.rc != 0:
            return Done(done.error_text.strip()[-SHOWN:] or f"the sender ended with {done.rc}")
        return Done(_problem(done.stdout))

    async def _asked(self, work: Callable[[Rest], T]) -> T:
        """Ask in a thread. Raises RestError."""
        rest = Rest(self.url, self.user, self.token_file, self.ca_file)
        try:
            return await asyncio.to_thread(work, rest)
        except SlurmError:
            self._version.clear()  # another Slurm may answer by now
            raise
        except asyncio.CancelledError:
            rest.cancel()
            raise

    def _node(self, rest: Rest, name: str, *, changes: bool = False) -> str:
        if not is_plain_name(name):
            raise NotOneNodeError(f"not one plain node name: {name!r}")
        if not self._version:
            self._version.append(rest.version("slurm", self.timeout_s))
        version = self._version[0]
        if changes and int(version.rpartition(".")[2]) < OLDEST:
            raise NotSupportedError(f"slurmrestd {version} changes no node: v0.0.{OLDEST} (Slurm 23.02) is needed")
        return f"/slurm/{version}/node/{name}"


def _problem(answer: bytes) -> str:
    """Return what slurmrestd complains of; an answer that can't be read is a complaint too."""
    try:
        errors = json.loads(answer)["errors"]
        if isinstance(errors, list) and not errors:
            return ""
        first = errors[0]
        return str(first.get("description") or first.get("error") or first)[:SHOWN]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return f"an answer that is none: {answer[:SHOWN]!r}"
