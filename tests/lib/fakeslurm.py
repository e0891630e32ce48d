"""Programs that answer like Slurm's, for what a real one can't be made to say: real processes, made-up answers."""

import json
from pathlib import Path
from typing import Any

SCRIPT = """#!/bin/sh
echo "$$ $0 $*" >>{folder}/calls
cat {folder}/{name}.err >&2 2>/dev/null
cat {folder}/{name}.out 2>/dev/null
. {folder}/{name}.sh
"""


class FakeSlurm:
    """A folder with squeue, sinfo and scontrol; each prints what it was last told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "calls").touch()
        for name in ("squeue", "sinfo", "scontrol"):
            self.add(name)

    def add(self, name: str) -> None:
        """Add a program; it prints nothing yet."""
        path = self.folder / name
        path.write_text(SCRIPT.format(folder=self.folder, name=name))
        path.chmod(0o755)
        self.says(name, "")

    def says(
        self, program: str, out: str | bytes | dict[str, Any], *, err: str = "", rc: int = 0, after: str = ""
    ) -> None:
        """Let a program print this from now on, then run a line of shell, then end with a status."""
        if isinstance(out, dict):
            out = json.dumps(out)
        for ending, text in (("out", out), ("err", err), ("sh", f"{after}\nexit {rc}\n")):
            new = self.folder / f"{program}.{ending}.new"
            new.write_bytes(text.encode() if isinstance(text, str) else text)
            new.replace(self.folder / f"{program}.{ending}")

    @property
    def calls(self) -> list[str]:
        """The calls so far, as program and arguments."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line.split(" ", 1)[1].removeprefix(f"{self.folder}/") for line in lines]

    @property
    def pids(self) -> list[int]:
        """The processes of the calls so far."""
        return [int(line.split(" ", 1)[0]) for line in (self.folder / "calls").read_text().splitlines()]
