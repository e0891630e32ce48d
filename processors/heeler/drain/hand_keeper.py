"""Keeping what operators said, and the drainer's own breaker, in the bucket `breakers` beyond every restart.

The stream of DrainActions has it too, but not for ever. What stands in the bucket is changed by compare-and-set.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from heeler.bus import Bus
from heeler.bus.claims import Claim, Claims
from heeler.bus.client import RETRYABLE
from heeler.drain.breaker_keeper import BUCKET, key_of
from heeler.drain.hand import DRAIN, Hand, Switch

log = structlog.get_logger("heeler.drain")


def kept_hand(value: bytes, cluster: str) -> tuple[Hand, Mapping[str, Any]]:
    """Return what stands in the bucket, and the whole value. Raises ValueError."""
    try:
        found = json.loads(value)
        theirs = found["cluster"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"not what a drainer keeps: {value[:100]!r}") from None
    if theirs != cluster:
        raise ValueError(f"of cluster {theirs!r}, not of {cluster!r}")
    return Hand.unpack(found), found


@dataclass(slots=True)
class HandKeeper:
    """The value of one cluster. Only the active instance reads and writes it."""

    bus: Bus
    actor: str
    hand: Callable[[], Hand]
    now_ns: Callable[[], int]
    _claims: Claims | None = None
    _claim: Claim | None = None
    _kept: Mapping[str, Any] | None = None  # what is known to stand there
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def load(self) -> None:
        """Take in what stands in the bucket. Raises RETRYABLE, BusError for a bucket that is not there.

        What can't be read may have been an open breaker or a pause, so it counts as one.
        """
        if self._claims is None:
            self._claims = await Claims.open(self.bus, BUCKET)
        self._kept = None
        self._claim = await self._claims.get(key_of(self.bus.cluster, DRAIN))
        if self._claim is None:
            return
        try:
            found, _ = kept_hand(self._claim.value, self.bus.cluster)
        except ValueError as err:
            log.error("hand_unreadable", error=str(err))  # noqa: TRY400 - its words say it all
            why = f"what stood in the bucket can't be read: {err}"
            self.hand().switch(DRAIN, Switch(self.now_ns(), True, self.actor, why))
            return
        self.hand().merge(found)
        self._kept = found.pack()

    async def keep(self) -> None:
        """Write what has changed. Never raises for what the bus does: the next call tries again."""
        try:
            async with self._busy:
                if not self.kept:
                    await self._write(self.hand().pack())
        except RETRYABLE as error:
            self._kept = None  # whether it was written can't be told
            log.warning("hand_not_kept", error=f"{type(error).__name__}: {error}")

    async def _write(self, packed: Mapping[str, Any]) -> None:
        if self._claims is None:
            await self.load()
        assert self._claims is not None
        value = {"v": 1, "cluster": self.bus.cluster, "keeper": self.actor, "ts_ns": self.now_ns(), **packed}
        claim = await self._claims.set(key_of(self.bus.cluster, DRAIN), json.dumps(value).encode(), self._claim)
        if claim is None:  # another instance was here: the next call writes both
            await self.load()
        else:
            self._claim, self._kept = claim, packed

    @property
    def kept(self) -> bool:
        """Say whether the bucket has what is known here. An empty one says that nothing was ordered."""
        return self.hand().pack() == (self._kept if self._claim is not None else Hand().pack())
