"""Settings of `heeler-health serve`: the table ``[serve]``."""

from dataclasses import dataclass

from heeler.bus import ConfigError


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What the service on a node does."""

    policy: str = "/etc/heeler/health.toml"
    node: str | None = None  # SLURMD_NODENAME or the short host name otherwise
    interval_s: float = 300.0  # between periodic runs, with jitter; 0: none
    run_s: float = 120.0  # longest that a run may take

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = []
        if self.interval_s and not 5 <= self.interval_s <= 86400:
            faults.append(f"interval_s: {self.interval_s}: 0, or from 5 to 86400")
        if not 1 <= self.run_s <= 7200:
            faults.append(f"run_s: {self.run_s}: from 1 to 7200")
        if faults:
            raise ConfigError("; ".join(faults))
