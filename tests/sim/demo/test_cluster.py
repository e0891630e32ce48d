"""Configurations that the demo writes, and its terminal."""

import io
import tomllib

import pytest

from heeler.engine.process import Program
from heeler.sim.demo.cluster import as_toml, thresholds
from heeler.sim.demo.screen import Screen


def test_written_toml_reads_back_as_it_was() -> None:
    tables = {
        "cluster": 'de"mo',
        "bus": {"servers": ["nats://127.0.0.1:1"], "pending_bytes": 5},
        "otlp": {"every_s": 0.5, "sinks": [{"kind": "otlp", "endpoint": "http://x"}]},
        "drain": {"dry_run": True, "limits": {"settle_s": 2.0}},
    }
    assert tomllib.loads(as_toml(tables)) == tables


def test_the_demos_thresholds_are_ones_that_the_drainer_knows() -> None:
    from heeler.drain.program import PROGRAM
    from heeler.engine import config

    assert isinstance(PROGRAM, Program)
    loaded = config.load(thresholds("drain"), dict(PROGRAM.sections))
    assert loaded["drain"].dry_run is True


@pytest.mark.parametrize("program", ["enrich", "otlp"])
def test_programs_without_thresholds_have_none(program: str) -> None:
    assert thresholds(program) == {}


def test_lines_are_plain_where_there_is_no_terminal_and_hostile_names_harmless() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.line("seen: \x1b[2Jn007\nforged", "seen")
    with screen.step("working"):
        pass
    text = out.getvalue()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0] == "00:00  seen: ?[2Jn007?forged"
    assert lines[1] == "00:00  working ..."
    assert lines[2].startswith("00:00  working: 0.")
