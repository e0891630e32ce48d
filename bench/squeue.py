"""All jobs of a large cluster: from squeue's output to encoded messages, beside GCM on the same jobs.

    heeler json42, json38, text   the feed's own command runner, parser, table `jobs` and encoding
    floor42, floor38              only what no reader of the JSON can do without: squeue's pipe, and msgspec's decoding
                                  of the fields that are read
    gcm                           GCM 0.0.2 in an environment of its own: what its `slurm_job_monitor` does with squeue,
                                  from the client to its default sink, stdout, into nothing

A stand-in for squeue prints files that were made before: one job of six runs, the others wait; JSON as 24.11
(data_parser v0.0.42) and 22.05 (openapi v0.0.38) write it, made from recorded rows. Each reader is a process of its
own; CPU is its own (not the stand-in's) without its start, the middle one of some rounds in which all take turns, so
that a slow moment of the machine hits all. Memory: RSS at most, and what of it came after the imports.
The last line is JSON.
"""

import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent import gcm_python

from heeler.slurm.collectors import COLLECTORS
from heeler.slurm.jobstext import FIELDS, Marks
from heeler.slurm.settings import SlurmSettings

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data/slurm"
MARKS = Marks("|bench#", "|bench.")
T0 = 1_796_000_000
GCM_FIELDS = [
    "TRES-PER-NODE",
    "MINCPUS",
    "JOBARRAYID",
    "JOBID",
    "NAME",
    "TIMELIMIT",
    "MINMEMORY",
    "COMMAND",
    "PRIORITY",
    "STATE",
    "USERNAME",
    "NUMCPUS",
    "NUMNODES",
    "TIMELEFT",
    "TIMEUSED",
    "NODELIST",
    "DEPENDENCY",
    "EXCNODES",
    "STARTTIME",
    "SUBMITTIME",
    "ELIGIBLETIME",
    "ACCRUETIME",
    "PENDINGTIME",
    "COMMENT",
    "PARTITION",
    "ACCOUNT",
    "QOS",
    "REASON",
    "TRES-ALLOC",
    "RESERVATION",
    "REQUEUE",
    "FEATURE",
    "RESTARTCNT",
    "SCHEDNODES",
]

WORKER = """
import json, sys, time
from datetime import UTC
from heeler.slurm.command import run_slurm
from heeler.slurm.jobsjson import JobsReader
from heeler.slurm.jobstext import JobsTextReader, Marks
from heeler.slurm.tableparts import payload_of, table_publications
kind, field, row = sys.argv[1:]
def resident_mib(key):
    return int(open("/proc/self/status").read().split(key + ":")[1].split()[0]) / 1024
base_mib = resident_mib("VmRSS")
started, wall = time.process_time(), time.monotonic()
now_ns = 1_796_000_000 * 10**9
text = kind == "text"
reader = (
    JobsTextReader(Marks(field, row), UTC, now_ns=now_ns, with_table=True)
    if text
    else JobsReader(now_ns=now_ns, with_table=True)
)
run_slurm(["squeue", kind], 600.0, take=reader.feed).check()
answer = reader.result()
size = messages = 0
for part in table_publications("c", "f", "jobs", answer.table, ts_ns=now_ns, duration_ns=1, version=None):
    size += len(payload_of(part))
    messages += 1
cpu_s, wall_s = time.process_time() - started, time.monotonic() - wall
assert not answer.unreadable and not answer.table.unreadable, answer.unreadable[:3] + answer.table.unreadable[:3]
print(json.dumps({"jobs": answer.table.rows, "cpu_s": cpu_s, "wall_s": wall_s, "rss_mib": resident_mib("VmHWM"),
                  "base_mib": base_mib, "messages": messages, "bytes": size}))
"""


