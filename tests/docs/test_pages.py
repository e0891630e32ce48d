"""What the pages say can be followed: links lead somewhere, commands are commands, settings are settings."""

import re
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from docpages import PAGES, ROOT, Code, anchors, commands, links, name, split
from needs import need

from heeler.access.site import load as load_site
from heeler.bus import BusSettings
from heeler.cli.main import heeler
from heeler.drain.settings import load_policy
from heeler.engine import config
from heeler.health import cli as health_cli
from heeler.health.policy import make_policy
from heeler.health.table import CHECKS, PROFILES
from heeler.sim import script

BLOCKS = [block for page in PAGES for block in split(page)[1]]
PROCESSES = (
    *("heeler.console.program", "heeler.detect.program", "heeler.drain.program", "heeler.lemon.program"),
    *("heeler.otlp.program", "heeler.otlpin.program", "heeler.slurm.agent", "heeler.health.serve"),
)
PLACEHOLDER = re.compile(r"^[A-Z][A-Z_]*$|\.\.\.|\|")
ELSEWHERE = re.compile(r'"(/etc/heeler/[^"]*\.(?:pem|key|jwt|creds)|\$CREDENTIALS_DIRECTORY/[^"]*)"')


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: Path) -> None:
    dead = []
    for number, target in links(page):
        if re.match(r"[a-z]+:", target):  # another site
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            dead.append(f"{name(page)}:{number}: {target}: no such file")
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file)):
            dead.append(f"{name(page)}:{number}: {target}: no such heading")
    assert dead == []


def width_of(row: str) -> int:
    """Return how many cells a row has; a bar between backticks divides cells too, unless it is escaped."""
    return len(row.replace("\\|", "").strip()[1:-1].split("|"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page: Path) -> None:
    broken, before, width = [], "", 0
    for number, line in split(page)[0]:
        cells = width_of(line)
        if re.fullmatch(r"(\|\s*:?-+:?\s*)+\|", line):
            width = cells
            broken += [] if width_of(before) == cells else [f"{name(page)}:{number - 1}"]
        elif not line.startswith("|"):
            width = 0
        elif width and cells > width:
            broken.append(f"{name(page)}:{number}: {cells} cells, {width} in the head")
        before = line
    assert broken == []


def test_every_page_of_docs_is_in_the_index() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for _, target in links(index)}
    pages = {page for page in PAGES if page.parent == index.parent and page != index}
    assert {name(page) for page in pages - linked} == set()


def parse(words: list[str]) -> None:
    """Parse a command line of `heeler` as far as it can be without running. Raises click's errors."""
    command: click.Command = heeler
    ctx = click.Context(command, info_name="heeler")
    while isinstance(command, click.Group) and words:
        if words[0] in ("--help", "-h", "--version"):
            return
        _, found, words = command.resolve_command(ctx, words)
        assert found is not None
        command = found
        ctx = click.Context(command, info_name=command.name, parent=ctx)
    assert not isinstance(command, click.Group), "a command is missing"
    if command.params == [] and command.ignore_unknown_options:  # those that are passed on to heeler-health
        return
    values, rest, _ = command.make_parser(ctx).parse_args(args=list(words))
    assert not rest, f"too many words: {rest}"
    for param in command.params:
        value = values.get(param.name or "")
        if param.name not in values or value in (None, ()) or "UNSET" in repr(value):  # click's word for: not given
            missing = param.required and not any(word in ("-h", "--help") for word in words)
            assert not missing, f"{param.name} is missing"
        elif not isinstance(param.type, click.Path) and not PLACEHOLDER.search(str(value)):
            param.type_cast_value(ctx, value)


def of(program: str) -> list[Any]:
    return [
        pytest.param(words, id=f"{block}: {' '.join(words)[:60]}")
        for block in BLOCKS
        for words in commands(block, program)
    ]


@pytest.mark.parametrize("words", of("heeler"))
def test_every_command_line_of_heeler_parses(words: list[str]) -> None:
    if words[:1] == ["health"] and words[1:2] != ["ask"]:
        health_cli._parser().parse_args(words[1:])
        return
    try:
        parse(words)
    except click.ClickException as err:
        pytest.fail(f"heeler {' '.join(words)}: {err.format_message()}")


@pytest.mark.parametrize("words", of("heeler-health"))
def test_every_command_line_of_heeler_health_parses(words: list[str]) -> None:
    if words[:1] != ["serve"] and not any(PLACEHOLDER.search(word) for word in words[:1]):
        try:
            health_cli._parser().parse_args(words)
        except SystemExit:
            pytest.fail(f"heeler-health {' '.join(words)}")


def test_a_command_line_that_is_none_is_found() -> None:
    for line in (
        "whyy node n1",
        "why node",
        "why nodes n1",
        "events --sinc 1h",
        "events --since soon",
        "bus",
        "top now",
    ):
        with pytest.raises((click.ClickException, AssertionError)):
            parse(line.split())


def is_toml(block: Code) -> bool:
    """Say whether a block is TOML: by its fence, or by its first line."""
    if block.language:
        return block.language == "toml"
    first = next((line for line in block.text.splitlines() if line.strip() and not line.startswith("#")), "")
    return bool(re.match(r"\[\[?[a-z_.]+\]\]?\s*(#.*)?$|[a-z_]+ = [\"\[{\dtf]", first))


def sections() -> dict[str, type[Any]]:
    """Return all sections that a process on the bus has."""
    found: dict[str, type[Any]] = {"bus": BusSettings, "log": config.LogSettings}
    for module in PROCESSES:
        found |= import_module(module).PROGRAM.sections
    return found


TOML = [block for block in BLOCKS if is_toml(block) and "[project]" not in block.text]  # pyproject.toml of a plug-in
PLUG_IN = re.compile(r'(?<=kind = )"jsonhttp"')  # the example of docs/sinks.md, which is not installed here


@pytest.mark.parametrize("block", TOML, ids=str)
def test_every_piece_of_settings_is_taken_by_what_it_is_for(block: Code, tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_text("secret")
    text = ELSEWHERE.sub(f'"{file}"', block.text).replace("[...,", "[")
    table = tomllib.loads(PLUG_IN.sub('"stdout"', text))
    if "fault" in table:
        script.parse(text)
    elif "site" in table:
        (tmp_path / "site.toml").write_text(text)
        load_site(tmp_path / "site.toml")
    elif table.keys() & {"nats", "dcgm"}:
        agent(text if "cluster" in table else f'cluster = "north"\n{text}', tmp_path)
    elif table.keys() & {"limits", "rules"}:
        (tmp_path / "policy.toml").write_text(text)
        load_policy(str(tmp_path / "policy.toml"))
    elif table.keys() & {"profiles", "checks", "leftovers", "groups"} or table.keys() == {"cluster"}:
        make_policy(table, "n1", CHECKS, PROFILES)
    else:
        config.load(table, sections())


def agent(text: str, folder: Path) -> None:
    """Have the node agent check settings."""
    need("agent")
    (folder / "agent.toml").write_text(text)
    argv = [str(ROOT / "bin/heeler-agent"), "config", "check", "-config", str(folder / "agent.toml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_there_are_settings_and_commands_to_look_at() -> None:
    assert len(TOML) > 20
    assert len(of("heeler")) > 60
