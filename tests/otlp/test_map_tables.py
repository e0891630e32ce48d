"""From tables of Slurm to points."""

from pathlib import Path
from typing import Any

import pytest
from otlpsamples import T0
from slurmtables import table

from heeler.bus.tables_gen import TABLES
from heeler.otlp import names_health, names_tables
from heeler.otlp.bounds import FORGET_NS, Bound
from heeler.otlp.map_tables import table_points
from heeler.otlp.names import Kind, Metric
from heeler.otlp.points import Points
from heeler.otlp.starts import Starts
from heeler.otlp.units import unit_of
from heeler.slurm import licenses, partitions, qos, reservations, sched, shares
from heeler.slurm.collect import Table

DATA = Path(__file__).parents[1] / "data/slurm"
S = 1_000_000_000


def points(name: str, columns: dict[str, list[Any]], **changes: Any) -> list[dict[str, Any]]:
    return [point for one in table_points(table(name, columns, **changes)) for point in one.flat()]


def find(found: list[dict[str, Any]], metric: str, **tags: Any) -> list[Any]:
    wanted = {key.replace("__", "."): value for key, value in tags.items()}
    return [p["value"] for p in found if p["metric"] == metric and wanted.items() <= p["attributes"].items()]


def recorded(name: str, parsed: Table) -> list[dict[str, Any]]:
    return points(name, {column: list(values) for column, values in parsed.columns.items()})


def metrics() -> list[Metric]:
    """Every metric that is declared."""
    found: list[Metric] = [*names_tables.TABLE.values()]
    for group in (group for groups in names_tables.OUT.values() for group in groups):
        found += [*group.columns.values(), *group.amounts.values(), *group.well.values()]
        found += [metric for words in group.states.values() for metric in words.values()]
    return found


def test_numbers_of_a_licence_are_gauges_with_its_name() -> None:
    found = points("licenses", {"license": ["ansys"], "total": [50], "used": [0], "free": [50], "is_remote": [False]})
    (used,) = [p for p in found if p["metric"] == "heeler.slurm.license.used"]
    assert (used["value"], used["kind"], used["unit"], used["ts"]) == (0, "gauge", "1", T0)
    assert used["attributes"] == {
        "heeler.cluster": "north",
        "heeler.slurm.feed": "slurm-0",
        "slurm.license": "ansys",
    }


def test_what_is_not_known_has_no_point_and_is_never_0() -> None:
    found = points("licenses", {"license": ["a", "b"], "total": [None, 7], "used": [0, None]})
    assert find(found, "heeler.slurm.license.total") == [7]
    assert find(found, "heeler.slurm.license.total", slurm__license="a") == []
    assert find(found, "heeler.slurm.license.used", slurm__license="b") == []
    assert find(found, "heeler.slurm.license.free") == []


def test_a_row_without_its_name_has_no_series() -> None:
    assert find(points("licenses", {"license": [None, ""], "total": [1, 2]}), "heeler.slurm.license.total") == []


def test_of_twins_the_first_counts() -> None:
    assert find(points("licenses", {"license": ["a", "a"], "total": [1, 2]}), "heeler.slurm.license.total") == [1]


@pytest.mark.parametrize(("state", "holds"), [("UP", 1), ("DRAIN", 0), ("SOMETHING_NEW", None), (None, None)])
def test_the_state_of_a_partition_is_a_set_of_states(state: str | None, holds: int | None) -> None:
    found = points("partitions", {"partition": ["train"], "state": [state], "node_count": [4]})
    expected = [] if holds is None else [holds]
    assert find(found, "heeler.slurm.partition.state", slurm__partition__state="UP") == expected
    assert len(find(found, "heeler.slurm.partition.state")) == (0 if holds is None else 4)


