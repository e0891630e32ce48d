"""Check the agent against a real GPU: `make device-check`, under five minutes, on a machine that has one.

1. values   what `heeler-agent once` says of each GPU, beside what nvidia-smi says just before and after
2. cost     CPU time per reading of a second, with the real driver's own time in it
3. slowdown a kernel that keeps all SMs busy, timed in turns with the agent running and without

Needs nvidia-smi and bin/heeler-agent. Exits 1 when a value differs or the workload is slowed down by more than 1 %, and
with 77 where there is no GPU.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/lib"), str(Path(__file__).resolve().parent)]
from cuda_burn import Burn
from natsserver import NatsServer
from usage import cpu_s, rss_mib

AGENT = ROOT / "bin/heeler-agent"
NO_GPU = 77
MOST_SLOWDOWN = 0.01


@dataclass(frozen=True, slots=True)
class Same:
    """A value that both tell: nvidia-smi's name, where the agent has it, what its unit is worth, how far it may be."""

    query: str
    group: str
    column: str
    unit: float = 1.0
    absolute: float = 0.0
    relative: float = 0.0


VALUES = (
    Same("power.draw", "mean", "power_w", absolute=10, relative=0.15),
    Same("temperature.gpu", "mean", "temp_c", absolute=3),
    Same("clocks.sm", "mean", "sm_clock_mhz", absolute=60, relative=0.1),
    Same("clocks.mem", "mean", "mem_clock_mhz", absolute=10, relative=0.05),
    Same("utilization.gpu", "mean", "util_ratio", unit=0.01, absolute=0.1),
    Same("memory.total", "mean", "fb_total_bytes", unit=1 << 20, absolute=1 << 20),
    Same("memory.used", "mean", "fb_used_bytes", unit=1 << 20, absolute=64 << 20),
    Same("power.limit", "last", "power_limit_w", absolute=0.01),
    Same("power.default_limit", "last", "power_limit_default_w", absolute=0.01),
    Same("clocks.max.sm", "last", "sm_clock_max_mhz"),
    Same("clocks.max.mem", "last", "mem_clock_max_mhz"),
    Same("pcie.link.gen.current", "last", "pcie_gen", absolute=4),
    Same("pcie.link.width.current", "last", "pcie_width"),
    Same("pcie.link.gen.max", "last", "pcie_gen_max"),
    Same("ecc.errors.corrected.volatile.total", "last", "ecc_corrected_volatile"),
    Same("ecc.errors.uncorrected.volatile.total", "last", "ecc_uncorrected_volatile"),
    Same("ecc.errors.uncorrected.aggregate.total", "last", "ecc_uncorrected_aggregate"),
)


def number(text: str) -> float | None:
    """Return what nvidia-smi prints without units, or None for its words for nothing.

    >>> number("412.50"), number("[N/A]"), number("[Unknown Error]"), number("0")
    (412.5, None, None, 0.0)
    """
    try:
        return float(text)
    except ValueError:
        return None


def smi() -> dict[str, dict[str, float | None]]:
    """Return what nvidia-smi says, by UUID."""
    query = ",".join(["uuid", *(v.query for v in VALUES)])
    argv = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    rows = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    split = [[cell.strip() for cell in row.split(",")] for row in rows]
    return {row[0]: dict(zip((v.query for v in VALUES), map(number, row[1:]), strict=True)) for row in split}


def once() -> dict[str, Any]:
    """Return the sample of `heeler-agent once`."""
    done = subprocess.run([AGENT, "once", "-set", "cluster=check"], check=True, capture_output=True)
    sample: dict[str, Any] = json.loads(done.stdout)["GpuSample"]
    return sample


def differs(value: Same, ours: float | None, before: float | None, after: float | None) -> str:
    """Return why a value is not between what nvidia-smi said before and after, or nothing."""
    told = [theirs * value.unit for theirs in (before, after) if theirs is not None]
    if not told:
        return "" if ours is None else f"{ours:g}, nvidia-smi has none"
    if ours is None:
        return f"not read, nvidia-smi says {told[0]:g}"
    room = max(value.absolute, value.relative * max(told))
    return "" if min(told) - room <= ours <= max(told) + room else f"{ours:g}, nvidia-smi says {told}"


def compare() -> int:
    """Print each value that differs; returns how many do."""
    before, sample, after = smi(), once(), smi()
    wrong = 0
    for position, uuid in enumerate(sample["gpu"]["uuid"]):
        if uuid not in before:
            continue  # a MIG device
        for value in VALUES:
            column = sample[value.group].get(value.column)
            ours = column[position] if column else None
            if why := differs(value, ours, before[uuid][value.query], after[uuid][value.query]):
                wrong += 1
                print(f"{uuid} {value.column}: {why}")
    columns = sum(len(sample[group]) for group in ("mean", "last"))
    print(f"{len(before)} GPUs, {len(VALUES)} values each compared, {wrong} differ; {columns} columns read")
    for column, reason in sorted(sample.get("absent", {}).items()):
        print(f"  not read: {column}: {reason}")
    return wrong


class Running:
    """The agent at work, with a bus."""

    def __init__(self, folder: Path) -> None:
        self.server = NatsServer(folder)
        self.server.start()
        settings = ["cluster=check", f"state_dir={folder}/state", f'nats.servers=["{self.server.url}"]']
        flags = [word for setting in settings for word in ("-set", setting)]
        self.child = subprocess.Popen([AGENT, "run", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(5)

    def stop(self) -> None:
        """End it."""
        self.child.terminate()
        self.child.wait()
        self.server.stop()


def cost(seconds: float) -> None:
    """Print what the agent takes."""
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        before = cpu_s(running.child.pid)
        time.sleep(seconds)
        used = (cpu_s(running.child.pid) - before) / seconds
        print(f"CPU {used * 100:.2f} % of a core at a reading a second, {rss_mib(running.child.pid):.1f} MiB")
        running.stop()


def slowdown(rounds: int, seconds: float) -> float:
    """Return how much longer the workload takes beside the agent: median over turns without, with, with, without."""
    burn = Burn()
    burn.rate(seconds)  # clocks and heat settle
    alone: list[float] = []
    beside: list[float] = []
    for turn in range(rounds):
        for watched in (False, True) if turn % 2 == 0 else (True, False):
            with tempfile.TemporaryDirectory() as folder:
                running = Running(Path(folder)) if watched else None
                (beside if watched else alone).append(burn.rate(seconds))
                if running:
                    running.stop()
    found = statistics.median(alone) / statistics.median(beside) - 1
    spread = (max(alone) - min(alone)) / statistics.median(alone)
    print(f"slowdown of a running kernel {found * 100:.2f} % (runs without the agent differ by {spread * 100:.2f} %)")
    return found


def main() -> int:
    """Return 0 when all is well, 1 when not, 77 without a GPU."""
    if (
        not shutil.which("nvidia-smi")
        or subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode
    ):
        print("no GPU here: nothing checked")
        return NO_GPU
    if not os.access(AGENT, os.X_OK):
        print("bin/heeler-agent is not built (make setup, with Go): nothing checked")
        return 1
    wrong = compare()
    cost(seconds=30)
    slow = slowdown(rounds=4, seconds=6)
    return int(wrong > 0 or slow > MOST_SLOWDOWN)


if __name__ == "__main__":
    sys.exit(main())
