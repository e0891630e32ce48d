"""Engine against a bare nats-py loop on the same bytes, in one run.

Each contender reads the same stream of GpuSamples (8 GPUs, every column of the contract, about 6 kB) in a process of
its own:

    bare             nats-py alone, a continuous pull: receive, decode, encode, publish
    bare-jobs        the same with the JobSamples that detect reads
    bare+ack         the same with an explicit ack for each message
    receive          nats-py alone: receive and decode, nothing else
    null             heeler's shared engine with a step that publishes what it got, with acks
    enrich           heeler's shared engine with the step of enrich, with acks
    null-standby     heeler's standby engine with a step that does nothing, no acks
    detect           heeler's standby engine with the step of detect, no acks

Then 1 and 2 processes of enrich share one durable consumer: what the fleet of processes does together.
"""

import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack
import nats
import structlog
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/lib"))
from natsserver import NatsServer

from heeler.bus import Bus, BusSettings, Suffix, admin, encode, extend, shard_of, subjects
from heeler.detect.program import make_step
from heeler.engine import NOTHING, Event, Inbound, Input, Result
from heeler.engine.shared import Shared
from heeler.engine.standby import Standby
from heeler.enrich import EnrichStep
from heeler.otlp.names import GPU

NODES, WINDOWS, ROUNDS = 12_500, 4, 3
WARM_UP = NODES  # the first window fills caches and states; it is not measured
MESSAGES = NODES * WINDOWS
WINDOW_NS = 10_000_000_000
OFF = ("mig_mode", "recovery_action")


def gpu_sample(node: int, window: int, start_ns: int) -> bytes:
    """Return one node's window; values differ a little, as real ones do."""
    wobble = [1 + ((node * 31 + window * 17 + gpu * 7) % 100) / 5000 for gpu in range(8)]
    message = {
        "v": 1, "cluster": "c", "node": f"n{node:05d}", "ts": start_ns + window * WINDOW_NS, "boot": "b" * 32,
        "seq": window + 1, "window_ns": WINDOW_NS, "reads": 10,
        "gpu": {"uuid": [f"GPU-{node:08x}-0000-0000-0000-{gpu:012x}" for gpu in range(8)], "index": list(range(8)),
                "minor": list(range(8)), "model": ["NVIDIA H100 80GB HBM3"] * 8},
        **{
            group: {column: [(0.9 if "ratio" in column else 650.5) * w for w in wobble] for column in GPU[group]}
            for group in ("mean", "min", "max")
        },
        "last": {column: [0 if column in OFF else 4] * 8 for column in GPU["last"]},
        "state": ["ok"] * 8,
    }  # fmt: skip
    return encode("GpuSample", message)


class Null:
    """Publishes what it got (shared) or does nothing (standby)."""

    tick_s = None
    memory_s = 36_000.0

    def __init__(self, kind: str, *, publish: bool) -> None:
        self.name = f"null-{time.time_ns()}"  # a durable of its own each round
        self.inputs = (Input(kind),)
        self.publish = publish

    def keys(self, message: Inbound) -> Iterable[str]:
        """One key per node."""
        return (f"node:{message.data['node']}",)

    def on(self, key: str, state: Any, message: Inbound, now_ns: int) -> Result:  # noqa: ARG002
        """Give back what came."""
        if not self.publish:
            return True, NOTHING
        subject = subjects.job_sample("c", "0", message.data["node"])
        return True, (Event("JobSample", subject, message.data),)

    def tick(self, key: str, state: Any, now_ns: int) -> Result:  # noqa: ARG002
        """Nothing."""
        return state, NOTHING