FLOOR = """
import json, sys, time
from heeler.slurm.command import run_slurm
from heeler.slurm.gcpause import gc_paused
from heeler.slurm.jobrow import decode_rows
from heeler.slurm.jsonstream import ListReader
def resident_mib(key):
    return int(open("/proc/self/status").read().split(key + ":")[1].split()[0]) / 1024
base_mib = resident_mib("VmRSS")
jobs = 0
def take(rows):
    global jobs
    jobs += len(rows)
started = time.process_time()
reader = ListReader("jobs", decode_rows, take)
run_slurm(["squeue", sys.argv[1]], 600.0, take=reader.feed).check()
reader.end()
print(json.dumps({"jobs": jobs, "cpu_s": time.process_time() - started, "rss_mib": resident_mib("VmHWM"),
                  "base_mib": base_mib}))
"""
READERS = {
    "text": (WORKER, "text"),
    "json38": (WORKER, "json38"),
    "json42": (WORKER, "json42"),
    "floor38": (FLOOR, "json38"),
    "floor42": (FLOOR, "json42"),
}


def make_jobs(count: int) -> list[dict[str, Any]]:
    """Return what is true of each job."""
    chance = random.Random(7)
    jobs = []
    for number in range(count):
        nodes, gpus = chance.choice((1, 1, 1, 1, 2, 4, 8, 16)), chance.choice((0, 1, 2, 4, 8, 8))
        first = chance.randrange(1, 9000)
        last = first + nodes - 1
        jobs.append(
            {
                "id": 1_000_000 + number,
                "runs": chance.random() < 1 / 6,
                "task": chance.randrange(500) if chance.random() < 0.3 else None,
                "name": f"{chance.choice(('train', 'eval', 'sweep', 'prep'))}-{chance.randrange(5000)}",
                "user": f"user{chance.randrange(400):03d}",
                "account": f"lab{chance.randrange(40)}",
                "partition": chance.choice(("train", "debug", "long")),
                "nodes": nodes,
                "gpus": gpus,
                "cpus": 16 * nodes,
                "list": f"gn[{first:05d}-{last:05d}]" if nodes > 1 else f"gn{first:05d}",
                "hours": chance.choice((1, 4, 12, 24, 48, 72)),
                "submit": T0 - chance.randrange(5 * 86400),
                "mem": f"{chance.choice((64, 128, 256, 500)) * nodes}G",
                "priority": chance.randrange(1, 100_000),
            }
        )
    return jobs


def tres(job: dict[str, Any]) -> str:
    """Return a job's TRES."""
    gpus = f",gres/gpu={job['gpus'] * job['nodes']}" if job["gpus"] else ""
    return f"cpu={job['cpus']},mem={job['mem']},node={job['nodes']},billing={job['cpus']}{gpus}"


