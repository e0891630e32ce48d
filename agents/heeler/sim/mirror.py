"""A simulated node as files, for a real node agent to read.

DIR/nvml.scenario                    what the fake NVML library follows
DIR/kmsg                             the kernel log: a file of its own, never the host's
DIR/sys/class/infiniband/...         ports and counters
DIR/proc/PID/cgroup                  which job a process belongs to
DIR/proc/sys/kernel/random/boot_id
DIR/proc/stat, loadavg, meminfo, pressure/...
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from heeler.sim.effects import Effects, effects_of
from heeler.sim.fleet import GPUS_PER_NODE, RAILS
from heeler.sim.hostfiles import Host
from heeler.sim.physics import Window
from heeler.sim.placement import Placement
from heeler.sim.simulation import BOOTED_BEFORE_NS, Simulation
from heeler.sim.units import NS_PER_S

SCENARIO = "nvml.scenario"
KMSG = "kmsg"
MIB = 1 << 20

# Column of a window: (name in a scenario, factor).
_MEANS = {
    "power_w": ("power_w", 1.0),
    "temp_c": ("temp_c", 1.0),
    "mem_temp_c": ("mem_temp_c", 1.0),
    "sm_clock_mhz": ("sm_clock_mhz", 1.0),
    "mem_clock_mhz": ("mem_clock_mhz", 1.0),
    "util_ratio": ("util_pct", 100.0),
    "mem_util_ratio": ("mem_util_pct", 100.0),
    "sm_active_ratio": ("sm_active_pct", 100.0),
    "sm_occupancy_ratio": ("sm_occupancy_pct", 100.0),
    "tensor_active_ratio": ("tensor_active_pct", 100.0),
    "dram_active_ratio": ("dram_active_pct", 100.0),
    "fb_used_bytes": ("fb_used_bytes", 1.0),
    "pcie_tx_bytes_per_s": ("pcie_tx_mib_s", 1 / MIB),
    "pcie_rx_bytes_per_s": ("pcie_rx_mib_s", 1 / MIB),
    "nvlink_tx_bytes_per_s": ("nvlink_tx_mib_s", 1 / MIB),
    "nvlink_rx_bytes_per_s": ("nvlink_rx_mib_s", 1 / MIB),
}
_WHOLE = {"fb_used_bytes", "sm_clock_mhz", "mem_clock_mhz"}
_STATES = (
    "clock_event_reasons",
    "pcie_gen",
    "pcie_width",
    "ecc_uncorrected_volatile",
    "ecc_uncorrected_aggregate",
    "remapped_rows_uncorrectable",
    "remap_pending",
)
_COUNTERS_IN_WORDS = frozenset(("port_xmit_data", "port_rcv_data"))  # the kernel counts four bytes at a time


class Mirror:
    """Writes one node's state below a directory; only what changed is written again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written: dict[str, str] = {}
        self._lines = 0
        self._host, self._host_shown = Host(BOOTED_BEFORE_NS / NS_PER_S), -1
        root.mkdir(parents=True, exist_ok=True)
        (root / KMSG).touch()

    def show(self, simulation: Simulation, node: int, now_ns: int) -> None:
        """Write the node as the simulation's last window shows it, and what is lost or down at this moment."""
        who = simulation.fleet.nodes[node]
        self._write("proc/sys/kernel/random/boot_id", who.boot + "\n")
        self._write("proc/sys/kernel/osrelease", "6.1.0-28-amd64\n")
        placement = simulation.placed(now_ns)
        effects = effects_of(simulation.fleet, simulation.faults, now_ns - 1_000_000, now_ns)
        lines = [*_identity(simulation, node), *_processes(simulation, placement, node)]
        if simulation.window is not None:
            lines += _values(simulation.window, node)
            lines += _slowed(simulation, simulation.window, effects, node)
            self._ports(simulation, simulation.window, effects, node)
        lines += [f"{gpu} lost" for gpu in range(GPUS_PER_NODE) if effects.lost[node, gpu]]
        self._write(SCENARIO, "\n".join(lines) + "\n")
        self._cgroups(placement, node)
        second = now_ns // NS_PER_S
        if second != self._host_shown:
            self._host_shown = second
            busy = bool((placement.job[node] >= 0).any())
            for path, text in self._host.files(now_ns, busy=busy):
                self._write(f"proc/{path}", text)

    def kernel_line(self, text: str) -> None:
        """Append a record to the node's kernel log, in the form in which /dev/kmsg gives it."""
        self._lines += 1
        usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        with (self.root / KMSG).open("a") as out:
            out.write(f"4,{1000 + self._lines},{usec},-;{text}\n")

    def _cgroups(self, placement: Placement, node: int) -> None:
        for gpu, number in enumerate(placement.job[node].tolist()):
            if number >= 0:
                pid, job = int(placement.pids[node, gpu]), placement.jobs[number].id
                path = f"0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n"
                self._write(f"proc/{pid}/cgroup", path)

    def _ports(self, simulation: Simulation, window: Window, effects: Effects, node: int) -> None:
        who = simulation.fleet.nodes[node]
        for rail in range(RAILS):
            device = f"sys/class/infiniband/{who.hcas[rail]}"
            down = bool(effects.port_down[node, rail])
            port = f"{device}/ports/1"
            files = {
                f"{device}/node_guid": who.guids[rail],
                f"{device}/fw_ver": "28.41.1000",
                f"{device}/board_id": "MT_0000000838",
                f"{device}/hca_type": "MT4129",
                f"{port}/state": "1: DOWN" if down else "4: ACTIVE",
                f"{port}/phys_state": "2: Polling" if down else "5: LinkUp",
                f"{port}/rate": "10 Gb/sec (4X SDR)" if down else _rate(float(window.port_rate[node, rail])),
                f"{port}/link_layer": "InfiniBand",
            }
            for name, values in window.port.items():
                value = int(values[node, rail])
                files[f"{port}/counters/{name}"] = str(value // 4 if name in _COUNTERS_IN_WORDS else value)
            for path, text in files.items():
                self._write(path, text + "\n")

    def _write(self, path: str, text: str) -> None:
        """Replace a file in one step, so that nobody reads half of it."""
        if self._written.get(path) == text:
            return
        self._written[path] = text
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".new")
        part.write_text(text)
        now = time.time_ns()
        os.utime(part, ns=(now, now))  # exact, so that no rewrite looks like the one before
        part.replace(target)


