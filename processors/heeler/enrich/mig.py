"""GPUs that are divided into MIG devices: what their parts say of the whole, and what Slurm's indices still say.

A MIG device is a row of its own and is held like a GPU: its processes and the prolog's UUIDs name it. Slurm's indices
don't: on such a node Slurm numbers the MIG devices too, so an index is a device minor only below the first GPU that is
divided.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Owner = tuple[str | None, str | None, tuple[str, ...]]
NOBODY: Owner = (None, None, ())
GONE = frozenset(("lost", "hung"))


@dataclass(frozen=True, slots=True)
class Device:
    """A MIG device of a GPU."""

    uuid: str
    gi: int | None = None
    ci: int | None = None

    def fits(self, gi: int | None, ci: int | None) -> bool:
        """Say whether a kernel line that names these instances may mean this device."""
        return (gi is None or self.gi in (None, gi)) and (ci is None or self.ci in (None, ci))


Divided = dict[str, tuple[Device, ...]]  # UUID of a GPU whose MIG mode is on -> its devices


def is_divided(sample: Mapping[str, Any]) -> bool:
    """Say whether any GPU of a sample is: for most nodes the answer is no, and must cost little."""
    parents, modes = sample["gpu"].get("parent"), sample["last"].get("mig_mode")
    return (parents is not None and any(parents)) or (modes is not None and any(modes))


def mark(sample: Mapping[str, Any]) -> int:
    """Return a number that changes with what `divided_of` would say, 0 where nothing is divided."""
    if not is_divided(sample):
        return 0
    gpu, modes = sample["gpu"], sample["last"].get("mig_mode") or ()
    return hash((tuple(gpu.get("parent") or ()), tuple(modes), tuple(sample.get("state") or ())))


def divided_of(sample: Mapping[str, Any], before: Divided) -> Divided:
    """Return the divided GPUs of a sample.

    A GPU that does not answer any more shows no parts: it keeps those that it had.
    """
    gpu = sample["gpu"]
    uuids: list[str] = gpu["uuid"]
    found: dict[str, list[Device]] = {}
    modes = sample["last"].get("mig_mode") or ()
    for uuid, mode in zip(uuids, modes, strict=False):
        if mode:
            found[uuid] = []
    gis, cis = _column(gpu, "gi"), _column(gpu, "ci")
    for row, parent in enumerate(gpu.get("parent") or ()):
        if parent:
            found.setdefault(parent, []).append(Device(uuids[row], gis[row], cis[row]))
    for uuid, state in zip(uuids, sample.get("state") or (), strict=False):
        if state in GONE and uuid in before and not found.get(uuid):
            found[uuid] = list(before[uuid])
    return {uuid: tuple(devices) for uuid, devices in found.items()}


def _column(gpu: Mapping[str, Any], name: str) -> Sequence[Any]:
    return gpu.get(name) or [None] * len(gpu["uuid"])


def of_inventory(gpus: Iterable[Mapping[str, Any]]) -> Divided:
    """Return the divided GPUs of an inventory."""
    return {
        gpu["uuid"]: tuple(Device(one["uuid"], one.get("gi"), one.get("ci")) for one in gpu.get("mig_devices", ()))
        for gpu in gpus
        if gpu.get("mig") or gpu.get("mig_devices")
    }


def sure_minors(uuids: Sequence[str], minors: Sequence[int | None], divided: Divided) -> list[int | None]:
    """Return the minors that Slurm's indices still mean, None for the others."""
    of = dict(zip(uuids, minors, strict=True))
    first = min((-1 if (minor := of.get(uuid)) is None else minor for uuid in divided), default=None)
    return [minor if minor is not None and (first is None or minor < first) else None for minor in minors]


def of_parts(parts: Sequence[Owner], processes: Iterable[str]) -> Owner:
    """Return who has a divided GPU: the job that has all of it, or several, or nobody that is known."""
    jobs = {job for job, _, _ in parts if job is not None} | set(processes)
    jobs.update(job for _, _, several in parts for job in several)
    if len(jobs) > 1:
        return None, "several", tuple(sorted(jobs))
    if parts and jobs and all(job in jobs for job, _, _ in parts):
        return parts[0]
    return NOBODY
