"""Resources in accounting: TRES maps with Slurm's marks for "not known" left out, and what steps used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS
from heeler.slurm.jsonnumbers import INFINITE64, NO_VAL64
from heeler.slurm.memory import parse_size
from heeler.slurm.times import parse_duration
from heeler.slurm.tres import parse_tres

# Also as signed numbers. Smaller ones may be amounts.
NOT_KNOWN = frozenset((NO_VAL64, INFINITE64, -1, -2))
_MEMORY = ("mem", "vmem")
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts by name; GPUs are counted once, whether Slurm names their type, only their number, or both."""

    values: dict[str, int]
    gpus: int | None = None
    gpus_by_type: Mapping[str, int] | None = None


def amounts(text: str) -> Amounts | None:
    """Return a TRES string's amounts, None for none; what Slurm does not know is left out. Raises ParseError."""
    if text.strip().lower() in NULLS:
        return None
    known = [part for part in text.strip().split(",") if not _is_not_known(part.partition("=")[2])]
    return _counted(parse_tres(",".join(known)).values) if known else Amounts({})


def amounts_json(rows: Any) -> Amounts | None:
    """Return the amounts of a JSON list of TRES, None for none. Raises ParseError."""
    if rows is None or rows == []:
        return None
    if not isinstance(rows, list):
        raise ParseError("not a list of TRES", rows)
    values: dict[str, int] = {}
    for row in rows:
        kind, name, count = (row.get("type"), row.get("name"), row.get("count")) if isinstance(row, dict) else (0, 0, 0)
        if not isinstance(kind, str) or not kind:
            raise ParseError("not a TRES", row)
        if isinstance(count, dict):
            count = count.get("number") if count.get("set", True) and not count.get("infinite") else None
        if count is None or count in NOT_KNOWN:
            continue
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 63:
            raise ParseError("not a TRES", row)
        values[f"{kind}/{name}" if name else kind] = count * _MIB if kind == "mem" else count
    return _counted(values)


def used(text: str) -> dict[str, float] | None:
    """Return what a step used, in seconds, bytes and counts: ``cpu=00:00:01,fs/disk=2332,mem=3196K``.

    Raises ParseError.
    """
    if text.strip().lower() in NULLS:
        return None
    found: dict[str, float] = {}
    for part in text.strip().split(","):
        name, equals, value = part.strip().partition("=")
        if not name or not equals:
            raise ParseError("not a TRES", part)
        if _is_not_known(value):
            continue
        amount = parse_duration(value) if ":" in value else parse_size(value)
        if amount is not None:
            found[name] = amount
    return found or None


def _counted(values: dict[str, int]) -> Amounts:
    by_type = {name.removeprefix("gres/gpu:"): n for name, n in values.items() if name.startswith("gres/gpu:")}
    total = values.get("gres/gpu")
    # A site that does not account for GPUs has none in TRES: that is no count of 0.
    gpus = total if total is not None else sum(by_type.values()) if by_type else None
    return Amounts(values, gpus, by_type or None)


def _is_not_known(value: str) -> bool:
    word = value.strip()
    return word.removeprefix("-").isdecimal() and int(word) in NOT_KNOWN
