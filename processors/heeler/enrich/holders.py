"""Who holds the GPUs of one node: job intervals, and the choice among witnesses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NS = 1_000_000_000
KEEP_ENDED_NS = 2 * 3600 * NS  # as long as samples are kept: a late one may still ask
KEEP_ENDED = 200
INFO = ("user", "account", "partition", "qos", "name")

NO_JOB = (None, None)


@dataclass(slots=True)
class Interval:
    """One run of a job on this node: a requeued job has several, under one id."""

    job: str
    start_ts: int
    end_ts: int | None = None
    whole_node: bool = False
    minors: frozenset[int] = frozenset()
    uuids: frozenset[str] = frozenset()
    info: dict[str, str] = field(default_factory=dict)

    def covers(self, ts: int) -> bool:
        """Say whether the job held its GPUs at a time."""
        return self.start_ts <= ts and (self.end_ts is None or ts < self.end_ts)


@dataclass(slots=True)
class Holders:
    """All runs that this node has seen lately. `version` grows with each change."""

    runs: list[Interval] = field(default_factory=list)
    version: int = 0

    def job_event(self, node: str, event: Mapping[str, Any], now_ns: int) -> None:
        """Learn from a JobEvent; also from one that no longer names this node."""
        job, start = event["job_id"], event.get("start_ts") or event["ts"]
        run = self._run(job, start)
        holds = node in event["nodes"] and event["event"] != "ended"
        if run is None:
            if node not in event["nodes"]:
                return
            run = Interval(job, start)
            self.runs.append(run)
        if node in event["nodes"] and ("gpus" in event or "gpus_source" in event):
            run.minors = frozenset(event.get("gpus", {}).get(node, ()))
            run.whole_node = event.get("gpus_source") == "whole_node"
        run.info |= {key: event[key] for key in INFO if key in event}
        if holds:
            run.end_ts = None
        else:
            # An end names all nodes of the run: one that was given back before stays so, others may have it since.
            end_ts = event.get("end_ts") or event["ts"]
            run.end_ts = end_ts if run.end_ts is None else min(end_ts, run.end_ts)
        self._changed(now_ns)

    def prolog(self, event: Mapping[str, Any], now_ns: int) -> None:
        """Learn from a PrologEvent, which knows the UUIDs and comes before any poll."""
        job = event["job_id"]
        open_run = next((r for r in reversed(self.runs) if r.job == job and r.end_ts is None), None)
        if event["event"] == "ended":
            if open_run is not None:
                open_run.end_ts = event["ts"]
        elif event["event"] == "started":
            if open_run is None:
                open_run = Interval(job, event["ts"])
                self.runs.append(open_run)
            open_run.uuids = frozenset(event.get("uuids", ()))
            open_run.minors = frozenset(event.get("indices", ())) or open_run.minors
        self._changed(now_ns)

    def _run(self, job: str, start: int) -> Interval | None:
        """Return the run that starts then; an open one that a prolog opened early counts as the same."""
        same = [run for run in self.runs if run.job == job]
        for run in same:
            if run.start_ts == start:
                return run
        for run in same:
            if run.uuids and run.end_ts is None and abs(run.start_ts - start) < 600 * NS:
                run.start_ts = min(run.start_ts, start)
                return run
        return None

    def _changed(self, now_ns: int) -> None:
        self.version += 1
        self.runs = [r for r in self.runs if r.end_ts is None or r.end_ts > now_ns - KEEP_ENDED_NS][-KEEP_ENDED:]

    def boundary_ns(self) -> int:
        """Return the newest start or end: from there on the holders stay as they are."""
        return max((max(run.start_ts, run.end_ts or 0) for run in self.runs), default=0)

    def at(self, ts: int) -> list[Interval]:
        """Return the runs that hold this node or a part of it at a time."""
        return [run for run in self.runs if run.covers(ts)]


def holder(
    uuid: str, minor: int | None, running: Sequence[Interval], processes: Iterable[str], ended: frozenset[str]
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Return (job, how it is known, jobs where there are several) of one GPU.

    The node's own look at processes goes first, unless Slurm knows that the job is over; then the prolog's
    UUIDs; then Slurm's indices, which are device minors; then a node that one job holds whole.
    """
    by_process = sorted({job for job in processes if job not in ended})
    if len(by_process) == 1:
        return by_process[0], "process", ()
    if by_process:
        return None, "several", tuple(by_process)
    for how, jobs in (
        ("prolog", [run.job for run in running if uuid in run.uuids]),
        ("slurm_index", [run.job for run in running if not run.uuids and minor is not None and minor in run.minors]),
    ):
        found = sorted(set(jobs))
        if len(found) == 1:
            return found[0], how, ()
        if found:
            return None, "several", tuple(found)
    whole = [run.job for run in running if run.whole_node and not run.minors and not run.uuids]
    if len(whole) == 1 and len(running) == 1:
        return whole[0], "whole_node", ()
    return None, None, ()