class Meter:
    """CPU and wall time from the end of the warm-up to the last message."""

    def __init__(self) -> None:
        self.begin: tuple[float, float] | None = None

    @staticmethod
    def now() -> tuple[float, float]:
        """Return wall and CPU seconds of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), used.ru_utime + used.ru_stime

    def report(self) -> str:
        """Return what the messages after the warm-up took."""
        assert self.begin is not None
        wall_s, cpu_s = (after - before for after, before in zip(self.now(), self.begin, strict=True))
        count = MESSAGES - WARM_UP
        rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return json.dumps({"per_s": count / wall_s, "cpu_us": cpu_s / count * 1e6, "rss_mb": rss_mb})


async def bare(url: str, meter: Meter, *, work: bool, ack: bool, stream: str = "SAMPLES") -> None:
    """Read all messages of a stream with nats-py alone."""
    nc = await nats.connect(url)
    config = nats.js.api.ConsumerConfig(
        durable_name=f"bare-{time.time_ns()}" if ack else None,
        ack_policy=nats.js.api.AckPolicy.EXPLICIT if ack else nats.js.api.AckPolicy.NONE,
        filter_subject="heeler.v1.*.gpu.sample.*" if stream == "SAMPLES" else "heeler.v1.*.job.sample.*.*",
        max_ack_pending=10_000, inactive_threshold=60,
    )  # fmt: skip
    name = (await nc.jetstream().add_consumer(stream, config)).name
    inbox, done, seen, outstanding = nc.new_inbox(), asyncio.Event(), 0, 0
    headers = {"Content-Type": "application/msgpack", "Heeler-Type": "JobSample/1"}

    async def pull(batch: int) -> None:
        nonlocal outstanding
        outstanding += batch
        request = json.dumps({"batch": batch, "expires": 30_000_000_000}).encode()
        await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", request, reply=inbox)

    async def on_message(msg: Any) -> None:
        nonlocal seen, outstanding
        message = msgpack.unpackb(msg.data)
        if work:
            await nc.publish("bench.out", msgpack.packb(message), headers=headers)
        if ack:
            await nc.publish(msg.reply, b"+ACK")
        seen += 1
        outstanding -= 1
        if outstanding <= 250:
            await pull(250)
        if seen == WARM_UP:
            meter.begin = meter.now()
        if seen == MESSAGES:
            done.set()

    await nc.subscribe(inbox, cb=on_message, pending_msgs_limit=10**6, pending_bytes_limit=2**30)
    await pull(500)
    await done.wait()
    await nc.flush()
    print(meter.report())
    await nc.close()


async def engine(url: str, meter: Meter, contender: str) -> None:
    """Read all messages with an engine of Heeler's."""
    bus = await Bus.connect(BusSettings(servers=(url,), cluster="c"), contender)
    made: Shared | Standby
    if contender == "null":
        made = Shared(bus, Null("GpuSample", publish=True), "x")
    elif contender == "enrich":
        step = EnrichStep()
        step.name = f"enrich-{time.time_ns()}"
        made = Shared(bus, step, "x")
    elif contender == "null-standby":
        made = Standby(bus, Null("JobSample", publish=False), "x")
    else:
        detect = make_step({})
        detect.memory_s = 36_000.0
        made = Standby(bus, detect, "x")
    stop = asyncio.Event()
    running = asyncio.create_task(made.run(stop))
    context = NODES // 16 if contender in ("enrich", "detect") else 0  # JobEvents count as received
    for goal in (WARM_UP, MESSAGES):
        while made.counters.received < goal + context:
            await asyncio.sleep(0.002)
            if running.done():
                running.result()
        if meter.begin is None:
            meter.begin = meter.now()
    await bus.client.flush()
    print(meter.report())
    stop.set()
    await running
    await bus.close()


async def share(url: str, name: str) -> None:
    """Enrich what a durable consumer hands out until nothing is left; print how much it was and in how long."""
    bus = await Bus.connect(BusSettings(servers=(url,), cluster="c"), "share")
    step = EnrichStep()
    step.name = name
    made, stop = Shared(bus, step, "x"), asyncio.Event()
    running = asyncio.create_task(made.run(stop))
    await made.ready.wait()
    began, context, seen = time.perf_counter(), made.counters.received, -1
    while made.counters.received != seen:
        seen = made.counters.received
        ended = time.perf_counter()
        await asyncio.sleep(0.5)
    print(json.dumps({"count": seen - context, "s": ended - began}))
    stop.set()
    await running
    await bus.close()


def scaled(url: str, processes: int) -> float:
    """Return the samples per second that some processes of enrich carry together."""
    name = f"enrich-{time.time_ns()}"
    argv = [sys.executable, __file__, "share", name, url]
    children = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(processes)
    ]
    found = [json.loads(child.communicate()[0].splitlines()[-1]) for child in children]
    done: float = sum(one["count"] for one in found) / max(one["s"] for one in found)
    return done


