"""Lines of ``scontrol --oneliner``: ``Key=Value Key=Value``, where a value may hold spaces and ``=``."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from heeler.slurm.collect import Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.rows import Unreadable

_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/]*)=")
NULLS = frozenset(("", "(null)", "n/a", "none"))


def pairs(line: str) -> dict[str, str]:
    """Return the values of a line by key. Where a key stands twice the first counts: later ones are in free text."""
    found: dict[str, str] = {}
    keys = list(_KEY.finditer(line))
    for at, key in enumerate(keys):
        end = keys[at + 1].start() if at + 1 < len(keys) else len(line)
        found.setdefault(key[1], line[key.end() : end].strip())
    return found


def entries(text: str) -> list[str]:
    """Return the entries of an answer, each as one line, also where it was asked for without ``--oneliner``."""
    found: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        if line[0].isspace() and found:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line.strip())
    return found


def value(row: Mapping[str, str], key: str) -> str | None:
    """Return a value; None for each spelling of none."""
    found = row.get(key, "")
    return None if found.lower() in NULLS else found


def table(
    name: str, data: bytes, first: str, read: Callable[[Mapping[str, str]], dict[str, Any]], nothing: str
) -> Table:
    """Return the table of an answer whose rows begin with a key. `nothing` begins the words for an empty one.

    Raises ParseError where the answer is neither rows nor those words.
    """
    rows: list[dict[str, Any]] = []
    unreadable: list[Unreadable] = []
    text = data.decode(errors="replace")
    lines = entries(text)
    for line in lines:
        if line.startswith(nothing):
            continue
        found = pairs(line)
        if next(iter(found), None) != first or not line.startswith(first):
            unreadable.append(Unreadable(None, str(ParseError(f"not {first}", line))))
            continue
        try:
            rows.append(read(found))
        except ParseError as err:
            unreadable.append(Unreadable(found[first] or None, str(err)))
    if not rows and (not lines or len(unreadable) == len(lines)):
        raise ParseError(f"no line of {first}" if lines else "empty answer", text)
    return table_of(name, rows, unreadable=unreadable)
