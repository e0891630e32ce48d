"""Claims: values in a bucket that are only ever changed by compare-and-set.

Of two writers that both think it is their turn, one is told that it is not.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nats.aio.msg import Msg
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from heeler.bus.client import Bus
from heeler.bus.values import standing


@dataclass(frozen=True, slots=True)
class Claim:
    """A value as it stands in the bucket."""

    key: str
    value: bytes
    revision: int


class Claims:
    """A bucket of claims. Keys are subject tokens joined by dots."""

    def __init__(self, bus: Bus, name: str, bucket: KeyValue) -> None:
        self._bus, self._name, self._bucket = bus, name, bucket

    @classmethod
    async def open(cls, bus: Bus, name: str) -> "Claims":
        """Return a bucket. Raises BusError if `heeler bus init` has not made it."""
        return cls(bus, name, await bus.bucket(name))

    async def get(self, key: str) -> Claim | None:
        """Return the value that stands now, or None."""
        try:
            entry = await self._bucket.get(key)
        except KeyNotFoundError:
            return None
        return Claim(key, entry.value or b"", int(entry.revision or 0))

    async def set(self, key: str, value: bytes, after: Claim | None) -> Claim | None:
        """Put a value in the place of the one that we know (None: of none). None if another stands there by now."""
        try:
            if after is None:
                revision = await self._bucket.create(key, value)
            else:
                revision = await self._bucket.update(key, value, last=after.revision)
        except KeyWrongLastSequenceError:
            return None
        return Claim(key, value, revision)

    async def all(self, prefix: str) -> list[Claim]:
        """Return every claim whose key begins with a prefix."""
        found = await standing(self._bus, self._name)
        return [Claim(key, one.data, one.seq) for key, one in found.items() if key.startswith(prefix)]


async def hear(bus: Bus, bucket: str, key: str, heard: Callable[[bytes], None]) -> None:
    """Call `heard` with each value that is put from now on, without a consumer: for thousands who listen to one key."""

    async def on(message: Msg) -> None:
        if not (message.headers or {}).get("KV-Operation"):  # not a removal
            heard(message.data)

    await bus.subscribe(f"$KV.{bucket}.{key}", on)
