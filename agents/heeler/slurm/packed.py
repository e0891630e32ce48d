"""Columns of a large table as the bytes that its messages will hold: a hundred thousand rows as lists take 100 MB.

Rows come some at a time, are checked against schemas/slurm_tables.yaml, and are packed at once. Column by column they
are so much alike that zlib makes a tenth of them.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from heeler.bus.codec import DecodeError, EncodeError
from heeler.bus.tables import MAX_PART_BYTES, check_columns, parts_of
from heeler.bus.tables_gen import TABLES

Column = list[Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of all columns."""

    rows: int
    data: bytes

    def encoded(self) -> bytes:
        """Return the columns as MessagePack."""
        return zlib.decompress(self.data)


@dataclass(slots=True)
class PackedColumns(Mapping[str, Sequence[Any]]):
    """A table's columns, packed. To read one unpacks all rows once: whoever needs several asks for `some`."""

    table: str
    names: tuple[str, ...]
    blocks: list[Block] = field(default_factory=list)
    rows: int = 0
    fault: DecodeError | EncodeError | None = None  # why this table can't be published

    def add(self, columns: Mapping[str, Column], rows: int) -> None:
        """Add rows. A column that is not given is null in all of them."""
        found = {name: columns.get(name) or [None] * rows for name in self.names}
        try:
            check_columns(TABLES[self.table], found, rows)
        except DecodeError as err:
            self.fault = self.fault or err
        data = msgspec.msgpack.encode(found)
        parts: Iterable[tuple[int, bytes]] = ((rows, data),)
        if len(data) > MAX_PART_BYTES:
            parts = self._cut(found, rows, data)
        self.blocks += [Block(count, zlib.compress(part, 1)) for count, part in parts if count]
        self.rows += rows

    def some(self, names: Iterable[str]) -> dict[str, Column]:
        """Return some columns. Raises KeyError for one that is not there."""
        out: dict[str, Column] = {name: [] for name in names}
        if missing := out.keys() - set(self.names):
            raise KeyError(*missing)
        reader = _reader(tuple(out))
        for block in self.blocks:
            found = reader.decode(block.encoded())
            for name, column in out.items():
                column.extend(getattr(found, name))
        return out

    def values(self) -> Any:
        """Return all columns, unpacked at once."""
        return self.some(self.names).values()

    def items(self) -> Any:
        """Return all columns with their names, unpacked at once."""
        return self.some(self.names).items()

    def __getitem__(self, name: str) -> Column:
        """Return a column."""
        return self.some((name,))[name]

    def __iter__(self) -> Iterator[str]:
        """Return the columns' names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return how many columns there are."""
        return len(self.names)

    def _cut(self, found: Mapping[str, Column], rows: int, whole: bytes) -> list[tuple[int, bytes]]:
        try:
            return [(count, msgspec.msgpack.encode(part)) for count, part in parts_of(found, rows)]
        except EncodeError as err:
            self.fault = self.fault or err
            return [(rows, whole)]


@lru_cache(16)
def _reader(names: tuple[str, ...]) -> msgspec.msgpack.Decoder[Any]:
    """Return what reads some columns and skips the others."""
    return msgspec.msgpack.Decoder(msgspec.defstruct("Some", [(name, list[Any]) for name in names]))


def some_of(columns: Mapping[str, Sequence[Any]], names: Iterable[str]) -> Mapping[str, Sequence[Any]]:
    """Return those of some columns that a table has, in one go."""
    there = [name for name in names if name in columns]
    return columns.some(there) if isinstance(columns, PackedColumns) else {name: columns[name] for name in there}
