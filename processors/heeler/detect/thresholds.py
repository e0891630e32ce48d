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
            positive = name.endswith("_s") and not name.startswith("warmup_")
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

    window_s: float = 10.0
    warmup_s: float = 300.0
    warmup_untold_s: float = 120.0
    restart_idle_s: float = 180.0
    restart_memory_ratio: float = 0.10
    idle_util_ratio: float = 0.10
    fed_ratio: float = 0.05
    load_util_ratio: float = 0.50
    checkpoint_ratio: float = 0.30
    dim_clock_ratio: float = 0.30
    trailing_s: float = 600.0
    tail_ratio: float = 0.90
    min_peers: int = 5
    z: float = 3.5
    z_one_metric: float = 7.0
    one_metric_ratio: float = 0.17
    alert_ratio: float = 0.15
    power_ratio: float = 0.10
    drain_ratio: float = 0.20
    alert_after_s: float = 30.0
    alert_after_unknown_s: float = 40.0
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
            (self.alert_after_s <= self.alert_after_unknown_s, "alert_after_unknown_s must not be below alert_after_s"),
            (self.alert_after_unknown_s <= self.alert_span_s, "alert_span_s must not be below alert_after_unknown_s"),
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
class PaceThresholds(_Section):
    """How much slower a job became."""

    baseline_s: float = 300.0
    least_s: float = 60.0
    margin_s: float = 15.0
    reach_s: float = 120.0
    now_s: float = 60.0
    steady_ratio: float = 0.10
    said_above: float = 1.05


@dataclass(frozen=True, slots=True)
class HangThresholds(_Section):
    """Jobs that stand still."""

    spin_after_s: float = 120.0
    stall_after_s: float = 300.0
    sure_s: float = 600.0
    clear_s: float = 60.0
    busy_span_s: float = 600.0
    busy_s: float = 120.0
    busy_share: float = 0.80
    held_ratio: float = 0.50
    tensor_ratio: float = 0.002
    dram_ratio: float = 0.01
    traffic_bytes_per_s: float = 50e6
    spin_util_ratio: float = 0.95
    spin_sm_ratio: float = 0.30
    rest_ratio: float = 0.01
    power_ratio: float = 0.45
    say_within_s: float = 1080.0
    orphan_s: float = 600.0

    def contradictions(self) -> list[str]:
        """Return what does not fit together."""
        checks = [
            (self.spin_after_s <= self.sure_s, "sure_s must not be below spin_after_s"),
            (self.stall_after_s <= self.sure_s, "sure_s must not be below stall_after_s"),
            (self.stall_after_s < self.say_within_s, "say_within_s must be above stall_after_s"),
            (self.spin_after_s < self.say_within_s, "say_within_s must be above spin_after_s"),
            (self.busy_s <= self.busy_span_s, "busy_span_s must not be below busy_s"),
        ]
        return [text for fine, text in checks if not fine]

    @property
    def memory_s(self) -> float:
        """How far back a cold start must read to judge as a warm one does."""
        return self.busy_span_s + self.say_within_s + 60.0


@dataclass(frozen=True, slots=True)
class XidThresholds(_Section):
    """XID and SXid incidents."""

    burst_s: float = 60.0
    soft_close_s: float = 600.0
    repeat_count: int = 3
    repeat_span_s: float = 86_400.0
    location_jobs: int = 2
    location_most: int = 2
    lost_clear_s: float = 120.0


@dataclass(frozen=True, slots=True)
class IbThresholds(_Section):
    """InfiniBand and RoCE ports."""

    flap_count: int = 3
    flap_span_s: float = 3600.0
    flap_clear_s: float = 3600.0
    flap_alone_s: float = 60.0
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
class SlowdownThresholds(_Section):
    """GPUs slowed down for heat or power."""

    after_s: float = 120.0
    clear_s: float = 300.0
    drain_after_s: float = 240.0
    time_share: float = 0.10
    ask_c: float = 80.0
    clock_ratio: float = 0.85
    few_share: float = 0.25


@dataclass(frozen=True, slots=True)
class LinkThresholds(_Section):
    """PCIe and NVLink."""

    after_s: float = 60.0
    clear_s: float = 300.0
    drain_after_s: float = 240.0
    load_util_ratio: float = 0.50
    least_siblings: int = 3
    few_share: float = 0.25
    errors_span_s: float = 600.0
    pcie_replays: int = 1000
    nvlink_retries: int = 1000
    nvlink_faults: int = 3


