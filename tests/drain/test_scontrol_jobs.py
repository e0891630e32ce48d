"""A job that can't be read is not one that is over: nothing is decided on the others alone."""

from pathlib import Path

import pytest
from fakeslurm import FakeSlurm

from heeler.drain import scontrol as module
from heeler.drain.scontrol import Scontrol
from heeler.slurm.errors import SlurmError
from heeler.slurm.jobstext import FIELDS, Marks

MARKS = Marks("|#", "|.")


def row(job_id: str, **more: str) -> str:
    usual = {"job_id": job_id, "job_ref": job_id, "state": "RUNNING", "nodes": "n1", "node_count": "1"}
    usual |= {"submit_ts": "1796187000", "start_ts": "1796187100", "elapsed": "2:01", "limit": "1:00:00"}
    values = {**dict.fromkeys(FIELDS.values(), "(null)"), **usual, **more}
    return MARKS.field.join(values.values()) + f"{MARKS.row}\n"


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setattr(module, "new_marks", lambda: MARKS)
    return FakeSlurm(tmp_path / "bin")


async def test_jobs_are_read_all_or_not_at_all(said: FakeSlurm) -> None:
    slurm = Scontrol.of(str(said.folder / "scontrol"), "", 5.0)
    said.says("squeue", row("7") + row("8"))
    assert [job.id for job in await slurm.jobs_on("n1")] == ["7", "8"]
    said.says("squeue", row("7") + row("8", restarts="many"))
    with pytest.raises(SlurmError, match="job 8 can't be read"):
        await slurm.jobs_on("n1")
    with pytest.raises(SlurmError, match="job 8 can't be read"):
        await slurm.job("7")
