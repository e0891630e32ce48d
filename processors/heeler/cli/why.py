"""heeler why: the answer to the question that people have."""

import json
import sys
import time

import click

from heeler.cli.common import answered, bus_options, cluster_option, connected, plain, run, say
from heeler.console import why as answers
from heeler.console.facts import Facts, of_job, of_node
from heeler.console.gpus import of_gpu

NOT_KNOWN = 3
KINDS = {"node": (of_node, answers.node), "job": (of_job, answers.job), "gpu": (of_gpu, answers.gpu)}


@click.command()
@click.argument("kind", type=click.Choice(sorted(KINDS)))
@click.argument("name")
@bus_options
@cluster_option
@click.option("--json", "as_json", is_flag=True, help="Print everything behind the answer as one JSON object.")
def why(kind: str, name: str, url: str | None, config_path: str | None, cluster: str | None, *, as_json: bool) -> None:
    """Say why a node, job or GPU is in trouble, with evidence and where to look further.

    NAME of a GPU: its UUID, at least eight characters of its beginning, or NODE:INDEX. Exit status: 0 answered, 1 no
    bus, 2 wrong options, 3 nothing is known of that name, or it is not the name of one.
    """
    read, tell = KINDS[kind]

    async def main() -> Facts:
        async with connected(url, config_path, "why") as bus:
            with answered():
                return await read(bus, name, time.time_ns(), cluster)

    facts = run(main())
    if as_json:
        click.echo(json.dumps(plain(answers.as_json(facts) | {"answer": list(tell(name, facts))}), ensure_ascii=False))
    else:
        for line in tell(name, facts):
            say(line)
    sys.exit(0 if facts.known() and len(facts.gpus) < 2 else NOT_KNOWN)
