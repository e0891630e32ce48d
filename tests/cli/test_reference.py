"""docs/cli.md names every command, its JSON and its exit statuses, as the commands' own help does."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from heelercli import heeler as run_heeler

from heeler.cli.main import heeler
from heeler.cli.topscreen import HELP

PAGE = Path(__file__).resolve().parents[2] / "docs/cli.md"
CODE = re.compile(r"(?<![\w.\-])([0-9])(?=:? [a-zA-Z])")


def leaves(command: click.Command, path: tuple[str, ...], ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None
        yield from leaves(found, (*path, name), click.Context(found, info_name=name, parent=ctx))


COMMANDS = dict(leaves(heeler, ("heeler",), click.Context(heeler, info_name="heeler")))
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| `heeler ") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 6
}


def test_every_command_has_a_row_and_every_row_is_a_command() -> None:
    assert list(ROWS) == sorted(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_works_and_says_the_same_exit_statuses_as_the_page(name: str) -> None:
    done = CliRunner().invoke(heeler, [*name.split()[1:], "--help"])
    assert done.exit_code == 0, done.output
    said = " ".join((COMMANDS[name].help or "").split()).partition("Exit status")[2]
    codes = {int(code) for code in CODE.findall(said.split(". ")[0] if "slurm" not in name else said)} - {2}
    row = ROWS[name]
    page = {code for code, cell in zip((0, 1, 3, 4), row[1:], strict=True) if cell}
    if said and name != "heeler slurm parse":  # whose help names only what is not 0
        assert codes == page
    assert 0 in page


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_page_says_which_commands_print_json(name: str) -> None:
    options = {option for one in COMMANDS[name].params for option in one.opts}
    if "health" in name and name != "heeler health ask":  # passed on, with options of their own
        done = CliRunner().invoke(heeler, [*name.split()[1:], "--help"])
        options = set(re.findall(r"--[a-z]+", done.output))
    if ROWS[name][0] != "always":
        assert ("--json" in options) == (ROWS[name][0] == "`--json`")


def test_a_wrong_option_is_2_everywhere() -> None:
    for name in COMMANDS:
        if not name.startswith("heeler health") or name == "heeler health ask":
            assert CliRunner().invoke(heeler, [*name.split()[1:], "--nonsense"]).exit_code == 2, name


def test_every_key_of_top_is_on_the_page() -> None:
    page = PAGE.read_text().partition("## Keys of")[2].partition("##")[0]
    for keys, _ in HELP:
        for key in keys.replace(",", " ").split():
            if key.isprintable() and key not in ("bad", "age", "?", "2", "3"):
                assert key in page, key


def test_status_and_init_print_json_too(tmp_path: Path) -> None:
    assert "no bus at" in run_heeler("bus", "status", "--json", "--url", "nats://127.0.0.1:1", code=1).stderr
