"""Processes and memory on GPUs around a job: what the job before left, what this one leaves."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from heeler.health.gpu_map import job_gpus
from heeler.health.gpu_read import NVML, no_nvml
from heeler.health.leftover import Process, is_service, read_process
from heeler.health.model import (
    Case,
    Check,
    Context,
    Evidence,
    Job,
    Phase,
    Probe,
    Verdict,
    bad,
    ok,
    unknown,
    warn,
)
from heeler.health.slurm_cgroup import Jobs

MIB = 1 << 20
LOOK_EVERY_S = 0.25
FIRST_USER = 1000  # below are users of the system
SPARE_S = 1.0  # of the probe's own time


@dataclass(frozen=True, slots=True)
class LeftoverSettings:
    """How long processes and memory of a job that has ended may take to go."""

    settle_s: float = 2.0


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What a GPU may hold while nobody uses it, beside what the driver reserves for itself."""

    idle_bytes: int = 256 * MIB
    settle_s: float = 5.0


def read_gpu_processes(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Return GPUs with memory and the processes on them; waits a little while there is something that should go."""
    import pynvml  # noqa: PLC0415 - most commands need none

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as err:
        raise no_nvml(pynvml, err) from err
    started, longest_s = time.monotonic(), max(context.timeout_s - SPARE_S, 0.0)
    while True:
        facts = _look(pynvml, context)
        until = started + min(wait_s(facts, context.case, asked), longest_s)
        if time.monotonic() >= until:
            return facts
        time.sleep(LOOK_EVERY_S)


def wait_s(facts: Mapping[str, Any], case: Case, asked: Sequence[Any]) -> float:
    """Return how long in all to wait for what may still go by itself; 0 where nothing that would be bad is there.

    Whose job still runs stays, and so does the memory that it has: nobody waits for that.
    """
    mine = _gpus_of(case.job, facts)
    if case.job is None or mine is None:
        return 0.0
    running, processes = set(facts["running"]), _processes(facts)
    left = any(mine & set(one.gpus) and not is_service(one.comm) and is_left(one, case, running) for one in processes)
    waits = [one.settle_s for one in asked if left and isinstance(one, LeftoverSettings)]
    waits += [one.settle_s for one in asked if isinstance(one, MemorySettings) and _kept(facts, mine, one.idle_bytes)]
    return max(waits, default=0.0)


def _kept(facts: Mapping[str, Any], mine: set[str], idle_bytes: int) -> list[Mapping[str, Any]]:
    """Return the job's GPUs that hold memory which no process has. Of a divided GPU that can't be told."""
    busy = {uuid for one in _processes(facts) for uuid in one.gpus}
    return [
        gpu
        for gpu in facts["gpus"]
        if gpu["uuid"] in mine - busy and not gpu["mig"] and (gpu["used_bytes"] or 0) > idle_bytes
    ]


def _look(nvml: Any, context: Context) -> dict[str, Any]:
    gpus: list[dict[str, Any]] = []
    unread: list[dict[str, Any]] = []
    on: dict[int, list[str]] = defaultdict(list)
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpu, pids = _gpu(nvml, index)
        except nvml.NVMLError as err:
            unread.append({"index": index, "why": str(err)})
            continue
        gpus.append(gpu)
        for pid in pids:
            on[pid].append(gpu["uuid"])
    found = [read_process(pid, context.root, uuids) for pid, uuids in sorted(on.items())]
    processes = [asdict(one) for one in found if one is not None]
    # Who has a slurmstepd has not ended, and may share a GPU; asked only where there is anybody to share with.
    running = sorted(Jobs(context.root).running()) if any(one["job"] for one in processes) else []
    return {"gpus": gpus, "unread": unread, "processes": processes, "running": running}


def _gpu(nvml: Any, index: int) -> tuple[dict[str, Any], set[int]]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid = nvml.nvmlDeviceGetUUID(handle)
    pids: set[int] = set()
    for read in (
        nvml.nvmlDeviceGetComputeRunningProcesses,
        nvml.nvmlDeviceGetGraphicsRunningProcesses,
        nvml.nvmlDeviceGetMPSComputeRunningProcesses,
    ):
        try:
            pids |= {one.pid for one in read(handle)}
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            continue
    gpu = {"index": index, "uuid": uuid, "minor": _or_none(nvml, nvml.nvmlDeviceGetMinorNumber, handle)}
    # The first version counts what the driver reserves as used, the second tells it apart.
    memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle, getattr(nvml, "nvmlMemory_v2", None))
    mig = _or_none(nvml, nvml.nvmlDeviceGetMigMode, handle)
    gpu |= {"used_bytes": memory and int(memory.used), "mig": bool(mig and mig[0])}
    return gpu, pids


def _or_none(nvml: Any, call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch):
        return None


PROCESSES = Probe("gpu_processes", read_gpu_processes, timeout_s=8.0, library=NVML)


def _processes(facts: Mapping[str, Any]) -> list[Process]:
    return [Process(**{**one, "gpus": tuple(one["gpus"])}) for one in facts["processes"]]


def _gpus_of(job: Job | None, facts: Mapping[str, Any]) -> set[str] | None:
    """Return the UUIDs of a job's GPUs; None where they are not known."""
    if job is None:
        return None
    by_minor = {gpu["minor"]: gpu["uuid"] for gpu in facts["gpus"] if gpu["minor"] is not None}
    found = job_gpus(job, by_minor, divided=any(gpu["mig"] for gpu in facts["gpus"]))
    return None if found is None else set(found)


def _unseen(job: Job, mine: set[str], facts: Mapping[str, Any]) -> int:
    """Return how many of a job's GPUs could not be looked at: lost ones, and MIG devices."""
    wanted = len(job.gpu_uuids or job.gpu_minors or ())
    return max(wanted - len(mine & {gpu["uuid"] for gpu in facts["gpus"]}), 0)


def judge_leftovers(facts: Mapping[str, Any], _settings: LeftoverSettings, case: Case) -> Verdict:
    """Say whether processes are on GPUs that should have none: those of a job that begins, or has ended."""
    mine = _gpus_of(case.job, facts)
    if case.job is not None and mine is None:
        return unknown("which GPUs are this job's is not known")
    here = [one for one in _processes(facts) if mine is None or mine & set(one.gpus)]
    users = [one for one in here if not is_service(one.comm)]
    perf = {"processes": float(len(users))}
    if case.job is None:
        return _without_a_job(users, perf)
    left = [one for one in users if is_left(one, case, set(facts["running"]))]
    if left:
        words = ", ".join(_words(one) for one in left[:5])
        return _with(bad, f"{len(left)} processes are left on this job's GPUs: {words}", left, mine, perf)
    if users:
        words = ", ".join(_words(one) for one in users[:5])
        return _with(warn, f"processes of others are on this job's GPUs: {words}", users, mine, perf)
    if unseen := _unseen(case.job, mine or set(), facts):
        return unknown(f"{unseen} of this job's GPUs can't be looked at", **perf)
    return ok("no process is on this job's GPUs" if mine else "this job has no GPUs here", **perf)


def is_left(one: Process, case: Case, running: set[str]) -> bool:
    """Say whether a process has no right to be on the job's GPUs.

    After a job that is the job's own. Before one it is that of a job which has ended, or of a user outside of all jobs.
    A job that still runs may share the GPU, a process of the system may look after it, and of a process whose job can't
    be told nothing is said.
    """
    if case.job is None or one.unclear is not None:
        return False
    if case.phase is not Phase.PROLOG:
        return one.job == case.job.id
    return one.uid >= FIRST_USER if one.job is None else one.job not in running


def _without_a_job(users: Sequence[Process], perf: Mapping[str, float]) -> Verdict:
    strays = [one for one in users if one.job is None and one.unclear is None and one.uid >= FIRST_USER]
    if strays:
        words = ", ".join(_words(one) for one in strays[:5])
        return _with(warn, f"{len(strays)} processes of users on GPUs belong to no job: {words}", strays, None, perf)
    return ok(f"{len(users)} processes on GPUs, all of jobs or of the system", **perf)


def _with(
    say: Any, why: str, processes: Sequence[Process], mine: set[str] | None, perf: Mapping[str, float]
) -> Verdict:
    evidence = [
        Evidence("process", one.pid, gpu_uuid=uuid, device=one.comm, text=f"job {one.job or one.unclear or 'none'}")
        for one in processes
        for uuid in one.gpus
        if mine is None or uuid in mine
    ]
    verdict: Verdict = say(why, *evidence, **perf)
    return verdict


def _words(one: Process) -> str:
    of = f"job {one.job}" if one.job else "no job" if one.unclear is None else "a job that can't be told"
    return f"{one.comm} ({one.pid}, of {of})"


def judge_memory(facts: Mapping[str, Any], settings: MemorySettings, case: Case) -> Verdict:
    """Say whether the memory of the job's GPUs came back. What runs there accounts for its memory itself."""
    mine = _gpus_of(case.job, facts)
    if case.job is None or mine is None:
        return unknown("which GPUs should be empty is not known")
    told = [gpu for gpu in facts["gpus"] if gpu["uuid"] in mine and gpu["used_bytes"] is not None and not gpu["mig"]]
    used = [
        Evidence("fb_used", gpu["used_bytes"], settings.idle_bytes, "bytes", gpu["uuid"], gpu["index"])
        for gpu in _kept(facts, mine, settings.idle_bytes)
    ]
    if used:
        worst = max(int(one.value or 0) for one in used)
        return bad(f"{len(used)} GPUs hold memory that no process has: up to {worst // MIB} MiB", *used)
    wanted = len(case.job.gpu_uuids or case.job.gpu_minors or ())
    if len(told) < wanted:
        return unknown(f"the memory of {wanted - len(told)} of {wanted} GPUs can't be read")
    return ok(f"the memory of {len(told)} GPUs is free or has its processes")


CHECKS = (
    Check(
        "gpu_leftover_processes",
        "No process is left on the GPUs of a job that begins or has ended.",
        PROCESSES,
        judge_leftovers,
        LeftoverSettings,
        hardware=True,
    ),
    Check(
        "gpu_memory_returned",
        "The memory of a job's GPUs is free once no process has it.",
        PROCESSES,
        judge_memory,
        MemorySettings,
        hardware=True,
    ),
)