def test_sdiag_of_a_real_controller_counts_since_its_reset() -> None:
    parsed = sched.parse_text((DATA / "24.11/sdiag.txt").read_bytes())
    since = parsed.columns["since_ts"][0]
    columns = {name: list(values) for name, values in parsed.columns.items()}
    (one,) = [p for p in table_points(table("sched", columns, since + 60 * S)) if p.scope[0] == "slurm.sched"]
    Starts().fill(one)
    flat = list(one.flat())
    counters = {p["metric"]: p for p in flat if p["kind"] == "counter"}
    assert counters["heeler.slurm.sched.jobs_submitted"]["value"] == parsed.columns["jobs_submitted"][0]
    assert {p["start_ts"] for p in counters.values()} == {since}
    cycle = parsed.columns["main_cycle_last_ns"][0]
    assert find(flat, "heeler.slurm.sched.main_cycle_last") == pytest.approx([cycle / 1e9])
    kinds = {p["metric"]: p["kind"] for p in flat}
    assert kinds["heeler.slurm.sched.agent_queue"] == kinds["heeler.slurm.sched.main_cycle_max"] == "gauge"
    assert kinds["heeler.slurm.sched.main_cycles"] == "counter"


def sdiag(ts: int, since: int, jobs: int, rpcs: int) -> list[Points]:
    return table_points(
        table("sched", {"since_ts": [since], "jobs_started": [jobs], "rpcs_by_type": [{"REQUEST_PING": rpcs}],
                        "rpc_time_ns_by_type": [{"REQUEST_PING": rpcs * 2_000_000}],
                        "backfilled_jobs_since_start": [jobs]}, ts)
    )  # fmt: skip


def started(starts: Starts, made: list[Points]) -> dict[str, int]:
    for one in made:
        starts.fill(one)
    return {p["metric"]: p["start_ts"] for one in made for p in one.flat() if p["kind"] == "counter"}


def test_at_midnight_the_schedulers_counters_begin_anew_and_those_of_messages_go_on() -> None:
    starts = Starts()
    midnight = T0 + 100 * S
    before = started(starts, sdiag(T0, T0 - 50 * S, 900, 5))
    assert before["heeler.slurm.sched.jobs_started"] == T0 - 50 * S
    # More than before already, so that nothing but since_ts tells of the reset.
    after = started(starts, sdiag(T0 + 160 * S, midnight, 901, 6))
    assert after["heeler.slurm.sched.jobs_started"] == midnight
    assert after["heeler.slurm.sched.rpcs.by_type"] == before["heeler.slurm.sched.rpcs.by_type"] == T0
    assert after["heeler.slurm.sched.backfilled_jobs_since_start"] == T0


def test_a_restart_of_slurmctld_begins_the_messages_anew_too() -> None:
    starts = Starts()
    started(starts, sdiag(T0, T0 - 50 * S, 900, 500))
    after = started(starts, sdiag(T0 + 60 * S, T0 + 30 * S, 3, 2))
    assert after["heeler.slurm.sched.jobs_started"] == T0 + 30 * S
    assert after["heeler.slurm.sched.rpcs.by_type"] == T0


def test_messages_have_a_series_for_each_type_in_seconds_and_counts() -> None:
    found = [p for one in sdiag(T0, T0 - 50 * S, 1, 7) for p in one.flat()]
    assert find(found, "heeler.slurm.sched.rpcs.by_type", slurm__rpc__type="REQUEST_PING") == [7]
    assert find(found, "heeler.slurm.sched.rpc_time.by_type") == pytest.approx([0.014])


def test_accounts_and_users_have_metrics_of_their_own() -> None:
    made = table_points(
        table("shares", {"account": ["root", "ml", "ml"], "user": [None, None, "ada"], "shares": [1, 5, None],
                         "normalized_usage": [None, 0.25, 0.5], "fairshare": [None, None, 0.125]})
    )  # fmt: skip
    found = [p for one in made for p in one.flat()]
    assert find(found, "heeler.slurm.account.shares", slurm__account="ml") == [5]
    assert find(found, "heeler.slurm.account.normalized_usage") == [0.25]
    assert find(found, "heeler.slurm.user.fairshare", slurm__user="ada", slurm__account="ml") == [0.125]
    assert {one.scope[0] for one in made} == {"slurm.table", "slurm.shares", "slurm.shares.user"}


def test_a_file_system_that_gave_no_answer_is_not_readable_and_has_no_size() -> None:
    found = points("storage", {"path": ["/a", "/b"], "why": [None, "no answer within 5 s"], "total_bytes": [10, None]})
    assert find(found, "heeler.storage.readable", heeler__storage__path="/a") == [1]
    assert find(found, "heeler.storage.readable", heeler__storage__path="/b") == [0]
    assert find(found, "heeler.storage.total") == [10]


