"""GRES strings: ``gpu:h100:8(S:0-1)``, ``gpu:a100:5(IDX:0-3,5),shard:a100:4(0/80)``, ``gres/gpu:2`` ..."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from heeler.slurm.errors import ParseError

SHARED_KINDS = frozenset(("shard", "mps"))  # parts of GPUs, of which several jobs may have some
NULLS = frozenset(("", "(null)", "n/a", "none", "null"))
MAX_INDEX = 4095
MAX_COUNT = (1 << 63) - 1
_UNITS: dict[str, int] = {"": 1} | {unit: 1024**power for power, unit in enumerate("KMGTPE", start=1)}

# Also 1.5T, as people write sizes; a fraction without a unit is no count.
_COUNT = re.compile(r"(\d{1,20})(?:([KMGTPE]?)|(\.\d{1,9})([KMGTPE]))", re.IGNORECASE | re.ASCII)
_COUNTED = frozenset(("gpu", *SHARED_KINDS))  # whatever their case: what is not seen as a GPU is counted as none
_NAME = re.compile(r"[A-Za-z][\w.\-]*", re.ASCII)
_TYPE = re.compile(r"(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9][\w.\-+]*", re.ASCII)
_ANY_TYPE = re.compile(r"[A-Za-z0-9][\w.\-+]*", re.ASCII)
_BRACKETS = re.compile(r"\(([^()]*)\)")
_USE = re.compile(r"(\d{1,18})/(\d{1,18})", re.ASCII)
_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Gres:
    """One generic resource.

    ``indices``: device minors, None where they are not said; of shards those of the GPUs that they are of.
    ``use``: (used, total) of each device, for shards.
    ``mismatch``: the count and the list contradict each other; the count stands.
    """

    name: str
    count: int
    type: str | None = None
    indices: tuple[int, ...] | None = None
    sockets: str | None = None
    use: tuple[tuple[int, int], ...] = ()
    no_consume: bool = False
    mismatch: bool = False


def parse_gres(text: str | None) -> tuple[Gres, ...]:
    """Return the resources of a GRES string, none for each spelling of null. Raises ParseError."""
    if text is None or text.strip().lower() in NULLS:
        return ()
    found = [_parse_one(part.strip(), text) for part in split_outside(text) if part.strip()]
    return tuple(gres for gres in found if gres is not None)


def gpu_count(resources: Iterable[Gres]) -> int:
    """Return how many whole GPUs: shards and other resources are none."""
    return sum(gres.count for gres in resources if gres.name == "gpu")


def gpu_indices(resources: Iterable[Gres]) -> tuple[int, ...] | None:
    """Return the indices of all GPUs, or None unless every one is known."""
    gpus = [gres for gres in resources if gres.name == "gpu" and gres.count]
    if any(gres.indices is None or gres.mismatch for gres in gpus):
        return None
    return tuple(sorted({index for gres in gpus for index in gres.indices or ()}))


def split_outside(text: str) -> list[str]:
    """Split at commas outside round brackets. Raises ParseError for brackets that don't match."""
    parts, depth, start = [], 0, 0
    for at, mark in enumerate(text):
        depth += (mark == "(") - (mark == ")")
        if depth not in (0, 1):
            raise ParseError("brackets don't match", text)
        if mark == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    if depth:
        raise ParseError("brackets don't match", text)
    return [*parts, text[start:]]


def _parse_one(part: str, whole: str) -> Gres | None:
    # Slurm writes (null) for no type: gpu:(null):8(IDX:0-7).
    part = part.replace(":(null)", "")
    head, bracket, _ = part.partition("(")
    notes = _BRACKETS.findall(part)
    if bracket and head + "".join(f"({note})" for note in notes) != part:
        raise ParseError("not a GRES", part)
    for prefix in ("gres/", "gres:"):
        head = head.removeprefix(prefix)
    words = head.replace("=", ":").split(":")
    no_consume = "no_consume" in words[1:]
    words = [words[0], *(word for word in words[1:] if word != "no_consume")]
    if words == ["none"]:
        return None  # what --gres=none leaves behind
    if not _NAME.fullmatch(words[0]) or len(words) > 3:
        raise ParseError("not a GRES", part)
    count = _count(words[-1]) if len(words) > 1 else None
    # gpu and gpu:a100 ask for one.
    middle = words[1:] if count is None else words[1:-1]
    # A type of digits only, such as 3090, is a type where a count follows it.
    form = _TYPE if count is None else _ANY_TYPE
    if len(middle) > 1 or not all(form.fullmatch(word) for word in middle):
        raise ParseError("not a GRES", part)
    name = words[0].lower() if words[0].lower() in _COUNTED else words[0]
    return _with_notes(name, middle[0] if middle else None, 1 if count is None else count, no_consume, notes, whole)


def _with_notes(name: str, kind: str | None, count: int, no_consume: bool, notes: list[str], whole: str) -> Gres:
    indices: tuple[int, ...] | None = None
    sockets: str | None = None
    use: tuple[tuple[int, int], ...] = ()
    mismatch = False
    for note in notes:
        if note.startswith("S:"):
            sockets = note[2:]
        elif note.startswith("IDX:"):
            indices = parse_indices(note[4:])
            # Of shards and MPS shares it lists the GPUs that they are of, and a GPU has many of them.
            mismatch |= len(indices) > count if name in SHARED_KINDS else len(indices) != count
        elif note.startswith("CNT:"):
            mismatch |= _count(note[4:]) != count
        else:
            use = _parse_use(note, whole)
            mismatch |= sum(used for used, _ in use) != count
    if count == 0 and indices is None and "IDX" in "".join(notes):
        indices = ()
    return Gres(name, count, kind, indices, sockets, use, no_consume, mismatch)


def parse_indices(text: str) -> tuple[int, ...]:
    """Return the numbers of ``0-3,5``; none for ``N/A``. Raises ParseError, also above index 4095."""
    if text.strip().lower() in NULLS:
        return ()
    found: set[int] = set()
    for part in text.split(","):
        span = _SPAN.fullmatch(part.strip())
        if not span:
            raise ParseError("not an index list", text)
        low = int(span[1])
        high = int(span[2] or low)
        if high < low or high > MAX_INDEX:
            raise ParseError("not an index list", text)
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def _parse_use(note: str, whole: str) -> tuple[tuple[int, int], ...]:
    pairs = [_USE.fullmatch(part.strip()) for part in note.split(",")]
    if not all(pairs):
        raise ParseError(f"unknown note ({note})", whole)
    return tuple((int(pair[1]), int(pair[2])) for pair in pairs if pair)


def _count(text: str) -> int | None:
    found = _COUNT.fullmatch(text)
    if not found:
        return None
    unit = _UNITS[(found[2] or found[4] or "").upper()]
    count = round(float(found[1] + found[3]) * unit) if found[3] else int(found[1]) * unit
    if count > MAX_COUNT:
        raise ParseError("count too large", text)
    return count
