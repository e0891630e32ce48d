"""Which findings belong to an incident, as the bus has it: what they say of it, and what they then no longer advise.

A finding of links, heat or power that many nodes share asks for no drain while the incident is open, since the nodes
are hardly at fault. An incident never makes a finding ask for more.
"""

from collections.abc import Mapping
from typing import Any

from heeler.detect.shared_causes import BY_NAME, HELD

DRAINS = frozenset(("drain_after_job", "drain_now", "reset", "reboot", "rma"))
MOST_INCIDENTS = 1024
MOST_CLOSED = 4096


class PartOf:
    """The findings of the open incidents."""

    def __init__(self) -> None:
        self.incident_of: dict[str, tuple[str, int]] = {}  # finding: its incident, and since when that is said
        self.members: dict[str, tuple[int, tuple[str, ...]]] = {}  # open incident: when it was said, its findings
        self.closed: dict[str, int] = {}
        self.holding: set[str] = set()

    def learn(self, finding: Mapping[str, Any]) -> None:
        """Learn from an incident; others say nothing here. What is late changes nothing."""
        if finding["kind"] != "incident":
            return
        ident, ts = str(finding["id"]), int(finding["ts"])
        if ts < max(self.closed.get(ident, 0), self.members.get(ident, (0, ()))[0]):
            return
        before = self._drop(ident)
        if finding["state"] == "closed":
            self.closed[ident] = ts
            while len(self.closed) > MOST_CLOSED:
                del self.closed[next(iter(self.closed))]
            return
        if self.closed.get(ident, 0) >= ts:
            return
        members = tuple(map(str, finding["entity"].get("members") or ()))
        self.members[ident] = (ts, members)
        cause = BY_NAME.get(str(finding.get("cause")))
        if cause is not None and cause.holds:
            self.holding.add(ident)
        self.incident_of |= {member: (ident, before.get(member, ts)) for member in members}
        if len(self.members) > MOST_INCIDENTS:
            self._drop(next(iter(self.members)))

    def _drop(self, ident: str) -> dict[str, int]:
        """Forget an incident; return since when its findings were said to belong to it."""
        since = {}
        for member in self.members.pop(ident, (0, ()))[1]:
            of, ts = self.incident_of.get(member, ("", 0))
            if of == ident:
                since[member] = ts
                del self.incident_of[member]
        self.holding.discard(ident)
        return since

    def mark(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a finding with the incident that it belongs to, and with no stronger advice than that leaves it."""
        ident, since = self.incident_of.get(message["id"], ("", 0)) if self.incident_of else ("", 0)
        if not ident or message["ts"] <= since:  # history, read again at a cold start, knew nothing of it
            message.pop("incident", None)
            return message
        message["incident"] = ident
        if ident in self.holding and message["kind"] in HELD and message["advice"] in DRAINS:
            message["advice"] = "observe"
        return message
