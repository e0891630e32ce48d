"""Leases: one holder at a time, by a key that the server forgets.

The bucket's ttl frees a lease by the server's clock; a holder renews it at a quarter of that. The holder's own
deadline runs on its monotonic clock from *before* the renewal that the server accepted, so it always ends first:
a process that was frozen finds its lease expired before it can emit anything. Per-key ttls are not used, since
an update makes such a key eternal.
"""

import time
from collections.abc import Callable

import structlog
from nats.errors import Error as NatsError
from nats.js.errors import APIError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from heeler.bus.client import RETRYABLE, Bus
from heeler.bus.codec import BusError

log = structlog.get_logger("heeler.bus")


class Lease:
    """One key of a lease bucket, ours or not."""

    def __init__(
        self,
        bucket: KeyValue,
        key: str,
        owner: str,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.key = key
        self.owner = owner
        self.ttl_s = ttl_s
        self.revision: int | None = None
        self.epoch: int | None = None
        self._bucket = bucket
        self._clock = clock
        self._deadline = 0.0

    @property
    def held(self) -> bool:
        """Say whether we may still act: true only while the server can't have given the lease away."""
        return self.revision is not None and self._clock() < self._deadline

    @property
    def remaining_s(self) -> float:
        """Seconds until our lease ends."""
        return max(0.0, self._deadline - self._clock()) if self.revision is not None else 0.0

    async def poll(self) -> bool:
        """Renew the lease, or try to gain it. Returns `held`."""
        before = self._clock()
        try:
            if self.revision is not None and before < self._deadline:
                self.revision = await self._bucket.update(self.key, self.owner.encode(), last=self.revision)
            else:
                self.revision = None
                self.revision = self.epoch = await self._bucket.create(self.key, self.owner.encode())
        except KeyWrongLastSequenceError:
            self.revision = None
        except RETRYABLE as error:
            # Not renewed and not lost: the deadline decides.
            log.warning("lease_unsure", key=self.key, error=f"{type(error).__name__}: {error}")
        else:
            self._deadline = before + self.ttl_s
        return self.held

    async def release(self) -> None:
        """Give the lease up at once, so that a standby need not wait for the ttl."""
        if self.revision is None:
            return
        revision, self.revision = self.revision, None
        try:
            await self._bucket.delete(self.key, last=revision)
        except (NatsError, APIError, OSError) as error:
            log.info("lease_not_released", key=self.key, error=str(error))


async def open_bucket(bus: Bus, name: str) -> tuple[KeyValue, float]:
    """Return a lease bucket and its ttl in seconds. Raises BusError if `heeler bus init` has not made it."""
    bucket = await bus.bucket(name)
    status = await bucket.status()
    if not status.ttl:
        raise BusError(f"bucket {name} has no ttl: run `heeler bus init`")
    return bucket, float(status.ttl)
