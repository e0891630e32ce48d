"""A site's bus of real servers with certificates, as `heeler bus config` configures it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certs import Authority
from natsserver import NatsServer, free_port, wait_for

from heeler.access import render
from heeler.access.site import Cluster, Files, Rack, Server, Site, every_node
from heeler.bus import BusSettings


class SiteServer(NatsServer):
    """A server that runs with a file as it was made."""

    def __init__(self, folder: Path, path: Path, port: int) -> None:
        super().__init__(folder, port=port)
        self._path = path

    def _configured(self) -> Path:
        return self._path

    @property
    def url(self) -> str:
        return f"tls://localhost:{self.port}"


class BusSite:
    """Servers and certificates of a site."""

    def __init__(self, folder: Path, *, servers: int = 1, racks: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.authority = Authority(folder / "tls")
        files = Files(
            ca=str(self.authority.ca),
            cert=str(folder / "tls/{name}.pem"),
            key=str(folder / "tls/{name}.key"),
            store=str(folder / "store"),
            user="{name}.test",
        )
        leaves = tuple(Rack(name, nodes, "localhost", free_port()) for name, nodes in (racks or {}).items())
        self.site = Site(
            tuple(
                Server(f"nats-{number}", "localhost", *(free_port() for _ in range(3)))
                for number in range(1, servers + 1)
            ),
            (Cluster("north", "n[1-2]", leaves),),
            files,
            operators=("ann",),
            sinks=("collector",),
            max_file_store="4GB",
            max_memory_store="64MB",
        )
        self.site.validate()
        self.servers = self._servers()

    def _servers(self) -> dict[str, SiteServer]:
        conf = self.folder / "conf"
        conf.mkdir()
        for name, text in render.files(self.site).items():
            # Several servers on one machine: each needs a store of its own.
            own = text.replace(f'"{self.folder}/store"', f'"{self.folder}/store-{name}"')
            (conf / name).write_text(own.replace('"0.0.0.0:', '"127.0.0.1:'))
        ports = {one.name: one.port for one in self.site.servers}
        ports |= {f"rack-{rack.name}": rack.port for cluster in self.site.clusters for rack in cluster.racks}
        for name in ports:
            self.authority.issue(name, "localhost", f"{name}.test")
        return {name: SiteServer(self.folder / name, conf / f"{name}.conf", port) for name, port in ports.items()}

    def users(self) -> list[str]:
        """Name everyone who has rights."""
        nodes = [node for cluster in self.site.clusters for node in every_node(cluster)]
        return [*self.site.roles(), *self.site.operators, *nodes, *(f"{node}-health" for node in nodes)]

    def settings(self, user: str, at: str = "nats-1", inbox: str = "") -> BusSettings:
        """Return how a user connects."""
        cert, key = self.authority.issue(user, f"{user}.test")
        return BusSettings(
            servers=(self.servers[at].url,), cluster="north", ca=str(self.authority.ca), cert=str(cert), key=str(key),
            inbox_prefix=inbox, connect_timeout_s=5.0, reconnect_wait_s=0.05,
        )  # fmt: skip

    def toml(self, user: str, more: str = "", at: str = "nats-1") -> Path:
        """Write the settings file of a user's program."""
        one = self.settings(user, at)
        path = self.folder / f"{user}.toml"
        path.write_text(
            f'[bus]\nservers = ["{one.servers[0]}"]\ncluster = "north"\n'
            f'ca = "{one.ca}"\ncert = "{one.cert}"\nkey = "{one.key}"\n{more}'
        )
        return path

    def refused(self) -> list[str]:
        """Return what the servers refused so far."""
        return [
            line
            for server in self.servers.values()
            for line in server.log.read_text().splitlines()
            if "Violation" in line or "ermission" in line or "uthentication" in line
        ]


@contextmanager
def running(site: BusSite) -> Iterator[BusSite]:
    """Run all servers of a site; a cluster needs a majority before any says that it is ready."""
    try:
        for server in site.servers.values():
            server.start()
        yield site
    finally:
        for server in site.servers.values():
            server.kill()


__all__ = ["BusSite", "SiteServer", "running", "wait_for"]
