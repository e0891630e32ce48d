"""The policy as data: what is read, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest

from heeler.bus import ConfigError
from heeler.drain.program import PROGRAM, make_step
from heeler.drain.settings import DrainSettings, load_policy
from heeler.engine.config import build

DEMO = Path(__file__).parents[2] / "processors/heeler/drain/demo.toml"


def test_the_packaged_policy_is_the_documented_one() -> None:
    limits = load_policy().limits
    assert (limits.confirm_within_s, limits.cooldown_s, limits.repeat_window_s) == (120, 86_400, 604_800)
    assert (limits.hard_per_hour_min, limits.hard_per_hour_ratio) == (3, 0.01)
    assert (limits.mass_nodes, limits.mass_window_s) == (4, 60)
    assert (limits.soft_life_s, limits.soft_per_hour, limits.soft_job_interval_s) == (240, 3, 1800)
    assert (limits.drained_ratio, limits.drained_min) == (0.02, 1)
    assert (limits.unavailable_ratio, limits.unavailable_min) == (0.10, 2)


def test_a_drainer_runs_dry_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "drain.toml"
    path.write_text('[bus]\nservers = ["nats://127.0.0.1:4222"]\n')
    assert PROGRAM.load(path)["drain"].dry_run is True
    assert make_step({}).dry_run is True
    assert make_step({"drain": {"dry_run": False}}).dry_run is True  # a replay never acts


def test_the_demo_settings_are_valid() -> None:
    assert PROGRAM.load(DEMO)["drain"].load_policy().limits.soft_needs_slowdown is False


def test_limits_go_over_a_policy_file_which_goes_over_the_packaged_one(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("[limits]\nsettle_s = 5.0\ncooldown_s = 60.0\n")
    limits = load_policy(str(path), {"settle_s": 1}).limits
    assert (limits.settle_s, limits.cooldown_s, limits.soft_per_hour) == (1.0, 60.0, 3)


def test_own_rules_replace_the_table() -> None:
    policy = load_policy(rules=[{"kind": "xid", "action": "person"}])
    assert [(rule.kind, rule.action) for rule in policy.rules] == [("xid", "person")]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"dryrun": False}, "drain.dryrun: unknown key"),
        ({"limits": {"coldown_s": 1.0}}, "limits.coldown_s: unknown key"),
        ({"limits": {"cooldown_s": "long"}}, "limits.cooldown_s"),
        ({"limits": {"cooldown_s": -1.0}}, "negative"),
        ({"limits": {"drained_ratio": 2.0}}, "over 1"),
        ({"limits": {"confirm_within_s": 0.0}}, "never let anything through"),
        ({"rules": [{"kind": "xid", "action": "explode"}]}, "rules[0].action: 'explode'"),
        ({"quiet": [{"begins": "22:00", "ends": "06:00"}]}, "quiet[0].zone: missing"),
        ({"quiet": [{"begins": "22", "ends": "06:00", "zone": "UTC"}]}, "quiet[0].begins: '22'"),
        ({"quiet": [{"begins": "22:00", "ends": "24:01", "zone": "UTC"}]}, "ends: '24:01'"),
        ({"quiet": [{"begins": "22:00", "ends": "22:00", "zone": "UTC"}]}, "ends: '22:00' is when it begins"),
        ({"quiet": [{"begins": "22:00", "ends": "06:00", "zone": "Mars/Base"}]}, "zone: 'Mars/Base'"),
        ({"quiet": [{"begins": "22:00", "ends": "06:00", "zone": "UTC", "days": ["Mo"]}]}, "days: 'Mo'"),
        ({"quiet": [{"begins": "22:00", "ends": "06:00", "zone": "UTC", "leaves": ["all"]}]}, "leaves: 'all'"),
        ({"limits": {"rack_drained_ratio": 1.5}}, "rack_drained_ratio: 1.5 is over 1"),
        ({"rules": [{"kind": "xid", "action": "drain_now", "evidence": "firm"}]}, "evidence: 'firm'"),
        ({"rules": [{"kind": "xid", "action": "drain_now", "min_confidence": 1.5}]}, "min_confidence"),
        ({"rules": [{"kind": "xid", "action": "drain_now", "advice": ["observe"]}]}, "asks for no drain"),
        ({"rules": [{"action": "drain_now"}]}, "kind: missing"),
        ({"command_timeout_s": 11.0}, "command_timeout_s"),
        ({"command_timeout_s": 0.0}, "command_timeout_s"),
        ({"tick_s": 0.0}, "tick_s"),
        ({"scontrol": ""}, "scontrol: empty"),
        ({"policy": "/nowhere/policy.toml"}, "No such file"),
    ],
)
def test_a_setting_that_can_not_be_meant_is_refused_by_name(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        build(DrainSettings, table, "drain")


def test_all_faults_are_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_policy(limits={"cooldown_s": -1.0, "drained_ratio": 3.0})
    assert "cooldown_s" in str(caught.value)
    assert "drained_ratio" in str(caught.value)


def test_a_policy_file_with_an_unknown_section_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("[limit]\nsettle_s = 5.0\n")
    with pytest.raises(ConfigError, match="limit: unknown section"):
        load_policy(str(path))
