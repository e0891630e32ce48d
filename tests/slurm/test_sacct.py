"""Accounting's rows: each record whole or named as unreadable, no value under another's name."""

from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurmdata import recorded

from heeler.bus import decode, encode
from heeler.slurm.errors import ParseError
from heeler.slurm.sacct import NS, Window, ended_argv, ended_in, order_of
from heeler.slurm.sacct_json import parse_sacct_json
from heeler.slurm.sacct_rows import split_sacct
from heeler.slurm.sacct_text import MAX_STEPS, Records, parse_sacct_text

FIELDS = "JobIDRaw|JobID|State|Submit|Start|End|AllocTRES|ReqTRES|ExitCode|JobName"
ROW = {
    "JobIDRaw": "12",
    "JobID": "12",
    "State": "COMPLETED",
    "Submit": "2026-03-01T10:00:00",
    "Start": "2026-03-01T10:00:05",
    "End": "2026-03-01T11:00:05",
    "AllocTRES": "billing=8,cpu=8,gres/gpu:h100=2,gres/gpu=2,mem=64G,node=1",
    "ReqTRES": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
    "ExitCode": "0:0",
    "JobName": "train",
}


def answer(*rows: dict[str, str], delimiter: str = "|", trailing: bool = False) -> str:
    end = delimiter if trailing else ""
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(ROW)
    lines = [delimiter.join(names) + end]
    lines += [delimiter.join(row.get(name, "") for name in names) + end for row in rows]
    return "\n".join(lines) + "\n"


def one(**changes: str) -> dict[str, Any]:
    found = parse_sacct_text(answer(ROW | changes))
    assert not found.unreadable
    assert len(found.records) == 1
    return found.records[0]


def fault(**changes: str) -> str:
    found = parse_sacct_text(answer(ROW | changes, ROW | {"JobIDRaw": "13", "JobID": "13"}))
    assert [record["job_id"] for record in found.records] == ["13"], "one bad row loses no other"
    return found.unreadable[0].why


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_every_recorded_row_is_a_record_or_a_step_of_one(version: str) -> None:
    text = recorded(f"{version}/sacct_all.txt")
    found = parse_sacct_text(text)
    assert not found.unreadable
    rows = len([line for line in text.splitlines() if line]) - 1
    assert len(found.records) + sum(len(record.get("steps", ())) for record in found.records) == rows
    for record in found.records:
        message = {**record, "cluster": "c", "ts": 1}
        assert decode("JobRecord", encode("JobRecord", message)) == message


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_text_and_json_say_the_same_of_a_run(version: str) -> None:
    text = {(r["job_id"], r["run"]): r for r in parse_sacct_text(recorded(f"{version}/sacct_all.txt")).records}
    json = parse_sacct_json(recorded(f"{version}/sacct_json.json"))
    assert not json.unreadable
    assert json.version
    same = [
        "state",
        "shown_id",
        "array_job_id",
        "array_task_id",
        "user",
        "account",
        "partition",
        "qos",
        "name",
        "submit_ts",
        "start_ts",
        "end_ts",
        "exit_code",
        "signal",
        "nodes",
        "node_count",
        "cpus",
        "gpus",
        "gpus_requested",
        "time_limit_s",
        "req_tres",
        "alloc_tres",
        "wait_s",
        "suspended_s",
    ]
    for record in json.records:
        other = text[record["job_id"], record["run"]]
        told = {key for key in same if key in record or key in other}
        if "exit_code" not in record and "end_ts" in record:
            assert version == "22.05", "whose JSON says 0 for any status"
            told -= {"exit_code", "signal"}
        assert {key: record.get(key) for key in told} == {key: other.get(key) for key in told}
        assert [s["step"] for s in record.get("steps", ())] == [s["step"] for s in other.get("steps", ())]


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_what_has_not_ended_has_no_exit_status(version: str) -> None:
    for found in (
        parse_sacct_text(recorded(f"{version}/sacct_all.txt")),
        parse_sacct_json(recorded(f"{version}/sacct_json.json")),
    ):
        live = [part for r in found.records for part in (r, *r.get("steps", ())) if part["state"] == "RUNNING"]
        assert not [part for part in live if {"exit_code", "signal", "derived_exit_code"} & part.keys()]
        done = [record for record in found.records if "end_ts" in record]
        assert done
        assert version == "22.05" or all("exit_code" in record for record in done)


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "PENDING"])
def test_a_run_says_its_exit_status_only_after_its_end(state: str) -> None:
    live = parse_sacct_text(answer(ROW | {"State": state, "End": "Unknown"})).records[0]
    assert not {"exit_code", "signal", "derived_exit_code"} & live.keys()
    assert parse_sacct_text(answer(ROW)).records[0]["exit_code"] == 0
    cancelled = parse_sacct_text(answer(ROW | {"State": "CANCELLED by 0", "Start": "Unknown"})).records[0]
    assert (cancelled["exit_code"], cancelled["signal"]) == (0, 0)


