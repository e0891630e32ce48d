"""One incident of a GPU or switch: the errors that belong together, and what they amount to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.findings import Evidence
from heeler.detect.xid_table import Row, XidTable

LOST = -1  # stands for a GPU that does not answer, where an XID would stand
LOST_ROW = Row((LOST,), "GPU does not answer", "yes", "reboot the node", confirm=True, class_="HW")
MAX_TEXT = 200
NVML_SEQ = 1 << 62  # from here on a number is NVML's and no record of the kernel log
TWIN_NS = 5_000_000_000  # two witnesses of one error are no further apart


@dataclass(slots=True)
class Word:
    """What one witness said of a code, and whether another witness has said the same."""

    seq: int
    ts: int
    witness: frozenset[str]
    matched: bool = False


@dataclass(slots=True)
class Seen:
    """One code of an incident."""

    code: int
    row: Row
    count: int = 0
    episodes: int = 0  # times it came after a pause
    first_ts: int = 0
    last_ts: int = 0
    text: str = ""
    place: str = ""
    witnesses: set[str] = field(default_factory=set)
    recent: list[Word] = field(default_factory=list)

    def twin(self, event: Mapping[str, Any], ts: int) -> bool:
        """Take in what a witness says; True when another one has said it before.

        The agent joins what NVML and the kernel log say of one error, but an agent that was started again between
        the two sends both. Each word has one twin at most, so that two errors stay two.
        """
        seq, witness = event.get("seq"), frozenset(event.get("witness", ()))
        if seq is None or not witness:
            return False
        self.recent = [word for word in self.recent if ts - word.ts <= TWIN_NS]
        if any(word.seq == seq for word in self.recent):
            return False  # redelivered
        other = next(
            (w for w in self.recent if not w.matched and w.witness.isdisjoint(witness) and w.ts - ts <= TWIN_NS), None
        )
        if other is not None:
            other.matched = True
        self.recent.append(Word(seq, ts, witness, matched=other is not None))
        return other is not None


@dataclass(slots=True)
class Incident:
    """Errors of one GPU within a burst, and their repetitions."""

    gpu: str  # UUID, else PCI address, else empty for the node's switches
    opener: int
    kind: str  # kind of the finding
    first_ts: int
    last_ts: int
    boot: str = ""
    seq: int = -1  # of the newest record of the kernel log
    nvml_seq: int = -1  # of the newest event that only NVML saw
    test: str = ""  # why it is no real one: injected, untrusted
    codes: dict[int, Seen] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)
    lost: int = 0  # readings and lines that say that the GPU does not answer
    hung: int = 0
    fine: bool = False  # a fresh reading right after the line said that it does
    recovery: int | None = None
    data_ts: int = 0

    @property
    def ident(self) -> str:
        """Tell it from others on the node."""
        return f"{self.gpu or 'switch'}:{self.opener}{':' + self.test if self.test else ''}"

    def add(self, row: Row, event: Mapping[str, Any], ts: int, burst_ns: int) -> None:
        """Take a line in."""
        code = event.get("code", 0)
        seen = self.codes.get(code)
        if seen is None:
            seen = self.codes[code] = Seen(code, row, first_ts=ts)
        seen.row = row if row.rank > seen.row.rank else seen.row
        twin = seen.twin(event, ts)
        if not twin:
            seen.episodes += seen.count == 0 or ts - seen.last_ts > burst_ns
            seen.count += max(1, event.get("count", 1))
        seen.last_ts = max(seen.last_ts, ts)
        seen.text = seen.text or str(event.get("text") or event.get("raw") or "")[:MAX_TEXT]
        seen.place = seen.place or place_of(event.get("detail", {}))
        self.last_ts = max(self.last_ts, ts)
        self.data_ts = max(self.data_ts, ts)
        self._remember(event.get("seq", -1))
        self.jobs += [job for job in event.get("jobs", ()) if job not in self.jobs]
        seen.witnesses.update(event.get("witness", ()))
        state = event.get("gpu_state") if not twin or not (self.lost or self.hung or self.fine) else None
        self.lost += state == "lost"
        self.hung += state == "hung"
        self.fine = self.fine or state == "ok"

    def _remember(self, seq: int) -> None:
        if seq >= NVML_SEQ:
            self.nvml_seq = max(self.nvml_seq, seq)
        else:
            self.seq = max(self.seq, seq)

    def counted(self, event: Mapping[str, Any], ts: int) -> bool:
        """Say whether an event was counted before. NVML's events have numbers of their own."""
        seq = event["seq"]
        if event["boot"] != self.boot or seq > (self.nvml_seq if seq >= NVML_SEQ else self.seq):
            return False
        seen = self.codes.get(event.get("code", 0))
        if seen is not None:
            seen.twin(event, ts)  # after a cold start its twin may still come
        return True

    @property
    def witnesses(self) -> set[str]:
        """Who saw any of it."""
        return set().union(*(seen.witnesses for seen in self.codes.values()))

    @property
    def confirmed(self) -> bool:
        """Say whether a second witness saw the GPU gone."""
        return self.lost > 0 or self.hung > 1 or (self.hung > 0 and bool(set(self.codes) - {LOST}))

    def worst(self) -> Seen:
        """Return the code that counts; the first of equals."""
        return max(self.codes.values(), key=lambda s: (s.row.rank, -s.first_ts, -s.code))

    def evidence(self) -> list[Evidence]:
        """Return the codes as evidence: enough to take the incident up again from its finding."""
        found: list[Evidence] = []
        for seen in sorted(self.codes.values(), key=lambda s: (-s.row.rank, s.first_ts)):
            item: Evidence = {
                "metric": "gpu_state" if seen.code == LOST else self.metric,
                "value": "lost" if seen.code == LOST else seen.code,
                "count": seen.count,
                "episodes": seen.episodes,
                "first_ts": seen.first_ts,
                "last_ts": seen.last_ts,
            }
            if seen.text:
                item["text"] = seen.text
            if seen.place:
                item["place"] = seen.place
            if seen.witnesses:
                item["witness"] = sorted(seen.witnesses)
            found.append(item)
        if self.recovery is not None:
            found.append({"metric": "recovery_action", "value": self.recovery, "unit": "1"})
        return found

    @property
    def metric(self) -> str:
        """The name of its codes."""
        return "sxid" if self.kind == "sxid" else "xid"


