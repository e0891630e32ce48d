"""Each processor that there is can be started in every way that we offer, by the same words."""

import tomllib
from typing import Any

import pytest
import yaml
from units import FOLDER, keys_of

from heeler.cli.run import PROGRAMS

ROOT = FOLDER.parents[1]
NAMES = sorted(PROGRAMS)
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
CHART: dict[str, Any] = yaml.safe_load((ROOT / "deploy/helm/heeler/values.yaml").read_text())
TARGET = keys_of((FOLDER / "heeler.target").read_text())
# Nobody sends to it unless told to: it is offered everywhere, and started where that does no harm.
ON_DEMAND = {"otlp-in"}
SLURM_FEED = "slurm"


def run_by(command: list[str]) -> str | None:
    """Return the processor that a command line runs."""
    return command[command.index("run") + 1] if "run" in command else None


def test_compose_has_a_service_for_each_processor() -> None:
    found = {name: run_by(one.get("command", [])) for name, one in COMPOSE.items()}
    ours = {name: what for name, what in found.items() if what in PROGRAMS}
    assert {name: name for name in NAMES}.items() <= ours.items()
    for name in NAMES:
        assert "profiles" not in COMPOSE[name]


def test_systemd_has_a_unit_for_each_processor_and_the_target_starts_all_but_those_on_demand() -> None:
    units = {path.name.removeprefix("heeler-").removesuffix("@.service") for path in FOLDER.glob("heeler-*@.service")}
    assert units == set(NAMES)
    (members,) = TARGET["Also"]
    assert set(members.split()) == {f"heeler-{name}@1.service" for name in set(NAMES) - ON_DEMAND}


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_runs_the_processor_of_its_name(name: str) -> None:
    (command,) = keys_of((FOLDER / f"heeler-{name}@.service").read_text())["ExecStart"]
    assert run_by(command.split()) == name


def test_the_chart_has_an_entry_for_each_processor_and_starts_all_but_those_on_demand() -> None:
    assert set(CHART["processors"]) == {*NAMES, SLURM_FEED}
    off = {name for name, one in CHART["processors"].items() if not one["enabled"]}
    assert off == {*ON_DEMAND, SLURM_FEED}


@pytest.mark.parametrize("name", NAMES)
def test_each_has_settings_that_come_with_its_unit(name: str) -> None:
    tomllib.loads((ROOT / f"deploy/packages/processors/{name}.toml").read_text())