@pytest.mark.parametrize("name", ["jobs", "priorities", "runaway", "users", "associations", "config", "topology"])
def test_tables_of_jobs_and_words_have_a_size_and_an_age_only(name: str) -> None:
    key = TABLES[name].key[0]
    found = points(name, {key: ["1", "2"]}, total_rows=500, unreadable=3)
    assert {p["metric"]: p["value"] for p in found} == {
        "heeler.slurm.table.rows": 500,
        "heeler.slurm.table.unreadable": 3,
        "heeler.slurm.table.duration": pytest.approx(0.011),
        "heeler.slurm.table.asked": pytest.approx(T0 / 1e9),
    }
    assert {p["attributes"]["heeler.slurm.table"] for p in found} == {name}


def test_no_declared_series_has_a_job_in_its_attributes() -> None:
    for name, groups in names_tables.OUT.items():
        assert name not in ("jobs", "priorities", "runaway")
        for group in groups:
            assert not {"job_id", "name", "work_dir"} & {*group.labels, *group.about}


def test_a_table_is_told_once_however_many_parts_it_has() -> None:
    later = table("licenses", {"license": ["z"], "total": [1]}, part=1, parts=2)
    assert [one.scope[0] for one in table_points(later)] == ["slurm.licenses"]


def test_a_newer_feeds_columns_and_kinds_cost_nothing_but_themselves() -> None:
    data = table("licenses", {"license": ["a"], "total": [5]})
    data["columns"] |= {"new_things": [3], "used": ["many"], "free": [float("nan")]}
    made = table_points(data)
    found = [p for one in made for p in one.flat()]
    assert find(found, "heeler.slurm.license.total") == [5]
    assert find(found, "heeler.slurm.license.used") == find(found, "heeler.slurm.license.free") == []
    assert made[0].skipped == 1
    assert {p["metric"] for one in table_points({**data, "table": "newer"}) for p in one.flat()} == {
        metric.name for metric in names_tables.TABLE.values()
    }


@pytest.mark.skipif("stats" not in TABLES, reason="this contract has no table of sums")
def test_sums_of_each_scope_have_names_of_their_own() -> None:
    columns: dict[str, list[Any]] = {
        "scope": ["cluster", "partition", "account", "partition_account"],
        "partition": [None, "train", None, "train"],
        "account": [None, None, "ml", "ml"],
        "nodes_idle": [4, 3, None, None],
        "jobs_running": [9, 8, 7, 6],
        "jobs_pending_by_reason": [{"Priority": 2, "Resources": 1}, {"Priority": 2}, {}, None],
        "gpu_hours_running": [1.5, None, None, None],
    }
    made = table_points(table("stats", columns))
    found = [p for one in made for p in one.flat()]
    assert find(found, "heeler.slurm.cluster.jobs.by_state", slurm__job__state="running") == [9]
    assert find(found, "heeler.slurm.partition.jobs.by_state", slurm__partition="train") == [8]
    assert find(found, "heeler.slurm.account.jobs.by_state", slurm__account="ml") == [7]
    assert find(found, "heeler.slurm.cluster.nodes.by_state", slurm__node__state="idle") == [4]
    assert find(found, "heeler.slurm.account.nodes.by_state") == []
    assert find(found, "heeler.slurm.cluster.jobs_pending.by_reason", slurm__job__reason="Resources") == [1]
    assert find(found, "heeler.slurm.cluster.gpu_time_running") == [5400.0]
    off = {one.scope[0] for one in made if Bound(10, names_tables.OF_PARTITION_ACCOUNTS).keep(one) is None}
    assert off == {"slurm.stats.partition_account"}


