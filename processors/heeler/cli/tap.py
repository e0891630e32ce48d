"""heeler tap: look at the bus."""

import asyncio
import json
from typing import Any

import click

from heeler.bus.subjects_gen import PREFIX
from heeler.cli.common import bus_options, connected, on_interrupt, readable, run
from heeler.engine import kind_of


def full_pattern(pattern: str) -> str:
    """Return a whole subject pattern: what does not begin with the prefix is meant for any cluster."""
    return pattern if pattern.startswith(PREFIX) else f"{PREFIX}.*.{pattern}"


@click.command()
@click.argument("pattern", default=">")
@bus_options
@click.option("--count", default=0, help="End after so many messages.")
def tap(pattern: str, url: str | None, config_path: str | None, count: int) -> None:
    """Print messages as JSON lines: {"subject", "type", "data"}.

    PATTERN is a subject such as 'gpu.sample.n017' or 'finding.>', with or without the prefix heeler.v1.<cluster>.
    Exit status: 0 at Ctrl-C or after --count, 1 no bus, 2 wrong options.
    """

    async def main() -> None:
        stop = asyncio.Event()
        on_interrupt(stop)
        left = count

        async def show(msg: Any) -> None:
            nonlocal left
            if stop.is_set():
                return
            kind = kind_of(msg.subject)
            click.echo(
                json.dumps({"subject": msg.subject, "type": kind, "data": readable(msg.data)}, ensure_ascii=False)
            )
            left -= 1
            if left == 0:
                stop.set()

        async with connected(url, config_path, "tap") as bus:
            await bus.subscribe(full_pattern(pattern), show)
            await stop.wait()

    run(main())
