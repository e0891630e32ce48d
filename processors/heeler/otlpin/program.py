"""otlp-in as a process."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgpack
import structlog
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from heeler.bus import (
    ROUTES,
    Bus,
    BusClosedError,
    BusError,
    Consumer,
    ConsumerSpec,
    DecodeError,
    Delivery,
    decode,
    escape,
    prefix_of,
    unescape,
)
from heeler.bus.subjects_gen import BUCKETS
from heeler.bus.tokens import TokenError
from heeler.engine.live import closed, until_first
from heeler.engine.process import Context, Program
from heeler.otlp.settings import SinkSettings
from heeler.otlp.sinks import open_sink
from heeler.otlpin.holders import Found, Holders
from heeler.otlpin.relay import Outlet, Relay
from heeler.otlpin.server import Server
from heeler.otlpin.settings import OtlpInSettings
from heeler.otlpin.stamp import stamp

log = structlog.get_logger("heeler.otlp_in")

BUCKET = "job_map"
NS = 1_000_000_000


class Watch:
    """What the bus says of who has what: the keys of nodes in job_map, and the agents' inventories."""

    def __init__(self, bus: Bus, settings: OtlpInSettings) -> None:
        self.unreadable = 0
        self._bus, self._stale_s = bus, settings.stale_s
        self._connected_s = time.monotonic()
        ttl_s = BUCKETS[BUCKET].ttl
        assert ttl_s, "a map that nobody keeps is not believed for ever"
        self.holders = Holders(int(ttl_s * NS), settings.trust_index, settings.attributes)
        cluster, route = escape(bus.cluster), ROUTES["Inventory"]
        nodes = ConsumerSpec(f"KV_{BUCKET}", (f"{cluster}.node.*",), start="last", prefix=f"$KV.{BUCKET}.")
        inventories = ConsumerSpec(route.stream, (route.pattern,), start="last", prefix=prefix_of(bus.cluster))
        self._consumers = (Consumer(bus, nodes, self._on_node), Consumer(bus, inventories, self._on_inventory))

    async def start(self) -> list[asyncio.Task[None]]:
        """Read all that stands; returns what goes on reading."""
        for consumer in self._consumers:
            await consumer.start()
        tasks = [asyncio.create_task(consumer.watch()) for consumer in self._consumers]
        tasks.append(asyncio.create_task(self._look()))
        for consumer in self._consumers:
            await consumer.caught_up.wait()
        log.info("map_read", nodes=len(self.holders))
        return tasks

    def stale(self) -> bool:
        """Say whether the bus has been away for so long that the map may be wrong."""
        return time.monotonic() - self._connected_s > self._stale_s

    async def _look(self) -> None:
        while True:
            if self._bus.client.is_connected:
                self._connected_s = time.monotonic()
            await asyncio.sleep(min(1.0, self._stale_s / 4))

    async def _on_node(self, delivery: Delivery) -> None:
        try:
            value = msgpack.unpackb(delivery.data) if delivery.data else None
            if value is None or (delivery.headers or {}).keys() & {"KV-Operation", "Nats-Marker-Reason"}:
                self._gone(delivery)
            else:
                self.holders.put(value["node"], {"ts": int(value["ts"]), "jobs": [_job(job) for job in value["jobs"]]})
        except Exception as error:  # noqa: BLE001 - whatever stands there, the other nodes must be heard
            self.unreadable += 1
            self._gone(delivery)
            log.warning("map_unreadable", subject=delivery.subject, error=repr(error)[:300])

    def _gone(self, delivery: Delivery) -> None:
        try:
            self.holders.drop(unescape(delivery.subject.rpartition(".")[2]))
        except TokenError:
            log.warning("map_key_unreadable", subject=delivery.subject)

    async def _on_inventory(self, delivery: Delivery) -> None:
        try:
            self.holders.inventory(decode("Inventory", delivery.data))
        except DecodeError as error:
            self.unreadable += 1
            log.warning("inventory_unreadable", subject=delivery.subject, error=str(error)[:300])


def _job(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a job with what must be there."""
    return {**job, "job_id": str(job["job_id"]), "gpus_source": str(job["gpus_source"])}


class OtlpIn:
    """The parts of the process together."""

    def __init__(self, bus: Bus, settings: OtlpInSettings) -> None:
        self.settings = settings
        self.watch = Watch(bus, settings)
        self.relay = Relay(
            self.stamp,
            [Outlet(sink.label, _sinks(sink, settings.connections)) for sink in settings.sinks],
            most_requests=settings.most_requests,
            most_bytes=settings.most_held_bytes,
            retry_s=settings.retry_s,
        )
        self.server = Server(self.relay, settings)

    def stamp(self, request: ExportMetricsServiceRequest) -> Counter[str]:
        """Add to a request what is known. With a map that may be wrong, nothing."""
        holders, now_ns = self.watch.holders, time.time_ns()
        if self.watch.stale():
            stale = Found("unknown_node")
            counts = stamp(request, self.settings.keys, lambda _: stale, lambda _, __: stale)
            return Counter(stale=counts.total())
        return stamp(
            request,
            self.settings.keys,
            lambda node: holders.of_node(node, now_ns),
            lambda node, gpu: holders.of_gpu(node, gpu, now_ns),
        )

    def metrics(self) -> Mapping[str, float]:
        """Return what is counted."""
        relay = self.relay
        return {
            **{f"otlp_in_points_total.{what}": count for what, count in relay.points.items()},
            **{f"otlp_in_requests_total.{verdict}": count for verdict, count in relay.requests.items()},
            "otlp_in_requests": relay.held,
            "otlp_in_held_bytes": relay.held_bytes,
            "otlp_in_nodes": len(self.watch.holders),
            "otlp_in_map_stale": float(self.watch.stale()),
            "otlp_in_map_unreadable_total": self.watch.unreadable,
        }


def _sinks(settings: SinkSettings, connections: int) -> list[Any]:
    many = connections if settings.kind == "otlp" else 1
    return [open_sink(replace(settings, signals=("metrics",))) for _ in range(many)]


async def main(context: Context) -> None:
    """Listen until stopped. Raises BusClosedError when the bus is gone for good."""
    taker = OtlpIn(context.bus, context.settings["otlp_in"])
    context.metrics["otlp-in"] = taker.metrics
    tasks = await taker.watch.start()
    try:
        try:
            await taker.server.start()
        except OSError as error:
            raise BusError(f"can't listen: {error}") from error
        log.info("listening", grpc=taker.server.grpc_port, http=taker.server.http_port)
        await until_first(*tasks, asyncio.create_task(closed(context.bus)), stop=context.stop)
    finally:
        await taker.server.stop()
        taker.relay.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if context.bus.closed.is_set() and not context.stop.is_set():
        raise BusClosedError("the bus is closed")


PROGRAM = Program(
    "otlp-in",
    "Take OTLP metrics of other exporters, add who has each GPU and node in Slurm, and pass them on.",
    main,
    {"otlp_in": OtlpInSettings},
)
