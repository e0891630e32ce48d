"""slurmrestd as the way to Slurm: a fake of a newer one, and the real one here, which changes nodes from 23.02 on."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakerest import FakeRest
from slurmfixture import accounted, accounting_cluster
from slurmsandbox import Sandbox, version

from heeler.bus import ConfigError
from heeler.drain.backend import LeaseTooShortError, NotOneNodeError, NotSupportedError
from heeler.drain.ownership import Mark, is_ours
from heeler.drain.program import backend_of
from heeler.drain.requeue import HeldJob
from heeler.drain.scontrol import Scontrol
from heeler.drain.settings import DrainSettings
from heeler.drain.slurmrest import SlurmRest
from heeler.engine.config import build
from heeler.slurm.errors import SlurmError

__all__ = ["accounted", "accounting_cluster"]
REASON = "heeler:xid:f-1 GPU 3 is gone"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeRest]:
    found = FakeRest(tmp_path_factory.mktemp("r") / "s")
    yield found
    found.close()


@pytest.fixture
def rest(server: FakeRest) -> SlurmRest:
    return SlurmRest(server.url, timeout_s=5.0)


def soon() -> float:
    return time.monotonic() + 60.0


async def test_a_node_is_read_drained_and_given_back(server: FakeRest, rest: SlurmRest) -> None:
    assert (await rest.show("n001", 7)).draining is False
    assert (await rest.drain("n001", REASON, soon())).problem == ""
    view = await rest.show("n001", 7)
    mark = Mark.read(view)
    assert mark is not None
    assert (mark.reason, mark.user) == (REASON, "heeler")
    assert is_ours(view, mark)
    assert (await rest.undrain("n001", soon())).problem == ""
    assert (await rest.show("n001", 7)).draining is False
    assert server.posts == [
        ("/slurm/v0.0.40/node/n001", {"state": ["DRAIN"], "reason": REASON}),
        ("/slurm/v0.0.40/node/n001", {"state": ["UNDRAIN"]}),
    ]


@pytest.mark.parametrize(("how", "words"), [("denied", "denied"), ("complains", "denied")])
async def test_a_refusal_is_told_in_slurms_words(server: FakeRest, rest: SlurmRest, how: str, words: str) -> None:
    server.how = how
    assert words in (await rest.drain("n001", REASON, soon())).problem


async def test_a_change_that_is_not_answered_ends_at_its_time(server: FakeRest) -> None:
    server.how = "silent"
    rest = SlurmRest(server.url, timeout_s=1.5)
    began = time.monotonic()
    assert (await rest.drain("n001", REASON, soon())).problem != ""
    assert time.monotonic() - began < 15.0


async def test_a_lease_that_is_too_short_sends_nothing(server: FakeRest, rest: SlurmRest) -> None:
    with pytest.raises(LeaseTooShortError):
        await rest.drain("n001", REASON, time.monotonic() + 1.0)
    assert server.posts == []


async def test_an_old_slurmrestd_and_a_name_that_is_none_are_refused_before_anything_is_sent(
    server: FakeRest, rest: SlurmRest
) -> None:
    with pytest.raises(NotOneNodeError):
        await rest.drain("ALL", REASON, soon())
    with pytest.raises(NotOneNodeError):
        await rest.show("n[001-004]", 7)
    server.how = "old"
    with pytest.raises(NotSupportedError, match=r"23\.02"):
        await SlurmRest(server.url, timeout_s=5.0).drain("n001", REASON, soon())
    assert server.posts == []


async def test_jobs_are_not_its_business(rest: SlurmRest) -> None:
    for asked in (rest.jobs_on("n001"), rest.job("7"), rest.requeue(HeldJob("7", "RUNNING"), "x", soon())):
        with pytest.raises(NotSupportedError):
            await asked


async def test_a_server_that_is_away_or_does_not_know_the_node_is_an_error(server: FakeRest, tmp_path: Path) -> None:
    with pytest.raises(SlurmError):
        await SlurmRest(server.url, timeout_s=5.0).show("n999", 7)
    with pytest.raises(SlurmError):
        await SlurmRest(f"unix://{tmp_path}/none", timeout_s=1.0).show("n001", 7)


@pytest.mark.slurm
@pytest.mark.timeout(240)
async def test_a_real_slurmrestd_tells_a_node_and_gives_it_back_or_is_too_old_and_says_so(accounted: Sandbox) -> None:
    rest = SlurmRest(f"unix://{accounted.rest.socket}", timeout_s=10.0)
    accounted.drain("n001", REASON)
    view = await rest.show("n001", 7)
    by_command = await Scontrol.of("/usr/bin/scontrol", str(accounted.conf), 10.0).show("n001", 7)
    assert (view.state, view.flags, view.reason) == (by_command.state, by_command.flags, REASON)
    assert (view.reason_user, view.reason_ts_ns) == (by_command.reason_user, by_command.reason_ts_ns)
    if version(accounted.env) < (23, 2):
        with pytest.raises(NotSupportedError):
            await rest.undrain("n001", soon())
        assert "DRAIN" in accounted.node("n001").state.flags
        return
    assert (await rest.undrain("n001", soon())).problem == ""
    assert "DRAIN" not in accounted.node("n001").state.flags
    assert (await rest.drain("n001", f"{REASON} again", soon())).problem == ""
    mark = Mark.read(await rest.show("n001", 8))
    assert mark is not None
    assert (mark.reason, accounted.node("n001").reason) == (f"{REASON} again", f"{REASON} again")
    accounted.run("scontrol", "update", "nodename=n002", "state=down", "reason=psu")
    await rest.undrain("n002", soon())  # which ends well
    assert accounted.node("n002").state.base == "DOWN"


def test_the_way_to_slurm_is_chosen_by_name(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc")
    tcp = {"backend": "slurmrestd", "rest_url": "https://head:6820", "rest_user": "heeler", "token_file": str(token)}
    assert isinstance(backend_of(build(DrainSettings, tcp, "drain")), SlurmRest)
    for table, words in (
        ({"backend": "slurmd"}, "backend: 'slurmd'"),
        ({"backend": "slurmrestd"}, "rest_url"),
        ({"rest_url": "unix:///x"}, "rest_url"),
        ({"backend": "slurmrestd", "rest_url": "http://head"}, "rest_user and token_file"),
        ({"backend": "slurmrestd", "rest_url": "head:6820"}, "rest_url: 'head:6820'"),
    ):
        with pytest.raises(ConfigError, match=words):
            build(DrainSettings, table, "drain")
