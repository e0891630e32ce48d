"""What a run says on the bus: a HealthResult for each check and one HealthRun, as letters for the outbox."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from heeler.bus import subjects
from heeler.health.model import Case, Evidence, Job, Phase
from heeler.health.origin import Origin, next_seq
from heeler.health.outbox import Letter
from heeler.health.verdict import Judged, Run

MAX_TEXT = 500
MAX_EVIDENCE = 64


@dataclass(frozen=True, slots=True)
class About:
    """What all messages of a run have in common. `seq` of the first one; `run` is the id."""

    cluster: str
    node: str
    ts_ns: int
    boot: str
    seq: int
    run: str
    phase: Phase
    job: Job | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)  # slurm_state, slurm_reason, slurm_state_age_s


def about(origin: Origin, case: Case, run: str, slurm: Mapping[str, Any]) -> About:
    """Return what the messages of a run of a case have in common."""
    return About(origin.cluster, origin.node, case.now_ns, origin.boot, next_seq(), run, case.phase, case.job, slurm)


def result_fields(judged: Judged) -> dict[str, Any]:
    """Return what a message says of one check."""
    result, verdict = judged.result, judged.result.verdict
    return _known(
        {
            "check": result.check.name,
            "outcome": verdict.outcome.value,
            "why": verdict.why[:MAX_TEXT],
            "duration_ns": result.duration_ns,
            "evidence": [_evidence(one) for one in verdict.evidence[:MAX_EVIDENCE]],
            "gpus": list(verdict.gpus),
            "perf": {name: float(value) for name, value in verdict.perf.items()},
            "fails": judged.fails,
            "timed_out": result.timed_out or None,
            "hung": result.hung or None,
        }
    )


def run_fields(run: Run) -> dict[str, Any]:
    """Return what a HealthRun says of a run."""
    return _known(
        {
            "verdict": run.verdict,
            "why": run.why[:MAX_TEXT],
            "enforcement": run.enforcement,
            "counts": run.counts,
            "failed": list(run.failed),
        }
    )


def letters(about: About, run: Run, more: Mapping[str, Any]) -> list[Letter]:
    """Return the messages of a run, the HealthRun last. `more` are keys of the HealthRun."""
    head = _head(about)
    found = [
        Letter(
            subjects.health_result(about.cluster, about.node),
            "HealthResult",
            _id(about, "HealthResult", about.seq + at),
            {**head, "seq": about.seq + at, **result_fields(judged), **about.slurm},
        )
        for at, judged in enumerate(run.results)
    ]
    seq = about.seq + len(found)
    message = _known({**head, "seq": seq, **run_fields(run), **more})
    subject = subjects.health_run(about.cluster, about.node)
    return [*found, Letter(subject, "HealthRun", _id(about, "HealthRun", seq), message)]


def _head(about: About) -> dict[str, Any]:
    job = about.job
    return _known(
        {
            "v": 1,
            "cluster": about.cluster,
            "node": about.node,
            "ts": about.ts_ns,
            "boot": about.boot,
            "run": about.run,
            "phase": about.phase.value,
            "job_id": job and job.id,
            "user": job and job.user,
            "partition": job and job.partition,
        }
    )


def _id(about: About, kind: str, seq: int) -> str:
    return f"{kind}.{about.cluster}.{about.node}.{about.boot}.{about.run}.{seq}"


def _evidence(one: Evidence) -> dict[str, Any]:
    found = _known(asdict(one))
    if "text" in found:
        found["text"] = found["text"][:MAX_TEXT]
    return found


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
