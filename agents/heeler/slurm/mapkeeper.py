"""Keeps the bucket `job_map` as Slurm says: the shell around `heeler.slurm.jobmap`.

The bucket is compared with what stands in it, read at the start and every hour, so that keys which a dead feed left, or
anybody else wrote, are put right by the first whole answer. Without an answer, or with one that does not name all of
its rows, nothing is written. What the bus does not take is tried again after the next answer.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from heeler.bus import Bus, BusError
from heeler.bus.client import RETRYABLE
from heeler.bus.values import Values
from heeler.slurm import jobmap
from heeler.slurm.feed import Known, is_over

log = structlog.get_logger("heeler.slurm")

BUCKET = "job_map"
CHECK_S = 3600.0  # between two looks at what really stands in the bucket
AGAIN_NS = 24 * 3600 * 1_000_000_000  # so that the bucket's ttl forgets no live key
FORGET_NS = 600 * 1_000_000_000  # what a prolog said of a job that Slurm does not have


@dataclass(slots=True)
class MapKeeper:
    """The one writer of a cluster's keys. `count` counts what is written and what fails."""

    bus: Bus
    count: Callable[[str, int], None]
    gpus: dict[str, jobmap.NodeGpus] = field(default_factory=dict)
    told: dict[tuple[str, str], jobmap.Told] = field(default_factory=dict)
    _values: Values | None = None
    _stands: dict[str, tuple[dict[str, Any], int]] = field(default_factory=dict)  # key -> value, when it was written
    _checked_s: float = 0.0
    _away: bool = False

    def inventory(self, message: Mapping[str, Any]) -> None:
        """Learn a node's GPUs."""
        self.gpus[message["node"]] = jobmap.node_gpus(message)

    def prolog(self, message: Mapping[str, Any]) -> None:
        """Learn which GPUs a job got on a node; a second word of the same prolog may add them."""
        key = (message["node"], message["job_id"])
        if message["event"] == "ended":
            self.told.pop(key, None)
        elif message["event"] == "started":
            new, old = jobmap.told_by(message), self.told.get(key)
            if new.uuids is not None or old is None or new.ts_ns - old.ts_ns > jobmap.EARLY_NS:
                self.told[key] = new

    async def write(self, jobs: Known, nodes: Known, now_ns: int) -> None:
        """Make the bucket say what a whole answer says. Never raises for the bus."""
        try:
            if self._values is None or time.monotonic() - self._checked_s >= CHECK_S:
                await self._read()
            assert self._values is not None, "read above"
            await self._write(self._values, jobs, nodes, now_ns)
        except (BusError, *RETRYABLE) as err:
            self._values = None
            self.count("slurm_job_map_failures_total", 1)
            if not self._away:
                log.warning("job_map_not_written", error=f"{type(err).__name__}: {err}")
            self._away = True
        else:
            self._away = False

    async def _read(self) -> None:
        """Read what stands in the bucket; what is not ours is left alone, what nobody can read is written anew."""
        values = await Values.open(self.bus, BUCKET)
        self._stands.clear()
        for key, payload in (await values.all()).items():
            value = _decoded(payload)
            if key.startswith(jobmap.prefix(self.bus.cluster)) or self._of_before(key, value):
                self._stands[key] = (value, value.pop("ts", 0))
        self.told = jobmap.told_before(value for value, _ in self._stands.values() if "node" in value) | self.told
        self._values, self._checked_s = values, time.monotonic()

    def _of_before(self, key: str, value: Mapping[str, Any]) -> bool:
        """Say whether a key is ours from the time when keys did not name their cluster: then it is deleted."""
        return key.count(".") == 1 and value.get("cluster") == self.bus.cluster

    async def _write(self, values: Values, jobs: Known, nodes: Known, now_ns: int) -> None:
        live = [message for message in jobs.values() if not is_over(message)]
        there = [name for name, message in nodes.items() if not is_over(message)]
        wanted = await asyncio.to_thread(jobmap.values_of, self.bus.cluster, live, there, self.gpus, self.told)
        new = {key: value for key, value in wanted.items() if self._differs(key, value, now_ns)}
        put = await values.put({key: msgspec.msgpack.encode({**value, "ts": now_ns}) for key, value in new.items()})
        self._stands |= {key: (new[key], now_ns) for key in put}
        gone = await values.delete([key for key in self._stands if key not in wanted])
        for key in gone:
            del self._stands[key]
        self.count("slurm_job_map_put_total", len(put))
        self.count("slurm_job_map_deleted_total", len(gone))
        ids = {message["job_id"] for message in live}
        self.told = {key: told for key, told in self.told.items() if key[1] in ids or now_ns - told.ts_ns < FORGET_NS}

    def _differs(self, key: str, value: dict[str, Any], now_ns: int) -> bool:
        before, since_ns = self._stands.get(key, (None, 0))
        return before != value or now_ns - since_ns >= AGAIN_NS


def _decoded(payload: bytes) -> dict[str, Any]:
    try:
        value = msgspec.msgpack.decode(payload)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
