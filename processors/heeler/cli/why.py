"""heeler why: the answer to the question that people have."""

import json
import sys
import time

import click

from heeler.bus import Bus, BusError
from heeler.bus.client import RETRYABLE
from heeler.cli.common import bus_options, connected, plain, run
from heeler.console import why as answers
from heeler.console.facts import Facts, of_gpu, of_job, of_node

NOT_KNOWN = 3
KINDS = {"node": (of_node, answers.node), "job": (of_job, answers.job), "gpu": (of_gpu, answers.gpu)}


@click.command()
@click.argument("kind", type=click.Choice(sorted(KINDS)))
@click.argument("name")
@bus_options
@click.option("--json", "as_json", is_flag=True, help="Print everything behind the answer as one JSON object.")
def why(kind: str, name: str, url: str | None, config_path: str | None, *, as_json: bool) -> None:
    """Say why a node, job or GPU is in trouble, with evidence and where to look further.

    Exit status: 0 answered, 1 no bus, 3 nothing is known of that name.
    """
    read, tell = KINDS[kind]

    async def main() -> Facts:
        async with connected(url, config_path, "why") as bus:
            return await ask(bus)

    async def ask(bus: Bus) -> Facts:
        try:
            return await read(bus, name, time.time_ns())
        except RETRYABLE as err:
            raise BusError(f"the bus does not answer: {err or type(err).__name__}") from err

    facts = run(main())
    if as_json:
        click.echo(json.dumps(plain(answers.as_json(facts)), ensure_ascii=False))
    else:
        for line in tell(name, facts):
            click.echo("".join(ch if ch.isprintable() else "?" for ch in line))
    sys.exit(0 if facts.known() else NOT_KNOWN)
