"""A tool that answers in another form than its own, or not at all, tells nothing: unknown, never well and never bad."""

import time
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from heeler.health.model import Case, Check, Context, Outcome, Phase, Unread
from heeler.health.runner import run_probes
from heeler.health.table import CHECKS

TOOLS = ("dcgmi", "smartctl", "ipmitool", "scontrol", "sinfo", "rpm", "dpkg-query", "ibstat")
SCRIPT = """#!/bin/sh
touch {folder}/asked
{first}
printf '%s' '{text}'
exit {rc}
"""
# (what it prints, its exit status)
ODD = [
    ("", 0),
    ("[]", 0),
    ("{{}}", 0),
    ("null", 0),
    ("3", 0),
    ('{{"a": [{{}}]}}', 0),
    ("jq: error (at <stdin>:0): Cannot index array", 0),
    ("<html><body>502 Bad Gateway</body></html>", 0),
    ("Error: unable to establish a connection to the host engine", 1),
    ("[]", 127),
    ("[]", 126),
    ("", 139),
]
ASKING = ("dcgm", "drives", "free_now", "ipmi", "slurm")  # modules whose checks ask a tool, and need no settings for it


def asking() -> Iterator[Check]:
    """Return the checks that ask a tool and mean something without settings."""
    for check in CHECKS:
        where = check.probe.read.__module__.rpartition(".")[2]
        given = all(one.default is not MISSING or one.default_factory is not MISSING for one in fields(check.settings))
        if where in ASKING and given:
            yield check


def outcome(check: Check, folder: Path, timeout_s: float = 5.0) -> tuple[Outcome, str]:
    settings: Any = check.settings()
    case = Case(Phase.PERIODIC, "n1", 10**18)
    context = Context(case, Path("/"), {"PATH": str(folder)}, str(folder), timeout_s)
    asked = {check.probe.name: (check.probe, [settings])}
    facts = run_probes(asked, context, time.monotonic() + timeout_s + 1.0)[check.probe.name].facts
    if isinstance(facts, Unread):
        return Outcome.UNKNOWN, facts.why
    verdict = check.judge(facts, settings, case)
    return verdict.outcome, verdict.why


def install(folder: Path, text: str, rc: int, first: str = ":") -> None:
    for name in TOOLS:
        (folder / name).write_text(SCRIPT.format(folder=folder, text=text.format(), rc=rc, first=first))
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(("text", "rc"), ODD)
def test_another_form_is_unknown_in_every_check_that_asks_a_tool(tmp_path: Path, text: str, rc: int) -> None:
    install(tmp_path, text, rc)
    asked = 0
    for check in asking():
        (tmp_path / "asked").unlink(missing_ok=True)
        found, why = outcome(check, tmp_path)
        if (tmp_path / "asked").exists():  # others look at hardware that this machine does not have
            asked += 1
            assert found is Outcome.UNKNOWN, (check.name, why)
            assert why, check.name
    assert asked >= 3


def test_no_answer_in_time_is_unknown(tmp_path: Path) -> None:
    install(tmp_path, "", 0, "exec sleep 60")
    checks = [check for check in asking() if check.probe.name.startswith("dcgm")][:2]
    for check in checks:
        found, why = outcome(check, tmp_path, 0.6)
        assert (found, "0.4 s" in why or "did not answer" in why or "no answer" in why) == (Outcome.UNKNOWN, True), why
