"""Jobs: from `squeue --json` (v0.0.38 to v0.0.42) to values and JobEvents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heeler.slurm.collect import Table
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import Gres, gpu_count, gpu_indices
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jobid import MAX_ID
from heeler.slurm.jobvalues import gres_of, state_of, tres_of
from heeler.slurm.jsonnumbers import epoch_ns, identifier, integer
from heeler.slurm.rows import Row, Unreadable, free_text, is_row, optional
from heeler.slurm.state import JobFlags

GpusSource = Literal["slurm_index", "whole_node", "none", "unknown"]
SHARED_KINDS = ("shard", "mps")  # a part of a GPU, so which GPU can't be told from a count
REQUESTS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")


@dataclass(frozen=True, slots=True)
class Gpus:
    """A job's GPUs: device minors on each node where they are known, and how they are known."""

    source: GpusSource = "unknown"
    by_node: Mapping[str, tuple[int, ...]] | None = None
    per_node: int | None = None


NO_GPUS = Gpus("none")


@dataclass(slots=True)  # not frozen: there are a hundred thousand, and that would double the time to make one
class Job:
    """What Slurm says of one job. Nodes and GPUs are read only where the job has or had them."""

    id: str
    state: JobFlags
    submit_ts_ns: int | None = None
    start_ts_ns: int | None = None
    end_ts_ns: int | None = None
    restarts: int | None = None
    nodes: tuple[str, ...] = ()
    gpus: Gpus = Gpus()
    array_job_id: str | None = None
    array_task_id: str | None = None
    het_job_id: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    exclusive: bool | None = None
    requeueable: bool | None = None
    batch: bool | None = None


@dataclass(frozen=True, slots=True)
class JobsAnswer:
    """A complete answer: every job that Slurm listed is in one of the two."""

    jobs: tuple[Job, ...]
    unreadable: tuple[Unreadable, ...] = ()
    version: str | None = None
    table: Table | None = None  # all columns of all jobs, where they were asked for
    source: str | None = None


def parse_job_json(row: Any) -> Job:
    """Return one job of a JSON answer. Raises ParseError."""
    job_id = id_of(row)
    if job_id is None:
        raise ParseError("a job without an id", row)
    state = state_of(row.get("job_state"))
    if not (state.holds or state.ended):
        # Nine of ten jobs may be waiting: what they ask for is nobody's business here.
        return Job(job_id, state, restarts=integer(row.get("restart_cnt")))
    array = identifier(row.get("array_job_id"))
    task = integer(row.get("array_task_id"))
    het = identifier(row.get("het_job_id"))
    nodes = expand_set(_nodes_text(row))
    return Job(
        id=job_id,
        state=state,
        submit_ts_ns=epoch_ns(row.get("submit_time")),
        start_ts_ns=epoch_ns(row.get("start_time")),
        end_ts_ns=epoch_ns(row.get("end_time")) if state.ended else None,
        restarts=integer(row.get("restart_cnt")),
        nodes=nodes,
        gpus=gpus_of(row, nodes),
        array_job_id=None if array is None else str(array),
        array_task_id=None if array is None or task is None else str(task),
        het_job_id=None if het is None else str(het),
        user=optional(row, "user_name"),
        account=optional(row, "account"),
        partition=optional(row, "partition"),
        qos=optional(row, "qos"),
        name=free_text(row, "name"),
        exclusive=is_exclusive(row),
        requeueable=flag(row, "requeue"),
        batch=flag(row, "batch_flag"),
    )


def whole_nodes(job: Job, node_gpus: Mapping[str, int]) -> Gpus:
    """Return a job's GPUs, taking in what its nodes have: all GPUs of each node make it whole nodes."""
    gpus = job.gpus
    if gpus.source != "unknown" or not gpus.per_node or not job.nodes:
        return gpus
    if all(node_gpus.get(node) == gpus.per_node for node in job.nodes):
        return Gpus("whole_node", None, gpus.per_node)
    return gpus


