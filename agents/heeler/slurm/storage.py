"""How full file systems are: statvfs of the mounts that the settings name, a row for each, also for one that hangs.

Each file system is asked by a process of its own with a deadline, since a mount whose server is away keeps who asks it
in the kernel, where no signal may reach. Such a process is left behind, and its mount is not asked again until it has
ended.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heeler.slurm.clients import Clients
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import OutageError, ParseError
from heeler.slurm.mounts import Mount, mount_of, newest_at, parse_mountinfo
from heeler.slurm.rows import Unreadable
from heeler.slurm.settings import StorageSettings

NAME = "storage"
AT_A_TIME = 16
READER = (sys.executable, "-I", "-S", "-c")
# Errors are told by their number: the words differ with the locale.
PROGRAM = """
import json, os, sys
try:
    print(json.dumps(list(os.statvfs(sys.argv[1])) + [os.statvfs(sys.argv[1]).f_fsid]))
except OSError as err:
    print(json.dumps({"errno": err.errno, "why": err.strerror}))
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A path to ask about, why it was chosen, and its mount where one is known."""

    path: str
    pattern: str
    mount: Mount | None


def choose(mounts: Sequence[Mount], patterns: Sequence[str], links: Mapping[str, str]) -> list[Asked]:
    """Return what to ask about: mounts whose place one of the patterns matches as a whole, and targets of links."""
    seen = newest_at(list(mounts))
    asked: dict[str, Asked] = {}
    for pattern in patterns:
        for mount in seen:
            if re.fullmatch(pattern, mount.mount_point) and mount.mount_point not in asked:
                asked[mount.mount_point] = Asked(mount.mount_point, pattern, mount)
    for link, target in links.items():
        asked.setdefault(link, Asked(link, "link", mount_of(os.path.normpath(target), list(mounts))))
    return list(asked.values())


def links_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the symbolic links of a folder with their targets as absolute paths; no target is touched."""
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            yield str(entry), str(folder / entry.readlink())


def row_of(asked: Asked, found: Mapping[str, int] | None, why: str | None) -> dict[str, Any]:
    """Return the row of one file system; `why`: it could not be read, and nothing is known of it."""
    mount = asked.mount
    row: dict[str, Any] = {"path": asked.path, "pattern": asked.pattern, "why": why}
    if mount is not None:
        row |= {
            "mount_id": mount.mount_id,
            "parent_id": mount.parent_id,
            "device": mount.device,
            "root": mount.root,
            "mount_point": mount.mount_point,
            "mount_options": list(mount.options),
            "optional_fields": list(mount.optional_fields),
            "fs_type": mount.fs_type,
            "source": mount.source,
            "super_options": list(mount.super_options),
        }
    if found is not None:
        # Blocks count in fragments, not in the block size that suits transfers.
        unit = found["f_frsize"] or found["f_bsize"]
        row |= {
            "block_size_bytes": found["f_bsize"],
            "fragment_size_bytes": found["f_frsize"],
            "total_bytes": _possible(found["f_blocks"] * unit),
            "free_bytes": _possible(found["f_bfree"] * unit),
            "available_bytes": _possible(found["f_bavail"] * unit),
            "files": _possible(found["f_files"]),
            "files_free": _possible(found["f_ffree"]),
            "files_available": _possible(found["f_favail"]),
            "fs_id": f"{found['f_fsid']:x}",
            "flags": found["f_flag"],
            "name_max": found["f_namemax"],
        }
    return row


def _possible(value: int) -> int | None:
    """Return a number; None for one that stands for "not known", or wrapped around below 0."""
    return value if value < 1 << 63 else None


NAMES = (
    "f_bsize",
    "f_frsize",
    "f_blocks",
    "f_bfree",
    "f_bavail",
    "f_files",
    "f_ffree",
    "f_favail",
    "f_flag",
    "f_namemax",
    "f_fsid",
)


def read_answer(data: bytes) -> tuple[dict[str, int] | None, str | None]:
    """Return the values that the reader printed, or why there are none."""
    try:
        said = json.loads(data)
    except ValueError:
        return None, "the reader ended without an answer"
    if isinstance(said, dict):
        return None, f"{said.get('why')} (errno {said.get('errno')})"
    return dict(zip(NAMES, said, strict=True)), None


class Readers:
    """The processes that ask; those that hang are known by their path."""

    def __init__(self) -> None:
        self._stuck: dict[str, tuple[subprocess.Popen[bytes], float]] = {}

    def read(self, path: str, timeout_s: float) -> tuple[dict[str, int] | None, str | None]:
        """Return what statvfs says of a path, or why that is not known."""
        if path in self._stuck:
            process, since_s = self._stuck[path]
            if process.poll() is None:
                return None, f"hangs since {time.monotonic() - since_s:.0f} s"
            del self._stuck[path]
        process = subprocess.Popen(  # noqa: S603 - an argv list, no shell
            [*READER, PROGRAM, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started_s = time.monotonic()
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:  # in the kernel, beyond a signal's reach
                self._stuck[path] = process, started_s
            if process.stdout is not None:
                process.stdout.close()
            return None, f"no answer in {timeout_s:g} s"
        return read_answer(out)


def _to_ask(settings: StorageSettings) -> tuple[list[Asked], list[ParseError]]:
    """Read what is mounted and linked. Raises OSError."""
    text = Path(settings.mountinfo).read_text(errors="surrogateescape")
    links = dict(links_in(Path(settings.links))) if settings.links else {}
    mounts, errors = parse_mountinfo(text)
    return choose(mounts, settings.mounts, links), errors


async def collect(clients: Clients) -> Table:
    """Ask the file systems that the settings name."""
    settings = clients.settings.storage
    readers = clients.memory.setdefault(NAME, Readers())
    try:
        asked, errors = await asyncio.to_thread(_to_ask, settings)
    except OSError as err:
        raise OutageError(f"storage: {err}") from None
    gate = asyncio.Semaphore(AT_A_TIME)

    async def ask(one: Asked) -> dict[str, Any]:
        async with gate:
            found, why = await asyncio.to_thread(readers.read, one.path, settings.timeout_s)
        return _clean(row_of(one, found, why))

    rows = await asyncio.gather(*(ask(one) for one in asked))
    table = table_of(NAME, rows, unreadable=[Unreadable(None, str(err)) for err in errors])
    return Table(table.columns, table.rows, table.absent, table.unreadable, source="statvfs")


def _clean(row: dict[str, Any]) -> dict[str, Any]:
    """Replace bytes of paths that are not UTF-8: a message can't carry them."""
    return {
        key: value.encode(errors="replace").decode() if isinstance(value, str) else value for key, value in row.items()
    }


COLLECTOR = Collector(
    NAME, 300.0, collect, lane="local", wanted=lambda settings: bool(settings.storage.mounts or settings.storage.links)
)
