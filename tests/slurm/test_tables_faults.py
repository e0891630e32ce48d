"""Tables from answers that are none, broken or cut: an error that names the text, and nothing else lost."""

import json
from collections.abc import Callable
from datetime import UTC
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurmdata import DATA, recorded

from heeler.bus.tables import check_columns
from heeler.bus.tables_gen import TABLES
from heeler.slurm import (
    associations,
    config,
    licenses,
    partitions,
    priorities,
    qos,
    reservations,
    runaway,
    sched,
    shares,
    topology,
    users,
)
from heeler.slurm.collect import Table
from heeler.slurm.errors import ParseError

Parse = Callable[[bytes], Table]
TEXT: dict[str, tuple[Parse, str]] = {
    "associations": (associations.parse_text, "24.11/sacctmgr_show_associations.txt"),
    "config": (config.parse_text, "24.11/scontrol_show_config.txt"),
    "licenses": (licenses.parse_text, "24.11/scontrol_show_licenses.txt"),
    "partitions": (partitions.parse_text, "24.11/scontrol_show_partitions.txt"),
    "priorities": (priorities.parse_text, "24.11/sprio.txt"),
    "qos": (qos.parse_text, "24.11/sacctmgr_show_qos.txt"),
    "reservations": (partial(reservations.parse_text, zone=UTC), "24.11/scontrol_show_reservations.txt"),
    "sched": (sched.parse_text, "24.11/sdiag.txt"),
    "shares": (shares.parse_text, "24.11/sshare.txt"),
    "topology": (topology.parse_text, "24.11/scontrol_show_topology.txt"),
    "users": (users.parse_text, "24.11/sacctmgr_show_users.txt"),
}
JSON: dict[str, tuple[Parse, str]] = {
    "associations": (associations.parse_json, "24.11/sacctmgr_show_associations_v0.0.42.json"),
    "licenses": (licenses.parse_json, "24.11/scontrol_show_licenses_v0.0.42.json"),
    "partitions": (partitions.parse_json, "24.11/scontrol_show_partitions_v0.0.42.json"),
    "qos": (qos.parse_json, "24.11/sacctmgr_show_qos_v0.0.42.json"),
    "reservations": (reservations.parse_json, "24.11/scontrol_show_reservations_v0.0.42.json"),
    "sched": (sched.parse_json, "24.11/sdiag_v0.0.42.json"),
    "shares": (shares.parse_json, "24.11/sshare_v0.0.42.json"),
    "users": (users.parse_json, "24.11/sacctmgr_show_users_v0.0.42.json"),
}
ROWS = {name: name for name in JSON if name not in ("sched", "shares")}


@pytest.mark.parametrize("name", [name for name in TEXT if name != "topology"])
@pytest.mark.parametrize(
    "said", [b"", b"\n", b"slurm_load_error: Unable to contact slurm controller\n", b"\xff\xfe\x00"]
)
def test_an_answer_that_says_nothing_is_no_empty_table(name: str, said: bytes) -> None:
    with pytest.raises(ParseError):
        TEXT[name][0](said)


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("said", [b"", b"[]", b"{", b"{}", b'{"errors": [{"error": "Unable to connect to database"}]}'])
def test_json_without_a_list_is_no_empty_table(name: str, said: bytes) -> None:
    with pytest.raises(ParseError):
        JSON[name][0](said)


@pytest.mark.parametrize("name", JSON)
def test_json_with_errors_is_believed_in_nothing(name: str) -> None:
    parse, path = JSON[name]
    answer = json.loads(recorded(path))
    answer["errors"] = [{"description": "Protocol authentication error", "error_number": 1007}]
    with pytest.raises(ParseError, match="Protocol authentication error"):
        parse(json.dumps(answer).encode())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("licenses", b"No licenses configured in Slurm.\n"),
        ("reservations", b"No reservations in the system\n"),
        ("partitions", b"No partitions in the system\n"),
        ("priorities", recorded("24.11/sprio.txt").splitlines()[0].encode()),
        ("qos", recorded("24.11/sacctmgr_show_qos.txt").splitlines()[0].encode()),
        ("topology", b""),
    ],
)
def test_nothing_there_is_an_empty_table(name: str, said: bytes) -> None:
    assert TEXT[name][0](said).rows == 0


@pytest.mark.parametrize("name", ROWS)
def test_an_empty_list_is_an_empty_table(name: str) -> None:
    answer = json.loads(recorded(JSON[name][1]))
    answer[ROWS[name]] = []
    table = JSON[name][0](json.dumps(answer).encode())
    assert (table.rows, table.unreadable, dict(table.absent).keys() - {"state"}) == (0, (), set())


def test_a_row_that_is_cut_is_counted_and_the_others_are_read() -> None:
    lines = recorded("24.11/sacctmgr_show_qos.txt").splitlines()
    cut = "\n".join([*lines[:-1], lines[-1][:40]])
    table = qos.parse_text(cut.encode())
    assert table.columns["qos"] == ["normal", "high"]
    (bad,) = table.unreadable
    assert lines[-1][:30] in bad.why


