"""Tables from what real Slurm 22.05 and 24.11 printed: each way to ask tells the same."""

from datetime import UTC
from math import isclose
from typing import Any

import pytest
from slurmdata import DATA

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
    sched,
    shares,
    topology,
    users,
)
from heeler.slurm.collect import Table

MIB, GIB = 1 << 20, 1 << 30
PARSERS: dict[str, Any] = {
    "associations": associations,
    "licenses": licenses,
    "partitions": partitions,
    "qos": qos,
    "sched": sched,
    "shares": shares,
    "users": users,
}
FILES = {
    "associations": "sacctmgr_show_associations",
    "config": "scontrol_show_config",
    "licenses": "scontrol_show_licenses",
    "partitions": "scontrol_show_partitions",
    "priorities": "sprio",
    "qos": "sacctmgr_show_qos",
    "reservations": "scontrol_show_reservations",
    "sched": "sdiag",
    "shares": "sshare",
    "topology": "scontrol_show_topology",
    "users": "sacctmgr_show_users",
}
REST = {"qos": "slurmdb_qos", "users": "slurmdb_users", "associations": "slurmdb_associations", "sched": "slurm_diag"}
REST |= {name: f"slurm_{name}" for name in ("licenses", "partitions", "reservations")}


def read(name: str, path: str) -> Table:
    data = (DATA / path).read_bytes()
    if path.endswith(".json"):
        table: Table = (PARSERS.get(name) or reservations).parse_json(data)
    elif name == "reservations":
        table = reservations.parse_text(data, UTC)
    else:
        more = {"config": config, "priorities": priorities, "topology": topology}
        table = (PARSERS | more)[name].parse_text(data)
    assert table.unreadable == ()
    check_columns(TABLES[name], table.columns, table.rows)
    assert set(table.columns) | set(table.absent) == set(TABLES[name].columns)
    return table


def rows_of(table: Table) -> list[dict[str, Any]]:
    found = [dict(zip(table.columns, values, strict=True)) for values in zip(*table.columns.values(), strict=True)]
    return sorted(found, key=lambda row: str([row.get(key) for key in ("account", "user", "partition", *row)]))


def text(name: str, version: str = "24.11") -> list[dict[str, Any]]:
    return rows_of(read(name, f"{version}/{FILES[name]}.txt"))


