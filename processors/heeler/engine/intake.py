"""From bytes to a message that a step may see, or a reason why not: pure, the same live and in replay."""

from collections.abc import Mapping
from typing import Any

from heeler.bus import DecodeError, TokenError, decode, unescape
from heeler.engine.step import Inbound, kind_of

FUTURE_NS = 300 * 1_000_000_000  # a message may be this far ahead of the server's clock
_NAMED = {"node": "node", "job": "job_id"}


class Refused(Exception):  # noqa: N818 - not an error of ours: a message with a reason
    """A message that no step may see. `why` is the reason of a DeadLetter."""

    def __init__(self, why: str, error: str, kind: str = "") -> None:
        super().__init__(error)
        self.why, self.error, self.kind = why, error, kind


def intake(subject: str, headers: Mapping[str, str] | None, payload: bytes, ts_ns: int) -> Inbound:
    """Return the checked message, or raise Refused.

    The subject says what a message is; a header that says otherwise, or a payload that speaks for another
    node than its subject (which is what the bus's permissions protect), is refused.
    """
    kind = kind_of(subject)
    if kind is None:
        raise Refused("hostile_subject", f"not a subject of ours: {subject!r}")
    claimed = headers.get("Heeler-Type") if headers else None
    if claimed is not None and claimed != f"{kind}/1":
        raise Refused("invalid", f"header says {claimed[:60]!r}, subject says {kind}/1", kind)
    try:
        data = decode(kind, payload)
    except DecodeError as err:
        text = str(err)
        raise Refused("undecodable" if text.startswith("not MessagePack") else "invalid", text, kind) from None
    check_speaker(subject, kind, data)
    return Inbound(kind, subject, data, ts_ns, payload)


def check_speaker(subject: str, kind: str, data: Mapping[str, Any]) -> None:
    """Raise Refused unless the payload names the same cluster and node as its subject."""
    tokens = subject.split(".")
    name = data.get("node")
    if kind != "Finding" and name is not None and not _same(tokens[-1], name):
        raise Refused("hostile_subject", f"payload of {name!r} on subject of {tokens[-1]!r}", kind)
    if not _same(tokens[2], data["cluster"]):
        raise Refused("hostile_subject", f"payload of cluster {data['cluster']!r} on {tokens[2]!r}", kind)
    if kind == "JobEvent" and not _same(tokens[-1], data["job_id"]):
        raise Refused("hostile_subject", f"payload of job {data['job_id']!r} on {tokens[-1]!r}", kind)


def _same(token: str, name: str) -> bool:
    """Say whether a subject token stands for this name. The common case needs no unescaping."""
    if token == name and "=" not in token:
        return True
    try:
        return unescape(token) == name
    except TokenError:
        return False


def too_far_ahead(message: Inbound) -> bool:
    """Say whether a message claims a time well after the server received it."""
    return int(message.data.get("ts", 0)) > message.ts_ns + FUTURE_NS
