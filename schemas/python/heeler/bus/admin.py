"""Streams and buckets: created and updated from schemas/subjects.yaml."""

from dataclasses import replace

import structlog
from nats.js.api import DiscardPolicy, KeyValueConfig, StorageType, StreamConfig, StreamSource
from nats.js.errors import BadRequestError, BucketNotFoundError, NotFoundError

from heeler.bus.client import Bus
from heeler.bus.codec import BusError
from heeler.bus.subjects_gen import BUCKETS, PREFIX, STREAMS
from heeler.bus.topology import Stream

log = structlog.get_logger("heeler.bus")

MIN_SERVER = (2, 10)
COMPARED = ("subjects", "max_age", "max_bytes", "max_msgs_per_subject", "num_replicas", "duplicate_window")


class ServerTooOldError(BusError):
    """The server ignores settings that Heeler needs, without saying so."""


class WouldShrinkError(BusError):
    """A stream would lose messages; `--force` does it all the same."""


def server_version(bus: Bus) -> tuple[int, int]:
    """Return major and minor version of the server."""
    version = bus.client.connected_server_version
    return (int(version.major), int(version.minor))


def require_server(bus: Bus) -> None:
    """Raise ServerTooOldError below 2.10: 2.9 ignores lists of filter subjects silently."""
    if server_version(bus) < MIN_SERVER:
        raise ServerTooOldError(
            f"nats-server {bus.client.connected_server_version} is too old: 2.10 or newer is needed"
        )


def stream_config(stream: Stream, *, replicas: int, scale: float) -> StreamConfig:
    """Return the JetStream form of a stream. `scale` multiplies max_bytes, for small disks."""
    config = StreamConfig(
        name=stream.name,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=stream.max_age,
        max_bytes=max(int(stream.max_bytes * scale), 16 << 20),
        max_msgs_per_subject=stream.max_per_subject,
        num_replicas=min(stream.replicas, replicas),
        duplicate_window=min(stream.duplicate_window or 120, stream.max_age),
        allow_direct=True,
    )
    if stream.source:
        source = StreamSource(name=stream.source, filter_subject=f"{PREFIX}.*.{stream.filter}")
        return replace(config, sources=[source])
    return replace(config, subjects=[f"{PREFIX}.*.{pattern}" for pattern in stream.subjects])


async def init(bus: Bus, *, replicas: int = 1, scale: float = 1.0, force: bool = False) -> list[str]:
    """Create or update every stream and bucket; returns what changed, one line each.

    Idempotent. Raises ServerTooOldError, or WouldShrinkError where a limit would fall and `force` is not set.
    """
    require_server(bus)
    changes = []
    for stream in STREAMS.values():
        changes += await _init_stream(bus, stream_config(stream, replicas=replicas, scale=scale), force=force)
    for bucket in BUCKETS.values():
        try:
            await bus.js.key_value(bucket.name)
        except BucketNotFoundError:
            await bus.js.create_key_value(
                KeyValueConfig(
                    bucket=bucket.name,
                    ttl=bucket.ttl,
                    history=bucket.history,
                    replicas=min(bucket.replicas, replicas),
                )
            )
            changes.append(f"bucket {bucket.name}: created")
    return changes


async def _init_stream(bus: Bus, wanted: StreamConfig, *, force: bool) -> list[str]:
    try:
        found = (await bus.js.stream_info(wanted.name or "")).config
    except NotFoundError:
        await bus.js.add_stream(wanted)
        return [f"stream {wanted.name}: created"]
    differ = [key for key in COMPARED if _value(found, key) != _value(wanted, key)]
    if not differ:
        return []
    shrinks = [
        key
        for key in ("max_age", "max_bytes", "max_msgs_per_subject")
        if key in differ and _bound(_value(wanted, key)) < _bound(_value(found, key))
    ]
    if shrinks and not force:
        raise WouldShrinkError(f"stream {wanted.name}: {', '.join(shrinks)} would fall; --force does it")
    try:
        await bus.js.update_stream(wanted)
    except BadRequestError as err:
        raise BusError(f"stream {wanted.name}: {err.description}") from err
    return [f"stream {wanted.name}: {key} {_value(found, key)} -> {_value(wanted, key)}" for key in differ]


def _value(config: StreamConfig, key: str) -> object:
    value = getattr(config, key)
    return value or ([] if key == "subjects" else value)


def _bound(value: object) -> float:
    """Return a limit as a number; none, 0 and -1 are no limit."""
    return float(value) if isinstance(value, int | float) and value > 0 else float("inf")


async def dead_count(bus: Bus) -> int:
    """Return how many dead letters are kept."""
    return int((await bus.js.stream_info("DEAD")).state.messages)
