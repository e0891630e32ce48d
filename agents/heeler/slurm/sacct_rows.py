"""Rows of `sacct` as text, whatever stands in them: names with the delimiter, lines broken by newlines.

People write names, comments and command lines, so these may hold the delimiter and newlines. All other fields have
a form. Where a row has more pieces than fields, it is read in the one way in which every other field has its form;
where there are several ways, the row is unreadable: a value is never read as another field's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heeler.slurm.errors import ParseError
from heeler.slurm.rows import Unreadable

# Written by people. They go last where we ask.
FREE = frozenset(
    (
        "jobname",
        "comment",
        "admincomment",
        "systemcomment",
        "submitline",
        "workdir",
        "extra",
        "stdout",
        "stderr",
        "stdin",
        "container",
        "wckey",
        "failednode",
        "licenses",
        "constraints",
        "reservation",
        "reason",
    )
)
_TIME = r"(?:|Unknown|None|N/A|INVALID|\d{1,11}|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)?)"
_SPAN = r"(?:|INVALID|Unknown|[\d:.\-]+)"
_COUNT = r"-?\d*"
_FORMS = {
    **dict.fromkeys(("jobid", "jobidraw"), r"\d+[\w+\-.\[\],%:]*(?:\.\.\.)?[\w+\-.\[\],%:]*"),
    **dict.fromkeys(("submit", "eligible", "start", "end"), _TIME),
    **dict.fromkeys(("elapsed", "suspended", "cputime", "totalcpu", "usercpu", "systemcpu", "planned"), _SPAN),
    **dict.fromkeys(("reserved", "plannedcpu", "resvcpu", "avecpu", "mincpu"), _SPAN),
    **dict.fromkeys(("elapsedraw", "cputimeraw", "ncpus", "nnodes", "alloccpus", "allocnodes", "ntasks"), _COUNT),
    **dict.fromkeys(("uid", "gid", "associd", "qosraw", "priority", "restarts", "reservationid", "wckeyid"), _COUNT),
    **dict.fromkeys(("exitcode", "derivedexitcode"), r"(?:|\d+:\d+(?::\w+)?)"),
    **dict.fromkeys(("alloctres", "reqtres"), r"(?:|[\w/.:+\-]+=[^,|]*(?:,[\w/.:+\-]+=[^,|]*)*)"),
    "state": r"[A-Z][A-Z_]*\+?(?: by (?:[\w.@+\-]+))?",
    "timelimit": r"(?:|[A-Za-z_]+|[\d:\-]+)",
    "timelimitraw": r"(?:|[A-Za-z_]+|\d+)",
    "reqmem": r"(?:|[\d.]+[KMGTPEkmgtpe]?[ncNC]?\??)",
}
_COMPILED = {name: re.compile(form, re.ASCII) for name, form in _FORMS.items()}
MAX_BROKEN_LINES = 2000  # lines of one row


@dataclass(frozen=True, slots=True)
class SacctRows:
    """Rows as maps of field (as sacct spells it) to text, and what could not be read."""

    fields: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    unreadable: tuple[Unreadable, ...] = ()


def split_sacct(text: str, *, delimiter: str = "|", fields: Sequence[str] = ()) -> SacctRows:
    """Return the rows of an answer. The header, which sacct always prints, names the fields; else `fields` do.

    Raises ParseError where there is neither: then it is no answer, not an empty one.
    """
    lines = text.split("\n")
    at = next((n for n, line in enumerate(lines) if line.strip()), None)
    names = tuple(fields)
    trailing = False
    for n, line in enumerate(lines[:200]):
        found = line.rstrip("\r").split(delimiter)
        if {"jobid", "jobidraw"} & {name.lower() for name in found} and all(re.fullmatch(r"\w*", w) for w in found):
            trailing = len(found) > 1 and found[-1] == ""
            names, at = tuple(found[: -1 if trailing else None]), n + 1
            break
    if not names or at is None:
        if fields and at is None:
            return SacctRows(names, ())
        raise ParseError("no header of sacct", text.strip())
    if {"jobid", "jobidraw"}.isdisjoint(name.lower() for name in names):
        raise ParseError("no JobID among the fields", delimiter.join(names))
    return _assemble(lines[at:], names, delimiter, trailing=trailing)


def _assemble(lines: Sequence[str], names: tuple[str, ...], delimiter: str, *, trailing: bool) -> SacctRows:
    """Join broken lines to rows. A line that can begin no row belongs to the row before."""
    splitter = _Splitter(names, delimiter, trailing=trailing)
    rows: list[dict[str, str]] = []
    unreadable: list[Unreadable] = []

    def close(held: Sequence[str], ways: Sequence[dict[str, str]]) -> None:
        whole = "\n".join(held).rstrip("\n")
        if len(ways) == 1:
            rows.append(ways[0])
        elif whole.strip():
            why = "can be read in several ways" if ways else "not a row of sacct"
            unreadable.append(Unreadable(splitter.name(whole), f"{why}: {whole[:200]!r}"))

    held: list[str] = []
    for line in lines:
        # A row that can be read ends where a line could begin another one. One that can't ends where the next can.
        if held and splitter.begins(line):
            ways = splitter.ways("\n".join(held))
            if ways or splitter.ways(line) or len(held) >= MAX_BROKEN_LINES:
                close(held, ways)
                held = []
        held.append(line)
    while held and not held[-1].strip():
        held.pop()
    close(held, splitter.ways("\n".join(held)))
    return SacctRows(names, tuple(rows), tuple(unreadable))


class _Splitter:
    """Cuts one row into its fields."""

    def __init__(self, names: tuple[str, ...], delimiter: str, *, trailing: bool) -> None:
        self._names, self._delimiter, self._trailing = names, delimiter, trailing
        lower = [name.lower() for name in names]
        self._free = [name in FREE for name in lower]
        self._forms = [_COMPILED.get(name) for name in lower]
        self._ids = [at for at, name in enumerate(lower) if name in ("jobid", "jobidraw")]
        self._first_free = self._free.index(True) if True in self._free else len(names)

    def begins(self, line: str) -> bool:
        """Whether a line could begin a row: what stands before its first free field has its form."""
        if not line.strip():
            return False
        pieces = line.split(self._delimiter, self._first_free)
        need = min(self._first_free, len(self._names))
        if len(pieces) < min(need + 1, len(self._names)):
            return False
        if need == 0:
            return line.count(self._delimiter) >= len(self._names) - 1
        return all(self._fits(at, piece.rstrip("\r")) for at, piece in enumerate(pieces[:need]))

    def _fits(self, at: int, piece: str) -> bool:
        form = self._forms[at]
        return form.fullmatch(piece.strip()) is not None if form else "\n" not in piece

    def name(self, text: str) -> str | None:
        """Return the job's id where the row shows it for sure."""
        for at in self._ids:
            pieces = text.split(self._delimiter)
            if at < self._first_free and at < len(pieces) and self._fits(at, pieces[at]):
                return pieces[at].strip().partition(".")[0]
        return None

    def ways(self, text: str) -> list[dict[str, str]]:
        """Return the ways to read a row; two of them suffice to say that it is not clear."""
        text = text.removesuffix("\r")
        if self._trailing:
            if not text.endswith(self._delimiter):
                return []
            text = text[: -len(self._delimiter)]
        pieces = text.split(self._delimiter)
        surplus = len(pieces) - len(self._names)
        if surplus < 0:
            return []
        if surplus == 0:
            fits = all(free or self._fits(at, pieces[at]) for at, free in enumerate(self._free))
            return [dict(zip(self._names, pieces, strict=True))] if fits else []
        found: list[list[str]] = []
        self._place(pieces, 0, 0, surplus, [], found)
        return [dict(zip(self._names, values, strict=True)) for values in found]

    def _place(
        self, pieces: list[str], at: int, used: int, surplus: int, before: list[str], found: list[list[str]]
    ) -> None:
        if len(found) > 1:
            return
        if at == len(self._names):
            if used == len(pieces):
                found.append(list(before))
            return
        last = at == len(self._names) - 1
        for extra in range(surplus + 1) if self._free[at] else (0,):
            if last and extra != surplus:
                continue
            value = self._delimiter.join(pieces[used : used + 1 + extra])
            if not self._free[at] and not self._fits(at, value):
                return
            self._place(pieces, at + 1, used + 1 + extra, surplus - extra, [*before, value], found)
