"""From values to the bus: what is published, in which order, and what is too large."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import structlog

from heeler.bus import Bus, EncodeError, TooLargeError
from heeler.bus.codec import DecodeError
from heeler.slurm.collect import Table
from heeler.slurm.publication import Publication
from heeler.slurm.tableparts import payload_of, table_publications

log = structlog.get_logger("heeler.slurm")

IN_FLIGHT = 128  # messages that wait for the stream's word at the same time


@dataclass(slots=True)
class Publisher:
    """Publishes and counts."""

    bus: Bus
    counts: dict[str, float] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        """Count something."""
        self.counts[name] = self.counts.get(name, 0) + by

    async def publish(self, publications: Iterable[Publication]) -> None:
        """Publish and wait for the stream's word; those of one subject in order, others side by side."""
        by_subject: dict[str, list[Publication]] = {}
        for publication in publications:
            by_subject.setdefault(publication.subject, []).append(publication)
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def in_order(some: list[Publication]) -> None:
            async with gate:
                for publication in some:
                    await self.publish_one(publication)

        await asyncio.gather(*(in_order(some) for some in by_subject.values()))

    async def publish_one(self, publication: Publication) -> None:
        """Publish one message, without its longest lists where it is too large."""
        try:
            await self._send(publication)
        except TooLargeError as err:
            log.warning("message_too_large", id=publication.id, size=err.size, limit=err.limit)
            self.count("slurm_cut_messages_total")
            if publication.kind == "JobEvent":
                await self._send(_without_indices(publication))
        except EncodeError as err:
            # A bug of ours or a value nobody has seen: it must not keep all other jobs from the bus.
            log.error("message_refused", id=publication.id, error=str(err))  # noqa: TRY400 - the words say it all
            self.count("slurm_refused_messages_total")

    async def publish_table(
        self, feed: str, name: str, table: Table, *, ts_ns: int, duration_ns: int, version: str | None
    ) -> None:
        """Publish all parts of a table, or none where it is not what schemas/slurm_tables.yaml says."""
        try:
            parts = await asyncio.to_thread(
                table_publications,
                self.bus.cluster,
                feed,
                name,
                table,
                ts_ns=ts_ns,
                duration_ns=duration_ns,
                version=version,
            )
        except (DecodeError, EncodeError) as err:
            log.error("table_refused", table=name, error=str(err))  # noqa: TRY400 - the words say it all
            self.count("slurm_refused_messages_total")
            return
        await self.publish(parts)

    async def _send(self, publication: Publication) -> None:
        payload = payload_of(publication)
        await self.bus.publish_acked(publication.subject, publication.kind, payload, publication.id)
        self.count(f"slurm_published_total.{publication.kind.lower()}")


def _without_indices(publication: Publication) -> Publication:
    """Return a job's message without the GPU lists of its thousands of nodes."""
    message = {key: value for key, value in publication.message.items() if key != "gpus"}
    return replace(publication, message={**message, "gpus_source": "unknown"})