def json_rows(jobs: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """Return an answer made of a recorded running and a recorded waiting job."""
    recorded = json.loads((DATA / version / "squeue_json.json").read_text())
    new = version == "24.11"

    def number(value: int) -> Any:
        return {"set": True, "infinite": False, "number": value} if new else value

    state = {row["job_id"]: row for row in recorded["jobs"]}
    rows = []
    for job in jobs:
        row = copy.copy(state[2] if job["runs"] else state[4])
        row |= {
            "job_id": job["id"],
            "name": job["name"],
            "user_name": job["user"],
            "account": job["account"],
            "partition": job["partition"],
            "node_count": number(job["nodes"]),
            "cpus": number(job["cpus"]),
            "tasks": number(job["nodes"]),
            "priority": number(job["priority"]),
            "submit_time": number(job["submit"]),
            "eligible_time": number(job["submit"]),
            "time_limit": number(60 * job["hours"]),
            "tres_req_str": tres(job),
            "tres_per_node": f"gres/gpu:{job['gpus']}" if job["gpus"] else "",
            "command": f"/home/{job['user']}/{job['name']}.sh",
        }
        if job["task"] is not None:
            row |= {"array_job_id": number(job["id"] - job["task"]), "array_task_id": number(job["task"])}
        if job["runs"]:
            detail = f"gpu:h100:{job['gpus']}(IDX:0-{job['gpus'] - 1})" if job["gpus"] else ""
            row |= {
                "nodes": job["list"],
                "start_time": number(job["submit"] + 600),
                "end_time": number(job["submit"] + 600 + 3600 * job["hours"]),
                "tres_alloc_str": tres(job),
                "gres_detail": [detail] * job["nodes"],
                "batch_host": "gn00001",
            }
        rows.append(row)
    return {**recorded, "jobs": rows}


def write_json(path: Path, answer: dict[str, Any]) -> None:
    """Write an answer as squeue does, job by job."""
    with path.open("w") as out:
        head = json.dumps({**answer, "jobs": []}, indent=1 if "last_backfill" in answer else None)
        before, after = head.split('"jobs": []')
        out.write(before + '"jobs": [')
        for at, row in enumerate(answer["jobs"]):
            out.write(",\n" if at else "\n")
            out.write(json.dumps(row, indent=1))
        out.write("\n]" + after)


def text_values(job: dict[str, Any], *, epoch: bool) -> dict[str, str]:
    """Return a job by squeue's names of fields, upper case."""
    start = job["submit"] + 600

    def stamp(seconds: int | None) -> str:
        if seconds is None:
            return "N/A"
        if epoch:
            return str(seconds)
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")

    runs, used = job["runs"], max(T0 - start, 0)
    days, rest = divmod(used, 86400)
    return {
        "JOBID": str(job["id"]),
        "JOBARRAYID": str(job["id"]) if job["task"] is None else f"{job['id'] - job['task']}_{job['task']}",
        "ARRAYJOBID": str(job["id"]),
        "USERNAME": job["user"],
        "USERID": str(10_000 + int(job["user"][4:])),
        "GROUPNAME": job["account"],
        "ACCOUNT": job["account"],
        "PARTITION": job["partition"],
        "QOS": "normal",
        "STATE": "RUNNING" if runs else "PENDING",
        "REASON": "None" if runs else "Priority",
        "PRIORITYLONG": str(job["priority"]),
        "PRIORITY": "0.00002345678",
        "NICE": "0",
        "SUBMITTIME": stamp(job["submit"]),
        "ELIGIBLETIME": stamp(job["submit"]),
        "ACCRUETIME": stamp(job["submit"]),
        "STARTTIME": stamp(start if runs else None),
        "ENDTIME": stamp(start + 3600 * job["hours"] if runs else None),
        "LASTSCHEDEVAL": stamp(T0 - 30),
        "TIMEUSED": f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}" if runs else "0:00",
        "TIMELEFT": f"{job['hours']}:00:00",
        "PENDINGTIME": str(T0 - job["submit"]),
        "TIMELIMIT": f"{job['hours']}:00:00",
        "RESTARTCNT": "0",
        "REQUEUE": "1",
        "BATCHFLAG": "1",
        "OVERSUBSCRIBE": "OK",
        "NODELIST": job["list"] if runs else "",
        "NUMNODES": str(job["nodes"]),
        "BATCHHOST": "gn00001" if runs else "n/a",
        "NUMCPUS": str(job["cpus"]),
        "NUMTASKS": str(job["nodes"]),
        "CPUS-PER-TASK": "16",
        "MINCPUS": "16",
        "MINMEMORY": job["mem"],
        "MINTMPDISK": "0",
        "TRES-ALLOC": tres(job),
        "TRES-PER-NODE": f"gres/gpu:{job['gpus']}" if job["gpus"] else "N/A",
        "COMMAND": f"/home/{job['user']}/{job['name']}.sh",
        "WORKDIR": f"/home/{job['user']}",
        "NAME": job["name"],
        "EXIT_CODE": "0",
    }


