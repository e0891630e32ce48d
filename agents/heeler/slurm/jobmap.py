"""What the bucket `job_map` says: by job and by node, who has which GPUs. Pure.

Slurm says which jobs hold which nodes, and their GPUs by index. UUIDs come from the prolog, which has seen them, or
else from the node's inventory, by device minor. Slurm numbers MIG devices too, so that on a node with a divided GPU an
index means a minor only below the first of these. What is not known has no key; that there is nothing is an empty list.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heeler.bus import escape
from heeler.enrich import mig

NS = 1_000_000_000
EARLY_NS = 60 * NS  # a prolog's clock may be behind the controller's
UUIDS_NODES = 64  # of larger jobs the UUIDs stand at their nodes only: those of 12,500 nodes would fit no value
# Of a JobEvent; when and why that was written is nobody's business here.
OF_JOB = (
    *("job_id", "array_job_id", "array_task_id", "het_job_id", "user", "account", "partition", "qos", "name", "state"),
    *("submit_ts", "start_ts", "restarts", "nodes", "gpus", "gpus_source", "gpus_per_node", "exclusive"),
)
AT_NODE = (*OF_JOB[:10], "start_ts", "restarts", "exclusive")
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """A node's GPUs: UUIDs by the minors that Slurm's indices mean, and of all that a job can have."""

    by_minor: Mapping[int, str]
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What a prolog said of its job on its node."""

    ts_ns: int
    uuids: tuple[str, ...] | None = None
    indices: tuple[int, ...] | None = None


def node_gpus(inventory: Message) -> NodeGpus:
    """Return the GPUs of an Inventory; of a divided one its MIG devices."""
    gpus = inventory["gpus"]
    divided = mig.of_inventory(gpus)
    uuids = [gpu["uuid"] for gpu in gpus]
    minors = mig.sure_minors(uuids, [gpu.get("minor") for gpu in gpus], divided)
    whole = [one.uuid for device in divided.values() for one in device]
    return NodeGpus(
        {minor: uuid for uuid, minor in zip(uuids, minors, strict=True) if minor is not None and uuid not in divided},
        tuple(sorted((*whole, *(uuid for uuid in uuids if uuid not in divided)))),
    )


def told_by(event: Message) -> Told:
    """Return what a PrologEvent says."""
    uuids, indices = event.get("uuids"), event.get("indices")
    return Told(
        event["ts"],
        None if uuids is None else tuple(uuids),
        None if indices is None else tuple(indices),
    )


def share(job: Message, node: str, gpus: NodeGpus | None, told: Told | None) -> dict[str, Any]:
    """Return a job's GPUs on a node: indices, UUIDs, and how each is known."""
    source = job.get("gpus_source", "unknown")
    indices = job.get("gpus", {}).get(node)
    early = told is not None and told.ts_ns < job.get("start_ts", 0) - EARLY_NS  # of an earlier run
    if told is not None and not early and told.uuids is not None:
        by_prolog = {"uuids": list(told.uuids), "uuids_source": "prolog"}
        known = indices if indices is not None else None if told.indices is None else list(told.indices)
        return by_prolog if known is None else {"indices": known, **by_prolog}
    if source == "none":
        return {"indices": [], "uuids": []}
    if source == "whole_node":
        return {} if gpus is None else _all_of(gpus)
    if indices is None:
        return {}
    if gpus is None or not all(index in gpus.by_minor for index in indices):
        return {"indices": indices}
    return {"indices": indices, "uuids": [gpus.by_minor[index] for index in indices], "uuids_source": "inventory"}


def _all_of(gpus: NodeGpus) -> dict[str, Any]:
    found = {"uuids": list(gpus.whole), "uuids_source": "inventory"}
    all_known = len(gpus.by_minor) == len(gpus.whole)  # and none is divided
    return {"indices": sorted(gpus.by_minor), **found} if all_known else found


def values_of(
    cluster: str,
    jobs: Iterable[Message],
    nodes: Iterable[str],
    gpus: Mapping[str, NodeGpus],
    told: Mapping[tuple[str, str], Told],
) -> dict[str, dict[str, Any]]:
    """Return all keys and values of the map, from the jobs that hold nodes now and the nodes that there are."""
    at_node: dict[str, list[dict[str, Any]]] = {node: [] for node in nodes}
    found: dict[str, dict[str, Any]] = {}
    for job in jobs:
        shares = {node: share(job, node, gpus.get(node), told.get((node, job["job_id"]))) for node in job["nodes"]}
        for node, one in shares.items():
            about = {key: job[key] for key in AT_NODE if key in job}
            at_node.setdefault(node, []).append({**about, "gpus_source": job.get("gpus_source", "unknown"), **one})
        found[job_key(cluster, job["job_id"])] = _job_value(cluster, job, shares)
    for node, entries in at_node.items():
        entries.sort(key=lambda entry: (len(entry["job_id"]), entry["job_id"]))
        found[node_key(cluster, node)] = {"v": 1, "cluster": cluster, "node": node, "jobs": entries}
    return found


def _job_value(cluster: str, job: Message, shares: Mapping[str, Message]) -> dict[str, Any]:
    value = {"v": 1, "cluster": cluster, **{key: job[key] for key in OF_JOB if key in job}}
    value.pop("gpus", None)  # of a job that completes it names nodes that are given back
    indices = {node: one["indices"] for node, one in shares.items() if one.get("indices")}
    if indices:
        value["gpus"] = indices
    uuids = {node: one["uuids"] for node, one in shares.items() if one.get("uuids")}
    if uuids and len(shares) <= UUIDS_NODES:
        value["uuids"] = uuids
    return value


def prefix(cluster: str) -> str:
    """Return what the keys of a cluster begin with: several clusters may share a bus."""
    return f"{escape(cluster)}."


def job_key(cluster: str, job: str) -> str:
    """Return the key of a job."""
    return f"{prefix(cluster)}job.{escape(job)}"


def node_key(cluster: str, node: str) -> str:
    """Return the key of a node."""
    return f"{prefix(cluster)}node.{escape(node)}"


def told_before(values: Iterable[Message]) -> dict[tuple[str, str], Told]:
    """Return what prologs said, from values that stand in the map: a feed that starts again has not heard them."""
    return {
        (value["node"], entry["job_id"]): Told(
            entry.get("start_ts", 0), tuple(entry["uuids"]), _tuple(entry.get("indices"))
        )
        for value in values
        for entry in value.get("jobs", ())
        if entry.get("uuids_source") == "prolog"
    }


def _tuple(value: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if value is None else tuple(value)
