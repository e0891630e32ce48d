"""Which GPU stands behind a device minor, without asking NVML: a prolog says so at once, before anything can hang."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from heeler.health.model import Job

CACHE = Path("/run/heeler/gpus.json")
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{36}", re.ASCII)


def by_driver(root: Path = Path("/")) -> dict[int, str]:
    """Return minor -> UUID as the driver tells in /proc. A GPU that nobody has opened yet shows question marks."""
    found: dict[int, str] = {}
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError):
            text = path.read_text(errors="replace")
            uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.MULTILINE)
            minor = re.search(r"^Device Minor:\s*(\d{1,5})\s*$", text, re.MULTILINE | re.ASCII)
            if uuid and minor and _UUID.fullmatch(uuid[1]):
                found[int(minor[1])] = uuid[1]
    return found


def by_cache(path: Path, boot: str) -> dict[int, str]:
    """Return minor -> UUID as an earlier run of this boot has read it from NVML; empty where there is none."""
    try:
        value = json.loads(path.read_bytes())
        if value["boot"] != boot:
            return {}
        return {int(minor): uuid for minor, uuid in value["gpus"].items() if isinstance(uuid, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def keep(path: Path, boot: str, gpus: Mapping[int, str]) -> None:
    """Keep what NVML said for the next run. That it can't be kept is no fault of the run."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps({"boot": boot, "gpus": {str(minor): uuid for minor, uuid in gpus.items()}}))
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()


def job_gpus(job: Job, by_minor: Mapping[int, str], *, divided: bool) -> list[str] | None:
    """Return the UUIDs of a job's GPUs: as named, else those of its minors that are known; None where none can be told.

    `divided`: a GPU of the node is. Slurm numbers MIG devices too, so that a number may then mean either.
    """
    if job.gpu_uuids is not None:
        return list(job.gpu_uuids)
    if job.gpu_minors is None or divided:
        return None
    return [by_minor[minor] for minor in job.gpu_minors if minor in by_minor]


def uuids_of(minors: Iterable[int], *maps: Mapping[int, str]) -> tuple[str, ...] | None:
    """Return the UUIDs of minors by the first map that has them all; None where none has."""
    wanted = tuple(minors)
    for known in maps:
        if wanted and all(minor in known for minor in wanted):
            return tuple(known[minor] for minor in wanted)
    return None
