"""Which jobs are requeued, and how their end is known."""

from dataclasses import replace

import pytest

from heeler.drain.requeue import HeldJob, choose, comment_for, outcome

JOB = HeldJob("7", "RUNNING", batch=True, requeueable=True, restarts=0, user="ana")


def test_a_running_batch_job_that_may_be_requeued_and_is_named_is_chosen() -> None:
    assert choose([JOB, replace(JOB, id="8")], ["7", "7"]) == ([JOB], {})


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (replace(JOB, batch=False), "no batch job"),
        (replace(JOB, batch=None), "not known"),
        (replace(JOB, requeueable=False), "not be requeued"),
        (replace(JOB, requeueable=None), "not known"),
        (replace(JOB, restarts=None), "not known"),
        (replace(JOB, state="COMPLETED"), "COMPLETED"),
        (replace(JOB, state="SUSPENDED"), "SUSPENDED"),
        (replace(JOB, het_job_id="6"), "heterogeneous"),
    ],
)
def test_any_other_job_is_left_alone_with_the_reason(job: HeldJob, words: str) -> None:
    chosen, left = choose([job], ["7"])
    assert chosen == []
    assert words in left["7"]


def test_a_job_that_is_no_longer_on_the_node_is_left_alone() -> None:
    assert choose([JOB], ["9"]) == ([], {"9": "it is not on the node"})


def test_the_owner_is_told_behind_what_stands_there() -> None:
    assert comment_for(JOB, "n001", "hang-1", "hang").startswith("heeler: requeued off n001 (finding hang-1): hang")
    theirs = replace(JOB, admin_comment="project x")
    assert comment_for(theirs, "n001", "hang-1", "hang").startswith("project x; heeler: requeued off n001")
    assert len(comment_for(replace(JOB, admin_comment="y" * 999), "n001", "h", "hang")) <= 400


def test_a_job_was_requeued_where_slurm_counts_one_more_restart() -> None:
    before = {"1": 0, "2": 3, "3": 0, "4": 0, "5": 0}
    now = {
        "1": replace(JOB, id="1", restarts=1),
        "2": replace(JOB, id="2", restarts=3),
        "3": None,
        "5": replace(JOB, restarts=None),
    }
    found = outcome(before, now)
    assert found.requeued == ("1",)
    assert found.not_requeued == ("2", "3")
    assert found.unknown == ("4", "5")
    assert found.words == "requeued: 1; not requeued: 2, 3; not known whether requeued: 4, 5"