def place_of(detail: Mapping[str, Any]) -> str:
    """Return the place on the chip that an error names; empty where it names none."""
    parts = [f"{name}{detail[name]}" for name in ("gpc", "tpc", "sm") if isinstance(detail.get(name), int)]
    return "/".join(parts) if "gpc" in detail else ""


def from_finding(message: Mapping[str, Any], table: XidTable) -> Incident:
    """Return the incident of a finding that was read back."""
    entity, kind = message["entity"], message["kind"]
    incident = Incident(
        gpu=entity.get("gpu_uuid") or entity.get("pci") or "",
        opener=_int(entity.get("opener"), message.get("code", 0)),
        kind=kind,
        first_ts=message["first_ts"],
        last_ts=message["first_ts"],
        boot=str(entity.get("boot") or ""),
        seq=_int(entity.get("event_seq"), -1),
        nvml_seq=_int(entity.get("nvml_seq"), -1),
        test=str(entity.get("test") or ""),
        jobs=list(message.get("jobs", ())),
        lost=_int(entity.get("lost"), 0),
        hung=_int(entity.get("hung"), 0),
        fine=entity.get("fine") is True,
        data_ts=message.get("data_ts", message["first_ts"]),
    )
    for item in message["evidence"]:
        if item["metric"] == "recovery_action":
            incident.recovery = _int(item.get("value"), 0)
        elif item["metric"] in ("xid", "sxid", "gpu_state"):
            _take_back(incident, item, table)
    if not incident.codes:
        code = message.get("code", 0)
        incident.codes[code] = Seen(code, table.judge({"kind": kind, "code": code}), 1, 1, incident.first_ts)
    return incident


def _take_back(incident: Incident, item: Mapping[str, Any], table: XidTable) -> None:
    code = LOST if item["metric"] == "gpu_state" else _int(item.get("value"), 0)
    told = {"kind": item["metric"], "code": code, "text": item.get("text", "")}
    seen = Seen(code, LOST_ROW if code == LOST else table.judge(told))
    seen.count, seen.episodes = _int(item.get("count"), 1), _int(item.get("episodes"), 1)
    seen.first_ts = _int(item.get("first_ts"), incident.first_ts)
    seen.last_ts = _int(item.get("last_ts"), incident.first_ts)
    witness = item.get("witness")
    seen.witnesses = {str(name) for name in witness} if isinstance(witness, list) else set()
    seen.text, seen.place = str(item.get("text", "")), str(item.get("place", ""))
    incident.codes[code] = seen
    incident.last_ts = max(incident.last_ts, seen.last_ts)


def _int(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
