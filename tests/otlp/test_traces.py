"""The road of a fault as a trace: what is seen, found, decided and done belongs together, whoever exports it."""

import json
from typing import Any

import drainworld
import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlpsamples import T0, WINDOW, drain_action, finding, kernel_event
from samples import Job, inventory, merged, play
from samples import kernel_event as line

from heeler.detect import DetectStep
from heeler.otlp import logs, trace_ids
from heeler.otlp.points import LogEntry, SpanEntry
from heeler.otlp.traces import TRACES

STAMP = T0 + 2 * WINDOW
S = 1_000_000_000


def spans(kind: str, data: dict[str, Any], stamp: int = STAMP) -> dict[str, SpanEntry]:
    return {span.name: span for span in TRACES[kind](data, stamp)}


def record(made: LogEntry | None) -> LogEntry:
    assert made is not None
    return made


def test_a_finding_that_opens_tells_its_way_here() -> None:
    made = spans("Finding", finding(data_ts=T0 + WINDOW // 2))
    root, seen, detect = made["finding gpu_lag"], made["seen"], made["detect"]
    assert root.parent is None
    assert {seen.parent, detect.parent} == {root.ids.span}
    assert len({span.ids.trace for span in made.values()}) == 1
    assert len({span.ids.span for span in made.values()}) == 3
    times = [(one.start_ns - T0, one.end_ns - T0) for one in (root, seen, detect)]
    assert times == [(0, WINDOW), (0, WINDOW // 2), (WINDOW // 2, WINDOW)]
    about = {"host.name": "n1", "hw.id": "GPU-n1-0", "slurm.job.id": "81234", "heeler.finding.id": "f1"}
    assert root.attributes.items() >= about.items()


def test_a_finding_that_stays_open_needs_no_memory_and_no_span() -> None:
    assert TRACES["Finding"](finding(state="update"), STAMP) == []


def test_its_close_tells_its_life_in_the_same_trace() -> None:
    days = T0 + 9 * 86_400 * S
    (life,) = TRACES["Finding"](finding(state="closed", ts=days, close_reason="healthy for 300 s"), days)
    root = spans("Finding", finding())["finding gpu_lag"]
    assert (life.ids.trace, life.parent) == (root.ids.trace, root.ids.span)
    assert (life.start_ns, life.end_ns) == (T0, days)
    assert life.attributes["heeler.finding.close_reason"] == "healthy for 300 s"


@pytest.mark.parametrize(("data_ts", "seen_until"), [(T0 - 5, T0), (T0 + 9 * WINDOW, T0 + WINDOW), (None, T0)])
def test_clocks_that_differ_make_no_span_that_ends_before_it_begins(data_ts: int | None, seen_until: int) -> None:
    data = finding() if data_ts is None else finding(data_ts=data_ts)
    made = spans("Finding", data)
    assert (made["seen"].start_ns, made["seen"].end_ns) == (T0, seen_until)
    assert (made["detect"].start_ns, made["detect"].end_ns) == (seen_until, T0 + WINDOW)
    ahead = spans("Finding", finding(first_ts=T0 + 7 * WINDOW))
    assert {(one.start_ns, one.end_ns) for one in ahead.values()} == {(T0 + WINDOW, T0 + WINDOW)}


def test_what_the_drainer_says_hangs_on_the_finding() -> None:
    root = spans("Finding", finding())["finding gpu_lag"]
    said = [
        drain_action(1, verdict="approved", dry_run=False, finding_ts=T0 - S),
        drain_action(2, verdict="done", dry_run=False, finding_ts=T0 - S),
        drain_action(3, verdict="failed", dry_run=False, why="scontrol: timed out"),
        drain_action(4, verdict="done", step="check", dry_run=False, round=1),
        drain_action(5, verdict="undrained", step="undrain", dry_run=False),
        drain_action(6, verdict="approved", command="approve", dry_run=False),
    ]
    made = [span for data in said for span in TRACES["DrainAction"](data, STAMP)]
    assert [one.name for one in made] == [
        "drain approved",
        "drain done",
        "drain failed",
        "check done",
        "undrain undrained",
        "approve approved",
    ]
    assert {(one.ids.trace, one.parent) for one in made} == {(root.ids.trace, root.ids.span)}
    assert len({one.ids.span for one in made}) == len(made)
    assert [one.start_ns - T0 for one in made] == [-S, 0, 0, 0, 0, 0]  # a decision begins with what it answers
    assert [one.error for one in made] == [None, None, "scontrol: timed out", None, None, None]
    assert made[0].attributes.items() >= {"heeler.drain.verdict": "approved", "heeler.finding.id": "f1"}.items()


def test_what_concerns_no_finding_is_in_no_trace() -> None:
    pause = drain_action(node="*", command="pause", verdict="done")
    del pause["finding_id"]
    assert TRACES["DrainAction"](pause, STAMP) == []
    assert logs.drain_action(pause).ids is None


def test_a_kernel_event_is_a_trace_that_the_finding_leads_to() -> None:
    event = kernel_event(7, ts=T0, boot="b1")
    (span,) = TRACES["JobKernelEvent"](event, T0 + 4_000_000)
    assert (span.name, span.parent, span.start_ns, span.end_ns) == ("kernel xid", None, T0, T0 + 4_000_000)
    entity = {"type": "gpu", "node": "n1", "boot": "b1", "event_seq": 7, "nvml_seq": -1}
    assert spans("Finding", finding(kind="xid", entity=entity))["seen"].links == (span.ids,)
    (life,) = TRACES["Finding"](finding(kind="xid", entity=entity, state="closed"), STAMP)
    assert life.links == (span.ids,)


@pytest.mark.parametrize(
    "entity",
    [
        {"type": "gpu", "node": "n1"},
        {"type": "gpu", "node": "n1", "boot": "b1", "event_seq": -1},
        {"type": "gpu", "node": "n1", "boot": "", "event_seq": 3},
        {"type": "gpu", "node": "n1", "boot": "b1", "event_seq": "3"},
        {"type": "gpu", "node": "n1", "boot": "b1", "event_seq": True},
        {"type": "gpu", "boot": ["b1"], "event_seq": 3},
    ],
    ids=str,
)
def test_a_finding_that_names_no_event_leads_to_none(entity: dict[str, Any]) -> None:
    assert spans("Finding", finding(entity=entity))["seen"].links == ()


def test_lines_of_which_no_finding_comes_are_in_no_trace() -> None:
    event = kernel_event(kind="oom", code=None)
    assert TRACES["JobKernelEvent"](event, STAMP) == []
    assert logs.kernel_event(event).ids is None


def test_records_name_the_span_that_they_belong_to() -> None:
    opened, closed = finding(), finding(state="closed")
    action, event = drain_action(), kernel_event()
    assert record(logs.finding(opened)).ids == spans("Finding", opened)["finding gpu_lag"].ids
    assert record(logs.finding(finding(state="update"))).ids == spans("Finding", opened)["finding gpu_lag"].ids
    assert record(logs.finding(closed)).ids == spans("Finding", closed)["open"].ids
    assert record(logs.drain_action(action)).ids == spans("DrainAction", action)["drain proposed"].ids
    assert record(logs.kernel_event(event)).ids == spans("JobKernelEvent", event)["kernel xid"].ids


def test_ids_are_the_same_for_ever() -> None:
    """Another version must continue the traces of this one: these bytes were written down."""
    made = trace_ids.of_finding("north", "gpu_lag-0a1b2c3d4e-1767225600000")
    assert (made.trace.hex(), made.span.hex()) == ("8d403409ae79153d6e17e3f3c234a653", "255d0883953c6a5f")
    event = trace_ids.of_kernel_event("north", "n1", "b1", 7)
    assert (event.trace.hex(), event.span.hex()) == ("188f7c81f23dcfb313fcabc342d23cdc", "f6b6ae6161058be8")


@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6)), min_size=2, max_size=2, unique=True))
def test_no_two_findings_share_a_trace(names: list[tuple[str, str]]) -> None:
    one, other = (trace_ids.of_finding(cluster, finding_id) for cluster, finding_id in names)
    assert one.trace != other.trace
    assert one.span != other.span
    assert (len(one.trace), len(one.span)) == (16, 8)


