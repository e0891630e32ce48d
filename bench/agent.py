"""What heeler-agent costs a node: CPU and memory at one read of 8 GPUs a second, beside nvidia-ml-py.

Both read the fake NVML library, whose calls return at once: what is left is the reader's own work. A real driver
adds its own time to both.

    heeler-agent     all its collectors on this machine, samples of 10 s to a real nats-server
    nvidia-ml-py     a loop of the 12 calls per GPU that a plain exporter makes, nothing sent

python bench/agent.py [--seconds 60]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "tests/fakes")]
from fake_nvml import FakeNvml
from natsserver import NatsServer

from heeler.sim.demo.supervisor import cpu_s_of

WARM_UP_S = 5.0

PLAIN = """
import ctypes, pynvml, sys, time
pynvml.nvmlLib = ctypes.CDLL(sys.argv[1])
pynvml._LoadNvmlLibrary = lambda: None
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
while True:
    for h in handles:
        pynvml.nvmlDeviceGetUUID(h); pynvml.nvmlDeviceGetPowerUsage(h); pynvml.nvmlDeviceGetTemperature(h, 0)
        pynvml.nvmlDeviceGetClockInfo(h, 1); pynvml.nvmlDeviceGetClockInfo(h, 2)
        pynvml.nvmlDeviceGetUtilizationRates(h); pynvml.nvmlDeviceGetMemoryInfo(h)
        pynvml.nvmlDeviceGetTotalEccErrors(h, 0, 0)
        pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 0); pynvml.nvmlDeviceGetCurrentClocksEventReasons(h)
        pynvml.nvmlDeviceGetCurrPcieLinkGeneration(h); pynvml.nvmlDeviceGetComputeRunningProcesses(h)
    time.sleep(1.0)
"""


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def main() -> dict[str, Any]:
    """Print the figures; returns them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    agent = ROOT / "bin/heeler-agent"
    if not agent.exists():
        print("heeler-agent is not built (no Go): not measured")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), agent, seconds)
    for name, one in found.items():
        print(f"{name:14} {one['cpu_ratio'] * 100:6.2f} % of one core   {one['rss_mb']:6.1f} MiB")
    ratio = found["heeler-agent"]["cpu_ratio"] / max(1e-9, found["nvidia-ml-py"]["cpu_ratio"])
    print(f"heeler-agent takes {ratio:.2f} times the CPU of the plain loop")
    return found


def measure(folder: Path, agent: Path, seconds: float) -> dict[str, Any]:
    """Run both side by side for some seconds."""
    fake, server = FakeNvml(folder), NatsServer(folder)
    fake.write("gpus 8\nall busy")
    server.start()
    config = folder / "agent.toml"
    config.write_text(
        f'cluster = "bench"\nnode = "n1"\nstate_dir = "{folder}"\n[nats]\nservers = ["{server.url}"]\n'
        f'connect_jitter = "0s"\n[nvml]\nlibrary = "{fake.library}"\n'
    )
    heeler = [sys.executable, "-m", "heeler.cli.main", "bus", "init", "--url", server.url, "--scale", "0.01"]
    subprocess.run(heeler, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    environment = os.environ | fake.env()
    with (folder / "out").open("w") as out:
        contenders = {
            "heeler-agent": [str(agent), "run", "-config", str(config)],
            "nvidia-ml-py": [sys.executable, "-c", PLAIN, str(fake.library)],
        }
        children = {
            name: subprocess.Popen(argv, env=environment, stdout=out, stderr=out) for name, argv in contenders.items()
        }
        try:
            time.sleep(WARM_UP_S)
            before = {name: cpu_s_of(child.pid) for name, child in children.items()}
            time.sleep(seconds)
            return {
                name: {"cpu_ratio": (cpu_s_of(child.pid) - before[name]) / seconds, "rss_mb": rss_mb(child.pid)}
                for name, child in children.items()
            }
        finally:
            for child in children.values():
                child.terminate()
                child.wait()
            server.stop()


if __name__ == "__main__":
    print(json.dumps(main()))
