# ruff: noqa: INP001 - a script, not part of a package
"""Looks at the bus of docker-compose.yml from inside one of its containers; try.sh asks it.

python judge.py ready NODES       wait until all nodes are sampled and every shard of detect has a holder
python judge.py leaders           the host name of the detect process that leads for each node and job
python judge.py answered FAULTS   wait until every fault has its answer
python judge.py verdict FAULTS SINK
                                  after the fleet has stopped: what was expected, once each, and what the sink got

FAULTS are the simulator's JSON lines; with a `killed_ns` the report says how long after the fault that was.
"""

import asyncio
import json
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import click
import structlog

from heeler.bus import ROUTES, SHARDS, Bus, BusSettings, decode, shard_of, snapshot
from heeler.bus.lease import open_bucket
from heeler.bus.subjects_gen import STREAMS
from heeler.otlp.map import METRICS
from heeler.otlp.traces import TRACES
from heeler.sim.demo import verdict
from heeler.sim.demo.watch import COUNTED, OVERTAKEN, Watch

READY_S, ANSWER_S, DRY_S = 120.0, 90.0, 300.0
LOGGED = ("Finding", "DrainAction", "JobKernelEvent")  # kinds that reach the sink as log records
Report = Mapping[str, Any]


@asynccontextmanager
async def watching() -> Any:
    """Give a connection and everything that was said so far and is said from now on."""
    bus = await Bus.connect(BusSettings.load(), "heeler-judge", give_up_after_s=10.0)
    watch = Watch(bus, lambda _: None)
    await watch.start()
    try:
        yield bus, watch
    finally:
        await watch.stop()
        await bus.close()


async def holders(bus: Bus) -> dict[int, str]:
    """Return the host name of the holder of each shard that has one."""
    bucket, _ = await open_bucket(bus, "leases")
    found = {}
    for shard in range(SHARDS):
        try:
            entry = await bucket.get(f"detect.{shard}")
        except Exception as error:
            if type(error).__name__ not in ("KeyNotFoundError", "KeyDeletedError"):
                raise
            continue
        found[shard] = (entry.value or b"").decode().rsplit("-", 2)[0]  # HOST-PID-RANDOM
    return found


async def ready(bus: Bus, watch: Watch, nodes: int) -> Report:
    """Wait for samples of all nodes and a holder of every shard. Raises TimeoutError."""
    until = time.monotonic() + READY_S
    held: dict[int, str] = {}
    while len(watch.sampled) < nodes or len(held) < SHARDS:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(watch.sampled)} of {nodes} nodes sampled, {len(held)} of {SHARDS} shards held")
        await asyncio.sleep(0.5)
        held = await holders(bus)
    return {"nodes": len(watch.sampled), "shards_by_holder": Counter(held.values())}


async def answered(watch: Watch, labels: list[Report]) -> Report:
    """Wait for the answers to all faults; says what came, even if that isn't all."""

    def answers() -> list[verdict.Answer]:
        return [verdict.answer(label, watch.findings, watch.actions) for label in labels]

    await watch.until(lambda: all(one.finding and one.action for one in answers()), ANSWER_S)
    return {"faults": [told(one) for one in answers()], "problems": verdict.problems_of(answers())}


def told(answer: verdict.Answer) -> Report:
    """Return the report of an answer, with the time of the kill."""
    label = answer.label
    killed = {"leader_killed_s": round((label["killed_ns"] - label["at_ns"]) / 1e9, 3)} if "killed_ns" in label else {}
    return answer.report() | killed


def once(labels: list[Report], watch: Watch) -> Iterator[str]:
    """Yield what is not there exactly once: findings of a fault, and twins of any message."""
    opened = [one.data for one in watch.findings if one.data["state"] == "open"]
    for label in labels:
        count = sum(verdict.names(label, data) for data in opened)
        if count != 1:
            yield f"{label['kind']} on {label['node']}: {count} findings were opened, not one"
    said = Counter((one.data["id"], one.data["state"], one.data["ts"]) for one in watch.findings)
    said.update((one.data["id"], one.data["verdict"], one.data["ts"]) for one in watch.actions)
    yield from (f"{key} is {count} times in its stream" for key, count in said.items() if count > 1)


