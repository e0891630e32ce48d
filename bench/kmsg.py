"""From a line of the kernel log to an event on the bus, and what a flood costs.

The real agent, a real nats-server with JetStream, a subscriber of another process than the writer.

    latency   1,000 lines a second that mean nothing, and 20 XIDs a second among them: the time from the writing of an
              XID to its arrival at a subscriber, beside a bare nats-py publish with its acknowledgement
    flood     100,000 XIDs of one GPU in 29 texts as fast as they can be written, and 50 of other GPUs among them: all
              must be told or counted, the 50 one by one, and memory must stay bounded

The log is a file in the form of /dev/kmsg, and, for root, /dev/kmsg itself. There a flood may overwrite lines before
they are read; the gaps that the agent tells must then make up the difference.

python bench/kmsg.py [--seconds 20] [--lines 100000]
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgpack
import nats

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "tests/fakes")]
from fake_nvml import FakeNvml
from natsserver import NatsServer
from usage import cpu_s, rss_mib

DEVICE = Path("/dev/kmsg")
GPUS = 8
NOISE_PER_S = 1000
XIDS_PER_S = 20
TARGET_MS = 10.0
WARM_UP_S = 7.0  # the agent gives its GPUs five seconds to show up
TEXTS = 29
OTHERS = 50
PCI = [f"0000:{0x10 + i:02x}:00" for i in range(GPUS)]
SENT = re.compile(r"t=(\d+)")

# Writes noise and XIDs; each XID bears the time of its writing. A descriptor of /dev/kmsg takes ten lines in five
# seconds, so it is opened anew for each few.
WRITER = """
import sys, time
path, seconds, noise, device = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "device"
pci, rate = sys.argv[5].split(","), int(sys.argv[6])
codes = (13, 31, 43, 45, 48, 63, 74, 94, 95)
lines = (
    "audit: type=1400 audit(1700000000.123:456): apparmor=ALLOWED operation=open profile=x pid=1 comm=y",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth1234: link becomes ready",
    "EXT4-fs (loop1): mounted filesystem with ordered data mode. Quota mode: none.",
    "docker0: port 1(veth1234) entered blocking state",
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
)
log, used, seq = None, 0, 100
def write(level, text):
    global log, used, seq
    if log is None or device and used >= 8:
        if log is not None:
            log.close()
        log, used = open(path, "ab", buffering=0), 0
    seq, used = seq + 1, used + 1
    head = f"<{level}>" if device else f"{level},{seq},{time.monotonic_ns() // 1000},-;"
    log.write((head + text + "\\n").encode())
