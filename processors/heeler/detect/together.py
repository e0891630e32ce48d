"""One cause on several nodes is one incident: what findings of many nodes have in common in place and time.

It reads the findings of the other rules, says `incident`, and leaves them open: who looks at a node sees what is wrong
there, and its finding names the incident. The incident lasts while enough of them do. A finding belongs to one
incident at most, once; so nothing that comes late or again opens one anew.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from heeler.detect.findings import SECOND_NS, Book, Draft, Evidence, Open, duration, of_jobs
from heeler.detect.group import MOST_NAMED, By, Enough, Group, Member, absorb, groups_of
from heeler.detect.places import Place, Places, words_of
from heeler.detect.shared_causes import KINDS, SHARED, Shared, cause_of
from heeler.detect.thresholds import IncidentThresholds
from heeler.engine import Event

KIND = "incident"
MOST_MEMBERS = 16_384
MOST_JOBS = 64
SEVERITIES = ("info", "warning", "critical")


class Together:
    """The incidents of a cluster. `fleet` says how many nodes are heard, `nodes_of` which nodes a job has."""

    def __init__(
        self,
        t: IncidentThresholds,
        places: Places,
        fleet: Callable[[], int],
        nodes_of: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.t, self.places, self.fleet, self.nodes_of = t, places, fleet, nodes_of
        self.members: dict[str, Member] = {}
        self.taken: set[str] = set()  # findings that belong, or belonged, to an incident
        self.fresh = False  # something has come that may make a group

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Take a finding in, another rule's or one of ours that was read back."""
        if finding["kind"] == KIND:
            self.taken.update(map(str, finding["entity"].get("members") or ()))
            return
        if finding["kind"] not in KINDS:
            return
        ident, cause = str(finding["id"]), cause_of(finding)
        known = self.members.get(ident)
        if known is not None and finding["ts"] <= max(known.over_ns, known.ts - 1):
            return  # late, or a twin
        if cause is None or (known is not None and known.cause is not cause):
            self.members.pop(ident, None)  # it turned out to be something else
        if cause is not None:
            m = self.members[ident] = Member.of(finding, cause)
            m.nodes = m.nodes or (known.nodes if known is not None else ())
            self.fresh |= known is None or known.cause is not cause
        if len(self.members) > MOST_MEMBERS:
            self._make_room()

    def _make_room(self) -> None:
        kept = sorted(self.members.values(), key=lambda m: (m.over_ns == 0, m.ts))[MOST_MEMBERS // 8 :]
        self.members = {m.id: m for m in kept}

    def tick(self, book: Book, now_ns: int) -> list[Event]:
        """See what has come together, and what is over."""
        open_ = book.of_kind(KIND)
        if not self.members and not open_:
            return []
        events: list[Event] = []
        groups = {found.key: group for found in open_ if (group := self._group(found)) is not None}
        if self.fresh:
            self.fresh = False
            events += self._come(book, groups, now_ns)
        for found in open_:
            group = groups.get(found.key)
            if group is None:  # of a newer version: whoever said it closes it
                continue
            events += self._over(book, found, group, now_ns) or self._say(book, group, now_ns)
        self._forget(now_ns, open_)
        return events

    def _group(self, found: Open) -> Group | None:
        group = found.notes.get("group")
        if group is None:
            group = found.notes["group"] = Group.read(found)
        assert group is None or isinstance(group, Group)
        return group

    # What comes together.

    def _come(self, book: Book, groups: dict[str, Group], now_ns: int) -> list[Event]:
        clear_ns = int(self.t.clear_s * SECOND_NS)
        free: dict[str, list[Member]] = {}
        for m in self.members.values():
            if m.ts > now_ns:  # a cold start reads the newest findings first, and then what was before
                self.fresh = True
            elif m.id not in self.taken and (not m.over_ns or now_ns - m.over_ns < clear_ns):
                m.nodes = m.nodes or tuple(node for job in m.jobs for node in self.nodes_of.get(job, ()))
                if m.nodes:
                    free.setdefault(m.cause.name, []).append(m)
        events: list[Event] = []
        for cause in SHARED:
            if mine := free.get(cause.name):
                mine = self._join(cause, mine, groups)
                events += self._begin(book, cause, mine, groups, now_ns)
        return events

    def _join(self, cause: Shared, free: Sequence[Member], groups: Mapping[str, Group]) -> list[Member]:
        """Give findings to the open incidents that they belong to; return the others."""
        open_ = [group for group in groups.values() if group.cause is cause]
        span_ns = int(cause.span_s(self.t) * SECOND_NS)
        left = []
        for m in sorted(free, key=lambda m: (m.onset_ns, m.id)):
            by = self._by(m) if open_ and not m.over_ns else {}
            for group in open_ if not m.over_ns else ():
                if (sign := group.takes(m, by, span_ns)) is not None:
                    group.add(sign)
                    self.taken.add(m.id)
                    break
            else:
                left.append(m)
        return left

    def _begin(
        self, book: Book, cause: Shared, free: Sequence[Member], groups: Mapping[str, Group], now_ns: int
    ) -> list[Event]:
        if len(free) < 2:
            return []
        span_ns = int(cause.span_s(self.t) * SECOND_NS)
        told = {m.id: (m, self._by(m)) for m in free}
        events: list[Event] = []
        for group in groups_of(cause, told, self.places.sizes, Enough(self.t, self.fleet())):
            known = next((g for g in groups.values() if g.meets(group, span_ns)), None)
            if known is not None:
                absorb(known, group)
                self.taken.update(group.ids)
            elif now_ns - group.last_ns <= self.t.late_s * SECOND_NS:
                events += self._say(book, group, now_ns)
                found = book.get(f"{KIND}|{group.ident}")
                if found is None:  # the one before it has not been read back as closed: the next tick
                    self.fresh = True
                    continue
                found.notes["group"] = group
                self.taken.update(group.ids)
        return events

    def _by(self, m: Member) -> By:
        """Return the nodes of a finding at each place that it has a part in."""
        if m.cause.of_job:
            return {Place("job", job): m.nodes for job in m.jobs}
        found: dict[Place, tuple[str, ...]] = {}
        for node in m.nodes:
            for place in self.places.of(node):
                found[place] = (*found.get(place, ()), node)
        return found

    # What is over.

    def _over(self, book: Book, found: Open, group: Group, now_ns: int) -> Sequence[Event]:
        known = [m for ident in group.ids if (m := self.members.get(ident)) is not None]
        left = self._sick(group, known)
        if len(left) >= self._least(group.cause):
            found.notes.pop("few_ns", None)
            return ()
        # When the last one ended that was one too many; the same for an instance that has just been started.
        since = max((m.over_ns for m in known if m.over_ns), default=found.notes.setdefault("few_ns", now_ns))
        wait_s = self.t.linger_s if left else self.t.clear_s
        if now_ns - since < wait_s * SECOND_NS:
            return ()
        if not left:
            reasons = Counter(str(m.message.get("close_reason", "")) for m in known)
            reason = next(iter(reasons.most_common(1)), ("", 0))[0]
            return book.close(found.key, now_ns, f"all are over: {reason}" if reason else "all are over")
        rest = ", ".join(sorted(left)[:3])
        return book.close(
            found.key,
            now_ns,
            f"{len(group.nodes) - len(left)} of {len(group.nodes)} nodes are well again: what is left on {rest} "
            "has a finding of its own",
        )

    @staticmethod
    def _sick(group: Group, members: Sequence[Member]) -> set[str]:
        """Return the nodes that are not well."""
        return {node for m in members if not m.over_ns for node in m.nodes if node in group.nodes}

    def _least(self, cause: Shared) -> int:
        return 1 if cause.of_job else self.t.least_nodes

    def _forget(self, now_ns: int, open_: Sequence[Open]) -> None:
        before = now_ns - int(self.t.keep_s * SECOND_NS)
        of_open = {ident for found in open_ if (group := found.notes.get("group")) for ident in group.ids}
        old = [m.id for m in self.members.values() if 0 < m.over_ns < before and m.id not in of_open]
        for ident in old:
            del self.members[ident]
            self.taken.discard(ident)
        if len(self.taken) > 2 * MOST_MEMBERS:
            self.taken.intersection_update(self.members.keys() | of_open)

    # What is said.

    def _say(self, book: Book, group: Group, now_ns: int) -> Sequence[Event]:
        members = [m for ident in group.ids if (m := self.members.get(ident)) is not None]
        if not members:  # read back, and its findings not yet
            return ()
        sick = [m for m in members if not m.over_ns]
        jobs = sorted({job for m in members for job in m.jobs})[:MOST_JOBS]
        lasts = now_ns - group.first_ns >= self.t.person_after_s * SECOND_NS
        advice = group.cause.advice if group.cause.advice == "none" or lasts else "observe"
        return book.report(
            Draft(
                kind=KIND,
                ident=group.ident,
                entity=self._entity(group, sick),
                severity=max((m.message["severity"] for m in sick or members), key=_rank),
                confidence=self._confidence(group),
                advice=advice,
                cause=group.cause.name,
                summary=_summary(group, members, jobs),
                first_ts=group.first_ns,
                data_ts=max(m.message.get("data_ts", m.ts) for m in members),
                evidence=self._evidence(group, members, sick),
                jobs=jobs,
                count=len(group.nodes),
            ),
            now_ns,
        )

    @staticmethod
    def _confidence(group: Group) -> float:
        return 0.5 if not group.places else 0.9 if len(group.places) == 1 else 0.8

    @staticmethod
    def _entity(group: Group, sick: Sequence[Member]) -> dict[str, Any]:
        kinds = {place.kind for place in group.places}
        entity: dict[str, Any] = {"type": "unknown", "places": [place.key for place in group.places]}
        if group.cause.of_job:
            entity |= {"type": "job", "job_id": group.places[0].name}
        elif kinds and kinds <= {"switch", "fabric"}:
            entity |= {"type": "switch"}
        # Those that are not over come first: where there are too many, they are the ones that count.
        ids = dict.fromkeys([m.id for m in sick]) | group.ids
        return entity | {
            "members": list(islice(ids, MOST_NAMED)),
            "nodes": sorted(group.nodes)[:MOST_NAMED],
            "nodes_total": len(group.nodes),
            "newest_onset_ts": group.last_ns,
        }

    def _evidence(self, group: Group, members: Sequence[Member], sick: Sequence[Member]) -> list[Evidence]:
        named = ", ".join(sorted(group.nodes)[:10])
        found: list[Evidence] = [{"metric": "nodes", "value": len(group.nodes), "unit": "1", "text": named}]
        behind = sum(self.places.sizes.get(place, 0) for place in group.places)
        if behind:
            found[0]["peers"] = behind
        found += [
            {"metric": "nodes_not_well", "value": len(self._sick(group, sick)), "unit": "1"},
            {"metric": "onset_span_s", "value": round((group.last_ns - group.first_ns) / SECOND_NS, 1), "unit": "s"},
            {
                "metric": "in_common",
                "value": ", ".join(place.key for place in group.places[:10]) or None,
                "text": "" if group.places else "only the time: no switch, block or rack of theirs is known",
            },
        ]
        first = sorted(sick or members, key=lambda m: (m.onset_ns, m.id))[:5]
        return [*found, *({"metric": "finding", "value": m.id, "text": m.message["summary"]} for m in first)]


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0


def _summary(group: Group, members: Sequence[Member], jobs: Sequence[str]) -> str:
    within = duration(max(group.last_ns - group.first_ns, SECOND_NS))
    nodes = f"{len(group.nodes)} node{'s' * (len(group.nodes) > 1)}"
    cause = group.cause
    if cause.of_job:
        codes = ", ".join(str(code) for code in sorted({m.message["code"] for m in members if "code" in m.message}))
        gpus = f"{len(members)} GPU{'s' * (len(members) > 1)} of {nodes}"
        return f"Job {group.places[0].name}: {gpus} had errors of its program (XID {codes}): {cause.why}."
    only = "" if group.places else "; only the time connects them"
    return f"{nodes}{words_of(group.places)} {cause.what} within {within}: {cause.why}{only}{of_jobs(jobs)}."
