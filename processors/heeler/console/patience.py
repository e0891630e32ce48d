"""Waiting for a stream, for a person: as long as something comes, and no longer."""

import asyncio

from heeler.bus import Consumer

STALL_S = 10.0


async def started(consumer: Consumer) -> None:
    """Start a consumer. Raises TimeoutError where the bus does not answer."""
    async with asyncio.timeout(STALL_S):
        await consumer.start()


async def caught_up(consumer: Consumer) -> None:
    """Wait until all that a stream keeps has come. Raises TimeoutError where nothing comes for too long."""
    waiting = asyncio.create_task(consumer.caught_up.wait())
    try:
        while not waiting.done():
            before = consumer.received
            await asyncio.wait({waiting}, timeout=STALL_S)
            if not waiting.done() and consumer.received == before:
                raise TimeoutError(f"{consumer.spec.stream} has sent nothing for {STALL_S:g} s")
    finally:
        waiting.cancel()
