"""`sinfo` as people and scripts print it: groups of nodes with their state, from JSON and from text with a header.

The feed itself asks scontrol; this is for support: what does Heeler make of that line?
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import tzinfo
from typing import Any

from heeler.slurm import jsonfix
from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS, gpu_count, parse_gres
from heeler.slurm.hostlist import expand_set
from heeler.slurm.jsonnumbers import epoch_ns, integer
from heeler.slurm.rows import map_in, rows_of
from heeler.slurm.state import parse_node_state, parse_partition
from heeler.slurm.times import parse_timestamp

NODES, REASON = "NODELIST", "REASON"


def read_sinfo(text: str, zone: tzinfo) -> Iterator[dict[str, Any] | ParseError]:
    """Yield groups of nodes, and a ParseError in the place of a row that can't be read."""
    try:
        if any(line.lstrip().startswith("{") for line in text.splitlines()[:100]):
            rows: Sequence[Any] = rows_of(jsonfix.loads(text).value, "sinfo")
            read = _from_json
        else:
            rows = _table(text)

            def read(row: Any) -> dict[str, Any]:
                return _from_text(row, zone)

    except ParseError as err:
        yield err
        return
    for row in rows:
        try:
            yield read(row)
        except ParseError as err:
            yield err


def _from_json(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict) or not isinstance(row.get("nodes"), dict):
        raise ParseError("not a group of nodes", row)
    nodes, cpus, gres, reason = (map_in(row, key) for key in ("nodes", "cpus", "gres", "reason"))
    return {
        **_state(map_in(row, "node").get("state") or ""),
        "nodes": [name for text in nodes.get("nodes") or () for name in expand_set(text)],
        "node_count": integer(nodes.get("total")),
        "partition": map_in(row, "partition").get("name"),
        **_gres(gres.get("total"), gres.get("used")),
        "cpus_allocated": integer(cpus.get("allocated")),
        "cpus_idle": integer(cpus.get("idle")),
        "cpus_other": integer(cpus.get("other")),
        "cpus": integer(cpus.get("total")),
        "reason": reason.get("description") or None,
        "reason_user": reason.get("user") or None,
        "reason_ts": epoch_ns(reason.get("time")),
        "reservation": row.get("reservation") or None,
    }


def _table(text: str) -> list[dict[str, str]]:
    """Return rows by the names of the header. Raises ParseError."""
    lines = [line for line in text.splitlines() if line.strip()]
    at = next((at for at, line in enumerate(lines) if NODES in line or "STATE" in line), None)
    if at is None:
        raise ParseError("no header with NODELIST or STATE", lines[0] if lines else "")
    header, body = lines[at], lines[at + 1 :]
    if "|" in header:
        names = [name.strip() for name in header.split("|")]
        return [_zip(names, line.split("|"), line) for line in body]
    names = header.split()
    if REASON in names and names[-1] != REASON:
        # Words with blanks in the middle: then columns begin where their names do.
        starts = [header.index(name) for name in names]
        return [
            _zip(names, [line[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)], line) for line in body
        ]
    return [_zip(names, line.split(None, len(names) - 1), line) for line in body]


def _zip(names: Sequence[str], values: Sequence[str], line: str) -> dict[str, str]:
    if (
        len(values) == len(names) - 1
        and names[-1] == NODES
        and dict(zip(names, values, strict=False)).get("NODES") == "0"
    ):
        values = [*values, ""]  # a partition without nodes
    if len(names) != len(values):
        raise ParseError(f"{len(values)} fields for {len(names)} columns", line)
    found: dict[str, str] = {}
    for name, value in zip(names, values, strict=True):
        # `sinfo -o %all` has STATE twice: the second is the long form.
        found[name] = value.strip()
    return found


def _from_text(row: Mapping[str, str], zone: tzinfo) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (state := row.get("STATE", "")).lower() not in NULLS:  # a partition without nodes has n/a
        found |= _state(state)
    if NODES in row:
        found["nodes"] = list(expand_set(row[NODES]))
    if "NODES" in row:
        found["node_count"] = integer(row["NODES"])
    if row.get("PARTITION", "").lower() not in NULLS:
        partition = parse_partition(row["PARTITION"])
        found |= {"partition": partition.name, "is_default": partition.default}
    if "GRES" in row or "GRES_USED" in row:
        found |= _gres(row.get("GRES"), row.get("GRES_USED"))
    if "CPUS(A/I/O/T)" in row:
        counts = row["CPUS(A/I/O/T)"].split("/")
        if len(counts) != 4:
            raise ParseError("not allocated/idle/other/total", row["CPUS(A/I/O/T)"])
        keys = ("cpus_allocated", "cpus_idle", "cpus_other", "cpus")
        found |= dict(zip(keys, map(integer, counts), strict=True))
    if row.get(REASON, "").lower() not in NULLS:
        found |= {"reason": row[REASON], "reason_user": row.get("USER")}
        found["reason_ts"] = parse_timestamp(row["TIMESTAMP"], zone) if "TIMESTAMP" in row else None
    return found


def _state(value: Any) -> dict[str, Any]:
    state = parse_node_state(value)
    return {**asdict(state), "drained": state.drained, "draining": state.draining, "available": state.available}


def _gres(total: Any, used: Any) -> dict[str, Any]:
    return {
        "gres": total,
        "gres_used": used,
        "gpus": None if total is None else gpu_count(parse_gres(total)),
        "gpus_used": None if used is None else gpu_count(parse_gres(used)),
    }