def test_a_span_is_a_json_line() -> None:
    entity = {"type": "gpu", "node": "n1", "boot": "b1", "event_seq": 7}
    lines = [next(span.flat()) for span in spans("Finding", finding(entity=entity)).values()]
    root, seen, _ = (json.loads(json.dumps(one)) for one in lines)
    assert root["span"] == "finding gpu_lag"
    assert "parent_span_id" not in root
    assert (seen["trace_id"], seen["parent_span_id"]) == (root["trace_id"], root["span_id"])
    assert seen["links"][0].keys() == {"trace_id", "span_id"}
    assert (root["start_ts"], root["ts"]) == (T0, T0 + WINDOW)
    (failed,) = TRACES["DrainAction"](drain_action(verdict="failed"), STAMP)
    assert next(failed.flat())["error"] == "lagging GPU"
    assert next(logs.finding(finding()).flat())["trace_id"] == root["trace_id"]


def test_what_the_detector_and_the_drainer_really_say_makes_one_road() -> None:
    job = Job(nodes=2)
    told = [line(job.node(0), 79, ts_ns=drainworld.T0, seq=5, uuid=job.uuid(0, 3), jobs=[job.id], gpu_state="lost")]
    (found,) = play(DetectStep(), merged([inventory(job, 0, ts_ns=drainworld.T0)], told)).opened("xid")
    cluster = drainworld.Cluster(dry_run=False)
    here = {**found, "cluster": "north", "node": "n001", "entity": {**found["entity"], "node": "n001"}}
    actions = cluster.say("Finding", here) + cluster.pass_to(drainworld.T0 + 30 * S)
    assert "approved" in {action["verdict"] for action in actions}
    made = TRACES["Finding"](here, STAMP)
    road = [*made, *(span for action in actions for span in TRACES["DrainAction"](action, STAMP))]
    assert {span.ids.trace for span in road} == {made[0].ids.trace}
    assert all(span.parent in (None, made[0].ids.span) for span in road)
    # Before the node was given another name, so that the drainer knows it.
    event = told[0].data
    assert spans("JobKernelEvent", event)["kernel xid"].ids in spans("Finding", found)["seen"].links
