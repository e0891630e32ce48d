"""heeler record: a piece of the stream into a file."""

import asyncio
import time
from pathlib import Path
from typing import Any

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
    """Write messages to FILE in the order of their time, until Ctrl-C or --seconds."""

    async def main() -> None:
        stop = asyncio.Event()
        on_interrupt(stop)
        messages: list[capture.Captured] = []

        async def keep(delivery: Delivery) -> None:
            messages.append(
                capture.Captured(delivery.subject, delivery.ts_ns, delivery.data, dict(delivery.headers or {}))
            )

        async def keep_core(msg: Any) -> None:
            messages.append(capture.Captured(msg.subject, time.time_ns(), msg.data, dict(msg.headers or {})))

        async with connected(url, config_path, "record") as bus:
            watchers = []
            if subject:
                await bus.subscribe(full_pattern(subject), keep_core)
            else:
                start = time.time_ns() - int(since * 1e9)
                for stream in streams or DEFAULT:
                    consumer = Consumer(bus, ConsumerSpec(stream, start="new" if since == 0 else start), keep)
                    await consumer.start()
                    watchers.append(asyncio.create_task(consumer.watch()))
            try:
                await asyncio.wait_for(stop.wait(), seconds or None)
            except TimeoutError:
                pass
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
        messages.sort(key=lambda message: message.ts_ns)
        with file.open("wb") as out:
            for message in messages:
                capture.write(out, message)
        click.echo(f"{len(messages)} messages in {file}", err=True)

    run(main())
