"""`heeler slurm publish`: an answer of sacct that somebody has kept, onto the bus."""

import asyncio
import sys
import time
from typing import Any, BinaryIO

import click

from heeler.bus import Bus, BusError, ConfigError
from heeler.cli.common import bus_options, connected
from heeler.slurm.accounting import publications
from heeler.slurm.errors import ParseError, SlurmError
from heeler.slurm.publisher import Publisher
from heeler.slurm.sacct_text import Records
from heeler.slurm.saved import parse_saved_sacct
from heeler.slurm.settings import SlurmSettings

SHOWN = 20


async def publish_records(bus: Bus, records: Records) -> None:
    """Publish records until the stream has all of them. Raises SlurmError where it refuses one."""
    publisher = Publisher(bus)
    await publisher.publish(publications(bus.cluster, records, time.time_ns()))
    refused = sum(publisher.counts.get(f"slurm_{why}_messages_total", 0) for why in ("refused", "cut"))
    if refused:
        raise SlurmError(f"{refused:g} records are not on the bus: the log says which")


@click.command("publish")
@click.argument("source", type=click.File("rb"), default="-", metavar="[FILE]")
@click.option("--fields", help="Names of the fields, where the text has no header.")
@click.option("--delimiter", default="|", show_default=True, help="What stands between fields.")
@click.option("--zone", help="Time zone of its times, such as Europe/Berlin; this machine's otherwise.")
@bus_options
def publish(**options: Any) -> None:
    """Publish runs of jobs from a saved answer of sacct: text with a header (sacct -P -o all), or JSON.

    A second time changes nothing on the bus: a run has one subject and its content one message id. Exit status 0: all
    is on the bus. 1: rows could not be read (they are named), or the bus refused records. 2: it could not begin.
    """
    source: BinaryIO = options["source"]
    try:
        zone = SlurmSettings(controller_zone=options["zone"]).zone()
        fields = options["fields"].split(",") if options["fields"] else []
        text = source.read().decode(errors="replace")
        found = parse_saved_sacct(text, zone=zone, delimiter=options["delimiter"], fields=fields)
        asyncio.run(_run(options["url"], options["config_path"], found))
    except (BusError, ConfigError, OSError, ParseError) as err:
        click.echo(f"heeler slurm publish: {err}", err=True)
        sys.exit(2)
    except SlurmError as err:
        click.echo(f"heeler slurm publish: {err}", err=True)
        sys.exit(1)
    click.echo(f"{len(found.records)} records")
    for row in found.unreadable[:SHOWN]:
        click.echo(f"unreadable: job {row.name or '?'}: {row.why}", err=True)
    if len(found.unreadable) > SHOWN:
        click.echo(f"unreadable: and {len(found.unreadable) - SHOWN} more", err=True)
    sys.exit(1 if found.unreadable else 0)


async def _run(url: str | None, config_path: str | None, records: Records) -> None:
    async with connected(url, config_path, "publish") as bus:
        await publish_records(bus, records)
