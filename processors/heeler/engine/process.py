"""A process on the bus: settings, logs, signals, the endpoint for its own metrics.

A processor describes itself as a `Program`; ``heeler run NAME`` and ``python -m heeler.NAME`` start it.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import structlog
import uvloop

from heeler.bus import Bus, BusError, BusSettings, ConfigError
from heeler.engine import config, notify
from heeler.engine.endpoint import Endpoint

log = structlog.get_logger("heeler.process")


@dataclass(slots=True)
class Context:
    """What a running program has."""

    bus: Bus
    settings: Mapping[str, Any]
    instance: str
    stop: asyncio.Event
    metrics: dict[str, Callable[[], Mapping[str, float]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """A process: its name, the sections of its TOML file, and what it does."""

    name: str
    about: str
    main: Callable[[Context], Awaitable[None]]
    sections: Mapping[str, type[Any]] = field(default_factory=dict)
    connection: Callable[[Mapping[str, Any]], str] | None = None  # its name on the bus; heeler-NAME unless told

    def load(self, path: Path | str | None) -> dict[str, Any]:
        """Return the settings of every section. Raises ConfigError."""
        return config.load(config.read_toml(path), {"bus": BusSettings, "log": config.LogSettings, **self.sections})


def set_up_logs(settings: config.LogSettings) -> None:
    """Send structured logs to stderr."""
    console = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if console else [structlog.processors.dict_tracebacks]),
            structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def instance_name() -> str:
    """Return a name for this process that no other has at the same time."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(2).hex()}"


async def serve(program: Program, settings: Mapping[str, Any], listen: str | None) -> None:
    """Connect, run the program until SIGTERM or SIGINT, and leave the bus in order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    systemd = notify.from_environment()
    found: list[Bus] = []

    def end() -> None:
        systemd.say(notify.STOPPING)
        stop.set()

    def status() -> str:
        if not found:
            return "connecting to the bus"
        return "on the bus" if found[0].client.is_connected else "the bus is away"

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    # Ready before there is a bus: whoever starts us must not wait for that.
    systemd.say(notify.READY)
    keeping = asyncio.create_task(systemd.keep(status))
    try:
        await _serve(program, settings, listen, stop, found.append)
    finally:
        keeping.cancel()


async def _serve(
    program: Program,
    settings: Mapping[str, Any],
    listen: str | None,
    stop: asyncio.Event,
    on_bus: Callable[[Bus], None],
) -> None:
    structlog.contextvars.bind_contextvars(process=program.name)
    context: Context | None = None
    endpoint = Endpoint(program.name, lambda: _metrics(context))
    try:
        if listen:  # before there is a bus: an outage of it is what somebody would look for here
            await _listen(endpoint, listen)
        bus = await _connect(program, settings, stop)
        if bus is None:
            return
        on_bus(bus)
        context = Context(bus, settings, instance_name(), stop)
        try:
            await program.main(context)
        finally:
            await bus.close()
    finally:
        await endpoint.stop()
    log.info("stopped")


async def _connect(program: Program, settings: Mapping[str, Any], stop: asyncio.Event) -> Bus | None:
    """Connect for as long as it takes; None when told to stop before."""
    name = f"heeler-{program.name}" if program.connection is None else program.connection(settings)
    connecting = asyncio.create_task(Bus.connect(settings["bus"], name))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({connecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        connecting.cancel()
        return None
    stopping.cancel()
    return connecting.result()


async def _listen(endpoint: Endpoint, listen: str) -> None:
    try:
        await endpoint.start(listen)
    except (OSError, ValueError, OverflowError) as err:  # taken, no number, no port
        raise BusError(f"can't listen at {listen}: {err}") from err


def _metrics(context: Context | None) -> dict[str, float]:
    if context is None:
        return {"bus_connected": 0.0}
    found: dict[str, float] = {"bus_connected": float(context.bus.client.is_connected)}
    for read in context.metrics.values():
        found.update(read())
    return found


def run(program: Program, path: Path | str | None = None, *, listen: str | None = None, show: bool = False) -> int:
    """Run a program to its end; returns the exit status. Faults of the settings are said in one line each."""
    try:
        settings = program.load(path)
    except ConfigError as err:
        return _faulty(program, err)
    if show:
        click.echo(json.dumps({name: asdict(section) for name, section in settings.items()}, indent=1, default=str))
        return 0
    set_up_logs(settings["log"])
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(program, settings, listen))
    except ConfigError as err:  # what only shows when it is used, such as a plug-in
        return _faulty(program, err)
    except BusError as err:
        log.error("ended", error=f"{type(err).__name__}: {err}")  # noqa: TRY400 - the cause is in the words
        return 1
    return 0


def _faulty(program: Program, error: ConfigError) -> int:
    for fault in str(error).split("; "):
        click.echo(f"heeler {program.name}: {fault}", err=True)
    return 2


def main(program: Program) -> None:
    """Be ``python -m heeler.NAME``."""

    @click.command(help=program.about)
    @click.option("--config", "path", type=click.Path(dir_okay=False), help="TOML file.")
    @click.option("--listen", help="HOST:PORT of the endpoint with /metrics and /healthz.")
    @click.option("--print-config", is_flag=True, help="Print the settings in force and end.")
    def command(path: str | None, listen: str | None, *, print_config: bool) -> None:
        sys.exit(run(program, path, listen=listen, show=print_config))

    command()
