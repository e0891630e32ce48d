"""Settings of the exporter: the ``[otlp]`` section and its sinks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heeler.bus import ConfigError

BUILT_IN = ("otlp", "stdout", "file")
SIGNALS = ("metrics", "logs", "traces")
GPU_NAMES = ("hw", "dcgm", "both")
JOBS = ("attributes", "info")
GROUP = "heeler.sinks"  # entry points: a name, and a callable from SinkSettings to a Sink


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """One ``[[otlp.sinks]]``: where points, records and spans go.

    ``name`` names the sink's place in the streams (its durable consumers): change it and it starts anew.
    Secrets belong into OTEL_EXPORTER_OTLP_HEADERS, which is added to ``headers``.
    """

    kind: str = "stdout"  # otlp, stdout, file, or the name of a plug-in
    name: str = ""  # the kind, unless told otherwise
    signals: tuple[str, ...] = SIGNALS
    # otlp
    endpoint: str = "http://127.0.0.1:4317"
    protocol: str = "grpc"  # or http
    compression: str = "gzip"  # or none
    gzip_fallback: bool = False  # send plain from then on to a receiver that refuses gzip
    timeout_s: float = 10.0
    max_bytes: int = 3 << 20  # of a request before compression; receivers take 4 MiB unless told otherwise
    max_backoff_s: float = 30.0
    headers: dict[str, str] = field(default_factory=dict)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    # file
    path: str | None = None
    rotate_bytes: int = 256 << 20
    keep: int = 8  # rotated files; older ones are deleted
    # plug-ins
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name of this sink."""
        return self.name or self.kind

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = []
        plug_ins = {point.value for point in entry_points(group=GROUP, name=self.kind)}
        if self.kind not in BUILT_IN and not plug_ins:
            faults.append(f"kind: {self.kind!r}: not {', '.join(BUILT_IN)} or a plug-in of {GROUP}")
        if self.kind not in BUILT_IN and len(plug_ins) > 1:
            faults.append(f"kind: {self.kind!r}: of several plug-ins: {', '.join(sorted(plug_ins))}")
        if not self.signals or not set(self.signals) <= set(SIGNALS):
            faults.append(f"signals: {list(self.signals)}: of {', '.join(SIGNALS)}")
        if not self.label.replace("-", "").replace("_", "").isalnum() or not self.label.isascii():
            faults.append(f"name: {self.label!r}: letters, digits, - and _ only")
        if self.kind == "otlp":
            faults += self._otlp_faults()
        if self.kind == "file" and not self.path:
            faults.append("path: missing")
        if self.rotate_bytes < 1 or self.keep < 1:
            faults.append("rotate_bytes and keep: at least 1")
        if faults:
            raise ConfigError("; ".join(faults))

    def _otlp_faults(self) -> list[str]:
        faults = []
        try:
            url = urlsplit(self.endpoint)
            good = url.scheme in ("http", "https") and url.hostname is not None and url.port != 0
        except ValueError:
            good = False
        if not good:
            faults.append(f"endpoint: {self.endpoint!r}: http://HOST:PORT or https://HOST:PORT")
        if self.protocol not in ("grpc", "http"):
            faults.append(f"protocol: {self.protocol!r}: grpc or http")
        if self.compression not in ("gzip", "none"):
            faults.append(f"compression: {self.compression!r}: gzip or none")
        if not (0 < self.timeout_s < math.inf and 0 < self.max_backoff_s < math.inf):
            faults.append("timeout_s and max_backoff_s: above 0")
        if self.max_bytes < 4096:
            faults.append("max_bytes: at least 4096")
        faults += [
            f"{name}: no such file: {path}"
            for name, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key))
            if path and not Path(path).is_file()
        ]
        if bool(self.cert) != bool(self.key):
            faults.append("cert and key: both or neither")
        if (self.ca or self.cert) and not self.endpoint.startswith("https://"):
            faults.append("endpoint: certificates are set, so it must be https://")
        return faults


def faults_of(sinks: Sequence[SinkSettings]) -> list[str]:
    """Return what is wrong with sinks beside each other."""
    labels = [sink.label for sink in sinks]
    faults = [f"sinks: two are named {label!r}" for label in sorted(set(labels)) if labels.count(label) > 1]
    return faults if sinks else ["sinks: none"]


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """``[otlp.slurm]``: how much of Slurm's tables and accounting goes out."""

    users: bool = False  # series for each user: fair shares, quotas, messages to slurmctld
    partition_accounts: bool = False  # sums for each account in each partition
    series_rows: int = 20_000  # rows of one table with series; later ones are left out and counted
    job_records: bool = True  # a log record for each run of a job that ended

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        if self.series_rows < 1:
            raise ConfigError("series_rows: at least 1")


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """The ``[otlp]`` section."""

    sinks: tuple[SinkSettings, ...] = (SinkSettings(),)
    slurm: SlurmSettings = SlurmSettings()
    gpu_names: str = "hw"  # hw.gpu.* and heeler.gpu.*; dcgm: as NVIDIA's dcgm-exporter has them; or both
    jobs: str = "attributes"  # of each point of a GPU; info: in heeler.gpu.job.info alone, so that no job makes series
    every_s: float = 60.0  # at most one point per series in this time; 0: every window
    metrics: tuple[str, ...] = ("selected",)  # "selected" (heeler.otlp.selection), "all", or patterns of names
    without: tuple[str, ...] = ()  # patterns of names to leave out
    batch_points: int = 8000
    linger_s: float = 1.0  # how long a batch waits for more
    held_messages: int = 2000  # per sink and signal; beyond, messages wait in the stream
    ack_wait_s: float = 30.0  # after which another exporter is given what this one holds
    stop_s: float = 3.0  # for sending what is held when the process ends

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = faults_of(self.sinks)
        if self.gpu_names not in GPU_NAMES:
            faults.append(f"gpu_names: {self.gpu_names!r}: {', '.join(GPU_NAMES)}")
        if self.jobs not in JOBS:
            faults.append(f"jobs: {self.jobs!r}: {', '.join(JOBS)}")
        if not (0 <= self.every_s < math.inf and 0 <= self.linger_s < 10 and 0 <= self.stop_s <= 4):
            faults.append("every_s: 0 or more; linger_s: 0 to 10; stop_s: 0 to 4")
        if not 1 <= self.ack_wait_s <= 3600:
            faults.append("ack_wait_s: 1 to 3600")
        if not self.metrics or not all((*self.metrics, *self.without)):
            faults.append("metrics and without: patterns of names; metrics: at least one")
        if self.batch_points < 1 or self.held_messages < 1:
            faults.append("batch_points and held_messages: at least 1")
        if faults:
            raise ConfigError("; ".join(faults))
