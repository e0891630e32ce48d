"""What the tables of Slurm are called outside: one declaration for each table that has series.

Numbers become gauges under the name of their column, with the columns that name the row as attributes; what counts is
listed. Units come from the names, words from schemas/slurm_tables.yaml. A table that is not here has no series of its
own, only its size and age: jobs and priorities have a row for each job, and jobs come and go without end.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from heeler.bus.tables_gen import TABLES
from heeler.otlp.names import NS, Kind, Metric
from heeler.otlp.units import unit_of

Row = Callable[[str], Any]
NUMBERS = ("int", "number", "bool")
PREFIX = "heeler.slurm."


@dataclass(frozen=True, slots=True)
class Group:
    """Series of some rows of a table.

    ``labels`` (column -> attribute) name a row: one without all of them has no series. ``about`` are attributes that
    may be missing. ``since`` is the column that says when the counters began; without it a counter that falls has
    begun anew. ``amounts`` are maps from a name to a number: each name is a series, with the name as attribute ``by``.
    ``states`` are words of which one holds: 1 for that, 0 for the others. ``well`` is 1 where a column is null, which
    else has the words for what is wrong.
    """

    scope: str
    labels: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Metric] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    where: Callable[[Row], bool] = lambda _: True
    since: str | None = None
    amounts: Mapping[str, Metric] = field(default_factory=dict)
    by: str = ""
    states: Mapping[str, Mapping[str, Metric]] = field(default_factory=dict)
    well: Mapping[str, Metric] = field(default_factory=dict)


ABOUT: Final[dict[str, str]] = {}  # name of a metric -> words


def _told(metric: Metric, about: str) -> Metric:
    ABOUT.setdefault(metric.name, about)
    return metric


def numbers(
    table: str,
    prefix: str,
    *,
    but: Collection[str] = (),
    only: Collection[str] | None = None,
    counters: Collection[str] = (),
    times: Collection[str] = (),
) -> dict[str, Metric]:
    """Return a metric for each number of a table, or `only` for those. `times`: times that are wanted as well."""
    found = {}
    for name, column in TABLES[table].columns.items() if table in TABLES else ():
        wanted = name in only if only is not None else column.kind in NUMBERS and name not in but
        if not wanted and name not in times:
            continue
        stem, unit, scale = unit_of(name)
        kind = Kind.COUNTER if name in counters else Kind.GAUGE
        integer = column.kind in ("int", "bool") and scale is None
        found[name] = _told(Metric(f"{prefix}.{stem}", unit, kind, (), scale, integer), column.about)
    return found


def amounts(
    table: str, only: Mapping[str, str], unit: str, kind: Kind = Kind.GAUGE, scale: float | None = None
) -> dict[str, Metric]:
    """Return a metric for each map of a table: column -> name outside."""
    known = TABLES[table].columns if table in TABLES else {}
    return {
        column: _told(Metric(name, unit, kind, (), scale, integer=scale is None), known[column].about)
        for column, name in only.items()
        if column in known
    }


def states(name: str, attribute: str, words: Collection[str], about: str) -> dict[str, Metric]:
    """Return a metric for each word of which one holds."""
    head = _told(Metric(name, "1", Kind.UPDOWN, integer=True), about)
    return {word: replace(head, attributes=((attribute, word),)) for word in words}


# The table `stats`: columns that are one thing in several states.
_BASES = ("idle", "allocated", "mixed", "down", "error", "future", "unknown")
_FLAGS = (
    *("completing", "maintenance", "reboot_issued", "reboot_requested", "perfctrs", "planned", "power_down"),
    *("powered_down", "powering_down", "powering_up", "reserved", "not_responding", "blocked"),
)
_ENDS = (
    *("failed", "node_fail", "out_of_memory", "timeout", "boot_fail", "deadline"),
    *("completed", "cancelled", "preempted", "requeued"),
)
_JOBS = ("running", "pending", "suspended", "completing", "configuring", "state_unknown")
_FAMILIES: Final[Mapping[str, tuple[str, str, str, str, str]]] = {
    **{f"nodes_{s}": ("nodes.by_state", "{node}", "node.state", s, "Nodes by base state.") for s in _BASES},
    **{
        f"nodes_{s}": ("nodes.by_flag", "{node}", "node.flag", s, "Nodes by flag; one may have several.")
        for s in _FLAGS
    },
    **{f"jobs_{s}": ("jobs.by_state", "{job}", "job.state", s, "Jobs by state.") for s in _JOBS},
    **{
        f"ended_{s}": (
            "runs_ended.by_state",
            "{run}",
            "job.state",
            s,
            "Runs of jobs that ended in the window, by state.",
        )
        for s in _ENDS
    },
}


def _stats(scope: str, labels: Mapping[str, str]) -> Group:
    """Return the series of a scope's rows, under names of their own: rows of several scopes must not be summed."""
    columns = numbers("stats", f"{PREFIX}{scope}")
    for column, (name, unit, attribute, state, about) in _FAMILIES.items():
        if column in columns:
            metric = Metric(f"{PREFIX}{scope}.{name}", unit, Kind.GAUGE, ((f"slurm.{attribute}", state),), integer=True)
            columns[column] = _told(metric, about)
    if "gpu_hours_running" in columns:
        metric = Metric(f"{PREFIX}{scope}.gpu_time_running", "s", scale=3600.0)
        columns["gpu_hours_running"] = _told(metric, "GPU time that the jobs which hold nodes have used so far.")
    return Group(f"slurm.stats.{scope}", labels, columns, where=lambda row: row("scope") == scope)


