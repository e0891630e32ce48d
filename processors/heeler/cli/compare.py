"""What two replays of one capture have said differently: pure, for `heeler replay --diff`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from heeler.detect.findings import duration
from heeler.engine import Inbound

Change = Literal["found", "missed", "changed"]
SIGNS: Mapping[Change, str] = {"found": "+", "missed": "-", "changed": "~"}
# Of most concern first: what is shown of a finding is the strongest that it ever said.
ADVICE = ("drain_now", "rma", "reboot", "reset", "drain_after_job", "person", "observe", "none")


@dataclass(slots=True)
class Episode:
    """A finding, or what drain decided for a node, from its first word to its last."""

    key: tuple[str, ...]
    begin_ns: int
    end_ns: int
    summary: str
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        """Kind and entity, for people."""
        return " ".join(part for part in self.key if part)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that one replay said and the other did not, or not so."""

    change: Change
    before: Episode | None
    after: Episode | None
    details: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """One line."""
        shown = self.after or self.before
        assert shown is not None
        if self.change == "changed":
            return f"{SIGNS[self.change]} {shown.name}: {'; '.join(self.details)}"
        facts = ", ".join(f"{name} {value}" for name, value in shown.facts.items() if value is not None)
        return f"{SIGNS[self.change]} {shown.name}: {facts}: {shown.summary}"

    def plain(self) -> dict[str, Any]:
        """Return it for JSON. Times are nanoseconds since the epoch."""
        return {
            "change": self.change,
            "before": _plain(self.before),
            "after": _plain(self.after),
            "details": list(self.details),
        }


def episodes(messages: Iterable[Inbound]) -> list[Episode]:
    """Return the findings and decisions of a replay, in the order of their beginnings."""
    found: dict[tuple[str, ...], Episode] = {}
    for message in messages:
        if message.kind == "Finding":
            _finding(found, message.data)
        elif message.kind == "DrainAction":
            data = message.data
            key = ("drain", data["verdict"], data["node"], "")
            known = found.setdefault(key, Episode(key[:3], data["ts"], data["ts"], data.get("why") or "", {}))
            known.end_ns = data["ts"]
    return sorted(found.values(), key=lambda e: (e.begin_ns, e.key))


def _finding(found: dict[tuple[str, ...], Episode], data: Mapping[str, Any]) -> None:
    entity = data["entity"]
    what = entity.get("ident") or data["id"]
    key = (data["kind"], data.get("node") or "", str(what), data["id"])
    known = found.get(key)
    if known is None:
        known = found[key] = Episode(key[:3], data["ts"], data["ts"], data["summary"], {"advice": "none"})
    known.end_ns = max(known.end_ns, data["ts"])
    if data["state"] != "closed":
        known.summary = data["summary"]
        known.facts["advice"] = min(known.facts["advice"], data["advice"], key=_weight)
        known.facts["cause"] = data.get("cause")
        known.facts["confidence"] = max(data["confidence"], known.facts.get("confidence", 0.0))


def _weight(advice: str) -> int:
    return ADVICE.index(advice) if advice in ADVICE else 0


def differences(before: Sequence[Episode], after: Sequence[Episode]) -> list[Difference]:
    """Return how two replays differ. Episodes of one thing are the same when they overlap in time."""
    left = list(before)
    found: list[Difference] = []
    for now in after:
        twin = next(
            (e for e in left if e.key == now.key and e.begin_ns <= now.end_ns and now.begin_ns <= e.end_ns), None
        )
        if twin is None:
            found.append(Difference("found", None, now))
            continue
        left.remove(twin)
        if details := _details(twin, now):
            found.append(Difference("changed", twin, now, details))
    found += [Difference("missed", gone, None) for gone in left]
    return sorted(found, key=lambda d: (d.after or d.before).begin_ns)  # type: ignore[union-attr]


def _details(before: Episode, after: Episode) -> tuple[str, ...]:
    told = []
    for what, shift in (("begins", after.begin_ns - before.begin_ns), ("ends", after.end_ns - before.end_ns)):
        if shift:
            told.append(f"{what} {duration(abs(shift))} {'later' if shift > 0 else 'earlier'}")
    told += [
        f"{name} {before.facts.get(name)} → {value}"
        for name, value in after.facts.items()
        if value != before.facts.get(name)
    ]
    return tuple(told)


def _plain(episode: Episode | None) -> dict[str, Any] | None:
    if episode is None:
        return None
    return {
        "name": episode.name,
        "begin_ns": episode.begin_ns,
        "end_ns": episode.end_ns,
        "summary": episode.summary,
        **episode.facts,
    }
