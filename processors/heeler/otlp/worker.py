"""A thread for one blocking call at a time, that a process needn't wait for when it ends."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs blocking calls in a daemon thread, in order.

    The threads of asyncio's own executor are joined at the end of the process, so one call that never returns
    would keep it alive.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """Return what the call returns, or raise what it raises. A cancelled wait doesn't stop the call itself."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((lambda: call(*args), future))
        return await future

    def stop(self) -> None:
        """End the thread after the call that is under way."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future = job
            try:
                result, error = call(), None
            except Exception as err:  # noqa: BLE001 - whatever it is belongs to the caller
                result, error = None, err
            except BaseException as err:  # noqa: BLE001 - a plug-in that exits must not end the process
                result, error = None, RuntimeError(f"{type(err).__name__}: {err}")
            if isinstance(error, StopIteration):  # which no future takes: the caller would wait for ever
                error = RuntimeError(f"StopIteration: {error}")
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
