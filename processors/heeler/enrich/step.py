"""The step of enrich: samples and kernel events in, the same with their jobs out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import Suffix, extend, shard_of, subjects
from heeler.engine import NOTHING, Event, Inbound, Input, Result
from heeler.enrich import mig
from heeler.enrich.holders import INFO, Holders, Interval, holder

_COLUMN_GROUPS = ("mean", "min", "max", "last")


@dataclass(slots=True)
class Part:
    """The GPUs of one shard on a node, and what is written onto their samples."""

    subject: str
    rows: list[int]
    extra: dict[str, Any]
    suffix: Suffix


@dataclass(slots=True)
class NodeJobs:
    """What enrich knows of one node."""

    holders: Holders = field(default_factory=Holders)
    uuid_of_pci: dict[str, str] = field(default_factory=dict)
    minor_of_uuid: dict[str, int] = field(default_factory=dict)
    divided: mig.Divided = field(default_factory=dict)
    seen: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    parts_of: Any = None
    parts_since_ns: int = 0


class EnrichStep:
    """Adds jobs to what agents report. The state of a key is a `NodeJobs`."""

    name = "enrich"
    inputs = (
        Input("GpuSample"),
        Input("KernelEvent"),
        Input("PrologEvent", "last"),
        Input("JobEvent", "last"),
        Input("Inventory", "last"),
    )
    tick_s = None
    memory_s = 0.0

    def __init__(self) -> None:
        # Where a job was, to reach the nodes that its next event no longer names. Routing, not a decision.
        self._nodes_of: dict[str, tuple[str, ...]] = {}

    def keys(self, message: Inbound) -> Iterable[str]:
        """Return the node, or all nodes of a job."""
        if message.kind != "JobEvent":
            return (f"node:{message.data['node']}",)
        job, nodes = message.data["job_id"], tuple(message.data["nodes"])
        before = self._nodes_of.get(job, ())
        if message.data["event"] == "ended":
            self._nodes_of.pop(job, None)
        else:
            self._nodes_of[job] = nodes
        return [f"node:{node}" for node in dict.fromkeys((*nodes, *before))]

    def on(self, key: str, state: NodeJobs | None, message: Inbound, now_ns: int) -> Result:
        """Write jobs onto a sample or event, or learn who holds the node."""
        state = state or NodeJobs()
        if message.kind == "GpuSample":
            return state, on_sample(state, message)
        if message.kind == "KernelEvent":
            return state, (on_kernel_event(state, message),)
        if message.kind == "JobEvent":
            state.holders.job_event(key.partition(":")[2], message.data, now_ns)
        elif message.kind == "PrologEvent":
            state.holders.prolog(message.data, now_ns)
        else:
            learn_inventory(state, message.data["gpus"])
        return state, NOTHING

    def tick(self, key: str, state: NodeJobs, now_ns: int) -> Result:  # noqa: ARG002
        """Nothing happens by silence."""
        return state, NOTHING


def learn_inventory(state: NodeJobs, gpus: Sequence[Mapping[str, Any]]) -> None:
    """Remember which PCI address and minor belong to which UUID, and which MIG devices a GPU has."""
    for gpu in gpus:
        if "pci" in gpu:
            state.uuid_of_pci[gpu["pci"]] = gpu["uuid"]
        if gpu.get("minor") is not None:
            state.minor_of_uuid[gpu["uuid"]] = gpu["minor"]
    silent = {gpu["uuid"] for gpu in gpus if "mig" not in gpu}  # one that does not answer says nothing of its parts
    state.divided = {uuid: devices for uuid, devices in state.divided.items() if uuid in silent}
    state.divided |= mig.of_inventory(gpus)
    state.parts_of = None


def on_sample(state: NodeJobs, message: Inbound) -> list[Event]:
    """Return a JobSample for each shard that has GPUs in the sample.

    Almost always nothing has changed since the node's last sample: then the parts are taken from it, and with
    one part the payload is only extended, never packed again.
    """
    sample = message.data
    middle_ns = sample["ts"] - sample["window_ns"] // 2
    gpu = sample["gpu"]
    processes = tuple((row[0], row[2]) for row in sample.get("procs", ()) if len(row) > 2 and row[2] is not None)
    # A hash of the UUIDs, so that a fleet's worth of old ones need not be touched for each sample.
    cause = (state.holders.version, processes, hash(tuple(gpu["uuid"])), mig.mark(sample))
    if state.parts_of == cause and middle_ns >= state.parts_since_ns:
        parts = state.parts
    else:
        parts = divide(state, sample, middle_ns, processes)
        boundary_ns = state.holders.boundary_ns()
        if middle_ns >= boundary_ns:  # a late sample is no precedent
            state.parts, state.parts_of, state.parts_since_ns = parts, cause, boundary_ns
    if len(parts) == 1:
        return [Event("JobSample", parts[0].subject, extend(message.payload, parts[0].suffix))]
    return [Event("JobSample", part.subject, {**select(sample, part.rows), **part.extra}) for part in parts]


def divide(state: NodeJobs, sample: Mapping[str, Any], ts: int, processes: Iterable[tuple[int, str]]) -> list[Part]:
    """Return who holds each GPU at a time, by shard."""
    gpu, node, cluster = sample["gpu"], sample["node"], sample["cluster"]
    uuids = gpu["uuid"]
    minors = gpu.get("minor") or [state.minor_of_uuid.get(uuid) for uuid in uuids]
    for pci, uuid in zip(gpu.get("pci") or (), uuids, strict=False):
        if pci is not None:
            state.uuid_of_pci[pci] = uuid
    on_gpu: dict[int, list[str]] = {}
    for row, name in processes:
        on_gpu.setdefault(row, []).append(str(name))
    running = state.holders.at(ts)
    ended = frozenset(run.job for run in state.holders.runs) - frozenset(run.job for run in running)
    state.divided = mig.divided_of(sample, state.divided)
    if state.divided:
        minors = mig.sure_minors(uuids, minors, state.divided)
    found = [
        holder(uuid, minor, running, on_gpu.get(row, ()), ended)
        for row, (uuid, minor) in enumerate(zip(uuids, minors, strict=True))
    ]
    if state.divided:
        _join_parts(state, uuids, found, on_gpu, ended)
    kept = {one.uuid for devices in state.divided.values() for one in devices}
    state.seen = {uuid: seen for uuid, seen in state.seen.items() if uuid in kept}
    state.seen |= {uuid: (job, how) for uuid, (job, how, _) in zip(uuids, found, strict=True)}
    by_shard: dict[int, list[int]] = {}
    for row, owner in enumerate(found):
        job = owner[0]
        by_shard.setdefault(shard_of(job if job is not None else node), []).append(row)
    if not by_shard:  # a node whose GPUs are all gone still speaks
        by_shard[shard_of(node)] = []
    infos: dict[str | None, dict[str, str]] = {run.job: run.info for run in running}
    return [_part(cluster, node, shard, rows, found, infos) for shard, rows in sorted(by_shard.items())]


def _join_parts(
    state: NodeJobs,
    uuids: Sequence[str],
    found: list[mig.Owner],
    on_gpu: Mapping[int, Sequence[str]],
    ended: frozenset[str],
) -> None:
    """Say of each divided GPU what its MIG devices say; of one without any, what is said of a whole GPU."""
    owners = dict(zip(uuids, found, strict=True))
    for row, uuid in enumerate(uuids):
        devices = state.divided.get(uuid)
        if devices:
            parts = [owners.get(one.uuid) or _last_owner(state, one.uuid, ended) for one in devices]
            found[row] = mig.of_parts(parts, [job for job in on_gpu.get(row, ()) if job not in ended])


def _last_owner(state: NodeJobs, uuid: str, ended: frozenset[str]) -> mig.Owner:
    """Return who had a MIG device of a GPU that does not answer any more."""
    job, how = state.seen.get(uuid, (None, None))
    return (job, how, ()) if job not in ended else mig.NOBODY


def _part(
    cluster: str,
    node: str,
    shard: int,
    rows: list[int],
    found: list[tuple[str | None, str | None, tuple[str, ...]]],
    infos: Mapping[str | None, Mapping[str, str]],
) -> Part:
    jobs = {found[row][0] for row in rows} - {None}
    extra: dict[str, Any] = {
        "job": [found[row][0] for row in rows],
        "job_source": [found[row][1] for row in rows],
        "jobs": {str(job): {key: infos[job][key] for key in INFO if key in infos[job]} for job in jobs if job in infos},
        "shard": shard,
    }
    several = {str(at): list(found[row][2]) for at, row in enumerate(rows) if found[row][2]}
    if several:
        extra["several"] = several
    return Part(subjects.job_sample(cluster, str(shard), node), rows, extra, Suffix(extra))


def select(sample: Mapping[str, Any], rows: list[int]) -> dict[str, Any]:
    """Return a sample with some of its GPUs."""
    out = dict(sample)
    for name in _COLUMN_GROUPS:
        if name in sample:
            out[name] = {column: [values[row] for row in rows] for column, values in sample[name].items()}
    out["gpu"] = {
        key: [values[row] for row in rows] if isinstance(values, list) else values
        for key, values in sample["gpu"].items()
    }
    if "state" in sample:
        out["state"] = [sample["state"][row] for row in rows]
    place = {row: at for at, row in enumerate(rows)}
    for name in ("procs", "nvlinks"):  # their rows begin with a GPU's position
        if name in sample:
            out[name] = [[place[one[0]], *one[1:]] for one in sample[name] if one and one[0] in place]
    return out


def on_kernel_event(state: NodeJobs, message: Inbound) -> Event:
    """Return the event with its GPU's UUID, where it can be known, and the jobs that it concerns."""
    event = message.data
    uuid = event.get("uuid") or state.uuid_of_pci.get(event.get("pci", ""))
    running = state.holders.at(event["ts"])
    jobs, how = concerned(state, uuid, running, event.get("gi"), event.get("ci"))
    node, cluster = event["node"], event["cluster"]
    shard = shard_of(node)
    made = {**event, "uuid": uuid, "jobs": jobs, "jobs_source": how, "shard": shard}
    event_id = f"JobKernelEvent.{cluster}.{node}.{event['boot']}.{event['seq']}"
    return Event("JobKernelEvent", subjects.job_kernel_event(cluster, str(shard), node), made, event_id)