def job_message(
    job: Job, *, cluster: str, event: str, ts_ns: int, node_gpus: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the JobEvent of a job, without keys that are not known."""
    gpus = whole_nodes(job, node_gpus or {})
    message: dict[str, Any] = {
        "v": 1,
        "cluster": cluster,
        "ts": ts_ns,
        "event": event,
        "job_id": job.id,
        "array_job_id": job.array_job_id,
        "array_task_id": job.array_task_id,
        "het_job_id": job.het_job_id,
        "user": job.user,
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
        "name": job.name,
        "state": job.state.name,
        "submit_ts": job.submit_ts_ns,
        "start_ts": job.start_ts_ns,
        "end_ts": job.end_ts_ns,
        "restarts": job.restarts,
        "nodes": list(job.nodes),
        "gpus": {node: list(found) for node, found in gpus.by_node.items()} if gpus.by_node else None,
        "gpus_source": gpus.source,
        "gpus_per_node": gpus.per_node,
        "exclusive": job.exclusive,
        "requeueable": job.requeueable,
        "batch": job.batch,
    }
    return {key: value for key, value in message.items() if value is not None}


def id_of(row: Any) -> str | None:
    """Return a row's job id, or None where it has none that can be."""
    value = row.get("job_id") if is_row(row) else None
    try:
        found = identifier(value)
    except ParseError:
        return None
    return str(found) if found is not None and found <= MAX_ID else None


def _nodes_text(row: Row) -> str | None:
    value = row.get("nodes")
    if value is not None and not isinstance(value, str):
        raise ParseError("nodes is not text", value)
    return value


def flag(row: Row, key: str) -> bool | None:
    """Return a yes or no, also as a number. Raises ParseError."""
    value = row.get(key)
    if isinstance(value, bool):
        return value
    found = integer(value)
    return None if found is None else bool(found)


def is_exclusive(row: Row) -> bool | None:
    """Whether a job has its nodes alone; None where it is not told."""
    value = row.get("shared")
    resources = row.get("job_resources")
    nodes = resources.get("nodes") if isinstance(resources, dict) else None
    if isinstance(nodes, dict) and nodes.get("whole") is True:
        return True
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        return "none" in value
    return None


def gpus_of(row: Row, nodes: tuple[str, ...]) -> Gpus:
    """Return a job's GPUs. What can't be read makes them unknown, not the job unreadable."""
    try:
        found = _by_detail(row, nodes)
        return _by_count(row, nodes) if found is None else found
    except ParseError:
        return Gpus()


def _by_detail(row: Row, nodes: tuple[str, ...]) -> Gpus | None:
    """Read ``gres_detail``: one GRES string for each node, in the order of the job's own nodes."""
    detail = row.get("gres_detail")
    if not isinstance(detail, list) or not detail or len(detail) != len(nodes):
        return None
    parsed: list[tuple[Gres, ...]] = []
    for text in detail:
        if not isinstance(text, str):
            raise ParseError("gres_detail is not text", text)
        parsed.append(gres_of(text))
    counts = [gpu_count(resources) for resources in parsed]
    if not any(counts):
        shared = any(gres.name in SHARED_KINDS and gres.count for resources in parsed for gres in resources)
        return Gpus() if shared else NO_GPUS
    by_node = {
        node: indices
        for node, resources in zip(node_order(row, nodes), parsed, strict=True)
        if (indices := gpu_indices(resources)) is not None
    }
    per_node = counts[0] if len(set(counts)) == 1 else None
    return Gpus("slurm_index" if by_node else "unknown", by_node or None, per_node)


def node_order(row: Row, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the job's nodes in the order of its allocation, which may differ from the list's."""
    resources = row.get("job_resources")
    if not isinstance(resources, dict):
        return nodes
    inner = resources.get("nodes")
    rows = inner.get("allocation") if isinstance(inner, dict) else resources.get("allocated_nodes")
    names = tuple(_allocated(rows)) if isinstance(rows, list) else ()
    return names if len(names) == len(nodes) and set(names) == set(nodes) else nodes


def _allocated(rows: Iterable[Any]) -> Iterable[str]:
    for row in rows:
        name = (row.get("name") or row.get("nodename")) if isinstance(row, dict) else None
        if isinstance(name, str):
            yield name


def _by_count(row: Row, nodes: tuple[str, ...]) -> Gpus:
    """Read the allocated TRES: only how many GPUs."""
    text = optional(row, "tres_alloc_str")
    tres = tres_of(text)
    if tres.gpus:
        even = bool(nodes) and tres.gpus % len(nodes) == 0
        return Gpus("unknown", None, tres.gpus // len(nodes) if even else None)
    # Sites that don't account for GPUs have none in TRES: then only the request tells.
    asks = any("gpu" in (optional(row, key) or "") or "shard" in (optional(row, key) or "") for key in REQUESTS)
    return Gpus() if asks or text is None else NO_GPUS
