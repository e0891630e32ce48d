"""Jobs: from `squeue --json` (v0.0.38 to v0.0.42) to values and JobEvents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

from heeler.slurm.collect import Table
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import SHARED_KINDS, gpu_count, gpu_indices
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jobid import MAX_ID
from heeler.slurm.jobrow import Hosts, Resources
from heeler.slurm.jobvalues import gres_of, state_of, tres_of
from heeler.slurm.jsonnumbers import epoch_ns, identifier, integer
from heeler.slurm.rows import Row, Unreadable, free_text, is_row, optional
from heeler.slurm.state import JobFlags

GpusSource = Literal["slurm_index", "whole_node", "none", "unknown"]
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
    failed_node: str | None = None  # that ended the run before


@dataclass(slots=True)
class Waiting:
    """A job that has no nodes yet: of all that it asks for, what JobEvents need. Nine of ten jobs may be such."""

    id: str
    state: JobFlags
    restarts: int | None = None
    failed_node: str | None = None
    submit_ts_ns: ClassVar[int | None] = None
    start_ts_ns: ClassVar[int | None] = None
    end_ts_ns: ClassVar[int | None] = None
    nodes: ClassVar[tuple[str, ...]] = ()
    gpus: ClassVar[Gpus] = Gpus()
    array_job_id: ClassVar[str | None] = None
    array_task_id: ClassVar[str | None] = None
    het_job_id: ClassVar[str | None] = None
    user: ClassVar[str | None] = None
    account: ClassVar[str | None] = None
    partition: ClassVar[str | None] = None
    qos: ClassVar[str | None] = None
    name: ClassVar[str | None] = None
    exclusive: ClassVar[bool | None] = None
    requeueable: ClassVar[bool | None] = None
    batch: ClassVar[bool | None] = None


AnyJob = Job | Waiting


@dataclass(frozen=True, slots=True)
class JobsAnswer:
    """A complete answer: every job that Slurm listed is in one of the two."""

    jobs: tuple[AnyJob, ...]
    unreadable: tuple[Unreadable, ...] = ()
    version: str | None = None
    table: Table | None = None  # all columns of all jobs, where they were asked for
    source: str | None = None


def parse_job_json(row: Any) -> AnyJob:
    """Return one job of a JSON answer. Raises ParseError."""
    job_id = id_of(row)
    if job_id is None:
        raise ParseError("a job without an id", row)
    state = state_of(row.get("job_state"))
    if not (state.holds or state.ended):
        return Waiting(job_id, state, integer(row.get("restart_cnt")), optional(row, "failed_node"))
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
        failed_node=optional(row, "failed_node"),
    )


def whole_nodes(job: AnyJob, node_gpus: Mapping[str, int], *, exclusive_owns: bool = False) -> Gpus:
    """Return a job's GPUs, taking in what its nodes have: all GPUs of each node make it whole nodes.

    `exclusive_owns`: the site wants a job that has its nodes alone, and asked for no GPU, to own theirs.
    """
    gpus = job.gpus
    if exclusive_owns and gpus.source == "none" and job.exclusive and job.nodes:
        counts = {node_gpus.get(node) for node in job.nodes}
        known = None not in counts and counts != {0}
        return Gpus("whole_node", None, counts.pop() if len(counts) == 1 else None) if known else gpus
    if gpus.source != "unknown" or not gpus.per_node or not job.nodes:
        return gpus
    if all(node_gpus.get(node) == gpus.per_node for node in job.nodes):
        return Gpus("whole_node", None, gpus.per_node)
    return gpus


def job_message(
    job: AnyJob,
    *,
    cluster: str,
    event: str,
    ts_ns: int,
    node_gpus: Mapping[str, int] | None = None,
    exclusive_owns: bool = False,
) -> dict[str, Any]:
    """Return the JobEvent of a job, without keys that are not known."""
    gpus = whole_nodes(job, node_gpus or {}, exclusive_owns=exclusive_owns)
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
        "failed_node": job.failed_node,
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
    return flag_of(row.get(key))


def flag_of(value: Any) -> bool | None:
    """Return a yes or no, also as a number. Raises ParseError."""
    if isinstance(value, bool):
        return value
    found = integer(value)
    return None if found is None else bool(found)


def is_exclusive(row: Row) -> bool | None:
    """Whether a job has its nodes alone; None where it is not told."""
    return exclusive_of(row.get("shared"), whole=is_whole(row.get("job_resources")))


def is_whole(resources: Any) -> bool:
    """Whether a job's resources say that it has its nodes as a whole."""
    if type(resources) is Resources:
        return type(resources.nodes) is Hosts and resources.nodes.whole is True
    nodes = resources.get("nodes") if isinstance(resources, dict) else None
    return isinstance(nodes, dict) and nodes.get("whole") is True