async def judge(bus: Bus, watch: Watch, labels: list[Report], sink: str) -> Report:
    """Count what went in and what came out once nothing waits any more."""
    left = await dry(bus)
    passage, exported = await count(bus, sink)
    found = await answered(watch, labels)
    problems = [*found["problems"], *verdict.strangers(labels, watch.findings), *once(labels, watch)]
    problems += [f"{name} still has {number} messages to read after {DRY_S:g} s" for name, number in left.items()]
    problems += [f"sink: {difference}" for difference in exported.differences()]
    if passage.lost():
        problems.append(f"{passage.lost()} of {len(passage.into)} samples were lost")
    return {
        "ok": not problems,
        "faults": found["faults"],
        "samples": len(passage.into),
        "samples_lost": passage.lost(),
        "findings_opened": sum(one.data["state"] == "open" for one in watch.findings),
        "finding_messages": len(watch.findings),
        "actions": len(watch.actions),
        "points": exported.points(exported.received),
        "log_records": exported.received["logs"],
        "spans": exported.received["spans"],
        "problems": problems,
    }


async def dry(bus: Bus) -> dict[str, int]:
    """Wait until the shared consumers, those of enrich and otlp, have read everything; return what they have not."""
    until = time.monotonic() + DRY_S
    calm = 0
    while True:
        left = {}
        for stream in STREAMS:
            for info in await bus.js.consumers_info(stream):
                number = (info.num_pending or 0) + (info.num_ack_pending or 0)
                if info.config.durable_name and number:
                    left[info.config.durable_name] = number
        # Twice, since what enrich has just read is on its way to otlp.
        calm = 0 if left else calm + 1
        if calm == 2 or time.monotonic() > until:
            return left
        await asyncio.sleep(1.0)


async def count(bus: Bus, sink: str) -> tuple[verdict.Passage, verdict.Exported]:
    """Return samples into and out of enrich, and what the sink should have and has."""
    passage, exported = verdict.Passage(), verdict.Exported()
    for kind in ("GpuSample", *COUNTED):
        for data in await everything(bus, kind):
            if kind == "GpuSample":
                passage.sample(data)
                continue
            if kind == "JobSample":
                passage.job_sample(data)
            exported.expect(METRICS[kind](data))
    for kind in LOGGED:
        for data in await everything(bus, kind):
            exported.expected["logs"] += 1
            exported.expected["spans"] += len(TRACES[kind](data, data["ts"]))
    counts = await asyncio.to_thread(_get, f"{sink}/counts")
    got = {name: number for name, number in counts["metrics"].items() if not name.startswith(OVERTAKEN)}
    exported.received = Counter({**got, "logs": counts["logs"], "spans": counts["spans"]})
    return passage, exported


async def everything(bus: Bus, kind: str) -> list[dict[str, Any]]:
    """Return all messages of a kind that are still in their stream."""
    route = ROUTES[kind]
    found = await snapshot(bus, route.stream, (route.pattern,), start=1, timeout_s=60.0)
    return [decode(kind, delivery.data) for delivery in found]


def _get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the sink of this very project
        found: dict[str, Any] = json.load(answer)
        return found


async def main(command: str, arguments: list[str]) -> Report:
    """Do what was asked for and return what to print."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    async with watching() as (bus, watch):
        asked: dict[str, Callable[[], Awaitable[Report]]] = {
            "ready": lambda: ready(bus, watch, int(arguments[0])),
            "leaders": lambda: leaders(bus, watch),
            "answered": lambda: answered(watch, labels_of(arguments[0])),
            "verdict": lambda: judge(bus, watch, labels_of(arguments[0]), arguments[1]),
        }
        return await asked[command]()


async def leaders(bus: Bus, watch: Watch) -> Report:
    """Return who holds the shard of each node and each job. Raises TimeoutError."""
    await ready(bus, watch, 1)
    held = await holders(bus)
    return {name: held.get(shard_of(name)) for name in (*sorted(watch.sampled), *sorted(watch.jobs))}


def labels_of(lines: str) -> list[Report]:
    """Return the faults that the simulator names, one JSON object a line."""
    return [json.loads(line) for line in lines.splitlines() if line.strip()]


if __name__ == "__main__":
    report = asyncio.run(main(sys.argv[1], sys.argv[2:]))
    click.echo(json.dumps(report))
    sys.exit(1 if report.get("problems") else 0)
