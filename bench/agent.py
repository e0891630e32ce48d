"""What heeler-agent costs a node: CPU, memory and start-up at one read of 8 GPUs a second, beside two others.

All read the same fake NVML library, whose calls return at once, with a process on each GPU: what is left is the
reader's own work. A real driver adds its own time to all.

    heeler-agent     all its collectors on this machine, samples of 10 s to a real nats-server
    gcm              nvml_monitor of Meta's GCM (PyPI gpucm 0.0.2, in an environment of its own), nothing sent
    nvidia-ml-py     a loop of the 12 calls per GPU that a plain exporter makes, nothing sent

GCM reads the job of a process with `sudo cat`; where there is no sudo a script that only runs its arguments stands in,
which is cheaper. Without network GCM is left out.

python bench/agent.py [--seconds 60]
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/lib"), str(ROOT / "tests/fakes")]
from fake_nvml import FakeNvml
from natsserver import NatsServer
from usage import cpu_s, rss_mib

WARM_UP_S = 5.0
GPUS = 8
GCM = "gpucm==0.0.2"
# What nvml_monitor says of a GPU: two utilisations, memory, temperature, power and its share, two kinds of retired
# pages, and the job.
GCM_FIELDS = 9

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


@dataclass(frozen=True, slots=True)
class Contender:
    """One reader of GPUs and how to start it."""

    name: str
    argv: list[str]
    environment: dict[str, str]


def gcm_python() -> Path | None:
    """Return the Python of an environment that has GCM, made in build/ when it is not there; None without network."""
    home = ROOT / "build/gcm"
    python = home / "bin/python"
    if not (home / "bin/gcm").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        installed = subprocess.run([python, "-m", "pip", "-q", "install", GCM], check=False)
        if installed.returncode != 0:
            shutil.rmtree(home)
            return None
    return python


def contenders(folder: Path, agent: Path, fake: FakeNvml, url: str) -> list[Contender]:
    """Return who reads, all on the same library and scenario."""
    environment = os.environ | fake.env()
    config = folder / "agent.toml"
    config.write_text(
        f'cluster = "bench"\nnode = "n1"\nstate_dir = "{folder}/state"\n[nats]\nservers = ["{url}"]\n'
        f'connect_jitter = "0s"\n[nvml]\nlibrary = "{fake.library}"\n'
    )
    found = [
        Contender("heeler-agent", [str(agent), "run", "-config", str(config)], environment),
        Contender("nvidia-ml-py", [sys.executable, "-c", PLAIN, str(fake.library)], environment),
    ]
    python = gcm_python()
    if python is None:
        print(f"gcm: {GCM} cannot be installed here: not measured")
        return found
    script = Path(__file__).with_name("gcm_monitor.py")
    options = "--sink do_nothing --push-interval 3600 --collect-interval 1 --interval 3600 --cluster bench"
    argv = [str(python), str(script), str(folder / "gcm.json"), *options.split(), "--log-folder", str(folder)]
    path = os.pathsep.join([*([] if shutil.which("sudo") else [str(sudo(folder))]), os.environ["PATH"]])
    libraries = {"LD_LIBRARY_PATH": str(fake.library.parent), "PATH": path}
    return [*found, Contender("gcm", argv, environment | libraries)]


def sudo(folder: Path) -> Path:
    """Return a folder with a sudo that only runs its arguments."""
    shim = folder / "bin" / "sudo"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text('#!/bin/sh\nexec "$@"\n')
    shim.chmod(0o755)
    return shim.parent


def measure(folder: Path, agent: Path, seconds: float) -> dict[str, dict[str, float]]:
    """Run all side by side for some seconds."""
    fake, server = FakeNvml(folder), NatsServer(folder)
    workers = [subprocess.Popen(["sleep", "3600"]) for _ in range(GPUS)]
    processes = [f"{i} process {worker.pid} 51539607552" for i, worker in enumerate(workers)]
    fake.write("\n".join([f"gpus {GPUS}", "all busy", *processes]))
    server.start()
    server.init_bus(scale=0.01)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        with (folder / "out").open("w") as out:
            for one in contenders(folder, agent, fake, server.url):
                running[one.name] = subprocess.Popen(one.argv, env=one.environment, stdout=out, stderr=out)
            time.sleep(WARM_UP_S)
            before = {name: cpu_s(child.pid) for name, child in running.items()}
            readings = gcm_report(folder).get("readings", 0)
            time.sleep(seconds)
            found = {
                name: {"cpu_ratio": (cpu_s(child.pid) - before[name]) / seconds, "rss_mib": rss_mib(child.pid)}
                for name, child in running.items()
            }
        for figures in found.values():
            figures["readings"] = seconds
        if "gcm" in found:
            found["gcm"]["readings"] = gcm_report(folder)["readings"] - readings
            found["gcm"]["start_cpu_s"] = gcm_report(folder)["start_cpu_s"]
        found["heeler-agent"] |= once(agent, fake)
        return found
    finally:
        for child in (*running.values(), *workers):
            child.terminate()
            child.wait()
        server.stop()


def gcm_report(folder: Path) -> dict[str, float]:
    """Return what bench/gcm_monitor.py last wrote."""
    report = folder / "gcm.json"
    found: dict[str, float] = json.loads(report.read_text()) if report.exists() else {}
    return found


def once(agent: Path, fake: FakeNvml) -> dict[str, float]:
    """Return what a start with two readings takes, and how much the agent says of a GPU."""
    argv = [str(agent), "once", "-set", "cluster=bench", "-set", f"nvml.library={fake.library}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, env=os.environ | fake.env(), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    sample = json.loads(done.stdout)["GpuSample"]
    columns = {column for group in ("mean", "min", "max", "last") for column in sample.get(group, {})}
    return {
        "start_cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "fields": len(columns) + len(sample["gpu"]) + 2,  # and the state, and the job of each process
    }


def report(found: dict[str, dict[str, float]]) -> None:
    """Print the table and the ratios."""
    for name, one in found.items():
        per_reading = 1e3 * one["cpu_ratio"] * one["seconds"] / one["readings"]
        one["cpu_ms_per_reading"] = per_reading
        start = f"   start-up {one['start_cpu_s'] * 1e3:6.0f} ms of CPU" if "start_cpu_s" in one else ""
        print(
            f"{name:14} {one['cpu_ratio'] * 100:6.2f} % of one core   {per_reading:7.2f} ms per reading of {GPUS} GPUs"
            f"   {one['rss_mib']:6.1f} MiB{start}"
        )
    heeler = found["heeler-agent"]
    for name in sorted(found.keys() - {"heeler-agent"}):
        ratio = heeler["cpu_ms_per_reading"] / max(1e-9, found[name]["cpu_ms_per_reading"])
        times = f"{ratio:.1f} times" if ratio >= 1 else f"1/{1 / ratio:.1f} of"
        print(f"heeler-agent takes {times} the CPU per reading of {name}")
    if "gcm" in found:
        print(f"and says {heeler['fields'] / GCM_FIELDS:.1f} times as much of each GPU as gcm,")
        print(f"and starts with 1/{found['gcm']['start_cpu_s'] / heeler['start_cpu_s']:.0f} of its CPU")


def main() -> dict[str, Any]:
    """Print the figures; returns them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--agent", type=Path, default=ROOT / "bin/heeler-agent")
    options = parser.parse_args()
    if not options.agent.exists():
        print("heeler-agent is not built (no Go): not measured")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.agent, options.seconds)
    for one in found.values():
        one["seconds"] = options.seconds
    report(found)
    return found


if __name__ == "__main__":
    print(json.dumps(main()))