def concerned(
    state: NodeJobs, uuid: str | None, running: list[Interval], gi: int | None = None, ci: int | None = None
) -> tuple[list[str], str]:
    """Return the jobs that an event concerns: those of its GPU, or all of the node where no GPU is named.

    A line may name an instance of a divided GPU; where it doesn't, all of its MIG devices are concerned.
    """
    if uuid is None:
        return sorted({run.job for run in running}), "node"
    devices = state.divided.get(uuid, ())
    named = [one.uuid for one in devices if one.fits(gi, ci)] or [one.uuid for one in devices]
    owners = [_owner(state, one, running) for one in named or [uuid]]
    jobs = sorted({job for job, _, _ in owners if job is not None} | {job for _, _, more in owners for job in more})
    if len(jobs) != 1:
        return jobs, "several" if jobs else "none"
    return jobs, next((how for job, how, _ in owners if job is not None and how), "process")


def _owner(state: NodeJobs, uuid: str, running: list[Interval]) -> mig.Owner:
    """Return who has a GPU or MIG device at the time of an event."""
    found = holder(uuid, _sure_minor(state, uuid), running, (), frozenset())
    if found != mig.NOBODY:
        return found
    # The newest sample saw processes; after a GPU is lost no sample will again.
    job, how = state.seen.get(uuid, (None, None))
    if job is not None and running and job not in {run.job for run in running}:
        job = None
    return job, how, ()


def _sure_minor(state: NodeJobs, uuid: str) -> int | None:
    minors = state.minor_of_uuid
    if not state.divided or uuid not in minors:
        return minors.get(uuid)
    return dict(zip(minors, mig.sure_minors(list(minors), list(minors.values()), state.divided), strict=True))[uuid]
