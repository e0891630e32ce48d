"""Reads what a report is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heeler.bus import Bus, Consumer, ConsumerSpec, Delivery, escape
from heeler.console.accounts import Run, run_of
from heeler.console.patience import caught_up, started
from heeler.engine import Refused, intake

_RECORD = (
    *("cluster", "job_id", "run", "user", "account", "partition", "name", "state", "node_count", "gpus", "elapsed_s"),
    *("start_ts", "end_ts", "suspended_s", "ts", "shown_id", "array_job_id", "het_job_id"),
)


@dataclass(slots=True)
class Books:
    """All runs and findings of a time."""

    records: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    summaries: dict[tuple[str, ...], Mapping[str, Any]] = field(default_factory=dict)
    findings: list[Mapping[str, Any]] = field(default_factory=list)
    unreadable: int = 0

    def take(self, delivery: Delivery) -> None:
        """Keep what a report needs of a message."""
        try:
            message = intake(delivery.subject, delivery.headers, delivery.data, delivery.ts_ns)
        except Refused:
            self.unreadable += 1
            return
        data = message.data
        key = tuple(str(data.get(name)) for name in ("cluster", "job_id", "run"))
        if message.kind == "Finding":
            self.findings.append(data)
        elif message.kind == "JobRecord":
            self.records[key] = {key: data[key] for key in _RECORD if key in data}
        elif message.kind == "JobSummary":
            self.summaries[key] = data

    def runs(self) -> list[Run]:
        """Return all runs that have started."""
        keys = dict.fromkeys((*self.records, *self.summaries))
        found = (run_of(self.records.get(key), self.summaries.get(key)) for key in keys)
        return [run for run in found if run is not None]

    def named(self, job: str) -> set[str]:
        """Return the jobs that a person may mean by an id: itself, tasks of an array, parts of a het job."""
        names = ("job_id", "shown_id", "array_job_id", "het_job_id")
        return {job} | {
            one["job_id"] for one in self.records.values() if job in [one[name] for name in names if name in one]
        }


async def books(bus: Bus, since_ns: int, job: str | None = None) -> Books:
    """Read what was stored since a time, or all of one job. Raises TimeoutError where the bus sends nothing.

    A record is stored after its run has ended, so none that ends later is missed.
    """
    found = Books()
    token = "*" if job is None else escape(job)
    await _read(bus, found, "RECORDS", f"slurm.record.{token}.*", since_ns)
    await _read(bus, found, "SUMMARIES", f"job.summary.{token}.*", since_ns)
    await _read(bus, found, "FINDINGS_LAST", "finding.*.*.*", "last")
    return found


async def _read(bus: Bus, into: Books, stream: str, pattern: str, start: str | int) -> None:
    async def take(delivery: Delivery) -> None:
        into.take(delivery)

    consumer = Consumer(bus, ConsumerSpec(stream, (pattern,), start=start), take)
    try:
        await started(consumer)
        await caught_up(consumer)
    finally:
        await consumer.stop()
