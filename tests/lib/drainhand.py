"""An operator at the command line: `heeler drain ...` as a process of its own."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What --json printed."""
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of cluster north."""

    config: Path
    name: str | None = "jane"

    @classmethod
    def at(cls, folder: Path, url: str, name: str | None = "jane") -> "Operator":
        """Return an operator who uses a bus."""
        config = folder / "operator.toml"
        config.write_text(f'[bus]\nservers = ["{url}"]\ncluster = "north"\n')
        return cls(config, name)

    async def __call__(self, what: str, *words: str) -> Said:
        """Run `heeler drain WHAT ...`."""
        as_whom = () if self.name is None else ("--as", self.name)
        argv = ("-m", "heeler.cli.main", "drain", what, *words, "--config", str(self.config), *as_whom)
        child = await asyncio.create_subprocess_exec(
            sys.executable, *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await asyncio.wait_for(child.communicate(), 60)
        assert child.returncode is not None
        return Said(child.returncode, out.decode(), err.decode())
