"""otlp-in on a real bus, between real senders over gRPC and HTTP and a real receiver."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import grpc  # type: ignore[import-untyped]
import msgpack
import pytest
import requests
from certs import Authority
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from needs import need
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from waiting import until

from heeler.bus import Bus
from heeler.bus.values import Values
from heeler.engine.process import Context
from heeler.otlp.settings import SinkSettings
from heeler.otlpin.program import OtlpIn, main
from heeler.otlpin.settings import OtlpInSettings
from heeler.sim.receiver import Answer, Receiver

pytestmark = pytest.mark.bus
JOB = {
    "job_id": "7",
    "gpus_source": "slurm_index",
    "user": "ann",
    "account": "ml",
    "partition": "a",
    "uuids": ["GPU-1"],
}


@asynccontextmanager
async def taking(bus: Bus, *sinks: SinkSettings, **settings: Any) -> AsyncIterator[OtlpIn]:
    """Run the program; gives its parts, with the ports."""
    made: list[OtlpIn] = []
    section = OtlpInSettings(grpc="127.0.0.1:0", http="127.0.0.1:0", sinks=sinks, **{"stop_s": 0.5, **settings})
    section.validate()
    context = Context(bus, {"otlp_in": section}, "test", asyncio.Event())
    patch = pytest.MonkeyPatch()
    original = OtlpIn.__init__

    def keep(self: OtlpIn, *args: Any) -> None:
        original(self, *args)
        made.append(self)

    patch.setattr(OtlpIn, "__init__", keep)
    task = asyncio.create_task(main(context))
    try:
        await until(lambda: task.done() or bool(made and made[0].server.http_port), "listening")
        if task.done():
            task.result()
        yield made[0]
    finally:
        context.stop.set()
        await task
        patch.undo()


def to(receiver: Receiver, **more: Any) -> SinkSettings:
    return SinkSettings(
        **{"kind": "otlp", "endpoint": receiver.grpc_url, "signals": ("metrics",), "timeout_s": 3.0, **more}
    )


async def put(bus: Bus, node: str, *jobs: dict[str, Any]) -> None:
    value = {"v": 1, "cluster": "north", "node": node, "ts": time.time_ns(), "jobs": list(jobs)}
    await (await Values.open(bus, "job_map")).put({f"north.node.{node}": msgpack.packb(value)})


def request(
    *points: dict[str, str], node: str = "n1", name: str = "DCGM_FI_DEV_POWER_USAGE"
) -> ExportMetricsServiceRequest:
    """What a collector sends that scrapes dcgm-exporter."""
    made = ExportMetricsServiceRequest()
    resource = made.resource_metrics.add()
    one = resource.resource.attributes.add(key="service.instance.id")
    one.value.string_value = f"{node}:9400"
    metric = resource.scope_metrics.add().metrics.add(name=name, unit="W")
    for about in points:
        point = metric.gauge.data_points.add(time_unix_nano=time.time_ns(), as_double=300.0)
        for key, value in about.items():
            point.attributes.add(key=key).value.string_value = value
    return made


def call(taker: OtlpIn, sent: ExportMetricsServiceRequest, **more: Any) -> Any:
    with grpc.insecure_channel(f"127.0.0.1:{taker.server.grpc_port}") as channel:
        stub: Any = metrics_grpc.MetricsServiceStub(channel)  # type: ignore[no-untyped-call]
        return stub.Export(sent, timeout=10, **more)


async def send(taker: OtlpIn, sent: ExportMetricsServiceRequest, **more: Any) -> Any:
    return await asyncio.to_thread(call, taker, sent, **more)


async def post(taker: OtlpIn, data: bytes, **headers: str) -> requests.Response:
    url = f"http://127.0.0.1:{taker.server.http_port}/v1/metrics"
    about = {"Content-Type": "application/x-protobuf"} | {
        key.replace("_", "-"): value for key, value in headers.items()
    }
    return await asyncio.to_thread(requests.post, url, data=data, headers=about, timeout=10)


async def test_points_of_dcgm_exporter_get_the_job_of_their_gpu_over_grpc_and_http(
    bus: Bus, receiver: Receiver
) -> None:
    await put(bus, "n1", JOB)
    sent = request(
        {"gpu": "0", "UUID": "GPU-1", "Hostname": "n1"},
        {"gpu": "1", "UUID": "GPU-2", "Hostname": "n1"},
        {"gpu": "0", "UUID": "GPU-9", "Hostname": "n9"},
    )
    async with taking(bus, to(receiver)) as taker:
        await send(taker, sent, compression=grpc.Compression.Gzip)
        assert (await post(taker, sent.SerializeToString())).status_code == 200
        packed = gzip.compress(sent.SerializeToString())
        assert (await post(taker, packed, Content_Encoding="gzip")).status_code == 200
        counted = taker.metrics()
    assert receiver.counts["points"] == 9
    by_gpu = {point["attributes"]["UUID"]: point["attributes"] for point in receiver.points}
    about = {"slurm.job.id": "7", "slurm.user": "ann", "slurm.account": "ml", "slurm.partition": "a"}
    assert by_gpu["GPU-1"].items() >= about.items()
    for other in ("GPU-2", "GPU-9"):
        assert not any(key.startswith("slurm.") for key in by_gpu[other])
    assert [counted[f"otlp_in_points_total.{what}"] for what in ("held", "free", "unknown_node")] == [3, 3, 3]


async def test_jobs_that_come_and_go_are_heard_while_it_runs(bus: Bus, receiver: Receiver) -> None:
    await put(bus, "n1", JOB)
    async with taking(bus, to(receiver)) as taker:
        sent = request({"UUID": "GPU-1"})

        async def last() -> str | None:
            await send(taker, sent)
            found: str | None = receiver.points[-1]["attributes"].get("slurm.job.id")
            return found

        assert await last() == "7"
        await put(bus, "n1", {**JOB, "job_id": "8"})

        async def is_8() -> bool:
            return await last() == "8"

        await until(is_8, "the next job")
        await (await Values.open(bus, "job_map")).delete(["north.node.n1"])

        async def is_none() -> bool:
            return await last() is None

        await until(is_none, "the key that has gone")


async def test_node_exporter_s_points_get_the_job_of_the_node(bus: Bus, receiver: Receiver) -> None:
    await put(bus, "n1", JOB)
    async with taking(bus, to(receiver)) as taker:
        await send(taker, request({"device": "eth0"}, name="node_network_receive_bytes"))
    (point,) = receiver.points
    assert point["attributes"]["slurm.job.id"] == "7"
    assert point["attributes"]["device"] == "eth0"


def every_kind() -> ExportMetricsServiceRequest:
    made = request({"UUID": "GPU-1"})
    metrics = made.resource_metrics[0].scope_metrics[0].metrics
    total = metrics.add(name="sum")
    total.sum.data_points.add(as_int=3)
    total.sum.is_monotonic = True
    histogram = metrics.add(name="histogram").histogram.data_points.add(count=2, sum=3.0, bucket_counts=[1, 1])
    histogram.explicit_bounds.append(1.0)
    metrics.add(name="exponential").exponential_histogram.data_points.add(count=2, scale=3)
    metrics.add(name="summary").summary.data_points.add(count=2, sum=3.0)
    return made


async def test_all_kinds_of_points_go_through_as_they_came(bus: Bus, receiver: Receiver, tmp_path: Path) -> None:
    arrived: list[ExportMetricsServiceRequest] = []

    def take(self: Receiver, arrival: Any, message: Any) -> Any:
        arrived.append(message)
        return Answer()

    patch = pytest.MonkeyPatch()
    patch.setattr(Receiver, "take", take)
    try:
        async with taking(bus, to(receiver), SinkSettings(kind="file", path=str(tmp_path / "out"))) as taker:
            await send(taker, every_kind())
    finally:
        patch.undo()
    (found,) = arrived
    sent = every_kind()
    for one in (found, sent):  # the only thing that may differ
        for resource in one.resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                if metric.WhichOneof("data") == "gauge":
                    metric.gauge.data_points[0].time_unix_nano = 1
    assert found == sent
    assert len((tmp_path / "out").read_text().splitlines()) == 5


async def test_what_does_not_fit_into_one_request_of_the_sink_goes_in_several(bus: Bus, receiver: Receiver) -> None:
    async with taking(bus, to(receiver, max_bytes=4096)) as taker:
        await send(taker, request(*({"UUID": f"GPU-{n}", "pad": "x" * 100} for n in range(200))))
    assert receiver.counts["points"] == 200
    assert len({point["attributes"]["UUID"] for point in receiver.points}) == 200
    assert len(receiver.arrivals) > 5


async def test_beyond_its_room_it_refuses_at_once_and_says_when_to_come_again(bus: Bus, receiver: Receiver) -> None:
    hold = Event()
    receiver.answer = lambda _: Answer(hold=hold)
    async with taking(bus, to(receiver), most_requests=2, retry_s=1.5) as taker:
        under_way = [asyncio.create_task(send(taker, request({"UUID": "GPU-1"}))) for _ in range(2)]
        await until(lambda: taker.relay.held == 2, "two under way")
        with pytest.raises(grpc.RpcError) as caught:
            await send(taker, request({"UUID": "GPU-1"}))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
        info = RetryInfo()
        assert Status.FromString(details).details[0].Unpack(info)
        assert (info.retry_delay.seconds, info.retry_delay.nanos) == (1, 500_000_000)
        answer = await post(taker, request({"UUID": "GPU-1"}).SerializeToString())
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")
        hold.set()
        await asyncio.gather(*under_way)
        assert taker.relay.held == taker.relay.held_bytes == 0
        assert taker.metrics()["otlp_in_requests_total.busy"] == 2


async def test_an_outage_of_the_sink_is_the_sender_s_to_wait_for(bus: Bus, receiver: Receiver) -> None:
    sink = to(receiver)
    async with taking(bus, sink) as taker:
        receiver.answer = lambda _: Answer(grpc=grpc.StatusCode.UNAVAILABLE)
        with pytest.raises(grpc.RpcError) as caught:
            await send(taker, request({"UUID": "GPU-1"}))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        answer = await post(taker, request({"UUID": "GPU-1"}).SerializeToString())
        assert answer.status_code == 503
        assert "Retry-After" in answer.headers
        receiver.answer = lambda _: Answer(rejected=1, message="too old")
        assert (await send(taker, request({"UUID": "GPU-1"}))).partial_success.rejected_data_points == 1
        receiver.answer = lambda _: Answer()
        assert not (await send(taker, request({"UUID": "GPU-1"}))).partial_success.rejected_data_points


async def test_what_is_no_request_is_refused_for_good(bus: Bus, receiver: Receiver) -> None:
    async with taking(bus, to(receiver), max_bytes=10_000) as taker:
        assert (await post(taker, b"\xff\xff nonsense")).status_code == 400
        assert (await post(taker, b"not gzip", Content_Encoding="gzip")).status_code == 400
        assert (await post(taker, gzip.compress(bytes(100_000)), Content_Encoding="gzip")).status_code == 413
        assert (await post(taker, bytes(20_000))).status_code == 413
        assert (await post(taker, b"x", Content_Encoding="zstd")).status_code == 400
        assert (await post(taker, b"{}", Content_Type="application/json")).status_code == 415
        assert (await post(taker, b"")).status_code == 200, "no points are no fault"
        url = f"http://127.0.0.1:{taker.server.http_port}/v1/metrics"
        assert (await asyncio.to_thread(requests.get, url, timeout=10)).status_code == 405
    assert not receiver.arrivals


async def test_a_value_that_can_not_be_read_is_counted_and_the_others_are_heard(bus: Bus, receiver: Receiver) -> None:
    values = await Values.open(bus, "job_map")
    await values.put({"north.node.n0": b"\xc1", "north.node.n2": msgpack.packb({"node": "n2", "jobs": 3, "ts": 1})})
    await put(bus, "n1", JOB)
    async with taking(bus, to(receiver)) as taker:
        await send(taker, request({"UUID": "GPU-1"}))
        assert taker.metrics()["otlp_in_map_unreadable_total"] == 2
    assert receiver.points[0]["attributes"]["slurm.job.id"] == "7"


async def test_with_the_bus_away_for_long_the_map_is_not_believed(
    bus: Bus, receiver: Receiver, nats_server: Any
) -> None:
    await put(bus, "n1", JOB)
    async with taking(bus, to(receiver), stale_s=0.5) as taker:
        nats_server.freeze()
        nats_server.kill()
        await until(lambda: taker.metrics()["otlp_in_map_stale"] == 1.0, "a stale map")
        await send(taker, request({"UUID": "GPU-1"}))
        assert "slurm.job.id" not in receiver.points[-1]["attributes"]
        assert taker.metrics()["otlp_in_points_total.stale"] == 1
        nats_server.start()
        await until(lambda: taker.metrics()["otlp_in_map_stale"] == 0.0, "the map again")


async def test_with_tls_only_senders_with_a_certificate_are_taken(bus: Bus, receiver: Receiver, tmp_path: Path) -> None:
    need("openssl")
    authority = Authority(tmp_path / "tls")
    (cert, key), (mine, mine_key) = authority.issue("taker", "localhost"), authority.issue("collector")
    options = {"cert": str(cert), "key": str(key), "client_ca": str(authority.ca)}
    async with taking(bus, to(receiver), **options) as taker:

        def export(*own: bytes) -> Any:
            credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes(), *own)
            with grpc.secure_channel(f"localhost:{taker.server.grpc_port}", credentials) as channel:
                stub: Any = metrics_grpc.MetricsServiceStub(channel)  # type: ignore[no-untyped-call]
                return stub.Export(request({"UUID": "GPU-1"}), timeout=5)

        await asyncio.to_thread(export, mine_key.read_bytes(), mine.read_bytes())
        with pytest.raises(grpc.RpcError):
            await asyncio.to_thread(export)
        url, data = f"https://localhost:{taker.server.http_port}/v1/metrics", request({"UUID": "GPU-1"})
        about: dict[str, Any] = {
            "headers": {"Content-Type": "application/x-protobuf"},
            "verify": str(authority.ca),
            "timeout": 5,
        }
        good = await asyncio.to_thread(
            requests.post, url, data=data.SerializeToString(), cert=(str(mine), str(mine_key)), **about
        )
        assert good.status_code == 200
        with pytest.raises(requests.RequestException):
            await asyncio.to_thread(requests.post, url, data=data.SerializeToString(), **about)
