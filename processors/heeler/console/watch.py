"""The fleet's state kept up to date from the bus, for a terminal."""

import asyncio
import time

from heeler.bus import Bus, Consumer, ConsumerSpec, prefix_of
from heeler.console.live import SILENT_S, Live
from heeler.console.patience import caught_up, started
from heeler.console.settings import ConsoleSettings

SETTINGS = ConsoleSettings(most_ended=1000)


class Watch(Live):
    """Reads what is known first, then what comes."""

    def __init__(self, bus: Bus, look_back_s: float, cluster: str | None = None) -> None:
        super().__init__(bus, SETTINGS)
        self._away_since: float | None = None
        samples_from = time.time_ns() - int(look_back_s * 1e9)
        self._consumers = [
            Consumer(bus, ConsumerSpec(stream, patterns, start=start, prefix=prefix_of(cluster)), self.on)
            for stream, patterns, start in (
                ("NODES", ("slurm.node.*",), "last"),
                ("JOBS", ("slurm.job.*",), "last"),
                ("AGENTS", ("slurm.cluster.*",), "last"),
                ("FINDINGS_LAST", ("finding.*.*.*",), "last"),
                ("JOBSAMPLES", ("job.sample.*.*",), samples_from),
            )
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read all that is known. Raises TimeoutError where the bus sends nothing for too long."""
        for consumer in self._consumers:
            await started(consumer)
            self._tasks.append(asyncio.create_task(consumer.watch()))
        for consumer in self._consumers:
            await caught_up(consumer)
        self.ready = True

    @property
    def unreadable(self) -> int:
        """How many messages could not be used."""
        return self.counters.dead

    async def stop(self) -> None:
        """End reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self) -> None:
        """Raise what ended a consumer, if something did."""
        for task in self._tasks:
            if task.done():
                task.result()

    def away_s(self) -> float | None:
        """Return for how long the bus has been away, or silent though it is connected; None while it is well."""
        if self.bus_good():
            self._away_since = None
            return None
        quiet = self.quiet_s()
        self._away_since = self._away_since or time.monotonic() - (quiet if quiet >= SILENT_S else 0.0)
        return time.monotonic() - self._away_since
