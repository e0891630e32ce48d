"""Messages for tests of the web page, a page's view of what is sent to it, and the console as a process."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
from waiting import until

from heeler.bus import Bus, check, encode, shard_of, subjects
from heeler.console.fleet import LAYERS
from heeler.console.program import main
from heeler.console.settings import ConsoleSettings
from heeler.engine import Inbound
from heeler.engine.process import Context

S = 1_000_000_000
T0 = 1_800_000_000 * S


def sample(node: str = "n1", at: float = 0, gpus: int = 8, job: str | None = "81", **more: Any) -> dict[str, Any]:
    """A JobSample. Keys of `mean` and `last` may be given; None leaves a column out."""
    mean = {
        "sm_active_ratio": [0.9] * gpus,
        "util_ratio": [1.0] * gpus,
        "temp_c": [60.0] * gpus,
        "power_w": [350.0] * gpus,
        "sm_clock_mhz": [1980.0] * gpus,
        **more.pop("mean", {}),
    }
    last = {"power_limit_w": [700.0] * gpus, "sm_clock_max_mhz": [1980.0] * gpus, **more.pop("last", {})}
    return {
        "v": 1,
        "cluster": "north",
        "node": node,
        "ts": T0 + int(at * S),
        "boot": "b",
        "seq": int(at * 10),
        "window_ns": 10 * S,
        "reads": 10,
        "gpu": {"uuid": [f"GPU-{node}-{i}" for i in range(gpus)], "index": list(range(gpus)), "model": ["H100"] * gpus},
        "mean": {key: column for key, column in mean.items() if column is not None},
        "last": {key: column for key, column in last.items() if column is not None},
        "state": ["ok"] * gpus,
        "job": [job] * gpus,
        "jobs": {} if job is None else {job: {"user": "ada", "name": "train"}},
        "shard": shard_of(job or node),
        **more,
    }


def job_event(job: str = "81", nodes: tuple[str, ...] = ("n1",), at: float = 0, **more: Any) -> dict[str, Any]:
    return {
        "v": 1, "cluster": "north", "ts": T0 + int(at * S), "event": "started", "job_id": job, "nodes": list(nodes),
        "user": "ada", "name": "train", "partition": "gpu", "state": "RUNNING", "start_ts": T0 - 3600 * S, **more,
    }  # fmt: skip


def node_state(node: str = "n1", at: float = 0, **more: Any) -> dict[str, Any]:
    return {
        "v": 1, "cluster": "north", "node": node, "ts": T0 + int(at * S), "state": "allocated", "flags": [],
        "partitions": ["gpu"], "gpus_total": 8, **more,
    }  # fmt: skip


def finding(name: str = "f1", at: float = 0, **more: Any) -> dict[str, Any]:
    return {
        "v": 1, "cluster": "north", "id": name, "kind": "gpu_lag", "state": "open", "severity": "critical",
        "confidence": 0.9, "entity": {"type": "gpu", "node": "n1", "gpu_uuid": "GPU-n1-3", "gpu_index": 3},
        "node": "n1", "job_id": "81", "jobs": ["81"], "cause": "thermal_slowdown", "first_ts": T0 - 600 * S,
        "ts": T0 + int(at * S),
        "evidence": [{"metric": "sm_clock_mhz", "value": 1155, "unit": "MHz", "peers_median": 1980.0, "peers": 15,
                      "deviation_ratio": -0.4167}],
        "impact": {"job_slowdown_ratio": None}, "advice": "drain_after_job",
        "summary": "GPU 3 on n1 runs at 1,155 MHz while its 15 peers run at 1,980", **more,
    }  # fmt: skip


def incident(name: str, *members: str, at: float = 0, **more: Any) -> dict[str, Any]:
    """Return a finding of kind incident, with its members."""
    found = finding(
        name, at, kind="incident", cause="links_lost", advice="observe",
        entity={"type": "switch", "places": ["switch leaf1"], "members": list(members), "nodes": ["n1", "n2", "n3"]},
        summary="3 nodes behind switch leaf1 lost links within 4 s: the switch or its power.", **more,
    )  # fmt: skip
    return {key: value for key, value in found.items() if key not in ("node", "job_id")}


def action(node: str = "n1", at: float = 0, **more: Any) -> dict[str, Any]:
    return {
        "v": 1, "cluster": "north", "id": f"a{at}", "node": node, "ts": T0 + int(at * S), "verdict": "proposed",
        "dry_run": True, "why": "gpu_lag at confidence 0.9", "actor": "d1", "finding_id": "f1", **more,
    }  # fmt: skip


def cluster_state(at: float = 0, **more: Any) -> dict[str, Any]:
    return {"v": 1, "cluster": "north", "feed": "main", "ts": T0 + int(at * S), "controller": "up", **more}


SUBJECTS = {
    "JobSample": lambda one: subjects.job_sample(one["cluster"], str(one["shard"]), one["node"]),
    "JobEvent": lambda one: subjects.job_event(one["cluster"], one["job_id"]),
    "NodeState": lambda one: subjects.node_state(one["cluster"], one["node"]),
    "Finding": lambda one: subjects.finding(one["cluster"], one["kind"], one.get("node", "-"), one["id"]),
    "DrainAction": lambda one: subjects.drain_action(one["cluster"], one["node"]),
    "ClusterState": lambda one: subjects.cluster_state(one["cluster"], one["feed"]),
    "JobKernelEvent": lambda one: subjects.job_kernel_event(one["cluster"], str(one["shard"]), one["node"]),
    "HealthRun": lambda one: subjects.health_run(one["cluster"], one["node"]),
    "HealthResult": lambda one: subjects.health_result(one["cluster"], one["node"]),
}


def inbound(kind: str, data: dict[str, Any], ts_ns: int | None = None) -> Inbound:
    """A message as the bus would bring it."""
    checked = check(kind, json.loads(json.dumps(data)))
    return Inbound(kind, SUBJECTS[kind](data), checked, data["ts"] if ts_ns is None else ts_ns)


async def publish(bus: Bus, kind: str, *messages: dict[str, Any]) -> None:
    """Put messages on the bus."""
    for number, one in enumerate(messages):
        name = f"{kind}.{one.get('node')}.{one.get('id', one.get('job_id'))}.{one['ts']}.{number}"
        await bus.publish_acked(SUBJECTS[kind](one), kind, encode(kind, one), name)


class Page:
    """What a page holds after a snapshot and some changes: written anew from the description of the wire."""

    def __init__(self, snapshot: bytes) -> None:
        size = int.from_bytes(snapshot[:4], "little")
        self.head = json.loads(snapshot[4 : 4 + size])
        cells, at = self.head["cells"], 4 + size
        assert at % 4 == 0
        self.jobs_of = np.frombuffer(snapshot, "<u4", cells, at).copy()
        self.layers = (
            np.frombuffer(snapshot, np.uint8, len(LAYERS) * cells, at + 4 * cells).reshape(len(LAYERS), cells).copy()
        )
        self.seq, self.epoch = self.head["seq"], self.head["epoch"]
        self.nodes = {key: list(column) for key, column in self.head["nodes"].items()}
        self.findings = {one["id"]: one for one in self.head["findings"]}
        self.jobs = {row[1]: row for row in self.head["jobs"]}

    def apply(self, data: bytes) -> None:
        frame = json.loads(data)
        assert frame["epoch"] == self.epoch, "read a snapshot"
        assert frame["seq"] == self.seq + 1
        self.seq = frame["seq"]
        for key, column in (frame.get("added") or {}).items():
            self.nodes[key] += column
        starts = np.concatenate([[0], np.cumsum(self.nodes["room"])]).astype(int)
        more = int(starts[-1]) - self.layers.shape[1]
        fresh = np.full((len(LAYERS), more), 255, np.uint8)
        fresh[1] = 0
        self.layers = np.concatenate([self.layers, fresh], axis=1)
        self.jobs_of = np.concatenate([self.jobs_of, np.zeros(more, np.uint32)])
        if changed := frame.get("nodes"):
            for at, number in enumerate(changed["number"]):
                self.nodes["state"][number] = changed["state"][at]
                self.nodes["partitions"][number] = changed["partitions"][at]
        if "cells" in frame:
            raw = base64.b64decode(frame["cells"])
            count = int.from_bytes(raw[:4], "little")
            numbers = np.frombuffer(raw, "<u4", count, 4)
            places = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in numbers])
            self.layers[:, places] = np.frombuffer(raw, np.uint8, offset=4 + 4 * count).reshape(len(LAYERS), -1)
        if "jobs_of" in frame:
            words = np.frombuffer(base64.b64decode(frame["jobs_of"]), "<u4")
            count = int(words[0])
            self.jobs_of[words[1 : 1 + count]] = words[1 + count :]
        self.findings |= {one["id"]: one for one in frame.get("findings", ())}
        self.jobs |= {row[1]: row for row in frame.get("jobs", ())}
        for name in frame.get("findings_gone", ()):
            self.findings.pop(name, None)
        for name in frame.get("jobs_gone", ()):
            self.jobs.pop(name, None)

    def same(self, other: "Page") -> bool:
        return (
            np.array_equal(self.layers, other.layers)
            and np.array_equal(self.jobs_of, other.jobs_of)
            and self.nodes == other.nodes
            and self.findings == other.findings
            and self.jobs == other.jobs
        )


@asynccontextmanager
async def serving(bus: Bus, **settings: Any) -> AsyncIterator[tuple[str, Context]]:
    """The console on a port of its own, as long as the block runs."""
    section = ConsoleSettings(**{"listen": "127.0.0.1:0", "every_s": 0.1, **settings})
    context = Context(bus, {"console": section}, "test", asyncio.Event())
    task = asyncio.create_task(main(context))
    port = 0

    def up() -> bool:
        nonlocal port
        if task.done():
            task.result()
        values = context.metrics["console"]() if "console" in context.metrics else {}
        port = int(values.get("console_port", 0))
        return bool(port and values["console_told"])

    try:
        await until(up, "the console")
        yield f"http://127.0.0.1:{port}", context
    finally:
        context.stop.set()
        await task


async def get(url: str, **options: Any) -> tuple[int, Any, Any]:
    """Return status, headers and body (JSON decoded) of an answer."""
    async with aiohttp.ClientSession() as session, session.get(url, **options) as answer:
        body = await answer.read()
        kind = answer.headers.get("Content-Type", "")
        return answer.status, answer.headers, json.loads(body) if kind.startswith("application/json") else body
