"""The kernel's log as /dev/kmsg gives it, read once from its oldest record. No dmesg, no pipe.

A file of the same name below another root may stand for it, one record on each line.
"""

import errno
import os
import re
import stat
from dataclasses import dataclass

from heeler.health.model import Context, ProbeError

LONGEST = 1 << 14  # of a record; a read with a smaller buffer fails
MOST_RECORDS = 1 << 20
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LEVELS = 8


@dataclass(frozen=True, slots=True)
class Record:
    """One record: who wrote it (facility * 8 + level), its number, microseconds since boot, and its text."""

    priority: int
    seq: int
    mono_us: int
    text: str

    @property
    def kernel(self) -> bool:
        """Whether the kernel itself wrote it: anybody with the right may write to the log, but as another facility."""
        return self.priority < LEVELS


@dataclass(frozen=True, slots=True)
class Log:
    """The log from its oldest record that is still there. `lost`: older ones have been overwritten."""

    records: tuple[Record, ...]
    lost: bool
    unreadable: int = 0

    def covers_us(self, now_us: int) -> int:
        """Return how far back the log reaches: to the boot, unless older records have been overwritten."""
        return now_us if not self.lost else max(now_us - self.records[0].mono_us, 0) if self.records else 0


def parse_record(data: bytes) -> Record | None:
    """Return a record of the form `priority,seq,usec,flags[,more];text`; None for anything else.

    Lines after the first hold the record's dictionary and are no part of the text.
    """
    line, _, _ = data.partition(b"\n")
    head, mark, text = line.partition(b";")
    fields = head.split(b",")
    if not mark or len(fields) < 4:
        return None
    try:
        priority, seq, mono_us = (int(field) for field in fields[:3])
    except ValueError:
        return None
    if min(priority, seq, mono_us) < 0:
        return None
    plain = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text).decode(errors="replace")
    return Record(
        priority, seq, mono_us, _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", plain.replace("\t", " ").rstrip("\r\n\0 "))
    )


def read_log(context: Context) -> Log:
    """Return the log. Raises ProbeError where it can't be read, or holds nothing."""
    path = context.root / "dev/kmsg"
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ProbeError("missing", f"{path}: there is no kernel log") from None
    except PermissionError:
        raise ProbeError(
            "denied", f"{path}: permission denied (kernel.dmesg_restrict, or CAP_SYSLOG is missing)"
        ) from None
    except OSError as err:
        raise ProbeError("failed", f"{path}: {err.strerror}") from None
    try:
        log = _of_device(number) if stat.S_ISCHR(os.fstat(number).st_mode) else _of_lines(number)
    except OSError as err:
        raise ProbeError("failed", f"{path}: {err.strerror}") from None
    finally:
        os.close(number)
    if not log.records:
        raise ProbeError("unreadable", f"{path}: no record in it, {log.unreadable} lines that are none")
    return log


def _of_device(number: int) -> Log:
    os.lseek(number, 0, os.SEEK_SET)
    chunks: list[bytes] = []
    overrun = False
    while len(chunks) < MOST_RECORDS:
        try:
            data = os.read(number, LONGEST)
        except BlockingIOError:
            break
        except OSError as err:
            if err.errno != errno.EPIPE:  # overwritten while it was read: the next read goes on behind the hole
                raise
            overrun = True
            continue
        if not data:
            break
        chunks.append(data)
    return _log(chunks, overrun=overrun)


def _of_lines(number: int) -> Log:
    parts = []
    while data := os.read(number, 1 << 20):
        parts.append(data)
    lines = b"".join(parts).splitlines()
    return _log([line for line in lines if line and not line.startswith(b" ")], overrun=False)


def _log(chunks: list[bytes], *, overrun: bool) -> Log:
    parsed = [parse_record(chunk) for chunk in chunks]
    records = tuple(record for record in parsed if record)
    return Log(records, overrun or bool(records and records[0].seq > 0), len(parsed) - len(records))
