"""`heeler slurm`: what the parsers make of a text."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from datetime import tzinfo
from math import inf, isinf
from typing import Any

import click

from heeler.bus import ConfigError
from heeler.slurm import hostlist, jobid, jobs, jobsjson, jsonfix, jsonnumbers, nodes, state, text, times
from heeler.slurm.backfillcli import backfill
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import gpu_count, parse_gres
from heeler.slurm.jobsscontrol import parse_jobs_scontrol
from heeler.slurm.kinds import KINDS, is_json
from heeler.slurm.oneliner import entries
from heeler.slurm.publishcli import publish
from heeler.slurm.rows import Unreadable
from heeler.slurm.saved import parse_saved_sacct
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.tres import parse_tres

CLUSTER = "local"


@click.group("slurm")
def slurm_cli() -> None:
    """Look at Slurm's output as Heeler reads it."""


slurm_cli.add_command(backfill)
slurm_cli.add_command(publish)


@slurm_cli.command("parse")
@click.argument(
    "kind",
    type=click.Choice(
        [
            "hostlist",
            "fold",
            "gres",
            "tres",
            "state",
            "jobstate",
            "partition",
            "time",
            "duration",
            "timestamp",
            "number",
            "jobid",
            "squeue",
            "sacct",
            "nodes",
            "jobs",
            *KINDS,
        ]
    ),
)
@click.option("--fields", help=f"Fields of text rows; squeue: {','.join(text.SQUEUE_FIELDS)}, sacct: its header.")
@click.option("--delimiter", default="|", show_default=True, help="squeue, sacct: what stands between fields.")
@click.option("--end", help="squeue: the mark that ends each row.")
@click.option("--zone", help="The controller's time zone, such as Europe/Berlin; this machine's otherwise.")
@click.option("--cluster", default=CLUSTER, show_default=True, help="jobs, nodes: cluster name in the messages.")
def parse(kind: str, fields: str | None, delimiter: str, end: str | None, zone: str | None, cluster: str) -> None:
    """Read standard input, write JSON lines; exit status 1 where a text can't be read.

    squeue, sacct, nodes and jobs read one whole answer (JSON, or text: for nodes and jobs that of scontrol show); so do
    the kinds that are called after a table, sinfo and sdiag. The others read a text per line.
    """
    try:
        where = SlurmSettings(controller_zone=zone).zone()
    except ConfigError as err:
        raise click.ClickException(str(err)) from None
    source = sys.stdin.buffer.read().decode(errors="replace")
    if kind == "squeue":
        names = list(text.SQUEUE_FIELDS) if fields is None else fields.split(",")
        results = _squeue(source, names, delimiter, end, cluster)
    elif kind == "sacct":
        results = _sacct(source, fields.split(",") if fields else [], delimiter, where, cluster)
    elif kind == "jobs":
        results = _jobs(source, where, cluster)
    elif kind == "nodes":
        results = _nodes(source, where, cluster)
    elif kind in KINDS:
        results = _whole(kind, source, where)
    else:
        results = _lines(source, LINES[kind], where)
    faults = 0
    for found in results:
        if isinstance(found, str):
            faults += 1
            click.echo(f"heeler slurm parse {kind}: {found}", err=True)
        else:
            click.echo(json.dumps(plain(found), ensure_ascii=False))
    sys.exit(1 if faults else 0)


