"""SlurmTables: columns that are data (schemas/slurm_tables.yaml), checked, and cut into parts that fit a message."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import msgspec

from heeler.bus.codec import DecodeError, EncodeError

MAX_PART_BYTES = 512 << 10
SAMPLE = 100  # rows that tell about how many go into a part
Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: what its values are, and what it says."""

    name: str
    kind: str
    about: str


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table: which columns name a row, and all its columns."""

    name: str
    about: str
    key: tuple[str, ...]
    columns: Mapping[str, Column]


def check_columns(spec: TableSpec, columns: Columns, rows: int) -> None:
    """Raise DecodeError for a column that the table lacks, of another length, or with a value of another kind.

    For writers. A reader lets columns of a newer writer through: `check_lengths`.
    """
    for name, values in columns.items():
        column = spec.columns.get(name)
        if column is None:
            raise DecodeError(f"{spec.name}: no column {name!r}")
        if len(values) != rows:
            raise DecodeError(f"{spec.name}.{name}: {len(values)} values for {rows} rows")
        plain = column.kind in _SCALARS and set(map(type, values)) <= _SCALARS[column.kind]
        if plain and (column.kind not in _MORE or _MORE[column.kind](values)):
            continue  # nine of ten columns, at a tenth of the price
        fits = KINDS[column.kind]
        # Rows share what is equal: the same list is looked at once.
        one = len(set(map(id, values))) == 1
        for value in values[:1] if one else dict(zip(map(id, values), values, strict=True)).values():
            if value is not None and not fits(value):
                raise DecodeError(f"{spec.name}.{name}: not {column.kind}: {value!r:.100}")


def check_lengths(columns: Columns, rows: int) -> None:
    """Raise DecodeError where a column has not one entry a row."""
    for name, values in columns.items():
        if len(values) != rows:
            raise DecodeError(f"{name}: {len(values)} values for {rows} rows")


def parts_of(columns: Columns, rows: int, max_bytes: int = MAX_PART_BYTES) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (rows, columns) of parts that are packed in at most `max_bytes`; one empty part for an empty table.

    Raises EncodeError where a single row is larger.
    """
    if rows == 0:
        yield 0, {name: [] for name in columns}
        return
    some = {name: list(values[:SAMPLE]) for name, values in columns.items()}
    size = len(msgspec.msgpack.encode(some))
    at, step = 0, min(rows, max(1, int(min(rows, SAMPLE) * max_bytes / size * 0.9)))
    while at < rows:
        count = min(step, rows - at)
        part = {name: list(values[at : at + count]) for name, values in columns.items()}
        size = len(msgspec.msgpack.encode(part))
        if size > max_bytes:
            if count == 1:
                raise EncodeError(f"a row of {size} bytes does not fit a part of {max_bytes}")
            step = max(1, min(count // 2, int(count * max_bytes / size * 0.9)))
            continue
        yield count, part
        at += count


_TEXT, _INT = frozenset((str,)), frozenset((int,))


def _whole(value: Any) -> bool:
    return type(value) is int


def _number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and isfinite(value))


def _texts(value: Any) -> bool:
    return type(value) is list and _TEXT.issuperset(map(type, value))


def _ints(value: Any) -> bool:
    return type(value) is list and _INT.issuperset(map(type, value))


def _counts(value: Any) -> bool:
    if type(value) is not dict or not _TEXT.issuperset(map(type, value)):
        return False
    return _INT.issuperset(map(type, value.values())) or all(map(_number, value.values()))


# Kinds of which the type says (nearly) all.
_SCALARS: Mapping[str, frozenset[type]] = {
    "text": frozenset((str, type(None))),
    "int": frozenset((int, type(None))),
    "bool": frozenset((bool, type(None))),
    "ts": frozenset((int, type(None))),
    "number": frozenset((int, float, type(None))),
}
# What else there is to know of those; where it isn't so, each value is looked at.
_MORE: Mapping[str, Callable[[Sequence[Any]], bool]] = {
    "ts": lambda values: min(filter(None, values), default=0) >= 0,
    "number": lambda values: isfinite(sum(filter(None, values))),
}

KINDS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: type(value) is str,
    "int": _whole,
    "number": _number,
    "bool": lambda value: type(value) is bool,
    "ts": lambda value: type(value) is int and value >= 0,
    "texts": _texts,
    "ints": _ints,
    "counts": _counts,
}
