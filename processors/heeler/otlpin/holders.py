"""Who holds a GPU or a node, by the bucket job_map and the agents' inventories: pure, but for what it remembers.

Never a guess: a GPU is a job's only where Slurm, a prolog or the inventory says so, several jobs of one GPU are
`several`, and what can't be told is unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SEVERAL: Final = "several"
What = Literal["held", "several", "free", "unknown_node", "unknown_gpu"]
ABOUT: Final[Mapping[str, str]] = {
    "job_id": "slurm.job.id",
    "user": "slurm.user",
    "account": "slurm.account",
    "partition": "slurm.partition",
    # These on demand only: each makes more series.
    "qos": "slurm.qos",
    "name": "slurm.job.name",
    "array_job_id": "slurm.job.array.id",
    "array_task_id": "slurm.job.array.task",
    "het_job_id": "slurm.job.het.id",
}
USUAL: Final = ("job_id", "user", "account", "partition")
Job = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as an exporter names it. ``gi``: the GPU instance of a MIG device, whose UUID is then its GPU's."""

    uuid: str | None = None
    index: int | None = None
    pci: str | None = None
    gi: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Who holds it, as attributes; none unless it is held."""

    what: What
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Who:
    """Who holds it, as jobs."""

    what: What
    jobs: Sequence[Job] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """A GPU of an inventory."""

    uuid: str
    index: int | None
    minor: int | None
    pci: str | None
    devices: tuple[tuple[int | None, str], ...]  # GPU instance and UUID of each MIG device


@dataclass(slots=True)
class Holders:
    """What is known of the nodes of a cluster. ``trust_index``: without an inventory, an index is a minor number."""

    ttl_ns: int
    trust_index: bool = False
    about: tuple[str, ...] = USUAL
    _nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _gpus: dict[str, tuple[_Known, ...]] = field(default_factory=dict)

    def put(self, node: str, value: Mapping[str, Any]) -> None:
        """Learn who has a node."""
        self._nodes[node] = value

    def drop(self, node: str) -> None:
        """Nothing is known of a node any more."""
        self._nodes.pop(node, None)

    def inventory(self, message: Mapping[str, Any]) -> None:
        """Learn a node's GPUs."""
        self._gpus[message["node"]] = tuple(
            _Known(
                gpu["uuid"],
                gpu.get("index"),
                gpu.get("minor"),
                _address(gpu.get("pci")),
                tuple((one.get("gi"), one["uuid"]) for one in gpu.get("mig_devices", ())),
            )
            for gpu in message.get("gpus", ())
        )

    def __len__(self) -> int:
        """Return of how many nodes it is known who has them."""
        return len(self._nodes)

    def name_of(self, node: str) -> str | None:
        """Return the name under which Slurm knows a node: the one that is given, else its first part."""
        if node in self._nodes:
            return node
        short = node.split(".", 1)[0]
        return short if short in self._nodes else None

    def of_node(self, node: str, now_ns: int) -> Found:
        """Say who has a node."""
        jobs = self._jobs(node, now_ns)
        if jobs is None:
            return Found("unknown_node")
        return self._told(_held(jobs) if jobs else _Who("free"))

    def of_gpu(self, node: str, gpu: Gpu, now_ns: int) -> Found:
        """Say who has a GPU of a node, or a MIG device."""
        jobs = self._jobs(node, now_ns)
        if jobs is None:
            return Found("unknown_node")
        if not jobs:
            return Found("free")
        if len(jobs) == 1 and jobs[0]["gpus_source"] == "whole_node":
            return self._told(_held(jobs))
        return self._told(self._shared(gpu, jobs, self._gpus.get(self.name_of(node) or node, ())))

    def _told(self, who: _Who) -> Found:
        """Return the attributes of a job, or those that several have in common."""
        found = []
        for key in self.about:
            values = {job.get(key) for job in who.jobs}
            alike = len(values) == 1 and (key != "job_id" or len(who.jobs) == 1)
            value = values.pop() if alike else SEVERAL if values else None
            if value not in (None, ""):
                found.append((ABOUT[key], str(value)))
        return Found(who.what, tuple(found))

    def _shared(self, gpu: Gpu, jobs: Sequence[Job], known: Sequence[_Known]) -> _Who:
        """Say who has a GPU of a node that jobs may share."""
        one = _named(gpu, known)
        if gpu.gi is not None:
            devices = [uuid for gi, uuid in one.devices if gi == gpu.gi] if one is not None else []
            return _by_uuid(devices[0], jobs, whole=True) if len(devices) == 1 else _Who("unknown_gpu")
        if one is not None and one.devices:
            return _divided([device for _, device in one.devices], jobs)
        uuid = gpu.uuid or (one.uuid if one is not None else None)
        whole = one is not None or (uuid or "").startswith("MIG-") or not _any_mig(jobs)
        found = _by_uuid(uuid, jobs, whole=whole) if uuid is not None else _Who("unknown_gpu")
        if found.what == "unknown_gpu" and not _any_mig(jobs) and not any(other.devices for other in known):
            return _by_minor(self._minor(gpu, one), jobs)
        return found

    def _jobs(self, node: str, now_ns: int) -> Sequence[Job] | None:
        value = self._nodes.get(self.name_of(node) or "")
        if value is None or now_ns - value["ts"] > self.ttl_ns:
            return None
        found: Sequence[Job] = value["jobs"]
        return found

    def _minor(self, gpu: Gpu, known: _Known | None) -> int | None:
        if known is not None:
            return known.minor
        return gpu.index if self.trust_index else None


