"""Write docs/gcm-parity.md from docs/gcm-parity/*.yaml.

    python schemas/tools/parity.py            write the page
    python schemas/tools/parity.py --check    exit 1 if it differs, or if a row names what is not there

PYTHONPATH needs agents, processors and schemas/python.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from parity_places import METRICS, faults, metric_of
from parity_table import NOT_TAKEN, Row, known_names, table

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/gcm-parity"
PAGE = ROOT / "docs/gcm-parity.md"
HEAD = """<!-- Generated from docs/gcm-parity/*.yaml: do not edit, run `make gen`. -->

# What GCM has, and where it is in Heeler

Every command, option, record, field, check, mode, exit code, sink and kill switch of GCM 0.0.2 (PyPI `gpucm==0.0.2`,
{names} names in [names.txt](gcm-parity/names.txt)), and where it is here. A test fails where a name has no row, or a
row names a function, column, key, metric, command or test that is not there. How to move a site:
[from-gcm.md](from-gcm.md). Columns are those of [slurm-tables.md](slurm-tables.md), checks those of
[health-checks.md](health-checks.md); a place like `JobRecord.user` is a key of a message in [schemas](../schemas).
Tests: ✓ where all is well, ✗ where something is wrong, ? where it can't be told.
"""
SECTIONS = (
    ("collectors", "Collectors", "GCM's `gcm` commands, and their options."),
    ("groups", "Options that many commands have", "COMMAND is each of `gcm`, CHECK each of `health_checks`."),
    ("modes", "Modes of checks", ""),
    ("exits", "Exit codes", "Of `app`, `nagios`, `periodic` and `request`."),
    (
        "checks",
        "Checks",
        "Below each its name in telemetry and its kill switch; `[checks.NAME] enabled = false` is ours.",
    ),
    ("sinks", "Sinks", ""),
    ("data_types", "Kinds of data", ""),
    ("data_identifiers", "What data is about", ""),
    ("attributes", "Attributes of the collector's processor", "In GCM's repository, not in the package."),
    ("deployment", "Packages and units", ""),
    ("records", "Records", "The fields of each stand below."),
)
SIGNS = {"good": "✓", "bad": "✗", "unknown": "?"}
WIDE = 5  # fields with the same place are one line from here on


def page(rows: Sequence[Row], count: int) -> str:
    """Return the page."""
    parts = [HEAD.format(names=count)]
    for section, title, about in SECTIONS:
        mine = [row for row in rows if row.section == section]
        parts.append(f"## {title}\n")
        if about:
            parts.append(f"{about}\n")
        parts.append(_table(mine, tests=any(row.tests for row in mine)))
    for section in dict.fromkeys(row.section for row in rows if row.section.startswith("record ")):
        parts.append(f"### {section.removeprefix('record ')}\n")
        parts.append(_fields([row for row in rows if row.section == section]))
    return "\n".join(parts).rstrip() + "\n"


def _table(rows: Iterable[Row], *, tests: bool) -> str:
    lines = [f"| GCM 0.0.2 | Heeler | what is different |{' tests |' if tests else ''}"]
    lines.append(f"|---|---|---|{'---|' if tests else ''}")
    for row in rows:
        cells = [_name(row), _places(row.places), _cell(row.differs)]
        if tests:
            cells.append(_tests(row))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _fields(rows: Sequence[Row]) -> str:
    """Return the fields of a record; those that are all in the same place are named together."""
    same = Counter((row.places, row.differs) for row in rows)
    metrics = rows[0].section in METRICS
    lines = [f"| field | Heeler |{' metric |' if metrics else ''} what is different |"]
    lines.append(f"|---|---|{'---|' if metrics else ''}---|")
    told: set[tuple[tuple[str, ...], str]] = set()
    for row in rows:
        key = (row.places, row.differs)
        if same[key] >= WIDE:
            if key in told:
                continue
            told.add(key)
            fields = ", ".join(f"`{_field(one)}`" for one in rows if (one.places, one.differs) == key)
        else:
            fields = f"`{_field(row)}`"
        places = _places(each for each in row.places if not (metrics and each.startswith("metric ")))
        metric = metric_of(row) if metrics else None
        shown = f" {f'`{metric}`' if metric else ''} |" if metrics else ""
        lines.append(f"| {fields} | {places} |{shown} {_cell(row.differs)} |")
    return "\n".join(lines) + "\n"


def _field(row: Row) -> str:
    return row.name.partition(".")[2]


def _name(row: Row) -> str:
    name = row.name.partition(" ")[2]
    flags = ", ".join(f"`{one.partition(' ')[2]}`" for one in row.others if one.startswith("flag "))
    told = ", ".join(f'"{one.partition(" ")[2]}"' for one in row.others if one.startswith("health_check "))
    more = [one.rpartition("--")[2] for one in row.others if one.startswith("choice ")]
    words = f"`{name}`" + (f" and {len(more)} others" if more else "")
    return _cell("<br>".join(filter(None, (words, told, flags))))


def _places(places: Iterable[str]) -> str:
    return "<br>".join(_place(each) for each in places)


def _place(text: str) -> str:
    if text.startswith(NOT_TAKEN):
        return _cell(f"{NOT_TAKEN}: {text.removeprefix(NOT_TAKEN).strip(' -')}")
    kind, _, name = text.partition(" ")
    if kind == "check":
        return f"[{name}](health-checks.md#{name})"
    if kind == "file":
        return f"[{name}](../{name})"
    if kind == "setting":
        check, _, setting = name.partition(".")
        return f"`[checks.{check}] {setting}`"
    if kind == "key":
        section, _, key = name.rpartition(".")
        return f"`[{section}] {key}`"
    return f"`{name}`" if kind in ("message", "command", "function") else f"{kind} `{name}`"


def _tests(row: Row) -> str:
    shown: dict[str, str] = {}
    for word, test in row.tests.items():
        shown[test] = shown.get(test, "") + SIGNS.get(word, word)
    return "<br>".join(f"{signs} [{_test(test)}](../tests/{test.partition('::')[0]})" for test, signs in shown.items())


def _test(text: str) -> str:
    return text.partition("::")[2].removeprefix("test_").replace("_", " ")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def all_faults(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return every gap: names without a row, rows without a name, and what is not there."""
    told = Counter(name for row in rows for name in (row.name, *row.others))
    found = [f"{name}: has no row" for name in names if name not in told]
    found += [f"{name}: is no name of GCM 0.0.2" for name in told if name not in set(names)]
    found += [f"{name}: has {count} rows" for name, count in told.items() if count > 1]
    return found + [fault for row in rows for fault in faults(row)]


def main(*, check: bool) -> int:
    """Write the page, or compare it and look for gaps."""
    names = known_names(FOLDER)
    rows = table(FOLDER)
    text = page(rows, len(names))
    if not check:
        PAGE.write_text(text)
        return 0
    gaps = all_faults(rows, names)
    if not PAGE.exists() or PAGE.read_text() != text:
        gaps.append(f"{PAGE.name}: make gen changes it")
    print("\n".join(gaps), end="\n" if gaps else "")
    return 1 if gaps else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
