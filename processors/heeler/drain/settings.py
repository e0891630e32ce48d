"""The policy as data: limits and rules, from the packaged policy.toml and what the operator puts over it."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heeler.bus import ConfigError
from heeler.drain.hooks import ExecSettings, NotifySettings
from heeler.drain.lifecycle_settings import Lifecycle
from heeler.drain.quiet import Quiet
from heeler.engine.config import build, read_toml

DRAIN_ADVICE = frozenset({"drain_after_job", "drain_now", "reset", "reboot", "rma"})
ASKING = DRAIN_ADVICE | {"person"}  # advice that the drainer answers
# reset and reboot: drain, let jobs finish, then propose the repair or run its hook.
REPAIRS = ("reset", "reboot")
ACTIONS = ("observe", "drain_after_job", "drain_now", "drain_and_requeue", "reset", "reboot", "person")
EVIDENCE = ("hard", "soft")
REQUEUE = "drain_and_requeue"
JOB_STANDS = frozenset({"hang"})  # kinds that show that a job does not go on
NOT_ZERO = (
    "confirm_within_s",
    "clock_gap_s",
    "slurm_age_s",
    "hard_confirmations",
    "attempts",
    "health_window_s",
    "approval_s",
)
RATIOS = (
    *("hard_per_hour_ratio", "drained_ratio", "partition_drained_ratio", "rack_drained_ratio"),
    *("unavailable_ratio", "health_failed_ratio", "health_drained_ratio"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers of the policy; policy.toml says what each is for and holds the defaults."""

    settle_s: float
    confirm_within_s: float
    clock_gap_s: float
    hard_data_age_s: float
    soft_data_age_s: float
    slurm_age_s: float
    hard_confirmations: int
    hard_per_hour_min: int
    hard_per_hour_ratio: float
    mass_nodes: int
    mass_window_s: float
    soft_life_s: float
    soft_needs_cause: bool
    soft_needs_slowdown: bool
    soft_slowdown_ratio: float
    soft_per_hour: int
    soft_job_interval_s: float
    hard_per_job: int
    drained_ratio: float
    drained_min: int
    partition_drained_ratio: float
    partition_drained_min: int
    rack_features: tuple[str, ...]
    rack_drained_ratio: float
    rack_drained_min: int
    unavailable_ratio: float
    unavailable_min: int
    cooldown_s: float
    repeat_window_s: float
    repeat_limit: int
    retry_after_s: float
    attempts: int
    approval_s: float
    health_window_s: float
    health_failed_min: int
    health_failed_ratio: float
    health_drained_min: int
    health_drained_ratio: float
    opt_out_nodes: tuple[str, ...]
    opt_out_partitions: tuple[str, ...]
    opt_out_features: tuple[str, ...]
    benign_flags: tuple[str, ...]

    def most_unavailable(self, nodes: int) -> float:
        """Return how many nodes of a fleet may be unavailable before the drainer's own breaker opens."""
        return max(self.unavailable_min, self.unavailable_ratio * nodes)

    def most_drained(self, nodes: int) -> int:
        """Return how many nodes of a fleet may be drained by us at once."""
        return max(self.drained_min, int(self.drained_ratio * nodes))

    def hard_per_hour(self, nodes: int) -> int:
        """Return how many nodes of a fleet may be drained for hard evidence in an hour."""
        return max(self.hard_per_hour_min, int(self.hard_per_hour_ratio * nodes))

    def validate(self) -> None:
        """Raise ConfigError with every number that makes no sense."""
        faults = [
            f"{f.name}: {value!r} is negative"
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), int | float) and not value >= 0
        ]
        faults += [f"{name}: {getattr(self, name)!r} is over 1" for name in RATIOS if getattr(self, name) > 1]
        faults += [f"{name}: 0 would never let anything through" for name in NOT_ZERO if getattr(self, name) == 0]
        if faults:
            raise ConfigError("; ".join(faults))


@dataclass(frozen=True, slots=True)
class Rule:
    """What findings of one kind may lead to."""

    kind: str
    action: str
    evidence: str = "soft"
    min_confidence: float = 0.0
    codes: tuple[int, ...] = ()  # empty: any
    advice: tuple[str, ...] = ()  # empty: any that asks for a drain
    needs_cause: bool | None = None  # soft evidence; None: as in the limits
    needs_slowdown: bool | None = None
    has_cause: bool | None = None  # only findings with (True) or without (False) a physical cause; None: both
    approval: bool = False  # a person has to say yes to each finding: `heeler drain approve`

    def validate(self) -> None:
        """Raise ConfigError with every word that is not known."""
        faults = []
        if self.action not in ACTIONS:
            faults.append(f"action: {self.action!r}: one of {', '.join(ACTIONS)}")
        if self.evidence not in EVIDENCE:
            faults.append(f"evidence: {self.evidence!r}: one of {', '.join(EVIDENCE)}")
        if not 0 <= self.min_confidence <= 1:
            faults.append(f"min_confidence: {self.min_confidence!r}: from 0 to 1")
        if self.action == REQUEUE and self.evidence != "hard" and self.kind not in JOB_STANDS:
            faults.append(
                f"action: {REQUEUE} ends jobs: only for hard evidence or a job that hangs, not for {self.kind}"
            )
        faults += [f"advice: {word!r} asks for no drain" for word in self.advice if word not in ASKING]
        if faults:
            raise ConfigError("; ".join(faults))

    def fits(self, finding: Mapping[str, Any]) -> bool:
        """Say whether this rule speaks about a finding."""
        return (
            finding["kind"] == self.kind
            and (not self.codes or finding.get("code") in self.codes)
            and (not self.advice or finding["advice"] in self.advice)
            and (self.has_cause is None or self.has_cause == (cause_of(finding) is not None))
        )


