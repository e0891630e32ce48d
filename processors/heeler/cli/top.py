"""heeler top: the fleet, its jobs and what is wrong with them, live."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from heeler.cli.common import answered, bus_options, cluster_option, connected, on_interrupt, plain, run
from heeler.cli.keys import listening
from heeler.cli.topscreen import VIEWS, Look, Status, header, ordered, screen, table
from heeler.console.overview import SORTS, Wanted, overview
from heeler.console.watch import Watch

LINES = 20  # of a table with --once
SWITCHES = {"r": "reverse", "f": "unfold", "p": "paused", "h": "help", "?": "help"}  # keys and what they turn


@click.command()
@bus_options
@cluster_option
@click.option("--view", type=click.Choice(VIEWS), default="all", show_default=True, help="What to show first.")
@click.option("--user", help="Only jobs of this user.")
@click.option("--partition", help="Only jobs of this partition.")
@click.option("--every", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds between looks.")
@click.option(
    "--look-back", type=click.FloatRange(5, 1800), default=60.0, show_default=True, help="Seconds of samples to read."
)
@click.option("--once", is_flag=True, help="Print what is known now, and end; also where there is no terminal.")
@click.option("--lines", type=click.IntRange(min=1), default=LINES, show_default=True, help="Of a table, with --once.")
@click.option("--json", "as_json", is_flag=True, help="Print all that is known now as one JSON object, and end.")
def top(**options: Any) -> None:
    """Show GPUs, nodes, jobs and open findings as they are now.

    ? is what is not known: not read, or too old to be true. Keys: q quits, Tab or 1 to 4 change the view (all,
    findings, jobs, nodes), arrows and PgUp, PgDn, Home, End move, s sorts by the next column, r reverses, f shows the
    findings that belong to an incident, p pauses, h helps. Exit status: 0 shown, 1 no bus, 2 wrong options.
    """
    wanted = Wanted(options["user"], options["partition"])

    async def main() -> None:
        async with connected(options["url"], options["config_path"], "top") as bus:
            watch = Watch(bus, options["look_back"], options["cluster"])
            try:
                with answered():
                    await watch.start()
                    await show(watch, wanted, options, ", ".join(bus.settings.servers))
            finally:
                await watch.stop()

    run(main())


async def show(watch: Watch, wanted: Wanted, options: Mapping[str, Any], servers: str) -> None:
    """Print once, or go on until the person has seen enough."""

    def seen() -> dict[str, Any]:
        now_ns = watch.clock.now_ns()
        watch.model.tick(now_ns)
        return overview(watch.model, now_ns, wanted)

    def status() -> Status:
        return Status(servers, watch.away_s(), watch.unreadable)

    if options["as_json"]:
        click.echo(json.dumps(plain(seen() | {"unreadable": watch.unreadable}), ensure_ascii=False))
    elif options["once"] or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print_once(seen(), status(), options["view"], options["lines"])
    else:
        screen_of = Screen(Look(options["view"]))
        await screen_of.run(watch, seen, status, options["every"])


def print_once(seen: Mapping[str, Any], status: Status, view: str, lines: int) -> None:
    """Print the tables as text, as wide as the terminal, or 120 where there is none."""
    console = Console(highlight=False, soft_wrap=True)
    width = console.width if console.is_terminal else 120
    shown = header(seen, status, width)
    for name in VIEWS[1:] if view == "all" else (view,):
        rows = ordered(name, seen[f"{name[:-1]}_rows"], Look())
        shown += [Text(""), *table(name, rows, width, lines + 1)]
        if len(rows) > lines:
            shown.append(Text(f"and {len(rows) - lines} more: --lines N, or --json for all", style="dim"))
    for line in shown:
        line.rstrip()
        console.print(line)


class Screen:
    """The live screen."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.stop = asyncio.Event()
        self._again = asyncio.Event()
        self._height = 24

    async def run(self, watch: Watch, seen: Any, status: Any, every_s: float) -> None:
        """Draw until stopped: every so often, and at once after a key."""
        on_interrupt(self.stop)
        console = Console(highlight=False)
        held = seen()
        with (
            listening(self.press),
            Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
        ):
            while not self.stop.is_set():
                watch.check()
                began = time.monotonic()
                held = held if self.look.paused else seen()
                self._height = console.height
                live.update(Group(*screen(held, status(), self.look, console.width, console.height)), refresh=True)
                self._again.clear()
                with contextlib.suppress(TimeoutError):
                    # A look at a very large fleet takes a part of a second: the rest is for what comes from the bus.
                    await asyncio.wait_for(self._again.wait(), max(every_s, 3 * (time.monotonic() - began)))

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        look = self.look
        page = max(1, self._height - 8)
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "b": -page, "pagedown": page, " ": page}
        if key in ("q", "Q"):
            self.stop.set()
        elif key in ("tab", "right", "backtab", "left"):
            step = 1 if key in ("tab", "right") else -1
            self._view(VIEWS[(VIEWS.index(look.view) + step) % len(VIEWS)])
        elif key in "1234":
            self._view(VIEWS[int(key) - 1])
        elif key in moves:
            look.top = max(0, look.top + moves[key])
        elif key in ("home", "g", "end", "G"):
            look.top = 0 if key in ("home", "g") else 1 << 30
        elif key in ("s", "S") and look.view in SORTS:
            look.sort[look.view] = (look.sort.get(look.view, 0) + (1 if key == "s" else -1)) % len(SORTS[look.view])
            look.top = 0
        elif key in SWITCHES:
            setattr(look, SWITCHES[key], not getattr(look, SWITCHES[key]))
        self._again.set()

    def _view(self, view: str) -> None:
        self.look.view, self.look.top, self.look.reverse = view, 0, False