def test_a_step_that_has_ended_in_a_run_that_has_not_says_how() -> None:
    job = ROW | {"State": "RUNNING", "End": "Unknown"}
    step = ROW | {"JobID": f"{ROW['JobID']}.0", "JobIDRaw": f"{ROW['JobID']}.0", "State": "FAILED", "ExitCode": "3:0"}
    other = step | {"JobID": f"{ROW['JobID']}.1", "JobIDRaw": f"{ROW['JobID']}.1", "State": "RUNNING", "End": "Unknown"}
    record = parse_sacct_text(answer(job, step, other)).records[0]
    assert "exit_code" not in record
    assert [step.get("exit_code") for step in record["steps"]] == [3, None]


def test_two_runs_of_a_requeued_job_are_two_records() -> None:
    found = parse_sacct_text(recorded("24.11/sacct_all.txt"))
    runs = [(r["run"], r["state"]) for r in found.records if r["job_id"] == "7"]
    assert runs == [("1796187176", "REQUEUED"), ("1796187182", "NODE_FAIL"), ("1796187216", "FAILED")]


def test_no_field_of_sacct_is_lost() -> None:
    header = recorded("22.05/sacct_all.txt").splitlines()[0].split("|")
    filled = dict.fromkeys(header, "word") | ROW
    numbers = ("AllocCPUS", "AllocNodes", "ElapsedRaw", "GID", "NCPUS", "NNodes", "NTasks", "Priority", "UID")
    filled |= dict.fromkeys((*numbers, "AssocID", "QOSRAW", "WCKeyID", "ReservationId", "CPUTimeRAW"), "7")
    spans = ("Elapsed", "Suspended", "CPUTime", "TotalCPU", "UserCPU", "SystemCPU", "Reserved", "ResvCPU", "AveCPU")
    filled |= dict.fromkeys((*spans, "MinCPU", "Timelimit"), "00:00:07") | {"TimelimitRaw": "7", "Eligible": "Unknown"}
    filled |= {"DerivedExitCode": "0:0", "ReqMem": "4G", "ConsumedEnergyRaw": "7"}
    assert len(filled) == 109  # all that 22.05 has
    record = parse_sacct_text(answer(filled)).records[0]
    typed = set(header) - set(record["fields"])
    assert {"Timelimit", "Elapsed", "Priority", "SubmitLine", "AllocTRES"} <= typed
    assert all(record["fields"][name] == filled[name] for name in record["fields"])
    assert len(record["fields"]) > 60


def test_gpus_are_counted_once_whether_typed_or_not() -> None:
    assert one()["gpus"] == 2
    assert one()["gpus_by_type"] == {"h100": 2}
    assert one(AllocTRES="cpu=1,gres/gpu=4")["gpus"] == 4
    assert one(AllocTRES="cpu=1,gres/gpu:a100=4,gres/gpu:h100=2")["gpus"] == 6
    assert "gpus" not in one(AllocTRES="cpu=1,node=1"), "a site may not account for GPUs"
    assert one(AllocTRES="cpu=1,gres/gpu=0")["gpus"] == 0


