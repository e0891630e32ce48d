"""Whose drain it is: the reason's text, and what makes a drain ours.

Slurm keeps one reason for a node, with its author and time, and lets anybody overwrite it. A drain is ours only
while all three are what we recorded right after setting it; whatever else stands there belongs to someone else.
"""

import re
import unicodedata
from dataclasses import dataclass

from heeler.drain.node import NodeView

PREFIX = "heeler:"
MAX_REASON = 180
MAX_ID = 80

# Slurm prints reasons unquoted beside other fields, so what could end the field, start another, or be taken for
# the author ("[root@...]") is not let in. Quotes and the like are kept out for the sake of scripts that read them.
_SAFE = re.compile(r"[^A-Za-z0-9 .,:;%+()/_-]")
_TOKEN = re.compile(r"[^A-Za-z0-9._-]")


def reason_text(kind: str, finding_id: str, summary: str) -> str:
    """Return the reason for a drain: ``heeler:<kind>:<finding id> <summary>``, plain ASCII on one line."""
    head = f"{PREFIX}{_token(kind)}:{_token(finding_id)}"
    return f"{head} {_plain(summary)}"[:MAX_REASON].rstrip()


def _token(text: str) -> str:
    return _TOKEN.sub("_", text)[:MAX_ID] or "_"


def _plain(text: str) -> str:
    """Return text with only harmless characters: accents folded, the rest as spaces, runs of spaces as one."""
    folded = unicodedata.normalize("NFKD", text[:1000])
    folded = "".join(char for char in folded if not unicodedata.combining(char))
    return " ".join(_SAFE.sub(" ", folded).split())


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
