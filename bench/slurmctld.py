"""How often slurmctld is asked: its own count of requests, as the cluster grows.

For each size a Slurm of its own runs: two real slurmd, the other nodes are defined only. `heeler-slurm` feeds a real
nats-server from each at its default intervals. All sizes run at once: this counts, and measures no time. What slurmctld
answered is read from sdiag, before and after, and what its nodes send by themselves is left out. The last line is JSON.

Needs root and Slurm (see tests/lib/slurmsandbox.py). About three minutes.

python bench/slurmctld.py [--nodes 2 256 4096] [--warm-s 65] [--measure-s 120]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/lib")]

from natsserver import NatsServer
from needs import missing_slurm
from slurmsandbox import Sandbox

from heeler.bus import Bus, BusSettings
from heeler.bus.admin import init
from heeler.slurm.sched import parse_text

REAL = 2
JOBS = 200  # that wait, so that answers have rows
GHOSTS = (
    "NodeName=g[0001-{count:04d}] NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000000 Gres=gpu:h100:8 State=UNKNOWN\n"
    "PartitionName=ghosts Nodes=g[0001-{count:04d}] MaxTime=INFINITE State=UP\n"
)
# Sent by slurmd, slurmstepd and slurmdbd, whoever asks; and sdiag, which is ours here.
NOT_OURS = ("MESSAGE_", "ACCOUNTING_", "REQUEST_COMPLETE_", "REQUEST_STEP_COMPLETE", "REQUEST_STATS_INFO")


class Site:
    """A cluster with a bus and a feed."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.nodes = nodes
        ghosts = nodes - REAL
        extra = GHOSTS.format(count=ghosts) if ghosts > 0 else ""
        # Nodes that nobody pings can't stop answering.
        self.slurm = Sandbox(REAL, extra=extra, settings={"SlurmdTimeout": "0"})
        self.folder = folder / str(nodes)
        self.folder.mkdir()
        self.nats = NatsServer(self.folder)
        self.feed: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start all of it."""
        self.slurm.start()
        self.slurm.run("sbatch", "--hold", "--output=/dev/null", f"--array=1-{JOBS}", "--wrap=sleep 1")
        self.nats.start()
        asyncio.run(self._streams())
        config = self.folder / "slurm.toml"
        config.write_text(
            f'[bus]\nservers = ["{self.nats.url}"]\ncluster = "north"\n[slurm]\nconf = "{self.slurm.conf}"\n'
            # There is no accounting here: these are slurmdbd's to answer, and the other tables slurmctld's.
            "[slurm.intervals]\nassociations = 0\nqos = 0\nusers = 0\nrunaway = 0\nrecords = 0\nrecords_running = 0\n"
        )
        with (self.folder / "feed.log").open("wb") as log:
            argv = [sys.executable, "-m", "heeler.slurm.agent", "--config", str(config)]
            self.feed = subprocess.Popen(argv, stdout=log, stderr=log, env={**self.slurm.env, "PYTHONPATH": paths()})

    async def _streams(self) -> None:
        bus = await Bus.connect(BusSettings(servers=(self.nats.url,), cluster="north"), "bench")
        await init(bus, scale=0.002)
        await bus.close()

    def asked(self) -> dict[str, int]:
        """Return how often slurmctld was asked since it started, by request."""
        table = parse_text(self.slurm.run("sdiag").encode())
        counts: dict[str, int] = table.columns["rpcs_by_type"][0]
        return {name: count for name, count in counts.items() if not name.startswith(NOT_OURS)}

    def alive(self) -> bool:
        """Whether the feed still runs."""
        return self.feed is not None and self.feed.poll() is None

    def stop(self) -> None:
        """End all of it."""
        if self.feed is not None:
            self.feed.terminate()
            self.feed.wait(20)
        self.nats.kill()
        self.slurm.stop()


def paths() -> str:
    """Return where Heeler's packages are, for a process that gets no environment of ours."""
    return ":".join(str(ROOT / name) for name in ("agents", "processors", "schemas/python"))


def per_minute(site: Site, before: dict[str, int], seconds: float) -> dict[str, float]:
    """Return requests a minute since then, by request."""
    after = site.asked()
    grown = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: round(60 * count / seconds, 1) for name, count in sorted(grown.items()) if count}


def main() -> int:
    """Print a table; return 1 where the number grows with the cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 256, 4096])
    parser.add_argument("--warm-s", type=float, default=65.0, help="every table is asked for first within a minute")
    parser.add_argument("--measure-s", type=float, default=120.0)
    options = parser.parse_args()
    if why := missing_slurm():
        print(f"left out: {why}")
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder, ThreadPoolExecutor() as pool:
        sites = [Site(nodes, Path(folder)) for nodes in options.nodes]
        try:
            list(pool.map(Site.start, sites))
            time.sleep(options.warm_s)
            before, began = [site.asked() for site in sites], time.monotonic()
            time.sleep(options.measure_s)
            seconds = time.monotonic() - began
            rates = [per_minute(site, first, seconds) for site, first in zip(sites, before, strict=True)]
            dead = [site.nodes for site in sites if not site.alive()]
        finally:
            list(pool.map(Site.stop, sites))
    if dead:
        print(f"the feed ended: {dead}", file=sys.stderr)
        return 1
    totals = {site.nodes: round(sum(rate.values()), 1) for site, rate in zip(sites, rates, strict=True)}
    print("nodes  requests a minute")
    for site, rate in zip(sites, rates, strict=True):
        print(f"{site.nodes:5}  {totals[site.nodes]:5}  " + ", ".join(f"{name} {n:g}" for name, n in rate.items()))
    print(json.dumps({"requests_per_minute": totals}))
    return int(max(totals.values()) > 1.2 * min(totals.values()))


if __name__ == "__main__":
    sys.exit(main())
