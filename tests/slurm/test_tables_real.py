"""Tables of a real Slurm: every collector, over every way that it has, with accounting; its outages and refusals."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from slurmsandbox import Sandbox
from waiting import until

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
from heeler.slurm.clients import Clients
from heeler.slurm.collect import Table
from heeler.slurm.errors import CommandFailedError, SlurmError
from heeler.slurm.settings import SlurmSettings

MODULES = (
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
OF_CONTROLLER = (config, licenses, partitions, priorities, reservations, sched, shares, topology)
OF_DATABASE = (associations, qos, runaway, users)
Collect = Callable[[Clients], Awaitable[Table]]
WITH_REST = (associations, licenses, partitions, qos, reservations, sched, users)


@pytest.fixture
def clients(accounted: Sandbox) -> Clients:
    return Clients(SlurmSettings(conf=str(accounted.conf), timeout_s=30.0, accounting_timeout_s=30.0))


@pytest.fixture(scope="module")
def people(accounting_cluster: Sandbox) -> Iterator[None]:
    """Accounts, users and QOS with limits; taken away after the tests of this file."""
    made = accounting_cluster.accounting
    made.add_qos("high", "priority=100", "maxtresperuser=gres/gpu=4,mem=100G", "flags=DenyOnLimit,NoReserve")
    made.add_qos("low", "maxwall=1-12", "grptresmins=cpu=7", "preempt=normal", "usagefactor=0.25")
    made.add_account("lab", "fairshare=10", "grptres=gres/gpu=16", "maxjobs=3")
    made.add_account("sub", parent="lab")
    made.add_user("alice", "lab", "adminlevel=operator", "qos=high,normal", "defaultqos=high")
    made.add_user("alice", "sub", "partition=debug", "maxwall=1:00:00")
    made.add_user("bob", "sub", "fairshare=parent")
    made.manage("add", "coordinator", "account=lab", "names=alice")
    yield
    for name in ("alice", "bob"):
        made.manage("delete", "user", name)
    for name in ("sub", "lab"):
        made.manage("delete", "account", name)
    for name in ("high", "low"):
        made.manage("delete", "qos", name)


@pytest.fixture
def lab(people: None, accounted: Sandbox) -> Iterator[Sandbox]:
    """The cluster with these, and a reservation."""
    accounted.run("scontrol", "create", "reservation", "reservationname=m1", "starttime=now+1hour", "duration=60",
                  "nodes=n001", "users=root", "flags=maint")  # fmt: skip
    yield accounted
    accounted.run("scontrol", "delete", "reservation=m1")


async def rows(collect: Collect, clients: Clients, name: str) -> list[dict[str, Any]]:
    table = await collect(clients)
    check_columns(TABLES[name], table.columns, table.rows)
    assert table.unreadable == ()
    assert table.source
    return [dict(zip(table.columns, values, strict=True)) for values in zip(*table.columns.values(), strict=True)]


async def test_each_table_is_there(lab: Sandbox, clients: Clients) -> None:
    jobs = [lab.submit("sleep 60", "--nodes=2", "--gres=gpu:8", "--exclusive") for _ in range(2)]
    lab.wait_job(jobs[0], "RUNNING", "PENDING")
    empty = (licenses, topology, runaway)  # this cluster has none
    for module in MODULES:
        found = await rows(module.collect, clients, module.NAME)
        assert (len(found) == 0) == (module in empty), module.NAME


async def test_slurmrestd_tells_the_same_as_the_commands(lab: Sandbox, clients: Clients) -> None:
    url = f"unix://{lab.rest.socket}"
    over_rest = Clients(SlurmSettings(conf=str(lab.conf), source="rest", rest_url=url))
    for module in WITH_REST:
        by_text = await rows(module.collect, clients, module.NAME)
        by_rest = await rows(module.collect, over_rest, module.NAME)
        assert over_rest.source.startswith("slurmrestd v0.0.")
        if module is sched:  # it counts on
            assert by_rest[0]["since_ts"] == by_text[0]["since_ts"]
            assert by_rest[0]["jobs_submitted"] == by_text[0]["jobs_submitted"]
            continue
        for first, second in zip(in_order(module, by_text), in_order(module, by_rest), strict=True):
            same = first.keys() & second.keys()
            assert {column: first[column] for column in same} == {column: second[column] for column in same}


def in_order(module: Any, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: str([row.get(column) for column in TABLES[module.NAME].key]))


async def test_users_and_limits_are_as_they_were_made(lab: Sandbox, clients: Clients) -> None:
    by_qos = {row["qos"]: row for row in await rows(qos.collect, clients, "qos")}
    assert by_qos["high"]["max_tres_per_user"] == {"gres/gpu": 4, "mem": 100 << 30}
    assert by_qos["high"]["flags"] == ["DenyOnLimit", "NoReserve"]
    assert (by_qos["low"]["max_wall_per_job_s"], by_qos["low"]["preempts"]) == (36 * 3600, ["normal"])
    assert (by_qos["low"]["usage_factor"], by_qos["normal"]["max_wall_per_job_s"]) == (0.25, None)
    people = {row["user"]: row for row in await rows(users.collect, clients, "users")}
    assert (people["alice"]["admin_level"], people["alice"]["coordinates"]) == ("Operator", ["lab", "sub"])
    assert people["bob"]["default_account"] == "sub"
    who = {
        (row["account"], row["user"], row["partition"]): row
        for row in await rows(associations.collect, clients, "associations")
    }
    assert who["lab", None, None]["group_tres"] == {"gres/gpu": 16}
    assert who["sub", "alice", "debug"]["max_wall_per_job_s"] == 3600
    assert who["lab", "alice", None]["default_qos"] == "high"
    assert who["sub", "bob", None]["shares_of_parent"]
    tree = await rows(shares.collect, clients, "shares")
    assert {(row["account"], row["parent"]) for row in tree if not row["user"]} >= {("sub", "lab"), ("lab", "root")}
    settings = {row["key"]: row["value"] for row in await rows(config.collect, clients, "config")}
    assert settings["PrologFlags"] == "Alloc"
    (reserved,) = await rows(reservations.collect, clients, "reservations")
    assert (reserved["nodes"], reserved["users"]) == (["n001"], ["root"])


async def test_a_user_has_usage_after_a_job(accounted: Sandbox, clients: Clients) -> None:
    before = (await rows(sched.collect, clients, "sched"))[0]
    job = accounted.submit("sleep 1", "--gres=gpu:8", user="nobody")
    accounted.wait_job(job, "COMPLETED")
    after = (await rows(sched.collect, clients, "sched"))[0]
    assert after["jobs_submitted"] == before["jobs_submitted"] + 1
    assert after["rpcs_by_type"]["REQUEST_SUBMIT_BATCH_JOB"] >= 1
    assert after["rpc_time_ns_by_user"]["root"] > before["rpc_time_ns_by_user"]["root"]


async def test_waiting_jobs_have_their_factors(accounted: Sandbox, clients: Clients) -> None:
    accounted.submit("sleep 60", "--nodes=2", "--exclusive")
    waiting = accounted.submit("sleep 60", "--nodes=2", "--exclusive", "--partition=train,debug", "--nice=5")

    async def there() -> bool:
        found = await rows(priorities.collect, clients, "priorities")
        return {row["partition"] for row in found if row["job_id"] == waiting} == {"train", "debug"}

    await until(there)
    row = (await rows(priorities.collect, clients, "priorities"))[0]
    parts = ("site", "age", "association", "fairshare", "job_size", "partition_priority", "qos_priority")
    assert abs(row["priority"] - (sum(row[part] for part in parts) - row["nice"])) <= len(parts), "each is rounded"


async def test_without_jobs_there_are_no_priorities_which_is_no_outage(accounted: Sandbox, clients: Clients) -> None:
    assert await rows(priorities.collect, clients, "priorities") == []


async def test_a_runaway_job_is_told_and_left_alone(accounted: Sandbox, clients: Clients) -> None:
    job = accounted.submit("sleep 60")
    accounted.wait_job(job, "RUNNING")
    accounted.wait_for("slurmdbd", lambda: "RUNNING" in accounted.run("sacct", "-nXP", "-j", job, "-o", "state"))
    accounted.cancel(job)
    accounted.wait_for("slurmdbd", lambda: "CANCELLED" in accounted.run("sacct", "-nXP", "-j", job, "-o", "state"))
    accounted.kill_controller()
    for path in (accounted.folder / "state").glob("job_state*"):
        path.unlink()  # the controller forgets the job
    accounted.start_controller()
    accounted.accounting.sql(f"update sandbox_job_table set state=1, time_end=0 where id_job={job}")
    for _ in range(2):  # asked twice: nothing was repaired
        (row,) = await rows(runaway.collect, clients, "runaway")
        assert (row["job_id"], row["state"], row["end_ts"], row["name"]) == (job, "RUNNING", None, "wrap")
    accounted.accounting.sql(f"update sandbox_job_table set state=4, time_end=time_start+1 where id_job={job}")
    assert await rows(runaway.collect, clients, "runaway") == []


async def test_who_is_no_operator_gets_no_runaway_jobs_and_no_zero(accounted: Sandbox, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    as_nobody = tmp_path / "sacctmgr"
    as_nobody.write_text(f'#!/bin/sh\nexec setpriv --reuid=65534 --clear-groups env SLURM_CONF={accounted.conf} '
                         '/usr/bin/sacctmgr "$@"\n')  # fmt: skip
    as_nobody.chmod(0o755)
    clients = Clients(SlurmSettings(bin_dir=str(tmp_path), conf=str(accounted.conf)))
    with pytest.raises(CommandFailedError, match="Operator"):
        await runaway.collect(clients)


@contextmanager
def away(sandbox: Sandbox, what: str) -> Iterator[None]:
    if what == "slurmdbd":
        sandbox.accounting.stop_dbd()
    else:
        sandbox.kill_controller()
    try:
        yield
    finally:
        if what == "slurmdbd":
            sandbox.accounting.start_dbd()
        else:
            sandbox.start_controller()


async def test_without_slurmdbd_its_tables_are_outages_and_the_others_are_there(
    accounted: Sandbox, clients: Clients
) -> None:
    with away(accounted, "slurmdbd"):
        for module in OF_DATABASE:
            with pytest.raises(SlurmError, match="PersistInit"):
                await module.collect(clients)
        for other in (partitions, config, sched):
            assert (await other.collect(clients)).rows


async def test_without_the_controller_its_tables_are_outages(accounted: Sandbox, clients: Clients) -> None:
    with away(accounted, "slurmctld"):
        said = await asyncio.gather(*(module.collect(clients) for module in OF_CONTROLLER), return_exceptions=True)
    for module, found in zip(OF_CONTROLLER, said, strict=True):
        assert isinstance(found, SlurmError), module.NAME
        assert "Unable to contact" in str(found), module.NAME
