"""The fleet as a few tables: pure, from what `Model` has learned to rows. None is what is not known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heeler.console.fleet import FIRST_JOB, NO_CELL, ROW, STALE, STATE_NAMES
from heeler.console.fold import incidents_of
from heeler.console.frames import counts
from heeler.console.model import SEVERITIES, Job, Model, node_state

SECOND_NS = 1_000_000_000
SEVERITY_NAMES = ("", "info", "warning", "critical")
SOURCES = {"samples": "JobSample", "jobs": "JobEvent", "nodes": "NodeState", "findings": "Finding"}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs are asked for; None means all."""

    user: str | None = None
    partition: str | None = None

    def fits(self, job: Job) -> bool:
        """Say whether a job is asked for."""
        about = job.about
        return self.user in (None, about.get("user")) and self.partition in (None, about.get("partition"))


def overview(model: Model, now_ns: int, wanted: Wanted | None = None) -> dict[str, Any]:
    """Return all that is known now."""
    found = counts(model)
    gpus = found["gpus"]
    return {
        "now": now_ns,
        "gpus": {**gpus, "in_job": found["ok"]["in_job"], "free": found["ok"]["free"]},
        "nodes": found["nodes"],
        "findings": found["findings"],
        "jobs_running": found["jobs"],
        "power_w": _sum(_ok(model, "power_w")),
        "age_s": {name: _age(model.ages.newest.get(kind), now_ns) for name, kind in SOURCES.items()},
        "slurm": [_feed(feed, now_ns) for _, feed in sorted(model.controllers.items())],
        "finding_rows": finding_rows(model, now_ns),
        "job_rows": job_rows(model, now_ns, wanted or Wanted()),
        "node_rows": node_rows(model, now_ns),
        "beyond": model.beyond + model.fleet.refused,
    }


def _feed(state: Mapping[str, Any], now_ns: int) -> Row:
    return {"feed": state["feed"], "controller": state["controller"], "age_s": _age(state["ts"], now_ns)}


def _age(ts_ns: int | None, now_ns: int) -> float | None:
    return None if ts_ns is None else max(0, now_ns - ts_ns) / SECOND_NS


def _ok(model: Model, name: str) -> NDArray[np.float32]:
    """Return the readings of the GPUs whose readings are not too old."""
    fleet = model.fleet
    fresh = (fleet.state[: fleet.used] != NO_CELL) & (fleet.state[: fleet.used] != STALE)
    values: NDArray[np.float32] = fleet.raw[ROW[name], : fleet.used][fresh]
    return values


def _sum(values: NDArray[np.float32]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.sum(dtype=np.float64)) if len(known) else None


def finding_rows(model: Model, now_ns: int) -> list[Row]:
    """Return the open findings, the worst first, then the newest."""
    incidents = incidents_of(model.findings.values())
    rows = [
        {
            "id": message["id"],
            "incident": incidents.get(message["id"]),
            "severity": message["severity"],
            "age_s": _age(message["first_ts"], now_ns),
            "kind": message["kind"],
            "node": message.get("node"),
            "job": message.get("job_id"),
            "advice": message["advice"],
            "summary": message["summary"],
        }
        for message in model.findings.values()
    ]
    return sorted(rows, key=lambda row: (-SEVERITIES.get(row["severity"], 0), row["age_s"]))


class _Groups:
    """Sums over the cells of each job or node, made for all at once."""

    def __init__(self, model: Model, numbers: NDArray[Any], size: int) -> None:
        fleet = model.fleet
        used = slice(0, fleet.used)
        self._states = fleet.state[used]
        there = self._states != NO_CELL
        self._raw = np.where(self._states == STALE, np.nan, fleet.raw[:, used])
        self._numbers, self._size = np.where(there, numbers[used], 0), size
        # As plain lists: rows are read one by one, and a value of an array costs ten times as much.
        self.gpus: list[int] = np.bincount(self._numbers[there], minlength=size).tolist()
        self.states = {name: self._count(self._states == at).tolist() for at, name in enumerate(STATE_NAMES)}
        severity = np.where(there, fleet.severity[used], 0).astype(np.float64)
        self.severity = [SEVERITY_NAMES[int(value)] for value in self._most(severity, 0.0).tolist()]
        self.heard = self._most(np.where(there, fleet.heard[used], 0).astype(np.float64), 0.0).tolist()
        self.readings = {
            "util": _known(self._mean(ROW["util_ratio"])),
            "active": _known(self._mean(ROW["sm_active_ratio"])),
            "power_w": _known(self._total(ROW["power_w"])),
            "temp_max_c": _known(self._most(self._raw[ROW["temp_c"]].astype(np.float64), np.nan)),
            "clock_mhz": _known(self._mean(ROW["sm_clock_mhz"])),
        }

    def _count(self, mask: NDArray[np.bool_]) -> NDArray[Any]:
        return np.bincount(self._numbers[mask & (self._states != NO_CELL)], minlength=self._size)

    def _total(self, row: int) -> NDArray[np.float64]:
        """Return a sum by group, NaN for groups of which nothing was read."""
        known = ~np.isnan(self._raw[row]) & (self._states != NO_CELL)
        sums = np.bincount(self._numbers[known], self._raw[row][known], self._size)
        return np.where(np.bincount(self._numbers[known], minlength=self._size) > 0, sums, np.nan)

    def _mean(self, row: int) -> NDArray[np.float64]:
        known = ~np.isnan(self._raw[row]) & (self._states != NO_CELL)
        seen = np.bincount(self._numbers[known], minlength=self._size)
        return self._total(row) / np.where(seen > 0, seen, np.nan)

    def _most(self, values: NDArray[np.float64], empty: float) -> NDArray[np.float64]:
        found = np.full(self._size, -np.inf)
        np.maximum.at(found, self._numbers, np.where(np.isnan(values), -np.inf, values))
        return np.where(np.isinf(found), empty, found)

    def row(self, at: int, now_ns: int) -> dict[str, Any]:
        """Return what all rows have."""
        states = self.states
        return {
            "gpus": self.gpus[at],
            "gpus_bad": states["lost"][at] + states["hung"][at],
            "gpus_unknown": states["stale"][at] + states["unknown"][at],
            **{name: values[at] for name, values in self.readings.items()},
            "severity": self.severity[at],
            "age_s": _age(int(self.heard[at]) or None, now_ns),
        }


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN, and fast


