"""How long the node is up."""

from pathlib import Path

from healthkit import machine, run

from heeler.health.model import Outcome
from heeler.health.uptime import CHECKS, UptimeSettings


def test_uptime_good_and_bad_at_its_limit(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/uptime": "600.0 1.0\n"})
    assert run(CHECKS[0], root).outcome is Outcome.OK
    verdict = run(CHECKS[0], root, UptimeSettings(601.0))
    assert (verdict.outcome, verdict.perf["uptime_s"]) == (Outcome.WARN, 600.0)


def test_uptime_good_of_this_machine() -> None:
    assert run(CHECKS[0], "/", UptimeSettings(0.0)).outcome is Outcome.OK


def test_uptime_unknown_without_the_file_or_a_number(tmp_path: Path) -> None:
    assert run(CHECKS[0], tmp_path).outcome is Outcome.UNKNOWN
    for text in ("", "soon\n"):
        assert run(CHECKS[0], machine(tmp_path, {"proc/uptime": text})).outcome is Outcome.UNKNOWN
