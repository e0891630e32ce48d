"""One incident of a GPU or switch: the errors that belong together, and what they amount to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.findings import Evidence
from heeler.detect.xid_table import Row, XidTable

LOST = -1  # stands for a GPU that does not answer, where an XID would stand
LOST_ROW = Row((LOST,), "GPU does not answer", "yes", "reboot the node", confirm=True, class_="HW")
MAX_TEXT = 200


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


@dataclass(slots=True)
class Incident:
    """Errors of one GPU within a burst, and their repetitions."""

    gpu: str  # UUID, else PCI address, else empty for the node's switches
    opener: int
    kind: str  # kind of the finding
    first_ts: int
    last_ts: int
    boot: str = ""
    seq: int = -1
    test: str = ""  # why it is no real one: injected, untrusted
    codes: dict[int, Seen] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)
    lost: int = 0  # readings and lines that say that the GPU does not answer
    hung: int = 0
    fine: bool = False  # a fresh reading right after the line said that it does
    witnesses: set[str] = field(default_factory=set)
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
        seen.episodes += seen.count == 0 or ts - seen.last_ts > burst_ns
        seen.count += max(1, event.get("count", 1))
        seen.last_ts = max(seen.last_ts, ts)
        seen.text = seen.text or str(event.get("text") or event.get("raw") or "")[:MAX_TEXT]
        seen.place = seen.place or place_of(event.get("detail", {}))
        self.last_ts = max(self.last_ts, ts)
        self.data_ts = max(self.data_ts, ts)
        self.seq = max(self.seq, event.get("seq", -1))
        self.jobs += [job for job in event.get("jobs", ()) if job not in self.jobs]
        self.witnesses.update(event.get("witness", ()))
        state = event.get("gpu_state")
        self.lost += state == "lost"
        self.hung += state == "hung"
        self.fine = self.fine or state == "ok"

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
    seen.text, seen.place = str(item.get("text", "")), str(item.get("place", ""))
    incident.codes[code] = seen
    incident.last_ts = max(incident.last_ts, seen.last_ts)


def _int(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
