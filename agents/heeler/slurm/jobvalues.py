"""What JSON and text of a job have in common: values derived from what Slurm says."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any

from heeler.slurm.errors import ParseError
from heeler.slurm.gres import SHARED_KINDS, parse_gres
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jobid import parse_job_id
from heeler.slurm.jsonnumbers import integer
from heeler.slurm.state import JobFlags, parse_job_state
from heeler.slurm.tres import Tres, parse_tres

NS = 1_000_000_000
MIB = 1 << 20
FOR_RESOURCES = frozenset(("Resources", "Priority"))
PRIORITY_ONE = 1 << 32

# Of a hundred thousand jobs most ask for one of some hundred things.
tres_of = lru_cache(1 << 14)(parse_tres)
gres_of = lru_cache(1 << 14)(parse_gres)
_state_of = lru_cache(1 << 10)(parse_job_state)


def state_of(value: Any) -> JobFlags:
    """Return a job's state. Raises ParseError."""
    if type(value) is list:
        if not all(type(word) is str for word in value):
            raise ParseError("not a job state", value)
        value = tuple(value)
    return _state_of(value) if type(value) in (str, tuple) else parse_job_state(value)


@lru_cache(1 << 12)
def _few_nodes(text: str) -> tuple[str, ...]:
    return expand_set(text)


def nodes_of(text: str | None) -> list[str]:
    """Return the nodes of a host list. Raises ParseError."""
    if not text:
        return []
    # The list of a large job is its own; those of small jobs come again and again.
    return list(_few_nodes(text) if len(text) < 64 else expand_set(text))


@dataclass(frozen=True, slots=True)
class Requests:
    """What a job asks for, in the spellings of its options."""

    per_node: str | None
    per_job: str | None
    per_task: str | None
    per_socket: str | None
    nodes: int | None
    tasks: int | None

    def count(self, name: str, tres: Tres | None) -> int | None:
        """Return how many of a GRES in all; 0 where it asks for none, None where it can't be told."""
        if tres is not None and tres.values:
            found = tres.gpus if name == "gpu" else tres.values.get(f"gres/{name}", 0)
            if found or not self._names(name):
                return found
        times = ((self.per_job, 1), (self.per_node, self.nodes), (self.per_task, self.tasks), (self.per_socket, None))
        for text, factor in times:
            if asked := _count(text, name):
                return None if factor is None else asked * factor
        return 0

    def gpus_by_type(self, tres: Tres | None) -> dict[str, int] | None:
        """Return the GPUs that it asks for by type; None where it names no type."""
        if tres is not None and tres.gpus_by_type:
            return tres.gpus_by_type
        for text, factor in ((self.per_job, 1), (self.per_node, self.nodes), (self.per_task, self.tasks)):
            typed = {gres.type: gres.count for gres in gres_of(text) if gres.name == "gpu" and gres.type}
            if typed:
                return None if factor is None else {kind: count * factor for kind, count in typed.items()}
        return None

    def gpus_per_node(self) -> int | None:
        """Return the GPUs that it asks for on each node, where it asks so."""
        return _count(self.per_node, "gpu") or None

    def _names(self, name: str) -> bool:
        return any(_count(text, name) for text in (self.per_node, self.per_job, self.per_task, self.per_socket))


def _count(text: str | None, name: str) -> int:
    return sum(gres.count for gres in gres_of(text) if gres.name == name) if text else 0


def requested(asks: Requests, tres: Tres | None) -> dict[str, Any]:
    """Return the columns of what a job asks for. Counts of a GRES that can't be read are null, its words are kept."""
    said = {
        "tres_requested": tres.values if tres is not None and tres.values else None,
        "tres_per_node": asks.per_node,
        "tres_per_job": asks.per_job,
        "tres_per_task": asks.per_task,
        "tres_per_socket": asks.per_socket,
    }
    try:
        return said | _counted(asks, tres)
    except ParseError:
        return said


def _counted(asks: Requests, tres: Tres | None) -> dict[str, Any]:
    return {
        "gpus_requested": asks.count("gpu", tres),
        "gpus_requested_by_type": asks.gpus_by_type(tres),
        "gpus_per_node_requested": asks.gpus_per_node(),
        "shards_requested": asks.count("shard", tres),
        "mps_requested": asks.count("mps", tres),
    }


NOTHING: Mapping[str, Any] = {
    "tres_allocated": {},
    "cpus_allocated": 0,
    "memory_allocated_bytes": 0,
    "nodes_allocated": 0,
    "billing_allocated": 0,
    "gpus_allocated": 0,
    "gpus_source": "none",
    "shards_allocated": 0,
    "mps_allocated": 0,
}


