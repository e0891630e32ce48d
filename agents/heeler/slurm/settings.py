"""Settings of the Slurm feed: the table ``[slurm]``."""

import re
from dataclasses import dataclass, field
from datetime import tzinfo
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from heeler.bus import ConfigError, TokenError, escape
from heeler.slurm.times import local_zone

SOURCES = ("auto", "rest", "json", "text")
NUMBERS = (
    "timeout_s",
    "accounting_timeout_s",
    "jobs_interval_s",
    "nodes_interval_s",
    "max_backoff_s",
    "republish_s",
)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Which file systems to ask how full they are: ``[slurm.storage]``."""

    mounts: tuple[str, ...] = ()  # patterns (regular expressions) of places where something is mounted
    links: str | None = None  # a folder of symbolic links: what they point to is asked about as well
    timeout_s: float = 5.0  # for each of them; one that hangs holds up no other
    mountinfo: str = "/proc/self/mountinfo"

    def validate(self) -> None:
        """Raise ConfigError for a pattern that is none."""
        for pattern in self.mounts:
            try:
                re.compile(pattern)
            except re.error as err:
                raise ConfigError(f"mounts: {pattern!r}: {err}") from None
        if not 0.1 <= self.timeout_s <= 600:
            raise ConfigError(f"timeout_s: {self.timeout_s}: from 0.1 to 600")


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """Where the quotas are read: ``[slurm.quotas]``."""

    reader: str | None = None  # pure, or a plug-in of the group heeler.slurm.quotas; none: no quotas
    settings: dict[str, str] = field(default_factory=dict)  # the reader's own; pure: file


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How to ask Slurm, and how often."""

    feed: str = "slurm"  # this feed's name in ClusterState
    bin_dir: str | None = None  # where squeue, sinfo and scontrol are; PATH otherwise
    conf: str | None = None  # SLURM_CONF; Slurm's own default otherwise
    timeout_s: float = 30.0  # a command that takes longer is killed: an outage
    jobs_interval_s: float = 10.0
    nodes_interval_s: float = 15.0
    max_backoff_s: float = 60.0  # longest wait between tries while the controller is away
    republish_s: float = 86400.0  # what lives is published again after so long, so that no retention forgets it
    source: str = "auto"  # rest, json, text; auto takes the first of them that this Slurm has
    rest_url: str | None = None  # unix:///run/slurmrestd.socket, http://host:6820 or https://host:6820
    rest_user: str | None = None  # whose token it is; over a unix socket neither is needed
    token_file: str | None = None  # read again at each question; as `scontrol token` prints it, or the token alone
    rest_ca: str | None = None  # certificates to trust for https; the system's otherwise
    accounting_timeout_s: float = 300.0  # as timeout_s, for questions that slurmdbd answers
    intervals: dict[str, float] = field(default_factory=dict)  # seconds by table, such as partitions; 0 is off
    exclusive_owns_gpus: bool = False  # a job that has its nodes alone and asked for no GPU owns theirs
    storage: StorageSettings = field(default_factory=StorageSettings)
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    controller_zone: str | None = None  # IANA name; this machine's zone otherwise

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = []
        try:
            escape(self.feed)
        except TokenError as err:
            faults.append(f"feed: {err}")
        for name in NUMBERS:
            value = getattr(self, name)
            if not 0.1 <= value <= 7 * 86400:
                faults.append(f"{name}: {value}: from 0.1 to 604800")
        if self.source not in SOURCES:
            faults.append(f"source: {self.source!r}: one of {', '.join(SOURCES)}")
        faults += self._rest_faults()
        for name, value in self.intervals.items():
            if value != 0 and not 1 <= value <= 7 * 86400:
                faults.append(f"intervals.{name}: {value}: 0 (off), or from 1 to 604800")
        try:
            self.zone()
        except ConfigError as err:
            faults.append(str(err))
        if faults:
            raise ConfigError("; ".join(faults))

    def _rest_faults(self) -> list[str]:
        if self.rest_url is None:
            return ["source: rest needs rest_url"] if self.source == "rest" else []
        try:
            parts = urlsplit(self.rest_url)
            host, _ = parts.hostname, parts.port
        except ValueError as err:
            return [f"rest_url: {self.rest_url!r}: {err}"]
        if parts.scheme == "unix" and parts.path.startswith("/"):
            return []
        if parts.scheme not in ("http", "https") or not host:
            return [f"rest_url: {self.rest_url!r}: unix:///path, http://host:port or https://host:port"]
        return [] if self.token_file and self.rest_user else ["rest_url over TCP needs token_file and rest_user"]

    def zone(self) -> tzinfo:
        """Return the controller's zone. Raises ConfigError."""
        if self.controller_zone is None:
            return local_zone()
        try:
            return ZoneInfo(self.controller_zone)
        except (KeyError, ValueError, OSError):
            raise ConfigError(f"controller_zone: {self.controller_zone!r}: no such zone") from None
