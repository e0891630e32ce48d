"""Ten checks in front of a job: heeler-health in one process, GCM 0.0.2 in ten, and what a bare Python takes.

All read the same fake NVML library of 8 GPUs, whose calls return at once, and the kernel log of this machine. Both are
called as Slurm's prolog calls them, with a job and its GPUs in the environment.

    heeler           `heeler-health run CHECK... --mode prolog`, results left in an outbox
    gcm, ten         ten commands of `health_checks` one after the other, sink do_nothing, as its documentation has them
    gcm, fewest      the same with as few commands as it can: nine of the ten are one command's options
    floor            `python -c pass`

What a broken road to the bus adds is measured too: an outbox that is not there, cannot be written or is full. Without
network GCM is left out; it is installed from PyPI into build/gcm once.

python bench/health.py [--runs 20] [--gcm-runs 3] [--program /usr/bin/heeler-health]
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent import GCM, ROOT, gcm_python
from fake_nvml import FakeNvml

GPUS = 8
# The same question to both: our check, and GCM's options.
SMI = ("check-nvidia-smi",)
PAIRS: Mapping[str, tuple[str, ...]] = {
    "gpu_reachable": (*SMI, "-c", "gpu_num"),
    "gpu_leftover_processes": (*SMI, "-c", "running_procs"),
    "gpu_clocks": (*SMI, "-c", "clock_freq"),
    "gpu_temperature": (*SMI, "--gpu_temperature_threshold", "90", "-c", "gpu_temperature"),
    "gpu_ecc_uncorrected": (*SMI, "-c", "ecc_uncorrected_volatile_total"),
    "gpu_ecc_corrected": (*SMI, "-c", "ecc_corrected_volatile_total"),
    "gpu_row_remap_pending": (*SMI, "-c", "row_remap_pending"),
    "gpu_row_remap_failed": (*SMI, "-c", "row_remap_failed"),
    "gpu_vbios": (*SMI, "-c", "vbios_mismatch"),
    "gpu_xid": ("check-syslogs", "xid"),
}
# An outbox that works, and those that do not.
OUTBOXES = ("heeler", "outbox missing", "outbox no folder", "outbox full")
POLICY = """cluster = "bench"
outbox = "{outbox}"
cache = "{folder}/cache"
"""


@dataclass(slots=True)
class Series:
    """What some runs of the same took."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def add(self, commands: Sequence[Sequence[str]], env: Mapping[str, str], good: Sequence[int]) -> None:
        """Run some commands one after the other; they must end with one of these statuses."""
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        for command in commands:
            done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False)
            if done.returncode not in good:
                raise SystemExit(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        self.wall_s.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    def p50(self) -> tuple[float, float]:
        """Return the middle of wall and CPU time, in seconds."""
        return statistics.median(self.wall_s), statistics.median(self.cpu_s)


def outboxes(folder: Path) -> dict[str, Path]:
    """Return an outbox that works and those that do not."""
    works, full, file = folder / "outbox", folder / "full", folder / "file"
    works.mkdir()
    full.mkdir()
    file.write_text("no folder")
    for number in range(20_000):
        (full / f"{number:020d}-1-{number}.msg").touch()
    return dict(zip(OUTBOXES, (works, folder / "none", file, full), strict=True))


def ours(program: Sequence[str], folder: Path, outbox: Path) -> list[str]:
    """Return our command, with a policy of its own."""
    policy = folder / f"{outbox.name}.toml"
    policy.write_text(POLICY.format(outbox=outbox, folder=folder))
    return [*program, "run", *PAIRS, "--mode", "prolog", "--policy", str(policy)]


def fewest() -> list[tuple[str, ...]]:
    """Return GCM's ten in as few commands as it can."""
    found: dict[str, list[str]] = {}
    for command, *options in PAIRS.values():
        found.setdefault(command, []).extend(options)
    return [(name, *options) for name, options in found.items()]


def measure(folder: Path, program: Sequence[str], runs: int, gcm_runs: int) -> dict[str, Series]:
    """Run each in turn, so that a slow moment of the machine hits all."""
    fake = FakeNvml(folder)
    fake.write(f"gpus {GPUS}")
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_USER": "root", "SLURM_JOB_GPUS": ",".join(map(str, range(GPUS)))}
    env = os.environ | fake.env() | job | {"LD_LIBRARY_PATH": str(fake.library.parent)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # packages carry their bytecode, and GCM has it from pip
    found = {name: Series() for name in OUTBOXES}
    commands = {name: ours(program, folder, outbox) for name, outbox in outboxes(folder).items()}
    floor = Series()
    Series().add(list(commands.values()), env, (0,))  # the first run writes bytecode
    for _ in range(runs):
        for name, command in commands.items():
            found[name].add([command], env, (0,))
        floor.add([[sys.executable, "-c", "pass"]], env, (0,))
    found["floor"] = floor
    python = gcm_python()
    if python is None:
        print(f"gcm: {GCM} cannot be installed here: not measured")
        return found
    tail = ("--log-folder", str(folder), "bench", "prolog")
    for name, asked in (("gcm, ten", list(PAIRS.values())), ("gcm, fewest", fewest())):
        found[name] = Series()
        for _ in range(gcm_runs):
            # 1 and 2: it found something, such as an XID in this machine's log.
            lines = [[str(python.with_name("health_checks")), *words, *tail] for words in asked]
            found[name].add(lines, env, (0, 1, 2))
    return found


def report(found: Mapping[str, Series]) -> dict[str, Any]:
    """Print the table and the ratios; return the figures."""
    figures = {name: series.p50() for name, series in found.items()}
    for name, (wall_s, cpu_s) in figures.items():
        print(f"{name:18} p50 {wall_s * 1e3:8.0f} ms   CPU {cpu_s * 1e3:8.0f} ms   of {len(found[name].wall_s)} runs")
    wall_s, cpu_s = figures["heeler"]
    print(f"above the floor    {(wall_s - figures['floor'][0]) * 1e3:12.0f} ms")
    added_s = max(figures[name][0] - wall_s for name in OUTBOXES[1:])
    print(f"a bus that can't be reached adds {added_s * 1e3:.0f} ms at most")
    for name in ("gcm, ten", "gcm, fewest"):
        if name in figures:
            wall, cpu = figures[name]
            print(f"1/{wall / wall_s:.0f} of the time and 1/{cpu / cpu_s:.0f} of the CPU of {name}")
    return {
        "p50_ms": {name: round(wall * 1e3, 1) for name, (wall, _) in figures.items()},
        "cpu_ms": {name: round(cpu * 1e3, 1) for name, (_, cpu) in figures.items()},
        "bus_adds_ms": round(added_s * 1e3, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--gcm-runs", type=int, default=3)
    parser.add_argument("--program", nargs="+", default=[sys.executable, "-m", "heeler.health.cli"])
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / part) for part in ("agents", "processors", "schemas/python"))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(report(measure(Path(folder), options.program, options.runs, options.gcm_runs))))


if __name__ == "__main__":
    main()
