"""The life of findings, the same for every rule: open, said again, closed; stable over restarts.

A rule makes a `Draft` of what it sees and reports it to the `Book` of its key. The book knows what is open,
decides what is worth a message, and learns from the bus: a finding that was read back at a cold start, or that
the leader opened while this instance stands by, keeps its id.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from heeler.bus import subjects
from heeler.engine import NOTHING, Event

SECOND_NS = 1_000_000_000
KEEP_CLOSED_NS = 86_400 * SECOND_NS
MAX_CLOSED = 512
MAX_EVIDENCE = 40
CLOSE_FOR_NS = 86_400 * SECOND_NS  # a close that nobody read back is said for so long

Evidence = dict[str, Any]


@dataclass(slots=True)
class Draft:
    """What a rule says of one thing, before it is a message. `ident` tells it from others of its kind and node."""

    kind: str
    ident: str
    entity: dict[str, Any]
    severity: str
    confidence: float
    advice: str
    cause: str
    summary: str
    first_ts: int
    data_ts: int
    evidence: list[Evidence]
    jobs: Sequence[str] = ()
    code: int | None = None
    count: int | None = None
    impact: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """The name of this finding in its book."""
        return f"{self.kind}|{self.ident}"


@dataclass(slots=True)
class Open:
    """A finding that is open, as it was last said."""

    key: str
    message: dict[str, Any]
    bucket: int  # the interval of stream time in which it was last said
    on_bus: bool = False  # someone's message of it was read back
    closing: Event | None = None  # said to be closed, not yet read back
    notes: dict[str, Any] = field(default_factory=dict)  # what the rule remembers of it

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.message["id"])

    @property
    def first_ts(self) -> int:
        """When the trouble began."""
        return int(self.message["first_ts"])

    @property
    def ts(self) -> int:
        """When it was last said."""
        return int(self.message["ts"])


Mark = Callable[[dict[str, Any]], dict[str, Any]]


def as_it_is(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as it is."""
    return message


