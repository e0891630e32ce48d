"""Host lists: ``gn[009-011],rk[1-2]n[01-03]`` to names and back.

ClusterShell folds. It does not expand here: it sorts, refuses ranges whose bounds differ in width, reads ``@``, ``!``
and ``&`` as operators, and expands a range of 10^9 names before anyone can say no.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import prod

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from ClusterShell.RangeSet import RangeSetException

from heeler.slurm.errors import ParseError

MAX_NAMES = 65_536
MAX_NAME = 255
MAX_TEXT = 8 << 20
NULLS = frozenset(("", "none assigned", "not assigned", "n/a", "none", "null", "unknown"))

_LITERAL = re.compile(r"[A-Za-z0-9_.+:\-]+", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Span:
    low: int
    high: int
    width: int

    def __len__(self) -> int:
        return self.high - self.low + 1

    def names(self) -> Iterable[str]:
        return (str(number).zfill(self.width) for number in range(self.low, self.high + 1))


_Part = str | list[_Span]


def expand(text: str | None) -> list[str]:
    """Return the names in Slurm's own order, repeats kept; none for each spelling of null.

    The padding is the width of a range's low bound; of several brackets the leftmost changes slowest.
    Raises ParseError, also above 65,536 names, before it makes one.
    """
    if text is None or _says_none(text.strip()):
        return []
    text = text.strip()
    if len(text) > MAX_TEXT:
        raise ParseError(f"host list longer than {MAX_TEXT} characters", text)
    entries = [_parse_entry(entry, text) for entry in _split(text)]
    count = sum(prod(_count(part) for part in entry) for entry in entries)
    if count > MAX_NAMES:
        raise ParseError(f"host list of {count} names, more than {MAX_NAMES}", text)
    return [name for entry in entries for name in _names(entry)]


def _says_none(text: str) -> bool:
    """Whether words stand in the place of a list: a null, or squeue's reason in brackets, such as ``(Resources)``."""
    return text.lower() in NULLS or (text.startswith("(") and text.endswith(")"))


def expand_set(text: str | None) -> tuple[str, ...]:
    """Return each name once, in order of appearance. Raises ParseError."""
    return tuple(dict.fromkeys(expand(text)))


def fold(names: Iterable[str]) -> str:
    """Return a host list for which ``set(expand(fold(names))) == set(names)``, whatever their padding.

    Raises ParseError for a name that can't stand in a host list.
    """
    wanted = sorted(set(names))
    for name in wanted:
        if not _LITERAL.fullmatch(name) or len(name) > MAX_NAME or name.lower() in NULLS:
            raise ParseError("not a host name", name)
    plain = ",".join(wanted)
    try:
        nodes = NodeSet.fromlist(wanted, resolver=RESOLVER_NOGROUP)
        nodes.fold_axis = (-1,)  # one bracket only: folding in several dimensions can take minutes
        folded = str(nodes)
        return folded if set(expand(folded)) == set(wanted) else plain
    except (NodeSetException, RangeSetException, ParseError):
        return plain


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, mark in enumerate(text):
        depth += (mark == "[") - (mark == "]")
        if depth not in (0, 1):
            raise ParseError("brackets don't match", text)
        if mark == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    if depth:
        raise ParseError("brackets don't match", text)
    return [*parts, text[start:]]


def _parse_entry(entry: str, text: str) -> list[_Part]:
    parts: list[_Part] = []
    for literal, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", entry):
        if literal and not _LITERAL.fullmatch(literal):
            raise ParseError("not a host list", literal)
        parts.append(literal or [_span(part, text) for part in ranges.split(",")])
    longest = sum(len(p) if isinstance(p, str) else max(len(str(s.high)) + s.width for s in p) for p in parts)
    if not any(isinstance(part, str) for part in parts) or longest > MAX_NAME:
        raise ParseError("not a host name", entry)
    return parts


def _span(part: str, text: str) -> _Span:
    found = _RANGE.fullmatch(part.strip())
    if not found:
        raise ParseError(f"not a range ({part[:40]!r})", text)
    low, high = found[1], found[2] or found[1]
    if int(high) < int(low):
        raise ParseError(f"range runs backwards ({part!r})", text)
    return _Span(int(low), int(high), len(low))


def _count(part: _Part) -> int:
    return 1 if isinstance(part, str) else sum(len(span) for span in part)


def _names(entry: list[_Part]) -> Iterable[str]:
    choices = [[p] if isinstance(p, str) else [n for span in p for n in span.names()] for p in entry]
    return ("".join(chosen) for chosen in product(*choices))