def write_text(path: Path, jobs: list[dict[str, Any]]) -> None:
    """Write what the feed's own question gives."""
    names = [name.upper() for name in FIELDS]
    with path.open("w") as out:
        for job in jobs:
            values = text_values(job, epoch=True)
            out.write(MARKS.field.join(values.get(name, "(null)") for name in names) + MARKS.row + "\n")


def write_gcm(path: Path, jobs: list[dict[str, Any]]) -> None:
    """Write what GCM's question gives."""
    with path.open("w") as out:
        for job in jobs:
            values = text_values(job, epoch=False)
            out.write("".join(values.get(name, "(null)") + "|#" for name in GCM_FIELDS) + "\n")


def measure(folder: Path, count: int, *, rounds: int, with_gcm: bool) -> dict[str, dict[str, float]]:
    """Return what each reader took for so many jobs: the round of middle CPU."""
    jobs = make_jobs(count)
    write_text(folder / "text", jobs)
    write_gcm(folder / "gcm", jobs)
    for name, version in (("json42", "24.11"), ("json38", "22.05")):
        write_json(folder / name, json_rows(jobs, version))
    del jobs
    program = folder / "squeue"
    # GCM asks with many options, the worker with the name of a file.
    program.write_text(f'#!/bin/sh\n[ -e "{folder}/$1" ] && exec cat "{folder}/$1"\nexec cat "{folder}/gcm"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    python = gcm_python() if with_gcm else None
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for reader, (program_text, kind) in READERS.items():
            argv = [sys.executable, "-c", program_text, kind, MARKS.field, MARKS.row]
            done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
            found.setdefault(reader, []).append({**json.loads(done.stdout), "input_mib": mib_of(folder / kind)})
        if python is not None:
            argv = [str(python), str(Path(__file__).with_name("gcm_squeue.py"))]
            with Path(os.devnull).open("w") as nothing:
                done = subprocess.run(argv, env=env, stdout=nothing, stderr=subprocess.PIPE, text=True, check=True)
            figures = json.loads(done.stderr.splitlines()[-1])
            found.setdefault("gcm", []).append({**figures, "input_mib": mib_of(folder / "gcm")})
    return {name: sorted(some, key=lambda one: one["cpu_s"])[len(some) // 2] for name, some in found.items()}


def mib_of(path: Path) -> float:
    """Return a file's size."""
    return path.stat().st_size / (1 << 20)


def calls_per_minute() -> float:
    """Return how many questions a minute slurmctld gets with the settings as they come, whatever its size."""
    settings = SlurmSettings()
    rates = [60 / settings.jobs_interval_s, 60 / settings.nodes_interval_s]
    rates += [60 / found.interval_s for found in COLLECTORS if found.lane == "slurmctld"]
    return sum(rates)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", default="20000,100000", help="how many jobs, with commas")
    options.add_argument("--gcm-jobs", type=int, default=20_000, help="GCM reads only clusters up to so many jobs")
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    results: dict[str, Any] = {"calls_per_minute": calls_per_minute(), "sizes": {}}
    print(
        f"{'jobs':>7} {'reader':8} {'input MiB':>9} {'CPU s':>7} {'jobs/s':>8} {'of GCM':>7} {'RSS MiB':>8}"
        f" {'of it new':>9}"
    )
    for count in map(int, chosen.jobs.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder), count, rounds=chosen.rounds, with_gcm=count <= chosen.gcm_jobs)
        base = found.get("gcm")
        for name, one in found.items():
            rate = one["jobs"] / one["cpu_s"]
            times = f"{rate * base['cpu_s'] / base['jobs']:7.1f}" if base else "      -"
            print(
                f"{count:7d} {name:8} {one['input_mib']:9.1f} {one['cpu_s']:7.2f} {rate:8.0f} {times}"
                f" {one['rss_mib']:8.0f} {one['rss_mib'] - one['base_mib']:9.0f}",
                flush=True,
            )
        results["sizes"][count] = found
    print(f"questions to slurmctld: {results['calls_per_minute']:.1f} a minute, whatever the number of nodes and jobs")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
