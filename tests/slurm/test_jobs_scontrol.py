"""Jobs of `scontrol show job`: the same as JSON has of them, and no word of a user is taken for one of Slurm's."""

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest
from slurmdata import recorded

from heeler.slurm.errors import ParseError
from heeler.slurm.jobs import AnyJob, Gpus, Job
from heeler.slurm.jobsjson import parse_jobs_json
from heeler.slurm.jobsscontrol import parse_jobs_scontrol

UTC = ZoneInfo("UTC")
LINES = """JobId=7 JobName={name}
   UserId=ada(1001) GroupId=lab(100) MCS_label=N/A
   Priority=1 Nice=0 Account=lab QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0
   SubmitTime=2026-12-02T04:52:50 EligibleTime=2026-12-02T04:52:50
   StartTime=2026-12-02T04:52:52 EndTime=Unknown Deadline=N/A
   Partition=train,debug AllocNode:Sid=login:12
   NodeList=n[001-002]
   AllocTRES=cpu=2,node=2,gres/gpu=3
   JOB_GRES=gpu:h100:3
     Nodes=n001 CPU_IDs=0 Mem=0 GRES=gpu:h100:2(IDX:0,4)
     Nodes=n002 CPU_IDs=0 Mem=0 GRES=gpu:h100:1(IDX:7)
   OverSubscribe=NO Contiguous=0 Licenses=(null) Network=(null)
   Command={command}
   WorkDir=/home/ada
   Comment={comment}
"""


def entry(name: str = "train", command: str = "/home/ada/run.sh", comment: str = "x", *, oneliner: bool = False) -> str:
    text = LINES.format(name=name, command=command, comment=comment)
    return " ".join(line.strip() for line in text.splitlines()) + "\n" if oneliner else text


def as_json_has_it(job: AnyJob, said: AnyJob) -> AnyJob:
    """Return what JSON says, with what it does not tell taken from the text."""
    if isinstance(job, Job) and isinstance(said, Job):
        # 22.05 has no word of sharing there, and other ones for a job that was requeued.
        return replace(said, exclusive=job.exclusive, batch=job.batch)
    return said


@pytest.mark.parametrize("version", ["22.05", "24.11"])
@pytest.mark.parametrize("form", ["scontrol_show_job_d", "scontrol_o_show_job_d"])
def test_recorded_jobs_are_those_of_json(version: str, form: str) -> None:
    found = parse_jobs_scontrol(recorded(f"{version}/{form}.txt"), UTC)
    assert found.unreadable == ()
    of_json = {job.id: job for job in parse_jobs_json(recorded(f"{version}/squeue_json.json")).jobs}
    both = [job for job in found.jobs if job.id in of_json]
    assert len(found.jobs) == 14
    assert len(both) >= 8
    assert both == [as_json_has_it(job, of_json[job.id]) for job in both]


@pytest.mark.parametrize("oneliner", [False, True])
def test_gpus_are_those_of_each_node(oneliner: bool) -> None:
    (job,) = parse_jobs_scontrol(entry(oneliner=oneliner), UTC).jobs
    assert isinstance(job, Job)
    assert job.gpus == Gpus("slurm_index", {"n001": (0, 4), "n002": (7,)}, None)
    assert (job.user, job.partition, job.exclusive, job.restarts, job.end_ts_ns) == (
        "ada",
        "train,debug",
        True,
        2,
        None,
    )


def test_without_details_only_the_counts_are_known() -> None:
    text = "\n".join(line for line in entry().splitlines() if "GRES=" not in line)
    (job,) = parse_jobs_scontrol(text, UTC).jobs
    assert job.gpus.by_node is None
    assert job.gpus.source == "unknown"


@pytest.mark.parametrize(
    "words",
    [
        "a UserId=root(0) b",
        "a=b JobState=FAILED NodeList=n009",
        "Partition=x Nodes=n001 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-7)",
        "JobId=9 JobName=other",
        "x  Command=y",
    ],
)
@pytest.mark.parametrize("where", ["name", "command", "comment"])
@pytest.mark.parametrize("oneliner", [False, True])
def test_what_users_write_is_no_key_of_slurm(words: str, where: str, oneliner: bool) -> None:
    plain = parse_jobs_scontrol(entry(), UTC).jobs[0]
    assert isinstance(plain, Job)
    (job,) = parse_jobs_scontrol(entry(**{where: words}, oneliner=oneliner), UTC).jobs
    assert job == replace(plain, name=words) if where == "name" else job == plain


def test_a_name_whose_end_cannot_be_told_makes_the_job_unreadable() -> None:
    name = "a UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 JobState=FAILED"
    found = parse_jobs_scontrol(entry(name, oneliner=True) + entry().replace("JobId=7", "JobId=8"), UTC)
    assert [(one.name, "can't be told" in one.why) for one in found.unreadable] == [("7", True)]
    assert [job.id for job in found.jobs] == ["8"]
    (job,) = parse_jobs_scontrol(entry(name), UTC).jobs  # a line of its own ends it
    assert (job.state.name, getattr(job, "name", None)) == ("RUNNING", name)


@pytest.mark.parametrize("key", ["JobState", "NodeList", "SubmitTime", "JobName"])
def test_half_a_job_is_none(key: str) -> None:
    found = parse_jobs_scontrol(entry().replace(f"{key}=", "Nothing=") + entry().replace("JobId=7", "JobId=8"), UTC)
    assert [one.name for one in found.unreadable] == ["7"]
    assert [job.id for job in found.jobs] == ["8"]


def test_an_answer_that_is_cut_off_loses_its_last_job_only() -> None:
    text = entry() + entry().replace("JobId=7", "JobId=8")[:300]
    found = parse_jobs_scontrol(text, UTC)
    assert ([job.id for job in found.jobs], [one.name for one in found.unreadable]) == (["7"], ["8"])


def test_no_jobs_is_an_answer_and_other_words_are_none() -> None:
    assert parse_jobs_scontrol("No jobs in the system\n", UTC).jobs == ()
    for text in ("", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"):
        with pytest.raises(ParseError):
            parse_jobs_scontrol(text, UTC)
