"""One incident of a GPU or switch: the errors that belong together, and what they amount to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heeler.detect import ecc
from heeler.detect.findings import Evidence
from heeler.detect.xid_links import NVLINK4, NVLINK5, link_of
from heeler.detect.xid_table import DRAINS, Row, XidTable

LOST = -1  # stands for a GPU that does not answer, where an XID would stand
LOST_ROW = Row((LOST,), "GPU does not answer", "yes", "reboot the node", confirm=True, class_="HW")
MAX_TEXT = 200
MOST_PLACES = 16  # of a code in one incident
MOST_PLACE_JOBS = 16
FIRST_SXID = 10_000
FABRIC_XIDS = frozenset((NVLINK4, 136, 137, *NVLINK5, 155, 166, 170))
LIMITS = ("repeat", "rma_after")
BY_DETAIL = frozenset((NVLINK4, *NVLINK5))  # codes that their line's parts decide
NVML_SEQ = 1 << 62  # from here on a number is NVML's and no record of the kernel log
TWIN_NS = 5_000_000_000  # two witnesses of one error are no further apart


@dataclass(slots=True)
class Word:
    """What one witness said of a code, and whether another witness has said the same."""

    seq: int
    ts: int
    witness: frozenset[str]
    gpu: str
    matched: bool = False


@dataclass(slots=True)
class Where:
    """A place of a code: jobs that had it there, and how often it came there after a pause."""

    jobs: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)  # whose those are; empty text: not known
    times: int = 0
    last_ts: int = 0

    def told(self) -> dict[str, Any]:
        """Return it as evidence."""
        return {"jobs": list(self.jobs), "users": list(self.users), "times": self.times, "last_ts": self.last_ts}


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
    places: dict[str, Where] = field(default_factory=dict)  # on the chip, or its links
    witnesses: set[str] = field(default_factory=set)
    recent: list[Word] = field(default_factory=list)

    def note_place(self, place: str, event: Mapping[str, Any], ts: int, pause_ns: int) -> None:
        """Remember where it was, and in which jobs."""
        if not place or (place not in self.places and len(self.places) >= MOST_PLACES):
            return
        known = self.places.setdefault(place, Where())
        for told, names in ((known.jobs, event.get("jobs", ())), (known.users, event.get("users", ()))):
            told.extend([name for name in names if name not in told][: MOST_PLACE_JOBS - len(told)])
        known.times += known.times == 0 or ts - known.last_ts > pause_ns
        known.last_ts = max(known.last_ts, ts)

    def twin(self, event: Mapping[str, Any], ts: int, gpu: str) -> bool:
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
        same = (w for w in self.recent if w.gpu == gpu and not w.matched and w.witness.isdisjoint(witness))
        other = next((w for w in same if w.ts - ts <= TWIN_NS), None)
        if other is not None:
            other.matched = True
        self.recent.append(Word(seq, ts, witness, gpu, matched=other is not None))
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
    recoveries: dict[str, int] = field(default_factory=dict)  # by GPU: what its driver asks for
    gpus: list[str] = field(default_factory=list)  # others that the same trouble of the fabric shows on
    data_ts: int = 0

    @property
    def ident(self) -> str:
        """Tell it from others on the node."""
        return f"{self.gpu or 'switch'}:{self.opener}{':' + self.test if self.test else ''}"

    def add(self, row: Row, event: Mapping[str, Any], ts: int, burst_ns: int, gpu: str | None = None) -> None:
        """Take a line in. `gpu`: of which GPU, where that may be another."""
        code, gpu = event.get("code", 0), self.gpu if gpu is None else gpu
        if gpu and gpu != self.gpu and gpu not in self.gpus:
            self.gpus.append(gpu)
        seen = self.codes.get(code)
        if seen is None:
            seen = self.codes[code] = Seen(code, row, first_ts=ts)
        seen.row = row if row.rank > seen.row.rank else seen.row
        twin = seen.twin(event, ts, gpu)
        if not twin:
            seen.episodes += seen.count == 0 or ts - seen.last_ts > burst_ns
            seen.count += max(1, event.get("count", 1))
        seen.last_ts = max(seen.last_ts, ts)
        seen.text = seen.text or str(event.get("text") or event.get("raw") or "")[:MAX_TEXT]
        if not twin:
            place = place_of(event)
            place = f"{gpu}/{place}" if place and gpu != self.gpu else place
            seen.note_place(place, event, ts, burst_ns)
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

    def counted(self, event: Mapping[str, Any], ts: int, gpu: str) -> bool:
        """Say whether an event was counted before. NVML's events have numbers of their own."""
        seq = event["seq"]
        if event["boot"] != self.boot or seq > (self.nvml_seq if seq >= NVML_SEQ else self.seq):
            return False
        seen = self.codes.get(event.get("code", 0))
        if seen is not None:
            seen.twin(event, ts, gpu)  # after a cold start its twin may still come
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
                **_named(seen.code),
                "count": seen.count,
                "episodes": seen.episodes,
                "first_ts": seen.first_ts,
                "last_ts": seen.last_ts,
            }
            if seen.text:
                item["text"] = seen.text
            if seen.row.meaning and seen.code >= 0:
                item |= {"meaning": seen.row.meaning, "action": seen.row.action, "drain": seen.row.drain}
                item |= {name: n for name in LIMITS if (n := getattr(seen.row, name))}
            if seen.places:
                item["places"] = {place: where.told() for place, where in seen.places.items()}
            if seen.witnesses:
                item["witness"] = sorted(seen.witnesses)
            found.append(item)
        for gpu, action in sorted(self.recoveries.items()):
            of_gpu = {"gpu_uuid": gpu} if self.gpus else {}
            found.append({"metric": "recovery_action", "value": action, "unit": "1", **of_gpu})
        return found

    @property
    def of_memory(self) -> bool:
        """Say whether the GPU's samples say something of its memory."""
        return not self.codes.keys().isdisjoint(ecc.ROWS)

    @property
    def of_fabric(self) -> bool:
        """Say whether it is about links or switches, which show on several GPUs at once. What is corrected is not."""
        return any(
            (code in FABRIC_XIDS or code >= FIRST_SXID) and seen.row.drain != "never"
            for code, seen in self.codes.items()
        )


