"""Partitions: from ``scontrol show partition`` as text or JSON to the table `partitions`.

From v0.0.39 on JSON does not say which partition is the default one, which are hidden, how jobs are preempted, and
more; text says all of it in every version, so text is asked for first. slurmrestd has only JSON: where it answers, what
it leaves out is taken from the text, if scontrol answers here as well, and is absent otherwise.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isinf
from typing import Any

from heeler.bus.tables_gen import TABLES
from heeler.slurm import jsonfix, oneliner
from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import ParseError, SlurmError
from heeler.slurm.fields import MIB, minutes, seconds
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jsonnumbers import integer, number
from heeler.slurm.oneliner import value
from heeler.slurm.rows import map_in, name_in, optional, read_each, rows_of, version_of, words
from heeler.slurm.times import parse_duration
from heeler.slurm.tres import parse_tres

NAME = "partitions"
KEY = "partition"
NOT_IN_JSON = "not told in JSON"
_WEIGHT = re.compile(r"(\d{1,12}(?:\.\d{0,12})?)([KMGTP]?)", re.IGNORECASE | re.ASCII)
_UNITS = " KMGTP"


async def collect(clients: Clients) -> Table:
    """Ask for all partitions, in text too where slurmrestd has left something out."""
    text = Way("text", ("scontrol", "--all", "--oneliner", "show", "partitions"), parse_text)
    ways = (
        Way("rest", ("slurm", "partitions"), parse_json),
        text,
        Way("json", ("scontrol", "--all", "show", "partitions"), parse_json),
    )
    table = await clients.ask(NAME, ways)
    if not table.absent or clients.settings.source != "auto":
        return table
    with suppress(SlurmError):  # what slurmrestd said stands
        table = filled(table, await clients.ask(f"{NAME} as text", (text,)))
    return table


def filled(table: Table, other: Table) -> Table:
    """Return a table with the columns that only another has; a partition that the other lacks has null there."""
    names = [name for name in table.absent if name in other.columns]
    at = {partition: row for row, partition in enumerate(other.columns[KEY])}
    rows = [at.get(partition) for partition in table.columns[KEY]]
    more = {name: [None if row is None else other.columns[name][row] for row in rows] for name in names}
    absent = {name: why for name, why in table.absent.items() if name not in more}
    source = f"{table.source}, {other.source}" if more else table.source
    return replace(table, columns={**table.columns, **more}, absent=absent, source=source)


def parse_json(data: bytes) -> Table:
    """Return the table of a JSON answer. Raises ParseError."""
    answer = jsonfix.loads(data).value
    rows, unreadable = read_each(rows_of(answer, NAME), _from_json, name_in)
    told = {column for row in rows for column in row}
    absent = {column: NOT_IN_JSON for column in TABLES[NAME].columns if column not in told} if rows else {}
    return table_of(NAME, rows, absent=absent, unreadable=unreadable, version=version_of(answer))


def parse_text(data: bytes) -> Table:
    """Return the table of ``scontrol --oneliner show partitions``. Raises ParseError."""
    return oneliner.table(NAME, data, "PartitionName", _from_text, "No partitions")


def billing_weights(text: str | None) -> dict[str, float] | None:
    """Return what Slurm bills for one of each resource; for memory, one GiB. Raises ParseError.

    A unit behind a weight, as in ``Mem=0.25G``, says what it is for; memory without one is for a MiB.
    """
    found: dict[str, float] = {}
    for part in words(text):
        name, equals, amount = part.partition("=")
        weight = _WEIGHT.fullmatch(amount)
        if not equals or not name or not weight:
            raise ParseError("not a billing weight", part)
        key = name if "/" in name and not name.isupper() else name.lower()
        key = re.sub(r"^gres/", "gres/", key, flags=re.IGNORECASE)
        # In units of 1024: a MiB is 2 of them where nothing else is said, and a GiB 3.
        power = _UNITS.index(weight[2].upper()) if weight[2] else 2 if key == "mem" else 0
        found[key] = float(weight[1]) * 1024.0 ** ((3 if key == "mem" else 0) - power)
    return found or None


def _from_json(row: Any) -> dict[str, Any]:
    name = row.get("name") if isinstance(row, dict) else None
    if not isinstance(name, str) or not name:
        raise ParseError("a partition without a name", row)
    return {"partition": name, **(_from_maps(row) if isinstance(row.get("nodes"), dict) else _from_v38(row))}


def _from_maps(row: dict[str, Any]) -> dict[str, Any]:
    """Read v0.0.39 and later, which keep related values in maps of their own."""
    nodes, limits, defaults = map_in(row, "nodes"), map_in(row, "maximums"), map_in(row, "defaults")
    state, over = map_in(row, "partition").get("state"), map_in(limits, "oversubscribe")
    accounts, qos = map_in(row, "accounts"), map_in(row, "qos")
    return {
        "state": "+".join(words(state)) or None,
        "nodes": list(expand_set(optional(nodes, "configured"))),
        "node_count": integer(nodes.get("total")),
        "cpus": integer(map_in(row, "cpus").get("total")),
        **_time_limit(number(limits.get("time"))),
        "default_time_s": minutes(defaults.get("time")),
        "over_time_s": minutes(limits.get("over_time_limit")),
        "min_nodes": integer(map_in(row, "minimums").get("nodes")),
        "max_nodes": integer(limits.get("nodes")),
        "max_cpus_per_node": integer(limits.get("cpus_per_node")),
        "default_mem_per_cpu_bytes": _mib(defaults.get("partition_memory_per_cpu")),
        "default_mem_per_node_bytes": _mib(defaults.get("partition_memory_per_node")),
        "max_mem_per_cpu_bytes": _mib(limits.get("partition_memory_per_cpu")),
        "max_mem_per_node_bytes": _mib(limits.get("partition_memory_per_node")),
        "priority_tier": integer(map_in(row, "priority").get("tier")),
        "priority_job_factor": integer(map_in(row, "priority").get("job_factor")),
        "grace_s": integer(row.get("grace_time")),
        "oversubscribe": _oversubscribe(integer(over.get("jobs")), words(over.get("flags"))),
        "qos": optional(qos, "assigned"),
        "allow_qos": _allowed(qos.get("allowed")),
        "deny_qos": list(words(qos.get("deny"))),
        "allow_accounts": _allowed(accounts.get("allowed")),
        "deny_accounts": list(words(accounts.get("deny"))),
        "allow_groups": _allowed(map_in(row, "groups").get("allowed")),
        "alternate": optional(row, "alternate"),
        "job_defaults": optional(defaults, "job"),
        "tres": parse_tres(optional(map_in(row, "tres"), "configured")).values or None,
        "billing_weights": billing_weights(optional(map_in(row, "tres"), "billing_weights")),
    }


def _from_v38(row: dict[str, Any]) -> dict[str, Any]:
    flags = [word.lower() for word in words(row.get("flags"))]
    return {
        "is_default": "default" in flags,
        "state": optional(row, "state"),
        "nodes": list(expand_set(optional(row, "nodes"))),
        "node_count": integer(row.get("total_nodes")),
        "cpus": integer(row.get("total_cpus")),
        **_time_limit(number(row.get("max_time_limit"))),
        "default_time_s": minutes(row.get("default_time_limit")),
        "over_time_s": minutes(row.get("over_time_limit")),
        "min_nodes": integer(row.get("min nodes per job")),
        "max_nodes": integer(row.get("maximum_nodes_per_job")),
        "max_cpus_per_node": integer(row.get("maximum_cpus_per_node")),
        "default_mem_per_cpu_bytes": _mib(row.get("default_memory_per_cpu")),
        "default_mem_per_node_bytes": _mib(row.get("default_memory_per_node")),
        "max_mem_per_cpu_bytes": _mib(row.get("maximum_memory_per_cpu")),
        "max_mem_per_node_bytes": _mib(row.get("maximum_memory_per_node")),
        "priority_tier": integer(row.get("priority_tier")),
        "priority_job_factor": integer(row.get("priority_job_factor")),
        "grace_s": integer(row.get("preemption_grace_time")),
        "qos": optional(row, "qos"),
        "allow_qos": _allowed(row.get("allowed_qos")),
        "deny_qos": list(words(row.get("denied_qos"))),
        "allow_accounts": _allowed(row.get("allowed_accounts")),
        "deny_accounts": list(words(row.get("denied_accounts"))),
        "allow_groups": _allowed(row.get("allowed_groups")),
        "alternate": optional(row, "alternative"),
        "tres": parse_tres(optional(row, "tres")).values or None,
        "billing_weights": billing_weights(optional(row, "billing_weights")),
    }


def _from_text(found: Mapping[str, str]) -> dict[str, Any]:
    if not found["PartitionName"]:
        raise ParseError("a partition without a name", str(found))
    limit = parse_duration(found["MaxTime"]) if "MaxTime" in found else None
    yes_no = {"is_default": "Default", "hidden": "Hidden", "root_only": "RootOnly", "reservation_only": "ReqResv"}
    return {
        "partition": found["PartitionName"],
        **{column: {"YES": True, "NO": False}.get(found.get(key, "")) for column, key in yes_no.items()},
        "state": value(found, "State"),
        "nodes": list(expand_set(value(found, "Nodes"))),
        "node_count": integer(found.get("TotalNodes")),
        "cpus": integer(found.get("TotalCPUs")),
        "max_time_s": None if limit is None or isinf(limit) else limit,
        "time_unlimited": None if limit is None else isinf(limit),
        "default_time_s": seconds(found.get("DefaultTime", "")),
        "over_time_s": seconds(found.get("OverTimeLimit", "")),
        "min_nodes": integer(found.get("MinNodes")),
        "max_nodes": integer(found.get("MaxNodes")),
        "max_cpus_per_node": integer(found.get("MaxCPUsPerNode")),
        "default_mem_per_cpu_bytes": _mib(found.get("DefMemPerCPU")),
        "default_mem_per_node_bytes": _mib(found.get("DefMemPerNode")),
        "max_mem_per_cpu_bytes": _mib(found.get("MaxMemPerCPU")),
        "max_mem_per_node_bytes": _mib(found.get("MaxMemPerNode")),
        "priority_tier": integer(found.get("PriorityTier")),
        "priority_job_factor": integer(found.get("PriorityJobFactor")),
        "preempt_mode": value(found, "PreemptMode"),
        "grace_s": integer(found.get("GraceTime")),
        "oversubscribe": value(found, "OverSubscribe"),
        "exclusive_user": {"YES": True, "NO": False}.get(found.get("ExclusiveUser", "")),
        "qos": value(found, "QoS"),
        "allow_qos": _allowed(found.get("AllowQos")),
        "deny_qos": list(words(found.get("DenyQos"))),
        "allow_accounts": _allowed(found.get("AllowAccounts")),
        "deny_accounts": list(words(found.get("DenyAccounts"))),
        "allow_groups": _allowed(found.get("AllowGroups")),
        "alternate": value(found, "Alternate"),
        "job_defaults": value(found, "JobDefaults"),
        "select_type_parameters": value(found, "SelectTypeParameters"),
        "tres": parse_tres(found.get("TRES")).values or None,
        "billing_weights": billing_weights(found.get("TRESBillingWeights")),
    }


def _time_limit(limit_minutes: float | None) -> dict[str, Any]:
    endless = limit_minutes is not None and isinf(limit_minutes)
    return {
        "max_time_s": None if limit_minutes is None or endless else limit_minutes * 60,
        "time_unlimited": None if limit_minutes is None else endless,
    }


def _mib(told: Any) -> int | None:
    """Return bytes; 0 MiB is no limit."""
    found = integer(told)
    return found * MIB if found else None


def _allowed(told: Any) -> list[str] | None:
    """Return names; None where all may."""
    found = list(words(told))
    return None if not found or found == ["ALL"] else found


def _oversubscribe(jobs: int | None, flags: Sequence[str]) -> str | None:
    """Return it as the text has it."""
    if jobs is None:
        return None
    if jobs == 0:
        return "EXCLUSIVE"
    if "force" in (flag.lower() for flag in flags):
        return f"FORCE:{jobs}"
    return "NO" if jobs == 1 else f"YES:{jobs}"


COLLECTOR = Collector(NAME, 300.0, collect)