@pytest.mark.parametrize(
    ("name", "parse", "file"),
    [
        ("sched", sched.parse_json, "sdiag_v0.0.42.json"),
        ("partitions", partitions.parse_text, "scontrol_show_partitions.txt"),
        ("licenses", licenses.parse_text, "scontrol_show_licenses.txt"),
        ("reservations", reservations.parse_json, "scontrol_show_reservations_v0.0.42.json"),
        ("shares", shares.parse_json, "sshare_v0.0.42.json"),
        ("qos", qos.parse_json, "sacctmgr_show_qos_v0.0.42.json"),
    ],
)
def test_every_number_that_a_real_slurm_told_arrives_as_it_was(name: str, parse: Any, file: str) -> None:
    parsed = parse((DATA / "24.11" / file).read_bytes())
    found = recorded(name, parsed)
    expected = 0
    rows = [
        dict(zip(parsed.columns, row, strict=True)) for row in zip(*map(list, parsed.columns.values()), strict=True)
    ]
    for group in names_tables.OUT[name]:
        for row in rows:
            if group.where(row.get):
                for column, metric in group.columns.items():
                    value = row.get(column)
                    if value is None:
                        continue
                    expected += 1
                    close = pytest.approx(value * (metric.scale or 1))
                    assert any(one == close for one in find(found, metric.name)), (column, value)
    assert expected > 0
    columns = {metric.name for group in names_tables.OUT[name] for metric in group.columns.values()}
    assert sum(p["metric"] in columns for p in found) == expected


def test_a_name_has_one_unit_and_one_kind_and_words() -> None:
    every = [*metrics(), *names_health.CHECK_STATE.values(), *names_health.RUN_VERDICT.values()]
    assert len({m.name for m in every}) == len({(m.name, m.unit, m.kind) for m in every})
    assert {m.name for m in every} <= names_tables.ABOUT.keys()
    assert all(names_tables.ABOUT[m.name].strip() for m in every)


def test_no_two_columns_make_the_same_series() -> None:
    for groups in names_tables.OUT.values():
        series = [
            (metric.name, metric.attributes)
            for group in groups
            for metric in (*group.columns.values(), *group.amounts.values(), *group.well.values())
        ]
        assert len(series) == len(set(series))


def test_counters_are_those_that_only_grow() -> None:
    counters = {m.name.removeprefix("heeler.slurm.sched.") for m in metrics() if m.kind is Kind.COUNTER}
    assert all(m.name.startswith("heeler.slurm.sched.") for m in metrics() if m.kind is Kind.COUNTER)
    assert {"jobs_failed", "main_cycles", "backfill_depth_try_sum", "main_exit_max_rpcs", "rpcs.by_user"} <= counters
    level = {"jobs_pending", "jobs_running", "main_queue", "main_depth_mean", "backfill_table_last", "agent_queue"}
    assert not counters & (level | {"main_cycle_max", "main_cycles_per_minute", "rpcs_queued.by_type"})


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("memory_allocated_bytes", ("memory_allocated", "By", None)),
        ("max_time_s", ("max_time", "s", None)),
        ("main_cycle_last_ns", ("main_cycle_last", "s", 1e-9)),
        ("jobs_pending", ("jobs_pending", "{job}", None)),
        ("jobs_per_user_variance", ("jobs_per_user_variance", "1", None)),
        ("multi_node_share", ("multi_node", "1", None)),
        ("priority", ("priority", "1", None)),
    ],
)
def test_units_are_read_from_names(column: str, told: tuple[str, str, float | None]) -> None:
    assert unit_of(column) == told


def licences(count: int, ts: int = T0, first: int = 0) -> Points:
    numbers = range(first, first + count)
    return table_points(table("licenses", {"license": [f"l{i}" for i in numbers], "total": [*numbers]}, ts))[1]


def test_rows_beyond_the_bound_are_left_out_and_counted_and_those_that_are_there_stay() -> None:
    bound = Bound(3)
    assert [len(kept.ids) for kept in [bound.keep(licences(5))] if kept] == [3]
    assert bound.over == 2
    assert bound.keep(licences(2, first=3)) is None
    kept = bound.keep(licences(5, T0 + S))
    assert kept is not None
    assert list(kept.columns[0][1]) == [0, 1, 2]


def test_a_row_that_was_not_seen_for_a_day_makes_room() -> None:
    bound = Bound(2)
    bound.keep(licences(2))
    kept = bound.keep(licences(1, T0 + FORGET_NS + S, first=7))
    assert kept is not None
    assert bound.over == 0


def test_the_bound_is_for_tables_only() -> None:
    one = Points(("gpu", "c", "n"), "b", T0, ["a", "b"], [(), ()], [])
    assert Bound(1).keep(one) is one
