"""A bucket whose keys belong to one writer: read all of it, put what differs, delete what is over.

A deletion leaves a mark, so that whoever watches the bucket hears of it; the bucket's ttl takes the marks away.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from nats.js.kv import KeyValue

from heeler.bus.client import RETRYABLE, Bus
from heeler.bus.consumer import ConsumerSpec, Delivery, read_all

READ_S = 30.0
IN_FLIGHT = 128  # keys that wait for the server's word at the same time


async def standing(bus: Bus, name: str) -> dict[str, Delivery]:
    """Return the newest value of each key that stands in a bucket; its `seq` is the revision. Raises `RETRYABLE`.

    By a consumer of ours: nats-py's watcher, where the server is quick, says that all is there before the first.
    """
    prefix = f"$KV.{name}."
    found: dict[str, Delivery] = {}

    async def on(delivery: Delivery) -> None:
        if not (delivery.headers or {}).keys() & {"KV-Operation", "Nats-Marker-Reason"}:  # no mark of a deletion
            found[delivery.subject.removeprefix(prefix)] = delivery

    await read_all(bus, ConsumerSpec(f"KV_{name}", (">",), start="last", prefix=prefix), on, timeout_s=READ_S)
    return found


class Values:
    """A bucket's values. Keys are subject tokens joined by dots."""

    def __init__(self, bus: Bus, name: str, bucket: KeyValue) -> None:
        self._bus, self._name, self._bucket = bus, name, bucket

    @classmethod
    async def open(cls, bus: Bus, name: str) -> "Values":
        """Return a bucket. Raises BusError if `heeler bus init` has not made it, and `RETRYABLE`."""
        return cls(bus, name, await bus.bucket(name))

    async def all(self) -> dict[str, bytes]:
        """Return what stands in the bucket. Raises `RETRYABLE`."""
        return {key: delivery.data for key, delivery in (await standing(self._bus, self._name)).items()}

    async def put(self, values: Mapping[str, bytes]) -> set[str]:
        """Put values; returns the keys of those that the server has. Raises the last error if that is none of them."""

        async def one(key: str) -> Any:
            return await self._bucket.put(key, values[key])

        return await _each(values, one)

    async def delete(self, keys: Iterable[str]) -> set[str]:
        """Delete keys; returns those that are gone. Raises the last error if that is none of them."""
        return await _each(keys, self._bucket.delete)


async def _each(keys: Iterable[str], work: Callable[[str], Awaitable[Any]]) -> set[str]:
    gate = asyncio.Semaphore(IN_FLIGHT)
    done: set[str] = set()
    failed: list[BaseException] = []

    async def one(key: str) -> None:
        async with gate:
            if len(failed) >= IN_FLIGHT:
                return  # the bus is away: the rest is left for the next time
            try:
                await work(key)
                done.add(key)
            except RETRYABLE as error:
                failed.append(error)

    await asyncio.gather(*(one(key) for key in keys))
    if failed and not done:
        raise failed[-1]
    return done
