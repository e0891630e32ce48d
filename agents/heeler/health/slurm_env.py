"""The job that a prolog or epilog is about, from the environment that Slurm gives it."""

import re
from collections.abc import Mapping

from heeler.health.model import Job

_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{8,120}", re.ASCII)
_ID = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
MOST_GPUS = 1024


def job_of(env: Mapping[str, str], named: str | None = None) -> Job | None:
    """Return the job, None where nobody names one. Whatever else can't be read is not known.

    `named`: its id where somebody says it; the environment's otherwise.
    """
    job_id = named or env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or ""
    if not _ID.fullmatch(job_id):
        return None
    return Job(
        id=job_id,
        user=env.get("SLURM_JOB_USER") or None,
        uid=_number(env.get("SLURM_JOB_UID") or env.get("SLURM_UID")),
        account=env.get("SLURM_JOB_ACCOUNT") or None,
        partition=env.get("SLURM_JOB_PARTITION") or None,
        gpu_minors=indices(env.get("SLURM_JOB_GPUS")),
        gpu_uuids=uuids(env.get("CUDA_VISIBLE_DEVICES")),
        array_job_id=env.get("SLURM_ARRAY_JOB_ID") or None,
        array_task_id=env.get("SLURM_ARRAY_TASK_ID") or None,
    )


def node_of(env: Mapping[str, str], host_name: str) -> str:
    """Return this node's name as Slurm has it: slurmd says it, else it is the short host name."""
    return env.get("SLURMD_NODENAME") or host_name.partition(".")[0]


def indices(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of `0,2-4`; None where nothing is said or it can't be read as a whole."""
    if not text or not text.strip():
        return None
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return None
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first or last - first >= MOST_GPUS:
            return None
        found += range(first, last + 1)
    return tuple(sorted(set(found)))


def uuids(text: str | None) -> tuple[str, ...] | None:
    """Return UUIDs, where they are what is said. Numbers there count the job's own devices, and name none of ours."""
    parts = [part.strip() for part in (text or "").split(",")]
    return tuple(dict.fromkeys(parts)) if all(_UUID.fullmatch(part) for part in parts) else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 11 else None
