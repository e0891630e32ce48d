"""Slurm's tables: their columns are data, what is published is held against it, and large ones are cut into parts."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.bus import DecodeError, EncodeError
from heeler.bus.tables import KINDS, Column, TableSpec, check_columns, check_lengths, parts_of
from heeler.bus.tables_gen import TABLES

SPEC = TableSpec("t", "A table.", ("a",), {kind: Column(kind, kind, "A column.") for kind in KINDS})
GOOD: dict[str, list[Any]] = {
    "text": ["", "x"],
    "int": [0, -1, 1 << 64],
    "number": [0, 1.5],
    "bool": [True],
    "ts": [0, 1760000000123456789],
    "texts": [[], ["a"]],
    "ints": [[], [1]],
    "counts": [{}, {"cpu": 1.5}],
}
BAD: dict[str, list[Any]] = {
    "text": [1, b"x", ["x"]],
    "int": [True, 1.0, "1"],
    "number": [True, float("nan"), float("inf"), "1"],
    "bool": [0, "yes"],
    "ts": [-1, 1.0],
    "texts": ["a", ["a", None], [1]],
    "ints": [[1.0], [True], 1],
    "counts": [{"cpu": "1"}, {1: 1}, {"cpu": None}, []],
}


def test_every_kind_has_examples() -> None:
    assert GOOD.keys() == BAD.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_takes_its_kind_and_null(kind: str) -> None:
    check_columns(SPEC, {kind: [*GOOD[kind], None]}, len(GOOD[kind]) + 1)


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BAD.items() for value in values])
def test_a_column_refuses_another_kind_and_names_it(kind: str, value: Any) -> None:
    with pytest.raises(DecodeError, match=f"t.{kind}: not {kind}"):
        check_columns(SPEC, {kind: [value]}, 1)


def test_an_unknown_column_and_a_wrong_length_are_refused() -> None:
    with pytest.raises(DecodeError, match="no column 'other'"):
        check_columns(SPEC, {"other": [1]}, 1)
    with pytest.raises(DecodeError, match="2 values for 1 rows"):
        check_columns(SPEC, {"int": [1, 2]}, 1)
    with pytest.raises(DecodeError, match="x: 2 values for 1 rows"):
        check_lengths({"x": [1, 2]}, 1)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_a_table_of_ours_names_its_rows_and_knows_its_kinds(table: TableSpec) -> None:
    assert table.key
    assert set(table.key) <= table.columns.keys()
    assert {column.kind for column in table.columns.values()} <= KINDS.keys()
    assert all(column.about.endswith(".") for column in table.columns.values())


@given(st.lists(st.text(max_size=40), max_size=60), st.integers(64, 400))
def test_parts_hold_every_row_in_order_and_fit(rows: list[str], limit: int) -> None:
    columns: dict[str, list[Any]] = {"name": rows, "length": [len(row) for row in rows]}
    try:
        parts = list(parts_of(columns, len(rows), limit))
    except EncodeError:
        assert any(len(msgpack.packb({"name": [row], "length": [len(row)]})) > limit for row in rows)
        return
    assert [name for _, part in parts for name in part["name"]] == rows
    assert all(count == len(part["name"]) == len(part["length"]) for count, part in parts)
    assert all(len(msgpack.packb(part)) <= limit for _, part in parts)


def test_an_empty_table_is_one_empty_part() -> None:
    assert list(parts_of({"name": []}, 0)) == [(0, {"name": []})]
