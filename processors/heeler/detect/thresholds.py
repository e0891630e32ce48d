"""The numbers of the rules: frozen values with defaults, loadable from TOML.

The defaults stand in ``defaults.toml`` with their reasons; a test keeps the two equal. Times are seconds of stream
time, ratios are shares of the peers' median, so they do not depend on the length of a window.

`Thresholds` is the ``[detect]`` section of the process's file: its parts are ``[detect.lag]`` and so on.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from heeler.bus import ConfigError
from heeler.engine import config


class _Section:
    """Checks that all sections share."""

    __slots__ = ()

    def faults(self) -> list[str]:
        """Return what is wrong with single values."""
        found = []
        for f in fields(self):  # type: ignore[arg-type]
            value, name = getattr(self, f.name), f.name
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            positive = name.endswith("_s") and name != "warmup_s"
            if not 0 <= value < float("inf") or (positive and value == 0):
                found.append(f"{name}: {value} is out of range")
            elif name.endswith(("_ratio", "_share")) and value > 1:
                found.append(f"{name}: {value} is above 1")
        return found + self.contradictions()

    def contradictions(self) -> list[str]:
        """Return what is wrong between values."""
        return []

    def validate(self) -> None:
        """Raise ConfigError with every fault."""
        if found := self.faults():
            raise ConfigError("; ".join(found))


@dataclass(frozen=True, slots=True)
class FindingThresholds(_Section):
    """The life of a finding."""

    reconfirm_s: float = 30.0
    tick_s: float = 5.0

    def contradictions(self) -> list[str]:
        """Drain acts on fresh findings only."""
        return [] if self.reconfirm_s <= 60 else ["reconfirm_s: more than 60, drain would call findings stale"]


@dataclass(frozen=True, slots=True)
class LagThresholds(_Section):
    """Peer comparison inside a job."""

    warmup_s: float = 300.0
    restart_idle_s: float = 180.0
    restart_memory_ratio: float = 0.10
    idle_util_ratio: float = 0.10
    load_util_ratio: float = 0.50
    checkpoint_ratio: float = 0.30
    trailing_s: float = 600.0
    tail_ratio: float = 0.90
    min_peers: int = 5
    z: float = 3.5
    alert_ratio: float = 0.15
    power_ratio: float = 0.10
    drain_ratio: float = 0.20
    alert_after_s: float = 30.0
    alert_span_s: float = 60.0
    drain_after_s: float = 240.0
    drain_share: float = 0.80
    clear_ratio: float = 0.07
    clear_activity_ratio: float = 0.12
    clear_after_s: float = 600.0
    role_share: float = 0.25
    role_gap_ratio: float = 0.10
    mass_nodes: int = 2
    mass_share: float = 0.02
    sm_active_floor_ratio: float = 0.20
    tensor_active_floor_ratio: float = 0.08
    power_floor_w: float = 200.0
    alone_clock_ratio: float = 0.85
    violation_share: float = 0.10
    grace_s: float = 5.0
    late_s: float = 30.0
    orphan_s: float = 600.0

    def contradictions(self) -> list[str]:
        """Return what does not fit together."""
        checks = [
            (self.clear_ratio < self.alert_ratio, "clear_ratio must be below alert_ratio"),
            (self.clear_activity_ratio < self.alert_ratio, "clear_activity_ratio must be below alert_ratio"),
            (self.alert_ratio <= self.drain_ratio, "drain_ratio must not be below alert_ratio"),
            (self.alert_after_s <= self.alert_span_s, "alert_span_s must not be below alert_after_s"),
            (self.alert_span_s <= self.drain_after_s, "drain_after_s must not be below alert_span_s"),
            (self.min_peers >= 3, "min_peers must be 3 or more"),
        ]
        return [text for fine, text in checks if not fine]

    @property
    def memory_s(self) -> float:
        """How far back a cold start must read to judge as a warm one does."""
        settle_s = self.warmup_s + self.restart_idle_s + self.trailing_s
        return settle_s + max(self.clear_after_s, self.drain_after_s) + self.late_s + 2 * self.grace_s


@dataclass(frozen=True, slots=True)
class XidThresholds(_Section):
    """XID and SXid incidents."""

    burst_s: float = 60.0
    soft_close_s: float = 600.0
    repeat_count: int = 3
    repeat_span_s: float = 86_400.0
    location_jobs: int = 2
    lost_clear_s: float = 120.0


@dataclass(frozen=True, slots=True)
class IbThresholds(_Section):
    """InfiniBand and RoCE ports."""

    flap_count: int = 3
    flap_span_s: float = 3600.0
    flap_clear_s: float = 3600.0
    down_job_s: float = 30.0
    down_drain_s: float = 240.0

    def contradictions(self) -> list[str]:
        """Return what does not fit together."""
        checks = [
            (self.flap_count >= 1, "flap_count must be 1 or more"),
            (self.down_job_s <= self.down_drain_s, "down_drain_s must not be below down_job_s"),
        ]
        return [text for fine, text in checks if not fine]


@dataclass(frozen=True, slots=True)
class AgentThresholds(_Section):
    """Silence of node agents."""

    silent_after_s: float = 60.0
    silent_intervals: float = 3.0
    default_interval_s: float = 30.0
    mass_agents: int = 3
    mass_share: float = 0.25
    forget_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """All of them, one table a rule."""

    xid_table: str = ""  # a table of XIDs over the packaged one
    finding: FindingThresholds = field(default_factory=FindingThresholds)
    lag: LagThresholds = field(default_factory=LagThresholds)
    xid: XidThresholds = field(default_factory=XidThresholds)
    ib: IbThresholds = field(default_factory=IbThresholds)
    agent: AgentThresholds = field(default_factory=AgentThresholds)


def load(path: Path | str | None = None) -> Thresholds:
    """Return the thresholds of a TOML file with a ``[detect]`` table. Raises ConfigError with every fault."""
    return from_tables(config.read_toml(path))


def demo() -> Thresholds:
    """Return the short masks and times that the demo uses."""
    return from_tables(tomllib.loads(shipped("demo.toml")))


def from_tables(tables: Mapping[str, Any]) -> Thresholds:
    """Return the thresholds in the ``[detect]`` table of a file. Raises ConfigError with every fault."""
    return config.build(Thresholds, tables.get("detect", {}), "detect")


def shipped(name: str) -> str:
    """Return the text of a TOML file of this package."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
