"""What an OTLP receiver may answer, and what the sink makes of it: over real gRPC and HTTP."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from otlpsamples import finding, job_sample

from heeler.otlp.exporter import OtlpSink
from heeler.otlp.logs import finding as map_finding
from heeler.otlp.map import gpu_points
from heeler.otlp.settings import SinkSettings
from heeler.otlp.sinks import Receipt, Rejected, TooLarge, Unavailable
from heeler.otlp.wire import Payload
from heeler.sim.receiver import Answer, Arrival, Receiver

CODE = grpc.StatusCode
DATA = Path(__file__).parent / "data"
PROTOCOLS = pytest.mark.parametrize("protocol", ["grpc", "http"])


@contextmanager
def receiving(**options: Any) -> Iterator[Receiver]:
    found = Receiver(**options)
    found.start()
    try:
        yield found
    finally:
        found.stop()


@contextmanager
def sending(receiver: Receiver, protocol: str, **options: Any) -> Iterator[OtlpSink]:
    url = receiver.grpc_url if protocol == "grpc" else receiver.http_url
    sink = OtlpSink(SinkSettings(kind="otlp", endpoint=url, protocol=protocol, **options))
    try:
        yield sink
    finally:
        sink.close()


def request(sink: OtlpSink, gpus: int = 2) -> Payload:
    (made,) = sink.prepare("metrics", [gpu_points(job_sample(gpus=gpus))])
    assert isinstance(made, Payload)
    return made


@PROTOCOLS
@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_points_and_records_arrive(protocol: str, compression: str) -> None:
    with receiving() as receiver, sending(receiver, protocol, compression=compression, headers={"X-Team": "a"}) as sink:
        made = request(sink)
        assert sink.send(made) == Receipt()
        (logs,) = sink.prepare("logs", [map_finding(finding())])
        assert sink.send(logs) == Receipt()
        assert len(receiver.points) == made.count
        assert receiver.logs[0]["attributes"]["heeler.finding.id"] == "f1"
        assert {key.lower() for key in receiver.arrivals[0].headers} >= {"x-team"}
        if protocol == "http":
            assert receiver.arrivals[0].headers.get("Content-Encoding") == ("gzip" if compression == "gzip" else None)


@PROTOCOLS
def test_secrets_come_from_the_environment(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer abc")
    with receiving() as receiver, sending(receiver, protocol) as sink:
        sink.send(request(sink))
        assert {k.lower(): v for k, v in receiver.arrivals[0].headers.items()}["authorization"] == "Bearer abc"


@PROTOCOLS
def test_a_partial_success_is_read(protocol: str) -> None:
    answer = Answer(rejected=3, message="too old")
    with receiving(answer=lambda _: answer) as receiver, sending(receiver, protocol) as sink:
        assert sink.send(request(sink)) == Receipt(3, "too old")


LATER = [
    ("grpc", Answer(grpc=code))
    for code in (
        CODE.UNAVAILABLE,
        CODE.CANCELLED,
        CODE.DEADLINE_EXCEEDED,
        CODE.ABORTED,
        CODE.OUT_OF_RANGE,
        CODE.DATA_LOSS,
        CODE.UNAUTHENTICATED,
        CODE.PERMISSION_DENIED,
        CODE.UNIMPLEMENTED,
    )
] + [("http", Answer(http=status)) for status in (429, 502, 503, 504, 401, 403, 404, 302)]

NEVER = [
    ("grpc", Answer(grpc=code))
    for code in (CODE.INVALID_ARGUMENT, CODE.INTERNAL, CODE.UNKNOWN, CODE.NOT_FOUND, CODE.FAILED_PRECONDITION)
] + [("http", Answer(http=status)) for status in (400, 422, 500, 501)]

TOO_LARGE = [("grpc", Answer(grpc=CODE.RESOURCE_EXHAUSTED)), ("http", Answer(http=413))]


@pytest.mark.parametrize(
    ("protocol", "answer", "error"),
    [
        *((protocol, answer, Unavailable) for protocol, answer in LATER),
        *((protocol, answer, Rejected) for protocol, answer in NEVER),
        *((protocol, answer, TooLarge) for protocol, answer in TOO_LARGE),
    ],
    ids=str,
)
def test_each_answer_has_its_meaning(protocol: str, answer: Answer, error: type[Exception]) -> None:
    with receiving(answer=lambda _: answer) as receiver, sending(receiver, protocol) as sink:
        with pytest.raises(error):
            sink.send(request(sink))
        assert receiver.counts["points"] == 0
        receiver.answer = lambda _: Answer()
        assert sink.send(request(sink)) == Receipt()


def retry_info(seconds: float) -> RetryInfo:
    made = RetryInfo()
    made.retry_delay.FromTimedelta(__import__("datetime").timedelta(seconds=seconds))
    return made


def in_status(seconds: float) -> tuple[tuple[str, bytes], ...]:
    detail = AnyMessage()
    detail.Pack(retry_info(seconds))
    return (("grpc-status-details-bin", Status(details=[detail]).SerializeToString()),)


@pytest.mark.parametrize(
    ("protocol", "answer", "seconds"),
    [
        ("grpc", Answer(grpc=CODE.UNAVAILABLE, trailers=in_status(2.5)), 2.5),
        (
            "grpc",
            Answer(
                grpc=CODE.UNAVAILABLE,
                trailers=(("google.rpc.retryinfo-bin", retry_info(7).SerializeToString()),),
            ),
            7,
        ),
        ("grpc", Answer(grpc=CODE.RESOURCE_EXHAUSTED, trailers=in_status(3)), 3),
        ("grpc", Answer(grpc=CODE.UNAVAILABLE, trailers=(("grpc-status-details-bin", b"\xff\xff"),)), None),
        ("grpc", Answer(grpc=CODE.UNAVAILABLE), None),
        ("http", Answer(http=503, headers={"Retry-After": "12"}), 12),
        ("http", Answer(http=429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), 0),
        ("http", Answer(http=503, headers={"Retry-After": "soon"}), None),
        ("http", Answer(http=503, headers={"Retry-After": "-5"}), 0),
        ("http", Answer(http=503), None),
    ],
    ids=str,
)
def test_the_servers_word_on_when_to_come_back_is_heard(protocol: str, answer: Answer, seconds: float | None) -> None:
    with receiving(answer=lambda _: answer) as receiver, sending(receiver, protocol) as sink:
        with pytest.raises((Unavailable, TooLarge)) as caught:
            sink.send(request(sink))
        assert isinstance(caught.value, Unavailable | TooLarge)
        assert caught.value.after_s == seconds


def test_a_date_in_the_future_is_seconds_from_now() -> None:
    from email.utils import formatdate

    answer = Answer(http=503, headers={"Retry-After": formatdate(time.time() + 100, usegmt=True)})
    with receiving(answer=lambda _: answer) as receiver, sending(receiver, "http") as sink:
        with pytest.raises(Unavailable) as caught:
            sink.send(request(sink))
        assert caught.value.after_s is not None
        assert 60 < caught.value.after_s <= 100


@PROTOCOLS
def test_a_closed_port_is_an_outage_that_ends(protocol: str) -> None:
    with receiving() as first:
        ports = {"grpc_port": first.grpc_port, "http_port": first.http_port}
        with sending(first, protocol) as sink:
            sink.send(request(sink))
            first.stop()
            with pytest.raises(Unavailable):
                sink.send(request(sink))
            with receiving(**ports) as second:
                _until(lambda: _sent(sink))
                assert second.counts["points"] == request(sink).count


def _sent(sink: OtlpSink) -> bool:
    try:
        sink.send(request(sink))
    except Unavailable:
        return False
    return True


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def mute() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@PROTOCOLS
def test_a_receiver_that_never_answers_is_left_after_the_time_limit(protocol: str) -> None:
    with mute() as port:
        settings = SinkSettings(kind="otlp", endpoint=f"http://127.0.0.1:{port}", protocol=protocol, timeout_s=0.3)
        sink = OtlpSink(settings)
        with pytest.raises(Unavailable):
            sink.send(request(sink))
        sink.close()


def test_closing_ends_a_grpc_call_under_way() -> None:
    never = Answer(hold=threading.Event())
    arrived = threading.Event()

    def answer(_: Arrival) -> Answer:
        arrived.set()
        return never

    caught: list[Exception] = []
    with receiving(answer=answer) as receiver, sending(receiver, "grpc", timeout_s=600.0) as sink:

        def send() -> None:
            try:
                sink.send(request(sink))
            except Unavailable as error:
                caught.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        assert arrived.wait(30)
        sink.close()
        thread.join(30)
        assert not thread.is_alive()
        assert caught


@PROTOCOLS
def test_after_closing_nothing_is_sent(protocol: str) -> None:
    with receiving() as receiver, sending(receiver, protocol) as sink:
        sink.close()
        with pytest.raises(Unavailable):
            sink.send(request(sink))
        assert receiver.counts["requests"] == 0


def test_a_receiver_without_gzip_is_an_outage_unless_told_otherwise() -> None:
    with receiving(http_gzip=False) as receiver, sending(receiver, "http") as sink:
        for _ in range(3):
            with pytest.raises(Unavailable, match="415"):
                sink.send(request(sink))
        assert receiver.counts["points"] == 0


def test_a_receiver_without_gzip_is_sent_plain_requests_if_configured() -> None:
    with receiving(http_gzip=False) as receiver, sending(receiver, "http", gzip_fallback=True) as sink:
        sink.send(request(sink))
        sink.send(request(sink))
        assert receiver.counts["points"] == 2 * request(sink).count


def test_bad_data_is_no_reason_to_give_up_gzip() -> None:
    bad = Answer(http=400)
    with receiving(answer=lambda _: bad) as receiver, sending(receiver, "http", gzip_fallback=True) as sink:
        with pytest.raises(Rejected):
            sink.send(request(sink))
        receiver.answer = lambda _: Answer()
        sink.send(request(sink))
        assert receiver.arrivals[-1].headers["Content-Encoding"] == "gzip"


def test_a_message_over_the_servers_limit_teaches_a_lower_one() -> None:
    with receiving(max_grpc_bytes=200_000) as receiver, sending(receiver, "grpc") as sink:
        items = [gpu_points(job_sample(f"n{i}", gpus=8)) for i in range(20)]
        (made,) = sink.prepare("metrics", items)
        with pytest.raises(TooLarge):
            sink.send(made)
        assert max(len(one.data()) for one in sink.prepare("metrics", items)) < len(made.data())


@PROTOCOLS
def test_a_certificate_that_was_replaced_is_trusted_after_the_file_was(protocol: str, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes((DATA / "old.crt").read_bytes())
    with receiving(tls=(DATA / "old.crt", DATA / "old.key")) as receiver:
        ports = {"grpc_port": receiver.grpc_port, "http_port": receiver.http_port}
        with sending(receiver, protocol, ca=str(ca), timeout_s=5.0) as sink:
            sink.send(request(sink))
            receiver.stop()
            with receiving(tls=(DATA / "new.crt", DATA / "new.key"), **ports) as renewed:
                with pytest.raises(Unavailable):
                    sink.send(request(sink))
                assert renewed.counts["points"] == 0
                ca.write_bytes((DATA / "new.crt").read_bytes())
                _until(lambda: _sent(sink))
                assert renewed.counts["points"] == request(sink).count


@PROTOCOLS
def test_an_unknown_certificate_is_never_answered_in_plain_text(protocol: str) -> None:
    tls = (DATA / "old.crt", DATA / "old.key")
    with receiving(tls=tls) as receiver, sending(receiver, protocol, ca=str(DATA / "new.crt"), timeout_s=3.0) as sink:
        with pytest.raises(Unavailable):
            sink.send(request(sink))
        assert receiver.counts["requests"] == 0
