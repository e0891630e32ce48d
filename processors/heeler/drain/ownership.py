"""Whose drain it is: the reason's text, and what makes a drain ours.

Slurm keeps one reason for a node, with its author and time, and lets anybody overwrite it. A drain is ours only
while all three are what we recorded right after setting it; whatever else stands there belongs to someone else.
"""

import re
from dataclasses import dataclass

from heeler.drain.node import NodeView
from heeler.slurm.reason import plain

PREFIX = "heeler:"
MAX_REASON = 180
MAX_ID = 80

_TOKEN = re.compile(r"[^A-Za-z0-9._-]")


def reason_text(kind: str, finding_id: str, summary: str) -> str:
    """Return the reason for a drain: ``heeler:<kind>:<finding id> <summary>``, plain ASCII on one line."""
    head = f"{PREFIX}{_token(kind)}:{_token(finding_id)}"
    return f"{head} {plain(summary)}"[:MAX_REASON].rstrip()


def _token(text: str) -> str:
    return _TOKEN.sub("_", text)[:MAX_ID] or "_"


@dataclass(frozen=True, slots=True)
class Mark:
    """What we recorded of a drain of ours, as Slurm showed it right after."""

    reason: str
    user: str
    ts_ns: int

    @classmethod
    def read(cls, view: NodeView) -> "Mark | None":
        """Return the mark on a drained node; None where author or time is not shown, since nothing can be proved."""
        if not view.draining or view.reason is None or view.reason_user is None or view.reason_ts_ns is None:
            return None
        return cls(view.reason, view.reason_user, view.reason_ts_ns)


def is_ours(view: NodeView, mark: Mark | None) -> bool:
    """Say whether a drain is ours: reason, author and time all equal to our record."""
    return mark is not None and Mark.read(view) == mark
