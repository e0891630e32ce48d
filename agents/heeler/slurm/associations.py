"""Associations: which user may use which account in which partition, with shares and limits. One question for all."""

from typing import Any

from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table
from heeler.slurm.fields import (
    INT,
    MINUTES,
    NAMES,
    SHARES_OF_PARENT,
    TEXT,
    TRES,
    Field,
    Kind,
    from_json_answer,
    from_text,
)
from heeler.slurm.jsonnumbers import integer

NAME = "associations"


def shares(value: Any) -> int | None:
    """Return shares; None where the parent's count. Raises ParseError."""
    if value == "parent":
        return None
    found = integer(value)
    return None if found == SHARES_OF_PARENT else found


def of_parent(value: Any) -> bool | None:
    """Say whether the parent's shares count. Raises ParseError."""
    if value == "parent":
        return True
    found = integer(value)
    return None if found is None else found == SHARES_OF_PARENT


def _id(value: Any) -> int | None:
    # v0.0.40 has a map here, v0.0.42 of some versions 0.
    return integer(value.get("id") if isinstance(value, dict) and "set" not in value else value) or None


_MAX = ("max",)
_PER = ("max", "jobs", "per")
_TRES = ("max", "tres")
FIELDS = (
    Field("account", "Account", ("account",), TEXT),
    Field("user", "User", ("user",), TEXT),
    Field("partition", "Partition", ("partition",), TEXT),
    Field("slurm_cluster", "Cluster", ("cluster",), TEXT),
    Field("association_id", "ID", ("id",), Kind(integer, _id)),
    Field("parent", "ParentName", ("parent_account",), TEXT),
    Field("shares", "Share", ("shares_raw",), Kind(shares, shares)),
    Field("shares_of_parent", "Share", ("shares_raw",), Kind(of_parent, of_parent)),
    Field("priority", "Priority", ("priority",), INT),
    Field("qos", "QOS", ("qos",), NAMES),
    Field("default_qos", "Def QOS", ("default", "qos"), TEXT),
    Field("group_jobs", "GrpJobs", (*_PER, "count"), INT),
    Field("group_jobs_accrue", "GrpJobsAccrue", (*_PER, "accruing"), INT),
    Field("group_submit_jobs", "GrpSubmit", (*_PER, "submitted"), INT),
    Field("group_wall_s", "GrpWall", (*_MAX, "per", "account", "wall_clock"), MINUTES),
    Field("group_tres", "GrpTRES", (*_TRES, "total"), TRES),
    Field("group_tres_minutes", "GrpTRESMins", (*_TRES, "group", "minutes"), TRES),
    Field("group_tres_run_minutes", "GrpTRESRunMins", (*_TRES, "group", "active"), TRES),
    Field("max_jobs", "MaxJobs", (*_MAX, "jobs", "active"), INT),
    Field("max_jobs_accrue", "MaxJobsAccrue", (*_MAX, "jobs", "accruing"), INT),
    Field("max_submit_jobs", "MaxSubmit", (*_MAX, "jobs", "total"), INT),
    Field("max_wall_per_job_s", "MaxWall", (*_PER, "wall_clock"), MINUTES),
    Field("max_tres_per_job", "MaxTRES", (*_TRES, "per", "job"), TRES),
    Field("max_tres_per_node", "MaxTRESPerNode", (*_TRES, "per", "node"), TRES),
    Field("max_tres_minutes_per_job", "MaxTRESMins", (*_TRES, "minutes", "per", "job"), TRES),
    Field("min_priority_threshold", "MinPrioThres", ("min", "priority_threshold"), INT),
)
FORMAT = ",".join(
    dict.fromkeys("DefaultQOS" if field.heading == "Def QOS" else field.heading or "" for field in FIELDS)
)


async def collect(clients: Clients) -> Table:
    """Ask for all of them."""
    return await clients.ask(
        NAME,
        (
            Way("rest", ("slurmdb", "associations"), parse_json),
            Way("json", ("sacctmgr", "show", "associations"), parse_json),
            Way("text", ("sacctmgr", "--parsable2", "show", "associations", f"format={FORMAT}"), parse_text),
        ),
    )


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    return from_json_answer(NAME, FIELDS, data)


def parse_text(data: bytes) -> Table:
    """Return the table of ``sacctmgr --parsable2 show associations``. Raises ParseError."""
    return from_text(NAME, FIELDS, data)


COLLECTOR = Collector(NAME, 3600.0, collect, lane="slurmdbd")
