"""The queries of dashboards and alerts, and what they name."""

import json
import re
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
BOARDS = ROOT / "deploy/docker/grafana/dashboards"
ALERTS = ROOT / "deploy/prometheus/heeler-alerts.yml"
OURS = re.compile(r"\b(?:hw|heeler|system)_[a-z0-9_]+")
# Nothing is wrong in the tests, so what asks for trouble has no answer; nor has what needs an hour, or a word of an
# operator.
ASKS_FOR_TROUBLE = re.compile(r"[<>]|==|unless|offset|heeler_refused|heeler_drain_actions|heeler_breaker")
_SELECTOR = re.compile(r"([a-z_:][a-z0-9_:]*)\{([^}]*)\}")
_LABEL = re.compile(r'([a-z_][a-z0-9_]*)\s*(?:=~|!~|!=|=)\s*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def boards() -> dict[str, Any]:
    """Return all dashboards by the names of their files."""
    return {path.name: json.loads(path.read_text()) for path in sorted(BOARDS.glob("*.json"))}


def alerts() -> list[dict[str, Any]]:
    """Return all alert rules."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str, str]]:
    """Yield where a query stands, the query, and the text that shows its labels."""
    for name, board in boards().items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"], target.get("legendFormat", "")
    for rule in alerts():
        yield f"alert {rule['alert']}", rule["expr"], " ".join(rule["annotations"].values())


def metrics_of(query: str) -> set[str]:
    """Return our metrics in a query."""
    bare = _GROUPING.sub("", re.sub(r"\{[^}]*\}", "", query))
    return set(OURS.findall(bare))


def selected(query: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric with the labels that select its series."""
    for name, inside in _SELECTOR.findall(query):
        yield name, set(_LABEL.findall(inside))


def grouped(query: str) -> set[str]:
    """Return the labels by which series are put together."""
    return {label.strip() for inside in _GROUPING.findall(query) for label in inside.split(",") if label.strip()}


def filled(query: str, variables: Mapping[str, str] | None = None) -> str:
    """Return a query as Grafana sends it, with all values of its variables."""
    query = query.replace("$__rate_interval", "1m")
    for name, value in (variables or {}).items():
        query = query.replace(f"${name}", value)
    return re.sub(r"\$[a-z_]+", ".*", query)


def unanswered(ask: Callable[[str], list[Any]]) -> list[str]:
    """Return what is wrong with queries: those that are none, and those without an answer that ask for no trouble."""
    wrong = []
    for where, query, _ in queries():
        try:
            found = ask(filled(query))
        except urllib.error.HTTPError as error:
            wrong.append(f"{where}: {error.read().decode()[:300]}")
            continue
        if not found and not ASKS_FOR_TROUBLE.search(query):
            wrong.append(f"{where}: no answer: {filled(query)}")
    return wrong
