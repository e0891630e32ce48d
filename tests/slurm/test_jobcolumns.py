"""The short ways of large tables give what the long ones give."""

import gc
import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurmdata import answer, job_row

from heeler.bus.codec import DecodeError
from heeler.bus.tables import check_columns
from heeler.bus.tables_gen import TABLES
from heeler.slurm.errors import ParseError
from heeler.slurm.gcpause import gc_paused
from heeler.slurm.jobcolumns import Columns
from heeler.slurm.jobsjson import parse_jobs_json
from heeler.slurm.jobstext import Marks, _records, parse_jobs_text
from heeler.slurm.times import parse_duration

WORDS = st.sampled_from(["(null)", "0:00", "1-02:03:04", "UNLIMITED", "x", "", "1:00:00", "12:7f"])


@given(st.one_of(st.lists(WORDS), st.builds(lambda word, count: [word] * count, WORDS, st.integers(0, 9))))
def test_a_column_read_by_its_different_values_is_the_column_read_value_by_value(values: list[str]) -> None:
    quick, plain = Columns(len(values)), Columns(len(values))
    assert quick.read(values, parse_duration) == plain.each(values, parse_duration)
    assert quick.bad == plain.bad


WHOLE = st.sampled_from([0, 1, 7, 1010, -1, -2, 65534, (1 << 32) - 2, (1 << 32) - 1, (1 << 64) - 1, 1 << 70, 1.0, 2.5])
ODD: st.SearchStrategy[Any] = st.sampled_from([None, True, False, "", "5", "UNLIMITED", "x", [], {}, {"set": True}])
MAYBE = st.sampled_from([True, False, None])
NUMERIC = st.one_of(
    WHOLE, ODD, st.fixed_dictionaries({}, optional={"set": MAYBE, "infinite": MAYBE, "number": st.one_of(WHOLE, ODD)})
)
KEYS = ("job_id", "cpus", "tasks", "priority", "submit_time", "end_time", "time_limit", "nice", "memory_per_cpu")


@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, NUMERIC)), min_size=1, max_size=4))
def test_rows_that_are_decoded_into_structs_say_what_their_maps_say(changes: list[dict[str, Any]]) -> None:
    asked = answer(jobs=[job_row(481 + at) | change for at, change in enumerate(changes)])
    struct = parse_jobs_json(json.dumps(asked).encode(), now_ns=2000 * 10**9, with_table=True)
    plain = parse_jobs_json(asked, now_ns=2000 * 10**9, with_table=True)
    assert struct.jobs == plain.jobs
    assert [one.name for one in struct.unreadable] == [one.name for one in plain.unreadable]
    assert struct.table is not None
    assert plain.table is not None
    assert struct.table.columns == plain.table.columns
    assert [one.name for one in struct.table.unreadable] == [one.name for one in plain.table.unreadable]


@given(st.lists(st.text("ab|.\n", max_size=6)))
def test_rows_are_cut_as_a_split_cuts_them(rows: list[str]) -> None:
    text = "".join(f"{row}|.\n" for row in rows)
    assert list(_records(text, "|.\n")) == text.split("|.\n")[:-1]


def test_a_time_before_1970_is_refused_in_a_table() -> None:
    check_columns(TABLES["jobs"], {"submit_ts": [None, 0, 5]}, 3)
    with pytest.raises(DecodeError, match="submit_ts: not ts: -1"):
        check_columns(TABLES["jobs"], {"submit_ts": [None, 5, -1]}, 3)
    with pytest.raises(DecodeError, match="submit_ts: not ts: True"):
        check_columns(TABLES["jobs"], {"submit_ts": [True]}, 1)


def test_the_search_for_cycles_is_on_again_after_an_answer_that_is_none() -> None:
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ParseError, match="no row"):
        parse_jobs_text("squeue: error", Marks("|#", "|."), UTC)
    assert gc.isenabled()