def plain(value: Any) -> Any:
    """Return a value as JSON has it; infinity is the word "infinity"."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return "infinity" if isinstance(value, float) and isinf(value) else value


# A result, or the words of a fault.
Results = Iterator[Any]
Line = Callable[[str, tzinfo], dict[str, Any]]


def _lines(source: str, read: Line, zone: tzinfo) -> Results:
    for line in source.splitlines() or [""]:
        try:
            yield {"input": line, **read(line, zone)}
        except ParseError as err:
            yield str(err)


def _squeue(source: str, fields: list[str], delimiter: str, end: str | None, cluster: str) -> Results:
    if source.lstrip().startswith("{"):
        yield from _messages(jobsjson.parse_jobs_json, source, cluster)
        return
    try:
        found = text.split_rows(source, fields, delimiter=delimiter, end=end)
    except ParseError as err:
        yield str(err)
        return
    yield from found.rows
    for line in found.unparsed:
        if _beside_rows(line, len(fields), delimiter, any_rows=bool(found.rows)):
            click.echo(f"heeler slurm parse squeue: ignored, no row: {line!r}", err=True)
        else:
            yield str(ParseError("not a row of squeue", line))


def _beside_rows(line: str, count: int, delimiter: str, *, any_rows: bool) -> bool:
    """Whether a line that is no row is nothing to worry about: the header, or a warning beside rows.

    Words in the place of all rows are a fault, as an outage is no empty queue; so is a row without its id or its last
    fields.
    """
    if line.count(delimiter) >= count - 1:
        return line == line.upper() and not any(mark.isdigit() for mark in line)
    return any_rows and not text.begins_with_id(line, delimiter)


def _jobs(source: str, zone: tzinfo, cluster: str) -> Results:
    if is_json(source):
        return _messages(jobsjson.parse_jobs_json, source, cluster)
    return _messages(lambda told: parse_jobs_scontrol(told, zone), source, cluster)


def _messages(read: Callable[[str], jobs.JobsAnswer], source: str, cluster: str) -> Results:
    try:
        answer = read(source)
    except ParseError as err:
        yield str(err)
        return
    for job in answer.jobs:
        if job.state.holds:
            yield jobs.job_message(job, cluster=cluster, event="started", ts_ns=job.start_ts_ns or 0)
        elif job.state.name == "UNKNOWN":
            yield f"job {job.id}: {ParseError('not a job state', job.state.raw)}"
    yield from (f"job {row.name or '?'}: {row.why}" for row in answer.unreadable)


def _sacct(source: str, fields: list[str], delimiter: str, zone: tzinfo, cluster: str) -> Results:
    try:
        found = parse_saved_sacct(source, zone=zone, delimiter=delimiter, fields=fields)
    except ParseError as err:
        yield str(err)
        return
    yield from ({**record, "cluster": cluster} for record in found.records)
    yield from (f"job {row.name or '?'}: {row.why}" for row in found.unreadable)


def _nodes(source: str, zone: tzinfo, cluster: str) -> Results:
    try:
        answer = (
            nodes.parse_nodes_json(source)
            if is_json(source)  # warnings may stand before either form
            else nodes.parse_nodes_text("\n".join(entries(source)), zone)  # also without --oneliner
        )
    except ParseError as err:
        yield str(err)
        return
    for node in answer.nodes:
        message = nodes.node_message(node, cluster=cluster, event="seen", ts_ns=0)
        yield {**message, "drained": node.state.drained, "draining": node.state.draining}
    yield from (f"node {row.name or '?'}: {row.why}" for row in answer.unreadable)
    if not source.strip():
        yield str(ParseError("empty answer", source))  # scontrol has words for a cluster without nodes


def _whole(kind: str, source: str, zone: tzinfo) -> Results:
    try:
        for found in KINDS[kind](source, zone):
            if isinstance(found, Unreadable):
                yield f"{found.name or '?'}: {found.why}"
            else:
                yield str(found) if isinstance(found, ParseError) else found
    except ParseError as err:
        yield str(err)


def _hostlist(line: str, _zone: tzinfo) -> dict[str, Any]:
    names = hostlist.expand(line)
    return {"names": names, "count": len(set(names))}


def _fold(line: str, _zone: tzinfo) -> dict[str, Any]:
    return {"hostlist": hostlist.fold(line.replace(",", " ").split())}


def _gres(line: str, _zone: tzinfo) -> dict[str, Any]:
    found = parse_gres(line)
    return {"gres": found, "gpus": gpu_count(found)}


def _tres(line: str, _zone: tzinfo) -> dict[str, Any]:
    found = parse_tres(line)
    return {**asdict(found), "cpus": found.cpus, "nodes": found.nodes}


def _state(line: str, _zone: tzinfo) -> dict[str, Any]:
    """Read a node's state; a word that no node has, but a job, as a job's."""
    found = state.parse_node_state(line)
    if found.base == "UNKNOWN" and found.unparsed and state.parse_job_state(line).name != "UNKNOWN":
        return {"of": "job", **_jobstate(line, _zone)}
    return {
        "of": "node",
        **asdict(found),
        "drained": found.drained,
        "draining": found.draining,
        "available": found.available,
    }


def _jobstate(line: str, _zone: tzinfo) -> dict[str, Any]:
    found = state.parse_job_state(line)
    return {**asdict(found), "holds": found.holds, "ended": found.ended}


def _time(line: str, zone: tzinfo) -> dict[str, Any]:
    """Read a duration where it is one, else a timestamp."""
    try:
        found = _duration(line, zone)
    except ParseError:
        return _timestamp(line, zone)
    return found if found["seconds"] else {**found, "ts": None, "utc": None}


def _duration(line: str, _zone: tzinfo) -> dict[str, Any]:
    seconds = times.parse_duration(line)
    return {"seconds": seconds, "unlimited": seconds == inf}


def _timestamp(line: str, zone: tzinfo) -> dict[str, Any]:
    stamp = times.parse_timestamp(line, zone)
    return {"ts": stamp, "utc": None if stamp is None else times.utc_text(stamp)}


def _number(line: str, _zone: tzinfo) -> dict[str, Any]:
    word = line.strip()
    value: Any = jsonfix.loads(word).value if word.startswith("{") else word
    if len(word) > 1 and word.startswith('"') and word.endswith('"'):
        value = word[1:-1]
    return {"number": jsonnumbers.number(value), "number_16_bits": jsonnumbers.number(value, bits16=True)}


def _jobid(line: str, _zone: tzinfo) -> dict[str, Any]:
    found = jobid.parse_job_id(line)
    return {**asdict(found), "task_count": found.task_count}


LINES: dict[str, Line] = {
    "hostlist": _hostlist,
    "fold": _fold,
    "gres": _gres,
    "tres": _tres,
    "state": _state,
    "jobstate": _jobstate,
    "partition": lambda line, _zone: asdict(state.parse_partition(line)),
    "time": _time,
    "duration": _duration,
    "timestamp": _timestamp,
    "number": _number,
    "jobid": _jobid,
}
