"""Batches, outages, back-pressure and the end of a lane, against a real receiver."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from otlplab import QUICK, Post
from otlpsamples import finding, job_sample
from structlog.testing import capture_logs
from waiting import until

from heeler.otlp.exporter import OtlpSink
from heeler.otlp.lane import Lane, Limits
from heeler.otlp.logs import finding as map_finding
from heeler.otlp.map import gpu_points
from heeler.otlp.points import Content, Points
from heeler.otlp.settings import SinkSettings
from heeler.otlp.sinks import Lines, Receipt, StdoutSink
from heeler.otlp.wire import Signal
from heeler.sim.receiver import Answer, Arrival, Receiver

CODE = grpc.StatusCode


@asynccontextmanager
async def lane_to(
    receiver: Receiver, protocol: str = "grpc", limits: Limits = QUICK, signal: Signal = "metrics", **options: Any
) -> AsyncIterator[Post]:
    url = receiver.grpc_url if protocol == "grpc" else receiver.http_url
    sink = OtlpSink(SinkSettings(kind="otlp", endpoint=url, protocol=protocol, timeout_s=5.0, **options))
    lane = Lane("test", signal, sink, limits)
    running = asyncio.create_task(lane.run())
    try:
        yield Post(lane)
    finally:
        await lane.stop(running, 0.2)
        sink.close()


async def test_messages_are_done_only_after_their_points_were_taken(receiver: Receiver) -> None:
    gate = threading.Event()
    receiver.answer = lambda _: Answer(hold=gate)
    async with lane_to(receiver) as post:
        await post.put("n1")
        await until(lambda: post.lane.tally.requests == 1)
        assert post.done == []
        gate.set()
        await until(lambda: post.done == ["n1"])
    assert receiver.counts["points"] == len(gpu_points(job_sample("n1")))


async def test_what_comes_close_together_goes_in_one_request(receiver: Receiver) -> None:
    async with lane_to(receiver, limits=Limits(linger_s=0.5)) as post:
        for number in range(20):
            await post.put(f"n{number}")
        await until(lambda: len(post.done) == 20)
    assert post.lane.tally.requests == 1
    assert post.done == [f"n{number}" for number in range(20)]


async def test_a_batch_that_is_full_does_not_wait(receiver: Receiver) -> None:
    async with lane_to(receiver, limits=Limits(batch_points=10, linger_s=9.0)) as post:
        await post.put("n1")
        await until(lambda: post.done == ["n1"], timeout_s=8)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_an_outage_is_said_once_and_ends_without_a_loss(receiver: Receiver, protocol: str) -> None:
    down = Answer(grpc=CODE.UNAVAILABLE, http=503)
    receiver.answer = lambda _: down
    with capture_logs() as logs:
        async with lane_to(receiver, protocol) as post:
            for number in range(5):
                await post.put(f"n{number}")
            await until(lambda: post.lane.tally.failures >= 4)
            assert post.done == []
            receiver.answer = lambda _: Answer()
            await until(lambda: len(post.done) == 5)
    events = [log["event"] for log in logs if log["event"].startswith("sink_")]
    assert events == ["sink_unavailable", "sink_available"]
    assert post.lane.tally.outages == 1
    assert receiver.counts["points"] == 5 * len(gpu_points(job_sample("n1")))


async def test_a_second_outage_is_said_again(receiver: Receiver) -> None:
    with capture_logs() as logs:
        async with lane_to(receiver) as post:
            for number in range(2):
                receiver.answer = lambda _: Answer(grpc=CODE.UNAVAILABLE)
                await post.put(f"n{number}")
                await until(lambda: post.lane.tally.outages == number + 1)  # noqa: B023 - waited for in the loop
                receiver.answer = lambda _: Answer()
                await until(lambda: len(post.done) == number + 1)  # noqa: B023 - waited for in the loop
    assert [log["event"] for log in logs].count("sink_unavailable") == 2


async def test_what_is_too_large_comes_in_halves_and_never_twice(receiver: Receiver) -> None:
    def answer(arrival: Arrival) -> Answer:
        return Answer(grpc=CODE.RESOURCE_EXHAUSTED) if arrival.size > 20_000 else Answer()

    receiver.answer = answer
    async with lane_to(receiver, limits=Limits(linger_s=0.3)) as post:
        for number in range(16):
            await post.put(f"n{number}", gpu_points(job_sample(f"n{number}", gpus=8)))
        await until(lambda: len(post.done) == 16)
    sizes = [arrival.size for arrival in receiver.arrivals]
    assert max(sizes) > 20_000
    refused = [(arrival.size, arrival.items) for arrival in receiver.arrivals if arrival.size > 20_000]
    assert len(refused) == len(set(refused))
    keys = [str((p["metric"], sorted(p["attributes"].items()))) for p in receiver.points]
    assert len(keys) == len(set(keys)) == 16 * len(gpu_points(job_sample("n1", gpus=8)))


async def test_a_point_that_is_too_large_alone_is_counted_and_the_others_go_on(receiver: Receiver) -> None:
    def answer(arrival: Arrival) -> Answer:
        return Answer(http=413) if arrival.size > 6_000 else Answer()

    receiver.answer = answer
    giant = gpu_points(job_sample("n0", gpus=1, gpu={"uuid": ["GPU-" + "x" * 9_000]}, mean={"power_w": [1.0]}))
    async with lane_to(receiver, "http", limits=Limits(linger_s=0.2)) as post:
        await post.put("giant", giant)
        await post.put("n1")
        await until(lambda: len(post.done) == 2)
    assert post.lane.tally.too_large == len(giant)
    assert receiver.counts["points"] == len(gpu_points(job_sample("n1")))


async def test_points_refused_for_good_are_counted_and_not_sent_again(receiver: Receiver) -> None:
    receiver.answer = lambda _: Answer(grpc=CODE.INVALID_ARGUMENT)
    async with lane_to(receiver) as post:
        await post.put("n1")
        await until(lambda: post.done == ["n1"])
    assert post.lane.tally.rejected == len(gpu_points(job_sample("n1")))
    assert post.lane.tally.sent == 0
    assert receiver.counts["requests"] == 1


async def test_a_partial_success_counts_what_was_refused(receiver: Receiver) -> None:
    receiver.answer = lambda _: Answer(rejected=3, message="out of order")
    with capture_logs() as logs:
        async with lane_to(receiver) as post:
            await post.put("n1")
            await until(lambda: post.done == ["n1"])
    assert post.lane.tally.rejected == 3
    assert post.lane.tally.sent == len(gpu_points(job_sample("n1"))) - 3
    assert [log["message"] for log in logs if log["event"] == "partly_rejected"] == ["out of order"]


async def test_a_full_lane_makes_its_readers_wait(receiver: Receiver) -> None:
    gate = threading.Event()
    receiver.answer = lambda _: Answer(hold=gate)
    async with lane_to(receiver, limits=Limits(batch_points=1, held_messages=3, linger_s=0.0)) as post:
        writers = asyncio.gather(*(post.put(f"n{number}") for number in range(10)))
        await until(lambda: post.lane.held() == 4)  # one under way, three held
        assert not writers.done()
        gate.set()
        await writers
        await until(lambda: len(post.done) == 10)


async def test_metrics_that_hang_do_not_hold_up_findings(receiver: Receiver) -> None:
    gate = threading.Event()
    receiver.answer = lambda arrival: Answer(hold=gate) if arrival.signal == "metrics" else Answer()
    async with lane_to(receiver) as metrics, lane_to(receiver, signal="logs") as logs:
        await metrics.put("n1")
        await until(lambda: metrics.lane.tally.requests == 1)
        await logs.put("f1", map_finding(finding()))
        await until(lambda: logs.done == ["f1"])
        assert metrics.done == []
        gate.set()


async def test_stopping_gives_back_what_was_not_sent_and_says_how_much(receiver: Receiver) -> None:
    receiver.answer = lambda _: Answer(grpc=CODE.UNAVAILABLE)
    with capture_logs() as logs:
        async with lane_to(receiver, limits=Limits(batch_points=1, linger_s=0.0)) as post:
            for number in range(5):
                await post.put(f"n{number}")
            await until(lambda: post.lane.tally.outages == 1)
    assert sorted(post.back) == [f"n{number}" for number in range(5)]
    assert post.done == []
    (stopped,) = [log for log in logs if log["event"] == "lane_stopped"]
    assert stopped["unsent"] == post.lane.tally.unsent == 5 * len(gpu_points(job_sample("n1")))
    assert stopped["unsent_messages"] == 5


async def test_stopping_sends_what_is_held_first(receiver: Receiver) -> None:
    sink = OtlpSink(SinkSettings(kind="otlp", endpoint=receiver.grpc_url))
    lane = Lane("test", "metrics", sink, Limits(linger_s=9.0))
    post = Post(lane)
    running = asyncio.create_task(lane.run())
    for number in range(5):
        await post.put(f"n{number}")
    await lane.stop(running, 30)
    sink.close()
    assert len(post.done) == 5
    assert post.back == []
    assert lane.tally.unsent == 0


class Picky(StdoutSink):
    """A sink that can't take a certain node, as a plug-in might."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Lines] = []

    def prepare(self, signal: Signal, items: Sequence[Content]) -> list[Lines]:
        if any(isinstance(item, Points) and item.scope[2] == "bad" for item in items):
            raise ValueError("not this one")
        return super().prepare(signal, items)

    def send(self, request: Lines) -> Receipt:
        self.sent.append(request)
        if len(self.sent) == 1:
            raise ZeroDivisionError
        return Receipt()


async def test_an_item_without_a_form_costs_no_other_and_a_sinks_bug_is_an_outage() -> None:
    sink = Picky()
    lane = Lane("test", "metrics", sink, QUICK)
    post = Post(lane)
    running = asyncio.create_task(lane.run())
    for name in ("n1", "bad", "n2"):
        await post.put(name)
    await until(lambda: len(post.done) == 2)
    await lane.stop(running, 1)
    assert (post.done, post.poison) == (["n1", "n2"], ["bad"])
    assert lane.tally.outages == 1
