"""Settings of otlp-in: the ``[otlp_in]`` section and its sinks."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from heeler.bus import ConfigError
from heeler.otlp.settings import SinkSettings, faults_of
from heeler.otlpin.holders import ABOUT, USUAL
from heeler.otlpin.stamp import Keys


@dataclass(frozen=True, slots=True)
class OtlpInSettings:
    """Where it listens, what it holds at most, and where it passes points on to."""

    grpc: str = "127.0.0.1:4317"  # HOST:PORT; empty: not
    http: str = "127.0.0.1:4318"
    sinks: tuple[SinkSettings, ...] = (SinkSettings(signals=("metrics",)),)
    keys: Keys = field(default_factory=Keys)
    attributes: tuple[str, ...] = USUAL  # of jobs: also qos, name, array_job_id, array_task_id, het_job_id
    trust_index: bool = False  # where no agent tells of a node's GPUs, take an index for Slurm's (the minor number)
    stale_s: float = 300.0  # without the bus for so long, the map is not believed
    max_bytes: int = 16 << 20  # of a request, unpacked
    most_requests: int = 64  # under way at once; more are refused, and come again
    most_held_bytes: int = 64 << 20  # of these requests together
    connections: int = 4  # to an otlp sink
    retry_s: float = 2.0  # when a refused sender may come again
    stop_s: float = 3.0
    # TLS; with client_ca only senders with a certificate of it are taken.
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = faults_of(self.sinks)
        for name, address in (("grpc", self.grpc), ("http", self.http)):
            if address and not address.rpartition(":")[2].isdigit():
                faults.append(f"{name}: {address!r}: HOST:PORT")
        faults += [f"attributes: {key!r}: one of {', '.join(ABOUT)}" for key in self.attributes if key not in ABOUT]
        if not (self.grpc or self.http):
            faults.append("grpc and http: neither is on")
        if min(self.max_bytes, self.most_requests, self.most_held_bytes, self.connections) < 1:
            faults.append("max_bytes, most_requests, most_held_bytes and connections: at least 1")
        if self.max_bytes > self.most_held_bytes:
            faults.append("max_bytes: more than most_held_bytes: the largest request would never be taken")
        if not (0 < self.stale_s < math.inf and 0 < self.retry_s <= 600 and 0 <= self.stop_s <= 4):
            faults.append("stale_s: above 0; retry_s: to 600; stop_s: 0 to 4")
        if bool(self.cert) != bool(self.key) or (self.client_ca and not self.cert):
            faults.append("cert and key: both or neither, and both with client_ca")
        faults += [
            f"{name}: no such file: {path}"
            for name, path in (("cert", self.cert), ("key", self.key), ("client_ca", self.client_ca))
            if path and not Path(path).is_file()
        ]
        if faults:
            raise ConfigError("; ".join(faults))
