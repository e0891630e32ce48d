"""Jobs from the text of ``scontrol show job``, with ``-d`` or ``--oneliner`` or neither: what people paste and save.

The feed never asks so: free text stands in the middle of it. What people wrote ends at the next key that Slurm itself
writes there; where that can't be told, the job is unreadable.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Any

from heeler.slurm.errors import ParseError
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jobs import AnyJob, JobsAnswer, parse_job_json
from heeler.slurm.oneliner import pairs, value
from heeler.slurm.rows import Unreadable
from heeler.slurm.times import parse_timestamp

NOTHING = "No jobs in the system"
SECOND_NS = 1_000_000_000
_BEGIN = re.compile(r"JobId=(\d+)(?=\s)")
_NAME = re.compile(r"\sJobName=")
# Behind the name, which in one line may itself look like this.
_OWNER = re.compile(r"\s(?:HetJobIdSet=\S+ )?UserId=\S+\(\d+\) GroupId=\S+\(\d+\) MCS_label=\S+")
_FREE = re.compile(r"\s(?:Command|WorkDir|Comment|AdminComment|SystemComment)=")  # from here on people wrote it
_DETAIL = re.compile(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\d* GRES=(\S*)")
_TEXTS = {
    "user_name": "UserId",
    "account": "Account",
    "qos": "QOS",
    "nodes": "NodeList",
    "job_state": "JobState",
    "restart_cnt": "Restarts",
    "requeue": "Requeue",
    "batch_flag": "BatchFlag",
    "array_job_id": "ArrayJobId",
    "array_task_id": "ArrayTaskId",
    "het_job_id": "HetJobId",
}
_STAMPS = {"submit_time": "SubmitTime", "start_time": "StartTime", "end_time": "EndTime"}
_NEEDED = ("JobState", "NodeList", "SubmitTime")


def parse_jobs_scontrol(text: str, zone: tzinfo) -> JobsAnswer:
    """Return the jobs; `zone` is the controller's. Raises ParseError where the text has no job, nor says so."""
    jobs: list[AnyJob] = []
    unreadable: list[Unreadable] = []
    for entry in _entries(text):
        begin = _BEGIN.match(entry[0])
        if begin is None:
            unreadable.append(Unreadable(None, str(ParseError("not a job", "\n".join(entry)))))
            continue
        try:
            jobs.append(parse_job_json(_row(entry, zone)))
        except ParseError as err:
            unreadable.append(Unreadable(begin[1], str(err)))
    if not jobs and NOTHING not in text and not any(one.name for one in unreadable):
        raise ParseError("no JobId=", text)
    return JobsAnswer(tuple(jobs), tuple(unreadable))


def _entries(text: str) -> Iterator[list[str]]:
    """Yield the lines of each job, or of what stands beside them."""
    entry: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith(NOTHING):
            continue
        if not line[0].isspace() and entry:
            yield entry
            entry = []
        entry.append(line)
    if entry:
        yield entry


def _row(entry: list[str], zone: tzinfo) -> dict[str, Any]:
    """Return a job as the keys of its JSON. Raises ParseError."""
    about, name, rest = _parts(entry)
    free = _FREE.search(rest)
    said = rest[: free.start()] if free else rest
    found = pairs(about) | pairs(said)
    if missing := [key for key in _NEEDED if key not in found]:
        raise ParseError(f"a job without {', '.join(missing)}", " ".join(entry))
    row: dict[str, Any] = {key: value(found, of) for key, of in _TEXTS.items()}
    row |= {"job_id": found["JobId"], "name": name, "shared": _shared(value(found, "OverSubscribe"))}
    row["tres_alloc_str"] = value(found, "AllocTRES" if "AllocTRES" in found else "TRES")
    row["partition"] = (value(found, "Partition") or "").partition(" ")[0] or None  # AllocNode:Sid follows
    row["user_name"] = re.sub(r"\(\d+\)$", "", found.get("UserId", "")) or None
    for key, of in _STAMPS.items():
        ts_ns = parse_timestamp(found.get(of, ""), zone)
        row[key] = None if ts_ns is None else ts_ns // SECOND_NS
    row["gres_detail"] = _details(said, row["nodes"])
    return row


def _parts(entry: list[str]) -> tuple[str, str, str]:
    """Return what stands before the job's name, the name, and what stands behind it. Raises ParseError."""
    head = _NAME.search(entry[0])
    if head is None:
        raise ParseError("a job without JobName", entry[0])
    about, name = entry[0][: head.start()], entry[0][head.end() :]
    if len(entry) > 1:
        return about, name.strip(), "".join(f" {line.strip()}" for line in entry[1:])
    owners = list(_OWNER.finditer(name))
    if len(owners) != 1:
        raise ParseError("where its name ends can't be told" if owners else "a job without UserId", entry[0])
    return about, name[: owners[0].start()], name[owners[0].start() :]


def _details(text: str, nodes: str | None) -> list[str] | None:
    """Return what each node of the job has, in the order of its nodes; None where it is not told of all of them.

    Of a job that has ended each node is said to have nothing, as of one that has no GRES.
    """
    of_node: Mapping[str, str] = {
        node: resources for hosts, resources in _DETAIL.findall(text) for node in expand_set(hosts)
    }
    names = expand_set(nodes)
    told = any(of_node.values()) and of_node.keys() == set(names)
    return [of_node[node] for node in names] if told else None


def _shared(said: str | None) -> str | None:
    return None if said is None else "none" if said == "NO" else said
