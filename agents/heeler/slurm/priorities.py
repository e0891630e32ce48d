"""Why jobs wait in this order: the factors of their priority from ``sprio``, a row for each job and partition."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.fields import NOT_TOLD, finite, header_rows, word
from heeler.slurm.jsonnumbers import integer
from heeler.slurm.rows import read_each

NAME = "priorities"


def _signed(text: str) -> int | None:
    # Weighted parts are printed rounded; nice and the site's factor may be below 0.
    return integer(text, signed=True)


def _tres(text: str) -> dict[str, float] | None:
    found: dict[str, float] = {}
    for part in filter(None, text.strip().split(",")):
        name, equals, value = part.partition("=")
        amount = finite(value) if equals else None
        if amount is None or not name.strip():
            raise ParseError("not a TRES", part)
        found[name.strip()] = amount
    return found or None


# sprio's letter, column, reader. Small letters are the normalized factors, 0 to 1; what sprio does not know it leaves
# out and says so on stderr only: so account and QOS, which came with 23.02, go last.
FORMAT: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("i", "job_id", word),
    ("r", "partition", word),
    ("u", "user", word),
    ("Y", "priority", integer),
    ("y", "priority_normalized", finite),
    ("S", "site", _signed),
    ("A", "age", _signed),
    ("a", "age_factor", finite),
    ("B", "association", _signed),
    ("b", "association_factor", finite),
    ("F", "fairshare", _signed),
    ("f", "fairshare_factor", finite),
    ("J", "job_size", _signed),
    ("j", "job_size_factor", finite),
    ("P", "partition_priority", _signed),
    ("p", "partition_factor", finite),
    ("Q", "qos_priority", _signed),
    ("q", "qos_factor", finite),
    ("N", "nice", _signed),
    ("T", "tres", _tres),
    ("t", "tres_factors", _tres),
    ("o", "account", word),
    ("n", "qos", word),
)
LATER = ("account", "qos")
ARGV = ("sprio", "-o", "|".join(f"%{letter}" for letter, *_ in FORMAT))


async def collect(clients: Clients) -> Table:
    """Ask for the factors of all jobs that wait."""
    return await clients.ask(NAME, (Way("text", ARGV, parse_text),))


def parse_text(data: bytes) -> Table:
    """Return the table of sprio's answer with its headings. Raises ParseError."""
    headings, lines, unreadable = header_rows(data, "JOBID")
    fields = FORMAT if headings[-1] else FORMAT[: -len(LATER)]
    # A letter that is not known leaves nothing but the delimiter before it.
    shown = [name for name in headings if name]
    if len(shown) != len(fields):
        raise ParseError("not the columns that were asked for", "|".join(headings))
    rows, not_read = read_each(lines, partial(_row, fields), lambda line: line[0].strip() or None)
    absent = {} if fields is FORMAT else dict.fromkeys(LATER, NOT_TOLD)
    return table_of(NAME, rows, absent=absent, unreadable=[*unreadable, *not_read])


def _row(fields: Sequence[tuple[str, str, Callable[[str], Any]]], line: Sequence[str]) -> dict[str, Any]:
    row = {column: read(text.strip()) for (_, column, read), text in zip(fields, line, strict=False)}
    if row["job_id"] is None:
        raise ParseError("not a job", "|".join(line))
    return row


COLLECTOR = Collector(NAME, 300.0, collect)