def cause_of(finding: Mapping[str, Any]) -> str | None:
    """Return the physical cause that a finding names, or None."""
    cause = finding.get("cause")
    return None if cause in (None, "", "unknown", "none") else str(cause)


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits and rules in force."""

    limits: Limits
    rules: tuple[Rule, ...]
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    quiet: tuple[Quiet, ...] = ()

    def rule_for(self, finding: Mapping[str, Any]) -> Rule | None:
        """Return the first rule that fits a finding."""
        return next((rule for rule in self.rules if rule.fits(finding)), None)


@cache
def _packaged() -> Mapping[str, Any]:
    return tomllib.loads((Path(__file__).parent / "policy.toml").read_text())


def load_policy(
    path: str | None = None,
    limits: Mapping[str, Any] | None = None,
    rules: Iterable[Mapping[str, Any]] | None = None,
    lifecycle: Mapping[str, Any] | None = None,
    quiet: Iterable[Mapping[str, Any]] | None = None,
) -> Policy:
    """Return the packaged policy with a file's and then the given tables over it; rules replace all rules.

    Raises ConfigError with every fault.
    """
    base = _packaged()
    own = read_toml(path or None)
    if unknown := sorted(own.keys() - base.keys() - {"quiet"}):
        raise ConfigError("; ".join(f"{path}: {name}: unknown section" for name in unknown))
    merged = {**base["limits"], **own.get("limits", {}), **(limits or {})}
    after = {**base["lifecycle"], **own.get("lifecycle", {}), **(lifecycle or {})}
    table = {
        "limits": merged,
        "rules": [dict(rule) for rule in rules or own.get("rules") or base["rules"]],
        "lifecycle": after,
        "quiet": [dict(window) for window in quiet or own.get("quiet") or ()],
    }
    return build(Policy, table, "drain")


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """The [drain] section of the process: what it may do, and how it does it."""

    dry_run: bool = True
    policy: str = ""  # a policy file over the packaged one
    limits: dict[str, Any] | None = None
    rules: tuple[dict[str, Any], ...] = ()
    lifecycle: dict[str, Any] | None = None
    quiet: tuple[dict[str, Any], ...] = ()
    hooks: dict[str, ExecSettings] | None = None  # what starts a reset or a reboot
    notify: tuple[NotifySettings, ...] = ()  # who hears of actions
    backend: str = "scontrol"  # or slurmrestd, which can't requeue jobs
    rest_url: str = ""  # unix:///path, http://host:port, https://host:port
    rest_user: str = ""
    token_file: str = ""
    rest_ca: str = ""
    scontrol: str = "scontrol"
    slurm_conf: str = ""  # SLURM_CONF for the command; empty: as in the environment
    command_timeout_s: float = 10.0
    tick_s: float = 1.0
    allow_root: bool = False
    allow_anonymous_bus: bool = False

    def validate(self) -> None:
        """Raise ConfigError for a policy or a number that can't be used."""
        if not 0 < self.command_timeout_s <= 10:
            raise ConfigError(f"command_timeout_s: {self.command_timeout_s!r}: above 0, at most 10")
        if not self.tick_s > 0:
            raise ConfigError(f"tick_s: {self.tick_s!r}: above 0")
        if self.backend not in ("scontrol", "slurmrestd"):
            raise ConfigError(f"backend: {self.backend!r}: scontrol or slurmrestd")
        if (self.backend == "slurmrestd") != bool(self.rest_url):
            raise ConfigError("rest_url: needed for backend slurmrestd, and only for that")
        if self.rest_url and urlsplit(self.rest_url).scheme not in ("unix", "http", "https"):
            raise ConfigError(f"rest_url: {self.rest_url!r}: unix://, http:// or https://")
        if self.rest_url.startswith("http") and not (self.rest_user and self.token_file):
            raise ConfigError("rest_url: over TCP rest_user and token_file are needed")
        if not self.scontrol:
            raise ConfigError("scontrol: empty")
        if unknown := sorted((self.hooks or {}).keys() - set(REPAIRS)):
            raise ConfigError("; ".join(f"hooks.{name}: one of {', '.join(REPAIRS)}" for name in unknown))
        try:
            self.load_policy()
        except ConfigError as err:
            raise ConfigError(str(err).replace("drain.", "")) from None

    def load_policy(self) -> Policy:
        """Return the policy in force. Raises ConfigError."""
        return load_policy(self.policy, self.limits, self.rules, self.lifecycle, self.quiet)
