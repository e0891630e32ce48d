"""heeler record: a piece of the stream into a file."""

import asyncio
import contextlib
import heapq
import time
from pathlib import Path
from typing import Any, BinaryIO

import click

from heeler.bus import Consumer, ConsumerSpec, Delivery
from heeler.bus.subjects_gen import STREAMS
from heeler.cli.common import bus_options, connected, on_interrupt, run
from heeler.cli.tap import full_pattern
from heeler.engine import capture

DEFAULT = ("AGENTS", "EVENTS", "SAMPLES")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@bus_options
@click.option("--stream", "streams", multiple=True, type=click.Choice(sorted(STREAMS)), help=f"Default: {DEFAULT}.")
@click.option("--since", default=0.0, help="Begin so many seconds ago, from what the streams keep.")
@click.option("--seconds", default=0.0, help="End after so many seconds; with --since 60 --seconds 0 at Ctrl-C.")
@click.option("--subject", help="Record this subject pattern as it passes by, instead of streams.")
def record(
    file: Path,
    url: str | None,
    config_path: str | None,
    streams: tuple[str, ...],
    since: float,
    seconds: float,
    subject: str | None,
) -> None:
    """Write messages to FILE in the order of their time, until Ctrl-C or --seconds.

    Exit status: 0 written, 1 no bus, or FILE can't be written, 2 wrong options.
    """

    async def main(out: BinaryIO) -> None:
        stop = asyncio.Event()
        on_interrupt(stop)
        sorter = Sorter(out)

        async def keep(delivery: Delivery) -> None:
            sorter.add(capture.Captured(delivery.subject, delivery.ts_ns, delivery.data, dict(delivery.headers or {})))

        async def keep_passing(msg: Any) -> None:
            sorter.add(capture.Captured(msg.subject, time.time_ns(), msg.data, dict(msg.headers or {})))

        async with connected(url, config_path, "record") as bus:
            watchers = []
            if subject:
                await bus.subscribe(full_pattern(subject), keep_passing)
            else:
                start = "new" if since == 0 else time.time_ns() - int(since * 1e9)
                for stream in streams or DEFAULT:
                    consumer = Consumer(bus, ConsumerSpec(stream, start=start), keep)
                    await consumer.start()
                    watchers.append(asyncio.create_task(consumer.watch()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), seconds or None)
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
        sorter.finish()
        click.echo(f"{sorter.written} messages in {file}", err=True)

    with file.open("wb") as out:
        run(main(out))


class Sorter:
    """Puts the messages of several streams in the order of their time, holding back the last few."""

    HOLD = 20_000

    def __init__(self, out: BinaryIO) -> None:
        self.written = 0
        self._out = out
        self._added = 0
        self._heap: list[tuple[int, int, capture.Captured]] = []

    def add(self, message: capture.Captured) -> None:
        """Take a message; write the oldest once enough are waiting."""
        self._added += 1
        heapq.heappush(self._heap, (message.ts_ns, self._added, message))
        if len(self._heap) > self.HOLD:
            self._write()

    def finish(self) -> None:
        """Write all that is left."""
        while self._heap:
            self._write()

    def _write(self) -> None:
        capture.write(self._out, heapq.heappop(self._heap)[2])
        self.written += 1
