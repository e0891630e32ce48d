"""A site's bus as one TOML file: its servers, clusters, nodes and racks, and what their certificates are called."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from heeler.access.roles import ROLES
from heeler.bus import ConfigError
from heeler.engine import config
from heeler.slurm.errors import ParseError
from heeler.slurm.hostlist import expand

HEALTH: Final = ("own", "agent", "none")


@dataclass(frozen=True, slots=True)
class Server:
    """One nats-server of the hub. Three of them are a cluster."""

    name: str
    host: str  # as clients and the other servers reach it, and as its certificate says
    port: int = 4222
    cluster_port: int = 6222
    leaf_port: int = 7422


@dataclass(frozen=True, slots=True)
class Rack:
    """A leaf server, to which the nodes of a rack connect."""

    name: str
    nodes: str
    host: str
    port: int = 4222


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Slurm cluster and its nodes: those in no rack connect to the hub."""

    name: str
    nodes: str = ""
    racks: tuple[Rack, ...] = ()


@dataclass(frozen=True, slots=True)
class Files:
    """Where files lie on each server, and what certificates are called. ``{name}`` is a server, node or role."""

    ca: str = "/etc/nats/tls/ca.pem"
    cert: str = "/etc/nats/tls/{name}.pem"
    key: str = "/etc/nats/tls/{name}.key"
    store: str = "/var/lib/nats"
    user: str = "{name}"  # a name (DNS) in the certificate of a node or role, by which the server knows it


@dataclass(frozen=True, slots=True)
class Site:
    """The ``[site]`` table."""

    servers: tuple[Server, ...]
    clusters: tuple[Cluster, ...]
    files: Files = field(default_factory=Files)
    name: str = "heeler"  # of the servers' cluster
    account: str = "HEELER"
    operators: tuple[str, ...] = ()  # people who may command the drainer, by their names
    sinks: tuple[str, ...] = ("otlp",)  # labels of the sinks of `heeler run otlp`
    health: str = "own"  # heeler-health serve: a certificate of its own, that of the agent, or not used
    max_file_store: str = "200GB"
    max_memory_store: str = "1GB"
    max_connections: int = 65536

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = []
        if len(self.servers) not in (1, 3, 5):
            faults.append(f"servers: {len(self.servers)}: one, or three or five that can outvote a lost one")
        if not self.clusters:
            faults.append("clusters: none")
        if self.health not in HEALTH:
            faults.append(f"health: {self.health!r}: {', '.join(HEALTH)}")
        if "{name}" not in self.files.user:
            faults.append("files.user: has no {name}: all would be one user")
        names = [server.name for server in self.servers]
        names += [rack.name for cluster in self.clusters for rack in cluster.racks]
        names += [cluster.name for cluster in self.clusters]
        faults += [f"names: two are called {name!r}" for name in _twice(names)]
        faults += [f"names: {name!r}: letters, digits, - and _ only" for name in names if not _plain(name)]
        try:
            users = [
                *(node for cluster in self.clusters for node in every_node(cluster)),
                *self.roles(),
                *self.operators,
            ]
            faults += [f"nodes: {name!r} is there twice" for name in _twice(users)]
        except ParseError as err:
            faults.append(f"nodes: {err}")
        if faults:
            raise ConfigError("; ".join(faults))

    def roles(self) -> dict[str, tuple[str, Cluster | None]]:
        """Return role and cluster of each user that is no node, by its name.

        With several clusters, roles of one cluster have its name behind theirs.
        """
        found: dict[str, tuple[str, Cluster | None]] = {}
        for name, role in ROLES.items():
            if not role.cluster:
                found[f"heeler-{name}"] = (name, None)
                continue
            for cluster in self.clusters:
                suffix = f"-{cluster.name}" if len(self.clusters) > 1 else ""
                found[f"heeler-{name}{suffix}"] = (name, cluster)
        return found

    def user(self, name: str) -> str:
        """Return what the certificate of a node or role says."""
        return self.files.user.replace("{name}", name)


def every_node(cluster: Cluster) -> list[str]:
    """Return all nodes of a cluster, in racks or not. Raises ParseError."""
    return [*expand(cluster.nodes), *(node for rack in cluster.racks for node in expand(rack.nodes))]


def load(path: Path | str) -> Site:
    """Read a site. Raises ConfigError with every fault there is."""
    found = config.load(config.read_toml(path), {"site": Site})["site"]
    assert isinstance(found, Site)
    return found


def _twice(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _plain(name: str) -> bool:
    return bool(name) and name.isascii() and name.replace("-", "").replace("_", "").isalnum()
