"""A JSON answer in pieces gives the rows that it has as a whole, or nothing."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slurmdata import answer, job_row, recorded

from heeler.slurm import jsonstream
from heeler.slurm.errors import ParseError
from heeler.slurm.jobrow import decode_rows
from heeler.slurm.jobsjson import JobsReader, parse_jobs_json
from heeler.slurm.jsonfix import loads
from heeler.slurm.jsonstream import ListReader

# What looks like the place between two rows, in a name; and what JSON lacks and Slurm writes.
NAMES = st.one_of(
    st.sampled_from(['},{"job_id":', "}, {", '"jobs": [', "]", "[{", '\\"', "ä", "\\", '},\n{\n "job_id": 7', ""]),
    st.text(max_size=5),
)
VALUES = st.one_of(NAMES, st.none(), st.integers(0, 9), st.lists(NAMES, max_size=2), st.just({"set": True}))
ROWS: st.SearchStrategy[list[Any]] = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from(["job_id", "name", "nodes", "x"]), VALUES, max_size=3),
        st.sampled_from([None, 5, "x", [], [{}]]),
    ),
    max_size=6,
)


def read(text: bytes, size: int, piece: int = 1) -> tuple[list[Any], dict[str, Any]]:
    """Return the rows and the rest of an answer that comes in pieces of a size, decoded in pieces of another."""
    rows: list[Any] = []
    reader = ListReader("jobs", plain, rows.extend)
    before, jsonstream.PIECE = jsonstream.PIECE, piece
    try:
        for at in range(0, len(text), size):
            reader.feed(text[at : at + size])
        return rows, dict(reader.end())
    finally:
        jsonstream.PIECE = before


def refuse(word: str) -> None:
    """Refuse what JSON lacks."""
    raise ValueError(word)


def plain(data: memoryview | bytes) -> list[Any]:
    """Decode a list by another library, strictly."""
    try:
        found: list[Any] = json.loads(bytes(data), parse_constant=refuse)
    except ValueError as err:
        raise msgspec.DecodeError(str(err)) from None
    return found


@settings(max_examples=300)
@given(ROWS, st.integers(1, 40), st.integers(1, 60), st.sampled_from([None, 1, 4]), st.booleans(), st.booleans())
def test_an_answer_in_pieces_has_the_rows_of_the_whole(
    rows: list[Any], size: int, piece: int, indent: int | None, first: bool, raw: bool
) -> None:
    asked = {"jobs": rows, "errors": [], "meta": {"jobs": [1]}} if first else {"meta": {"jobs": [1]}, "jobs": rows}
    text = json.dumps(asked, indent=indent, ensure_ascii=not raw)
    if raw:
        text = text.replace("\\n", "\n")  # as some versions write names
    whole = loads(text).value
    found, rest = read(text.encode(), size, piece)
    assert found == whole["jobs"]
    assert rest == whole | {"jobs": []}


@given(st.integers(1, 400), st.integers(1, 60))
def test_an_answer_that_is_cut_off_anywhere_is_none(cut: int, size: int) -> None:
    text = json.dumps(answer(jobs=[{"job_id": 1, "name": "a"}, {"job_id": 2, "nodes": ["n"]}, {"job_id": 3}])).encode()
    with pytest.raises(ParseError):
        read(text[: max(len(text) - cut, 0)], size)


@pytest.mark.parametrize("word", ["Infinity", "-inf", "nan", "NaN"])
def test_a_bare_word_costs_no_row(word: str) -> None:
    text = '{"jobs": [{"job_id": 1}, {"job_id": 2, "x": WORD}, {"job_id": 3}]}'.replace("WORD", word)
    rows, _ = read(text.encode(), 7)
    assert [row["job_id"] for row in rows] == [1, 2, 3]
    assert rows == loads(text).value["jobs"] or word.lower() == "nan"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "squeue: error: no controller\n",
        '{"jobs": [{"job_id": 1} {"job_id": 2}]}',
        '{"jobs": [{"job_id": 1}, nonsense, {"job_id": 2}]}',
        '{"jobs": [{"job_id": 1]}]}',
        '{"jobs": [{"job_id": 1}]} x',
        '{"jobs": [{"job_id": 1}], "jobs": [{"job_id": 2}]}',
        '{"jobs": [{"name": "a}, {"job_id": 2}]}',
    ],
)
def test_what_is_no_answer_is_refused_and_named(text: str) -> None:
    for size in (1, 5, 1000):
        reader = JobsReader(with_table=True)
        for at in range(0, len(text), size):
            reader.feed(text[at : at + size].encode())
        with pytest.raises(ParseError):
            reader.result()


def test_warnings_before_the_answer_and_bytes_that_are_no_utf8_cost_nothing() -> None:
    text = b"slurm_load: warning {x}\n\n" + json.dumps(answer(jobs=[job_row(name="NAME"), job_row(482)])).encode()
    found = parse_jobs_json(text.replace(b"NAME", b"a\xff"), with_table=True)
    assert [job.id for job in found.jobs] == ["481", "482"]
    assert found.jobs[0].name == "a\ufffd"
    assert not found.unreadable


@pytest.mark.parametrize("name", ["22.05/squeue_json.json", "24.11/squeue_json.json"])
@pytest.mark.parametrize("size", [1, 977, 1 << 20])
def test_recorded_answers_are_read_alike_in_pieces_of_any_size(name: str, size: int) -> None:
    text = recorded(name).encode()
    rows: list[Any] = []
    reader = ListReader("jobs", decode_rows, rows.extend)
    for at in range(0, len(text), size):
        reader.feed(text[at : at + size])
    reader.end()
    assert rows == list(decode_rows(json.dumps(json.loads(text)["jobs"]).encode()))


def test_one_job_of_another_kind_costs_no_other() -> None:
    rows = [job_row(at) for at in range(1, 40)]
    rows[7]["name"] = 5
    rows[9]["user_name"] = ["alice"]
    found = parse_jobs_json(json.dumps(answer(jobs=rows)).encode(), now_ns=10**18, with_table=True)
    assert {one.name for one in found.unreadable} == {"8", "10"}
    assert len(found.jobs) == 37
    assert found.table is not None
    assert (found.table.rows, {one.name for one in found.table.unreadable}) == (37, {"8", "10"})
    assert list(found.table.columns["job_id"]) == [job.id for job in found.jobs]
