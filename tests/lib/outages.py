"""Troubles that several nodes share: what their agents and Slurm say of a switch, a rack or a program that fails."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from samples import CLUSTER, T0, Inbound, Job, S, ib_sample, inbound, job_event, kernel_event

from heeler.bus import subjects

Down = Callable[[int, int, int], bool]  # node, port, window: whether the port is down


def topology(
    leaves: Mapping[str, Sequence[str]], *, kind: str = "switch", ts_ns: int = T0 - 60 * S, parts: int = 1
) -> list[Inbound]:
    """Return Slurm's topology: leaf switches under one at the top, or blocks; cut into parts."""
    rows: list[dict[str, Any]] = [
        {"name": name, "kind": kind, "level": 0, "nodes": list(nodes), "children": []} for name, nodes in leaves.items()
    ]
    if kind == "switch":
        every = [node for nodes in leaves.values() for node in nodes]
        rows.append({"name": "top", "kind": kind, "level": 1, "nodes": every, "children": list(leaves)})
    found = []
    for part in range(parts):
        mine = rows[part::parts]
        columns = {name: [row[name] for row in mine] for name in ("name", "kind", "level", "nodes", "children")}
        data: dict[str, Any] = {
            "v": 1, "cluster": CLUSTER, "feed": "slurm", "table": "topology", "ts": ts_ns, "snapshot": str(ts_ns),
            "part": part, "parts": parts, "rows": len(mine), "columns": columns,
        }  # fmt: skip
        subject = subjects.slurm_table(CLUSTER, "topology", "slurm", str(part))
        found.append(inbound("SlurmTable", subject, data, ts_ns + part))
    return found


def port_samples(nodes: Sequence[str], down: Down, windows: int, *, rails: int = 2, first: int = 0) -> list[Inbound]:
    """Return samples of ports, 10 s each; a link that goes down is counted."""
    found = []
    for number, node in enumerate(nodes):
        losses = [0] * rails
        was = [False] * rails
        for at in range(first, windows):
            now = [down(number, rail, at) for rail in range(rails)]
            losses = [n + (is_ and not before) for n, is_, before in zip(losses, now, was, strict=True)]
            was = now
            ports: list[dict[str, Any]] = [
                {"state": "down" if gone else "active", "counters": {"link_downed": n}}
                for gone, n in zip(now, losses, strict=True)
            ]
            # Each agent has a beat of its own.
            late = number * 617 % 9000 * 1_000_000
            found.append(ib_sample(node, ports, ts_ns=T0 + (at + 1) * 10 * S + late, seq=at))
    return found


def running(nodes: int, per_job: int, *, first: int = 0) -> list[Inbound]:
    """Return the jobs that have some nodes."""
    return [
        job_event(Job(id=str(81_000 + n), nodes=min(per_job, nodes - n), first_node=first + n), ts_ns=T0 - S)
        for n in range(0, nodes, per_job)
    ]


def names(count: int, first: int = 0) -> list[str]:
    """Return names of nodes."""
    return [f"n{number:04d}" for number in range(first, first + count)]


def program_errors(job: Job, codes: Iterable[int], *, at_s: float = 100.0) -> list[Inbound]:
    """Return what the kernels of a job's nodes say when its program fails: each code on each GPU, within seconds."""
    found = []
    for node in range(job.nodes):
        for gpu in range(job.gpus):
            for seq, code in enumerate(codes):
                ts_ns = T0 + int((at_s + 0.7 * node + 0.05 * gpu + 0.3 * seq) * S)
                found.append(
                    kernel_event(
                        job.node(node), code, ts_ns=ts_ns, seq=100 * gpu + seq, uuid=job.uuid(node, gpu), jobs=[job.id]
                    )
                )
    return found