def allocated(tres: Tres, asks: Requests) -> dict[str, Any]:
    """Return the columns of what a job has, by its allocated TRES. GPUs that the site does not account for are null."""
    values = tres.values
    if not values:
        return {"gpus_source": "unknown"}
    gpus: int | None = tres.gpus or (None if _may_ask(asks, "gpu") else 0)
    return {
        "tres_allocated": values,
        "cpus_allocated": values.get("cpu"),
        "memory_allocated_bytes": values.get("mem"),
        "nodes_allocated": values.get("node"),
        "billing_allocated": values.get("billing"),
        "gpus_allocated": gpus,
        "gpus_allocated_by_type": tres.gpus_by_type or None,
        "gpus_source": "none" if gpus == 0 and not _has_shares(values, asks) else "unknown",
        "shards_allocated": _accounted(values, "shard", asks),
        "mps_allocated": _accounted(values, "mps", asks),
    }


def _has_shares(values: Mapping[str, int], asks: Requests) -> bool:
    """Whether a job has parts of GPUs: then it is on a GPU, whichever that is."""
    return any(_accounted(values, name, asks) != 0 for name in SHARED_KINDS)


def _accounted(values: Mapping[str, int], name: str, asks: Requests) -> int | None:
    found = values.get(f"gres/{name}")
    return (None if _may_ask(asks, name) else 0) if found is None else found


def _may_ask(asks: Requests, name: str) -> bool:
    """Whether a job asks for a GRES, also by words that can't be read."""
    try:
        return asks.count(name, None) != 0
    except ParseError:
        return True


def times(
    state: JobFlags,
    now_ns: int,
    *,
    submit_ns: int | None,
    start_ns: int | None,
    elapsed_s: float | None,
    limit_s: float | None,
) -> dict[str, Any]:
    """Return the columns that follow from times: limits, what is left, how long it waited."""
    waits = not (state.holds or state.ended)
    unlimited = None if limit_s is None else limit_s == inf
    limit = None if limit_s is None or limit_s == inf else limit_s
    until = now_ns if waits else start_ns
    return {
        "start_expected": waits and start_ns is not None,
        "elapsed_s": elapsed_s,
        "pending_s": None if submit_ns is None or until is None else max(until - submit_ns, 0) / NS,
        "time_limit_s": limit,
        "time_unlimited": unlimited,
        "time_left_s": None if limit is None or elapsed_s is None else limit - elapsed_s,
    }


def status(state: JobFlags, reason: str | None, priority: int | None) -> dict[str, Any]:
    """Return the columns of a job's state and of its place in the queue."""
    waits = state.name == "PENDING"
    return {
        "state": state.name,
        "state_flags": list(state.flags),
        "state_raw": state.raw,
        "holds_nodes": state.holds,
        "reason": reason,
        "pending_for_resources": waits and reason in FOR_RESOURCES,
        "priority": priority,
        "priority_normalized": None if priority is None else priority / PRIORITY_ONE,
        "hold": None if priority is None else waits and priority == 0,
    }


@lru_cache(1 << 12)
def exit_of_word(word: int) -> tuple[int, int | None]:
    """Return exit status and signal of wait's word for both."""
    return word >> 8, word & 0x7F or None


def exit_of(text: str) -> tuple[int, int | None] | None:
    """Return exit status and signal (None: none) of ``3:0``, or of the word for both that squeue printed before 23.02.

    None where nothing is told. Raises ParseError.
    """
    status, colon, signal = text.strip().partition(":")
    if not colon:
        word = integer(status)
        return None if word is None else exit_of_word(word)
    if not (status.isdecimal() and signal.isdecimal() and text.isascii()):
        raise ParseError("not an exit status and signal", text)
    return int(status), int(signal) or None


def array_tasks(text: str) -> tuple[str, int | None, int | None]:
    """Return ranges, how many tasks, and throttle of ``1-10:3%2``. Raises ParseError."""
    found = parse_job_id(f"1_[{text}]")
    return text.partition("%")[0], None if found.truncated else found.task_count, found.throttle


def by_node(values: Mapping[str, str]) -> list[str]:
    """Return ``node=value`` for each node."""
    return [f"{node}={value}" for node, value in values.items()]


@lru_cache(1 << 12)
def index_text(indices: tuple[int, ...]) -> str:
    """Return indices as Slurm writes them: ``0-3,5``."""
    spans: list[list[int]] = []
    for index in indices:
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