def _named(code: int) -> Evidence:
    """Return the name and value of a code as evidence."""
    if code == LOST:
        return {"metric": "gpu_state", "value": "lost"}
    return (
        {"metric": "memory_state", "value": ecc.NAMES[code]}
        if code in ecc.ROWS
        else {"metric": metric_of(code), "value": code}
    )


def metric_of(code: int) -> str:
    """Return which numbers a code is one of: those of switches have five digits."""
    return "sxid" if code >= FIRST_SXID else "xid"


def place_of(event: Mapping[str, Any]) -> str:
    """Return the place that an error names, on the chip or its link; empty where it names none."""
    detail = event.get("detail", {})
    link = link_of(detail) if event.get("code") in BY_DETAIL else None
    if link is not None:
        return f"link{link}"
    if "gpc" not in detail:
        return ""
    parts = [f"{name}{detail[name]}" for name in ("gpc", "tpc", "sm") if isinstance(detail.get(name), int)]
    client = detail.get("client") if len(parts) == 1 else None
    # Of a page fault the unit that asked says where; a whole GPC holds too many of them.
    return "/".join([*parts, client.split()[-1]]) if isinstance(client, str) and client.split() else "/".join(parts)


def from_finding(message: Mapping[str, Any], table: XidTable) -> Incident:
    """Return the incident of a finding that was read back."""
    entity, kind = message["entity"], message["kind"]
    incident = Incident(
        gpu=str(entity.get("first_gpu", entity.get("gpu_uuid") or entity.get("pci") or "")),
        opener=_int(entity.get("opener"), message.get("code", 0)),
        kind=kind,
        first_ts=message["first_ts"],
        last_ts=message["first_ts"],
        boot=str(entity.get("boot") or ""),
        seq=_int(entity.get("event_seq"), -1),
        nvml_seq=_int(entity.get("nvml_seq"), -1),
        test=str(entity.get("test") or ""),
        jobs=list(message.get("jobs", ())),
        gpus=[str(gpu) for gpu in entity.get("gpus") or () if gpu != entity.get("first_gpu")],
        lost=_int(entity.get("lost"), 0),
        hung=_int(entity.get("hung"), 0),
        fine=entity.get("fine") is True,
        data_ts=message.get("data_ts", message["first_ts"]),
    )
    for item in message["evidence"]:
        if item["metric"] == "recovery_action":
            incident.recoveries[str(item.get("gpu_uuid", incident.gpu))] = _int(item.get("value"), 0)
        elif item["metric"] in ("xid", "sxid", "gpu_state") or item.get("value") in ecc.CODES:
            _take_back(incident, item, table)
    if not incident.codes:
        code = message.get("code", 0)
        incident.codes[code] = Seen(code, table.judge({"kind": kind, "code": code}), 1, 1, incident.first_ts)
    return incident


def _take_back(incident: Incident, item: Mapping[str, Any], table: XidTable) -> None:
    code = LOST if item["metric"] == "gpu_state" else ecc.CODES.get(item["value"], _int(item.get("value"), 0))
    event = {"kind": item["metric"], "code": code, "text": item.get("text", "")}
    row = LOST_ROW if code == LOST else ecc.ROWS.get(code) or table.judge(event)
    if code in BY_DETAIL and item.get("drain") in DRAINS:  # what the line's parts said, which are gone
        told: dict[str, Any] = {name: _int(item.get(name), 0) for name in LIMITS}
        told |= {name: str(item.get(name, "")) for name in ("drain", "meaning", "action")}
        row = replace(row, **told)
    seen = Seen(code, row)
    seen.count, seen.episodes = _int(item.get("count"), 1), _int(item.get("episodes"), 1)
    seen.first_ts = _int(item.get("first_ts"), incident.first_ts)
    seen.last_ts = _int(item.get("last_ts"), incident.first_ts)
    witness = item.get("witness")
    seen.witnesses = {str(name) for name in witness} if isinstance(witness, list) else set()
    seen.text = str(item.get("text", ""))
    places = item.get("places")
    for place, where in places.items() if isinstance(places, Mapping) else ():
        seen.places[str(place)] = Where(
            _texts(where.get("jobs")),
            _texts(where.get("users")),
            _int(where.get("times"), 1),
            _int(where.get("last_ts"), seen.last_ts),
        )
    incident.codes[code] = seen
    incident.last_ts = max(incident.last_ts, seen.last_ts)


def _int(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
