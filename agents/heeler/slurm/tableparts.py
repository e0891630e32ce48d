"""Tables as messages: what each part of one says, and its bytes. Nothing here knows the bus's connection."""

from collections.abc import Mapping
from typing import Any

import msgspec

from heeler.bus import encode, subjects
from heeler.bus.tables import check_columns, parts_of
from heeler.bus.tables_gen import TABLES
from heeler.slurm.collect import Table
from heeler.slurm.gcpause import gc_paused
from heeler.slurm.packed import Block, PackedColumns
from heeler.slurm.publication import Publication


@gc_paused()
def table_publications(
    cluster: str, feed: str, name: str, table: Table, *, ts_ns: int, duration_ns: int, version: str | None
) -> list[Publication]:
    """Return a table's parts. Raises DecodeError for columns that are not the table's, EncodeError for a huge row."""
    parts = _parts(name, table)
    common: dict[str, Any] = {
        "v": 1,
        "cluster": cluster,
        "feed": feed,
        "table": name,
        "ts": ts_ns,
        "snapshot": f"{name}.{ts_ns}",
        "parts": len(parts),
        "absent": dict(table.absent) or None,
        "total_rows": table.rows,
        "unreadable": len(table.unreadable),
        "source": table.source,
        "slurm_version": table.version or version,
        "duration_ns": duration_ns,
    }
    common = {key: value for key, value in common.items() if value is not None}
    return [
        Publication(
            "SlurmTable",
            subjects.slurm_table(cluster, name, feed, str(part)),
            f"SlurmTable.{feed}.{name}.{ts_ns}.{part}",
            {**common, "part": part, "rows": rows, "columns": columns},
            packed,
        )
        for part, (rows, columns, packed) in enumerate(parts)
    ]


def _parts(name: str, table: Table) -> list[tuple[int, Mapping[str, Any], Block | None]]:
    """Return rows and columns of each part, the columns packed where the table is."""
    packed = table.columns
    if not isinstance(packed, PackedColumns) or not packed.blocks:
        check_columns(TABLES[name], packed, table.rows)
        return [(rows, columns, None) for rows, columns in parts_of(packed, table.rows)]
    if packed.fault is not None:
        raise packed.fault
    return [(block.rows, {}, block) for block in packed.blocks]


def payload_of(publication: Publication) -> bytes:
    """Return the encoded message. Raises EncodeError.

    A table's columns were checked when it was cut (`table_publications`): what `encode` checks is the rest.
    """
    if publication.kind != "SlurmTable":
        return encode(publication.kind, publication.message)
    encode(publication.kind, {**publication.message, "columns": {}, "rows": 0})
    if publication.packed is None:
        return msgspec.msgpack.encode(publication.message)
    return msgspec.msgpack.encode({**publication.message, "columns": msgspec.Raw(publication.packed.encoded())})
