"""From SlurmTable to data points: pure, by the declarations of `heeler.otlp.names_tables`."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from heeler.bus.tables_gen import TABLES
from heeler.otlp.names import Metric
from heeler.otlp.names_tables import OUT, TABLE, Group
from heeler.otlp.points import Attributes, Number, Points, scaled

Data = Mapping[str, Any]
Column = tuple[Metric, list[Number | None]]
SEPARATOR = "\x1f"


def table_points(data: Data) -> list[Points]:
    """Return the points of a part of a table; of a table that has no series, its size and age."""
    made = [_table(data)] if data["part"] == 0 else []
    for group in OUT.get(data["table"], ()):
        rows = _rows(data, group)
        if rows and (group.columns or group.states):
            made.append(_numbers(data, group, rows))
        if rows and group.amounts:
            made.append(_amounts(data, group, rows))
    if made:
        made[0].skipped = _unknown(data)
    return [points for points in made if points.ids]


def _who(data: Data) -> Attributes:
    return (("heeler.cluster", data["cluster"]), ("heeler.slurm.feed", data["feed"]))


def _table(data: Data) -> Points:
    """Return what is known of the table as a whole."""
    return Points(
        scope=("slurm.table", data["cluster"], data["feed"]),
        boot="",
        ts_ns=data["ts"],
        ids=[data["table"]],
        attributes=[(*_who(data), ("heeler.slurm.table", data["table"]))],
        columns=[(metric, scaled([data.get(key)], metric.scale)) for key, metric in TABLE.items()],
    )


def _unknown(data: Data) -> int:
    """Return how many values are in columns that this version does not know: a newer feed's."""
    if data["table"] not in OUT:
        return 0
    known = TABLES[data["table"]].columns
    return sum(len(values) - values.count(None) for name, values in data["columns"].items() if name not in known)


def _rows(data: Data, group: Group) -> dict[str, tuple[int, Attributes]]:
    """Return id -> row and attributes of the rows of a group; the first of any twins."""
    columns: Mapping[str, Sequence[Any]] = data["columns"]
    found: dict[str, tuple[int, Attributes]] = {}
    base = _who(data)
    for row in range(data["rows"]):

        def cell(name: str, row: int = row) -> Any:
            values = columns.get(name)
            return None if values is None else values[row]

        if not group.where(cell):
            continue
        names = [(attribute, _name(cell(column))) for column, attribute in group.labels.items()]
        if any(name is None for _, name in names):
            continue
        about = [(attribute, _name(cell(column))) for column, attribute in group.about.items()]
        known = tuple((attribute, name) for attribute, name in (*names, *about) if name is not None)
        # A partition that is told apart only by what may be missing is still a row of its own.
        key = SEPARATOR.join(str(name or "") for _, name in (*names, *about))
        found.setdefault(key, (row, (*base, *known)))
    return found


def _name(value: Any) -> str | int | None:
    """Return what can name a row: a text that is not empty, or a whole number."""
    return value if type(value) is int or (isinstance(value, str) and value) else None


def _numbers(data: Data, group: Group, rows: Mapping[str, tuple[int, Attributes]]) -> Points:
    told: Mapping[str, Sequence[Any]] = data["columns"]
    at = [row for row, _ in rows.values()]
    columns: list[Column] = [
        (metric, scaled([_number(told[name][row]) for row in at], metric.scale))
        for name, metric in group.columns.items()
        if name in told
    ]
    for name, words in group.states.items():
        # A word that is none of these is a newer one: which of these holds is not known then.
        values = [told[name][row] if name in told else None for row in at]
        for word, metric in words.items():
            columns.append((metric, [int(value == word) if _is(value, words) else None for value in values]))
    for name, metric in group.well.items():
        if name in told:
            columns.append((metric, [int(told[name][row] is None) for row in at]))
    since = _since(group, told)
    return Points(
        scope=(group.scope, data["cluster"], data["feed"]),
        boot=str(since or ""),
        ts_ns=data["ts"],
        ids=list(rows),
        attributes=[about for _, about in rows.values()],
        columns=columns,
        start_ns=since,
    )


def _is(value: Any, words: Mapping[str, Metric]) -> bool:
    return isinstance(value, str) and value in words


def _since(group: Group, told: Mapping[str, Sequence[Any]]) -> int | None:
    """Return when the counters began, where the only row says so."""
    values = told.get(group.since or "")
    first = values[0] if values else None
    return first if type(first) is int and first > 0 else None


def _amounts(data: Data, group: Group, rows: Mapping[str, tuple[int, Attributes]]) -> Points:
    """Return a row for each name in the maps of each row."""
    told: Mapping[str, Sequence[Any]] = data["columns"]
    maps = {
        column: {key: told[column][row] for key, (row, _) in rows.items() if isinstance(told[column][row], Mapping)}
        for column in group.amounts
        if column in told
    }
    pairs = dict.fromkeys(
        (key, name) for of_rows in maps.values() for key, counts in of_rows.items() for name in counts if name
    )
    columns: list[Column] = [
        (metric, scaled([_number(maps[column].get(key, {}).get(name)) for key, name in pairs], metric.scale))
        for column, metric in group.amounts.items()
        if column in maps
    ]
    return Points(
        scope=(group.scope, data["cluster"], data["feed"]),
        boot="",
        ts_ns=data["ts"],
        ids=[f"{key}{SEPARATOR}{name}" for key, name in pairs],
        attributes=[(*rows[key][1], (group.by, name)) for key, name in pairs],
        columns=columns,
    )


def _number(value: Any) -> Number | None:
    """Return a number as one, true and false as 1 and 0: a newer feed's column may be of another kind."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float) and isfinite(value) else None
