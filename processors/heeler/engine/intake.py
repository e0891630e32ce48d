"""From bytes to a message that a step may see, or a reason why not: pure, the same live and in replay."""

from collections.abc import Mapping
from typing import Any

from heeler.bus import ROUTES, DecodeError, decode
from heeler.bus.codec import Decode
from heeler.engine.step import Address, Inbound, address_of

FUTURE_NS = 300 * 1_000_000_000  # a message may be this far ahead of the server's clock
_HEADER = {name: f"{name}/1" for name in ROUTES}
_KEYS = {"<node>": "node", "<job>": "job_id", "<id>": "id", "<feed>": "feed", "<run>": "run", "<part>": "part"}
# Which key of the payload the last token of the subject must be. What <actor> says stands in no payload.
_SPEAKER = {
    name: _KEYS[token]
    for name, route in ROUTES.items()
    if name != "DeadLetter" and (token := route.subject.rsplit(".", 1)[1]) != "<actor>"
}


class Refused(Exception):  # noqa: N818 - not an error of ours: a message with a reason
    """A message that no step may see. `why` is the reason of a DeadLetter."""

    def __init__(self, why: str, error: str, kind: str = "") -> None:
        super().__init__(error)
        self.why, self.error, self.kind = why, error, kind


def intake(
    subject: str, headers: Mapping[str, str] | None, payload: bytes, ts_ns: int, decode: Decode = decode
) -> Inbound:
    """Return the checked message, or raise Refused.

    The subject says what a message is; a header that says otherwise, or a payload that speaks for another
    node than its subject (which is what the bus's permissions protect), is refused.
    """
    address = address_of(subject)
    if address is None:
        raise Refused("hostile_subject", f"not a subject of ours: {subject!r}")
    kind = address.kind
    claimed = headers.get("Heeler-Type") if headers else None
    if claimed is not None and claimed != _HEADER[kind]:
        raise Refused("invalid", f"header says {claimed[:60]!r}, subject says {kind}/1", kind)
    try:
        data = decode(kind, payload)
    except DecodeError as err:
        text = str(err)
        raise Refused("undecodable" if text.startswith("not MessagePack") else "invalid", text, kind) from None
    check_speaker(address, data)
    return Inbound(kind, subject, data, ts_ns, payload)


def check_speaker(address: Address, data: Mapping[str, Any]) -> None:
    """Raise Refused unless the payload names the same cluster and node or job as its subject."""
    kind = address.kind
    if data["cluster"] != address.cluster:
        raise Refused("hostile_subject", f"payload of cluster {data['cluster']!r} on {address.cluster!r}", kind)
    key = _SPEAKER.get(kind)
    if key is not None and str(data.get(key)) != address.name:
        raise Refused("hostile_subject", f"payload of {data.get(key)!r} on subject of {address.name!r}", kind)


def too_far_ahead(message: Inbound) -> bool:
    """Say whether a message claims a time well after the server received it."""
    return int(message.data.get("ts", 0)) > message.ts_ns + FUTURE_NS