def _stats_reasons(scope: str, labels: Mapping[str, str]) -> Group:
    head = f"{PREFIX}{scope}"
    return Group(
        f"slurm.stats.{scope}.reason",
        labels,
        where=lambda row: row("scope") == scope,
        amounts={
            **amounts("stats", {"jobs_pending_by_reason": f"{head}.jobs_pending.by_reason"}, "{job}"),
            **amounts("stats", {"gpus_pending_by_reason": f"{head}.gpus_pending.by_reason"}, "{gpu}"),
        },
        by="slurm.job.reason",
    )


_PARTITION, _ACCOUNT, _USER = {"partition": "slurm.partition"}, {"account": "slurm.account"}, {"user": "slurm.user"}
_SCOPES = {
    "cluster": {},
    "partition": _PARTITION,
    "account": _ACCOUNT,
    "partition_account": {**_PARTITION, **_ACCOUNT},
}

# The table `sched`: what counts since the counters were reset, at midnight by slurmctld itself.
_SCHED_COUNTERS = (
    *("jobs_submitted", "jobs_started", "jobs_completed", "jobs_canceled", "jobs_failed"),
    *("main_cycle_sum_ns", "main_cycles", "main_depth_sum"),
    *(name for name in TABLES["sched"].columns if name.startswith(("main_exit_", "backfill_exit_"))),
    *("backfilled_jobs", "backfilled_het_components", "backfill_cycles", "backfill_cycle_sum_ns"),
    *("backfill_depth_sum", "backfill_depth_try_sum", "backfill_queue_sum", "backfill_table_sum"),
)
_SCHED_OTHER = ("backfilled_jobs_since_start",)  # midnight does not reset it, nor the RPCs


def _rpcs(whose: str, by: str) -> Group:
    counts = amounts("sched", {f"rpcs_by_{whose}": f"{PREFIX}sched.rpcs.by_{whose}"}, "{rpc}", Kind.COUNTER)
    time = {f"rpc_time_ns_by_{whose}": f"{PREFIX}sched.rpc_time.by_{whose}"}
    return Group(f"slurm.sched.rpc_{whose}", amounts={**counts, **amounts("sched", time, "s", Kind.COUNTER, NS)}, by=by)


def _rpc_levels() -> Group:
    levels = {f"rpcs_{what}_by_type": f"{PREFIX}sched.rpcs_{what}.by_type" for what in ("pending", "queued")}
    dropped = {"rpcs_dropped_by_type": f"{PREFIX}sched.rpcs_dropped.by_type"}
    counts = amounts("sched", dropped, "{rpc}", Kind.COUNTER)
    return Group("slurm.sched.rpc_level", amounts={**amounts("sched", levels, "{rpc}"), **counts}, by="slurm.rpc.type")


_STORAGE = {"path": "heeler.storage.path"}
_STORAGE_COLUMNS = ("total_bytes", "free_bytes", "available_bytes", "files", "files_free", "files_available")
_NODE_COLUMNS = (
    *("available", "drained", "draining", "cpus", "cpus_allocated", "memory_allocated_bytes"),
    *("gpus", "gpus_used", "shards", "shards_used", "mps", "mps_used"),  # what host.sample has of a node is not here
)
_PARTITION_COLUMNS = ("is_default", "node_count", "cpus", "max_time_s", "time_unlimited", "priority_tier", "hidden")
_SHARES = ("shares", "normalized_shares", "usage", "normalized_usage", "effective_usage")