def _rate(gbps: float) -> str:
    names = {400.0: "4X NDR", 200.0: "2X NDR", 100.0: "1X NDR"}
    return f"{gbps:.0f} Gb/sec ({names.get(gbps, '4X')})"


def _identity(simulation: Simulation, node: int) -> Iterator[str]:
    who, model = simulation.fleet.nodes[node], simulation.fleet.model
    yield f"driver {model.driver}"
    yield f"model {model.name}"
    yield f"gpus {GPUS_PER_NODE}"
    yield f"seed {who.name}"
    for gpu in range(GPUS_PER_NODE):
        yield f"{gpu} uuid {who.uuids[gpu]}"
        yield f"{gpu} serial {who.serials[gpu]}"
        yield f"{gpu} pci {who.pcis[gpu]}.0"
        yield f"minor {gpu} {who.minors[gpu]}"


def _values(window: Window, node: int) -> Iterator[str]:
    for column, (name, factor) in _MEANS.items():
        # A reading is of a moment: a mean over a window that a fault began in would show a clock that never was.
        values = window.low[column] if column == "sm_clock_mhz" else window.mean[column]
        for gpu, value in enumerate(values[node].tolist()):
            scaled = value * factor
            yield f"{gpu} {name} {scaled:.0f}" if column in _WHOLE else f"{gpu} {name} {scaled:.3f}"
    for column in _STATES:
        for gpu, state in enumerate(window.last[column][node].tolist()):
            yield f"{gpu} {column} {state}"


def _slowed(simulation: Simulation, window: Window, effects: Effects, node: int) -> Iterator[str]:
    """Yield clocks and reasons as they are at this moment: a fault need not wait for the end of a window."""
    for gpu in np.flatnonzero(effects.clock_last[node] < 1.0).tolist():
        clock = simulation.fleet.model.sm_clock_max_mhz * float(effects.clock_last[node, gpu])
        reasons = int(window.last["clock_event_reasons"][node, gpu] | effects.reasons[node, gpu])
        yield f"{gpu} sm_clock_mhz {clock:.0f}"
        yield f"{gpu} clock_event_reasons {reasons}"


def _processes(simulation: Simulation, placement: Placement, node: int) -> Iterator[str]:
    total = simulation.fleet.model.fb_total_bytes
    for gpu, number in enumerate(placement.job[node].tolist()):
        if number >= 0:
            used = int(placement.level["fb_ratio"][node, gpu] * total)
            yield f"{gpu} process {int(placement.pids[node, gpu])} {used} python3"
