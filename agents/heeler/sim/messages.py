"""From a window's arrays to the messages that a node agent would publish."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from heeler.sim import __name__ as _package
from heeler.sim.faults import WITH_PROCESS, XID_TEXT, Fault
from heeler.sim.fleet import GPUS_PER_NODE, RAILS, Fleet, digest
from heeler.sim.physics import PORT_LIMITS, Window
from heeler.sim.placement import Placement
from heeler.sim.units import NS_PER_S

VERSION = f"0.1.0+{_package.rsplit('.', 1)[-1]}"
Message = dict[str, Any]


class Samples:
    """All GpuSamples and IbSamples of one window: lists once for the fleet, then one cheap dict a node."""

    def __init__(self, fleet: Fleet, placement: Placement, window: Window) -> None:
        self.fleet = fleet
        self.placement = placement
        self.window = window
        self._lost = [any(row) for row in window.lost.tolist()]
        self._mean = {name: np.round(values, 4).tolist() for name, values in window.mean.items()}
        self._low = {name: values.tolist() for name, values in window.low.items()}
        self._high = {name: values.tolist() for name, values in window.high.items()}
        self._last = {name: values.tolist() for name, values in window.last.items()}
        self._port = {name: values.tolist() for name, values in window.port.items()}
        self._jobs: list[list[int]] = placement.job.tolist()
        self._pids: list[list[int]] = placement.pids.tolist()
        self._fixed = _fixed_columns(fleet)
        self._window_ns = window.end_ns - window.begin_ns

    def head(self, node: int, ts_ns: int, seq: int) -> Message:
        """Return the keys that every message of a node begins with."""
        who = self.fleet.nodes[node]
        return {
            "v": 1,
            "cluster": self.fleet.cluster,
            "node": who.name,
            "ts": ts_ns,
            "boot": who.boot,
            "seq": seq,
        }

    def gpu(self, node: int, ts_ns: int, seq: int) -> Message:
        """Return a node's GpuSample."""
        who = self.fleet.nodes[node]
        out = self.head(node, ts_ns, seq)
        out["window_ns"] = self._window_ns
        out["reads"] = max(1, round(self._window_ns / NS_PER_S))
        out["gpu"] = {
            "uuid": who.uuids,
            "index": _INDEX,
            "pci": who.pcis,
            "minor": who.minors,
            "model": [self.fleet.model.name] * GPUS_PER_NODE,
        }
        groups: dict[str, dict[str, list[Any]]] = {
            "mean": {name: values[node] for name, values in self._mean.items()},
            "min": {name: values[node] for name, values in self._low.items()},
            "max": {name: values[node] for name, values in self._high.items()},
            "last": {name: values[node] for name, values in self._last.items()} | self._fixed,
        }
        lost = self.window.lost[node].tolist() if self._lost[node] else [False] * GPUS_PER_NODE
        if self._lost[node]:
            groups = {
                group: {name: _without(column, lost) for name, column in columns.items()}
                for group, columns in groups.items()
            }
        out.update(groups)
        out["state"] = ["lost" if gone else "ok" for gone in lost]
        out["procs"] = self._processes(node, lost)
        return out

    def _processes(self, node: int, lost: list[bool]) -> list[list[Any]]:
        jobs, pids = self.placement.jobs, self._pids[node]
        used = self._mean["fb_used_bytes"][node]
        found: list[list[Any]] = []
        for gpu, number in enumerate(self._jobs[node]):
            if lost[gpu]:
                continue
            if number >= 0:
                found.append([gpu, pids[gpu], jobs[number].id, int(used[gpu])])
            elif used[gpu] > 0.02 * self.fleet.model.fb_total_bytes:
                found.append([gpu, 9_000 + gpu, None, int(used[gpu])])
        return found

    def ib(self, node: int, ts_ns: int, seq: int) -> Message:
        """Return a node's IbSample."""
        who = self.fleet.nodes[node]
        out = self.head(node, ts_ns, seq)
        out["window_ns"] = self._window_ns
        down = self.window.port_down[node].tolist()
        rates = self.window.port_rate[node].tolist()
        out["ports"] = [
            self._one_port(who.hcas[rail], who.guids[rail], down[rail], rates[rail], node, rail)
            for rail in range(RAILS)
        ]
        return out

    def _one_port(self, device: str, guid: str, down: bool, rate: float, node: int, rail: int) -> Message:
        counters = {name: values[node][rail] for name, values in self._port.items()}
        return {
            "device": device,
            "port": 1,
            "guid": guid,
            "link_layer": "infiniband",
            "state": "down" if down else "active",
            "phys_state": "polling" if down else "link_up",
            "rate_gbps": 10.0 if down else rate,  # a port without link shows the lowest rate there is
            "counters": counters,
            "saturated": [name for name, limit in PORT_LIMITS.items() if counters[name] >= limit],
        }

    def status(self, node: int, ts_ns: int, seq: int, *, started_ns: int, interval_ns: int) -> Message:
        """Return a node's AgentStatus, all collectors well."""
        out = self.head(node, ts_ns, seq)
        readings = max(1, (ts_ns - started_ns) // NS_PER_S)
        well = {
            "state": "ok",
            "last_success_ts": ts_ns,
            "duration_ns": 9_000_000,
            "readings": readings,
            "failures": 0,
            "skipped": 0,
        }
        out |= {
            "version": VERSION,
            "started_ts": started_ns,
            "interval_ns": interval_ns,
            "inventory": inventory_digest(self.fleet, node),
            "collectors": {name: dict(well) for name in ("nvml", "ib", "kmsg")},
            "dropped_samples": 0,
            "spool_events": 0,
            "spool_bytes": 0,
            "dropped_events": 0,
        }
        return out


_INDEX = list(range(GPUS_PER_NODE))


def _without(column: list[Any], lost: list[bool]) -> list[Any]:
    return [None if gone else value for value, gone in zip(column, lost, strict=True)]


def _fixed_columns(fleet: Fleet) -> dict[str, list[float]]:
    model = fleet.model
    values = {
        "power_limit_w": model.power_limit_w,
        "power_limit_default_w": model.power_limit_w,
        "sm_clock_max_mhz": model.sm_clock_max_mhz,
        "mem_clock_max_mhz": model.mem_clock_mhz,
        "temp_slowdown_c": model.temp_slowdown_c,
        "ecc_corrected_volatile": 0,
        "ecc_corrected_aggregate": 0,
        "remapped_rows_correctable": 0,
        "remap_failed": 0,
        "pcie_gen_max": model.pcie_gen,
        "pcie_width_max": model.pcie_width,
        "pcie_replays": 0,
        "nvlink_crc_errors": 0,
        "nvlink_replay_errors": 0,
        "nvlink_recovery_errors": 0,
        "nvlink_links_up": model.nvlinks,
        "recovery_action": 0,
        "pstate": 0,
        "persistence": 1,
    }
    return {name: [value] * GPUS_PER_NODE for name, value in values.items()}


def inventory_digest(fleet: Fleet, node: int) -> str:
    """Return a digest that changes when the node's parts do."""
    return digest(0, fleet.nodes[node], fleet.model).hex()


def inventory(fleet: Fleet, node: int, ts_ns: int, seq: int) -> Message:
    """Return a node's Inventory."""
    who, model = fleet.nodes[node], fleet.model
    return {
        "v": 1,
        "cluster": fleet.cluster,
        "node": who.name,
        "ts": ts_ns,
        "boot": who.boot,
        "seq": seq,
        "digest": inventory_digest(fleet, node),
        "driver": model.driver,
        "cuda": model.cuda,
        "kernel": "6.1.0-28-amd64",
        "gpus": [
            {
                "uuid": who.uuids[i],
                "index": i,
                "pci": who.pcis[i],
                "minor": who.minors[i],
                "model": model.name,
                "serial": who.serials[i],
                "vbios": model.vbios,
                "fb_total_bytes": model.fb_total_bytes,
                "mig": False,
                "numa": i // 4,
            }
            for i in range(GPUS_PER_NODE)
        ],
        "hcas": [
            {
                "device": who.hcas[i],
                "port": 1,
                "guid": who.guids[i],
                "firmware": "28.41.1000",
                "board": "MT_0000000838",
                "link_layer": "infiniband",
                "rate_gbps": 400.0,
            }
            for i in range(RAILS)
        ],
    }


def kernel_lines(fault: Fault) -> list[int]:
    """Return the XIDs that a fault writes to the kernel log, one for each of its moments."""
    if fault.kind == "ecc":
        return [int(fault.param("code")), 63]
    return [int(fault.param("code"))] * len(fault.moments()) if fault.moments() else []


def xid_line(pci: str, code: int, pid: int | None) -> tuple[str, str]:
    """Return (text after the code and process, whole line) as the driver writes it."""
    text = XID_TEXT.get(code, "unclassified error")
    process = ""
    if code in WITH_PROCESS and pid:
        process = f"pid={pid}, name=python3, "
    elif code == 79:
        process = "pid='<unknown>', name=<unknown>, "
    return text, f"NVRM: Xid (PCI:{pci}): {code}, {process}{text}"


def kernel_event(
    fleet: Fleet,
    placement: Placement,
    fault: Fault,
    code: int,
    ts_ns: int,
    seq: int,
    *,
    boot_ns: int,
) -> Message:
    """Return the KernelEvent of one XID line."""
    who, gpu = fleet.nodes[fault.node], fault.gpu or 0
    running = int(placement.job[fault.node, gpu]) >= 0
    pid = int(placement.pids[fault.node, gpu]) if running else None
    text, raw = xid_line(who.pcis[gpu], code, pid)
    event: dict[str, Any] = {
        "v": 1,
        "cluster": fleet.cluster,
        "node": who.name,
        "ts": ts_ns,
        "boot": who.boot,
        "seq": seq,
        "kind": "xid",
        "code": code,
        "pci": who.pcis[gpu],
        "uuid": who.uuids[gpu],
        "text": text,
        "detail": {},
        "kmsg_seq": 1_000 + seq,
        "ts_mono_us": max(0, (ts_ns - boot_ns) // 1000),
        "witness": ["kmsg"],
        "trusted": True,
        "count": 1,
        "raw": raw,
    }
    if code in WITH_PROCESS and pid:
        event |= {"pid": pid, "comm": "python3"}
    if code == 79:
        event["gpu_state"] = "lost"
    return event


def label(fleet: Fleet, fault: Fault) -> Mapping[str, Any]:
    """Return the ground truth of a fault: for judges only, never for a subject that a detector reads."""
    who = fleet.nodes[fault.node]
    out: dict[str, Any] = {
        "kind": fault.kind,
        "node": who.name,
        "at_ns": fault.at_ns,
        "end_ns": fault.end_ns,
        "job_id": fault.job_id,
        "params": dict(fault.params or {}),
    }
    if fault.gpu is not None:
        out |= {"gpu_index": fault.gpu, "gpu_uuid": who.uuids[fault.gpu], "pci": who.pcis[fault.gpu]}
    if fault.port is not None:
        out["port"] = f"{who.hcas[fault.port]}/1"
    return out
