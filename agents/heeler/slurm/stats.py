"""The table `stats`: sums over jobs and nodes that were asked for anyway, for the cluster, partitions and accounts.

Each node counts once in a row, in however many partitions it is. A sum is null where a part of it is not known: less
than all would look like a number. So while a row of jobs (or of nodes) can't be read, nobody knows which sums it is
missing from, and all of jobs (or of nodes) are null. Sums over nothing are 0; means of nothing are null.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from heeler.slurm.collect import Table, table_of
from heeler.slurm.packed import some_of
from heeler.slurm.statjobs import Ends, JobRow, JobSums, end_sums
from heeler.slurm.statnodes import NodeRow, node_sums

NAME = "stats"
Scope = tuple[str, str | None, str | None]  # cluster, partition, account or partition_account; partition; account
CLUSTER: Scope = ("cluster", None, None)


def stats_table(jobs: Table, nodes: Table | None, now_ns: int, ends: Ends | None = None) -> Table:
    """Return the table `stats` from those of jobs and of nodes (None: not known now), and ends of the last hour."""
    rows = stats(
        (JobRow(*values) for values in rows_of(jobs, JobRow._fields)),
        None if nodes is None else [NodeRow(*values) for values in rows_of(nodes, NodeRow._fields)],
        now_ns,
        ends,
        jobs_unreadable=len(jobs.unreadable),
        nodes_unreadable=0 if nodes is None else len(nodes.unreadable),
    )
    unreadable = (*jobs.unreadable, *(nodes.unreadable if nodes is not None else ()))
    return table_of(NAME, rows, unreadable=unreadable, version=jobs.version)


def stats(
    jobs: Iterable[JobRow],
    nodes: Sequence[NodeRow] | None,
    now_ns: int,
    ends: Ends | None = None,
    *,
    jobs_unreadable: int = 0,
    nodes_unreadable: int = 0,
) -> list[dict[str, Any]]:
    """Return the rows of `stats` from rows of `jobs` and `nodes`, and what accounting says of the last hour."""
    of_nodes, of_jobs, of_ends = _by_node_scope(nodes or ()), _by_job_scope(jobs), _by_end_scope(ends)
    every = sorted({*of_nodes, *of_jobs, *of_ends}, key=lambda scope: (scope[0], scope[1] or "", scope[2] or ""))
    unknown_nodes = nodes is None or nodes_unreadable
    rows: list[dict[str, Any]] = []
    for scope in every:
        row: dict[str, Any] = {"scope": scope[0], "partition": scope[1], "account": scope[2]}
        row |= {"jobs_unreadable": jobs_unreadable, "nodes_unreadable": None if nodes is None else nodes_unreadable}
        if not unknown_nodes and scope[0] in ("cluster", "partition"):
            row |= node_sums(of_nodes.get(scope, ()))
        if not jobs_unreadable:
            row |= of_jobs.get(scope, JobSums()).sums(now_ns)
        if ends is not None:
            row |= end_sums(ends.window_s, of_ends.get(scope, Counter()))
        rows.append(row)
    return rows


def _by_node_scope(nodes: Iterable[NodeRow]) -> dict[Scope, list[NodeRow]]:
    found: dict[Scope, list[NodeRow]] = {CLUSTER: []}
    for node in nodes:
        for scope in (CLUSTER, *(("partition", name, None) for name in dict.fromkeys(node.partitions or ()))):
            found.setdefault(scope, []).append(node)
    return found


def _by_job_scope(jobs: Iterable[JobRow]) -> dict[Scope, JobSums]:
    found: dict[Scope, JobSums] = {CLUSTER: JobSums()}
    for job in jobs:
        for scope in scopes(job.partition, job.account):
            found.setdefault(scope, JobSums()).add(job)
    return found


def _by_end_scope(ends: Ends | None) -> dict[Scope, Counter[str]]:
    found: dict[Scope, Counter[str]] = {}
    for state, partition, account in ends.runs if ends else ():
        for scope in scopes(partition, account):
            found.setdefault(scope, Counter())[state] += 1
    return found


def rows_of(table: Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return some columns of a table as rows; a column that is absent is None everywhere."""
    nothing = [None] * table.rows
    found = some_of(table.columns, names)
    return zip(*(found.get(name, nothing) for name in names), strict=True)


def scopes(partitions: str | None, account: str | None) -> Iterable[Scope]:
    """Return where a job counts: a waiting one may name several partitions, and counts in each."""
    found: list[Scope] = [CLUSTER]
    names = list(dict.fromkeys(name for name in (partitions or "").split(",") if name))
    found += [("partition", name, None) for name in names]
    if account:
        found.append(("account", None, account))
        found += [("partition_account", name, account) for name in names]
    return found