def test_memory_is_bytes_in_every_spelling() -> None:
    assert one()["alloc_tres"]["mem"] == 64 << 30
    assert one(ReqTRES="cpu=8,node=2", ReqMem="4Gn", NNodes="2")["req_tres"]["mem"] == 8 << 30
    assert one(ReqTRES="cpu=8,node=2", ReqMem="2000Mc", ReqCPUS="8")["req_tres"]["mem"] == 16000 << 20
    assert one(ReqTRES="cpu=8", ReqMem="4000")["req_tres"]["mem"] == 4000 << 20
    assert "mem" not in one(ReqTRES="cpu=8", ReqMem="4Gn")["req_tres"], "on how many nodes is not told"
    assert "mem" not in one(ReqTRES="cpu=8", ReqMem="18446744073709551616.00M")["req_tres"], "as a real Slurm said"
    assert "memory" in fault(ReqTRES="cpu=8", ReqMem="4.5.6G")


def test_a_mark_for_not_known_is_no_amount() -> None:
    record = one(AllocTRES="cpu=1,energy=18446744073709551614,gres/gpu=1")
    assert record["alloc_tres"] == {"cpu": 1, "gres/gpu": 1}


@pytest.mark.parametrize(
    ("raw", "state", "by"),
    [
        ("CANCELLED by 1001", "CANCELLED", "1001"),
        ("CANCELLED by alice", "CANCELLED", "alice"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY", None),
        ("RQ", "REQUEUED", None),
        ("NODE_FAIL", "NODE_FAIL", None),
        ("FROBNICATED", "UNKNOWN", None),
    ],
)
def test_states_in_every_spelling(raw: str, state: str, by: str | None) -> None:
    record = one(State=raw)
    assert (record["state"], record["state_raw"], record.get("cancelled_by")) == (state, raw, by)


def test_a_run_that_was_resized_has_a_record_for_each_size() -> None:
    head = "JobIDRaw|JobID|State|Submit|Start|End|NodeList|AllocTRES"
    rows = [
        "7|7|RESIZING|2026-03-01T09:00:00|2026-03-01T10:00:00|2026-03-01T11:00:00|n[1-4]|gres/gpu=32",
        "7|7|RESIZING|2026-03-01T11:00:00|2026-03-01T10:00:00|2026-03-01T11:30:00|n[1-2]|gres/gpu=16",
        "7|7|COMPLETED|2026-03-01T11:30:00|2026-03-01T10:00:00|2026-03-01T12:00:00|n1|gres/gpu=8",
    ]
    found = parse_sacct_text("\n".join([head, *rows]), zone=UTC).records
    assert [(one["run"], one["state"], one["gpus"]) for one in found] == [
        ("1772359200r1772362800", "RESIZING", 32),
        ("1772359200r1772364600", "RESIZING", 16),
        ("1772359200", "COMPLETED", 8),
    ]


def test_each_part_of_a_resized_run_counts_for_its_own_time_alone() -> None:
    head = "JobIDRaw|JobID|State|Submit|Start|End|Elapsed|Suspended|AllocTRES"
    rows = [
        "7|7|RESIZING|2026-03-01T09:00:00|2026-03-01T10:00:00|2026-03-01T11:00:00|01:00:00|00:00:00|gres/gpu=32",
        "7|7|RESIZING|2026-03-01T11:00:00|2026-03-01T10:00:00|2026-03-01T11:30:00|01:30:00|00:00:00|gres/gpu=16",
        "7|7|COMPLETED|2026-03-01T11:30:00|2026-03-01T10:00:00|2026-03-01T12:00:00|02:00:00|00:00:00|gres/gpu=8",
        "8|8|COMPLETED|2026-03-01T11:30:00|2026-03-01T10:00:00|2026-03-01T12:00:00|01:50:00|00:10:00|gres/gpu=8",
        "9|9|COMPLETED|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T12:00:00|02:00:00|00:00:00|gres/gpu=8",
    ]
    found = parse_sacct_text("\n".join([head, *rows]), zone=UTC).records
    begins = [one.get("part_start_ts") for one in found]
    assert begins == [None, 1772362800 * 10**9, 1772364600 * 10**9, 1772364600 * 10**9, None]
    assert [one.get("elapsed_s") for one in found] == [3600, 1800, 1800, None, 7200], (
        "how it was suspended is not known"
    )
    assert sum(one["gpus"] * one["elapsed_s"] for one in found[:3]) == (32 + 8 + 4) * 3600


def test_a_run_that_never_started_is_named_by_its_submission() -> None:
    record = one(State="CANCELLED by 0", Start="None", End="2026-03-01T10:01:00", AllocTRES="")
    assert record["run"] == "s1772359200"
    assert not {"start_ts", "gpus", "nodes", "wait_s"} & record.keys()
    assert "start" in fault(Start="Unknown", Submit="Unknown")


def test_ids_of_arrays_and_het_jobs() -> None:
    task = one(JobIDRaw="130", JobID="123_4")
    assert (task["job_id"], task["array_job_id"], task["array_task_id"]) == ("130", "123", "4")
    waiting = one(JobIDRaw="123", JobID="123_[5-9,11%2]", State="PENDING", Start="Unknown", End="Unknown")
    assert (waiting["array_task_id"], waiting["job_id"]) == ("5-9,11%2", "123")
    part = one(JobIDRaw="201", JobID="200+1")
    assert (part["job_id"], part["het_job_id"], part["het_offset"]) == ("201", "200", 1)


def test_steps_follow_their_job() -> None:
    steps = ("12.batch", "12.extern", "12.0", "12.1+0", "12.interactive")
    text = answer(ROW, *(ROW | {"JobIDRaw": step, "JobID": step, "MaxRSS": "3196K"} for step in steps))
    found = parse_sacct_text(text)
    assert not found.unreadable
    assert [s["step"] for s in found.records[0]["steps"]] == ["batch", "extern", "0", "1+0", "interactive"]
    assert found.records[0]["steps"][0]["max_rss_bytes"] == 3196 << 10


def test_a_step_without_its_job_is_named_and_none_of_another_job() -> None:
    found = parse_sacct_text(answer(ROW, ROW | {"JobIDRaw": "99.0", "JobID": "99.0"}))
    assert "steps" not in found.records[0]
    assert found.unreadable[0].name == "99"


def test_a_job_with_very_many_steps_still_fits_a_message() -> None:
    rows = [ROW | {"JobIDRaw": f"12.{n}", "JobID": f"12.{n}"} for n in range(MAX_STEPS + 7)]
    record = parse_sacct_text(answer(ROW, *rows)).records[0]
    assert (len(record["steps"]), record["steps_left_out"]) == (MAX_STEPS, 7)


@pytest.mark.parametrize("trailing", [False, True])
def test_names_with_delimiters_and_newlines_stay_whole(*, trailing: bool) -> None:
    name = "a|b\n|c\n13|13|x\n\nend"
    text = answer(ROW | {"JobName": name}, ROW | {"JobIDRaw": "13", "JobID": "13"}, trailing=trailing)
    found = parse_sacct_text(text)
    assert [(r["job_id"], r["name"]) for r in found.records] == [("12", name), ("13", "train")]


def test_two_free_fields_with_the_delimiter_are_cut_where_the_fields_between_have_their_form() -> None:
    rows = [{"JobID": "12", "JobName": "a|b", "State": "FAILED", "Submit": "2026-03-01T10:00:00", "Comment": "x|y"}]
    record = parse_sacct_text(answer(*rows)).records[0]
    assert (record["name"], record["state"], record["comment"]) == ("a|b", "FAILED", "x|y")


def test_a_row_that_can_be_read_in_two_ways_is_not_guessed() -> None:
    rows = [{"JobID": "12", "State": "FAILED", "Submit": "2026-03-01T10:00:00", "JobName": "a|b", "Comment": "x"}]
    found = parse_sacct_text(answer(*rows))
    assert not found.records
    assert (found.unreadable[0].name, "several ways" in found.unreadable[0].why) == ("12", True)


def test_a_forged_row_in_a_name_is_no_row() -> None:
    delimiter = "\x1f4f2a"
    forged = "x\n" + "|".join(ROW.values()) + "\n" + "\x1f".join(ROW.values())
    found = parse_sacct_text(answer(ROW | {"JobName": forged}, delimiter=delimiter), delimiter=delimiter)
    assert [record["name"] for record in found.records] == [forged]


def test_bytes_that_are_no_text_lose_no_row() -> None:
    data = answer(ROW | {"JobName": "caf@"}).encode().replace(b"@", b"\xe9\xff")
    assert parse_sacct_text(data).records[0]["name"] == "caf\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("text", ["", "\n", "sacct: error: Problem talking to the database\n", "{}"])
def test_an_answer_without_a_header_is_none(text: str) -> None:
    with pytest.raises(ParseError):
        parse_sacct_text(text)


def test_an_answer_with_only_a_header_is_empty() -> None:
    assert parse_sacct_text(FIELDS + "\n") == Records((), ())


@pytest.mark.parametrize(
    "changes", [{"State": ""}, {"Start": "yesterday"}, {"ExitCode": "zero"}, {"AllocTRES": "cpu"}, {"JobIDRaw": "x"}]
)
def test_a_row_with_a_value_that_is_none_is_named(changes: dict[str, str]) -> None:
    assert fault(**changes)


def test_times_of_a_saved_text_are_in_the_zone_that_is_said() -> None:
    found = parse_sacct_text(answer(ROW), zone=ZoneInfo("Europe/Berlin"))
    assert found.records[0]["start_ts"] == (1772359205 - 3600) * NS


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4), st.booleans())
def test_any_name_comes_back_as_it_was_or_its_row_is_named(names: list[str], trailing: bool) -> None:
    delimiter = "\x1f9c01"
    rows = [ROW | {"JobIDRaw": str(n), "JobID": str(n), "JobName": name} for n, name in enumerate(names, start=1)]
    found = split_sacct(answer(*rows, delimiter=delimiter, trailing=trailing), delimiter=delimiter)
    assert len(found.rows) == len(names), found.unreadable
    if trailing:
        assert [row["JobName"] for row in found.rows] == names