class Book:
    """The findings of one key. `mark` says last what is not the rules' to know: see `part_of`."""

    __slots__ = ("all", "closed", "cluster", "every_ns", "mark")

    def __init__(self, every_s: float, mark: Mark = as_it_is) -> None:
        self.cluster = ""
        self.mark = mark
        self.every_ns = int(every_s * SECOND_NS)
        self.all: dict[str, Open] = {}
        self.closed: dict[str, int] = {}

    def get(self, key: str) -> Open | None:
        """Return the open finding of a key; None when there is none or it is closing."""
        found = self.all.get(key)
        return found if found is not None and found.closing is None else None

    def of_kind(self, *kinds: str) -> list[Open]:
        """Return the open findings of some kinds, oldest first."""
        found = [o for o in self.all.values() if o.closing is None and o.message["kind"] in kinds]
        return sorted(found, key=lambda o: (o.first_ts, o.key))

    def closed_ns(self, key: str) -> int:
        """Return when the last finding of a key was closed; 0 when none was."""
        return self.closed.get(key, 0)

    def report(self, draft: Draft, now_ns: int) -> Sequence[Event]:
        """Open a finding, or say it again when that is due or when something that matters has changed."""
        known = self.get(draft.key)
        if known is None:
            if draft.key in self.all:  # its close has not been read back: one thing at a time
                return NOTHING
            message = self._message(draft, finding_id(draft), now_ns, "open")
            self.all[draft.key] = Open(draft.key, message, now_ns // self.every_ns)
            return (self._event(message, "open"),)
        if now_ns <= known.ts:  # history, read again at a cold start
            return NOTHING
        message = self._message(draft, known.id, now_ns, "update", known.first_ts)
        changed = _facts(message) != _facts(known.message)
        if not changed and now_ns // self.every_ns <= known.bucket:
            # Kept for the next time it is said; its time stays that of the last message.
            known.message = {**message, "ts": known.ts}
            return NOTHING
        known.message = message
        known.bucket = now_ns // self.every_ns
        return (self._event(message, f"change.{now_ns}" if changed else f"update.{known.bucket}"),)

    def close(self, key: str, now_ns: int, why: str) -> Sequence[Event]:
        """Close a finding."""
        known = self.get(key)
        if known is None or now_ns < known.ts:  # it was said to be open after that
            return NOTHING
        message = {**known.message, "state": "closed", "ts": now_ns, "close_reason": why}
        event = self._event(message, f"close.{now_ns}")
        self._note_closed(key, now_ns)
        if known.on_bus:  # until it is read back, the word may have been lost with a leader
            known.closing = event
            known.bucket = now_ns // self.every_ns
        else:
            del self.all[key]
        return (event,)

    def close_kinds(self, kinds: Iterable[str], now_ns: int, why: str) -> list[Event]:
        """Close all open findings of some kinds."""
        return [event for found in self.of_kind(*kinds) for event in self.close(found.key, now_ns, why)]

    def confirm(self, now_ns: int) -> Sequence[Event]:
        """Say again what is open and due, and what was closed without being read back."""
        events: list[Event] = []
        for known in list(self.all.values()):
            if now_ns // self.every_ns <= known.bucket:
                continue
            known.bucket = now_ns // self.every_ns
            if known.closing is not None:
                events.append(known.closing)
                if now_ns - self.closed_ns(known.key) > CLOSE_FOR_NS:
                    del self.all[known.key]
            elif now_ns > known.ts:
                known.message = self.mark({**known.message, "state": "update", "ts": now_ns})
                events.append(self._event(known.message, f"update.{known.bucket}"))
        return events

    def adopt(self, message: Mapping[str, Any]) -> Sequence[Event]:
        """Learn a finding from the bus. Returns the close of one that turned out to be a twin."""
        key = key_of(message)
        known = self.all.get(key)
        if message["state"] == "closed":
            return self._learn_closed(key, known, message)
        if known is not None and known.id == message["id"]:
            known.on_bus = True
            if known.closing is None and message["ts"] > known.ts:
                self._take(known, message)
            return NOTHING
        if known is None:
            if message["ts"] > self.closed_ns(key):
                self.all[key] = self._opened(key, message)
            return NOTHING
        return self._settle(known, message)

    def _settle(self, known: Open, message: Mapping[str, Any]) -> Sequence[Event]:
        """Two ids for one thing: the older one stays, and what the bus knows beats what only we know."""
        theirs = (int(message["first_ts"]), str(message["id"]))
        if known.closing is None and known.on_bus and (known.first_ts, known.id) <= theirs:
            loser = {**message, "state": "closed", "close_reason": f"the same as {known.id}"}
            return (self._event(loser, "close.twin"),)
        before = known.message
        fresh = self._opened(known.key, message)
        fresh.notes = known.notes
        self.all[known.key] = fresh
        if not known.on_bus or known.closing is not None:
            return NOTHING
        loser = {**before, "state": "closed", "close_reason": f"the same as {fresh.id}"}
        return (self._event(loser, "close.twin"),)

    def _learn_closed(self, key: str, known: Open | None, message: Mapping[str, Any]) -> Sequence[Event]:
        if known is not None and known.id == message["id"]:
            del self.all[key]
        self._note_closed(key, int(message["ts"]))
        return NOTHING

    def _note_closed(self, key: str, ts: int) -> None:
        self.closed[key] = max(ts, self.closed.get(key, 0))
        if len(self.closed) > MAX_CLOSED:
            newest = max(self.closed.values())
            kept = sorted(self.closed.items(), key=lambda item: item[1])[-MAX_CLOSED // 2 :]
            self.closed = {k: v for k, v in kept if v > newest - KEEP_CLOSED_NS}

    def _opened(self, key: str, message: Mapping[str, Any]) -> Open:
        return Open(key, dict(message), int(message["ts"]) // self.every_ns, on_bus=True)

    def _take(self, known: Open, message: Mapping[str, Any]) -> None:
        known.message = dict(message)
        known.bucket = max(known.bucket, int(message["ts"]) // self.every_ns)

    def _message(self, draft: Draft, id_: str, now_ns: int, state: str, first_ts: int | None = None) -> dict[str, Any]:
        entity = {**draft.entity, "ident": draft.ident}
        message: dict[str, Any] = {
            "v": 1,
            "cluster": self.cluster,
            "id": id_,
            "kind": draft.kind,
            "state": state,
            "severity": draft.severity,
            "confidence": round(draft.confidence, 2),
            "entity": entity,
            "cause": draft.cause,
            "first_ts": draft.first_ts if first_ts is None else first_ts,
            "ts": now_ns,
            "data_ts": draft.data_ts,
            "evidence": draft.evidence[:MAX_EVIDENCE],
            "impact": draft.impact or {"job_slowdown_ratio": None},
            "advice": draft.advice,
            "summary": draft.summary,
        }
        if "node" in entity:
            message["node"] = entity["node"]
        if draft.jobs:
            message["job_id"] = draft.jobs[0]
            message["jobs"] = list(draft.jobs)
        if draft.code is not None:
            message["code"] = draft.code
        if draft.count is not None:
            message["count"] = draft.count
        return self.mark(message)

    def _event(self, message: Mapping[str, Any], what: str) -> Event:
        subject = subjects.finding(self.cluster, message["kind"], message.get("node") or "_", message["id"])
        return Event("Finding", subject, dict(message), f"Finding.{self.cluster}.{message['id']}.{what}")


def finding_id(draft: Draft) -> str:
    """Return the id of a new finding: from its kind, what it is about, and when it began."""
    digest = blake2b(f"{draft.key}|{draft.entity.get('node', '')}".encode(errors="replace"), digest_size=5).hexdigest()
    return f"{draft.kind}-{digest}-{draft.first_ts // 1_000_000}"


def key_of(message: Mapping[str, Any]) -> str:
    """Return the name in its book of a finding that was read back."""
    entity = message["entity"]
    ident = entity.get("ident")
    if not isinstance(ident, str):  # not written by us: it gets a name all the same
        ident = str(message["id"])
    return f"{message['kind']}|{ident}"


def _facts(message: Mapping[str, Any]) -> int:
    """Return a digest of what is worth saying at once when it changes."""
    facts = (
        *(message["severity"], message["advice"], message.get("cause"), message.get("code"), message["confidence"]),
        *(message.get("incident"), message["entity"].get("nodes_total")),
    )
    return zlib.crc32(repr(facts).encode())


def duration(ns: int) -> str:
    """Return a span in words: 45 s, 14 min, 3.5 h, 2.1 days."""
    seconds = max(0, ns) / SECOND_NS
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def of_jobs(jobs: Sequence[str]) -> str:
    """Return the jobs as the end of a sentence."""
    if not jobs:
        return ""
    if len(jobs) == 1:
        return f"; job {jobs[0]}"
    shown = ", ".join(jobs[:4])
    return f"; jobs {shown}" + (f" and {len(jobs) - 4} more" if len(jobs) > 4 else "")
