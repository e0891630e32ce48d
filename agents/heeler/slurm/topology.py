"""The network as Slurm knows it: switches of a tree or blocks, from ``scontrol show topology``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heeler.slurm.clients import Clients
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import CommandFailedError, ParseError
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jsonnumbers import integer
from heeler.slurm.oneliner import entries, pairs, value
from heeler.slurm.rows import read_each

NAME = "topology"
ARGV = ("scontrol", "--oneliner", "show", "topology")
NOTHING = "No topology information"
NAMES = {"SwitchName": "switch", "BlockName": "block", "AggregatedBlock": "aggregated_block"}


async def collect(clients: Clients) -> Table:
    """Ask for it. Raises SlurmError.

    scontrol ends well here without a controller too, and says so beside its output. Where there is no topology, older
    versions say that there, and 24.11 says nothing.
    """
    done = await clients.run(ARGV)
    said = done.error_text.strip()
    if not done.stdout.strip() and said and NOTHING not in said:
        raise CommandFailedError(done.argv, done.rc, done.error_text)
    return replace(parse_text(done.stdout), source="scontrol")


def parse_text(data: bytes) -> Table:
    """Return the table of ``scontrol --oneliner show topology``. Raises ParseError.

    A cluster without a topology prints nothing there: the table is empty.
    """
    lines = [line for line in entries(data.decode(errors="replace")) if NOTHING not in line]
    rows, unreadable = read_each(lines, lambda line: _row(pairs(line), line), lambda _: None)
    if unreadable and not rows:
        raise ParseError("no line of a topology", lines[0])
    return table_of(NAME, rows, unreadable=unreadable)


def _row(found: Mapping[str, str], line: str) -> dict[str, Any]:
    key = next(iter(found), "")
    if key not in NAMES or not found[key]:
        raise ParseError("neither switch nor block", line)
    return {
        "name": found[key],
        "kind": NAMES[key],
        "level": integer(found.get("Level")),
        "link_speed": integer(found.get("LinkSpeed")),
        "nodes": list(expand_set(value(found, "Nodes"))),
        "children": list(expand_set(value(found, "Switches"))),
        "block_index": integer(found.get("BlockIndex")),
        "block_size": integer(found.get("BlockSize")),
    }


COLLECTOR = Collector(NAME, 3600.0, collect)