start, done, xids = time.monotonic(), 0, 0
while (now := time.monotonic() - start) < seconds:
    while done < now * noise:
        write(6, lines[done % len(lines)])
        done += 1
    if xids < now * rate:
        where, code = pci[xids % len(pci)], codes[xids // len(pci) % len(codes)]
        write(4, f"NVRM: Xid (PCI:{where}): {code}, pid=7, name=bench, Ch 00000010 t={time.monotonic_ns()}")
        xids += 1
    time.sleep(0.0005)
print(xids, done)
"""


@dataclass(slots=True)
class Heard:
    """What came over the bus."""

    delays_ms: list[float] = field(default_factory=list)
    told: int = 0
    counted: int = 0
    lost: int = 0
    others: int = 0
    messages: int = 0

    def take(self, event: dict[str, Any], now_ns: int) -> None:
        """Take one event."""
        self.messages += 1
        if event["kind"] == "gap":
            self.lost += event["detail"]["lost"]
        if event["kind"] not in ("xid", "flood"):
            return
        self.counted += event["count"]
        self.told += event["count"] == 1
        self.others += event.get("code") == 48 and event.get("pci") != PCI[0]
        if sent := SENT.search(event.get("text", "")):
            self.delays_ms.append((now_ns - int(sent[1])) / 1e6)


class Site:
    """A server, an agent and a subscriber."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log = folder, log
        self.fake, self.server = FakeNvml(folder), NatsServer(folder / "nats")
        self.fake.write(f"gpus {GPUS}\nall busy\n" + "\n".join(f"{i} pci {at}.0" for i, at in enumerate(PCI)))
        self.agent: subprocess.Popen[bytes] | None = None
        self.heard = Heard()

    @property
    def device(self) -> bool:
        """Whether the log is the kernel's own."""
        return self.log == DEVICE

    def start(self) -> None:
        """Start server and agent; the log that is a file begins anew."""
        self.server.start()
        self.server.init_bus(scale=0.05)
        if not self.device:
            self.log.write_text("6,1,1000,-;Linux version 6.1.0\n")
        config = self.folder / "agent.toml"
        config.write_text(
            f'cluster = "bench"\nnode = "n1"\nstate_dir = "{self.folder}/state"\n'
            f'[nats]\nservers = ["{self.server.url}"]\nconnect_jitter = "0s"\n'
            f'[nvml]\nlibrary = "{self.fake.library}"\n'
            f'[kmsg]\npath = "{self.log}"\nany_facility = {str(self.device).lower()}\nflood_interval = "2s"\n'
        )
        command = [os.environ.get("HEELER_AGENT", str(ROOT / "bin/heeler-agent")), "run", "-config", str(config)]
        with (self.folder / "agent.log").open("wb") as out:
            self.agent = subprocess.Popen(command, env=os.environ | self.fake.env(), stdout=out, stderr=out)

    def stop(self) -> None:
        """End both."""
        if self.agent is not None:
            self.agent.terminate()
            self.agent.wait()
        self.server.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        self.bus = await nats.connect(self.server.url)

        async def take(message: Any) -> None:
            self.heard.take(msgpack.unpackb(message.data), time.monotonic_ns())

        await self.bus.subscribe("heeler.v1.bench.kernel.event.>", cb=take)
        await asyncio.sleep(WARM_UP_S)
        self.heard = Heard()  # what the log held before
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bus.close()
        await asyncio.to_thread(self.stop)

    def peak_mib(self) -> float:
        """Return the most memory that the agent ever had, MiB."""
        assert self.agent is not None
        return rss_mib(self.agent.pid, "VmHWM")

    def cpu_s(self) -> float:
        """Processor seconds of the agent so far."""
        assert self.agent is not None
        return cpu_s(self.agent.pid)


async def until(is_so: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for something; say whether it came."""
    end = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.05)
    return True


def percentiles(values: list[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest."""
    cuts = statistics.quantiles(values, n=100)
    return {"p50_ms": round(cuts[49], 3), "p99_ms": round(cuts[98], 3), "max_ms": round(max(values), 3)}


async def floor(site: Site) -> dict[str, float]:
    """Publish as many bytes without an agent, and wait for the acknowledgement."""
    js = site.bus.jetstream()
    delays = []
    for i in range(400):
        start = time.monotonic_ns()
        data = msgpack.packb({"kind": "floor", "count": i, "text": "x" * 400})
        await js.publish("heeler.v1.bench.kernel.event.floor", data)
        delays.append((time.monotonic_ns() - start) / 1e6)
        await asyncio.sleep(0.005)
    return percentiles(delays)


async def write(site: Site, seconds: float, xids_per_s: int) -> tuple[int, int]:
    """Write noise, and XIDs among it; return how many XIDs and lines of noise."""
    how = "device" if site.device else "file"
    command = (WRITER, str(site.log), str(seconds), str(NOISE_PER_S), how, ",".join(PCI), str(xids_per_s))
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", *command, stdout=asyncio.subprocess.PIPE)
    out, _ = await writer.communicate()
    xids, noise = map(int, out.split())
    return xids, noise


async def latency(site: Site, seconds: float) -> dict[str, Any]:
    """Nothing, then noise, then noise and XIDs."""
    cpu, start = site.cpu_s(), time.monotonic()
    await asyncio.sleep(seconds / 2)
    idle_ratio = (site.cpu_s() - cpu) / (time.monotonic() - start)
    cpu, start = site.cpu_s(), time.monotonic()
    _, noise = await write(site, seconds / 2, 0)
    took = time.monotonic() - start
    noise_ratio = (site.cpu_s() - cpu) / took
    xids, _ = await write(site, seconds, XIDS_PER_S)
    complete = await until(lambda: len(site.heard.delays_ms) >= xids, 5.0)
    return percentiles(site.heard.delays_ms) | {
        "xids": xids, "all_came": complete, "noise_per_s": round(noise / seconds * 2),
        "cpu_ratio_idle": round(idle_ratio, 4), "cpu_ratio_noise": round(noise_ratio, 4),
        "cpu_us_per_line": round(max(0.0, noise_ratio - idle_ratio) * took / noise * 1e6, 2),
    }  # fmt: skip


def pour(log: Path, lines: int) -> None:
    """Write the flood."""
    device = log == DEVICE
    every, count, parts = lines // OTHERS, 0, []
    for i in range(lines):
        parts.append(f"NVRM: Xid (PCI:{PCI[0]}): 95, pid=7, name=bench, Uncontained: text {i % TEXTS}")
        if i % every == every // 2 and count < OTHERS:
            where = PCI[1 + count % (GPUS - 1)]
            parts.append(f"NVRM: Xid (PCI:{where}): 48, pid=7, name=bench, DBE {count}")
            count += 1
    if not device:
        with log.open("ab") as out:
            for seq, text in enumerate(parts, 2):
                out.write(f"4,{seq},{time.monotonic_ns() // 1000},-;{text}\n".encode())
        return
    for at in range(0, len(parts), 8):
        with log.open("ab", buffering=0) as out:
            for text in parts[at : at + 8]:
                out.write(f"<4>{text}\n".encode())


async def flood(site: Site, lines: int) -> dict[str, Any]:
    """All must be told or counted."""
    before, start, cpu = site.peak_mib(), time.monotonic(), site.cpu_s()
    await asyncio.to_thread(pour, site.log, lines)
    written = time.monotonic() - start
    heard, wanted = site.heard, lines + OTHERS
    complete = await until(lambda: heard.counted + heard.lost >= wanted, 60.0)
    return {
        "lines": wanted, "told_or_counted": heard.counted, "lost_in_gaps": heard.lost, "adds_up": complete,
        "others": heard.others, "messages": heard.messages, "written_s": round(written, 2),
        "complete_s": round(time.monotonic() - start, 2),
        "cpu_us_per_line": round((site.cpu_s() - cpu) / wanted * 1e6, 2),
        "peak_mib_before": round(before, 1), "peak_mib": round(site.peak_mib(), 1),
    }  # fmt: skip


async def at_site(log: Path | None, measure: Callable[[Site], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Measure with an agent of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Site(folder, log or folder / "kmsg") as site:
            return await measure(site)


async def run(seconds: float, lines: int) -> dict[str, Any]:
    """Measure all, one after the other."""
    found: dict[str, Any] = {"floor": await at_site(None, floor)}
    floor_ms = found["floor"]
    print(f"bare publish with ack   p50 {floor_ms['p50_ms']:6.2f} ms  p99 {floor_ms['p99_ms']:6.2f} ms")
    logs: list[tuple[str, Path | None]] = [("file", None)]
    if os.geteuid() == 0 and os.access(DEVICE, os.R_OK | os.W_OK):
        logs.append(("/dev/kmsg", DEVICE))
    for name, log in logs:
        one = found[f"latency {name}"] = await at_site(log, lambda site: latency(site, seconds))
        one["p99_to_floor"] = round(one["p99_ms"] / floor_ms["p99_ms"], 2)
        one["p50_to_floor"] = round(one["p50_ms"] / floor_ms["p50_ms"], 2)
        print(
            f"{name:10} to the bus  p50 {one['p50_ms']:6.2f} ms  p99 {one['p99_ms']:6.2f} ms"
            f"  max {one['max_ms']:6.2f} ms"
            f"  ({one['p50_to_floor']:.1f} and {one['p99_to_floor']:.1f} times the bare publish)"
        )
        print(
            f"{'':10} {one['xids']} XIDs, {'all' if one['all_came'] else 'NOT ALL'} came;"
            f" {one['noise_per_s']} lines/s of noise cost {one['cpu_us_per_line']} µs CPU a line"
        )
    for name, log in logs:
        one = found[f"flood {name}"] = await at_site(log, lambda site: flood(site, lines))
        print(
            f"{name:10} flood       {one['lines']} lines: {one['told_or_counted']} told or counted in"
            f" {one['messages']} messages, {one['lost_in_gaps']} lost in gaps, {one['others']} of {OTHERS} others"
        )
        print(
            f"{'':10} {one['cpu_us_per_line']} µs CPU a line; at most {one['peak_mib']} MiB,"
            f" {one['peak_mib_before']} before; written in {one['written_s']} s"
        )
    return found


def main() -> dict[str, Any]:
    """Print the figures; returns them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--lines", type=int, default=100_000)
    options = parser.parse_args()
    if not Path(os.environ.get("HEELER_AGENT", ROOT / "bin/heeler-agent")).exists():
        print("heeler-agent is not built (no Go): not measured")
        return {}
    found = asyncio.run(run(options.seconds, options.lines))
    worst = max(one["p99_ms"] for name, one in found.items() if name.startswith("latency"))
    print(f"p99 {worst} ms, target {TARGET_MS} ms: {'met' if worst <= TARGET_MS else 'MISSED'}")
    return found


if __name__ == "__main__":
    print(json.dumps(main()))
