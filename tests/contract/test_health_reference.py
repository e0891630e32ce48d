"""docs/health-checks.md is what the table of checks says, and the table says enough."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from heeler.health.model import Check
from heeler.health.reference import reference
from heeler.health.table import CHECKS, PROFILES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/health-checks.md"


def test_the_page_is_up_to_date() -> None:
    argv = [sys.executable, "-m", "heeler.health.reference", "--check", str(PAGE)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_page_that_is_not_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(reference(CHECKS[1:], PROFILES))
    argv = [sys.executable, "-m", "heeler.health.reference", "--check", str(page)]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 1


def test_names_are_tokens_and_stand_once() -> None:
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


def test_probes_of_one_name_are_one_probe() -> None:
    probes = {check.probe.name: check.probe for check in CHECKS}
    assert all(probes[check.probe.name] is check.probe for check in CHECKS)


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_a_check_says_what_it_is_reads_and_takes(check: Check) -> None:
    assert check.about.endswith(".")
    assert inspect.getdoc(check.judge)
    assert inspect.getdoc(check.probe.read)
    assert inspect.getdoc(check.settings)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", field.name) for field in fields(check.settings))
    text = PAGE.read_text()
    assert f"### {check.name}\n" in text
