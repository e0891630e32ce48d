"""Dead letters: what could not be used, where it came from, and why."""

import structlog

from heeler.bus import Bus, Delivery, TokenError, TooLargeError, encode, subjects, unescape
from heeler.engine.intake import Refused

log = structlog.get_logger("heeler.engine")

MAX_PAYLOAD = 64 << 10


async def bury(bus: Bus, delivery: Delivery, refused: Refused, by: str) -> None:
    """Publish a dead letter for a message that is not going to be processed."""
    log.warning(
        "message_refused",
        subject=delivery.subject,
        stream=delivery.stream,
        seq=delivery.seq,
        why=refused.why,
        error=refused.error[:500],
    )
    letter = {
        "v": 1,
        "cluster": _cluster(delivery.subject, bus.cluster),
        "ts": delivery.ts_ns,
        "subject": delivery.subject,
        "stream": delivery.stream,
        "stream_seq": delivery.seq,
        "type": refused.kind or None,
        "why": refused.why,
        "error": refused.error[:2000],
        "by": by,
        "payload": delivery.data[:MAX_PAYLOAD],
    }
    try:
        await bus.publish(
            subjects.dead_letter(bus.cluster, delivery.stream), "DeadLetter", encode("DeadLetter", letter)
        )
    except TooLargeError:  # a server with a small max_payload: the reason matters more than the bytes
        await bus.publish(
            subjects.dead_letter(bus.cluster, delivery.stream),
            "DeadLetter",
            encode("DeadLetter", {**letter, "payload": None}),
        )


def _cluster(subject: str, ours: str) -> str:
    """Return the cluster that a subject names, or ours where it names none that can be read."""
    tokens = subject.split(".")
    try:
        return unescape(tokens[2])
    except (IndexError, TokenError):
        return ours
