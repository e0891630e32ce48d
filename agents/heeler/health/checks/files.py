"""Files of /proc, /sys and /etc below a root: their text, or the reason why there is none."""

import os
from collections.abc import Iterator
from pathlib import Path

from heeler.health.model import Context, Failure, ProbeError

MOST_BYTES = 4 << 20


def failure_of(err: OSError) -> Failure:
    """Return the kind of failure that an error of the system is."""
    if isinstance(err, FileNotFoundError | NotADirectoryError):
        return "missing"
    return "denied" if isinstance(err, PermissionError) else "failed"


def read_text(path: Path) -> str:
    """Return a file's text. Raises ProbeError."""
    try:
        return read_bytes(path).decode(errors="replace")
    except OSError as err:
        raise ProbeError(failure_of(err), f"{path}: {err.strerror}") from None


def maybe(path: Path) -> str | None:
    """Return a small file's text without white space around it; None where it can't be read."""
    try:
        return read_bytes(path).decode(errors="replace").strip()
    except OSError:
        return None


def maybe_int(path: Path) -> int | None:
    """Return the number in a file; None where there is none."""
    return as_int(maybe(path))


def as_int(text: str | None) -> int | None:
    """Return a whole number, in decimal or with 0x; None for anything else."""
    try:
        return None if text is None else int(text, 0 if text.lower().startswith("0x") else 10)
    except ValueError:
        return None


def read_bytes(path: Path) -> bytes:
    """Return what is in a file, with as few calls as there can be. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(number, 1 << 16)
        if len(data) == 0:
            return data
        parts, size = [data], len(data)
        while size < MOST_BYTES and (data := os.read(number, 1 << 20)):
            parts.append(data)
            size += len(data)
        return b"".join(parts)
    finally:
        os.close(number)


def names_in(path: Path) -> list[str]:
    """Return the sorted names in a folder. Raises ProbeError."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths
    except OSError as err:
        raise ProbeError(failure_of(err), f"{path}: {err.strerror}") from None


def maybe_names(path: Path) -> list[str] | None:
    """Return the sorted names in a folder; None where there is none. Raises ProbeError where it may not be read."""
    try:
        return names_in(path)
    except ProbeError as err:
        if err.kind == "missing":
            return None
        raise


def uptime_s(context: Context) -> float:
    """Return the seconds since boot. Raises ProbeError."""
    text = read_text(context.root / "proc/uptime")
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        raise ProbeError("unreadable", f"/proc/uptime: {text!r:.80}") from None


def pids(context: Context) -> Iterator[int]:
    """Return the processes there are. Raises ProbeError where those of others are hidden."""
    names = names_in(context.root / "proc")
    found = [int(name) for name in names if name.isdigit()]
    if 1 not in found:
        raise ProbeError("denied", "/proc: processes of others are hidden")
    return iter(found)