def one(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (found,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return found


def alike(one_value: Any, other: Any) -> bool:
    if isinstance(one_value, dict) and isinstance(other, dict) and set(one_value) == set(other):
        return all(alike(one_value[key], other[key]) for key in one_value)
    if isinstance(one_value, int | float) and isinstance(other, int | float):
        return isclose(one_value, other, rel_tol=1e-5, abs_tol=1e-5)  # text has six digits
    return bool(one_value == other)


SAME = [
    (name, f"24.11/{FILES[name]}.txt", f"24.11/{FILES[name]}_{version}.json")
    for name in (*PARSERS, "reservations")
    for version in ("v0.0.40", "v0.0.42")
    if name != "sched"
] + [(name, f"22.05/{FILES[name]}.txt", f"22.05/rest_{file}.json") for name, file in REST.items() if name != "sched"]


@pytest.mark.parametrize(("name", "of_text", "of_json"), SAME)
def test_text_json_and_rest_tell_the_same(name: str, of_text: str, of_json: str) -> None:
    first, second = rows_of(read(name, of_text)), rows_of(read(name, of_json))
    assert len(first) == len(second) > 0
    compared = 0
    for row, other in zip(first, second, strict=True):
        for column in row.keys() & other.keys():
            if (name, column) == ("associations", "association_id") and other[column] is None:
                continue  # v0.0.42 of 24.11.5 has 0 there
            assert alike(row[column], other[column]), (column, row, other)
            compared += 1
    assert compared > 5


def test_limits_of_a_qos_stand_in_their_own_columns() -> None:
    for rows in (text("qos"), text("qos", "22.05"), rows_of(read("qos", "24.11/sacctmgr_show_qos_v0.0.42.json"))):
        low = one(rows, qos="low")
        numbers = {
            "group_tres_minutes": {"cpu": 7},
            "group_tres_run_minutes": {"cpu": 8},
            "max_tres_minutes_per_job": {"cpu": 9},
            "group_wall_s": 3 * 86400,
            "group_submit_jobs": 11,
            "max_submit_jobs_per_user": 12,
            "max_jobs_per_account": 13,
            "max_submit_jobs_per_account": 14,
            "max_tres_per_account": {"cpu": 15},
            "max_tres_per_node": {"cpu": 16},
            "max_tres_per_job": {"cpu": 17},
            "max_tres_run_minutes_per_user": {"cpu": 18},
            "max_tres_run_minutes_per_account": {"cpu": 19},
            "min_priority_threshold": 20,
            "group_jobs_accrue": 21,
            "max_jobs_accrue_per_user": 22,
            "max_jobs_accrue_per_account": 23,
            "min_tres_per_job": {"cpu": 1},
            "preempt_exempt_s": 60,
            "usage_threshold": 0.5,
            "limit_factor": 2.0,
            "description": "low | odd",
            "group_jobs": None,
            "max_wall_per_job_s": None,
        }
        assert {key: low[key] for key in numbers} == numbers
        high = one(rows, qos="high")
        assert high["max_tres_per_user"] == {"gres/gpu": 4, "mem": 100 * GIB}
        assert (high["flags"], high["preempts"], high["grace_s"]) == (["DenyOnLimit", "NoReserve"], ["normal"], 120)
        assert (high["usage_factor"], high["max_wall_per_job_s"], high["priority"]) == (2.5, 2 * 86400, 100)


def test_users_have_their_rights_and_the_accounts_that_they_manage() -> None:
    rows = text("users")
    alice = one(rows, user="alice")
    assert (alice["admin_level"], alice["default_account"], alice["coordinates"]) == ("Operator", "lab", ["lab", "sub"])
    assert one(rows, user="root")["admin_level"] == "Administrator"
    assert one(rows, user="bob")["coordinates"] == []


def test_associations_say_whose_limit_it_is() -> None:
    rows = text("associations")
    lab = one(rows, account="lab", user=None)
    assert (lab["parent"], lab["shares"], lab["group_tres"]) == ("root", 10, {"gres/gpu": 16})
    sub = one(rows, account="sub", user=None)
    assert (sub["group_jobs"], sub["group_submit_jobs"], sub["group_wall_s"]) == (4, 5, 540)
    assert (sub["max_submit_jobs"], sub["max_wall_per_job_s"], sub["max_tres_per_job"]) == (10, 960, {"cpu": 7})
    alice = one(rows, account="sub", user="alice")
    assert (alice["partition"], alice["max_jobs"], alice["max_wall_per_job_s"]) == ("gold", 3, 3600)
    bob = one(rows, user="bob")
    assert (bob["shares"], bob["shares_of_parent"]) == (None, True), "not 2147483647 shares"


def test_shares_are_a_tree() -> None:
    rows = text("shares")
    assert {(row["account"], row["parent"]) for row in rows if row["user"] is None} == {
        ("root", None),
        ("lab", "root"),
        ("sub", "lab"),
        ("research", "root"),
    }
    assert one(rows, user="bob")["parent"] == "sub"
    lab = one(rows, account="lab", user=None)
    assert isclose(lab["normalized_shares"], 10 / 12, rel_tol=1e-4)
    assert lab["group_tres_minutes"] == {"cpu": 10000}
    root = one(rows, account="research", user="root")
    assert (root["level_fairshare"], root["level_fairshare_infinite"]) == (None, True)
    assert one(rows, account="research", user=None)["fairshare"] is None, "an account has none, and not 0"


def test_priorities_have_a_row_for_each_partition_of_a_job() -> None:
    rows = text("priorities")
    assert {(row["job_id"], row["partition"]) for row in rows} >= {("2", "train"), ("2", "debug")}
    row = one(rows, job_id="2", partition="debug")
    assert row["priority"] == row["association"] + row["fairshare"] + row["job_size"] + row["partition_priority"] - 5
    assert (row["nice"], row["account"], row["qos"]) == (5, "root", "normal")
    old = read("priorities", "22.05/sprio.txt")
    assert set(old.absent) == {"account", "qos"}, "which 22.05 can't tell"
    assert "debug" in old.columns["partition"]


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_partitions_have_fractional_weights_and_who_may_use_them(version: str) -> None:
    rows = text("partitions", version)
    weighted = next(row for row in rows if row["billing_weights"])
    assert weighted["billing_weights"] == {"cpu": 1.0, "mem": 0.25, "gres/gpu": 2.5}
    denying = next(row for row in rows if row["deny_qos"])
    assert (denying["deny_qos"], denying["allow_accounts"], denying["allow_qos"]) == (["low"], ["research"], None)
    assert (denying["oversubscribe"], denying["default_time_s"], denying["priority_tier"]) == ("FORCE:2", 1800, 5)
    assert denying["default_mem_per_cpu_bytes"] == 1000 * MIB
    assert denying["default_mem_per_node_bytes"] is None
    train = one(rows, partition="train")
    assert (train["is_default"], train["hidden"], train["max_nodes"], train["preempt_mode"]) == (
        True,
        False,
        None,
        "OFF",
    )
    if version == "24.11":
        assert one(rows, partition="gold")["hidden"], "asked for with --all"


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ("CPU=1.0,Mem=0.25G,GRES/gpu=2.5", {"cpu": 1.0, "mem": 0.25, "gres/gpu": 2.5}),
        ("Mem=0.5", {"mem": 512.0}),
        ("mem=1T,gres/gpu:h100=3,License/matlab=.", None),
        ("mem=1024T,gres/gpu:h100=3", {"mem": 1.0, "gres/gpu:h100": 3.0}),
        ("", None),
        ("(null)", None),
    ],
)
def test_a_weight_of_memory_is_for_a_gibibyte(weights: str, wanted: dict[str, float] | None) -> None:
    if weights.endswith("."):
        with pytest.raises(Exception, match="not a billing weight"):
            partitions.billing_weights(weights)
    else:
        assert partitions.billing_weights(weights) == wanted


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_reservations_have_times_nodes_and_licences(version: str) -> None:
    rows = text("reservations", version)
    first, second = one(rows, reservation="m1"), one(rows, reservation="m2")
    assert first["nodes"] == ["n004"]
    assert first["users"] == ["root"]
    assert {"MAINT", "IGNORE_JOBS"} <= set(first["flags"])
    assert first["end_ts"] - first["start_ts"] == 3600 * 10**9
    assert (second["accounts"], second["licenses"], second["flags"]) == (["lab"], {"matlab": 2}, [])
    assert (first["state"], second["state"]) == ("ACTIVE", "INACTIVE")


