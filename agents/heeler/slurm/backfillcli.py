"""`heeler slurm backfill`: accounting of any window onto the bus."""

import asyncio
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from heeler.bus import BusError, ConfigError
from heeler.cli.common import bus_options, connected
from heeler.engine import config
from heeler.slurm.backfill import Backfill, Summary
from heeler.slurm.clients import Clients
from heeler.slurm.publishcli import publish_records
from heeler.slurm.sacct import Sacct, Window
from heeler.slurm.settings import SlurmSettings

SHOWN = 20
_STEP = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Span(click.ParamType[int]):
    """A time such as 90s, 30m, 1h or 7d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return seconds."""
        if isinstance(value, int):
            return value
        found = _STEP.fullmatch(str(value).strip())
        if not found or not int(found[1]):
            self.fail(f"{value!r}: not a duration such as 90s, 30m, 1h or 7d", param, ctx)
        return int(found[1]) * _SECONDS[found[2]]


class Instant(click.ParamType[int]):
    """A time with its zone, seconds since the epoch, now, or so long ago (-3h)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return seconds since the epoch."""
        if isinstance(value, int):
            return value
        text, now = str(value).strip(), int(time.time())
        if text == "now":
            return now
        if ago := _STEP.fullmatch(text.removeprefix("-")):
            if text.startswith("-"):
                return now - int(ago[1]) * _SECONDS[ago[2]]
        elif re.fullmatch(r"\d{9,10}", text, re.ASCII):
            return int(text)
        try:
            stamp = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{value!r}: not a time such as 2026-03-01T00:00Z, 2026-03-01 (UTC), -3h or now", param, ctx)
        # A day has no doubt about it; an hour without a zone does, and in autumn there are two of it.
        if stamp.tzinfo is None and len(text) > len("2026-03-01"):
            self.fail(f"{value!r}: say the zone, such as {text}Z or {text}+01:00", param, ctx)
        return int((stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp())


@click.command("backfill")
@click.option("--from", "start", type=Instant(), required=True, help="First second: 2026-03-01T00:00Z, -7d ...")
@click.option("--to", "end", type=Instant(), default="now", show_default=True, help="First second after the window.")
@click.option("--step", type=Span(), default="1h", show_default=True, help="How much one sacct is asked for.")
@click.option("--timeout", type=Span(), default="120s", show_default=True, help="Of one sacct; then halves are asked.")
@click.option("--pause", type=float, default=0.5, show_default=True, help="Seconds between two questions.")
@click.option("--max-rate", type=click.FloatRange(min=0.1), help="Records a second at most.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="File that says what is done.")
@click.option("--slurm-bin-dir", type=click.Path(file_okay=False), help="Where sacct is.")
@click.option("--quiet", is_flag=True, help="Only the summary.")
@bus_options
def backfill(**options: Any) -> None:
    """Publish what accounting has of all runs that ended in a window.

    In chunks, one sacct at a time, a chunk that takes too long in halves. With --state it goes on where it was ended,
    also by kill -9. A second time changes nothing on the bus: a run has one subject and its content one message id.
    Exit status 0: all is on the bus. 1: chunks failed (they are named; run it again) or rows could not be read.
    2: it could not begin.
    """
    if options["end"] <= options["start"]:
        raise click.UsageError("--to is not after --from")
    try:
        summary = asyncio.run(_run(**options))
    except (BusError, ConfigError, OSError) as err:
        click.echo(f"heeler slurm backfill: {err}", err=True)
        sys.exit(2)
    _report(summary)
    sys.exit(0 if summary.complete and not summary.unreadable else 1)


async def _run(url: str | None, config_path: str | None, **options: Any) -> Summary:
    table = dict(config.read_toml(config_path).get("slurm", {}))
    if options["slurm_bin_dir"]:
        table["bin_dir"] = options["slurm_bin_dir"]
    settings = config.build(SlurmSettings, table, "slurm")
    async with connected(url, config_path, "backfill") as bus:
        sacct = Sacct(Clients(settings, bus.cluster), float(options["timeout"]))
        work = Backfill(
            ask=sacct.ended,
            publish=lambda records: publish_records(bus, records),
            whole=Window(options["start"], options["end"]),
            step_s=options["step"],
            state=options["state"],
            pause_s=options["pause"],
            max_rate=options["max_rate"],
            tell=(lambda _: None) if options["quiet"] else lambda line: click.echo(line, err=True),
        )
        return await work.run()


def _report(summary: Summary) -> None:
    skipped = f", {summary.skipped_s} s of the window were done before" if summary.skipped_s else ""
    click.echo(f"{summary.records} records in {summary.chunks} chunks{skipped}")
    for line in summary.unreadable[:SHOWN]:
        click.echo(f"unreadable: {line}", err=True)
    if len(summary.unreadable) > SHOWN:
        click.echo(f"unreadable: and {len(summary.unreadable) - SHOWN} more", err=True)
    for chunk, why in summary.failed:
        click.echo(f"failed: {chunk}: {why}", err=True)
    if summary.given_up:
        click.echo("failed: the rest was not tried, as accounting does not answer; run it again", err=True)
    elif summary.failed:
        click.echo("failed: run it again with the same --state, and only these are asked for", err=True)
