"""TRES strings: ``cpu=64,mem=500G,node=2,billing=64,gres/gpu:h100=16,gres/gpu=16``."""

import re
from dataclasses import dataclass, field

from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS, parse_gres
from heeler.slurm.jsonnumbers import INFINITE64, NO_VAL64

# Memory is in MiB where no unit is said; counts take the same letters as multiples of 1024.
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGTPE", start=1)}
_MIB = 1024**2
_UNSET = (str(NO_VAL64), str(INFINITE64))
_VALUE = re.compile(r"(\d{1,20}(?:\.\d{1,9})?)([KMGTPE]?)", re.IGNORECASE | re.ASCII)
_KEY = re.compile(r"[A-Za-z][\w.\-]*(?:/[\w.\-@]+(?::[\w.\-+]+)?)?", re.ASCII)
# A request, with colons and always with a count: a text that was cut must not read as one.
_REQUEST = re.compile(r"(?:gres[/:][A-Za-z][\w.\-]*|gpu|shard|mps)(?::[\w.\-]+)?:\d+[KMGTPE]?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tres:
    """Trackable resources. ``gpus`` counts each GPU once; ``mismatch``: the types add up to more than the total."""

    values: dict[str, int]
    gpus: int = 0
    gpus_by_type: dict[str, int] = field(default_factory=dict)
    mem_bytes: int | None = None
    mismatch: bool = False

    @property
    def cpus(self) -> int | None:
        """CPUs, or None where not said."""
        return self.values.get("cpu")

    @property
    def nodes(self) -> int | None:
        """Nodes, or None where not said."""
        return self.values.get("node")


def parse_tres(text: str | None) -> Tres:
    """Return the resources of a TRES string; one of the spellings of null has none. Raises ParseError."""
    if text is None or text.strip().lower() in NULLS:
        return Tres({})
    values: dict[str, int] = {}
    requests = "=" not in text
    for part in text.strip().split(","):
        key, equals, value = part.strip().partition("=")
        if requests and _REQUEST.fullmatch(key):
            _add_request(key, values)
            continue
        if not equals or not _KEY.fullmatch(key):
            raise ParseError("not a TRES", part)
        amount = _amount(key, value, part)
        if amount is not None:
            values[key] = amount
    by_type = {key.removeprefix("gres/gpu:"): n for key, n in values.items() if key.startswith("gres/gpu:")}
    typed = sum(by_type.values())
    total = values.get("gres/gpu")
    return Tres(
        values,
        gpus=typed if total is None else total,
        gpus_by_type=by_type,
        mem_bytes=values.get("mem"),
        mismatch=total is not None and typed > total,
    )


def _add_request(text: str, values: dict[str, int]) -> None:
    """Add what a request says with colons: ``gres/gpu:h100:2``, ``gres:gpu:2``. Raises ParseError."""
    for gres in parse_gres(text):
        values[f"gres/{gres.name}" + (f":{gres.type}" if gres.type else "")] = gres.count


def _amount(key: str, value: str, part: str) -> int | None:
    """Return an amount; None for Slurm's marks of one that is not set, as energy has them. Raises ParseError."""
    if value in _UNSET:
        return None
    found = _VALUE.fullmatch(value)
    if not found:
        raise ParseError("not a TRES", part)
    unit = found[2].upper()
    scale = _UNITS[unit] if unit else _MIB if key == "mem" else 1
    amount = float(found[1]) * scale if "." in found[1] else int(found[1]) * scale
    if amount >= 1 << 63:
        raise ParseError("too large for a TRES", part)
    return round(amount)
