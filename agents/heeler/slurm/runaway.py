"""Runaway jobs: those that accounting has as running and slurmctld doesn't know. Only counted, never repaired here.

sacctmgr asks at the end whether it shall repair them: it is told no. Without an operator's rights it ends with an
error: then nothing is known, which is no 0.
"""

from datetime import tzinfo
from itertools import takewhile
from typing import Any

from heeler.slurm.clients import Clients
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.fields import word
from heeler.slurm.rows import read_each
from heeler.slurm.times import parse_timestamp

NAME = "runaway"
NOTHING = "Runaway Jobs: No runaway jobs found"
COLUMNS = ("ID", "Partition", "Cluster", "State", "TimeSubmit", "TimeStart", "TimeEnd", "Name")  # the name may hold "|"
ARGV = ("sacctmgr", "--parsable2", "--readonly", "show", "runawayjobs", f"format={','.join(COLUMNS)}")
NO = b"N\n"


async def collect(clients: Clients) -> Table:
    """Ask for them, and say no to what sacctmgr asks."""
    done = await clients.run(ARGV, clients.settings.accounting_timeout_s, answer=NO)
    table = parse_text(done.stdout, clients.zone)
    return Table(table.columns, table.rows, table.absent, table.unreadable, source="sacctmgr")


def parse_text(data: bytes, zone: tzinfo) -> Table:
    """Return the table of ``sacctmgr --parsable2 show runawayjobs``; `zone` is this machine's. Raises ParseError."""
    text = data.decode(errors="replace")
    lines = text.splitlines()
    if any(line.startswith(NOTHING) for line in lines):
        return table_of(NAME, [])
    start = next((at for at, line in enumerate(lines) if line.startswith("ID|Partition|")), None)
    if start is None or lines[start].count("|") != len(COLUMNS) - 1:
        raise ParseError("not what sacctmgr says of runaway jobs" if text.strip() else "empty answer", text.strip())
    told = takewhile(str.strip, lines[start + 1 :])  # the question follows
    rows, unreadable = read_each(told, lambda line: _row(line, zone), lambda line: line.split("|", 1)[0] or None)
    return table_of(NAME, rows, unreadable=unreadable)


def _row(line: str, zone: tzinfo) -> dict[str, Any]:
    values = line.split("|", len(COLUMNS) - 1)
    if len(values) != len(COLUMNS) or not values[0].strip()[:1].isdigit():
        raise ParseError("not a job", line)
    job_id, partition, cluster, state, submit, start, end, name = values
    return {
        "job_id": job_id.strip(),
        "name": word(name),
        "partition": word(partition),
        "slurm_cluster": word(cluster),
        "state": word(state),
        "submit_ts": parse_timestamp(submit, zone),
        "start_ts": parse_timestamp(start, zone),
        "end_ts": parse_timestamp(end, zone),
    }


COLLECTOR = Collector(NAME, 3600.0, collect, lane="slurmdbd")