def job_rows(model: Model, now_ns: int, wanted: Wanted) -> list[Row]:
    """Return the jobs that run, those in trouble first, then the largest."""
    fleet = model.fleet
    size = max([job.number for job in model.jobs.values()], default=FIRST_JOB) + 1
    groups = _Groups(model, np.minimum(fleet.job, size), size + 1)
    rows = []
    for job in model.jobs.values():
        if not wanted.fits(job) or (job.of_slurm and job.state in ("PENDING", "REQUEUED")):
            continue
        about = job.about
        rows.append(
            {
                "job": job.id,
                "user": about.get("user"),
                "account": about.get("account"),
                "partition": about.get("partition"),
                "name": about.get("name"),
                "state": job.state if job.of_slurm else None,
                "nodes": len(job.nodes) if job.of_slurm else None,
                "running_s": _age(job.start_ts, now_ns),
                **groups.row(job.number, now_ns),
            }
        )
    return sorted(rows, key=lambda row: (-SEVERITIES.get(row["severity"], 0), -row["gpus"], row["job"]))


def node_rows(model: Model, now_ns: int) -> list[Row]:
    """Return the nodes, those in trouble first."""
    fleet = model.fleet
    groups = _Groups(model, fleet.node, max(1, len(fleet.names)))
    held = np.where(fleet.state[: fleet.used] != NO_CELL, fleet.job[: fleet.used], 0).tolist()
    rows = []
    for node in fleet.nodes:
        message = model.nodes.get(fleet.names[node.number])
        numbers = sorted({number for number in held[node.start : node.start + node.room] if number >= FIRST_JOB})
        jobs = [model.job_number(number) for number in numbers]
        row = groups.row(node.number, now_ns)
        states = {name: count[node.number] for name, count in groups.states.items()}
        rows.append(
            {
                "node": fleet.names[node.number],
                "slurm": None if message is None else node_state(message),
                "reason": None if message is None else message.get("reason"),
                "jobs": [job.id for job in jobs if job is not None],
                "model": node.model,
                "states": {name: count for name, count in states.items() if count},
                **row,
            }
        )
    return sorted(rows, key=lambda row: (*_trouble(row), row["node"]))


def _trouble(row: Row) -> tuple[int, int, int, int]:
    """Return how far up a node belongs: by its findings, its GPUs that are not well, and its state in Slurm."""
    bad = {"down": 0, "drained": 1, "draining": 1}.get(row["slurm"] or "", 2)
    return (-SEVERITIES.get(row["severity"], 0), -row["gpus_bad"], bad, -row["gpus_unknown"])


SORTS: Mapping[str, Sequence[tuple[str, Callable[[Row], Any]]]] = {
    "jobs": (
        ("trouble", lambda _: 0),
        ("GPUs", lambda row: -row["gpus"]),
        ("utilisation", lambda row: (row["util"] is None, row["util"])),
        ("power", lambda row: (row["power_w"] is None, -(row["power_w"] or 0))),
        ("time", lambda row: (row["running_s"] is None, -(row["running_s"] or 0))),
        ("user", lambda row: row["user"] or ""),
    ),
    "nodes": (
        ("trouble", lambda _: 0),
        ("name", lambda row: row["node"]),
        ("utilisation", lambda row: (row["util"] is None, row["util"])),
        ("power", lambda row: (row["power_w"] is None, -(row["power_w"] or 0))),
        ("temperature", lambda row: (row["temp_max_c"] is None, -(row["temp_max_c"] or 0))),
        ("age", lambda row: -(row["age_s"] or 0)),
    ),
    "findings": (
        ("severity", lambda _: 0),
        ("newest", lambda row: row["age_s"]),
        ("node", lambda row: row["node"] or ""),
        ("kind", lambda row: row["kind"]),
    ),
}