def test_licences_and_switches() -> None:
    matlab = one(text("licenses"), license="matlab")
    assert (matlab["total"], matlab["used"], matlab["free"], matlab["is_remote"]) == (10, 0, 10, False)
    rows = text("topology")
    spine, leaf = one(rows, name="spine"), one(rows, name="leaf2")
    assert (spine["level"], spine["children"], len(spine["nodes"])) == (1, ["leaf1", "leaf2"], 4)
    assert (leaf["kind"], leaf["link_speed"], leaf["nodes"]) == ("switch", 400, ["n003", "n004"])


def test_blocks_of_a_topology() -> None:
    table = topology.parse_text(
        b"BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\nAggregatedBlock=b[1-2] BlockSize=8\n"
    )
    assert table.columns["kind"] == ["block", "aggregated_block"]
    assert table.columns["nodes"][0] == ["n1", "n2", "n3", "n4"]
    assert table.columns["block_size"] == [4, 8]


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_settings_have_whole_values_and_titles(version: str) -> None:
    rows = text("config", version)
    known = {(row["section"], row["key"]): row["value"] for row in rows}
    assert known["slurm.conf", "AuthAltParameters"] == "jwt_key=/srv/slurm/etc/jwt.key"
    assert "cred_expire=5" in (known["slurm.conf", "AuthInfo"] or "")
    assert "nohold_on_prolog_fail" in (known["slurm.conf", "SchedulerParameters"] or "")
    assert known["slurm.conf", "PrologFlags"] == "Alloc"
    assert known["slurm.conf", "AcctGatherEnergyType"] in (None, "acct_gather_energy/none")
    assert ("slurm.conf", "HealthCheckInterval") in known
    assert [value for (section, _), value in known.items() if section == "controllers"] == ["at ctl1 is UP"]
    if version == "24.11":
        assert known["MPI Plugins Configuration", "PMIxTimeout"] == "300"


def test_a_setting_over_several_lines_is_one_value() -> None:
    table = config.parse_text(b"Configuration data as of 2026-12-02T04:53:41\nA = x=1,y=2\n  z=3\nB= \nC = (null)\n")
    rows = list(zip(*table.columns.values(), strict=True))
    assert rows == [("slurm.conf", "A", "x=1,y=2\nz=3"), ("slurm.conf", "B", None), ("slurm.conf", "C", None)]


def test_sdiag_as_json_has_every_column_and_text_what_it_prints() -> None:
    new = read("sched", "24.11/sdiag_v0.0.42.json")
    assert dict(new.absent) == {}
    (row,) = rows_of(new)
    assert row["rpcs_by_type"]["REQUEST_PING"] > 0
    assert row["rpc_time_ns_by_user"]["root"] % 1000 == 0
    (printed,) = text("sched")
    assert printed["rpcs_by_user"]["root"] > 0
    assert printed["main_cycles"] == printed["main_exit_end_of_queue"]
    same = ("jobs_submitted", "jobs_started", "since_ts", "backfilled_jobs", "jobs_canceled")
    assert {key: printed[key] for key in same} == {key: row[key] for key in same}
    (old,) = text("sched", "22.05")
    assert old["server_threads"] >= 1
    assert "main_exit_licenses" not in old
    assert old["gettimeofday_1000_ns"] % 1000 == 0