def _named(gpu: Gpu, known: Iterable[_Known]) -> _Known | None:
    """Return the GPU of an inventory that is meant: by UUID, else by index, else by PCI address."""
    pci = _address(gpu.pci)
    for one in known:
        if gpu.uuid is not None:
            if one.uuid == gpu.uuid:
                return one
        elif gpu.index is not None:
            if one.index == gpu.index:
                return one
        elif pci is not None and one.pci == pci:
            return one
    return None


def _by_uuid(uuid: str, jobs: Sequence[Job], *, whole: bool) -> _Who:
    """Say who has a UUID. ``whole``: it is no GPU of which jobs may hold parts."""
    holders = [job for job in jobs if uuid in (job.get("uuids") or ())]
    untold = [job for job in jobs if not _told(job)]
    if holders:
        shared = any(job["gpus_source"] == "unknown" for job in holders)
        # Jobs with shards may share a GPU with one of which it is not known where its shards are.
        others = [job for job in untold if job["gpus_source"] == "unknown"]
        return _Who("unknown_gpu") if shared and others else _held(holders)
    return _Who("free") if whole and not untold else _Who("unknown_gpu")


def _by_minor(minor: int | None, jobs: Sequence[Job]) -> _Who:
    """Say who has a minor number, of the jobs whose UUIDs are not known."""
    if minor is None:
        return _Who("unknown_gpu")
    untold = [job for job in jobs if job.get("uuids") is None and job["gpus_source"] != "none"]
    holders = [job for job in untold if minor in (job.get("indices") or ())]
    if holders:
        return _held(holders)
    return _Who("free") if all(job.get("indices") is not None for job in jobs) else _Who("unknown_gpu")


def _divided(devices: Sequence[str], jobs: Sequence[Job]) -> _Who:
    """Say who has a divided GPU: the job that has all its MIG devices; nobody while one of them is free."""
    found = [_by_uuid(device, jobs, whole=True) for device in devices]
    for what in ("unknown_gpu", "free"):
        if any(one.what == what for one in found):
            return next(one for one in found if one.what == what)
    held = [job for job in jobs if set(devices) & set(job.get("uuids") or ())]
    return _held(held)


def _told(job: Job) -> bool:
    return job.get("uuids") is not None or job["gpus_source"] == "none"


def _any_mig(jobs: Sequence[Job]) -> bool:
    return any(uuid.startswith("MIG-") for job in jobs for uuid in job.get("uuids") or ())


def _held(jobs: Sequence[Job]) -> _Who:
    return _Who("held" if len(jobs) == 1 else "several", jobs)


def _address(pci: str | None) -> str | None:
    """Return a PCI address in one spelling: 00000000:3B:00.0 and 0000:3b:00 are one."""
    if not pci:
        return None
    domain, _, rest = pci.lower().partition(":")
    return f"{domain[-4:].zfill(4)}:{rest.split('.')[0]}"
