"""Messages for tests of enrich, and what comes out of it."""

from typing import Any

from heeler.bus import decode, encode, subjects
from heeler.engine import Inbound, Keyed
from heeler.enrich import EnrichStep

S = 1_000_000_000
T0 = 1_800_000_000 * S
UUIDS = [f"GPU-{n:08d}-0000-0000-0000-000000000000" for n in range(8)]


def sample(node: str = "gn1", at: float = 100, **more: Any) -> Inbound:
    ts = T0 + int(at * S)
    data = {
        "v": 1,
        "cluster": "c",
        "node": node,
        "ts": ts,
        "boot": "b",
        "seq": int(at),
        "window_ns": 10 * S,
        "reads": 10,
        "gpu": {"uuid": UUIDS, "index": list(range(8)), "minor": list(range(8))},
        "mean": {"power_w": [600.0 + n for n in range(8)], "util_ratio": [0.99] * 8},
        "last": {"clock_event_reasons": [4] * 8},
        **more,
    }
    return inbound("GpuSample", subjects.gpu_sample("c", node), data, ts)


def inbound(kind: str, subject: str, data: dict[str, Any], ts: int) -> Inbound:
    payload = encode(kind, data)
    return Inbound(kind, subject, decode(kind, payload), ts, payload)


def job(
    job_id: str, nodes: list[str], *, event: str = "started", at: float = 0, start: float = 0, **more: Any
) -> Inbound:
    ts = T0 + int(at * S)
    data = {
        "v": 1, "cluster": "c", "ts": ts, "event": event, "job_id": job_id, "nodes": nodes,
        "start_ts": T0 + int(start * S), "user": "ada", "partition": "train", **more,
    }  # fmt: skip
    return inbound("JobEvent", subjects.job_event("c", job_id), data, ts)


def prolog(job_id: str, node: str, uuids: list[str], *, event: str = "started", at: float = 0) -> Inbound:
    ts = T0 + int(at * S)
    data = {"v": 1, "cluster": "c", "node": node, "ts": ts, "boot": "b", "seq": 1, "event": event, "job_id": job_id,
            "uuids": uuids}  # fmt: skip
    return inbound("PrologEvent", subjects.prolog_event("c", node), data, ts)


def xid(node: str = "gn1", at: float = 100, **more: Any) -> Inbound:
    ts = T0 + int(at * S)
    data = {"v": 1, "cluster": "c", "node": node, "ts": ts, "boot": "b", "seq": 9, "kind": "xid", "code": 79, **more}
    return inbound("KernelEvent", subjects.kernel_event("c", node), data, ts)


def enrich(*messages: Inbound) -> list[dict[str, Any]]:
    """Run messages through the step and return what it published, decoded as a reader would."""
    keyed = Keyed(EnrichStep())
    events = [event for message in messages for _, event in keyed.on(message)]
    return [decode(e.kind, e.data if isinstance(e.data, bytes) else encode(e.kind, e.data)) for e in events]


def jobs_by_gpu(published: list[dict[str, Any]]) -> dict[str, str | None]:
    return {uuid: job for out in published for uuid, job in zip(out["gpu"]["uuid"], out["job"], strict=True)}
