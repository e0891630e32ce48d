"""Asking Slurm: a complete answer or an outage, whatever the programs do."""

from pathlib import Path
from typing import Any

import pytest
from fakeslurm import FakeSlurm
from slurmdata import answer, job_row, node_row, recorded

from heeler.slurm.clients import Clients
from heeler.slurm.jobs import JobsAnswer
from heeler.slurm.nodes import NodesAnswer
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.sources import Outage, SlurmSource

UNABLE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
NO_OPTION = "scontrol: unrecognized option '--json'\nTry \"scontrol --help\" for more information"


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "bin")


def asking(fake: FakeSlurm) -> SlurmSource:
    return SlurmSource(Clients(SlurmSettings(bin_dir=str(fake.folder), timeout_s=20.0, controller_zone="UTC")))


@pytest.fixture
def clients(fake: FakeSlurm) -> SlurmSource:
    return asking(fake)


async def test_all_jobs_of_all_states_are_asked_for(fake: FakeSlurm, clients: SlurmSource) -> None:
    fake.says("squeue", recorded("24.11/squeue_json.json"))
    polled = await clients.jobs()
    assert isinstance(polled.answer, JobsAnswer)
    assert len(polled.answer.jobs) == 10
    assert (polled.source, polled.duration_ns > 0) == ("squeue --json", True)
    assert fake.calls == ["squeue --all --states=all --json"]


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ({"out": "", "err": UNABLE, "rc": 1}, "Unable to contact"),
        ({"out": '{"jobs": []}', "err": UNABLE, "rc": 1}, "exit status 1"),
        ({"out": ""}, "empty answer"),
        ({"out": "<html><body>502 Bad Gateway</body></html>"}, "no JSON object"),
        ({"out": {"jobs": [], "errors": [{"error": "db down"}]}}, "db down"),
        ({"out": '{"jobs": [{"job_id": 1,'}, "not JSON"),
        ({"out": {"errors": []}}, "no list of jobs"),
        ({"out": "", "after": "kill -9 $$"}, "exit status -9"),
    ],
)
async def test_what_is_no_answer_is_an_outage(
    fake: FakeSlurm, clients: SlurmSource, says: dict[str, Any], why: str
) -> None:
    fake.says("squeue", **says)
    polled = await clients.jobs()
    assert isinstance(polled.answer, Outage)
    assert why in polled.answer.why


async def test_a_missing_program_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for polled in (await SlurmSource(Clients()).jobs(), await SlurmSource(Clients()).nodes()):
        assert isinstance(polled.answer, Outage)
        assert "not found" in polled.answer.why


async def test_a_program_that_hangs_is_an_outage_and_is_gone(fake: FakeSlurm) -> None:
    fake.says("squeue", "", after="sleep 300")
    clients = SlurmSource(Clients(SlurmSettings(bin_dir=str(fake.folder), timeout_s=0.5)))
    polled = await clients.jobs()
    assert isinstance(polled.answer, Outage)
    assert "no answer in 0.5 s" in polled.answer.why
    (pid,) = fake.pids
    assert not Path(f"/proc/{pid}").exists()


async def test_warnings_before_the_answer_lose_no_job(fake: FakeSlurm, clients: SlurmSource) -> None:
    import json

    fake.says(
        "squeue", "warning: conf differs\n" + json.dumps(answer(jobs=[job_row()])), err="squeue: error: odd\n" * 5000
    )
    polled = await clients.jobs()
    assert isinstance(polled.answer, JobsAnswer)
    assert [job.id for job in polled.answer.jobs] == ["481"]


async def test_a_new_slurm_is_asked_for_nodes_by_scontrol(fake: FakeSlurm, clients: SlurmSource) -> None:
    fake.says("scontrol", recorded("24.11/scontrol_show_nodes_json.json"))
    polled = await clients.nodes()
    assert isinstance(polled.answer, NodesAnswer)
    assert len(polled.answer.nodes) == 12
    assert fake.calls == ["scontrol --all show nodes --json"]


async def test_an_old_slurm_is_asked_by_sinfo_and_that_is_remembered(fake: FakeSlurm, clients: SlurmSource) -> None:
    fake.says("scontrol", "", err=NO_OPTION, rc=1)
    fake.says("sinfo", recorded("22.05/sinfo_json.json"))
    for _ in range(2):
        polled = await clients.nodes()
        assert isinstance(polled.answer, NodesAnswer)
        assert (len(polled.answer.nodes), polled.source) == (12, "sinfo --json")
    assert [call.split()[0] for call in fake.calls] == ["scontrol", "sinfo", "sinfo"]


async def test_a_slurm_without_nodes_in_json_is_asked_for_text(fake: FakeSlurm, clients: SlurmSource) -> None:
    text = recorded("24.11/scontrol_o_show_node.txt")
    (fake.folder / "text").write_text(text)
    fake.says("sinfo", recorded("24.11/sinfo_json.json"))
    fake.says(
        "scontrol",
        "",
        after=f'case "$*" in *json*) echo "unrecognized option" >&2; exit 1;; esac; cat {fake.folder}/text',
    )
    polled = await clients.nodes()
    assert isinstance(polled.answer, NodesAnswer)
    assert len(polled.answer.nodes) == 12
    assert fake.calls[-1] == "scontrol --all --details --oneliner show nodes"
    before = len(fake.calls)
    await clients.nodes()
    assert len(fake.calls) == before + 1


async def test_a_controller_that_is_away_is_asked_once(fake: FakeSlurm, clients: SlurmSource) -> None:
    for program in ("scontrol", "sinfo"):
        fake.says(program, "", err=UNABLE, rc=1)
    polled = await clients.nodes()
    assert isinstance(polled.answer, Outage)
    assert len(fake.calls) == 1


async def test_a_cluster_without_any_node_is_not_believed(fake: FakeSlurm, clients: SlurmSource) -> None:
    fake.says("scontrol", answer(nodes=[]))
    assert isinstance((await clients.nodes()).answer, Outage)
    fake.says("scontrol", answer(nodes=[node_row()]))
    assert isinstance((await clients.nodes()).answer, NodesAnswer)
