"""An answer of sacct that was saved: text or JSON, with warnings before it."""

from collections.abc import Sequence
from datetime import tzinfo

from heeler.slurm.sacct_json import parse_sacct_json
from heeler.slurm.sacct_text import Records, parse_sacct_text

LINES_BEFORE = 100  # warnings that may stand before JSON


def parse_saved_sacct(text: str, *, zone: tzinfo, delimiter: str = "|", fields: Sequence[str] = ()) -> Records:
    """Return its records. Raises ParseError where it is no answer."""
    if any(line.lstrip().startswith("{") for line in text.splitlines()[:LINES_BEFORE]):
        return parse_sacct_json(text)
    return parse_sacct_text(text, zone=zone, delimiter=delimiter, fields=fields)
