"""heeler doctor: checks a site and says what to fix."""

import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from heeler.bus import BusError, BusSettings, ConfigError
from heeler.cli.common import bus_options, connected, run, safe
from heeler.doctor import bus, bus_facts, node, node_facts, slurm, slurm_facts
from heeler.doctor.model import Line, exit_status
from heeler.engine import config
from heeler.health.policy import PATH

AREAS = ("bus", "slurm", "node")


@dataclass(frozen=True, slots=True)
class Where:
    """What is looked at, and where it is."""

    areas: Sequence[str]
    url: str | None
    config_path: str | None
    role: str | None
    node: str
    commands: slurm_facts.Commands
    paths: node_facts.Paths


@click.command()
@bus_options
@click.option("--only", multiple=True, type=click.Choice(AREAS), help="What to look at; everything unless said.")
@click.option("--role", type=click.Choice(sorted(bus.WRITES)), help="Also: may this user publish what a role must?")
@click.option("--node", "name", help="This node's name in Slurm; else SLURMD_NODENAME, else the short host name.")
@click.option("--slurm-bin", help="Folder of Slurm's commands.")
@click.option("--slurm-conf", help="Path of slurm.conf.")
@click.option("--policy", default=str(PATH), show_default=True, help="Policy of heeler-health.")
@click.option("--outbox", help="Where heeler-health writes; as its policy says unless told.")
@click.option("--caches", help="What `heeler-health serve` keeps fresh; as its policy says unless told.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
def doctor(
    url: str | None,
    config_path: str | None,
    only: Sequence[str],
    role: str | None,
    name: str | None,
    slurm_bin: str | None,
    slurm_conf: str | None,
    policy: str,
    outbox: str | None,
    caches: str | None,
    *,
    as_json: bool,
) -> None:
    """Check the bus, Slurm and this node, and say what to fix.

    Run it on a node as root, or with --only bus --only slurm anywhere else. Exit status: 0 nothing is bad, 1 something
    is, 2 wrong options, 3 nothing is bad, though something can't be told.
    """
    name = name or os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    commands = slurm_facts.Commands(slurm_bin, slurm_conf)
    paths = node_facts.Paths(Path(policy), Path(outbox) if outbox else None, Path(caches) if caches else None)
    where = Where(only or AREAS, url, config_path, role, name, commands, paths)
    lines = examine(where)
    for line in lines:
        click.echo(json.dumps(line.as_json(), ensure_ascii=False) if as_json else _for_people(line))
    sys.exit(exit_status(lines))


def examine(where: Where) -> list[Line]:
    """Look at everything that was asked for."""
    lines: list[Line] = []
    site = slurm_facts.read(where.commands) if {"slurm", "node"} & set(where.areas) else slurm.SlurmFacts("not asked")
    here = None
    if "node" in where.areas:
        here = node_facts.read(where.node, site.config, site.nodes, where.paths)
    if "bus" in where.areas:
        facts, cluster = _bus(where)
        lines += bus.judge(facts, where.role, cluster, where.node)
        if facts.error is None:
            with_gpus = [one.name for one in site.nodes if one.gpus_total] if site.nodes is not None else None
            lines += bus.judge_agents(facts, with_gpus)
    if "slurm" in where.areas:
        lines += slurm.judge(site, node.deadlines_s(here.scripts if here else {}))
    if here is not None:
        lines += node.judge(here)
    return lines


def _bus(where: Where) -> tuple[bus.BusFacts, str]:
    table = dict(config.read_toml(where.config_path).get("bus", {}))
    settings = BusSettings.load(table | ({"servers": where.url} if where.url else {}), {} if where.url else os.environ)

    async def main() -> bus.BusFacts:
        async with connected(where.url, where.config_path, "doctor") as client:
            return await bus_facts.read(client)

    try:
        found: bus.BusFacts = run(main())
    except (BusError, ConfigError) as err:
        why = str(err).removeprefix(f"no bus at {', '.join(settings.servers)}:").strip()
        return bus.BusFacts(settings.servers, error=why or "no answer"), settings.cluster
    return found, settings.cluster


def _for_people(line: Line) -> str:
    advice = f"\n         -> {safe(line.advice)}" if line.advice else ""
    return safe(f"{line.grade:7}  {line.area} {line.what}: {line.says}") + advice
