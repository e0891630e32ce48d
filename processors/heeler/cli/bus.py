"""heeler bus: streams and buckets."""

import json
from pathlib import Path

import click

from heeler.bus import BusError, admin
from heeler.bus.client import RETRYABLE
from heeler.bus.subjects_gen import STREAMS
from heeler.cli.common import answered, bus_options, connected, run

SMALL_DISK = "; give the server a larger `max_file` (jetstream), or all streams less with --scale 0.1"


@click.group()
def bus() -> None:
    """Create and inspect streams and buckets."""


@bus.command()
@bus_options
@click.option("--replicas", default=1, show_default=True, help="Most replicas of a stream; 3 on a cluster.")
@click.option("--scale", default=1.0, show_default=True, help="Factor on every stream's max_bytes, for small disks.")
@click.option("--force", is_flag=True, help="Also shrink limits, which drops messages.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def init(url: str | None, config_path: str | None, replicas: int, scale: float, *, force: bool, as_json: bool) -> None:
    """Create or update every stream and bucket; says what it changed.

    Exit status: 0 all is as it should be, 1 no bus, or limits would shrink, 2 wrong options.
    """

    async def main() -> None:
        async with connected(url, config_path, "init") as bus:
            try:
                changes = await admin.init(bus, replicas=replicas, scale=scale, force=force)
            except RETRYABLE as err:
                hint = SMALL_DISK if "insufficient storage" in str(err) else ""
                raise BusError(f"streams: {str(err) or type(err).__name__}{hint}") from err
            if as_json:
                click.echo(json.dumps({"changes": list(changes)}))
                return
            for change in changes:
                click.echo(change)
            if not changes:
                click.echo("all streams and buckets are as they should be")

    run(main())


@bus.command()
@bus_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each stream.")
def status(url: str | None, config_path: str | None, *, as_json: bool) -> None:
    """Say how full each stream is.

    Exit status: 0 said, 1 no bus, or a stream is missing, 2 wrong options.
    """

    async def main() -> None:
        async with connected(url, config_path, "status") as bus:
            with answered():
                for name in STREAMS:
                    info = await bus.js.stream_info(name)
                    state = info.state
                    limit = info.config.max_bytes or 0
                    if as_json:
                        found = {"stream": name, "messages": state.messages, "bytes": state.bytes, "max_bytes": limit}
                        click.echo(json.dumps(found))
                        continue
                    full = f"{100 * state.bytes / limit:5.1f} %" if limit > 0 else "      "
                    click.echo(f"{name:14} {state.messages:>10} messages {state.bytes / 2**20:>10.1f} MiB {full}")

    run(main())


@bus.command()
@click.argument("site", type=click.Path(dir_okay=False))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for the files.")
def config(site: str, out: Path) -> None:
    """Write nats-server's configuration for a site: servers, leaf servers of racks, users and what they may do."""
    from heeler.access.render import files  # noqa: PLC0415 - the other commands need no ClusterShell
    from heeler.access.site import load  # noqa: PLC0415

    made = files(load(site))
    out.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        part = out / f".{name}.part"
        part.write_text(text)
        part.replace(out / name)
        click.echo(out / name)
