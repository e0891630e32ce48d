"""heeler completion: what a shell needs to complete commands and options."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "fish", "zsh")
VARIABLE = "_HEELER_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    bash: heeler completion bash > ~/.local/share/bash-completion/completions/heeler, or in ~/.bashrc
    eval "$(heeler completion bash)". zsh: into a folder of $fpath as _heeler, or eval. fish: into
    ~/.config/fish/completions/heeler.fish. Exit status: 0 printed, 2 no such shell.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "heeler", VARIABLE).source())
