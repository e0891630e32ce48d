"""Dashboards and alerts name only what we emit, with labels that it has."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from catalogue import emitted
from needs import need
from queries import ALERTS, BOARDS, ROOT, boards, grouped, metrics_of, queries, selected

ALL = list(queries())
OF_PROCESSES = {"process", "reason", "instance", "job"}
SOURCES = "\n".join(
    path.read_text() for folder in ("agents", "processors") for path in (ROOT / folder / "heeler").rglob("*.py")
)


def counted(name: str) -> bool:
    """Say whether a process counts this about itself."""
    bare = re.escape(name.removeprefix("heeler_"))
    return re.search(rf'"{bare}["{{.]', SOURCES) is not None


def labels_of(name: str) -> set[str]:
    return set(emitted()[name]) if name in emitted() else OF_PROCESSES


@pytest.mark.parametrize(("where", "query"), [(where, query) for where, query, _ in ALL])
def test_every_metric_is_one_that_we_emit_and_every_label_one_that_it_has(where: str, query: str) -> None:
    names = metrics_of(query)
    assert names or "up{" in query, where
    for name in names:
        assert name in emitted() or counted(name), f"{where}: nobody emits {name}"
    for name, labels in selected(query):
        if name != "up":
            assert labels <= labels_of(name), f"{where}: {name} has no {labels - labels_of(name)}"
    for label in grouped(query):
        assert any(label in labels_of(name) for name in names), f"{where}: none of {names} has {label}"


@pytest.mark.parametrize(("where", "query", "text"), ALL)
def test_every_label_that_is_shown_is_left_by_the_query(where: str, query: str, text: str) -> None:
    shown = set(re.findall(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}", text))
    aggregated = re.search(r"\b(?:sum|min|max|avg|count)\b(?! by)", query) and not re.search(r"\bby\b", query)
    for label in shown:
        known = {one for name in metrics_of(query) for one in labels_of(name)} | OF_PROCESSES
        left = grouped(query) if re.search(r"\bby \(", query) else set() if aggregated else known
        assert label in left, f"{where}: {label}"


def test_the_variables_of_dashboards_are_labels_of_what_we_emit() -> None:
    for name, board in boards().items():
        told = {variable["name"] for variable in board["templating"]["list"]}
        used = {
            word
            for panel in board["panels"]
            for one in panel["targets"]
            for word in re.findall(r"\$([a-z]\w+)", one["expr"])
        }
        assert used <= told, name
        for variable in board["templating"]["list"]:
            match = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
            assert match, variable
            assert match[2] in emitted()[match[1]]


def test_the_files_are_those_that_the_generator_makes() -> None:
    path = ROOT / "deploy/dev/dashboards.py"
    spec = importlib.util.spec_from_file_location("dashboards", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.files()
    assert {path.name: path.read_text() for path in BOARDS.glob("*.json")} == made, "run deploy/dev/dashboards.py"


def test_panels_do_not_lie_on_each_other() -> None:
    for name, board in boards().items():
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, (name, panel["title"])
            assert place["x"] + place["w"] <= 24
            taken |= cells


def test_promtool_finds_no_fault_and_the_rules_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    need("prometheus")
    subprocess.run(["promtool", "check", "rules", ALERTS], check=True, capture_output=True)
    for path in (ALERTS, ROOT / "deploy/docker/config/prometheus.yml"):
        (tmp_path / path.name).write_text(path.read_text())
    config = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    subprocess.run(config, check=True, capture_output=True)
    tests = Path(__file__).with_name("alerts.test.yml")
    done = subprocess.run(["promtool", "test", "rules", tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
