"""Settings of the exporter: the ``[otlp]`` section and its sinks."""

import math
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heeler.bus import ConfigError

BUILT_IN = ("otlp", "stdout", "file")
GROUP = "heeler.sinks"  # entry points: a name, and a callable from SinkSettings to a Sink


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """One ``[[otlp.sinks]]``: where points and records go.

    ``name`` names the sink's place in the streams (its durable consumers): change it and it starts anew.
    Secrets belong into OTEL_EXPORTER_OTLP_HEADERS, which is added to ``headers``.
    """

    kind: str = "stdout"  # otlp, stdout, file, or the name of a plug-in
    name: str = ""  # the kind, unless told otherwise
    signals: tuple[str, ...] = ("metrics", "logs")
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
        if self.kind not in BUILT_IN and not entry_points(group=GROUP, name=self.kind):
            faults.append(f"kind: {self.kind!r}: not {', '.join(BUILT_IN)} or a plug-in of {GROUP}")
        if not self.signals or not set(self.signals) <= {"metrics", "logs"}:
            faults.append(f"signals: {list(self.signals)}: metrics, logs or both")
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


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """The ``[otlp]`` section."""

    sinks: tuple[SinkSettings, ...] = (SinkSettings(),)
    every_s: float = 0.0  # at most one point per series in this time; 0: every window
    batch_points: int = 8000
    linger_s: float = 1.0  # how long a batch waits for more
    held_messages: int = 2000  # per sink and signal; beyond, messages wait in the stream
    ack_wait_s: float = 30.0  # after which another exporter is given what this one holds
    stop_s: float = 3.0  # for sending what is held when the process ends

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = []
        labels = [sink.label for sink in self.sinks]
        faults += [f"sinks: two are named {label!r}" for label in sorted(set(labels)) if labels.count(label) > 1]
        if not self.sinks:
            faults.append("sinks: none")
        if not (0 <= self.every_s < math.inf and 0 <= self.linger_s < 10 and 0 <= self.stop_s <= 4):
            faults.append("every_s: 0 or more; linger_s: 0 to 10; stop_s: 0 to 4")
        if not 1 <= self.ack_wait_s <= 3600:
            faults.append("ack_wait_s: 1 to 3600")
        if self.batch_points < 1 or self.held_messages < 1:
            faults.append("batch_points and held_messages: at least 1")
        if faults:
            raise ConfigError("; ".join(faults))
