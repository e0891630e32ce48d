"""Around a job, beside checking: tells the bus at once, ends leftovers, and leaves a reason where a run fails.

A prolog says which job begins on which GPUs before anything can hang. The UUIDs come from Slurm's environment, from the
driver's files, or from what an earlier run of this boot has read; where none of these knows them, NVML is asked beside
the checks, and the event is told again with them.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heeler.bus import subjects
from heeler.health import gpu_map, held
from heeler.health.breaker import Breaker
from heeler.health.epilog import Cleared, clear
from heeler.health.gpu_processes import PROCESSES
from heeler.health.gpu_read import GPUS, NVML, is_divided, uuids_by_minor
from heeler.health.judging import Result
from heeler.health.model import Case, Context, Job, Outcome, Phase, Probe, ProbeError, Unread
from heeler.health.origin import Origin, next_seq
from heeler.health.outbox import Letter
from heeler.health.policy import Policy
from heeler.health.runner import Read, run_probes
from heeler.health.verdict import AROUND_JOBS, Run, has_evidence

EVENTS = {Phase.PROLOG: "started", Phase.EPILOG: "ended"}
MARK_S = 9.0  # for scontrol: read, set, read again
CLEAR_S = 15.0  # for looking at processes and ending them
CHECKS_S = 2.0  # that are left for checks at least


def read_minors(_context: Context, _asked: Sequence[Any]) -> dict[int, str]:
    """Return minor -> UUID by NVML; empty on a node with divided GPUs, whose devices Slurm numbers otherwise."""
    import pynvml as nvml  # noqa: PLC0415 - most commands need none

    try:
        nvml.nvmlInit()
        handles = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handles.append(nvml.nvmlDeviceGetHandleByIndex(index))
            except nvml.NVMLError_GpuIsLost:
                continue
        if any(_divided(nvml, handle) for handle in handles):
            return {}
        return {nvml.nvmlDeviceGetMinorNumber(handle): nvml.nvmlDeviceGetUUID(handle) for handle in handles}
    except nvml.NVMLError as err:
        raise ProbeError("failed", f"NVML: {err}") from err


def _divided(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False


MINORS = Probe("gpu_minors", read_minors, timeout_s=5.0, library=NVML)


def event_letter(origin: Origin, event: str, job: Job, ts_ns: int, seq: int) -> Letter:
    """Return the PrologEvent of a job that begins or ends."""
    message = {
        "v": 1,
        "cluster": origin.cluster,
        "node": origin.node,
        "ts": ts_ns,
        "boot": origin.boot,
        "seq": seq,
        "event": event,
        "job_id": job.id,
        "uuids": None if job.gpu_uuids is None else list(job.gpu_uuids),
        "indices": None if job.gpu_minors is None else list(job.gpu_minors),
    }
    known = {key: value for key, value in message.items() if value is not None}
    ident = f"PrologEvent.{origin.cluster}.{origin.node}.{origin.boot}.{job.id}.{event}.{seq}"
    return Letter(subjects.prolog_event(origin.cluster, origin.node), "PrologEvent", ident, known)


def known_uuids(job: Job, root: Path, cache: Path, boot: str) -> tuple[str, ...] | None:
    """Return the UUIDs of a job's GPUs as far as they can be told without NVML."""
    if job.gpu_uuids is not None or job.gpu_minors is None:
        return job.gpu_uuids
    return gpu_map.uuids_of(job.gpu_minors, gpu_map.by_driver(root), gpu_map.by_cache(cache, boot))


Put = Callable[[Sequence[Letter]], None]


