"""How much of a file system users have: from readers of quotas, of which there is one, and plug-ins bring others.

A plug-in is an entry point of the group ``heeler.slurm.quotas``: a function ``(settings: Mapping[str, str]) ->
tuple[list[Quota], list[Unreadable]]``; it raises OSError or SlurmError where there is no answer. ``[slurm.quotas]
reader`` names it, ``[slurm.quotas.settings]`` are its own.
"""

import asyncio
import json
import pwd
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from heeler.slurm.clients import Clients
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import OutageError, ParseError
from heeler.slurm.jsonnumbers import MAX_INTEGER, epoch_ns
from heeler.slurm.rows import Unreadable

NAME = "quotas"
GROUP = "heeler.slurm.quotas"


@dataclass(frozen=True, slots=True)
class Quota:
    """What one user has below one path. None is not known."""

    path: str
    user_id: int | None = None
    user: str | None = None
    used_bytes: int | None = None
    soft_limit_bytes: int | None = None
    hard_limit_bytes: int | None = None
    files: int | None = None
    sampled_ts: int | None = None


Reader = Callable[[Mapping[str, str]], tuple[list[Quota], list[Unreadable]]]


def user_name(uid: int) -> str | None:
    """Return a user's name; None for one that this machine does not know."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None


def parse_pure(text: str, name_of: Callable[[int], str | None] = user_name) -> tuple[list[Quota], list[Unreadable]]:
    """Return the quotas of JSON lines ``{"user": uid, "used": bytes, "sample_time": s, "directory": path}``."""
    found: list[Quota] = []
    unreadable: list[Unreadable] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(_pure_line(line, name_of))
        except ParseError as err:
            unreadable.append(Unreadable(f"line {number}", str(err)))
    return found, unreadable


def _pure_line(line: str, name_of: Callable[[int], str | None]) -> Quota:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise ParseError(f"not JSON ({err})", line) from None
    path = row.get("directory") if isinstance(row, dict) else None
    if not isinstance(path, str) or not path:
        raise ParseError("no directory", line)
    uid, used = row.get("user"), row.get("used")
    if not _is_count(uid) or not _is_count(used):
        raise ParseError("no user or no number of bytes", line)
    return Quota(path, uid, name_of(uid), used, sampled_ts=epoch_ns(row.get("sample_time")))


def _is_count(value: Any) -> bool:
    # Plain numbers: what is "not set" to Slurm, 2^32-2, is a size here.
    return type(value) is int and 0 <= value <= MAX_INTEGER


def pure(settings: Mapping[str, str]) -> tuple[list[Quota], list[Unreadable]]:
    """Read the file of `settings["file"]`, which a script of the storage writes. Raises OSError."""
    return parse_pure(Path(settings["file"]).read_text(errors="replace"))


BUILT_IN: Mapping[str, Reader] = {"pure": pure}


def reader(name: str) -> Reader:
    """Return the reader of a name. Raises OutageError."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    plug_in = next(iter(entry_points(group=GROUP, name=name)), None)
    if plug_in is None:
        raise OutageError(f"quotas: no reader {name!r}")
    found: Reader = plug_in.load()
    return found


async def collect(clients: Clients) -> Table:
    """Ask the reader that the settings name."""
    settings = clients.settings.quotas
    assert settings.reader is not None, "off without one"
    read = reader(settings.reader)
    try:
        found, unreadable = await asyncio.to_thread(read, settings.settings)
    except (OSError, KeyError) as err:
        raise OutageError(f"quotas: {type(err).__name__}: {err}") from None
    rows: list[dict[str, Any]] = [asdict(quota) for quota in found]
    table = table_of(NAME, rows, unreadable=unreadable)
    return Table(table.columns, table.rows, table.absent, table.unreadable, source=settings.reader)


COLLECTOR = Collector(NAME, 3600.0, collect, lane="local", wanted=lambda settings: settings.quotas.reader is not None)