@given(st.text(max_size=300))
def test_whatever_is_fed_is_read_or_refused(text: str) -> None:
    try:
        found = parse_sacct_text(f"{FIELDS}\n{text}", zone=UTC)
    except ParseError:
        return
    assert all(record["job_id"] and record["run"] and record["state"] for record in found.records)


def test_the_question_has_utc_times_and_every_state_with_an_end() -> None:
    argv = ended_argv(Window(1793491200, 1793494800), ("JobIDRaw", "JobID"), "\x1fab12")
    assert {"--starttime=2026-11-01T00:00:00", "--endtime=2026-11-01T01:00:00"} <= set(argv)
    states = next(word for word in argv if word.startswith("--state=")).partition("=")[2].split(",")
    assert {"CD", "F", "TO", "NF", "CA", "PR", "OOM", "BF", "DL", "RQ"} <= set(states)


def test_a_run_belongs_to_the_window_that_it_ended_in_and_to_no_other() -> None:
    records = Records(({"end_ts": 100 * NS}, {"end_ts": 199 * NS}, {"end_ts": 200 * NS}, {"state": "RUNNING"}))
    first, second = (ended_in(records, Window(at, at + 100)).records for at in (100, 200))
    assert [r["end_ts"] // NS for r in (*first, *second)] == [100, 199, 200]


def test_fields_that_people_write_are_asked_for_last() -> None:
    order = order_of("Account JobName\nState JobID Comment Submit Start JobIDRaw WorkDir End")
    assert set(order[:2]) == {"JobID", "JobIDRaw"}
    assert set(order[-3:]) == {"JobName", "Comment", "WorkDir"}
    with pytest.raises(ParseError):
        order_of("sacct: error: something")
