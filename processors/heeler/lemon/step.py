"""The step of lemon: events of four weeks in, a finding for each node that is a lemon out.

Everything is read from the streams, which keep longer than that, so a cold start is what a warm instance is and
nothing needs to be saved.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.findings import SECOND_NS, Book, Draft, Evidence
from heeler.detect.node_context import QUIET_FLAGS, QUIET_STATES
from heeler.detect.xid_links import is_injected
from heeler.detect.xid_table import XidTable, load_table
from heeler.engine import NOTHING, Event, Inbound, Input, Result
from heeler.lemon.excluded import excluded_nodes
from heeler.lemon.history import DAY_NS, WORDS, History, Score
from heeler.lemon.settings import LemonSettings

KIND = "lemon"
KEY = f"{KIND}|{KIND}"
PLANNED = QUIET_FLAGS - {"NOT_RESPONDING"}
HARD_CLASSES = frozenset(("LINK", "RST", "HW"))
RECONFIRM_S = 30.0
MOST_OUTS = 100_000


@dataclass(slots=True)
class Fleet:
    """What all nodes share: who went out of service when, to see when many did at once."""

    t: LemonSettings
    outs: deque[tuple[int, str]] = field(default_factory=deque)
    masses: list[tuple[int, int]] = field(default_factory=list)

    def out(self, node: str, ts: int) -> None:
        """Note that a node went out of service."""
        self.outs.append((ts, node))
        span_ns = int(self.t.mass_span_s * SECOND_NS)
        while self.outs and (self.outs[0][0] <= ts - span_ns or len(self.outs) > MOST_OUTS):
            self.outs.popleft()
        if len({name for _, name in self.outs}) > self.t.mass_nodes:
            begin = self.outs[0][0]
            if self.masses and self.masses[-1][1] >= begin:
                begin = self.masses.pop()[0]
            self.masses.append((begin, ts))
        oldest = ts - self.t.days * DAY_NS
        while self.masses and self.masses[0][1] <= oldest:
            self.masses.pop(0)


class NodeKey:
    """State of ``node:<name>``."""

    __slots__ = ("book", "history", "node", "since", "touched_ns")

    def __init__(self, node: str) -> None:
        self.node = node
        self.book = Book(RECONFIRM_S)
        self.history = History()
        self.since = 0  # since when it is a lemon
        self.touched_ns = 0


class LemonStep:
    """Finds lemons. The state of a key is a `NodeKey`."""

    name = "lemon"
    inputs = (
        Input("JobKernelEvent"),
        Input("NodeState"),
        Input("JobEvent"),
        Input("JobRecord"),
        Input("Finding", "last"),
    )
    tick_s: float | None = 30.0

    def __init__(self, settings: LemonSettings | None = None, table: XidTable | None = None) -> None:
        self.t = settings or LemonSettings()
        self.table = table or load_table(self.t.xid_table)
        self.memory_s = self.t.days * 86_400.0
        self.tickets = re.compile(self.t.ticket_pattern)
        self.fleet = Fleet(self.t)

    def keys(self, message: Inbound) -> Iterable[str]:
        """Return the nodes that a message concerns."""
        data = message.data
        if message.kind == "JobEvent":
            return [f"node:{n}" for n in dict.fromkeys(data["nodes"])] if data["event"] == "ended" else ()
        if message.kind == "JobRecord":
            return [f"node:{node}" for node in excluded_nodes(data.get("submit_line"))]
        if message.kind == "Finding":
            node = data["entity"].get("node") or data.get("node")
            return (f"node:{node}",) if data["kind"] == KIND and node else ()
        return (f"node:{data['node']}",)

    def on(self, key: str, state: NodeKey | None, message: Inbound, now_ns: int) -> Result:  # noqa: ARG002 - by the message's own time
        """Take a message in."""
        if message.kind == "JobRecord" and state is None:  # people may exclude names that are no nodes
            return None, NOTHING
        state = state or NodeKey(key.partition(":")[2])
        if message.kind != "JobRecord":
            state.touched_ns = max(state.touched_ns, message.ts_ns)
        if not state.book.cluster:
            state.book.cluster = message.data["cluster"]
        if message.kind == "Finding":
            return state, state.book.adopt(message.data)
        if message.kind == "NodeState" and message.data.get("event") == "gone":
            state.history, state.since = History(), 0
            return state, state.book.close(KEY, message.ts_ns, "Slurm knows no such node any more")
        self._read(state, message)
        return state, self._judge(state, message.ts_ns)

    def tick(self, key: str, state: NodeKey, now_ns: int) -> Result:  # noqa: ARG002 - the state knows its node
        """Let time pass: what is four weeks old counts no more."""
        events = [*self._judge(state, now_ns), *state.book.confirm(now_ns)]
        quiet = now_ns - state.touched_ns > self.t.days * DAY_NS
        return (None if quiet and not events and not state.book.all else state), events

    def asleep(self, state: NodeKey | None) -> bool:
        """Say whether ticks do nothing for a key but forget: most nodes are no lemons."""
        return state is not None and not state.book.all and not state.since

    # What is read.

    def _read(self, state: NodeKey, message: Inbound) -> None:
        data, ts, history = message.data, message.ts_ns, state.history
        if message.kind == "JobKernelEvent":
            code = self._hard(data)
            if code:
                history.xids[code] = ts
                history.trouble(ts, self.t)
        elif message.kind == "NodeState":
            self._node_state(state, data, ts)
        elif message.kind == "JobEvent":
            nodes, outcome = len(set(data["nodes"])), data.get("state")
            run = f"{data['job_id']}.{data.get('start_ts', 0)}"
            if nodes == 1:
                history.ran(run, ts)
            if outcome in ("NODE_FAIL", "FAILED"):
                history.lost(run, ts, nodes, by_node=outcome == "NODE_FAIL", t=self.t)
        elif message.kind == "JobRecord":
            history.note_excluded(str(data.get("job_id")), data.get("submit_ts") or ts)

    def _hard(self, event: Mapping[str, Any]) -> str:
        """Return the name of an error of the hardware; empty for any other line."""
        if event.get("trusted") is False or is_injected(event.get("detail", {})):
            return ""
        if event["kind"] == "gpu_lost":
            return "gpu_lost"
        if event["kind"] not in ("xid", "sxid") or event.get("code") is None:
            return ""
        row = self.table.judge(event)
        hard = row.drain == "pending" or (row.class_ in HARD_CLASSES and row.drain in ("yes", "repeat"))
        return f"{event['kind']}{event['code']}" if hard else ""

    def _node_state(self, state: NodeKey, data: Mapping[str, Any], ts: int) -> None:
        history = state.history
        if data["state"] == "unknown":
            return
        flags = set(data["flags"])
        if not PLANNED.isdisjoint(flags):  # whoever plans it takes the node out, not the node itself
            history.out = True
            return
        out = data["state"] in QUIET_STATES or not flags.isdisjoint(("DRAIN", "FAIL", "NOT_RESPONDING"))
        if out and history.out is False:
            history.note_out(ts)
            history.trouble(ts, self.t)
            self.fleet.out(state.node, ts)
        if out:
            history.note_tickets(self.tickets.findall(str(data.get("reason") or "")), ts)
        history.out = out

    # What is said.

    def _judge(self, state: NodeKey, now_ns: int) -> Sequence[Event]:
        known = state.book.get(KEY)
        state.history.forget(now_ns - self.t.days * DAY_NS)
        score = state.history.score(self.t, self.fleet.masses)
        hard = [name for name in score.over if name != "excluded_by_jobs"]
        if len(score.over) < self.t.least_features or len(hard) < min(2, self.t.least_features):
            state.since = 0
            return NOTHING if known is None else state.book.close(KEY, now_ns, "no more than others any more")
        state.since = state.since or now_ns
        if known is None and now_ns - state.since < self.t.settle_s * SECOND_NS:
            return NOTHING
        return state.book.report(self._draft(state, score, now_ns), now_ns)

    def _draft(self, state: NodeKey, score: Score, now_ns: int) -> Draft:
        known = state.book.get(KEY)
        parts = [WORDS[name].format(score.values[name]) for name in score.over]
        evidence: list[Evidence] = [
            {"metric": name, "value": value, "unit": "1", "limit": getattr(self.t, name), "over": name in score.over}
            for name, value in score.values.items()
        ]
        evidence[0]["text"] = ", ".join(sorted(state.history.xids))
        if score.failure_ratio is not None:
            ratio = {"metric": "single_node_failure_ratio", "value": round(score.failure_ratio, 3), "unit": "1"}
            evidence.append({**ratio, "peers": score.single_jobs})
        return Draft(
            kind=KIND,
            ident=KIND,
            entity={"type": "node", "node": state.node},
            severity="warning",
            confidence=min(0.9, 0.4 + 0.1 * len(score.over)),
            advice="person",
            cause="repeated_trouble",
            summary=f"{state.node} is in trouble again and again: {', '.join(parts)} in {self.t.days} days.",
            first_ts=known.first_ts if known is not None else state.since,
            data_ts=now_ns,
            evidence=evidence,
        )
