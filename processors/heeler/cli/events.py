"""heeler events: what happened, in one order of time."""

import asyncio
import contextlib
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import click

from heeler.bus import Bus
from heeler.cli.common import answered, bus_options, cluster_option, connected, on_interrupt, plain, run, safe, say
from heeler.cli.since import Since
from heeler.console.events import Reader, Wanted
from heeler.console.held import Held
from heeler.console.timeline import KINDS, USUAL, Entry

MOST_HELD = 100_000  # within that time
MARGIN = 31  # where sentences begin
HOLD_S = 1.0  # what comes over several streams within this time is put in order
COLOURS = {"critical": "red", "warning": "yellow"}


@click.command()
@bus_options
@click.option("--since", type=Since(), default="1h", show_default=True, help="From when on: 30m, 1h, 7d, or a time.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--node", "nodes", multiple=True, help="Only of this node, or host list such as n[1-4]. Repeatable.")
@click.option("--job", "jobs", multiple=True, help="Only what concerns this job. Repeatable.")
@cluster_option
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS), help=f"Only these; else {', '.join(USUAL)}. Repeatable."
)
@click.option(
    "--last", type=click.IntRange(min=0), default=1000, show_default=True, help="At most so many of the past; 0: all."
)
@click.option("--json", "as_json", is_flag=True, help="A JSON object for each event, with the message behind it.")
def events(
    url: str | None,
    config_path: str | None,
    since: int,
    nodes: Sequence[str],
    jobs: Sequence[str],
    cluster: str | None,
    kinds: Sequence[str],
    last: int,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Print what happened: findings, drains, kernel events and failed checks, each one sentence, in order of time.

    Also, if asked for by --kind: jobs that begin and end, and nodes whose state in Slurm changes. What is only
    confirmed, such as a check that fails again, is told once. Times are UTC. Exit status: 0 also when nothing happened,
    1 no bus, 2 wrong options.
    """
    wanted = Wanted(kinds or USUAL, expand(nodes), tuple(jobs), since, cluster)

    async def main() -> None:
        async with connected(url, config_path, "events") as bus:
            with answered():
                await show(bus, wanted, Printer(as_json), last, follow=follow)

    run(main())


async def show(bus: Bus, wanted: Wanted, printer: "Printer", last: int, *, follow: bool) -> None:
    """Print what is kept, then what comes."""
    held = Held(last)
    reader = Reader(bus, wanted, lambda entry: held.add(printer.trim(entry), time.monotonic()))
    stop = asyncio.Event()
    await reader.read()
    try:
        if held.left_out:
            say(f"({held.left_out} earlier events are left out: --last 0 shows all)", err=True)
        for entry in held.release(time.monotonic()):
            printer.print(entry)
        held.most, held.left_out = MOST_HELD, 0
        if follow:
            on_interrupt(stop)
            await go_on(bus, reader, held, printer, stop)
    finally:
        await reader.stop()
        if reader.unreadable:
            say(f"({reader.unreadable} messages could not be read)", err=True)


async def go_on(bus: Bus, reader: Reader, held: Held, printer: "Printer", stop: asyncio.Event) -> None:
    """Print what comes until stopped; a bus that is away is said, not hidden."""
    following = asyncio.create_task(reader.follow())
    away = False
    try:
        while not stop.is_set() and not following.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), HOLD_S / 2)
            if away is bus.client.is_connected:
                away = not away
                say("(the bus is away: trying again)" if away else "(the bus is back)", err=True)
            if held.left_out:
                say(f"({held.left_out} events are left out: too many at once)", err=True)
                held.left_out = 0
            for entry in held.release(time.monotonic() - (0 if stop.is_set() else HOLD_S)):
                printer.print(entry)
        if following.done():
            following.result()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


class Printer:
    """Prints entries."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def trim(self, entry: Entry) -> Entry:
        """Drop what will not be printed: many entries may be held."""
        return entry if self._as_json else replace(entry, data={})

    def print(self, entry: Entry) -> None:
        """Print one."""
        if self._as_json:
            click.echo(json.dumps({"time": when(entry.ts), **plain(entry.as_json())}, ensure_ascii=False))
            return
        colour = COLOURS.get(entry.severity)
        line = safe(f"{when(entry.ts)}  {entry.kind:7}  {entry.says}")
        if sys.stdout.isatty():  # long sentences go on below their beginning
            width = max(MARGIN + 20, shutil.get_terminal_size().columns)
            line = textwrap.fill(line, width, subsequent_indent=" " * MARGIN, break_on_hyphens=False)
        click.echo(click.style(line, fg=colour) if colour else line)


def when(ts_ns: int) -> str:
    """Return a time for people and programs."""
    try:
        return datetime.fromtimestamp(ts_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{ts_ns} ns"


def expand(nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes of some names and host lists."""
    found: dict[str, None] = {}
    for text in nodes:
        if "[" in text or "," in text:
            from heeler.slurm.errors import ParseError  # noqa: PLC0415 - most questions name one node
            from heeler.slurm.hostlist import expand as expand_list  # noqa: PLC0415

            try:
                found.update(dict.fromkeys(expand_list(text)))
            except ParseError as err:
                raise click.BadParameter(str(err), param_hint="--node") from err
        else:
            found[text] = None
    return tuple(found)
