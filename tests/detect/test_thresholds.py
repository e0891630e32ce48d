"""Thresholds are data: the shipped file is the default, and every fault of a file is said at once."""

import tomllib
from pathlib import Path

import pytest

from heeler.bus import ConfigError
from heeler.detect import Thresholds, demo, load
from heeler.detect.rules import RULES, memory_of, memory_s
from heeler.detect.thresholds import from_tables, shipped


def test_the_shipped_file_holds_every_default_and_nothing_else() -> None:
    tables = tomllib.loads(shipped("defaults.toml"))
    assert from_tables(tables) == Thresholds()
    for name, section in tables["detect"].items():
        assert set(section) == set(getattr(Thresholds(), name).__slots__)


def test_the_demo_is_faster_and_no_less_sure() -> None:
    fast, slow = demo(), Thresholds()
    assert fast.lag.alert_after_s < slow.lag.alert_after_s
    assert fast.lag.warmup_s < slow.lag.warmup_s
    assert (fast.lag.alert_ratio, fast.lag.z) == (slow.lag.alert_ratio, slow.lag.z)


def test_a_file_changes_what_it_names_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[detect.lag]\nalert_ratio = 0.12\nclear_activity_ratio = 0.1\n")
    mine = load(path)
    assert mine.lag.alert_ratio == 0.12
    assert mine.ib == Thresholds().ib


def test_every_fault_is_said_at_once() -> None:
    table = {"detect": {"lag": {"alert_ratoi": 0.1, "z": "high"}, "wrong": {}, "ib": {"flap_count": 0}}}
    with pytest.raises(ConfigError) as caught:
        from_tables(table)
    text = str(caught.value)
    assert "detect.lag.alert_ratoi: unknown key" in text
    assert "detect.lag.z" in text
    assert "detect.wrong: unknown key" in text
    assert "flap_count" in text


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("lag", {"clear_ratio": 0.5}),
        ("lag", {"drain_ratio": 0.1}),
        ("lag", {"alert_after_s": 90.0}),
        ("lag", {"idle_util_ratio": 1.5}),
        ("lag", {"trailing_s": 0.0}),
        ("lag", {"z": -1.0}),
        ("lag", {"min_peers": 2}),
        ("ib", {"down_job_s": 500.0}),
        ("finding", {"reconfirm_s": 200.0}),
    ],
)
def test_contradictions_are_refused(section: str, values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        from_tables({"detect": {section: values}})


def test_the_memory_is_that_of_the_rule_that_remembers_longest() -> None:
    t = Thresholds()
    assert memory_s(t) == max(rule.memory_s(t) for rule in RULES)
    assert memory_of("JobSample", t) == max(t.lag.memory_s, t.hang.memory_s)
    # Samples with jobs are kept for 30 minutes.
    assert memory_of("JobSample", t) <= 1800
    assert memory_of("GpuSample", t) == 0.0
