"""Job ids and rows of text: steps, arrays and warnings are told from jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heeler.slurm.errors import ParseError
from heeler.slurm.jobid import JobId, parse_job_id
from heeler.slurm.text import split_rows


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("123", JobId(123)),
        ("123_4", JobId(123, task=4)),
        ("123_[1-10%2]", JobId(123, tasks=((1, 10, 1),), throttle=2)),
        ("123_[1,3,5-7]", JobId(123, tasks=((1, 1, 1), (3, 3, 1), (5, 7, 1)))),
        ("123_[0-8:4%1]", JobId(123, tasks=((0, 8, 4),), throttle=1)),
        ("123_[1-10,...]", JobId(123, tasks=((1, 10, 1),), truncated=True)),
        ("123.batch", JobId(123, step="batch")),
        ("123.extern", JobId(123, step="extern")),
        ("123.0", JobId(123, step="0")),
        ("123_4.batch", JobId(123, task=4, step="batch")),
        ("715_23.b+", JobId(715, task=23, step="b", truncated=True)),
        ("4+1", JobId(4, het_offset=1)),
        ("4+1.0", JobId(4, het_offset=1, step="0")),
        ("JobId=126 ArrayJobId=123 ArrayTaskId=1", JobId(123, task=1, raw=126)),
        ("JobId=123 ArrayJobId=123 ArrayTaskId=2-5%2 JobName=a", JobId(123, tasks=((2, 5, 1),), throttle=2, raw=123)),
        ("JobId=5 HetJobId=4 HetJobOffset=1", JobId(4, het_offset=1, raw=5)),
        ("JobId=126", JobId(126, raw=126)),
    ],
)
def test_an_id_names_a_job_a_task_or_a_step(text: str, wanted: JobId) -> None:
    assert parse_job_id(text) == wanted


def test_waiting_tasks_are_counted() -> None:
    assert parse_job_id("123_[1-10%2]").task_count == 10
    assert parse_job_id("123_[1,3,5-7]").task_ids() == [1, 3, 5, 6, 7]
    assert parse_job_id("123_[0-8:4%1]").task_ids() == [0, 4, 8]


@pytest.mark.parametrize(
    "text",
    ["", "0", "x", "-1", "123_", "123_[]", "123_[5-1]", "123_[1-99999999]", "123_[1-3:0]", "0.batch", "99999999999",
     "123 4", "JobId=0", "JobId=x", "ArrayJobId=3", "JobId=5 ArrayJobId=3", "12_[1%x]", "4294967296"],
)  # fmt: skip
def test_what_is_no_id_is_an_error_and_never_job_0(text: str) -> None:
    with pytest.raises(ParseError):
        parse_job_id(text)


@given(st.text("0123456789_[]-,:%+.b", max_size=20) | st.text(max_size=10))
def test_any_text_gives_an_id_or_a_parse_error(text: str) -> None:
    try:
        found = parse_job_id(text)
    except ParseError:
        return
    assert found.job > 0


def test_free_text_goes_last_and_may_hold_the_delimiter() -> None:
    (row,) = split_rows("481|alice|gpu|RUNNING|train|v2\n").rows
    assert (row["id"], row["state"], row["name"]) == ("481", "RUNNING", "train|v2")


def test_a_newline_in_a_name_does_not_split_its_row() -> None:
    found = split_rows(
        "481;;RUNNING;;a\nb;;END\n482;;RUNNING;;c;;END\n", ["id", "state", "name"], delimiter=";;", end="END"
    )
    assert [row["name"] for row in found.rows] == ["a\nb", "c"]


@pytest.mark.parametrize("text", ["481|RUNNING|name|", "481|RUNNING|name"])
def test_a_delimiter_at_the_end_adds_no_field(text: str) -> None:
    assert split_rows(text, ["id", "state", "name"]).rows == ({"id": "481", "state": "RUNNING", "name": "name"},)


def test_a_warning_is_counted_and_no_job() -> None:
    found = split_rows("warning: conf differs\n481|RUNNING|n\n", ["id", "state", "name"])
    assert [row["id"] for row in found.rows] == ["481"]
    assert found.unparsed == ("warning: conf differs",)
    marked = split_rows("warning: conf | differs\n481|RUNNING|n|END\n", ["id", "state", "name"], end="END")
    assert [row["id"] for row in marked.rows] == ["481"]
    assert marked.unparsed == ("warning: conf | differs",)


def test_rows_need_fields_and_a_delimiter() -> None:
    for fields, delimiter in (([], "|"), (["id"], "")):
        with pytest.raises(ParseError):
            split_rows("1", fields, delimiter=delimiter)


@given(st.text("481|RUN\n;", max_size=60))
def test_any_text_gives_rows_of_whole_ids(text: str) -> None:
    found = split_rows(text, ["id", "name"])
    assert all(parse_job_id(row["id"]) for row in found.rows)
    assert len(found.rows) + len(found.unparsed) == sum(bool(line.strip()) for line in text.splitlines())
