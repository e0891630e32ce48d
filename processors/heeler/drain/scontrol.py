"""Slurm by its command line: read and drain one node, give it back, requeue one job."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heeler.drain import guard
from heeler.drain.backend import Done, LeaseTooShortError, NotOneNodeError
from heeler.drain.node import NodeView, is_plain_name
from heeler.drain.requeue import HeldJob
from heeler.slurm.command import Completed, run_slurm_async, slurm_env
from heeler.slurm.errors import CommandFailedError, ParseError, SlurmError
from heeler.slurm.jobstext import ENVIRONMENT, argv, new_marks, parse_jobs_text
from heeler.slurm.nodes import Node, parse_nodes_text
from heeler.slurm.packed import some_of
from heeler.slurm.times import local_zone

START_S = 2.0  # for the guard's own start, over the command's time

__all__ = ["LeaseTooShortError", "NotOneNodeError", "Scontrol"]


@dataclass(frozen=True, slots=True)
class Scontrol:
    """The scontrol of one cluster, and the squeue beside it."""

    program: str = "scontrol"
    conf: str | None = None
    timeout_s: float = 10.0
    squeue: str = "squeue"
    _env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, program: str, conf: str, timeout_s: float) -> "Scontrol":
        """Return the command with its environment fixed now. Raises SlurmError if there is no such program."""
        env = slurm_env(conf=conf or None)
        path = shutil.which(program, path=env.get("PATH", os.defpath))
        if path is None:
            raise SlurmError(f"no program {program!r}")
        beside = Path(path).with_name("squeue")
        return cls(path, conf or None, timeout_s, str(beside) if beside.exists() else "squeue", env)

    async def show(self, name: str, now_ns: int) -> NodeView:
        """Return a node as the controller has it now. Raises SlurmError, also for an answer about another node."""
        asked = (self.program, "show", "node", _checked(name), "-o")
        done = (await run_slurm_async(asked, self.timeout_s, self._env)).check()
        for node in parse_nodes_text(done.text, local_zone()).nodes:
            if node.name == name:
                return view_of(node, now_ns)
        raise ParseError(f"no node {name} in the answer", done.text)

    async def drain(self, name: str, reason: str, deadline_s: float) -> Done:
        """Drain a node. Raises LeaseTooShortError, SlurmError."""
        update = (self.program, "update", f"nodename={_checked(name)}", "state=drain", f"reason={reason}")
        return await self._guarded(update, name, deadline_s)

    async def undrain(self, name: str, deadline_s: float) -> Done:
        """Give a node back. `undrain` changes no other state: a node that went down meanwhile stays down."""
        update = (self.program, "update", f"nodename={_checked(name)}", "state=undrain")
        return await self._guarded(update, name, deadline_s)

    async def jobs_on(self, name: str) -> list[HeldJob]:
        """Return the jobs that a node has now. Raises SlurmError."""
        return await self._jobs("-w", _checked(name))

    async def job(self, job_id: str) -> HeldJob | None:
        """Return a job; None where Slurm knows it no more. Raises SlurmError."""
        try:
            found = await self._jobs("-j", _job(job_id))
        except CommandFailedError as err:
            if "Invalid job id" in str(err):
                return None
            raise
        return next((job for job in found if job.id == job_id), None)

    async def requeue(self, job: HeldJob, comment: str, deadline_s: float) -> Done:
        """Tell a job's owner by its admin comment, then requeue it: never without the owner being told."""
        tell = (self.program, "update", f"jobid={_job(job.id)}", f"admincomment={comment}")
        told = await self._guarded(tell, job.id, deadline_s)
        if told.problem:
            return Done(f"its owner could not be told: {told.problem}")
        return await self._guarded((self.program, "requeue", job.id), job.id, deadline_s)

    async def _guarded(self, command: Sequence[str], about: str, deadline_s: float) -> Done:
        """Run a command, unless the lease is too short by the time of the exec."""
        guarded = (sys.executable, "-I", "-S", str(Path(guard.__file__)), str(deadline_s), str(self.timeout_s))
        done = await run_slurm_async((*guarded, *command), self.timeout_s + START_S, self._env)
        if done.rc == guard.TOO_LATE and guard.SAID in done.error_text:
            raise LeaseTooShortError(f"{about}: {guard.SAID}")
        return Done(_problem(done))

    async def _jobs(self, *which: str) -> list[HeldJob]:
        marks = new_marks()
        _, *options = argv(marks)
        env = {**self._env, **ENVIRONMENT}
        done = (await run_slurm_async((self.squeue, *options, *which), self.timeout_s, env)).check()
        answer = parse_jobs_text(done.text, marks, local_zone(), with_table=True)
        if answer.unreadable:  # a job that can't be read is not one that is over
            first = answer.unreadable[0]
            raise SlurmError(f"job {first.name or 'without an id'} can't be read: {first.why}")
        assert answer.table is not None
        comments = dict(zip(*some_of(answer.table.columns, ("job_id", "admin_comment")).values(), strict=True))
        return [
            HeldJob(
                job.id,
                job.state.name,
                job.batch,
                job.requeueable,
                job.restarts,
                job.het_job_id,
                job.user,
                comments.get(job.id),
            )
            for job in answer.jobs
        ]


def _problem(done: Completed) -> str:
    return "" if done.rc == 0 else f"scontrol ended with {done.rc}: {done.error_text.strip()[:300] or 'no message'}"


def _checked(name: str) -> str:
    if not is_plain_name(name):
        raise NotOneNodeError(f"not one plain node name: {name!r}")
    return name


def _job(job_id: str) -> str:
    if not (job_id.isascii() and job_id.isdecimal()):
        raise SlurmError(f"not one plain job id: {job_id!r}")
    return job_id


def view_of(node: Node, now_ns: int) -> NodeView:
    """Return a node that Slurm was just asked about."""
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
        boot_ts_ns=node.boot_ts_ns,
    )
