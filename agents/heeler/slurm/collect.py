"""What a collector of a table is: the types, and nothing that asks.

`heeler.slurm.collectors` is the list of all of them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from heeler.bus.tables_gen import TABLES
from heeler.slurm.clients import Clients
from heeler.slurm.publication import Publication
from heeler.slurm.rows import Unreadable
from heeler.slurm.settings import SlurmSettings

# Who has to answer. One question at a time to each, so that a slow accounting query delays no question for jobs.
Lane = Literal["slurmctld", "slurmdbd", "local"]


@dataclass(frozen=True, slots=True)
class Table:
    """A whole answer as columns of schemas/slurm_tables.yaml. An empty one says that there is nothing: it is no outage.

    `absent`: columns that this source or version does not tell, and why. `unreadable`: rows that could not be read;
    they are counted on the bus, and all others are in the columns.
    """

    columns: Mapping[str, Sequence[Any]]
    rows: int
    absent: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[Unreadable, ...] = ()
    version: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Messages:
    """Other messages than tables. `done` is called once the streams have stored all of them."""

    publications: Sequence[Publication]
    done: Callable[[], None] | None = None
    unreadable: tuple[Unreadable, ...] = ()
    version: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Collector:
    """One thing to ask for. `collect` raises SlurmError where there is no answer that can be believed: an outage.

    `name` is the table's name where it gives a Table. The interval is `[slurm.intervals] <name>` of the settings,
    else `interval_s`; 0 is off. A wait is the interval, more or less by `jitter` of it.
    """

    name: str
    interval_s: float
    collect: Callable[[Clients], Awaitable[Table | Messages]]
    lane: Lane = "slurmctld"
    jitter: float = 0.1
    wanted: Callable[[SlurmSettings], bool] = lambda _settings: True  # whether the settings say what to ask about


def table_of(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    absent: Mapping[str, str] | None = None,
    unreadable: Sequence[Unreadable] = (),
    version: str | None = None,
) -> Table:
    """Return rows (column to value; what is missing is null) as a table with all its columns but the absent ones."""
    left_out = dict(absent or {})
    names = [column for column in TABLES[name].columns if column not in left_out]
    columns = {column: [row.get(column) for row in rows] for column in names}
    return Table(columns, len(rows), left_out, tuple(unreadable), version)
