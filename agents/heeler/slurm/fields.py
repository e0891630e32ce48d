"""Columns that Slurm tells as text under a heading and as JSON under a path: each a row of data, read by one reader.

Limits are null where there is none: Slurm's empty text, its sentinels, and ``{"infinite": true}`` all mean that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from heeler.slurm import jsonfix
from heeler.slurm.collect import Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.jsonnumbers import MAX_INTEGER, integer, number
from heeler.slurm.rows import Unreadable, free_text, read_each, rows_of, version_of, words
from heeler.slurm.times import parse_duration
from heeler.slurm.tres import parse_tres

MISSING: Final = object()
MIB = 1 << 20
SHARES_OF_PARENT = 0x7FFFFFFF
NOT_TOLD = "not told by this version of Slurm"


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is read from text and from JSON."""

    text: Callable[[str], Any]
    json: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A column, its heading in the text, and its path in the JSON; None: not told there."""

    column: str
    heading: str | None
    path: tuple[str, ...] | None
    kind: Kind


def finite(value: Any) -> float | None:
    """Return a number; None where it is not set or without end. Raises ParseError."""
    found = number(value)
    return None if found in (inf, -inf) else found


def seconds(text: str) -> float | None:
    """Return a limit of time; None for none. Raises ParseError."""
    found = parse_duration(text)
    return None if found == inf else found


def minutes(value: Any) -> float | None:
    """Return seconds of a number of minutes. Raises ParseError."""
    found = finite(value)
    return None if found is None else found * 60


def tres_text(text: str) -> dict[str, int] | None:
    """Return resources, mem in bytes; None for none. Raises ParseError."""
    return parse_tres(text).values or None


def tres_list(value: Any) -> dict[str, int] | None:
    """Return resources of ``[{"type", "name", "count"}]``, mem in bytes; None for none. Raises ParseError."""
    if not isinstance(value, list):
        raise ParseError("not a list of TRES", value)
    found: dict[str, int] = {}
    for entry in value:
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            raise ParseError("not a TRES", entry)
        name = free_text(entry, "name")
        count = integer(entry.get("count"))
        if count is None:
            continue
        key = f"{entry['type']}/{name}" if name else entry["type"]
        found[key] = count * MIB if key == "mem" else count
        if found[key] > MAX_INTEGER:
            raise ParseError("too large for a TRES", entry)
    return found or None


def word(value: Any) -> str | None:
    """Return a text; None for an empty one. Raises ParseError."""
    return free_text({"value": value}, "value")


def names(value: Any) -> list[str]:
    """Return names of a list or a text with commas. Raises ParseError."""
    return list(words(value))


TEXT = Kind(word, word)
NAMES = Kind(names, names)
INT = Kind(integer, integer)
NUMBER = Kind(finite, finite)
MINUTES = Kind(seconds, minutes)  # text: a duration
SECONDS = Kind(seconds, finite)
TRES = Kind(tres_text, tres_list)


def at_path(row: Any, path: Sequence[str]) -> Any:
    """Return what stands at a path of nested maps, or MISSING."""
    for key in path:
        if not isinstance(row, Mapping) or key not in row:
            return MISSING
        row = row[key]
    return row


def header_rows(data: bytes, heading: str) -> tuple[list[str], list[list[str]], list[Unreadable]]:
    """Return the headings of ``-P`` output, its rows, and the lines that are no row.

    The table starts at the line whose first heading is `heading`: warnings may stand before it. The last column may
    hold the delimiter. Raises ParseError where there is no such line: an answer without headings says nothing.
    """
    lines = data.decode(errors="replace").splitlines()
    start = next((at for at, line in enumerate(lines) if line.split("|", 1)[0].strip() == heading), None)
    if start is None:
        text = "\n".join(lines).strip()
        raise ParseError(f"no table of {heading}" if text else "empty answer", text)
    headings = [name.strip() for name in lines[start].split("|")]
    rows: list[list[str]] = []
    unreadable: list[Unreadable] = []
    for line in lines[start + 1 :]:
        if not line.strip():
            continue
        values = line.split("|", len(headings) - 1)
        if len(values) == len(headings):
            rows.append(values)
        else:
            unreadable.append(Unreadable(None, str(ParseError("not a row", line))))
    return headings, rows, unreadable


def from_text(table: str, fields: Sequence[Field], data: bytes) -> Table:
    """Return a table of ``-P`` output. Raises ParseError."""
    heading = fields[0].heading
    assert heading is not None
    headings, lines, unreadable = header_rows(data, heading)
    found = [dict(zip(headings, line, strict=True)) for line in lines]
    told = [field for field in fields if field.heading in headings]

    def read(row: Mapping[str, str]) -> dict[str, Any]:
        return {field.column: field.kind.text(row[field.heading or ""]) for field in told}

    absent = {field.column: NOT_TOLD for field in fields if field.heading not in headings}
    return _table(table, fields, found, read, absent, unreadable, None)


def from_json(table: str, fields: Sequence[Field], found: Sequence[Any], version: str | None) -> Table:
    """Return a table of rows of JSON; a column that no row has is absent."""
    told = {
        field.column
        for field in fields
        if field.path is not None and any(at_path(row, field.path) is not MISSING for row in found)
    } | {fields[0].column}

    def read(row: Any) -> dict[str, Any]:
        if not isinstance(row, dict):
            raise ParseError("not a row", row)
        values: dict[str, Any] = {}
        for field in fields:
            if field.column in told and (value := at_path(row, field.path or ())) is not MISSING:
                values[field.column] = field.kind.json(value)
        return values

    absent = {field.column: NOT_TOLD for field in fields if field.column not in told} if found else {}
    return _table(table, fields, found, read, absent, [], version)


def from_json_answer(table: str, fields: Sequence[Field], data: bytes) -> Table:
    """Return a table whose rows stand in a JSON answer under its name. Raises ParseError."""
    value = jsonfix.loads(data).value
    return from_json(table, fields, rows_of(value, table), version_of(value))


def _table(
    table: str,
    fields: Sequence[Field],
    found: Sequence[Any],
    read: Callable[[Any], dict[str, Any]],
    absent: Mapping[str, str],
    unreadable: list[Unreadable],
    version: str | None,
) -> Table:
    """Read each row as a whole; one without a value of its first column is none."""
    key = fields[0].column
    rows, not_read = read_each(
        found, lambda entry: _with_key(key, read(entry), entry), lambda entry: _name(entry, fields[0])
    )
    return table_of(table, rows, absent=absent, unreadable=[*unreadable, *not_read], version=version)


def _with_key(key: str, values: dict[str, Any], entry: Any) -> dict[str, Any]:
    if values.get(key) is None:
        raise ParseError(f"a row without {key}", entry)
    return values


def _name(entry: Any, field: Field) -> str | None:
    if not isinstance(entry, Mapping):
        return None
    value = entry.get(field.heading or "", at_path(entry, field.path or ("",)))
    return value if isinstance(value, str) else None
