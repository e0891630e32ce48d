"""Open incidents: findings of several nodes that have one cause. They hold soft drains, and never lead to one."""

from collections.abc import Mapping
from typing import Any

KIND = "incident"
MOST = 1024


class Incidents:
    """The open incidents by id, with the findings that are part of them."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[int, str, frozenset[str]]] = {}  # when it was said, in words, its findings
        self.closed: dict[str, int] = {}

    def take(self, finding: Mapping[str, Any]) -> None:
        """Take a word on an incident in; a late one changes nothing."""
        ident, ts = str(finding["id"]), int(finding["ts"])
        if ts < max(self.closed.get(ident, 0), self.open.get(ident, (0, "", frozenset()))[0]):
            return
        if finding["state"] not in ("open", "update"):
            self.open.pop(ident, None)
            self.closed[ident] = ts
        elif ts > self.closed.get(ident, 0):
            members = frozenset(map(str, finding["entity"].get("members") or ()))
            self.open[ident] = (ts, str(finding["summary"]), members)
        if len(self.open) > MOST:
            del self.open[min(self.open, key=lambda known: (self.open[known][0], known))]

    def of(self, finding: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return (id, words) of the incident that a finding is part of: as it says itself, or as the incident does."""
        named, ident = finding.get("incident"), str(finding["id"])
        if isinstance(named, str) and named:
            return named, self.open[named][1] if named in self.open else ""
        return next(((known, words) for known, (_, words, members) in self.open.items() if ident in members), None)

    def prune(self, before_ns: int) -> None:
        """Forget incidents that ended long ago."""
        self.closed = {known: ts for known, ts in self.closed.items() if ts >= before_ns}
