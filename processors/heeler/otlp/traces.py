"""From findings, drain actions and kernel events to the spans of a fault's road: pure, a message at a time.

A span goes out when the message comes that ends it, and carries ids that every message of the road names alike. So
nothing is remembered between messages: a finding may stay open for a month, its close may reach another exporter, and
what comes twice is the same span twice.

The trace of a finding:

    finding           from the trouble's beginning to when the finding was opened; the root
     +- seen          from the trouble's beginning to the newest data behind the finding, by the node's clock
     |                -> links to the kernel log's lines, which are traces of their own
     +- detect        from there to when the finding was opened
     +- drain ...     what the drainer said, each word a span
     +- open          the whole life, once the finding is closed
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heeler.otlp import trace_ids
from heeler.otlp.logs import about_drain, about_finding, about_kernel_event, known
from heeler.otlp.points import SpanEntry
from heeler.otlp.trace_ids import TRACED_EVENTS, SpanIds

Data = Mapping[str, Any]

DECISIONS = frozenset(("proposed", "refused", "approved"))
FAILED = frozenset(("failed", "tripped"))


def finding(data: Data, ts_ns: int) -> list[SpanEntry]:  # noqa: ARG001 - its own times say more than the stream's
    """Return the spans that a finding ends: its way here when it opens, its life when it closes."""
    if data["state"] == "open":
        return _opened(data)
    return [_closed(data)] if data["state"] == "closed" else []


def _opened(data: Data) -> list[SpanEntry]:
    root, about = _ids(data), about_finding(data)
    until = data["ts"]
    begin = min(data["first_ts"], until)
    # The node's clock may be ahead of the one that decides.
    seen = min(max(begin, data.get("data_ts", begin)), until)
    ids = known({key: about.get(key) for key in ("heeler.cluster", "host.name", "hw.id", "heeler.finding.id")})
    return [
        SpanEntry(f"finding {data['kind']}", root, None, begin, until, about),
        SpanEntry("seen", _ids(data, "seen"), root.span, begin, seen, ids, links=_events(data)),
        SpanEntry("detect", _ids(data, "detect"), root.span, seen, until, ids),
    ]


def _closed(data: Data) -> SpanEntry:
    begin = min(data.get("opened_ts", data["first_ts"]), data["ts"])
    return SpanEntry(
        "open", _ids(data, "open"), _ids(data).span, begin, data["ts"], about_finding(data), links=_events(data)
    )


def _ids(data: Data, part: str = "finding") -> SpanIds:
    return trace_ids.of_finding(data["cluster"], data["id"], part)


def _events(data: Data) -> tuple[SpanIds, ...]:
    """Return the newest kernel events behind a finding, as far as it names them."""
    entity = data["entity"]
    node, boot = entity.get("node") or data.get("node"), entity.get("boot")
    seqs = [seq for key in ("event_seq", "nvml_seq") if type(seq := entity.get(key)) is int and seq >= 0]
    if not (isinstance(node, str) and isinstance(boot, str) and boot):
        return ()
    return tuple(trace_ids.of_kernel_event(data["cluster"], node, boot, seq) for seq in seqs)


def drain_action(data: Data, ts_ns: int) -> list[SpanEntry]:  # noqa: ARG001
    """Return the span of what the drainer said to a finding; none for what concerns no finding.

    A decision reaches from the word of the finding to its own; of everything else only the end is told.
    """
    finding_id, verdict, step = data.get("finding_id"), data["verdict"], data.get("step", "drain")
    if finding_id is None:
        return []
    decided = step == "drain" and verdict in DECISIONS
    begin = min(data.get("finding_ts", data["ts"]), data["ts"]) if decided else data["ts"]
    return [
        SpanEntry(
            f"{data.get('command') or step} {verdict}",
            trace_ids.of_drain(data["cluster"], finding_id, data["id"]),
            trace_ids.of_finding(data["cluster"], finding_id).span,
            begin,
            data["ts"],
            about_drain(data),
            error=data["why"] if verdict in FAILED else None,
        )
    ]


def kernel_event(data: Data, ts_ns: int) -> list[SpanEntry]:
    """Return the span of a kernel event that a finding may come of: from its time on the node to the bus."""
    if data["kind"] not in TRACED_EVENTS:
        return []
    ids = trace_ids.of_kernel_event(data["cluster"], data["node"], data["boot"], data["seq"])
    begin = min(data["ts"], ts_ns)
    return [SpanEntry(f"kernel {data['kind']}", ids, None, begin, ts_ns, about_kernel_event(data))]


TRACES: Mapping[str, Callable[[Data, int], Sequence[SpanEntry]]] = {
    "JobKernelEvent": kernel_event,
    "Finding": finding,
    "DrainAction": drain_action,
}
