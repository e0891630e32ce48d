"""heeler run: a processor as a process."""

import importlib
import sys

import click

from heeler.engine import process

PROGRAMS = {
    "enrich": "heeler.enrich.program",
    "detect": "heeler.detect.program",
    "drain": "heeler.drain.program",
    "otlp": "heeler.otlp.program",
    "otlp-in": "heeler.otlpin.program",
    "console": "heeler.console.program",
    "summary": "heeler.summary.program",
    "lemon": "heeler.lemon.program",
}


@click.command()
@click.argument("name", type=click.Choice(sorted(PROGRAMS)))
@click.option("--config", "path", type=click.Path(dir_okay=False), help="TOML file.")
@click.option("--listen", help="HOST:PORT of the endpoint with /metrics and /healthz.")
@click.option("--print-config", is_flag=True, help="Print the settings in force and end.")
def run(name: str, path: str | None, listen: str | None, *, print_config: bool) -> None:
    """Run a processor until SIGTERM. Start as many of each as you like: they share the work, or stand by.

    Exit status: 0 stopped in order, 1 the bus closed the connection for good, 2 wrong options or settings.
    """
    try:
        program = importlib.import_module(PROGRAMS[name]).PROGRAM
    except ImportError as err:
        extra = f"pip install 'heeler[{'console' if name == 'console' else 'processors'}]'"
        raise click.ClickException(f"heeler run {name} needs a package that is not here ({err}): {extra}") from err
    assert isinstance(program, process.Program)
    sys.exit(process.run(program, path, listen=listen, show=print_config))