def child(contender: str, url: str) -> None:
    """Run one contender and print what it took."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if contender == "bare-jobs":
        asyncio.run(bare(url, Meter(), work=True, ack=False, stream="JOBSAMPLES"))
    elif contender in ("bare", "bare+ack", "receive"):
        asyncio.run(bare(url, Meter(), work=contender != "receive", ack=contender == "bare+ack"))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(engine(url, Meter(), contender))


async def fill(url: str) -> None:
    """Put the same windows into SAMPLES and, with jobs, into JOBSAMPLES, each as it ends: detect ignores old ones."""
    bus = await Bus.connect(BusSettings(servers=(url,), cluster="c"), "fill")
    await admin.init(bus, scale=0.05)
    start_ns = time.time_ns() // WINDOW_NS * WINDOW_NS
    for job in range(NODES // 16):
        nodes = [f"n{node:05d}" for node in range(job * 16, job * 16 + 16)]
        event = {
            "v": 1, "cluster": "c", "ts": start_ns, "event": "started", "job_id": str(job), "nodes": nodes,
            "start_ts": start_ns - 3600 * 10**9, "gpus_source": "whole_node", "user": "ada", "account": "lab",
            "partition": "train", "qos": "normal", "name": "train", "state": "RUNNING",
        }  # fmt: skip
        await bus.publish_acked(subjects.job_event("c", str(job)), "JobEvent", encode("JobEvent", event), f"j{job}")
    for n in range(MESSAGES):
        window, node = divmod(n, NODES)
        if node == 0:
            await asyncio.sleep((start_ns + window * WINDOW_NS - time.time_ns()) / 1e9)
        payload = gpu_sample(node, window, start_ns)
        name, job_id = f"n{node:05d}", str(node // 16)
        await bus.publish(subjects.gpu_sample("c", name), "GpuSample", payload)
        shard = shard_of(job_id)
        suffix = Suffix({"job": [job_id] * 8, "job_source": ["whole_node"] * 8, "shard": shard,
                         "jobs": {job_id: {"user": "ada", "account": "lab", "partition": "train"}}})  # fmt: skip
        await bus.publish(subjects.job_sample("c", str(shard), name), "JobSample", extend(payload, suffix))
        if n % 500 == 0:
            await bus.client.flush()
    await bus.client.flush()
    await bus.close()


def measure() -> tuple[dict[str, dict[str, float]], dict[int, float]]:
    """Run every contender in turn, several rounds, and keep the best of each: other work only slows one down.

    Returns them, and the samples per second that so many processes of enrich carry together.
    """
    contenders = ("receive", "bare", "bare+ack", "null", "enrich", "bare-jobs", "null-standby", "detect")
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        # What null and enrich publish must not be what detect reads.
        writers, readers = NatsServer(Path(folder, "writers")), NatsServer(Path(folder, "readers"))
        try:
            for server in (writers, readers):
                server.folder.mkdir()
                server.start()
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda server: asyncio.run(fill(server.url)), (writers, readers)))
            for _ in range(ROUNDS):
                for contender in contenders:
                    url = (readers if contender in ("bare-jobs", "null-standby", "detect") else writers).url
                    out = subprocess.run(
                        [sys.executable, __file__, "child", contender, url],
                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                    ).stdout  # fmt: skip
                    found = json.loads(out.splitlines()[-1])
                    if contender not in best or found["cpu_us"] < best[contender]["cpu_us"]:
                        best[contender] = found
            together = {n: max(scaled(writers.url, n) for _ in range(2)) for n in (1, 2)}
        finally:
            writers.stop()
            readers.stop()
    return best, together


def main() -> dict[str, Any]:
    """Print the table; returns it."""
    best, together = measure()
    peers = {"null": "bare+ack", "enrich": "bare+ack", "null-standby": "bare-jobs", "detect": "bare-jobs"}
    print(f"{'contender':14} {'msg/s':>9} {'CPU us/msg':>11} {'RSS MiB':>8}  share of its peer (by CPU)")
    for name, found in best.items():
        peer = peers.get(name)
        share = f"{best[peer]['cpu_us'] / found['cpu_us']:5.2f} of {peer}" if peer else ""
        print(f"{name:14} {found['per_s']:9.0f} {found['cpu_us']:11.1f} {found['rss_mb']:8.0f}  {share}")
    for name in best.keys() & {"enrich", "detect"}:
        room = best[name]["per_s"] / (NODES / 10)
        print(f"{name}: one process carries 12,500 nodes at 10 s windows {room:.1f} times over")
    one, two = together[1], together[2]
    cores = len(os.sched_getaffinity(0))
    print(
        f"enrich: 2 processes carry {two / one:.2f} times what 1 does ({one:.0f}/s), on {cores} cores, server included"
    )
    return {**best, "enrich processes": together}


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], sys.argv[3])
    elif sys.argv[1:2] == ["share"]:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as uv:
            uv.run(share(sys.argv[3], sys.argv[2]))
    else:
        print(json.dumps(main()))
