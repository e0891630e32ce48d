"""What the commands that talk to the bus share."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import click
import msgpack

from heeler.bus import Bus, BusError, BusSettings, TokenError, escape
from heeler.bus.client import RETRYABLE
from heeler.engine import config
from heeler.engine.process import set_up_logs

GIVE_UP_S = 5.0
INBOX = "_INBOX_heeler-cli"  # of all commands of people


def bus_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where the bus is."""
    path = click.Path(dir_okay=False)
    command = click.option("--config", "config_path", type=path, help="TOML file with a [bus] table.")(command)
    return click.option("--url", help="nats://HOST:PORT; else HEELER_NATS_URL, else the config file.")(command)


def cluster_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that names one cluster of a bus."""
    text = "Only of this cluster, where several share the bus."
    return click.option("--cluster", callback=_cluster, help=text)(command)


def _cluster(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            escape(value)
        except TokenError as err:
            raise click.BadParameter(f"not the name of a cluster: {err}", param=param) from err
    return value


@contextlib.asynccontextmanager
async def connected(url: str | None, config_path: str | None, name: str) -> AsyncIterator[Bus]:
    """Connect for a command of a person, who wants an error soon rather than endless tries."""
    set_up_logs(config.LogSettings(level="error", format="console"))
    table = dict(config.read_toml(config_path).get("bus", {}))
    settings = BusSettings.load(table) if url is None else BusSettings.load({**table, "servers": url}, env={})
    settings = replace(settings, inbox_prefix=settings.inbox_prefix or INBOX)
    try:
        bus = await Bus.connect(settings, f"heeler-{name}", give_up_after_s=GIVE_UP_S)
    except RETRYABLE as err:
        raise BusError(f"no bus at {', '.join(settings.servers)}: {str(err) or type(err).__name__}") from err
    try:
        yield bus
    finally:
        await bus.close()


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Make an error of one line of what the bus does not answer."""
    try:
        yield
    except RETRYABLE as err:
        raise BusError(f"the bus does not answer: {str(err) or type(err).__name__}") from err


def safe(text: str) -> str:
    """Return a line in which nothing can move the cursor, change colours or turn the direction of writing.

    Names, reasons and lines of logs come from nodes and users: they are shown, never obeyed.
    """
    return text if text.isprintable() else "".join(ch if ch.isprintable() else "?" for ch in text)


def say(line: str, *, err: bool = False) -> None:
    """Print a line, of which no control character reaches the terminal."""
    click.echo(safe(line), err=err)


def run(main: Any) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(main)


def on_interrupt(stop: asyncio.Event) -> None:
    """End in order on Ctrl-C and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)


def readable(payload: bytes) -> Any:
    """Return a payload for people: decoded if it can be, bytes as text or hex."""
    try:
        return plain(msgpack.unpackb(payload, raw=False))
    except Exception as err:  # noqa: BLE001 - a person looks at what is there, whatever it is
        return {"undecodable": payload[:256].hex(), "error": f"{type(err).__name__}: {err}"}


def plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
