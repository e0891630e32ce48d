"""The ids of traces and spans: from what names a thing on the bus, so that whoever exports it gives it the same.

A message that comes twice, another process and a replay make the same spans. Nobody has to remember a trace.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

# Kinds of kernel events that rules make findings of: only these are the beginning of a fault's road.
TRACED_EVENTS: Final = frozenset(("xid", "sxid", "gpu_lost"))


class SpanIds(NamedTuple):
    """A span by name: the trace that it is in, and itself."""

    trace: bytes
    span: bytes


def of_finding(cluster: str, finding: str, part: str = "finding") -> SpanIds:
    """Return the ids of a finding's span, or of another part of its trace. Its drains are in the same trace."""
    return SpanIds(_digest(16, "finding", cluster, finding), _digest(8, "finding", cluster, finding, part))


def of_drain(cluster: str, finding: str, action: str) -> SpanIds:
    """Return the ids of what the drainer said to a finding."""
    return of_finding(cluster, finding, f"drain/{action}")


def of_kernel_event(cluster: str, node: str, boot: str, seq: int) -> SpanIds:
    """Return the ids of a line of the kernel log: a trace of its own, since several lines make one finding."""
    names = ("kernel", cluster, node, boot, str(seq))
    return SpanIds(_digest(16, *names), _digest(8, *names))


def _digest(size: int, *names: str) -> bytes:
    # Lengths before the names: no two lists of names read the same.
    text = "".join(f"{len(name)}:{name}" for name in names)
    return blake2b(text.encode(errors="replace"), digest_size=size, person=b"heeler.trace").digest()
