"""The chart, rendered by Helm's own packages (tests/helm), and what Kubernetes would be given."""

import json
import os
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from needs import need

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/heeler"
TOOL = ROOT / "build/helm-check"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
Objects = list[dict[str, Any]]
Render = Callable[[dict[str, Any]], Objects]


class ChartError(Exception):
    """What Helm or Kubernetes says against it."""


def build() -> None:
    """Build what renders; taken from Go's cache where nothing has changed."""
    need("go")
    TOOL.parent.mkdir(exist_ok=True)
    env = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    subprocess.run(["go", "build", "-o", TOOL, "."], cwd=ROOT / "tests/helm", env=env, check=True)


def render(values: dict[str, Any], folder: Path) -> Objects:
    """Return the objects for some values. Raises ChartError."""
    return render_each([values], folder)[0]


def render_each(several: list[dict[str, Any]], folder: Path) -> list[Objects]:
    """Return the objects for each of several values. Raises ChartError."""
    paths = [folder / f"values-{at}.yaml" for at in range(len(several))]
    for path, values in zip(paths, several, strict=True):
        path.write_text(json.dumps(values))
    done = subprocess.run([TOOL, CHART, *paths], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChartError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def over(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return values over others, table by table."""
    found = deepcopy(base)
    for key, value in values.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = over(found[key], value) if both else deepcopy(value)
    return found


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind by the part that they are for."""
    return {one["metadata"]["labels"]["app.kubernetes.io/component"]: one for one in objects if one["kind"] == kind}


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    """Return the specifications of all pods by their part."""
    found: dict[str, dict[str, Any]] = {}
    for kind in ("Deployment", "DaemonSet", "Job"):
        found |= {part: one["spec"]["template"]["spec"] for part, one in of_kind(objects, kind).items()}
    return found


def toml_of(objects: Objects, part: str) -> str:
    """Return the settings of a part."""
    (text,) = of_kind(objects, "ConfigMap")[part]["data"].values()
    assert isinstance(text, str)
    return text
