"""The way of results to the bus: files in a folder, which the node agent publishes and removes after the stream's word.

So a prolog needs no bus, no client and no time for it. A folder that can't be written costs the results, which is said,
and nothing else.
"""

import contextlib
import heapq
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from heeler.bus import EncodeError, encode

MAX_FILES = 10_000
MAX_DROPPED = 1_000  # at once
KEPT_LONGEST = "PrologEvent"  # dropped last


class OutboxError(Exception):
    """A message that could not be left for the agent."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message on its way: where to, what it is, its id and its content."""

    subject: str
    kind: str
    id: str
    message: Mapping[str, Any]


class Outbox:
    """A folder of letters. File names sort by time."""

    def __init__(self, folder: Path, max_files: int = MAX_FILES) -> None:
        self.folder = folder
        self.max_files = max_files
        self._count = 0

    def put(self, letters: Iterable[Letter]) -> int:
        """Leave letters for the agent; returns how many older ones had to go. Raises OutboxError."""
        try:
            dropped = self._make_room()
            for letter in letters:
                self._write(letter)
        except (OSError, EncodeError) as err:
            raise OutboxError(f"{self.folder}: {getattr(err, 'strerror', None) or err}") from None
        return dropped

    def _write(self, letter: Letter) -> None:
        self._count += 1
        name = f"{time.time_ns():020d}-{os.getpid()}-{self._count:04d}-{letter.kind}.msg"
        data = encode(letter.kind, letter.message)
        packed = msgpack.packb({"subject": letter.subject, "type": f"{letter.kind}/1", "id": letter.id, "data": data})
        hidden = self.folder / f".{name}"
        try:
            # Readable for the group that the folder gives it, which is the agent's.
            # Not synced: after a power loss the agent refuses what is cut, and a result is not worth the wait.
            fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
            with open(fd, "wb") as file:  # noqa: PTH123 - of a descriptor
                file.write(packed)
            hidden.rename(self.folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                hidden.unlink()
            raise

    def _make_room(self) -> int:
        """Remove the oldest letters above the limit: an agent that is gone must not cost the disk.

        Of very many a part at a time, more than a run leaves: a prolog has no time for all.
        """
        entries = os.listdir(self.folder)  # noqa: PTH208 - names, without a Path for each
        if len(entries) <= self.max_files:
            return 0
        names = [name for name in entries if name.endswith(".msg") and name[0] != "."]
        spare = min(len(names) - self.max_files, MAX_DROPPED)
        for name in heapq.nsmallest(spare, names, key=lambda name: (KEPT_LONGEST in name, name)):
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
        return max(spare, 0)
