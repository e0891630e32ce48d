"""heeler bus: streams and buckets."""

import click

from heeler.bus import BusError, admin
from heeler.bus.client import RETRYABLE
from heeler.bus.subjects_gen import STREAMS
from heeler.cli.common import bus_options, connected, run


@click.group()
def bus() -> None:
    """Create and inspect streams and buckets."""


@bus.command()
@bus_options
@click.option("--replicas", default=1, show_default=True, help="Most replicas of a stream; 3 on a cluster.")
@click.option("--scale", default=1.0, show_default=True, help="Factor on every stream's max_bytes, for small disks.")
@click.option("--force", is_flag=True, help="Also shrink limits, which drops messages.")
def init(url: str | None, config_path: str | None, replicas: int, scale: float, *, force: bool) -> None:
    """Create or update every stream and bucket; says what it changed."""

    async def main() -> None:
        async with connected(url, config_path, "init") as bus:
            try:
                changes = await admin.init(bus, replicas=replicas, scale=scale, force=force)
            except RETRYABLE as err:
                raise BusError(f"streams: {err or type(err).__name__}") from err
            for change in changes:
                click.echo(change)
            if not changes:
                click.echo("all streams and buckets are as they should be")

    run(main())


@bus.command()
@bus_options
def status(url: str | None, config_path: str | None) -> None:
    """Say how full each stream is."""

    async def main() -> None:
        async with connected(url, config_path, "status") as bus:
            for name in STREAMS:
                info = await bus.js.stream_info(name)
                state = info.state
                limit = info.config.max_bytes or 0
                full = f"{100 * state.bytes / limit:5.1f} %" if limit > 0 else "      "
                click.echo(f"{name:14} {state.messages:>10} messages {state.bytes / 2**20:>10.1f} MiB {full}")

    run(main())
