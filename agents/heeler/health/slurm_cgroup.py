"""The Slurm job of a process, by its cgroup: what a process can't choose. Its environment is never asked.

    4:memory:/slurm/uid_1000/job_123/step_0/task_0                       version 1; slurm_NODE with several slurmd
    0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0         version 2; NODE_slurmstepd.scope likewise
    0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0  by SLUID, since 26.05

What stands above Slurm's own group does not matter, and the first job below it counts. A user's own systemd can make
groups of any name below user@UID.service, so nothing there is believed. The node agent reads the same (Go's hostfs).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_JOB = re.compile(r"job_([1-9][0-9]{0,9})")
_SLUID = re.compile(r"s[0-9A-HJKMNP-TV-Z]{13}")
_TITLE = re.compile(r"slurmstepd: \[([1-9][0-9]{0,9})[.\]]")
_DELETED = " (deleted)"
MOST_JOBS = 1 << 32


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands in Slurm's cgroups: its job's number, or its SLUID where that names the group."""

    job: str | None
    sluid: str | None
    folder: str  # the job's group, from the root of the hierarchy
    daemon: bool  # a slurmstepd: it alone lives in the step's own group `slurm`


class AmbiguousError(ValueError):
    """Hierarchies that name different jobs."""


def place_of(text: str) -> Place | None:
    """Return the place that the text of /proc/PID/cgroup tells, or None for no job.

    Raises AmbiguousError where hierarchies differ: whose process it is can't be told then.
    """
    places = [place for line in text.splitlines() if (place := _of_line(line))]
    if len({(place.job, place.sluid) for place in places}) > 1:
        raise AmbiguousError(f"in the groups of different jobs: {sorted({place.folder for place in places})}")
    return places[0] if places else None


def job_of_title(title: str) -> str | None:
    """Return the job in the name that a slurmstepd gives itself: `slurmstepd: [123.batch]`, or `[123]` of old."""
    match = _TITLE.match(title)
    return match[1] if match and int(match[1]) < MOST_JOBS else None


def _of_line(line: str) -> Place | None:
    _, _, rest = line.partition(":")
    _, colon, path = rest.partition(":")
    return _of_path(path) if colon else None


def _of_path(path: str) -> Place | None:
    parts = path.split("/")
    depth = 0
    for at, part in enumerate(parts):
        if part == "user.slice" or (part.startswith("user@") and part.endswith(".service")):
            return None
        following = parts[at + 1] if at + 1 < len(parts) else ""
        # CgroupPrepend can give version 1 another name at the top, but always followed by the user's group.
        top = depth == 0 and part and following.startswith("uid_")
        if (_is_slurms(part) or top) and (found := _job_at(parts, at + 1)):
            return found
        depth += bool(part)
    return None


def _is_slurms(part: str) -> bool:
    return part in ("slurm", "slurmstepd.scope") or part.startswith("slurm_") or part.endswith("_slurmstepd.scope")


def _job_at(parts: list[str], at: int) -> Place | None:
    if at < len(parts) and parts[at].startswith("uid_"):
        at += 1
    if at >= len(parts):
        return None
    name = parts[at].removesuffix(_DELETED)
    job = _JOB.fullmatch(name)
    number = job[1] if job and int(job[1]) < MOST_JOBS else None
    sluid = name if _SLUID.fullmatch(name) else None
    if number is None and sluid is None:
        return None
    below = [part.removesuffix(_DELETED) for part in parts[at + 1 :]]
    daemon = len(below) == 2 and below[0].startswith("step_") and below[1] == "slurm"
    return Place(number, sluid, "/".join(parts[: at + 1]), daemon)


class Jobs:
    """Finds the jobs of processes. Nothing of a process is remembered, since its number may be used again."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc, self._groups = root / "proc", root / "sys/fs/cgroup"

    def of(self, pid: int) -> str | None:
        """Return the job of a process, None for none. Raises OSError (gone), AmbiguousError."""
        place = place_of((self._proc / str(pid) / "cgroup").read_text(errors="replace"))
        if place is None:
            return None
        if place.job is not None:
            return place.job
        found = self._of_sluid(place)
        if found is None:
            raise AmbiguousError(f"in the group {place.folder}, and no slurmstepd says which job that is")
        return found

    def is_daemon(self, pid: int) -> bool:
        """Say whether a process is a step's slurmstepd. Raises OSError, AmbiguousError."""
        place = place_of((self._proc / str(pid) / "cgroup").read_text(errors="replace"))
        return place is not None and place.daemon

    def running(self) -> set[str]:
        """Return the jobs that have a slurmstepd here: they have not ended."""
        found: set[str] = set()
        for pid in self._all_stepds():
            try:
                title = (self._proc / pid / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if job := job_of_title(title):
                found.add(job)
        return found

    def _of_sluid(self, place: Place) -> str | None:
        """Ask the job's slurmstepd: its title says the number, and no user's process can enter its group."""
        for pid in self._stepds(place):
            try:
                found = place_of((self._proc / pid / "cgroup").read_text(errors="replace"))
                title = (self._proc / pid / "cmdline").read_bytes().decode(errors="replace")
            except (OSError, AmbiguousError):
                continue
            job = job_of_title(title)
            if job and found and found.daemon and found.sluid == place.sluid:
                return job
        return None

    def _stepds(self, place: Place) -> Iterator[str]:
        """Yield the slurmstepds where the job's group is, then (it may not be visible from here) all of the node."""
        for path in sorted((self._groups / place.folder.lstrip("/")).glob("step_*/slurm/cgroup.procs")):
            try:
                yield from path.read_text().split()
            except OSError:
                continue
        yield from self._all_stepds()

    def _all_stepds(self) -> Iterator[str]:
        for path in self._proc.glob("[1-9]*/comm"):
            try:
                if path.read_text().strip() == "slurmstepd":
                    yield path.parent.name
            except OSError:
                continue
