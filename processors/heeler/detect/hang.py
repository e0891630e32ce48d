"""The job that hangs: it was busy, and then all of its GPUs stand still at once while it still holds them.

A rank that waits in a collective spins: utilisation says 100 %, yet no tensor core works, no byte moves and the
power is that of an idle GPU. A rank that is stuck on the host shows 0 instead. Both are normal for a while, in a
checkpoint or an evaluation; a process that ended has let go of its memory; a job that never worked does not hang.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.arrival import Arrival
from heeler.detect.findings import SECOND_NS, Book, Draft, Evidence, Open, duration
from heeler.detect.still import MOVES, Stillness, look, memory_of
from heeler.detect.thresholds import HangThresholds
from heeler.engine import NOTHING, Event, Inbound

KIND = "hang"
KEY = f"{KIND}|{KIND}"
FAULTS = frozenset(("xid", "gpu_lost", "ecc"))
SOFT = frozenset(("none", "observe"))
AHEAD_NS, LATE_NS = 5 * SECOND_NS, 60 * SECOND_NS
FAULT_NS = 300 * SECOND_NS  # a fault this long before a job stops may be why
LEAST_WINDOWS = 3
MOST_NAMED = 8


@dataclass(slots=True)
class Node:
    """One node of the job, as last heard. `since_ns` 0: its GPUs do something."""

    arrival: Arrival = field(default_factory=Arrival)
    heard_ns: int = 0
    since_ns: int = 0
    seen: Stillness = MOVES


@dataclass(slots=True)
class Stretch:
    """Some seconds of the whole job: whether anything moved, and how much memory a GPU of the first that did held."""

    start_ns: int
    moved: bool
    memory_bytes: float = 0.0


class Hang:
    """The state of one job."""

    def __init__(self, job: str, t: HangThresholds) -> None:
        self.job, self.t = job, t
        self.nodes: dict[str, Node] = {}
        self.moved_ns = 0  # when any GPU was last seen to do something
        self.moving_since_ns = 0
        self.windows: deque[Stretch] = deque()  # of the last minutes
        self.looked_ns = 0  # the stretch in which all nodes were last looked at
        self.start_ns = 0
        self.event_ts = 0
        self.ended = False
        self.faults: dict[str, Mapping[str, Any]] = {}  # findings of broken GPUs of the job, by id

    def on(self, book: Book, message: Inbound) -> Sequence[Event]:
        """Take a message in."""
        if message.kind == "JobSample":
            return NOTHING if self.ended else self._sample(book, message.data, message.ts_ns)
        if message.kind == "JobEvent":
            return self._job_event(book, message.data, message.ts_ns)
        if message.kind == "Finding":
            return self._finding(book, message.data, message.ts_ns)
        return NOTHING

    def tick(self, book: Book, now_ns: int) -> Sequence[Event]:
        """Close what nobody will say more about."""
        known = book.get(KEY)
        if known is None:
            return NOTHING
        heard = max([known.message.get("data_ts", 0), *(node.heard_ns for node in self.nodes.values())])
        if now_ns - heard > self.t.orphan_s * SECOND_NS:
            return book.close(known.key, now_ns, "no more data")
        return NOTHING

    def _job_event(self, book: Book, event: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        if event["ts"] < self.event_ts:
            return NOTHING
        start, before = event.get("start_ts", 0), self.start_ns
        ended = event["event"] == "ended"
        anew = bool(before and start and start != before) or (self.ended and not ended)
        if anew:  # requeued: another run of the same id
            self.__dict__.update(Hang(self.job, self.t).__dict__)
        self.event_ts, self.start_ns, self.ended = event["ts"], start or self.start_ns, ended
        if ended or anew:
            self.nodes.clear()
            return book.close_kinds((KIND,), now_ns, "the job ended")
        return NOTHING

    def _finding(self, book: Book, finding: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        if finding["kind"] in FAULTS:
            if finding["state"] == "closed" or finding["advice"] in SOFT:
                self.faults.pop(finding["id"], None)
            else:
                self.faults[finding["id"]] = finding
                if len(self.faults) > 4 * MOST_NAMED:
                    del self.faults[next(iter(self.faults))]
        return book.close_kinds((KIND,), now_ns, "the job ended") if self.ended else NOTHING

    # Samples.

    def _sample(self, book: Book, sample: Mapping[str, Any], now_ns: int) -> Sequence[Event]:
        node = self.nodes.get(sample["node"])
        if node is None:
            node = self.nodes[sample["node"]] = Node()
        if node.arrival.accept(sample["boot"], sample["ts"], now_ns, AHEAD_NS, LATE_NS) != "ok":
            return NOTHING
        seen = look(sample, self.job, self.t)
        if seen is None:  # nothing of it could be read
            return NOTHING
        node.heard_ns, node.seen = now_ns, seen
        window_ns = sample["window_ns"]
        start = now_ns - now_ns % max(SECOND_NS, window_ns)
        if not self.windows or start > self.windows[-1].start_ns:
            self._begin(start, now_ns)
        if not seen.still:
            node.since_ns = 0
            stretch = self.windows[-1]
            if not stretch.moved:
                stretch.moved, stretch.memory_bytes = True, memory_of(sample, self.job) or 0.0
            return self._moves(book, now_ns)
        node.since_ns = node.since_ns or now_ns
        return self._stands(book, now_ns)

    def _begin(self, start: int, now_ns: int) -> None:
        """Begin another stretch of time, in which nothing has moved yet."""
        self.windows.append(Stretch(start, moved=False))
        since = now_ns - int((self.t.busy_span_s + self.t.say_within_s) * SECOND_NS)
        while self.windows[0].start_ns < since:
            self.windows.popleft()

    def _moves(self, book: Book, now_ns: int) -> Sequence[Event]:
        if now_ns - self.moved_ns > self.t.clear_s * SECOND_NS:
            self.moving_since_ns = now_ns
        self.moved_ns = now_ns
        known = book.get(KEY) if book.all else None
        if known is None or now_ns <= known.ts or now_ns - self.moving_since_ns < self.t.clear_s * SECOND_NS:
            return NOTHING
        return book.close(known.key, now_ns, "the job works again")

    def _stands(self, book: Book, now_ns: int) -> Sequence[Event]:
        """Say that all stand still, once it lasts, or look after what was said."""
        known = book.get(KEY)
        still_ns = now_ns - self.moved_ns
        least_s = min(self.t.spin_after_s, self.t.stall_after_s)
        looked = self.looked_ns == self.windows[-1].start_ns
        if looked or (known is None and not least_s * SECOND_NS <= still_ns <= self.t.say_within_s * SECOND_NS):
            return NOTHING
        self.looked_ns = self.windows[-1].start_ns
        still = self._all_still(now_ns)
        if not still:
            return NOTHING
        spins = 2 * sum(node.seen.spinning for node in still) >= sum(node.seen.gpus for node in still)
        memory_bytes = self._memory(known)
        if _let_go(still, self.t.held_ratio * memory_bytes):
            return book.close(KEY, now_ns, "the processes let go of the GPUs")
        wait_s = self.t.spin_after_s if spins else self.t.stall_after_s
        if known is None and (still_ns < wait_s * SECOND_NS or not self._was_busy()):
            return NOTHING
        since = known.first_ts if known is not None else self.moved_ns
        return book.report(self._draft(still, since, now_ns, memory_bytes, spins=spins), now_ns)

    def _all_still(self, now_ns: int) -> list[Node]:
        """Return the nodes that stand still; none where one does not, or too few say so."""
        gone = now_ns - int(self.t.say_within_s * SECOND_NS)
        self.nodes = {name: node for name, node in self.nodes.items() if node.heard_ns > gone}
        heard = [node for node in self.nodes.values() if node.heard_ns > now_ns - LATE_NS]
        if any(not node.since_ns for node in heard) or 2 * len(heard) < len(self.nodes):
            return []
        return heard

    def _memory(self, known: Open | None) -> float:
        """Return the most that a GPU held while the job worked; while a hang is open, what was so at its begin."""
        told = known.message["entity"].get("memory_bytes") if known is not None else None
        return float(told) if told is not None else max((w.memory_bytes for w in self.windows), default=0.0)

    def _was_busy(self) -> bool:
        """Say whether the job worked steadily until it stopped: one that comes and goes by itself does not hang."""
        since = self.moved_ns - int(self.t.busy_span_s * SECOND_NS)
        before = [stretch for stretch in self.windows if since < stretch.start_ns <= self.moved_ns]
        busy = [stretch.start_ns for stretch in before if stretch.moved]
        return (
            len(busy) >= LEAST_WINDOWS
            and len(busy) >= self.t.busy_share * len(before)
            and self.moved_ns - busy[0] >= self.t.busy_s * SECOND_NS
        )

    def _draft(self, still: Sequence[Node], since: int, now_ns: int, memory_bytes: float, *, spins: bool) -> Draft:
        gpus = sum(node.seen.gpus for node in still)
        sure = now_ns - since >= self.t.sure_s * SECOND_NS
        cause, words = self._cause(since, now_ns)
        shows = "utilisation says 100 %" if spins else "they are idle and hold their memory"
        verb = "hangs" if sure else "seems to hang"
        entity: dict[str, Any] = {"type": "job", "job_id": self.job, "memory_bytes": memory_bytes}
        if len(self.nodes) == 1:
            entity["node"] = next(iter(self.nodes))
        return Draft(
            kind=KIND,
            ident=KIND,
            entity=entity,
            severity="critical" if sure else "warning",
            confidence=(0.95 if spins else 0.8) if sure else (0.6 if spins else 0.5),
            advice="person" if sure else "observe",
            cause=cause,
            summary=f"Job {self.job} {verb}: nothing moves on its {gpus} GPUs for {duration(now_ns - since)}, "
            f"{shows}{words}.",
            first_ts=since,
            data_ts=now_ns,
            evidence=self._evidence(still, gpus, since, now_ns, spins=spins),
            jobs=(self.job,),
        )

    def _cause(self, since: int, now_ns: int) -> tuple[str, str]:
        """Return what may have stopped the job: (cause, words)."""
        if suspects := self._suspects(since):
            first = suspects[0]
            what = f"XID {first['code']}" if "code" in first else str(first["kind"])
            return "gpu_fault", f"; {what} on {first.get('node', 'a node')}"
        silent = [name for name, node in self.nodes.items() if node.heard_ns <= now_ns - LATE_NS]
        if silent:
            return "node_silent", f"; no samples from {', '.join(sorted(silent)[:MOST_NAMED])}"
        return "unknown", ""

    def _suspects(self, since: int) -> list[Mapping[str, Any]]:
        """Return the broken GPUs of the job that were seen broken around the time when it stopped, first ones first."""
        around = since - FAULT_NS
        found = [f for f in self.faults.values() if f["severity"] == "critical" and f.get("data_ts", f["ts"]) >= around]
        return sorted(found, key=lambda f: (f["first_ts"], f["id"]))

    def _evidence(self, still: Sequence[Node], gpus: int, since: int, now_ns: int, *, spins: bool) -> list[Evidence]:
        found: list[Evidence] = [
            {"metric": "still_s", "value": round((now_ns - since) / SECOND_NS, 1), "unit": "s"},
            {"metric": "gpus_still", "value": gpus, "unit": "1"},
        ]
        for metric, unit in (("util_ratio", "1"), ("power_w", "W"), ("tensor_active_ratio", "1")):
            values = [v for node in still if (v := node.seen.levels.get(metric)) is not None]
            if values:
                found.append({"metric": metric, "value": round(sorted(values)[len(values) // 2], 4), "unit": unit})
        odd = [
            (name, index)
            for name, node in sorted(self.nodes.items())
            if spins and node.heard_ns > now_ns - LATE_NS
            for index in node.seen.resting
        ]
        # Where most spin, those that do not are what the others may wait for.
        if odd and 4 * len(odd) <= gpus:
            shown = ", ".join(f"{name} GPU {index}" for name, index in odd[:MOST_NAMED])
            found.append({"metric": "gpus_not_spinning", "value": len(odd), "unit": "1", "text": shown})
        found += [
            {"metric": "finding", "value": fault["id"], "text": fault["summary"]}
            for fault in self._suspects(since)[:MOST_NAMED]
        ]
        return found


def _let_go(still: Sequence[Node], least_bytes: float) -> bool:
    """Say whether most of the job's memory was freed: its processes ended, or are about to."""
    held = [node.seen.memory_bytes for node in still if node.seen.memory_bytes is not None]
    return 2 * sum(memory < least_bytes for memory in held) > len(held)
