"""Every table that the feed asks for, a row each: to add one, write a module and put its collector here.

    async def collect(clients: Clients) -> Table:
        return await clients.ask("licenses", (
            Way("rest", ("slurm", "licenses"), parse_json),
            Way("json", ("scontrol", "show", "licenses"), parse_json),
            Way("text", ("scontrol", "--oneliner", "show", "licenses"), parse_text),
        ))

    COLLECTOR = Collector("licenses", 60.0, collect)                # lane="slurmdbd" where sacct or sacctmgr answer

- The columns stand in schemas/slurm_tables.yaml under the collector's name (`make gen` after a change).
- `parse` is pure: bytes in, a Table out (`table_of` makes one from rows), or a ParseError where the answer is none.
  A row that can't be read goes to `unreadable`; an empty list is an empty table; a column that this version lacks goes
  to `absent` with the reason. Values that are not known are None.
- Collectors of one lane ask one after the other; the lanes don't wait for each other.
- `Messages` in place of a Table publishes other messages, such as JobRecords; `done` is called after the streams have
  stored them, so what is remembered moves only then.
- What a collector must remember between its turns goes to `clients.memory[name]`.
- The interval can be set as ``[slurm.intervals] licenses = 30``; 0 is off.
"""

from heeler.slurm import (
    accounting,
    associations,
    config,
    licenses,
    partitions,
    priorities,
    qos,
    quotas,
    reservations,
    runaway,
    sched,
    shares,
    storage,
    topology,
    users,
)
from heeler.slurm.collect import Collector

COLLECTORS: tuple[Collector, ...] = (
    associations.COLLECTOR,
    config.COLLECTOR,
    licenses.COLLECTOR,
    partitions.COLLECTOR,
    priorities.COLLECTOR,
    qos.COLLECTOR,
    quotas.COLLECTOR,
    reservations.COLLECTOR,
    runaway.COLLECTOR,
    sched.COLLECTOR,
    shares.COLLECTOR,
    storage.COLLECTOR,
    topology.COLLECTOR,
    users.COLLECTOR,
    accounting.ENDED_COLLECTOR,
    accounting.RUNNING_COLLECTOR,
)
