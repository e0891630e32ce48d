"""Captures of a simulated cluster, faster than real time, with the labels in a file of their own."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from heeler.bus import encode
from heeler.bus.codec import CONTENT_TYPE
from heeler.engine.capture import Captured, write
from heeler.sim.faults import Fault
from heeler.sim.fleet import Fleet
from heeler.sim.messages import label
from heeler.sim.outgoing import Outgoing


def captured(message: Outgoing) -> Captured:
    """Return a message as the bus would have delivered it."""
    headers = {"Content-Type": CONTENT_TYPE, "Heeler-Type": f"{message.kind}/1"}
    if message.id:
        headers["Nats-Msg-Id"] = message.id
    return Captured(message.subject, message.due_ns, encode(message.kind, message.data), headers)


def record(messages: Iterable[Outgoing], path: Path) -> int:
    """Write messages to a capture file; returns how many. The file appears only when it is whole."""
    count = 0
    part = path.with_name(path.name + ".part")
    with part.open("wb") as out:
        for message in messages:
            write(out, captured(message))
            count += 1
    part.replace(path)
    return count


def write_labels(fleet: Fleet, faults: Iterable[Fault], out: TextIO) -> None:
    """Write one JSON line a fault, the ground truth."""
    out.writelines(json.dumps(label(fleet, fault)) + "\n" for fault in faults)
    out.flush()