OUT: Final[Mapping[str, tuple[Group, ...]]] = {
    "partitions": (
        Group(
            "slurm.partitions",
            _PARTITION,
            numbers("partitions", f"{PREFIX}partition.configured", only=_PARTITION_COLUMNS),
            states={
                "state": states(
                    f"{PREFIX}partition.state",
                    "slurm.partition.state",
                    ("UP", "DOWN", "DRAIN", "INACTIVE"),
                    "The partition's state: 1 for the one that holds.",
                )
            },
        ),
    ),
    "nodes": (Group("slurm.nodes", {"node": "host.name"}, numbers("nodes", f"{PREFIX}node", only=_NODE_COLUMNS)),),
    "sched": (
        Group(
            "slurm.sched",
            columns=numbers(
                "sched", f"{PREFIX}sched", but=_SCHED_OTHER, counters=_SCHED_COUNTERS, times=("backfill_last_ts",)
            ),
            since="since_ts",
        ),
        Group(
            "slurm.sched.other", columns=numbers("sched", f"{PREFIX}sched", only=_SCHED_OTHER, counters=_SCHED_OTHER)
        ),
        _rpcs("type", "slurm.rpc.type"),
        _rpcs("user", "slurm.user"),
        _rpc_levels(),
    ),
    "stats": tuple(make(scope, labels) for scope, labels in _SCOPES.items() for make in (_stats, _stats_reasons)),
    "shares": (
        Group(
            "slurm.shares",
            _ACCOUNT,
            numbers("shares", f"{PREFIX}account", only=(*_SHARES, "level_fairshare")),
            where=lambda row: row("user") is None,
        ),
        Group(
            "slurm.shares.user",
            {**_ACCOUNT, **_USER},
            numbers("shares", f"{PREFIX}user", only=(*_SHARES, "fairshare", "level_fairshare")),
            about=_PARTITION,
            where=lambda row: row("user") is not None,
        ),
    ),
    "qos": (Group("slurm.qos", {"qos": "slurm.qos"}, numbers("qos", f"{PREFIX}qos", but=("qos_id",))),),
    "reservations": (
        Group(
            "slurm.reservations",
            {"reservation": "slurm.reservation"},
            numbers("reservations", f"{PREFIX}reservation", only=("start_ts", "end_ts", "node_count", "cores")),
            states={
                "state": states(
                    f"{PREFIX}reservation.state",
                    "slurm.reservation.state",
                    ("ACTIVE", "INACTIVE"),
                    "The reservation's state: 1 for the one that holds.",
                )
            },
        ),
    ),
    "licenses": (
        Group(
            "slurm.licenses", {"license": "slurm.license"}, numbers("licenses", f"{PREFIX}license", but=("is_remote",))
        ),
    ),
    "storage": (
        Group(
            "slurm.storage",
            _STORAGE,
            numbers("storage", "heeler.storage", only=_STORAGE_COLUMNS),
            about={"fs_type": "system.filesystem.type", "mount_point": "system.filesystem.mountpoint"},
            well={"why": _told(Metric("heeler.storage.readable", "1", integer=True), "1: it answered; 0: it did not.")},
        ),
    ),
    "quotas": (
        Group(
            "slurm.quotas",
            {**_STORAGE, "user_id": "slurm.user.id"},
            numbers("quotas", "heeler.quota", but=("user_id",), times=("sampled_ts",)),
            about=_USER,
        ),
    ),
}

# Of the first part of any table.
TABLE: Final[Mapping[str, Metric]] = {
    "total_rows": _told(Metric(f"{PREFIX}table.rows", "{row}", integer=True), "Rows that Slurm told."),
    "unreadable": _told(
        Metric(f"{PREFIX}table.unreadable", "{row}", integer=True), "Rows that could not be read: they are not in it."
    ),
    "duration_ns": _told(Metric(f"{PREFIX}table.duration", "s", scale=NS), "Time that the question took."),
    "ts": _told(Metric(f"{PREFIX}table.asked", "s", scale=NS), "When Slurm was asked, since the epoch."),
}

# Scopes that grow with users, or with partitions times accounts: only where the site wants them.
OF_USERS: Final = frozenset(("slurm.shares.user", "slurm.sched.rpc_user", "slurm.quotas"))
OF_PARTITION_ACCOUNTS: Final = frozenset(("slurm.stats.partition_account", "slurm.stats.partition_account.reason"))
