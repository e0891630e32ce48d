"""The engine in memory: intake, time, captures and chains of steps."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.bus import encode, subjects
from heeler.engine import Event, Inbound, Input, Keyed, Pipeline, Refused, Result, capture, intake, kind_of
from heeler.engine.intake import too_far_ahead
from heeler.engine.memory import MAX_TICKS_AT_ONCE, Ticker

S = 1_000_000_000
T0 = 1_800_000_000 * S


def status(node: str = "n1", ts: int = T0, **more: Any) -> dict[str, Any]:
    return {"v": 1, "cluster": "c", "node": node, "ts": ts, "boot": "b", "seq": 1, "collectors": {}, **more}


class Silence:
    """A step that says when a node was silent for 5 s: one finding per silence."""

    name = "silence"
    inputs = (Input("AgentStatus"),)
    tick_s = 1.0
    memory_s = 60.0

    def keys(self, message: Inbound) -> Iterable[str]:
        return (f"node:{message.data['node']}",)

    def on(self, key: str, state: int | None, message: Inbound, now_ns: int) -> Result:
        return now_ns, ()

    def tick(self, key: str, state: int, now_ns: int) -> Result:
        if now_ns - state < 5 * S:
            return state, ()
        node = key.partition(":")[2]
        finding_id = f"silent.{node}.{state}"
        finding = {
            "v": 1, "cluster": "c", "id": finding_id, "kind": "agent_silent", "state": "open",
            "severity": "warning", "confidence": 1.0, "entity": {"type": "agent", "node": node}, "first_ts": state,
            "ts": now_ns, "evidence": [], "advice": "observe", "summary": "silent",
        }  # fmt: skip
        return None, (Event("Finding", subjects.finding("c", "agent_silent", node, finding_id), finding, finding_id),)


class Tally:
    """A step that reads findings: the second of a chain."""

    name = "tally"
    inputs = (Input("Finding"),)
    tick_s = None
    memory_s = 0.0

    def __init__(self) -> None:
        self.seen: list[str] = []

    def keys(self, message: Inbound) -> Iterable[str]:
        return ("cluster:c",)

    def on(self, key: str, state: Any, message: Inbound, now_ns: int) -> Result:
        self.seen.append(message.data["id"])
        return True, ()

    def tick(self, key: str, state: Any, now_ns: int) -> Result:
        return state, ()


def feed(pipeline: Pipeline, ts: int, node: str = "n1") -> list[Inbound]:
    return list(pipeline.feed(subjects.agent_status("c", node), None, encode("AgentStatus", status(node, ts)), ts))


def test_silence_is_seen_by_ticks_of_the_streams_own_time() -> None:
    tally = Tally()
    pipeline = Pipeline([Silence(), tally])
    assert feed(pipeline, T0) == []
    assert feed(pipeline, T0 + 3 * S, "n2") == []
    [made] = feed(pipeline, T0 + 6 * S, "n2")  # time passes for n1 by the message of n2
    assert made.data["entity"]["node"] == "n1"
    assert tally.seen == [made.data["id"]]


def test_time_passes_at_the_end_of_a_capture() -> None:
    pipeline = Pipeline([Silence()])
    feed(pipeline, T0)
    assert [made.kind for made in pipeline.finish(T0 + 60 * S)] == ["Finding"]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_ticks_are_whole_multiples_in_order_and_none_comes_twice(gaps: list[int]) -> None:
    ticker, now, ticks = Ticker(S), T0 + 300_000_000, []
    for gap in gaps:
        now += gap * 250_000_000
        ticks += list(ticker.due(now))
    assert all(tick % S == 0 for tick in ticks)
    assert ticks == sorted(set(ticks))
    assert all(tick <= now for tick in ticks)


def test_a_long_gap_makes_up_for_the_newest_ticks_only() -> None:
    ticker = Ticker(S)
    assert list(ticker.due(T0)) == []
    ticks = list(ticker.due(T0 + 10**6 * S))
    assert len(ticks) == MAX_TICKS_AT_ONCE
    assert ticks[-1] == T0 + 10**6 * S


def test_a_message_that_comes_late_does_not_turn_time_back() -> None:
    keyed = Keyed(Silence())
    for ts in (T0 + 10 * S, T0):
        list(keyed.on(Inbound("AgentStatus", "s", status(ts=ts), ts)))
    assert keyed.now_ns == T0 + 10 * S


def test_context_does_not_move_time() -> None:
    keyed = Keyed(Silence())
    keyed.now_ns = T0
    list(keyed.on(Inbound("AgentStatus", "s", status(), T0 + 100 * S), context=True))
    assert keyed.now_ns == T0


GOOD = encode("AgentStatus", status())


@pytest.mark.parametrize(
    ("subject", "headers", "payload", "why"),
    [
        ("heeler.v1.c.agent.status.n1", None, b"\xc1", "undecodable"),
        ("heeler.v1.c.agent.status.n1", None, b"", "undecodable"),
        ("heeler.v1.c.agent.status.n1", None, msgpack.packb([1, 2]), "invalid"),
        ("heeler.v1.c.agent.status.n1", None, msgpack.packb(status() | {"ts": "now"}), "invalid"),
        ("heeler.v1.c.agent.status.n1", None, msgpack.packb({"v": 1}), "invalid"),
        ("heeler.v1.c.agent.status.n1", {"Heeler-Type": "GpuSample/1"}, GOOD, "invalid"),
        ("heeler.v1.c.agent.status.n1", {"Heeler-Type": "AgentStatus/2"}, GOOD, "invalid"),
        ("heeler.v1.c.agent.status.n2", None, GOOD, "hostile_subject"),
        ("heeler.v1.other.agent.status.n1", None, GOOD, "hostile_subject"),
        ("heeler.v1.c.agent.status.=", None, GOOD, "hostile_subject"),
        ("heeler.v1.c.nonsense.status.n1", None, GOOD, "hostile_subject"),
        ("heeler", None, GOOD, "hostile_subject"),
    ],
)
def test_what_can_not_be_used_is_refused_with_its_reason(
    subject: str, headers: dict[str, str] | None, payload: bytes, why: str
) -> None:
    with pytest.raises(Refused) as refused:
        intake(subject, headers, payload, T0)
    assert refused.value.why == why


@pytest.mark.parametrize("node", ["n1", "rack-1.node 7", "*", ">", "n1.gpu", "ノード", "a=b"])
def test_hostile_node_names_pass_when_subject_and_payload_agree(node: str) -> None:
    message = intake(subjects.agent_status("c", node), None, encode("AgentStatus", status(node)), T0)
    assert message.data["node"] == node


def test_a_pipeline_counts_what_it_refuses_and_goes_on() -> None:
    pipeline = Pipeline([Silence()])
    assert list(pipeline.feed("heeler.v1.c.agent.status.n1", None, b"\xc1", T0)) == []
    feed(pipeline, T0)
    assert pipeline.counters.dead == 1
    assert len(pipeline.refused) == 1
    assert list(pipeline.stages[0].states) == ["node:n1"]


def test_a_message_from_the_future_is_known_by_the_servers_clock() -> None:
    assert too_far_ahead(Inbound("AgentStatus", "s", status(ts=T0 + 3600 * S), T0))
    assert not too_far_ahead(Inbound("AgentStatus", "s", status(ts=T0 - 86400 * S), T0))


def test_every_subject_of_the_contract_is_recognised() -> None:
    assert kind_of(subjects.job_sample("c", "3", "n")) == "JobSample"
    assert kind_of(subjects.finding("c", "xid", "n", "i")) == "Finding"
    assert kind_of(subjects.dead_letter("c", "SAMPLES")) == "DeadLetter"
    assert kind_of("heeler.v1.c.ext.team.thing") is None


def test_a_capture_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "x.capture"
    messages = [capture.Captured(f"s.{n}", T0 + n, bytes([n]) * n, {"H": str(n)}) for n in range(5)]
    with path.open("wb") as out:
        for message in messages:
            capture.write(out, message)
    assert list(capture.read(path)) == messages


def test_a_capture_that_ends_inside_a_message_gives_all_whole_ones_and_says_where(tmp_path: Path) -> None:
    out = io.BytesIO()
    capture.write(out, capture.Captured("s", T0, b"x" * 100))
    whole = len(out.getvalue())
    capture.write(out, capture.Captured("s", T0, b"x" * 100))
    path = tmp_path / "x.capture"
    path.write_bytes(out.getvalue()[:-3])
    messages = capture.read(path)
    assert next(messages).data == b"x" * 100
    with pytest.raises(capture.CaptureError, match=f"byte {whole}: ends inside"):
        next(messages)


@pytest.mark.parametrize(
    "content",
    [b"\x01\x02", b"\x81\xa1a\x01", b"not a capture at all", msgpack.packb({"subject": 1, "ts": 2, "data": b""})],
)
def test_a_file_that_is_no_capture_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.capture"
    path.write_bytes(content)
    with pytest.raises(capture.CaptureError):
        list(capture.read(path))
