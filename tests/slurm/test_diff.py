"""What an answer changes: the pure comparison behind the feed."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from slurmdata import answer, job_row, node_row

from heeler.bus import encode
from heeler.slurm import feed
from heeler.slurm.feed import Change, Known, diff_jobs, diff_nodes
from heeler.slurm.jobsjson import parse_jobs_json
from heeler.slurm.nodes import parse_nodes_json

NS = 1_000_000_000
T = 2000 * NS


def jobs(known: Known, *rows: Any, at: int = T, **options: Any) -> Change:
    return diff_jobs(known, parse_jobs_json(answer(jobs=list(rows))), cluster="north", now_ns=at, **options)


def nodes(known: Known, *rows: Any, at: int = T, **options: Any) -> Change:
    return diff_nodes(known, parse_nodes_json(answer(nodes=list(rows))), cluster="north", now_ns=at, **options)


def told(change: Change) -> list[tuple[str, str, str]]:
    return [
        (p.message.get("job_id") or p.message["node"], p.message["event"], p.message["state"])
        for p in change.publications
    ]


def test_a_job_that_runs_has_started() -> None:
    change = jobs({}, job_row())
    assert told(change) == [("481", "started", "RUNNING")]
    (publication,) = change.publications
    assert publication.subject == "heeler.v1.north.slurm.job.481"
    assert publication.message["nodes"] == ["gn1", "gn2"]
    assert publication.message["gpus"] == {"gn1": list(range(8)), "gn2": list(range(8))}
    assert publication.message["ts"] == T
    assert publication.id.startswith(f"JobEvent.north.481.{1010 * NS}.0.started.")


def test_a_job_that_waits_is_no_event() -> None:
    assert told(jobs({}, job_row(state="PENDING", nodes=""))) == []


def test_the_same_answer_again_says_nothing() -> None:
    known = jobs({}, job_row()).known
    assert told(jobs(known, job_row(), at=T + 10 * NS)) == []


def test_a_job_that_is_suspended_has_changed_and_changes_back_under_new_ids() -> None:
    known = jobs({}, job_row()).known
    ids = set()
    for step, state in enumerate(["SUSPENDED", "RUNNING", "SUSPENDED", "RUNNING"], start=1):
        change = jobs(known, job_row(state=state), at=T + step * NS)
        assert told(change) == [("481", "changed", state)]
        ids.add(change.publications[0].id)
        known = change.known
    assert len(ids) == 4, "a twin's id would be dropped by the stream"


def test_a_job_that_shrinks_has_changed() -> None:
    known = jobs({}, job_row()).known
    change = jobs(known, job_row(nodes="gn1", gres_detail=["gpu:h100:8(IDX:0-7)"]), at=T + NS)
    assert [p.message["nodes"] for p in change.publications] == [["gn1"]]


def test_a_job_that_is_over_has_ended_with_its_nodes_and_its_end() -> None:
    known = jobs({}, job_row()).known
    change = jobs(known, job_row(state="FAILED", end_time=1500, gres_detail=[]), at=T + NS)
    assert told(change) == [("481", "ended", "FAILED")]
    message = change.publications[0].message
    assert (message["end_ts"], message["nodes"], message["gpus_source"]) == (1500 * NS, ["gn1", "gn2"], "slurm_index")
    assert told(jobs(change.known, job_row(state="FAILED", end_time=1500), at=T + 2 * NS)) == []
    assert told(jobs(change.known, at=T + 3 * NS)) == []
    assert jobs(change.known, at=T + feed.KEEP_ENDED_NS + NS).known == {}, "what Slurm has forgotten is forgotten"


def test_a_job_that_vanished_has_ended_and_nobody_knows_when() -> None:
    known = jobs({}, job_row(), job_row(500)).known
    change = jobs(known, job_row(500), at=T + NS)
    assert told(change) == [("481", "ended", "UNKNOWN")]
    assert "end_ts" not in change.publications[0].message


def test_a_job_that_completes_holds_its_nodes_till_the_last_epilog() -> None:
    known = jobs({}, job_row()).known
    change = jobs(known, job_row(state="COMPLETING"), at=T + NS)
    assert told(change) == [("481", "changed", "COMPLETING")]
    assert told(jobs(change.known, job_row(state="COMPLETED", end_time=1990), at=T + 2 * NS)) == [
        ("481", "ended", "COMPLETED")
    ]


def test_a_job_that_completes_gives_its_nodes_back_one_by_one_and_has_ended_with_all_of_them() -> None:
    names = ["gn2", "gn9", "gn10"]
    gres = ["gpu:h100:2(IDX:0-1)", "gpu:h100:2(IDX:2-3)", "gpu:h100:2(IDX:4-5)"]
    tres = "cpu=3,node=3,gres/gpu=6"
    known = jobs({}, job_row(nodes="gn[2,9-10]", gres_detail=gres, tres_alloc_str=tres)).known
    gpus = {"gn2": [0, 1], "gn9": [2, 3], "gn10": [4, 5]}
    seen = []
    for step, left in enumerate(["gn[9-10]", "gn10"], start=1):
        row = job_row(state="COMPLETING", nodes=left, gres_detail=[], tres_alloc_str=tres)
        change = jobs(known, row, at=T + step * NS, node_gpus={"gn9": 2, "gn10": 6})
        seen += [p.message for p in change.publications]
        known = change.known
    assert [(m["event"], m["nodes"], m["released"]) for m in seen] == [
        ("changed", ["gn9", "gn10"], ["gn2"]),
        ("changed", ["gn10"], ["gn2", "gn9"]),
    ]
    assert {(m["gpus_source"], m["gpus_per_node"]) for m in seen} == {("slurm_index", 2)}
    assert all(m["gpus"] == gpus for m in seen)
    for state, said in (("COMPLETED", "COMPLETED"), ("PENDING", "REQUEUED")):
        over = job_row(state=state, nodes="", gres_detail=[], end_time=1990)
        (publication,) = jobs(known, over, at=T + 9 * NS).publications
        ended = publication.message
        assert (ended["event"], ended["state"], ended["nodes"], ended["gpus"]) == ("ended", said, names, gpus)
        assert "released" not in ended


def test_what_a_completing_job_has_left_is_no_whole_node_by_its_count_alone() -> None:
    row = job_row(state="COMPLETING", nodes="gn2", gres_detail=[], tres_alloc_str="cpu=2,node=2,gres/gpu=8")
    (publication,) = jobs({}, row, node_gpus={"gn1": 8, "gn2": 8}).publications
    message = publication.message
    assert (message["gpus_source"], message["gpus_per_node"]) == ("unknown", 4), "eight GPUs were on two nodes"


def test_a_requeued_job_is_two_runs() -> None:
    known = jobs({}, job_row(900, nodes="gn1", gres_detail=["gpu:8(IDX:0-7)"])).known
    waiting = jobs(known, job_row(900, state="PENDING", restart_cnt=1, nodes=""), at=T + NS)
    assert told(waiting) == [("900", "ended", "REQUEUED")]
    again = job_row(900, restart_cnt=1, submit_time=1900, start_time=1950, nodes="gn7", gres_detail=["gpu:8(IDX:0-7)"])
    change = jobs(waiting.known, again, at=T + 2 * NS)
    assert told(change) == [("900", "started", "RUNNING")]
    assert change.publications[0].message["nodes"] == ["gn7"]
    assert change.publications[0].message["restarts"] == 1


def test_a_run_that_a_failed_node_ended_is_said_to_have_failed_and_to_be_requeued() -> None:
    known = jobs({}, job_row(900, nodes="gn[1-2]")).known
    waiting = job_row(900, state="PENDING", restart_cnt=1, nodes="", failed_node="gn2")
    change = jobs(known, waiting, at=T + NS)
    (end,) = [p.message for p in change.publications]
    assert (end["state"], end["requeued"], end["failed_node"]) == ("NODE_FAIL", True, "gn2")
    again = job_row(900, restart_cnt=1, submit_time=1900, start_time=1950, nodes="gn[1-2]", failed_node="gn2")
    known = jobs(change.known, again, at=T + 2 * NS).known
    later = job_row(900, state="PENDING", restart_cnt=2, nodes="", failed_node="gn2")
    (end,) = [p.message for p in jobs(known, later, at=T + 3 * NS).publications]
    assert (end["state"], end["requeued"]) == ("REQUEUED", True), "Slurm still names the node of the failure before"
    assert "failed_node" not in end


def test_a_node_that_was_none_of_the_runs_own_did_not_end_it() -> None:
    known = jobs({}, job_row(900, nodes="gn[1-2]")).known
    waiting = job_row(900, state="PENDING", restart_cnt=1, nodes="", failed_node="gn7")
    (end,) = [p.message for p in jobs(known, waiting, at=T + NS).publications]
    assert (end["state"], end["requeued"]) == ("REQUEUED", True)


def test_a_run_whose_end_was_missed_by_a_poll_still_names_the_failed_node() -> None:
    known = jobs({}, job_row(900, nodes="gn[1-2]")).known
    again = job_row(900, restart_cnt=1, submit_time=1900, start_time=1950, nodes="gn[7-8]", failed_node="gn1")
    ended, started = [p.message for p in jobs(known, again, at=T + NS).publications]
    assert (ended["state"], ended["requeued"], ended["failed_node"]) == ("NODE_FAIL", True, "gn1")
    assert (started["event"], started["state"]) == ("started", "RUNNING")


def test_an_id_that_is_given_out_again_was_not_requeued() -> None:
    known = jobs({}, job_row(1, name="old")).known
    ended = jobs(known, job_row(1, name="new", submit_time=1900, start_time=1900), at=T + NS).publications[0].message
    assert "requeued" not in ended


def test_a_requeue_between_two_polls_ends_one_run_and_starts_another_in_order() -> None:
    known = jobs({}, job_row(900)).known
    change = jobs(known, job_row(900, restart_cnt=1, submit_time=1900, start_time=1950, nodes="gn[7-8]"), at=T + NS)
    assert told(change) == [("900", "ended", "REQUEUED"), ("900", "started", "RUNNING")]
    assert [p.message["nodes"] for p in change.publications] == [["gn1", "gn2"], ["gn7", "gn8"]]
    assert len({p.id for p in change.publications}) == 2


def test_an_id_that_slurm_gives_out_again_is_another_run() -> None:
    known = jobs({}, job_row(1, name="old")).known
    change = jobs(known, job_row(1, name="new", submit_time=1900, start_time=1900), at=T + NS)
    assert [(p.message["event"], p.message["name"]) for p in change.publications] == [
        ("ended", "old"),
        ("started", "new"),
    ]


def test_a_job_between_two_polls_is_told_once_and_only_if_recent() -> None:
    short = job_row(state="COMPLETED", start_time=1990, end_time=1995)
    change = jobs({}, short)
    assert told(change) == [("481", "ended", "COMPLETED")]
    assert told(jobs(change.known, short, at=T + 10 * NS)) == []
    assert told(jobs({}, short, at=T + 7200 * NS)) == [], "an old end is no news after a cold start"


def test_of_many_finished_jobs_in_an_answer_only_those_that_hold_resources_live() -> None:
    running = [job_row(n, nodes="gn1", gres_detail=[f"gpu:1(IDX:{n})"]) for n in range(1, 4)]
    ended = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"]
    done = [job_row(100 + n, state=ended[n % 6], end_time=1500, gres_detail=[]) for n in range(200)]
    change = jobs({}, *done[:100], *running, *done[100:], at=T + feed.RECENT_NS)
    assert told(change) == [(str(n), "started", "RUNNING") for n in range(1, 4)]
    assert feed.live_jobs(change.known) == 3


def test_a_job_that_never_ran_has_not_ended() -> None:
    assert told(jobs({}, job_row(state="CANCELLED", nodes="", start_time=0, end_time=1999))) == []


def test_a_state_that_is_not_known_ends_no_job() -> None:
    known = jobs({}, job_row()).known
    change = jobs(known, job_row(state="BOGUS"), at=T + NS)
    assert told(change) == []
    assert change.known == known


def test_a_row_that_cannot_be_read_ends_no_job() -> None:
    known = jobs({}, job_row(), job_row(500)).known
    change = jobs(known, job_row(nodes="gn[1-"), at=T + NS)
    assert told(change) == [("500", "ended", "UNKNOWN")], "481 is in the answer, whatever it says"
    change = jobs(known, {"job_id": "?"}, at=T + NS)
    assert told(change) == [], "it may be any of them"
    assert change.known == known


def test_live_jobs_are_published_again_daily_and_ended_ones_never() -> None:
    known = jobs({}, job_row(), job_row(2)).known
    known = jobs(known, job_row(), at=T + NS).known
    later = T + feed.REPUBLISH_NS + 2 * NS
    change = jobs(known, job_row(), at=later)
    assert told(change) == [("481", "changed", "RUNNING")]
    assert told(jobs(change.known, job_row(), at=later + NS)) == []


def test_a_whole_node_is_known_by_what_nodes_have() -> None:
    row = job_row(gres_detail=[], tres_alloc_str="gres/gpu=16")
    (publication,) = jobs({}, row, node_gpus={"gn1": 8, "gn2": 8}).publications
    assert publication.message["gpus_source"] == "whole_node"
    assert publication.message["gpus_per_node"] == 8


def test_a_node_is_seen_changed_and_gone() -> None:
    seen = nodes({}, node_row())
    assert told(seen) == [("gn1", "seen", "idle")]
    drained = node_row("gn1", "idle", "DRAIN", reason="psu swap", reason_set_by_user="ops", reason_changed_at=1990)
    change = nodes(seen.known, drained, at=T + NS)
    assert told(change) == [("gn1", "changed", "idle")]
    message = change.publications[0].message
    assert (message["reason"], message["reason_user"], message["reason_ts"]) == ("psu swap", "ops", 1990 * NS)
    assert (message["flags"], message["available"]) == (["DRAIN"], False)
    gone = nodes(change.known, node_row("gn2"), at=T + 2 * NS)
    assert told(gone) == [("gn2", "seen", "idle"), ("gn1", "gone", "unknown")]
    back = nodes(gone.known, node_row("gn2"), node_row(), at=T + 3 * NS)
    assert told(back) == [("gn1", "seen", "idle")]
    assert back.publications[0].id != seen.publications[0].id
    assert set(nodes(gone.known, node_row("gn2"), at=T + feed.KEEP_ENDED_NS + 3 * NS).known) == {"gn2"}


def test_a_load_that_moves_is_no_change() -> None:
    known = nodes({}, node_row()).known
    assert told(nodes(known, node_row(cpu_load=99), at=T + NS)) == []


def test_nodes_are_published_again_daily() -> None:
    known = nodes({}, node_row()).known
    assert told(nodes(known, node_row(), at=T + feed.REPUBLISH_NS)) == [("gn1", "changed", "idle")]


def test_a_node_that_goes_to_and_fro_has_new_ids() -> None:
    known: Known = {}
    ids = []
    for step in range(6):
        change = nodes(known, node_row("gn1", ["idle", "mixed"][step % 2]), at=T + step * NS)
        ids += [p.id for p in change.publications]
        known = change.known
    assert len(set(ids)) == 6


def test_a_node_that_cannot_be_read_is_not_gone() -> None:
    known = nodes({}, node_row(), node_row("gn2")).known
    change = nodes(known, node_row(state=""), node_row("gn2"), at=T + NS)
    assert told(change) == []
    assert change.known == known
    assert told(nodes(known, {"name": ""}, at=T + NS)) == []


def test_ids_come_from_the_cause_alone() -> None:
    known = jobs({}, job_row()).known
    one = jobs(known, job_row(state="SUSPENDED"), at=T + NS)
    other = jobs(known, job_row(state="SUSPENDED"), at=T + 99 * NS)
    assert [p.id for p in one.publications] == [p.id for p in other.publications]


RUNS = st.tuples(
    st.sampled_from(["RUNNING", "PENDING", "COMPLETED", "SUSPENDED", "COMPLETING", "CANCELLED", "BOGUS", None]),
    st.integers(0, 2),
)


@given(st.lists(st.lists(RUNS, min_size=3, max_size=3), max_size=12), st.randoms())
def test_whatever_slurm_says_a_run_starts_before_it_ends_and_never_twice(
    polls: list[list[tuple[str | None, int]]], chance: random.Random
) -> None:
    known: Known = {}
    running: dict[str, tuple[Any, ...]] = {}
    ids: list[str] = []
    for step, poll in enumerate(polls):
        rows = [
            job_row(job_id, state=state, restart_cnt=restarts, start_time=1000 + restarts, end_time=1500)
            for job_id, (state, restarts) in enumerate(poll, start=1)
            if state is not None
        ]
        chance.shuffle(rows)
        change = jobs(known, *rows, at=T + step * 10 * NS)
        assert told(jobs(change.known, *rows, at=T + step * 10 * NS + NS)) == [], "the same answer again"
        for publication in change.publications:
            message = publication.message
            encode("JobEvent", message)
            ids.append(publication.id)
            run = (message["restarts"], message["start_ts"])
            if message["event"] == "started":
                assert message["job_id"] not in running
                running[message["job_id"]] = run
            elif message["event"] == "changed":
                assert running[message["job_id"]] == run
            else:
                assert running.pop(message["job_id"], run) == run
        assert feed.live_jobs(change.known) == len(running)
        known = change.known
    assert len(ids) == len(set(ids))
