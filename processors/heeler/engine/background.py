"""Work that goes on beside the rest of a process, and whose bugs end it as those of any other part would."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from heeler.engine.live import cancelled


class Background:
    """Tasks that nobody waits for one by one."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin some work."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def watch(self) -> None:
        """Wait for ever, or until some work raises, and raise that."""
        self._failed = asyncio.get_running_loop().create_future()
        await self._failed

    async def end(self) -> None:
        """Cancel all of it."""
        await cancelled(*self._tasks)
