"""Slurm's settings as slurmctld has them: ``scontrol show config``, a row for each."""

import re
from typing import Any

from heeler.slurm.clients import Clients, Way
from heeler.slurm.collect import Collector, Table, table_of
from heeler.slurm.errors import ParseError
from heeler.slurm.rows import MAX_TEXT

NAME = "config"
MAIN = "slurm.conf"
STATE = "controllers"
_SETTING = re.compile(r"([A-Za-z][^\s=:]*)\s*=(?:\s(.*)|$)")
_TITLE = re.compile(r"(\S.*?)\s*:\s*$")
_CONTROLLER = re.compile(r"(Slurmctld\([^)]*\))\s+(at\s.*|.*\b(?:UP|DOWN)\b.*)")
_NULLS = frozenset(("(null)", ""))


async def collect(clients: Clients) -> Table:
    """Ask for all settings."""
    return await clients.ask(NAME, (Way("text", ("scontrol", "show", "config"), parse_text),))


def parse_text(data: bytes) -> Table:
    """Return the table of ``scontrol show config``. Raises ParseError.

    A value may hold ``=``. A line that is neither a setting nor a title goes on with the value above it.
    """
    rows: list[dict[str, Any]] = []
    section, known = MAIN, False
    text = data.decode(errors="replace")
    for line in text.splitlines():
        if not line.strip() or line.startswith("Configuration data as of"):
            known = known or line.startswith("Configuration data")
            continue
        if found := _SETTING.match(line):
            value = (found[2] or "").strip()
            rows.append({"section": section, "key": found[1], "value": None if value in _NULLS else value[:MAX_TEXT]})
        elif found := _CONTROLLER.match(line):
            rows.append({"section": STATE, "key": found[1], "value": found[2].strip()})
        elif found := _TITLE.fullmatch(line):
            section = found[1]
        elif rows:
            rows[-1]["value"] = f"{rows[-1]['value'] or ''}\n{line.strip()}".strip()[:MAX_TEXT]
    if not known or not rows:
        raise ParseError("not what scontrol show config says" if text.strip() else "empty answer", text.strip())
    return table_of(NAME, rows)


COLLECTOR = Collector(NAME, 3600.0, collect)