def exclusive_of(shared: Any, *, whole: bool) -> bool | None:
    """Whether a job has its nodes alone, by what it says of sharing; None where that is not told."""
    if whole:
        return True
    if isinstance(shared, str):
        return shared == "none"
    return "none" in shared if isinstance(shared, list) else None


def gpus_of(row: Row, nodes: tuple[str, ...]) -> Gpus:
    """Return a job's GPUs. What can't be read makes them unknown, not the job unreadable."""
    try:
        found = _by_detail(row, nodes)
        return _by_count(row, nodes) if found is None else found
    except ParseError:
        return Gpus()


def detail_of(row: Row, nodes: tuple[str, ...]) -> list[str] | None:
    """Return ``gres_detail``: one GRES string for each node, in the order of the job's own nodes. None: not told so."""
    detail = row.get("gres_detail")
    return detail if isinstance(detail, list) and detail and len(detail) == len(nodes) else None


class _Detail(NamedTuple):
    """What one node's GRES string says of GPUs."""

    gpus: int
    indices: tuple[int, ...] | None
    shared: bool


@lru_cache(1 << 12)
def _detail(text: str) -> _Detail:
    resources = gres_of(text)
    shared = any(gres.name in SHARED_KINDS and gres.count for gres in resources)
    return _Detail(gpu_count(resources), gpu_indices(resources), shared)


def _by_detail(row: Row, nodes: tuple[str, ...]) -> Gpus | None:
    detail = detail_of(row, nodes)
    if detail is None:
        return None
    for text in detail:
        if not isinstance(text, str):
            raise ParseError("gres_detail is not text", text)
    told = list(map(_detail, detail))
    counts = {one.gpus for one in told}
    if counts == {0}:
        return Gpus() if any(one.shared for one in told) else NO_GPUS
    by_node = {
        node: one.indices for node, one in zip(node_order(row, nodes), told, strict=True) if one.indices is not None
    }
    return Gpus("slurm_index" if by_node else "unknown", by_node or None, counts.pop() if len(counts) == 1 else None)


def node_order(row: Row, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the job's nodes in the order of its allocation, which may differ from the list's."""
    names = tuple(_allocated(row.get("job_resources")))
    return names if len(names) == len(nodes) and names != nodes and set(names) == set(nodes) else nodes


def _allocated(resources: Any) -> Iterable[str]:
    """Return the nodes of a job's resources, as far as they have names."""
    rows: Any
    if type(resources) is Resources:
        rows = resources.nodes.allocation if type(resources.nodes) is Hosts else resources.allocated_nodes
        return [name for one in rows or () if (name := one.name or one.nodename) is not None]
    if not isinstance(resources, dict):
        return ()
    inner = resources.get("nodes")
    rows = inner.get("allocation") if isinstance(inner, dict) else resources.get("allocated_nodes")
    if not isinstance(rows, list):
        return ()
    names = [row.get("name") or row.get("nodename") for row in rows if isinstance(row, dict)]
    return [name for name in names if isinstance(name, str)]


def per_node(gpus: int, count: int | None, nodes: Sequence[str]) -> int | None:
    """Return the GPUs on each node, where they can be spread evenly.

    `count` is how many nodes they were given on: a job that completes has fewer listed, which it still holds.
    """
    on = len(nodes) if count is None else count
    return gpus // on if on and nodes and gpus % on == 0 else None


def _by_count(row: Row, nodes: tuple[str, ...]) -> Gpus:
    """Read the allocated TRES: only how many GPUs."""
    text = optional(row, "tres_alloc_str")
    tres = tres_of(text)
    if tres.gpus:
        return Gpus("unknown", None, per_node(tres.gpus, tres.nodes, nodes))
    # Sites that don't account for GPUs have none in TRES: then only the request tells.
    asks = any(name in (optional(row, key) or "") for key in REQUESTS for name in ("gpu", *SHARED_KINDS))
    return Gpus() if asks or text is None else NO_GPUS
