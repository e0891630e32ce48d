"""The [lifecycle] section of the policy: what follows once a node is drained. policy.toml says what each is for."""

from dataclasses import dataclass, fields

from heeler.bus import ConfigError

NOT_ZERO = ("check_timeout_s", "check_interval_s", "check_passes", "check_attempts", "check_fresh_s", "return_attempts")
LONGEST_CHECK_S = 3600.0
MOST_CHECKS = 100  # a node's health service takes no more in one request


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """What may be done with a node that we have drained."""

    undrain: bool = False
    checks: tuple[str, ...] = ()
    check_timeout_s: float = 120.0
    check_interval_s: float = 60.0
    check_passes: int = 2
    check_attempts: int = 3
    check_fresh_s: float = 900.0
    return_attempts: int = 3
    job_wait_s: float = 0.0

    def validate(self) -> None:
        """Raise ConfigError with everything that makes no sense."""
        faults = [
            f"{f.name}: {value!r} is negative"
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), int | float) and not value >= 0
        ]
        faults += [f"{name}: 0 would never let anything through" for name in NOT_ZERO if getattr(self, name) == 0]
        if self.check_timeout_s > LONGEST_CHECK_S:
            faults.append(f"check_timeout_s: {self.check_timeout_s!r}: at most {LONGEST_CHECK_S:g}")
        if len(self.checks) > MOST_CHECKS:
            faults.append(f"checks: {len(self.checks)} names, at most {MOST_CHECKS}")
        faults += [f"checks: {name!r} is no name of a check" for name in self.checks if not name.strip()]
        if self.check_passes > 10:
            faults.append(f"check_passes: {self.check_passes!r}: at most 10")
        if self.undrain and not self.checks:
            faults.append("undrain: true without any checks: a node is given back only after an active check")
        if self.check_passes > 1 and self.check_fresh_s < self.check_interval_s * (self.check_passes - 1):
            faults.append("check_fresh_s: shorter than the passes that are asked for take")
        if faults:
            raise ConfigError("; ".join(faults))
