"""What `heeler slurm parse` reads as one whole answer into rows of a table: to add a kind is one row.

Each is a function of the text (JSON or not: it finds out) and the controller's zone, and gives rows; an Unreadable or
a ParseError stands for what can't be read.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import tzinfo
from typing import Any

from heeler.slurm import (
    associations,
    config,
    licenses,
    partitions,
    priorities,
    qos,
    reservations,
    runaway,
    sched,
    shares,
    topology,
    users,
)
from heeler.slurm.collect import Table
from heeler.slurm.errors import ParseError
from heeler.slurm.jobsjson import parse_jobs_json
from heeler.slurm.jobstext import Marks, parse_jobs_text
from heeler.slurm.nodes import parse_nodes_json, parse_nodes_text
from heeler.slurm.rows import Unreadable
from heeler.slurm.sinfo import read_sinfo

Kind = Callable[[str, tzinfo], Iterator[Mapping[str, Any] | Unreadable | ParseError]]
_MARK = re.compile(r"\|([0-9a-z]+)\.$", re.MULTILINE)


def table_kind(from_json: Callable[[bytes], Table], from_text: Callable[[bytes], Table]) -> Kind:
    """Return the kind of a table, by the two parsers of its collector."""

    def read(text: str, _zone: tzinfo) -> Iterator[Mapping[str, Any] | Unreadable | ParseError]:
        yield from _rows((from_json if is_json(text) else from_text)(text.encode(errors="replace")))

    return read


def text_kind(from_text: Callable[[bytes], Table]) -> Kind:
    """Return the kind of a table that Slurm tells as text only."""
    return lambda text, _zone: _rows(from_text(text.encode(errors="replace")))


def is_json(text: str) -> bool:
    """Whether an answer is JSON; warnings may stand before it."""
    return any(line.lstrip().startswith("{") for line in text.splitlines()[:100])


def _jobs(text: str, zone: tzinfo) -> Iterator[Mapping[str, Any] | Unreadable | ParseError]:
    if is_json(text):
        yield from _rows(parse_jobs_json(text, with_table=True).table)
        return
    mark = _MARK.search(text)
    if mark is None:
        raise ParseError("neither JSON nor rows of the feed's own question", text)
    marks = Marks(f"|{mark[1]}#", f"|{mark[1]}.")
    yield from _rows(parse_jobs_text(text, marks, zone, with_table=True).table)


def _nodes(text: str, zone: tzinfo) -> Iterator[Mapping[str, Any] | Unreadable | ParseError]:
    found = parse_nodes_json(text, with_table=True) if is_json(text) else parse_nodes_text(text, zone, with_table=True)
    yield from _rows(found.table)


def _reservations(text: str, zone: tzinfo) -> Iterator[Mapping[str, Any] | Unreadable | ParseError]:
    data = text.encode(errors="replace")
    yield from _rows(reservations.parse_json(data) if is_json(text) else reservations.parse_text(data, zone))


def _runaway(text: str, zone: tzinfo) -> Iterator[Mapping[str, Any] | Unreadable | ParseError]:
    yield from _rows(runaway.parse_text(text.encode(errors="replace"), zone))


def _rows(table: Table | None) -> Iterator[Mapping[str, Any] | Unreadable]:
    assert table is not None, "asked for"
    columns = dict(table.columns.items())
    for at in range(table.rows):
        yield {name: column[at] for name, column in columns.items() if column[at] is not None}
    yield from table.unreadable


KINDS: Mapping[str, Kind] = {
    "job-table": _jobs,
    "node-table": _nodes,
    "associations": table_kind(associations.parse_json, associations.parse_text),
    "config": text_kind(config.parse_text),
    "licenses": table_kind(licenses.parse_json, licenses.parse_text),
    "partitions": table_kind(partitions.parse_json, partitions.parse_text),
    "priorities": text_kind(priorities.parse_text),
    "qos": table_kind(qos.parse_json, qos.parse_text),
    "reservations": _reservations,
    "runaway": _runaway,
    "sdiag": table_kind(sched.parse_json, sched.parse_text),
    "shares": table_kind(shares.parse_json, shares.parse_text),
    "sinfo": read_sinfo,
    "topology": text_kind(topology.parse_text),
    "users": table_kind(users.parse_json, users.parse_text),
}
