"""Whether the places of the table exist: functions import, columns, keys and metrics are there, tests are written."""

import ast
import importlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from commands import fault as command_fault
from gen import snake
from parity_table import NOT_TAKEN, WORDS, Row

from heeler.bus import BusSettings
from heeler.bus.tables_gen import TABLES
from heeler.engine.config import LogSettings
from heeler.health.epilog import KillSettings
from heeler.health.policy import Policy, Profile
from heeler.health.table import CHECKS
from heeler.otlp import names, names_health, names_node, names_tables
from heeler.otlp.names import Metric
from heeler.otlp.settings import SinkSettings
from heeler.slurm.settings import QuotaSettings, SlurmSettings, StorageSettings

ROOT = Path(__file__).resolve().parents[2]
SETTINGS: dict[str, Any] = {check.name: check.settings for check in CHECKS}


def _names(settings: Any) -> set[str]:
    return {field.name for field in fields(settings)}


KEYS: dict[str, set[str]] = {
    "bus": _names(BusSettings),
    "log": _names(LogSettings),
    "slurm": _names(SlurmSettings),
    "slurm.storage": _names(StorageSettings),
    "slurm.quotas": _names(QuotaSettings),
    "otlp.sinks": _names(SinkSettings),
    "policy": _names(Policy),
    "policy.leftovers": _names(KillSettings),
    "policy.profiles": _names(Profile),
    "policy.checks": {"enabled", "enforce", "timeout_s", "on_bad", "on_warn", "on_unknown"},
}
_UNFINISHED = re.compile(r"\b(?:not yet|todo|later|tbd)\b", re.IGNORECASE)
LEAST_WORDS = 3  # of a reason
# Records that GCM sends as metrics, and the fields of them that are no numbers.
METRICS: dict[str, set[str]] = {
    "record SLURMLog": {"derived_cluster", "cluster", "runaway_jobs"},
    "record SLURMLogAccountMetrics": {"derived_cluster", "prefix", "account"},
    "record IndexedDeviceMetrics": {"gpu_index"},
    "record HostMetrics": set(),
}
_CLUSTER = "slurm.stats.cluster"
_SCOPE = {"record SLURMLogAccountMetrics": "slurm.stats.account"}


def faults(row: Row) -> list[str]:
    """Return what is wrong with a row: what it names and is not there."""
    found = [f"{row.name}: {why}" for each in row.places if (why := place_fault(each))]
    if not row.places:
        found.append(f"{row.name}: no place")
    if _UNFINISHED.search(" ".join((*row.places, row.differs))):
        found.append(f"{row.name}: not done: {row.places} {row.differs}")
    if row.needs_tests and set(row.tests) != set(WORDS):
        found.append(f"{row.name}: tests of {', '.join(WORDS)} are wanted, there are {', '.join(row.tests) or 'none'}")
    if row.section in METRICS and row.name.partition(".")[2] not in METRICS[row.section] and not metric_of(row):
        found.append(f"{row.name}: is a metric in GCM and none here")
    found += [f"{row.name}: {word}: no test {test}" for word, test in row.tests.items() if not has_test(test)]
    return found


def place_fault(text: str) -> str | None:
    """Return what is wrong with a place; None where it is there."""
    if text.startswith(NOT_TAKEN):
        reason = text.removeprefix(NOT_TAKEN).strip(" -")
        return None if len(reason.split()) >= LEAST_WORDS else f"{text!r} gives no reason"
    kind, _, name = text.partition(" ")
    if kind not in _THERE:
        return f"{text!r} is no place"
    if kind == "command":
        return command_fault(name)
    return None if _THERE[kind](name) else f"there is no {text}"


def _function(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def _column(name: str) -> bool:
    table, _, column = name.partition(".")
    return table in TABLES and column in TABLES[table].columns


@cache
def _schema(message: str) -> dict[str, Any]:
    path = ROOT / f"schemas/{snake(message)}.v1.schema.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _message(name: str) -> bool:
    message, *keys = name.split(".")
    here: Any = _schema(message)
    for key in keys:
        here = here.get("items", here).get("properties", {}).get(key)
        if here is None:
            return False
    return bool(here)


@cache
def metrics() -> frozenset[str]:
    """Return the names of all metrics that the tables of names hold."""
    modules = (names, names_node, names_tables, names_health)
    groups = (group for found in names_tables.OUT.values() for group in found)
    return frozenset().union(*(_metrics(vars(module)) for module in modules), *(_of_group(group) for group in groups))


def _metrics(value: Any) -> set[str]:
    if isinstance(value, Metric):
        return {value.name}
    if isinstance(value, dict):
        return {name for key, each in value.items() if not str(key).startswith("__") for name in _metrics(each)}
    return set()


def _of_group(group: names_tables.Group) -> set[str]:
    return _metrics(dict(group.columns)) | _metrics(dict(group.amounts)) | _metrics(dict(group.states))


def metric_of(row: Row) -> str | None:
    """Return the metric that a field of GCM's became; None where it has none."""
    for place in row.places:
        kind, _, name = place.partition(" ")
        if kind == "metric":
            return name
        table, _, column = name.partition(".")
        if kind != "column" or table not in names_tables.OUT:
            continue
        for group in names_tables.OUT[table]:
            metric = group.columns.get(column)
            if metric is not None and (table != "stats" or group.scope == _SCOPE.get(row.section, _CLUSTER)):
                by = "".join(f"{{{key}={value}}}" for key, value in metric.attributes)
                return metric.name + by
    return None


def _setting(name: str) -> bool:
    check, _, setting = name.partition(".")
    return check in SETTINGS and setting in _names(SETTINGS[check])


def _key(name: str) -> bool:
    table, _, key = name.rpartition(".")
    if table == "agent":  # a test keeps this file at every key of the agent
        return re.search(rf"^#? ?{key} *=", (ROOT / "deploy/packages/agent.toml").read_text(), re.MULTILINE) is not None
    return key in KEYS.get(table, set())


_THERE: dict[str, Callable[[str], bool]] = {
    "function": _function,
    "column": _column,
    "message": _message,
    "metric": lambda name: name in metrics(),
    "check": lambda name: name in SETTINGS,
    "setting": _setting,
    "key": _key,
    "file": lambda name: (ROOT / name).is_file(),
    "command": bool,
}


def has_test(text: str) -> bool:
    """Say whether a test is written: a function of tests/FILE, at its top level or in a class."""
    path, _, function = text.partition("::")
    return function in _tests(ROOT / "tests" / path)


@cache
def _tests(path: Path) -> frozenset[str]:
    return frozenset(_functions(path)) if path.is_file() else frozenset()


def _functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name
