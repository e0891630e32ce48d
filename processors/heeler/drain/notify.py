"""Telling other systems of the drainer's actions, beside its work: what they do with it never holds it up."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from heeler.drain.hooks import NotifySettings, Outlet
from heeler.slurm.errors import SlurmError

log = structlog.get_logger("heeler.drain")

MOST_WAITING = 1000


class Notifier:
    """One line for each outlet. What is too much for a line that stands still is dropped and counted.

    It is best effort: who must not miss a word reads `drain.action.*` from the bus.
    """

    def __init__(self, outlets: Sequence[tuple[NotifySettings, Outlet]] = ()) -> None:
        self._lines = [(wanted, outlet, asyncio.Queue[Mapping[str, Any]](MOST_WAITING)) for wanted, outlet in outlets]
        self.counts: Counter[str] = Counter()

    def tell(self, message: Mapping[str, Any]) -> None:
        """Take an action in."""
        for wanted, _, line in self._lines:
            if not wanted.wants(message):
                continue
            try:
                line.put_nowait(message)
            except asyncio.QueueFull:
                self.counts["drain_notices_total.dropped"] += 1

    async def run(self) -> None:
        """Send what is told, for ever."""
        if not self._lines:
            await asyncio.Event().wait()
        await asyncio.gather(*(self._send(wanted, outlet, line) for wanted, outlet, line in self._lines))

    async def _send(self, wanted: NotifySettings, outlet: Outlet, line: asyncio.Queue[Mapping[str, Any]]) -> None:
        where = wanted.url or wanted.argv[0]
        while True:
            message = await line.get()
            try:
                problem = (await outlet.send(message)).problem
            except SlurmError as err:
                problem = str(err)
            self.counts[f"drain_notices_total.{'failed' if problem else 'sent'}"] += 1
            if problem:
                log.warning("notice_not_taken", where=where, id=message["id"], why=problem[:300])
