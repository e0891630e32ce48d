"""How a process reaches the bus: one value, from TOML and the environment."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

ENV = {
    "servers": "HEELER_NATS_URL",
    "cluster": "HEELER_CLUSTER",
    "creds": "HEELER_NATS_CREDS",
    "nkey": "HEELER_NATS_NKEY",
    "ca": "HEELER_NATS_CA",
    "cert": "HEELER_NATS_CERT",
    "key": "HEELER_NATS_KEY",
}


class ConfigError(ValueError):
    """Settings that can't be used; lists every fault."""


@dataclass(frozen=True, slots=True)
class BusSettings:
    """Where the bus is and who we are there."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    cluster: str = "local"
    creds: str | None = None
    nkey: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    inbox_prefix: str = ""  # where answers come to; empty: _INBOX_ and the connection's name
    connect_timeout_s: float = 5.0
    reconnect_wait_s: float = 1.0
    pending_bytes: int = field(default=16 << 20)

    @classmethod
    def load(cls, table: Mapping[str, Any] | None = None, env: Mapping[str, str] = os.environ) -> "BusSettings":
        """Return settings from a ``[bus]`` table, the environment going first. Raises ConfigError."""
        table = dict(table or {})
        faults = [f"bus.{key}: unknown key" for key in table.keys() - {f.name for f in fields(cls)}]
        if faults:
            raise ConfigError("; ".join(sorted(faults)))
        for name, variable in ENV.items():
            if value := env.get(variable):
                table[name] = value
        if isinstance(table.get("servers"), str):
            table["servers"] = [url.strip() for url in table["servers"].split(",") if url.strip()]
        if "servers" in table:
            table["servers"] = tuple(table["servers"])
        settings = replace(cls(), **table)
        settings.validate()
        return settings

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = []
        if not self.servers:
            faults.append("bus.servers: empty")
        faults += [
            f"bus.{name}: no such file: {path}"
            for name, path in (
                ("creds", self.creds),
                ("nkey", self.nkey),
                ("ca", self.ca),
                ("cert", self.cert),
            )
            if path and not Path(path).is_file()
        ]
        if bool(self.cert) != bool(self.key):
            faults.append("bus.cert and bus.key: both or neither")
        if self.inbox_prefix and not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", self.inbox_prefix):
            faults.append(f"bus.inbox_prefix: {self.inbox_prefix!r} is no subject")
        if self.creds and self.nkey:
            faults.append("bus.creds and bus.nkey: one or the other")
        if faults:
            raise ConfigError("; ".join(faults))

    def tls(self) -> "ssl.SSLContext | None":
        """Return the TLS context, or None where no certificate is named and the URLs say nats://."""
        if not (self.ca or self.cert or any(url.startswith("tls://") for url in self.servers)):
            return None
        import ssl  # noqa: PLC0415 - whoever only reads settings has no use for it

        context = ssl.create_default_context(cafile=self.ca)
        if self.cert:
            context.load_cert_chain(self.cert, self.key)
        return context
