"""Nodes that a job's command line excludes. Pure."""

import re
from collections.abc import Sequence

from heeler.slurm.errors import ParseError
from heeler.slurm.hostlist import expand

# -x n1, -xn1, --exclude=n1, --exclude n1; the value may stand in quotes.
EXCLUDE = re.compile(r"""(?:^|\s)(?:--exclude(?:=|\s+)|-x\s*=?\s*)(?:"([^"]+)"|'([^']+)'|(\S+))""")
MOST = 256  # a job that leaves out more is particular about something else


def excluded_nodes(submit_line: str | None) -> Sequence[str]:
    """Return the nodes that a command line leaves out; none where it names too many, a file, or what can't be read."""
    if not submit_line or ("-x" not in submit_line and "--exclude" not in submit_line):
        return ()
    found = EXCLUDE.search(submit_line)
    if found is None:
        return ()
    value = next(group for group in found.groups() if group)
    if "/" in value:  # a file
        return ()
    try:
        names = tuple(dict.fromkeys(expand(value)))
    except ParseError:
        return ()
    return names if len(names) <= MOST else ()
