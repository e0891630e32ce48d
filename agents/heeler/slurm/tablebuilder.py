"""Rows to columns, a thousand at a time: a hundred thousand rows as maps would take half a gigabyte."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.bus.tables_gen import TABLES
from heeler.slurm.collect import Table
from heeler.slurm.rows import Unreadable

CHUNK = 1000


@dataclass(slots=True)
class TableBuilder:
    """Takes rows, each a map from column to value, and the rows that could not be read."""

    name: str
    absent: Mapping[str, str] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    _columns: dict[str, list[Any]] = field(init=False)
    _waiting: list[Mapping[str, Any]] = field(default_factory=list)
    _rows: int = 0

    def __post_init__(self) -> None:
        self._columns = {name: [] for name in TABLES[self.name].columns if name not in self.absent}

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row; a column that it lacks is null."""
        self._waiting.append(row)
        if len(self._waiting) >= CHUNK:
            self._flush()

    def build(self, version: str | None = None) -> Table:
        """Return the table."""
        self._flush()
        return Table(self._columns, self._rows, self.absent, tuple(self.unreadable), version)

    def _flush(self) -> None:
        for name, values in self._columns.items():
            values.extend([row.get(name) for row in self._waiting])
        self._rows += len(self._waiting)
        self._waiting.clear()
