"""Traces as their receivers see them: over real gRPC and HTTP, from a real bus, by one exporter or several."""

import json
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from otlplab import all_acked, exporting, publish, to, value
from otlpsamples import T0, WINDOW, drain_action, finding, kernel_event
from waiting import until

from heeler.bus import Bus
from heeler.otlp.settings import SinkSettings
from heeler.sim.receiver import Answer, Receiver

pytestmark = pytest.mark.bus

ENTITY = {"type": "gpu", "node": "n1", "gpu_uuid": "GPU-n1-0", "boot": "b1", "event_seq": 7}
ROAD = [
    ("JobKernelEvent", kernel_event(7)),
    ("Finding", finding(kind="xid", entity=ENTITY)),
    ("Finding", finding(kind="xid", entity=ENTITY, state="update", ts=T0 + 2 * WINDOW)),
    ("DrainAction", drain_action(1, verdict="approved", dry_run=False, finding_ts=T0 + WINDOW, ts=T0 + 3 * WINDOW)),
    ("DrainAction", drain_action(2, verdict="verified", dry_run=False, ts=T0 + 4 * WINDOW)),
    ("DrainAction", drain_action(3, verdict="undrained", step="undrain", dry_run=False, ts=T0 + 8 * WINDOW)),
    ("Finding", finding(kind="xid", entity=ENTITY, state="closed", ts=T0 + 9 * WINDOW)),
]
NAMES = {"kernel xid", "finding xid", "seen", "detect", "drain approved", "drain verified", "undrain undrained", "open"}


async def tell(bus: Bus, messages: list[tuple[str, dict[str, Any]]] | None = None) -> None:
    for kind, data in ROAD if messages is None else messages:
        await publish(bus, kind, data)


def identity(spans: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return sorted((one["span"], one["trace_id"], one["span_id"], one["parent_span_id"]) for one in spans)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_the_road_of_a_fault_arrives_as_one_trace(bus: Bus, receiver: Receiver, protocol: str) -> None:
    url = receiver.grpc_url if protocol == "grpc" else receiver.http_url
    async with exporting(bus, to(receiver, endpoint=url, protocol=protocol)):
        await tell(bus)
        await until(lambda: len(receiver.spans) >= len(NAMES) and len(receiver.logs) >= len(ROAD), "all")
        await until(lambda: all_acked(bus), "acks")
    assert receiver.counts["faults"] == 0
    by_name = {span["span"]: span for span in receiver.spans}
    assert by_name.keys() == NAMES
    assert len(receiver.spans) == len(NAMES)
    event, root = by_name.pop("kernel xid"), by_name["finding xid"]
    assert {span["trace_id"] for span in by_name.values()} == {root["trace_id"]}
    parents = {name: span["parent_span_id"] for name, span in by_name.items()}
    assert parents == {name: "" if name == "finding xid" else root["span_id"] for name in by_name}
    assert by_name["seen"]["links"] == [{key: event[key] for key in ("trace_id", "span_id")}]
    # Every record leads to a span that is there, and those of one road to one trace.
    spans = {(span["trace_id"], span["span_id"]): span["span"] for span in receiver.spans}
    led = [(log["event"], spans[log["trace_id"], log["span_id"]]) for log in receiver.logs]
    assert sorted(led) == sorted(
        [
            ("heeler.kernel", "kernel xid"),
            ("heeler.finding", "finding xid"),
            ("heeler.finding", "finding xid"),
            ("heeler.finding", "open"),
            ("heeler.drain", "drain approved"),
            ("heeler.drain", "drain verified"),
            ("heeler.drain", "undrain undrained"),
        ]
    )


async def test_exporters_that_know_nothing_of_each_other_make_one_trace(
    bus: Bus, receiver: Receiver, tmp_path: Path
) -> None:
    """What one process exported before it was stopped, another continues; a file has the same ids as a receiver."""
    path = tmp_path / "out.jsonl"
    file = SinkSettings(kind="file", path=str(path), signals=("traces",))
    async with exporting(bus, to(receiver, signals=("traces",)), file):
        await tell(bus, ROAD[:2])
        await until(lambda: len(receiver.spans) == 4, "what began")
    async with exporting(bus, to(receiver, signals=("traces",)), file):
        await tell(bus, ROAD[2:])
        await until(lambda: len(receiver.spans) == len(NAMES), "what ended")
        await until(lambda: path.exists() and len(path.read_text().splitlines()) == len(NAMES), "the file")
    assert {span["span"] for span in receiver.spans} == NAMES
    written = [{"parent_span_id": "", **json.loads(text)} for text in path.read_text().splitlines()]
    assert identity(written) == identity(receiver.spans)
    assert len({span["trace_id"] for span in receiver.spans if span["span"] != "kernel xid"}) == 1


async def test_an_outage_and_a_message_that_comes_twice_make_the_same_spans(bus: Bus, receiver: Receiver) -> None:
    answers = [Answer(grpc=grpc.StatusCode.UNAVAILABLE), Answer(rejected=1, message="too old")]
    receiver.answer = lambda arrival: answers.pop(0) if answers and arrival.signal == "traces" else Answer()
    async with exporting(bus, to(receiver)) as context:
        await tell(bus)
        await until(lambda: all_acked(bus), "acks")
        # As a replay does: nothing of what was exported is remembered on the bus.
        for kind in ("JobKernelEvent-traces", "Finding-traces", "DrainAction-traces"):
            stream = {"J": "EVENTS", "F": "FINDINGS", "D": "DRAIN"}[kind[0]]
            assert await bus.js.delete_consumer(stream, f"otlp-collector-{kind}")
        assert value(context, "otlp_rejected_total.collector_traces") == 1
        assert value(context, "otlp_outages_total.collector_traces") == 1
        assert value(context, "otlp_sent_total.collector_traces") == len(NAMES) - 1
    async with exporting(bus, to(receiver)):
        await until(lambda: len(receiver.spans) == 2 * len(NAMES), "all again")
    assert identity(receiver.spans[: len(NAMES)]) == identity(receiver.spans[len(NAMES) :])


async def test_a_sink_takes_traces_only_where_they_are_wanted(bus: Bus, receiver: Receiver) -> None:
    async with exporting(bus, to(receiver, signals=("metrics", "logs"))):
        await tell(bus)
        await until(lambda: len(receiver.logs) == len(ROAD), "records")
        await until(lambda: all_acked(bus, signals=("metrics", "logs")), "acks")
    assert receiver.spans == []


async def test_a_receiver_without_traces_is_told_of_and_delays_no_record(bus: Bus, receiver: Receiver) -> None:
    def without(arrival: Any) -> Answer:
        return Answer(grpc=grpc.StatusCode.UNIMPLEMENTED) if arrival.signal == "traces" else Answer()

    receiver.answer = without
    async with exporting(bus, to(receiver), stop_s=0.1) as context:
        await tell(bus)
        await until(lambda: len(receiver.logs) == len(ROAD), "records")
        await until(lambda: value(context, "otlp_outages_total.collector_traces") == 1, "an outage")
        assert value(context, "otlp_outages_total.collector_logs") == 0