@dataclass(frozen=True, slots=True)
class LeftoverThresholds(_Section):
    """Memory in use on GPUs of no job."""

    after_s: float = 600.0
    clear_s: float = 60.0
    person_after_s: float = 1200.0
    bytes: float = 1073741824.0


@dataclass(frozen=True, slots=True)
class SilentGpuThresholds(_Section):
    """GPUs that say nothing while their siblings do."""

    after_s: float = 120.0
    clear_s: float = 60.0


@dataclass(frozen=True, slots=True)
class MissingThresholds(_Section):
    """GPUs that a node should have."""

    after_s: float = 120.0
    all_after_s: float = 600.0
    drain_after_s: float = 600.0
    clear_s: float = 60.0


@dataclass(frozen=True, slots=True)
class RailThresholds(_Section):
    """Ports at a low rate, and rails that carry little."""

    after_s: float = 60.0
    clear_s: float = 300.0
    drain_after_s: float = 240.0
    slow_after_s: float = 300.0
    slow_share: float = 0.50
    floor_bytes_per_s: float = 100e6
    least_nodes: int = 4
    alike_share: float = 0.80
    few_share: float = 0.05
    orphan_s: float = 600.0


@dataclass(frozen=True, slots=True)
class ClockThresholds(_Section):
    """Clocks of nodes."""

    skew_s: float = 2.0
    person_s: float = 60.0
    mass_nodes: int = 3
    mass_share: float = 0.25
    orphan_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class IdleThresholds(_Section):
    """GPUs that a job holds and does not use."""

    after_s: float = 1500.0
    person_after_s: float = 14_400.0
    idle_share: float = 0.25
    util_ratio: float = 0.01
    clear_s: float = 120.0
    orphan_s: float = 600.0

    def contradictions(self) -> list[str]:
        """Refuse more than samples are kept for: an instance that was started since could not see it."""
        return [] if self.after_s <= 1500 else ["after_s: more than 1500, for which samples are kept"]


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
class IncidentThresholds(_Section):
    """Findings of several nodes that have one cause."""

    least_nodes: int = 3
    least_untold_nodes: int = 5
    mass_share: float = 0.50
    least_job_nodes: int = 2
    least_job_gpus: int = 3
    links_span_s: float = 30.0
    hardware_span_s: float = 60.0
    job_span_s: float = 60.0
    agents_span_s: float = 90.0
    heat_span_s: float = 300.0
    person_after_s: float = 240.0
    clear_s: float = 60.0
    linger_s: float = 120.0
    late_s: float = 900.0
    keep_s: float = 3600.0
    rack_features: tuple[str, ...] = ()

    def contradictions(self) -> list[str]:
        """Return what does not fit together."""
        checks = [
            (min(self.least_nodes, self.least_job_nodes, self.least_job_gpus) >= 2, "least_...: must be 2 or more"),
            (self.least_nodes <= self.least_untold_nodes, "least_untold_nodes must not be below least_nodes"),
            (max(self.clear_s, self.linger_s) <= self.keep_s, "keep_s must not be below clear_s and linger_s"),
        ]
        return [text for fine, text in checks if not fine]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """All of them, one table a rule."""

    xid_table: str = ""  # a table of XIDs over the packaged one
    finding: FindingThresholds = field(default_factory=FindingThresholds)
    lag: LagThresholds = field(default_factory=LagThresholds)
    pace: PaceThresholds = field(default_factory=PaceThresholds)
    hang: HangThresholds = field(default_factory=HangThresholds)
    xid: XidThresholds = field(default_factory=XidThresholds)
    ib: IbThresholds = field(default_factory=IbThresholds)
    slowdown: SlowdownThresholds = field(default_factory=SlowdownThresholds)
    link: LinkThresholds = field(default_factory=LinkThresholds)
    leftover: LeftoverThresholds = field(default_factory=LeftoverThresholds)
    silent: SilentGpuThresholds = field(default_factory=SilentGpuThresholds)
    missing: MissingThresholds = field(default_factory=MissingThresholds)
    rail: RailThresholds = field(default_factory=RailThresholds)
    clock: ClockThresholds = field(default_factory=ClockThresholds)
    idle: IdleThresholds = field(default_factory=IdleThresholds)
    agent: AgentThresholds = field(default_factory=AgentThresholds)
    incident: IncidentThresholds = field(default_factory=IncidentThresholds)


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
