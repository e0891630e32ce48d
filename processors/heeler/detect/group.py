"""Findings of several nodes that may be signs of one cause: which of them belong together. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heeler.detect.findings import SECOND_NS, Open
from heeler.detect.places import Place, place_of
from heeler.detect.shared_causes import BY_NAME, Shared
from heeler.detect.thresholds import IncidentThresholds

MOST_NAMED = 1024  # members and nodes that an incident lists


@dataclass(slots=True)
class Member:
    """A finding that may be a sign of a shared cause."""

    id: str
    cause: Shared
    nodes: tuple[str, ...]  # empty: those of its job, which may be told later
    jobs: tuple[str, ...]
    onset_ns: int
    ts: int
    message: Mapping[str, Any]  # as it was last said
    over_ns: int = 0  # when it was closed

    @classmethod
    def of(cls, finding: Mapping[str, Any], cause: Shared) -> "Member":
        """Return the member that a finding is."""
        nodes = (finding["node"],) if finding.get("node") else ()
        jobs = tuple(finding.get("jobs") or ())
        over = finding["ts"] if finding["state"] == "closed" else 0
        return cls(finding["id"], cause, nodes, jobs, finding["first_ts"], finding["ts"], finding, over)


@dataclass(frozen=True, slots=True)
class Sign:
    """A member and those of its nodes that are at a place."""

    member: Member
    nodes: tuple[str, ...]


By = Mapping[Place, tuple[str, ...]]  # the nodes of a member at each place


@dataclass(slots=True)
class Group:
    """Members of one incident. No place: only the time connects them."""

    cause: Shared
    places: list[Place]
    first_ns: int
    last_ns: int  # newest onset
    ids: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, cause: Shared, places: list[Place], signs: Sequence[Sign]) -> "Group":
        """Return a new group."""
        onsets = [sign.member.onset_ns for sign in signs]
        group = cls(cause, places, min(onsets), max(onsets))
        for sign in signs:
            group.add(sign)
        return group

    @classmethod
    def read(cls, found: Open) -> "Group | None":
        """Return the group of an incident that was read back; None where it names a cause that is not known here."""
        entity = found.message["entity"]
        cause = BY_NAME.get(str(found.message.get("cause")))
        if cause is None:
            return None
        places = [place_of(str(key)) for key in entity.get("places") or ()]
        group = cls(cause, places, found.first_ts, int(entity.get("newest_onset_ts") or found.first_ts))
        group.ids = dict.fromkeys(map(str, entity.get("members") or ()))
        group.nodes = dict.fromkeys(map(str, entity.get("nodes") or ()))
        return group

    @property
    def ident(self) -> str:
        """Tell it from other incidents."""
        return f"{self.cause.name}:{self.places[0].key if self.places else ''}"

    def add(self, sign: Sign) -> None:
        """Take a member in."""
        onset_ns = sign.member.onset_ns
        self.ids[sign.member.id] = None
        self.nodes |= dict.fromkeys(sign.nodes)
        self.first_ns, self.last_ns = min(self.first_ns, onset_ns), max(self.last_ns, onset_ns)

    def takes(self, m: Member, by: By, span_ns: int) -> Sign | None:
        """Return one more finding as its sign where it belongs to it."""
        here = [place for place in by if place in self.places]
        if self.cause.of_job:
            return Sign(m, m.nodes) if here else None
        # Where only the time speaks it must not go on for ever.
        newest = self.last_ns if self.places else self.first_ns + span_ns
        near = self.first_ns - span_ns <= m.onset_ns <= newest + span_ns
        if not self.places:
            return Sign(m, m.nodes) if near else None
        nodes = tuple(dict.fromkeys(node for place in here for node in by[place]))
        return Sign(m, nodes) if nodes and (near or not self.nodes.keys().isdisjoint(nodes)) else None

    def meets(self, other: "Group", span_ns: int) -> bool:
        """Say whether a new group at another place is part of the same trouble, or came to the same place again."""
        if self.cause is not other.cause:
            return False
        if self.ident == other.ident:
            return True
        apart = max(self.first_ns, other.first_ns) - min(self.last_ns, other.last_ns)
        return not self.cause.of_job and bool(self.places) == bool(other.places) and apart <= span_ns


@dataclass(frozen=True, slots=True)
class Enough:
    """How many make one cause."""

    t: IncidentThresholds
    fleet: int

    def __call__(self, cause: Shared, signs: Sequence[Sign], *, placed: bool) -> bool:
        """Say whether some signs are."""
        nodes = len({node for sign in signs for node in sign.nodes})
        if all(sign.member.over_ns for sign in signs):
            return False
        if cause.of_job:
            return nodes >= self.t.least_job_nodes or len(signs) >= self.t.least_job_gpus
        if len(signs) == 1:  # what a job says of many nodes is one finding already
            return False
        if placed:
            return nodes >= self.t.least_nodes
        many = nodes >= self.t.least_nodes and nodes >= self.t.mass_share * self.fleet > 0
        return many or (cause.alone and nodes >= self.t.least_untold_nodes)


def groups_of(
    cause: Shared, free: Mapping[str, tuple[Member, By]], sizes: Mapping[Place, int], enough: Enough
) -> list[Group]:
    """Return the groups that findings of one cause make."""
    span_ns = int(cause.span_s(enough.t) * SECOND_NS)
    by_place: dict[Place, list[Sign]] = {}
    for m, by in free.values():
        for place, nodes in by.items():
            by_place.setdefault(place, []).append(Sign(m, nodes))
    # Of two places that have the same nodes in common, the smaller one says more.
    order = sorted(by_place, key=lambda p: (-len({n for s in by_place[p] for n in s.nodes}), sizes.get(p, 1 << 30), p))
    found: list[Group] = []
    taken: set[str] = set()
    for place in order:
        mine = window([sign for sign in by_place[place] if sign.member.id not in taken], span_ns)
        if enough(cause, mine, placed=True):
            taken.update(sign.member.id for sign in mine)
            found.append(Group.of(cause, [place], mine))
    rest = window([Sign(m, m.nodes) for m, _ in free.values() if m.id not in taken], span_ns)
    if not cause.of_job and enough(cause, rest, placed=False):
        found.append(Group.of(cause, [], rest))
    return merged(found, span_ns)


def merged(groups: Sequence[Group], span_ns: int) -> list[Group]:
    """Return groups with those as one that began together at several places: what is wrong lies above them."""
    found: list[Group] = []
    for group in sorted(groups, key=lambda g: g.ident):
        known = next((g for g in found if g.meets(group, span_ns)), None)
        if known is None:
            found.append(group)
        else:
            absorb(known, group)
    return found


def absorb(into: Group, group: Group) -> None:
    """Take a group into another."""
    into.places += [place for place in group.places if place not in into.places]
    into.ids |= group.ids
    into.nodes |= group.nodes
    into.first_ns, into.last_ns = min(into.first_ns, group.first_ns), max(into.last_ns, group.last_ns)


def window(signs: Iterable[Sign], span_ns: int) -> list[Sign]:
    """Return those signs, of most nodes, that began within a span; the earliest of equals."""
    ordered = sorted(signs, key=lambda sign: (sign.member.onset_ns, sign.member.id))
    counts: Counter[str] = Counter()
    best, most, first = (0, 0), (0, 0), 0
    for at, sign in enumerate(ordered):
        counts.update(sign.nodes)
        while sign.member.onset_ns - ordered[first].member.onset_ns > span_ns:
            for node in ordered[first].nodes:
                counts[node] -= 1
                if not counts[node]:
                    del counts[node]
            first += 1
        if (len(counts), at + 1 - first) > most:
            best, most = (first, at + 1), (len(counts), at + 1 - first)
    return ordered[best[0] : best[1]]
