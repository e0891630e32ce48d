"""The table of GCM's names and where each is in Heeler: docs/gcm-parity/*.yaml as rows.

A place is a kind and a name: `function heeler.slurm.sched.COLLECTOR`, `column jobs.user`, `message HealthResult.why`,
`metric hw.power`, `check uptime`, `setting uptime.least_s`, `key slurm.intervals`, `command heeler-slurm --once`,
`file deploy/...`, or `not taken - because ...`. Several places stand with ";" between them, and behind " | " what is
different.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

NOT_TAKEN = "not taken"
WORDS = ("good", "bad", "unknown")


@dataclass(frozen=True, slots=True)
class Row:
    """One thing of GCM."""

    section: str
    name: str  # as in names.txt
    places: tuple[str, ...]
    differs: str = ""
    tests: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()  # further names that this row answers for: kill switches, names in telemetry
    needs_tests: bool = False


def known_names(folder: Path) -> list[str]:
    """Return GCM's names."""
    return [line for line in (folder / "names.txt").read_text().splitlines() if line and not line.startswith("#")]


def table(folder: Path) -> list[Row]:
    """Return all rows."""
    names = known_names(folder)
    checks, records, rest = (
        yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in ("checks", "records", "commands")
    )
    return [*_commands(rest), *_checks(checks, names), *_records(records, names), *_words(rest)]


def place(text: str) -> tuple[tuple[str, ...], str]:
    """Return places and what is different of "column a.b; column c.d | words"."""
    if text.startswith(NOT_TAKEN):
        return (text,), ""
    places, _, differs = text.partition(" | ")
    return tuple(each.strip() for each in places.split(";")), differs.strip()


def _inner(section: str, prefix: str, found: Mapping[str, str] | None) -> Iterator[Row]:
    for name, text in (found or {}).items():
        places, differs = place(text)
        yield Row(section, f"{prefix} {name}", places, differs)


def _commands(rest: Mapping[str, Any]) -> Iterator[Row]:
    for section in ("collectors", "groups"):
        for entry in rest[section]:
            gcm = entry["gcm"]
            if not entry.get("virtual"):
                yield _row(section, f"command {gcm}", entry, needs_tests=section == "collectors")
            yield from _inner(section, f"argument {gcm}", entry.get("arguments"))
            yield from _inner(section, f"option {gcm}", entry.get("options"))


def _row(section: str, name: str, entry: Mapping[str, Any], *, needs_tests: bool, others: tuple[str, ...] = ()) -> Row:
    places = tuple(entry.get("ours", ()))
    return Row(section, name, places, entry.get("differs", ""), entry.get("tests", {}), others, needs_tests)


def _checks(checks: list[dict[str, Any]], names: list[str]) -> Iterator[Row]:
    for entry in checks:
        command, _, choice = entry["gcm"].partition(" -c ")
        full = f"health_checks {command}"
        others = (
            *(f"flag {flag}" for flag in entry.get("flags", ())),
            *(f"health_check {name}" for name in entry.get("names", ())),
        )
        name = f"choice {full} --check {choice}" if choice else f"command {full}"
        if "ours" in entry:
            yield _row("checks", name, entry, needs_tests=True, others=others)
        else:
            yield Row("checks", name, ("command heeler-health list",), "A group; checks have no groups here.")
        yield from _inner("checks", f"option {full}", entry.get("options"))
        for option, text in entry.get("choices", {}).items():
            start = f"choice {full} {option} "
            places, differs = place(text)
            found = [one for one in names if one.startswith(start)]
            yield Row("checks", found[0], places, differs, others=tuple(found[1:]))


def _records(records: Mapping[str, Any], names: list[str]) -> Iterator[Row]:
    for record, entry in records.items():
        yield _row("records", f"record {record}", entry, needs_tests=False)
        given = dict(entry.get("fields", {}))
        start = f"field {record}."
        mine = [name.removeprefix(start) for name in names if name.startswith(start)]
        other = records[entry["same_as"]]["fields"] if "same_as" in entry else {}
        for name in mine:
            if name not in given and (name in other or "rest" in entry):
                given[name] = other[name] if name in other else entry["rest"]
        for name, text in given.items():
            places, differs = place(text)
            yield Row(f"record {record}", f"{start}{name}", places, differs)


_KINDS = {
    "modes": "mode",
    "exits": "exit",
    "sinks": "sink",
    "data_types": "data_type",
    "data_identifiers": "data_identifier",
    "attributes": "attribute",
    "deployment": "deployment",
}


def _words(rest: Mapping[str, Any]) -> Iterator[Row]:
    for section, kind in _KINDS.items():
        for name, entry in rest[section].items():
            yield _row(section, f"{kind} {name}", entry, needs_tests=section == "modes")
            yield from _inner(section, f"sink_option {name}", entry.get("options"))
