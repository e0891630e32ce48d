"""Amounts of memory as Slurm's accounting prints them."""

import re

from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS

_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,9})?)([KMGTPE]?)", re.IGNORECASE | re.ASCII)
_REQUEST = re.compile(r"(?P<size>[^nc]*)(?P<per>[nc]?)", re.IGNORECASE | re.ASCII)
_SCALE = {"": 1} | {unit: 1024**power for power, unit in enumerate("KMGTPE", start=1)}
_MIB = 1024**2


def parse_size(text: str, bare: int = 1) -> int | None:
    """Return bytes of ``3196K`` or ``1.5G``; a number without a unit counts `bare` bytes each.

    None for none, and for what Slurm does not know. Raises ParseError.
    """
    word = text.strip()
    if word.lower() in NULLS:
        return None
    found = _SIZE.fullmatch(word)
    if not found:
        raise ParseError("not an amount of memory", text)
    scale = _SCALE[found[2].upper()] if found[2] else bare
    size = round(float(found[1]) * scale) if "." in found[1] else int(found[1]) * scale
    # Slurm's mark for "not known" comes rounded and with a unit: 18446744073709551616.00M.
    return size if size < 1 << 63 else None


def parse_request(text: str) -> tuple[int, str] | None:
    """Return bytes and per what (node, cpu or job) of a request: ``4Gn``, ``2000Mc``, ``16G``; MiB without a unit.

    Slurm up to 20.02 said so whether an amount is for each node or processor; later versions give the whole job's.
    Raises ParseError.
    """
    found = _REQUEST.fullmatch(text.strip())
    if text.strip().lower() in NULLS:
        return None
    if not found:
        raise ParseError("not an amount of memory", text)
    if not found["size"].strip():
        raise ParseError("not an amount of memory", text)
    size = parse_size(found["size"], _MIB)
    return None if size is None else (size, {"n": "node", "c": "cpu"}.get(found["per"].lower(), "job"))
