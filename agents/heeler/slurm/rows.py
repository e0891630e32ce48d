"""Rows of Slurm's JSON answers: what jobs and nodes have in common."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from heeler.slurm.errors import ParseError
from heeler.slurm.gres import NULLS

MAX_TEXT = 4096  # characters of a free text that are kept
# As in host lists, and short enough for a subject whatever the escaping.
_NODE_NAME = re.compile(r"[A-Za-z0-9_.+:\-]{1,64}|[A-Za-z0-9_\-]{1,200}", re.ASCII)


class Row(Protocol):
    """A row of an answer: a map, or a struct of the fields that are read."""

    def get(self, key: str, default: Any = None, /) -> Any:
        """Return a field; None (or the default) where it is absent."""
        ...


def is_row(value: Any) -> TypeGuard[Row]:
    """Whether this can be a row at all."""
    return hasattr(value, "get")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that could not be read: its name or id where that much was clear, and why."""

    name: str | None
    why: str


def rows_of(value: Mapping[str, Any], key: str) -> list[Any]:
    """Return an answer's list. Raises ParseError where it has errors or no such list: such an answer says nothing."""
    errors = value.get("errors")
    if errors:
        raise ParseError("Slurm reports errors", errors)
    rows = value.get(key)
    if not isinstance(rows, list):
        raise ParseError(f"no list of {key} in the answer", sorted(map(str, value))[:20])
    return rows


def read_each(
    found: Iterable[Any], read: Callable[[Any], dict[str, Any]], name_of: Callable[[Any], str | None]
) -> tuple[list[dict[str, Any]], list[Unreadable]]:
    """Return the rows that can be read, and the others by name: each row is whole, or none."""
    rows: list[dict[str, Any]] = []
    unreadable: list[Unreadable] = []
    for entry in found:
        try:
            rows.append(read(entry))
        except ParseError as err:
            unreadable.append(Unreadable(name_of(entry), str(err)))
    return rows, unreadable


def name_in(row: Any) -> str | None:
    """Return what a row of JSON calls itself, where it is one."""
    return row.get("name") if isinstance(row, dict) else None


def map_in(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a map that stands in a row; an empty one where there is none."""
    found = row.get(key)
    return found if isinstance(found, dict) else {}


def version_of(value: Mapping[str, Any]) -> str | None:
    """Return Slurm's release from an answer's ``meta``, or None."""
    meta = value.get("meta")
    if not isinstance(meta, dict):
        return None
    about = meta.get("slurm") or meta.get("Slurm")
    release = about.get("release") if isinstance(about, dict) else None
    return release if isinstance(release, str) and release else None


def optional(row: Row, key: str) -> str | None:
    """Return a text, None where it is absent, empty or null. Raises ParseError for another type."""
    value = free_text(row, key)
    return None if value is None or value.lower() in ("(null)", "n/a") else value


def words(value: Any) -> tuple[str, ...]:
    """Return names from a list or a text with commas. Raises ParseError."""
    if value is None:
        return ()
    if isinstance(value, str):
        return () if value.strip().lower() in NULLS else tuple(w.strip() for w in value.split(",") if w.strip())
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(word.encode(errors="replace").decode() for word in value)
    raise ParseError("not a list of names", value)


def is_node_name(name: str) -> bool:
    """Whether a node can be called so, on the bus as well."""
    return _NODE_NAME.fullmatch(name) is not None


def free_text(row: Row, key: str) -> str | None:
    """Return a text that people write, such as a name or a reason: any words, even "N/A"; None where empty.

    Lone surrogates become "?", and what is over 4096 characters is cut. Raises ParseError for another type.
    """
    value = row.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ParseError(f"{key} is not text", value)
    return value[:MAX_TEXT] if value.isascii() else value[:MAX_TEXT].encode(errors="replace").decode()
