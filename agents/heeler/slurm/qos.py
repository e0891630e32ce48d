"""Qualities of service, with all their limits: from slurmdbd through ``sacctmgr show qos`` or slurmrestd."""

from typing import Any

from heeler.slurm import jsonfix
from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table
from heeler.slurm.errors import ParseError
from heeler.slurm.fields import (
    INT,
    MINUTES,
    NAMES,
    NUMBER,
    SECONDS,
    TEXT,
    TRES,
    Field,
    Kind,
    from_json,
    from_text,
    names,
    word,
)
from heeler.slurm.rows import rows_of, version_of

NAME = "qos"
# Flags have one spelling in text and another in JSON: that of the text counts.
FLAGS = {
    "DENY_LIMIT": "DenyOnLimit",
    "ENFORCE_USAGE_THRESHOLD": "EnforceUsageThreshold",
    "NO_DECAY": "NoDecay",
    "NO_RESERVE": "NoReserve",
    "OVERRIDE_PARTITION_QOS": "OverPartQOS",
    "PARTITION_MAXIMUM_NODE": "PartitionMaxNodes",
    "PARTITION_MINIMUM_NODE": "PartitionMinNodes",
    "PARTITION_QOS": "OverPartQOS",
    "PARTITION_TIME_LIMIT": "PartitionTimeLimit",
    "RELATIVE": "Relative",
    "REQUIRED_RESERVATION": "RequiresReservation",
    "REQUIRED_RESERVTION": "RequiresReservation",
    "USAGE_FACTOR_SAFE": "UsageFactorSafe",
}


def flags(value: Any) -> list[str]:
    """Return flags as the text spells them. Raises ParseError."""
    return sorted(FLAGS.get(flag, flag) for flag in names(value))


def mode(value: Any) -> str | None:
    """Return a preemption mode; None where the cluster's own counts. Raises ParseError."""
    found = "+".join(names(value)) if isinstance(value, list) else word(value)
    return None if found is None or found.lower() in ("", "cluster", "disabled") else found.lower()


_MAX = ("limits", "max")
_TRES = (*_MAX, "tres")
_MINUTES = (*_TRES, "minutes", "per")
_JOBS = (*_MAX, "jobs")
FIELDS = (
    Field("qos", "Name", ("name",), TEXT),
    Field("qos_id", "ID", ("id",), INT),
    Field("priority", "Priority", ("priority",), INT),
    Field("grace_s", "GraceTime", ("limits", "grace_time"), SECONDS),
    Field("preempts", "Preempt", ("preempt", "list"), NAMES),
    Field("preempt_exempt_s", "PreemptExemptTime", ("preempt", "exempt_time"), SECONDS),
    Field("preempt_mode", "PreemptMode", ("preempt", "mode"), Kind(mode, mode)),
    Field("flags", "Flags", ("flags",), Kind(flags, flags)),
    Field("usage_threshold", "UsageThres", ("usage_threshold",), NUMBER),
    Field("usage_factor", "UsageFactor", ("usage_factor",), NUMBER),
    Field("limit_factor", "LimitFactor", ("limits", "factor"), NUMBER),
    Field("group_tres", "GrpTRES", (*_TRES, "total"), TRES),
    Field("group_tres_minutes", "GrpTRESMins", (*_TRES, "minutes", "total"), TRES),
    Field("group_tres_run_minutes", "GrpTRESRunMins", (*_MINUTES, "qos"), TRES),
    Field("group_jobs", "GrpJobs", (*_MAX, "active_jobs", "count"), INT),
    Field("group_jobs_accrue", "GrpJobsAccrue", (*_MAX, "active_jobs", "accruing"), INT),
    Field("group_submit_jobs", "GrpSubmit", (*_JOBS, "count"), INT),
    Field("group_wall_s", "GrpWall", (*_MAX, "wall_clock", "per", "qos"), MINUTES),
    Field("max_tres_per_job", "MaxTRES", (*_TRES, "per", "job"), TRES),
    Field("max_tres_per_node", "MaxTRESPerNode", (*_TRES, "per", "node"), TRES),
    Field("max_tres_minutes_per_job", "MaxTRESMins", (*_MINUTES, "job"), TRES),
    Field("max_wall_per_job_s", "MaxWall", (*_MAX, "wall_clock", "per", "job"), MINUTES),
    Field("max_tres_per_user", "MaxTRESPU", (*_TRES, "per", "user"), TRES),
    Field("max_jobs_per_user", "MaxJobsPU", (*_JOBS, "active_jobs", "per", "user"), INT),
    Field("max_jobs_accrue_per_user", "MaxJobsAccruePU", (*_MAX, "accruing", "per", "user"), INT),
    Field("max_submit_jobs_per_user", "MaxSubmitPU", (*_JOBS, "per", "user"), INT),
    Field("max_tres_per_account", "MaxTRESPA", (*_TRES, "per", "account"), TRES),
    Field("max_tres_run_minutes_per_account", "MaxTRESRunMinsPA", (*_MINUTES, "account"), TRES),
    Field("max_tres_run_minutes_per_user", "MaxTRESRunMinsPU", (*_MINUTES, "user"), TRES),
    Field("max_jobs_per_account", "MaxJobsPA", (*_JOBS, "active_jobs", "per", "account"), INT),
    Field("max_jobs_accrue_per_account", "MaxJobsAccruePA", (*_MAX, "accruing", "per", "account"), INT),
    Field("max_submit_jobs_per_account", "MaxSubmitPA", (*_JOBS, "per", "account"), INT),
    Field("min_priority_threshold", "MinPrioThres", ("limits", "min", "priority_threshold"), INT),
    Field("min_tres_per_job", "MinTRES", ("limits", "min", "tres", "per", "job"), TRES),
    Field("description", "Descr", ("description",), TEXT),  # last: people write it, with any signs
)
FORMAT = ",".join("Description" if field.heading == "Descr" else field.heading or "" for field in FIELDS)


async def collect(clients: Clients) -> Table:
    """Ask for all of them."""
    return await clients.ask(
        NAME,
        (
            Way("rest", ("slurmdb", "qos"), parse_json),
            Way("json", ("sacctmgr", "show", "qos"), parse_json),
            Way("text", ("sacctmgr", "--parsable2", "show", "qos", f"format={FORMAT}"), parse_text),
            # Versions that lack one of these refuse all of them.
            Way("text", ("sacctmgr", "--parsable2", "show", "qos"), parse_text),
        ),
    )


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    value = jsonfix.loads(data).value
    try:
        found = rows_of(value, NAME)
    except ParseError:
        if "QOS" not in value:
            raise
        found = rows_of(value, "QOS")  # v0.0.38
    return from_json(NAME, FIELDS, found, version_of(value))


def parse_text(data: bytes) -> Table:
    """Return the table of ``sacctmgr --parsable2 show qos``. Raises ParseError."""
    return from_text(NAME, FIELDS, data)


COLLECTOR = Collector(NAME, 3600.0, collect, lane="slurmdbd")
