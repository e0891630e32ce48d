"""heeler: one command for everything that is not the node agent.

Each command's module is imported when it is called: `heeler --help` must not pay for numpy and OTLP.
"""

import importlib
import sys

import click
from click.shell_completion import CompletionItem

from heeler.bus import BusError, ConfigError

# command -> (module, name in it, one line of help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "bus": ("heeler.cli.bus", "bus", "Create and inspect streams and buckets."),
    "completion": ("heeler.cli.completion", "completion", "Print the completion script of a shell."),
    "drain": ("heeler.cli.drain", "drain", "Look at the drainer, and steer it."),
    "doctor": ("heeler.cli.doctor", "doctor", "Check a site and say what to fix."),
    "events": ("heeler.cli.events", "events", "Print what happened, in order of time."),
    "health": ("heeler.cli.health", "health", "Check this node, or ask another to check itself."),
    "record": ("heeler.cli.record", "record", "Write messages from the bus to a capture file."),
    "replay": ("heeler.cli.replay", "replay", "Run processors over a capture, or publish it again."),
    "report": ("heeler.cli.report", "command", "Report GPU-hours of jobs, users, accounts, partitions."),
    "run": ("heeler.cli.run", "run", "Run a processor."),
    "sim": ("heeler.sim.cli", "sim_cli", "Simulate a fleet, live or into a capture."),
    "slurm": ("heeler.slurm.cli", "slurm_cli", "Parse what Slurm prints."),
    "tap": ("heeler.cli.tap", "tap", "Print messages from the bus as JSON lines."),
    "top": ("heeler.cli.top", "top", "Show GPUs, jobs and findings, live."),
    "why": ("heeler.cli.why", "why", "Say why a node, job or GPU is in trouble."),
}


class Lazy(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command's module and return the command."""
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        try:
            command = getattr(importlib.import_module(module), name)
        except ImportError as err:
            extra = "pip install 'heeler[all]'"
            raise click.ClickException(f"heeler {cmd_name} needs a package that is not here ({err}): {extra}") from err
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands without importing any; a command's own options are asked of it."""
        found = [CompletionItem(name, help=about[2]) for name, about in sorted(COMMANDS.items())]
        return [one for one in found if one.value.startswith(incomplete)] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in sorted(COMMANDS)])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="heeler")
def heeler() -> None:
    """GPU cluster monitoring as an event stream."""


def main() -> None:
    """Be the `heeler` command; a fault is one line and exit status 1 or 2."""
    try:
        heeler()
    except ConfigError as err:
        click.echo("\n".join(f"heeler: {fault}" for fault in str(err).split("; ")), err=True)
        sys.exit(2)
    except BusError as err:
        click.echo(f"heeler: {err}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