@dataclass(slots=True)
class Around:
    """What a run does around its checks. `put` leaves letters for the bus and never raises."""

    policy: Policy
    origin: Origin
    context: Context
    deadline: float  # of the whole run, monotonic
    put: Put
    asks_nvml: bool = False

    @property
    def case(self) -> Case:
        """What the run is about, with the GPUs as far as they are known by now."""
        return self.context.case

    @property
    def probes_deadline(self) -> float:
        """Until when probes may read, so that the rest has its time."""
        rest = MARK_S if self.case.phase in (*AROUND_JOBS, Phase.PERIODIC) else 0.5
        return max(self.deadline - rest, time.monotonic() + CHECKS_S)

    def begin(self) -> None:
        """Tell that a job begins or ends here, before anything else."""
        job = self.case.job
        if job is None or self.case.phase not in EVENTS:
            return
        uuids = known_uuids(job, self.context.root, self._cache, self.origin.boot)
        self.asks_nvml = uuids is None and job.gpu_minors is not None
        self._tell(replace(job, gpu_uuids=uuids))

    def clear(self) -> Cleared:
        """End what the ended job left on its GPUs, where the policy says so."""
        if self.case.phase is not Phase.EPILOG or not self.policy.leftovers.enabled:
            return Cleared()
        until = min(self.deadline - CHECKS_S, time.monotonic() + CLEAR_S)
        read = run_probes({PROCESSES.name: (PROCESSES, [])}, self.context, until)[PROCESSES.name]
        facts = None if isinstance(read.facts, Unread) else read.facts
        return clear(facts, self.case.job, self.policy.leftovers, until, self.context.root)

    def probes(self, asked: Collection[str] = ()) -> dict[str, tuple[Probe, list[Any]]]:
        """Return what has to be read beside the checks, whose probes are asked for already."""
        return {MINORS.name: (MINORS, [])} if self.asks_nvml and GPUS.name not in asked else {}

    def learn(self, read: Mapping[str, Read]) -> None:
        """Take the UUIDs that NVML told meanwhile, keep them for the next run, and tell the event again."""
        job = self.case.job
        if not self.asks_nvml or job is None or job.gpu_minors is None:
            return
        found = _minors(read)
        if found:
            gpu_map.keep(self._cache, self.origin.boot, found)
        uuids = gpu_map.uuids_of(job.gpu_minors, found)
        if uuids is not None:
            self._tell(replace(job, gpu_uuids=uuids))

    def end(self, run: Run, breaker: Breaker) -> dict[str, Any]:
        """Leave a reason on the node where the run fails, and return what a HealthRun says of that."""
        culprit = run.culprit if run.verdict == "fail" else None
        for_job = self.case.phase in AROUND_JOBS
        if self.case.phase is Phase.PERIODIC:
            culprit, waits = self._drains(run)
            if culprit is None and waits:
                return {"why": f"{run.why}; {waits}"[:500]}
            if culprit is not None and breaker.state != "closed":
                # It counts all the same: the breaker's keeper has to know how many nodes would be gone.
                return {"enforcement": f"breaker_{breaker.state}"}
        elif not for_job:
            culprit = None
        if culprit is None:
            return {}
        from heeler.health import slurm_drain  # noqa: PLC0415 - a run that is well has no time for it

        where = self.policy.slurm
        slurm = slurm_drain.Scontrol(self.deadline, where.bin_dir, where.conf)
        reason = slurm_drain.reason_text(self.case.phase.value, culprit.check.name, culprit.verdict.why)
        marked = slurm_drain.mark(slurm, self.case.node, reason, for_job=for_job)
        if marked.reason is None:
            return {"why": f"{run.why}; no reason set: {marked.why}"[:500]}
        return {"reason": marked.reason}

    def _drains(self, run: Run) -> tuple[Result | None, str]:
        """Return the check for which this periodic run drains, or why it does not yet."""
        wanting = drains(run, self.policy)
        names, now_ns = [one.check.name for one in wanting], self.case.now_ns
        well = [one.result.check.name for one in run.results if one.result.verdict.outcome is not Outcome.UNKNOWN]
        well = [name for name in well if name not in names]
        since = held.remember(self.policy.cache / held.FILE, self.origin.boot, names, well, now_ns)
        waits = ""
        for one in wanting:
            bad_s, hold_s = (now_ns - since[one.check.name]) / held.NS, self.policy.rules[one.check.name].hold_s
            if bad_s >= hold_s:
                return one, ""
            waits = waits or f"{one.check.name} may heal: bad for {bad_s:.0f} s, a drain waits for {hold_s:g} s"
        return None, waits

    def _tell(self, job: Job) -> None:
        self.context = replace(self.context, case=replace(self.case, job=job))
        self.put([event_letter(self.origin, EVENTS[self.case.phase], job, self.case.now_ns, next_seq())])

    @property
    def _cache(self) -> Path:
        return self.policy.cache / "gpus.json"


def _minors(read: Mapping[str, Read]) -> dict[int, str]:
    """Return minor -> UUID as the checks' own reading of the GPUs has it, or the one beside them."""
    gpus, minors = read.get(GPUS.name), read.get(MINORS.name)
    if gpus is not None and isinstance(gpus.facts, dict):
        return {} if is_divided(gpus.facts) else uuids_by_minor(gpus.facts)
    return minors.facts if minors is not None and isinstance(minors.facts, dict) else {}


def drains(run: Run, policy: Policy) -> list[Result]:
    """Return the checks for which a periodic run may drain its node: those that the policy enforces there."""
    failing = [judged.result for judged in run.results if judged.fails]
    return [one for one in failing if has_evidence(one) and policy.enforces(one.check.name, Phase.PERIODIC)]
