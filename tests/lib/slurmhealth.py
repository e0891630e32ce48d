"""A real Slurm whose Prolog, Epilog, HealthCheckProgram and TaskProlog are the scripts of deploy/slurm.

Each node has a folder of its own: a policy, an outbox, what the service would keep fresh, and the scenario that its
fake NVML follows. All nodes share this machine's kernel, so faults of one node are faults of its GPUs.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
from fake_nvml import VARIABLE, FakeNvml, build
from natsserver import wait_for
from slurmsandbox import Sandbox

from heeler.bus import decode

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "deploy/slurm"
HOOKS = {
    "Prolog": "prolog.sh",
    "Epilog": "epilog.sh",
    "HealthCheckProgram": "healthcheck.sh",
    "TaskProlog": "task_prolog.sh",
}
NS = 1_000_000_000

WRAPPER = """#!/bin/sh
# What a node of its own would not need: this machine stands for several.
node={folder}/$SLURMD_NODENAME
[ -e "$node/before" ] && . "$node/before"
export HEELER_HEALTH="$node/heeler-health"
[ -e "$node/deadline" ] && export HEELER_DEADLINE_S=$(/bin/cat "$node/deadline")
exec {script}
"""

PROGRAM = """#!/bin/sh
export LD_LIBRARY_PATH={library} {variable}={folder}/nvml.scenario PYTHONPATH={path}
date +%s.%N >>{folder}/runs
exec {python} -m heeler.health.cli "$@" --policy {folder}/health.toml
"""


class HealthSite:
    """A cluster with our scripts; `nvml[node]` is the fake of a node."""

    def __init__(self, folder: Path, sandbox: Sandbox) -> None:
        self.folder, self.slurm = folder, sandbox
        self.nvml: dict[str, FakeNvml] = {}
        self.stranger: subprocess.Popen[bytes] | None = None
        for node in sandbox.names:
            (folder / node).mkdir()
            self.nvml[node] = FakeNvml(folder / node)
        self.reset()

    @classmethod
    def settings(cls, folder: Path, hooks: Mapping[str, str] = HOOKS, *, check_every_s: int = 0) -> dict[str, str]:
        """Write the hooks and return the settings of slurm.conf that name them."""
        found = {"HealthCheckInterval": str(check_every_s)}
        for setting, script in hooks.items():
            if setting == "HealthCheckProgram" and not check_every_s:
                continue
            path = folder / script
            path.write_text(WRAPPER.format(folder=folder, script=SCRIPTS / script))
            path.chmod(0o755)
            found[setting] = str(path)
        return found

    def reset(self) -> None:
        """Make all nodes healthy again, with checks that are not enforced and a breaker that is closed."""
        for node in self.slurm.names:
            folder = self.folder / node
            (folder / "outbox").mkdir(exist_ok=True)
            for path in [*(folder / "outbox").iterdir(), folder / "before", folder / "deadline", folder / "runs"]:
                path.unlink(missing_ok=True)
            (folder / "gpus.json").unlink(missing_ok=True)
            self.nvml[node].write(f"gpus {self.slurm.gpus}\nseed {node}\n")
            self.policy(node)
            self.breaker(node, "closed")
            self.program(node)

    def program(self, node: str, text: str | None = None) -> None:
        """Install heeler-health on a node, or what stands in its place."""
        roots = [ROOT / one for one in ("agents", "processors", "schemas/python")]
        path = os.pathsep.join(map(str, [*roots, self.folder / "plugins"]))
        made = PROGRAM.format(
            library=build().parent, variable=VARIABLE, folder=self.folder / node, path=path, python=sys.executable
        )
        program = self.folder / node / "heeler-health"
        program.write_text(made if text is None else text)
        program.chmod(0o755)

    def plugin(self, name: str, text: str) -> None:
        """Make a module with checks that policies can name, as an installed package would."""
        info = self.folder / f"plugins/{name}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[heeler.health.checks]\n{name} = {name}_checks:CHECKS\n")
        (self.folder / f"plugins/{name}_checks.py").write_text(text)

    def policy(self, node: str, text: str = "") -> None:
        """Write a node's policy."""
        folder = self.folder / node
        (folder / "health.toml").write_text(
            f'cluster = "sandbox"\noutbox = "{folder}/outbox"\ncache = "{folder}"\n{text}\n'
        )

    def breaker(self, node: str, state: str, age_s: float = 0.0) -> None:
        """Write what a node last heard of the breaker."""
        value = {"state": state, "why": "a test", "ts_ns": time.time_ns() - int(age_s * NS)}
        (self.folder / node / "breaker.json").write_text(json.dumps(value))

    def before(self, node: str, text: str) -> None:
        """Let a node's hooks do this first."""
        (self.folder / node / "before").write_text(text)

    def sent(self, node: str, kind: str) -> list[dict[str, Any]]:
        """Return the messages of a type that a node has left for the bus, in order."""
        found = []
        for path in sorted((self.folder / node / "outbox").glob("[0-9]*.msg")):  # a dot: still being written
            letter = msgpack.unpackb(path.read_bytes())
            if letter["type"] == f"{kind}/1":
                found.append(decode(kind, letter["data"]))
        return found

    def run_of(self, node: str, phase: str, job: str | None = None) -> dict[str, Any]:
        """Wait for the HealthRun of a phase, the newest of a job, and return it."""

        def found() -> list[dict[str, Any]]:
            all_runs = [one for one in self.sent(node, "HealthRun") if one["phase"] == phase]
            return [one for one in all_runs if job is None or one["job_id"] == job]

        wait_for(lambda: bool(found()), f"the {phase} on {node} has reported")
        return found()[-1]

    def runs(self, node: str) -> int:
        """Return how often heeler-health was started on a node."""
        path = self.folder / node / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0
