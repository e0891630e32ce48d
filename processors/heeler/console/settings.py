"""Settings of the web page: the ``[console]`` section."""

from dataclasses import dataclass

from heeler.bus import ConfigError


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Where the page is served, and its bounds.

    There is no log-in: whoever reaches the port may read. Keep it on 127.0.0.1, behind a tunnel or a proxy that
    asks who is there; ``hosts`` names what a browser may call it by then (in the header Host).
    """

    listen: str = "127.0.0.1:8420"
    hosts: tuple[str, ...] = ()  # besides that of `listen` and the names of this machine's loopback
    cluster: str = ""  # the cluster to show, where several share a bus; else whatever is there
    every_s: float = 1.0  # between two updates of open pages
    stale_s: float = 45.0  # or three of the node's windows: then what a GPU showed is no longer known
    most_nodes: int = 50_000
    most_jobs: int = 50_000  # that run
    most_ended: int = 20_000  # jobs that ended and are still told on a node's page
    most_findings: int = 5_000
    most_pages: int = 64  # open at the same time
    plot_nodes: int = 32  # of a job, whose history is read for a plot

    def validate(self) -> None:
        """Raise ConfigError with every fault there is."""
        faults = []
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            faults.append(f"listen: {self.listen!r}: HOST:PORT")
        if self.every_s < 0.1:
            faults.append(f"every_s: {self.every_s}: at least 0.1")
        bounds = ("most_nodes", "most_jobs", "most_ended", "most_findings", "most_pages", "plot_nodes")
        faults += [f"{name}: {getattr(self, name)}: at least 1" for name in bounds if getattr(self, name) < 1]
        if self.stale_s <= 0:
            faults.append(f"stale_s: {self.stale_s}: above 0")
        if faults:
            raise ConfigError("; ".join(faults))