def test_a_value_that_is_none_spoils_its_row_alone() -> None:
    data = recorded("24.11/sacctmgr_show_qos.txt").replace("cpu=17", "cpu=many")
    table = qos.parse_text(data.encode())
    assert table.columns["qos"] == ["normal", "high"]
    assert [(bad.name, "cpu=many" in bad.why) for bad in table.unreadable] == [("low", True)]


def test_warnings_before_a_table_are_no_rows() -> None:
    data = "sacctmgr: warning: something|odd\n" + recorded("24.11/sacctmgr_show_users.txt")
    assert users.parse_text(data.encode()).unreadable == ()


def test_a_name_with_a_delimiter_stays_whole_where_people_write_it() -> None:
    head = "ID|Partition|Cluster|State|TimeSubmit|TimeStart|TimeEnd|Name"
    row = "7|train|c|RUNNING|2026-12-02T20:46:08|2026-12-02T20:46:09|Unknown|a|b c"
    said = (
        f"NOTE: Runaway jobs are jobs that ...\n{head}\n{row}\n\nWould you like to fix these runaway jobs?\n(N/y): \n"
    )
    table = runaway.parse_text(said.encode(), UTC)
    assert (table.rows, table.columns["name"], table.columns["end_ts"]) == (1, ["a|b c"], [None])
    assert table.columns["start_ts"] == [1796244369 * 10**9]


def test_runaway_jobs_are_none_only_where_slurm_says_so() -> None:
    said = b"Runaway Jobs: No runaway jobs found on cluster sandbox\n"
    assert runaway.parse_text(said, UTC).rows == 0
    for none in (b"", b"sacctmgr: error: You must have an AdminLevel>=Operator to fix runaway jobs\n"):
        with pytest.raises(ParseError):
            runaway.parse_text(none, UTC)


def test_memory_of_jobs_without_a_limit_of_time_is_no_overflow() -> None:
    """Such jobs count for 2^32 minutes, in MiB of memory."""
    line = (
        recorded("24.11/sshare.txt").splitlines()[0]
        + "\nroot||||1|1|5|||||cpu=8589934590,mem=858993459000000|mem=858993459000000"
    )
    table = shares.parse_text(
        line.replace("||||1|1|5|||||cpu=8589934590,mem=858993459000000|", "|||c|1|1|5||1||||").encode()
    )
    (minutes,) = table.columns["tres_run_minutes"]
    assert minutes == {"mem": float(858993459000000 << 20)}
    assert type(minutes["mem"]) is float


@pytest.mark.parametrize("name", TEXT)
def test_the_recorded_answers_are_those_of_the_tests(name: str) -> None:
    assert TEXT[name][0]((DATA / TEXT[name][1]).read_bytes()).rows > 0


MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, 1 << 20),
        st.integers(0, 3),
        st.sampled_from(["|", "=", "\n", "", "x", "-1", "99999999999999999999", "é", "\x00"]),
    ),
    min_size=1,
    max_size=6,
)


def mutate(data: str, changes: list[tuple[int, int, str]]) -> bytes:
    for at, cut, put in changes:
        where = at % (len(data) + 1)
        data = data[:where] + put + data[where + cut :]
    return data.encode(errors="replace")


def whole(name: str, parse: Parse, data: bytes) -> None:
    """A table whose every row is whole, or a ParseError: nothing else comes out."""
    try:
        table = parse(data)
    except ParseError:
        return
    check_columns(TABLES[name], table.columns, table.rows)
    assert set(table.columns) | set(table.absent) == set(TABLES[name].columns)
    for key in TABLES[name].key[:1]:
        first = "account" if name == "associations" else key
        if TABLES[name].columns[first].kind != "ts":  # a controller that has just begun says 0: not known yet
            assert all(value is not None for value in table.columns[first])


@given(st.sampled_from(sorted(TEXT)), MUTATIONS)
def test_no_text_gives_half_a_table(name: str, changes: list[tuple[int, int, str]]) -> None:
    parse, path = TEXT[name]
    whole(name, parse, mutate(recorded(path), changes))


@given(st.sampled_from(sorted(JSON)), MUTATIONS)
def test_no_json_gives_half_a_table(name: str, changes: list[tuple[int, int, str]]) -> None:
    parse, path = JSON[name]
    whole(name, parse, mutate(recorded(path), changes))


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, item in items for path in leaves(item, (*at, key)))]


@given(
    st.sampled_from(sorted(JSON)),
    st.integers(0, 1 << 20),
    st.sampled_from([None, -1, 1e400, "x", [], {}, True, 1 << 70, [None], {"set": 1}]),
)
def test_no_value_of_another_type_gives_half_a_table(name: str, at: int, put: Any) -> None:
    parse, path = JSON[name]
    answer = json.loads(recorded(path))
    paths = [found for found in leaves(answer) if found and found[0] not in ("meta", "errors", "warnings")]
    chosen = paths[at % len(paths)]
    inside = answer
    for key in chosen[:-1]:
        inside = inside[key]
    inside[chosen[-1]] = put
    whole(name, parse, json.dumps(answer).encode())
