"""What the name of a column tells of its unit: in the contract units stand in names."""

from collections.abc import Mapping
from typing import Final

from heeler.otlp.names import NS

_SUFFIXES: Final = (
    ("_bytes", "By", None),
    ("_mbps", "By/s", 1e6 / 8),
    ("_ratio", "1", None),
    ("_share", "1", None),
    ("_factor", "1", None),
    ("_ts", "s", NS),
    ("_ns", "s", NS),
    ("_ms", "s", 1e-3),
    ("_mhz", "Hz", 1e6),
    ("_s2", "s2", None),
    ("_s", "s", None),
    ("_w", "W", None),
    ("_c", "Cel", None),
)
# What is counted, where the first or the last word of a name says it.
_THINGS: Final[Mapping[str, str]] = {
    f"{one}s": f"{{{one}}}"
    for one in (
        *("job", "node", "cpu", "gpu", "user", "thread", "agent", "cycle", "file", "share", "core", "run"),
        *("process", "port", "adapter", "link", "interface", "error"),
    )
}


def unit_of(column: str) -> tuple[str, str, float | None]:
    """Return a column's name without its unit, the base unit (UCUM), and what to multiply with to get there."""
    for suffix, unit, scale in _SUFFIXES:
        if column.endswith(suffix) and len(column) > len(suffix):
            return column.removesuffix(suffix), unit, scale
    words = column.split("_")
    if words[-1] == "variance":
        return column, "1", None
    return column, _THINGS.get(words[0]) or _THINGS.get(words[-1]) or "1", None
