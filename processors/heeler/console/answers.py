"""Answers that need the bus: a few at a time, and the same question is asked once."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

KEPT = 256
AT_ONCE = 4


@dataclass(slots=True)
class _Kept:
    task: asyncio.Task[Any]
    until: float


class Answers:
    """Answers of the last seconds."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def ask(self, key: tuple[str, ...], keep_s: float, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer to a question, made anew where it is older than some seconds."""
        now = time.monotonic()
        self._forget(now)
        kept = self._kept.get(key)
        if kept is None or (kept.task.done() and _failed(kept.task)):
            kept = _Kept(asyncio.ensure_future(self._make(make)), now + keep_s)
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)[1].task.cancel()
        return await asyncio.shield(kept.task)  # a page that goes away must not take the answer from the others

    def _forget(self, now: float) -> None:
        """Let go of answers that are too old to be given again: one may hold ten thousand messages."""
        old = [key for key, kept in self._kept.items() if kept.task.done() and kept.until < now]
        for key in old:
            del self._kept[key]

    async def _make(self, make: Callable[[], Awaitable[Any]]) -> Any:
        async with self._turn:
            return await make()


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
