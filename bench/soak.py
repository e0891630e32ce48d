"""Ten minutes of trouble for one heeler-agent, whose memory, goroutines and descriptors must not grow.

The agent reads a fake NVML library and a kernel log of its own. Every few seconds something breaks and is mended: a
GPU is lost, hangs, gets MIG devices, the driver is reloaded, indices shift, the kernel log floods, the bus goes away.
After each whole round everything is well again, and what the agent uses then is written down.

    python bench/soak.py [--minutes 10] [--agent bin/heeler-agent]

Exits 1 when the last third of the rounds used more than a twentieth more of anything than the middle third.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nats

from heeler.bus import decode

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "tests/fakes")]
from fake_nvml import FakeNvml
from natsserver import NatsServer
from usage import rss_mib

STEP_S = 1.5
MOST_GROWTH = 1.05
WELL = "gpus 8\nall busy"
XID = "NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, pid=1234, name=python3, Ch 00000008"


class Site:
    """One agent and what it lives on."""

    def __init__(self, folder: Path, agent: Path) -> None:
        self.fake, self.server = FakeNvml(folder), NatsServer(folder)
        self.fake.write(WELL)
        self.kmsg = folder / "kmsg"
        self.kmsg.write_text("6,0,1,-;Linux version\n")
        self.lines = 0
        self.server.start()
        self.server.init_bus(scale=0.01)
        config = folder / "agent.toml"
        config.write_text(
            f'cluster = "bench"\nnode = "n1"\nboot_id = "soak"\nstate_dir = "{folder}/state"\nwindow = "1s"\n'
            f'interval = "500ms"\nstatus_interval = "1s"\n[nats]\nservers = ["{self.server.url}"]\n'
            f'connect_jitter = "0s"\n[nvml]\nlibrary = "{self.fake.library}"\nretry = "1s"\nhang_after = "500ms"\n'
            f'[kmsg]\npath = "{self.kmsg}"\nflood_interval = "1s"\n'
        )
        self.log = folder.joinpath("agent.log").open("w")
        self.agent = subprocess.Popen(
            [agent, "run", "-config", config], env=os.environ | self.fake.env(), stdout=self.log, stderr=self.log
        )

    def write(self, count: int, code: int) -> None:
        """Put lines into the kernel log."""
        with self.kmsg.open("a") as log:
            for _ in range(count):
                self.lines += 1
                text = XID.format(bus=0x1B + self.lines % 8, code=code)
                log.write(f"4,{self.lines},{self.lines * 1000},-;{text}\n")

    def usage(self) -> dict[str, float]:
        """Return what the agent uses now."""
        pid = self.agent.pid
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return {
            "rss_mib": rss_mib(pid),
            "anonymous_mib": rss_mib(pid, "RssAnon"),
            "threads": threads,
            "descriptors": descriptors,
        }

    def stop(self) -> None:
        """End all."""
        self.agent.terminate()
        self.agent.wait()
        self.log.close()
        self.server.stop()


def troubles(site: Site) -> list[Callable[[], None]]:
    """Return what breaks in one round, in order; each is mended by the next."""
    mig = "\n".join(f"2 mig 1g.10gb {i + 7} 0" for i in range(3))

    def bus_away() -> None:
        site.fake.write(WELL)
        site.server.kill()

    def bus_back() -> None:
        site.server.start()
        site.write(50, 13)

    return [
        lambda: site.fake.write(f"{WELL}\n2 lost"),
        lambda: site.fake.write(f"{WELL}\n3 hang all"),
        lambda: site.fake.write(f"{WELL}\n{mig}"),
        lambda: site.fake.write(f"{WELL}\norder 7 6 5 4 3 2 1 0"),
        lambda: site.fake.write("gpus 6\nall busy"),
        lambda: site.fake.write(f"{WELL}\nall error all 1\ninit_error 9"),
        lambda: site.fake.write(f"{WELL}\n1 xid 31\n1 unsupported nvlink\n4 error ecc 4"),
        lambda: site.write(20_000, 31),
        bus_away,
        lambda: site.write(200, 45),
        bus_back,
        lambda: site.fake.write(WELL),
        lambda: None,
    ]


async def goroutines(url: str) -> float | None:
    """Return how many goroutines the agent's newest status names, or None where it names none."""
    client = await nats.connect(url, max_reconnect_attempts=3)
    try:
        found = await client.jetstream().get_last_msg("AGENTS", "heeler.v1.bench.agent.status.n1")
        return decode("AgentStatus", found.data or b"").get("goroutines")
    finally:
        await client.close()


def soak(site: Site, minutes: float) -> list[dict[str, float]]:
    """Return what the agent used at the end of each round."""
    rounds: list[dict[str, float]] = []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for trouble in troubles(site):
            trouble()
            time.sleep(STEP_S)
            if site.agent.poll() is not None:
                raise SystemExit(f"the agent ended: {Path(site.log.name).read_text()[-2000:]}")
        used = site.usage()
        count = asyncio.run(goroutines(site.server.url))
        if count is not None:
            used["goroutines"] = count
        rounds.append(used)
        print("   ".join(f"{name} {value:.1f}" for name, value in used.items()), flush=True)
    return rounds


def thirds(rounds: list[dict[str, float]], name: str) -> tuple[float, float]:
    """Return the mean of the middle third and that of the last; the first is warm-up: heap, threads, arenas.

    >>> thirds([{"rss_mib": mib} for mib in (10, 15, 20, 20, 25, 25)], "rss_mib")
    (20.0, 25.0)
    """
    third = len(rounds) // 3
    return (
        statistics.fmean(r[name] for r in rounds[third : 2 * third]),
        statistics.fmean(r[name] for r in rounds[2 * third :]),
    )


def has_grown(middle: float, last: float) -> bool:
    """Say whether it is more than noise: a twentieth, and more than one MiB, thread or descriptor."""
    return last > middle * MOST_GROWTH and last > middle + 1


def main() -> int:
    """Return 1 when something grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--agent", type=Path, default=ROOT / "bin/heeler-agent")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder), options.agent)
        try:
            rounds = soak(site, options.minutes)
        finally:
            site.stop()
    if len(rounds) < 3:
        print("too short to say anything")
        return 1
    found = {name: thirds(rounds, name) for name in rounds[0]}
    for name, (middle, last) in found.items():
        print(f"{name:14} {middle:6.1f} in the middle third, {last:6.1f} in the last")
    grown = [name for name, means in found.items() if has_grown(*means)]
    print(json.dumps({"rounds": len(rounds), "grown": grown, "thirds": found, "last": rounds[-1]}))
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
