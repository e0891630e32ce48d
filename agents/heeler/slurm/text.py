"""Rows of `squeue --format` and `sacct --parsable`: delimited text whose last field is free.

A job's name may hold the delimiter and newlines. So the free text goes last, a row is split at the first n-1
delimiters only, and rows are told apart by an end mark where one was asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from heeler.slurm.errors import ParseError
from heeler.slurm.jobid import parse_job_id

SQUEUE_FIELDS = ("id", "user", "partition", "state", "name")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as maps of field to text, and the lines that are no row (warnings)."""

    rows: tuple[dict[str, str], ...]
    unparsed: tuple[str, ...] = ()


def split_rows(
    text: str, fields: Sequence[str] = SQUEUE_FIELDS, *, delimiter: str = "|", end: str | None = None
) -> Rows:
    """Return the rows of an output. The first field is a job id; a line without one is unparsed, never a job.

    `end`: the mark that ends each row, itself after a delimiter. Without it, a row is a line, and the delimiter that
    `--parsable` adds at the end of a row is dropped. Raises ParseError for no fields or an empty delimiter.
    """
    if not fields or not delimiter:
        raise ParseError("no fields or no delimiter", f"{fields!r} {delimiter!r}")
    rows: list[dict[str, str]] = []
    unparsed: list[str] = []
    for record in _records(text, delimiter, end):
        row = _split(record, fields, delimiter, marked=end is not None)
        if row is None:
            unparsed += [line for line in record.splitlines() if line.strip()]
            continue
        before, values = row
        unparsed += before
        rows.append(values)
    return Rows(tuple(rows), tuple(unparsed))


def _records(text: str, delimiter: str, end: str | None) -> list[str]:
    if end is None:
        return [line for line in text.splitlines() if line.strip()]
    mark = f"{delimiter}{end}"
    pieces = f"{text.rstrip()}\n".split(f"{mark}\n")
    return [piece for piece in pieces if piece.strip()]


def _split(
    record: str, fields: Sequence[str], delimiter: str, *, marked: bool
) -> tuple[list[str], dict[str, str]] | None:
    """Return the warnings before a row and the row, or None for none."""
    lines = record.split("\n") if marked else [record]
    for at in range(len(lines)):
        values = "\n".join(lines[at:]).split(delimiter, len(fields) - 1)
        if len(values) == len(fields) and _is_id(values[0]):
            if not marked:
                values[-1] = values[-1].removesuffix(delimiter)
            return [line for line in lines[:at] if line.strip()], dict(zip(fields, values, strict=True))
    return None


def begins_with_id(line: str, delimiter: str) -> bool:
    """Whether a line begins as a row does: with a job id and a delimiter."""
    first, found, _ = line.partition(delimiter)
    return bool(found) and _is_id(first)


def _is_id(text: str) -> bool:
    try:
        parse_job_id(text)
    except ParseError:
        return False
    return "=" not in text
