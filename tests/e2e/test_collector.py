"""What `heeler run otlp` sends arrives in a real OpenTelemetry Collector, each point as the bus said it."""

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from certs import Authority
from collectorkit import BUILT, ROOT, Collector, Heeler, Process, build, points, records, running, spans
from natsserver import NatsServer
from needs import need
from otlplab import all_acked, publish
from otlpsamples import drain_action, finding, ib_sample, job_sample, kernel_event
from waiting import Reader, reading, until

from heeler.bus import ROUTES, Bus, ConsumerSpec, decode
from heeler.otlp.map import LOGS, METRICS
from heeler.otlp.reader import KINDS
from heeler.otlp.traces import TRACES

# The first of these tests may have to build the collector.
pytestmark = [pytest.mark.e2e, pytest.mark.bus, pytest.mark.timeout(1500)]
FLEET = ["--nodes", "16", "--window", "1s", "--status-every", "5s", "--cluster", "north"]


@pytest.fixture(autouse=True, scope="module")
def built() -> None:
    """Build the collector, before any test waits for anything."""
    build()


def settings(server: NatsServer, *sinks: Mapping[str, Any]) -> str:
    """Return the configuration of an exporter that sends everything at once."""
    lines = [
        f'[bus]\nservers = ["{server.url}"]\ncluster = "north"\n[otlp]\nevery_s = 0\nmetrics = ["all"]\nlinger_s = 0.1'
    ]
    for sink in sinks:
        about = {"kind": "otlp", "max_backoff_s": 0.3, **sink}
        lines.append("[[otlp.sinks]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in about.items()))
    return "\n".join(lines) + "\n"


class Exporter(Heeler):
    """``heeler run otlp`` that sends everything at once."""

    def __init__(self, folder: Path, server: NatsServer, *sinks: Mapping[str, Any]) -> None:
        super().__init__(folder, "otlp", settings(server, *sinks))
        self._sinks = len(sinks)

    def ready(self) -> bool:
        """Say whether all sinks have their places in the streams."""
        return (self.metric("heeler_otlp_ready") or 0) >= self._sinks


def as_said(point: Mapping[str, Any]) -> str:
    """Return all of a point that the bus knows: not where it came from, nor when its counter began."""
    about = [point[key] for key in ("metric", "unit", "kind", "ts")]
    return json.dumps([*about, float(point["value"]), point["attributes"]], sort_keys=True)


def expected(kind: str, messages: list[bytes]) -> Counter[str]:
    """Return the points that messages of the bus stand for."""
    made = (points_ for data in messages for points_ in METRICS[kind](decode(kind, data)))
    return Counter(as_said(point) for points_ in made for point in points_.flat())


def arrived(collector: Collector) -> Counter[str]:
    return Counter(as_said(one) for one in points(collector.arrived("resourceMetrics")) if not one["ended"])


async def acked(bus: Bus, *labels: str) -> bool:
    """Say whether everything on the bus has reached all sinks."""
    return all([await all_acked(bus, sink=label) for label in labels])


class Fleet(Process):
    """The simulator."""

    def __init__(self, folder: Path, server: NatsServer) -> None:
        super().__init__("sim", folder)
        self.argv = [sys.executable, "-m", "heeler.sim", *FLEET, "--url", server.url]

    def ready(self) -> bool:
        return "sim_started" in self.log.read_text()


async def test_every_point_of_a_fleet_arrives_as_the_bus_said_it_over_grpc_and_http_with_and_without_tls(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    need("openssl")
    authority = Authority(tmp_path / "ca")
    cert, key = map(str, authority.issue("localhost"))
    plain = Collector(tmp_path / "plain")
    secret = Collector(tmp_path / "tls", tls={"cert_file": cert, "key_file": key})
    trust = {"ca": str(authority.ca)}
    sinks = (
        {"name": "grpc", "endpoint": plain.grpc_url},
        {"name": "http", "endpoint": plain.http_url, "protocol": "http", "compression": "none"},
        {"name": "grpc-tls", "endpoint": secret.grpc_url, **trust},
        {"name": "http-tls", "endpoint": secret.http_url, "protocol": "http", **trust},
    )
    otlp = Exporter(tmp_path, nats_server, *sinks)
    bus_of = f'[bus]\nservers = ["{nats_server.url}"]\ncluster = "north"\n'
    enrich, fleet = Heeler(tmp_path, "enrich", bus_of), Fleet(tmp_path, nats_server)
    labels = [str(sink["name"]) for sink in sinks]
    async with AsyncExitStack() as stack:
        said: dict[str, Reader] = {}
        for kind in KINDS["metrics"]:
            spec = ConsumerSpec(ROUTES[kind].stream, (ROUTES[kind].pattern,))
            said[kind] = await stack.enter_async_context(reading(bus, spec))
        for process in (plain, secret, otlp, enrich):
            await asyncio.to_thread(process.start)
            stack.callback(process.stop)
        await asyncio.to_thread(fleet.start)
        stack.callback(fleet.stop)
        await said["JobSample"].has(3 * 16)
        await until(lambda: bool(said["AgentStatus"].got and said["IbSample"].got), "all kinds")
        await asyncio.to_thread(fleet.stop)
        await until(lambda: all_acked_of(bus, "enrich"), "enrich is through")
        await until(lambda: acked(bus, *labels), "all is sent")
        wanted = Counter[str]()
        for kind, reader in said.items():
            wanted += expected(kind, reader.data)
        for collector in (plain, secret):
            await until(lambda: arrived(collector).total() >= 2 * wanted.total(), "all is written")  # noqa: B023
    assert wanted.total() > 5000
    for collector in (plain, secret):
        found = arrived(collector)
        assert found == Counter({point: 2 * count for point, count in wanted.items()})  # by gRPC, and by HTTP
        counters = [one for one in points(collector.arrived("resourceMetrics")) if one["kind"] == "counter"]
        assert counters
        assert all(0 < one["start_ts"] <= one["ts"] and one["temporality"] == 2 for one in counters)


async def all_acked_of(bus: Bus, program: str) -> bool:
    """Say whether a program has done all that is in the streams it shares."""
    pending = 0
    for stream in ("SAMPLES", "EVENTS"):
        for info in await bus.js.consumers_info(stream):
            if info.name.startswith(program):
                pending += (info.num_pending or 0) + (info.num_ack_pending or 0)
    return not pending


async def test_findings_drains_and_events_arrive_with_all_that_they_say_and_as_spans_with_their_ids(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    said = [("Finding", finding()), ("DrainAction", drain_action()), ("JobKernelEvent", kernel_event())]
    collector = Collector(tmp_path / "c")
    sink = {"name": "collector", "endpoint": collector.http_url, "protocol": "http"}
    with running(collector, Exporter(tmp_path, nats_server, sink)):
        for kind, data in said:
            await publish(bus, kind, data)
        await until(lambda: len(list(records(collector.arrived("resourceLogs")))) >= 3, "the records")
        await until(lambda: len(list(spans(collector.arrived("resourceSpans")))) >= 5, "the spans")
    found = {one["event"]: one for one in records(collector.arrived("resourceLogs"))}
    for kind, data in said:
        entry = LOGS[kind](data)
        assert entry is not None
        one = found[entry.event]
        assert (one["body"], one["ts"], one["severity"]) == (entry.body, entry.ts_ns, entry.severity)
        assert one["severity_text"] == entry.severity_text
        assert one["attributes"] == {key: value for key, value in entry.attributes.items() if value is not None}
    traced = {(one["traceId"], one["spanId"]): one for one in spans(collector.arrived("resourceSpans"))}
    wanted = [span for kind, data in said for span in TRACES[kind](data, data["ts"])]
    assert len(traced) == len(wanted) == 5
    for span in wanted:
        one = traced[span.ids.trace.hex(), span.ids.span.hex()]
        assert (one["name"], int(one["startTimeUnixNano"])) == (span.name, span.start_ns)
        assert one.get("parentSpanId", "") == (span.parent.hex() if span.parent else "")
        assert [link["spanId"] for link in one.get("links", ())] == [ids.span.hex() for ids in span.links]
        if not span.name.startswith("kernel"):  # which ends when the bus has it
            assert int(one["endTimeUnixNano"]) == span.end_ns
            assert one.get("flags", 0) & 0xFF in (0, 1)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_a_collector_that_refuses_for_want_of_memory_dies_and_comes_back_misses_nothing(
    bus: Bus, nats_server: NatsServer, tmp_path: Path, protocol: str
) -> None:
    well = Collector(tmp_path / "c")
    short = Collector(
        tmp_path / "short", {"processors": {"memory_limiter": {"limit_mib": 1, "check_interval": "0.1s"}}}
    )
    url = {"grpc": well.grpc_url, "http": well.http_url}[protocol]
    # The one that is short of memory listens where the other will.
    text = (tmp_path / "short/otelcol.yaml").read_text()
    for old, new in ((short.grpc_port, well.grpc_port), (short.http_port, well.http_port)):
        text = text.replace(f":{old}", f":{new}")
    (tmp_path / "short/otelcol.yaml").write_text(text)
    otlp = Exporter(tmp_path, nats_server, {"name": "collector", "endpoint": url, "protocol": protocol})
    wanted: Counter[str] = Counter()

    async def windows(first: int, last: int) -> None:
        for window in range(first, last):
            for kind, data in (("JobSample", job_sample(window=window)), ("IbSample", ib_sample(window=window))):
                await publish(bus, kind, data)
                wanted.update(as_said(one) for made in METRICS[kind](data) for one in made.flat())

    def failures() -> float:
        return otlp.metric("heeler_otlp_failures_total") or 0

    with running(well, otlp):
        await windows(0, 10)
        # It answers when it has a request in its memory; what it has not written when it ends is lost.
        await until(lambda: len(arrived(well)) >= len(wanted), "the first ten are written")
        await asyncio.to_thread(well.stop)
        await asyncio.to_thread(short.start)
        await until(lambda: "above soft limit" in short.log.read_text(), "it is short of memory")
        before = failures()
        await windows(10, 20)
        await until(lambda: failures() >= before + 2, "it refuses, and again")
        assert not arrived(short)
        await asyncio.to_thread(short.kill)
        await windows(20, 30)
        await asyncio.to_thread(well.start)
        await until(lambda: all_acked(bus), "all of them")
        await until(lambda: len(arrived(well)) >= len(wanted), "all is written")
        assert otlp.metric("heeler_otlp_rejected_total") == 0
    found = arrived(well)
    assert set(found) == set(wanted)
    # A point may come twice, where the collector has died between taking it and saying so.
    assert found.total() - wanted.total() <= len(job_sample()["gpu"]["uuid"]) * 100


def test_the_collector_takes_the_configuration_of_the_compose_stack() -> None:
    path = ROOT / "deploy/docker/config/otel-collector.yaml"
    done = subprocess.run(
        [BUILT / "otelcol", "validate", "--config", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_compose_stack_has_the_versions_that_are_tried_here() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    pinned = dict(re.findall(r"^\t(\S+) v0\.(\S+)$", (ROOT / "tests/otelcol/go.mod").read_text(), re.MULTILINE))
    major, minor = re.match(r"(\d)(\d+)\.", pinned["github.com/prometheus/prometheus"]).groups()  # type: ignore[union-attr]
    assert services["prometheus"]["image"] == f"prom/prometheus:v{major}.{int(minor)}.0"
    assert services["otel-collector"]["image"].endswith(f":0.{pinned['go.opentelemetry.io/collector/otelcol']}")
