"""What can go wrong with a simulated cluster, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from heeler.sim.units import NS_PER_S

Target = Literal["gpu", "node", "port", "job"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: what it hits, its parameters with their defaults, and words for people."""

    target: Target
    about: str
    params: Mapping[str, float]


# Clock event reasons: 0x2 application clocks, 0x8 HW slowdown, 0x20 SW thermal, 0x40 HW thermal, 0x80 power brake.
KINDS: dict[str, Kind] = {
    "thermal": Kind("gpu", "thermal slowdown of one GPU", {"clock_mhz": 1155, "temp_c": 89.0, "reasons": 0x20 | 0x40}),
    "power_brake": Kind("node", "power brake on all GPUs of a node", {"clock_ratio": 0.5, "reasons": 0x8 | 0x80}),
    "clock_lock": Kind("gpu", "clocks of one GPU locked low", {"clock_mhz": 1200, "reasons": 0x2}),
    "pcie_width": Kind("gpu", "PCIe link of one GPU trained narrow", {"width": 4, "gen": 5, "slowdown_ratio": 1.3}),
    "cpu_starved": Kind("node", "host too slow to feed its GPUs", {"slowdown_ratio": 1.6}),
    "ib_flap": Kind("port", "InfiniBand port goes down and comes back", {"count": 3, "down_s": 4.0, "every_s": 15.0}),
    "ib_degraded": Kind("port", "InfiniBand port at half its rate", {"rate_gbps": 200, "symbol_errors_per_s": 3.0}),
    "gpu_lost": Kind("gpu", "XID 79, the GPU falls off the bus", {"code": 79, "hang": 1}),
    "xid": Kind("gpu", "an XID line without further effect", {"code": 31, "count": 1, "every_s": 0.02}),
    "ecc": Kind("gpu", "uncorrectable ECC error, contained, row remapped", {"code": 94, "rows": 1}),
    "hang": Kind("job", "all ranks wait in a collective for ever", {}),
    "job_slow": Kind("job", "the whole job is slower: its input or the fabric", {"slowdown_ratio": 1.5}),
    "checkpoint": Kind("job", "the job writes a checkpoint: all ranks drop together", {}),
    "zombie": Kind("gpu", "a process without a job holds memory", {"fb_ratio": 0.2}),
    "agent_silent": Kind("node", "the node agent publishes nothing", {}),
}

XID_TEXT: dict[int, str] = {
    13: "Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Illegal Instruction Encoding",
    31: (
        "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f3a_20000000."
        " Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    ),
    43: "Ch 00000010",
    45: "Ch 00000010",
    48: "DBE (double bit error) has been detected on GPU",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper: remapping failed",
    74: "NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    94: "Contained: SM (0x1,0x0). RST: No, D-RST: No",
    95: "Uncontained: FBHUB. RST: Yes, D-RST: No",
    119: (
        "Timeout after 6s of waiting for RPC response from GPU0 GSP!"
        " Expected function 76 (GSP_RM_CONTROL) (0x2080012b 0x4)."
    ),
}
WITH_PROCESS = frozenset((13, 31, 43, 45, 94, 119))


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. `end_ns` None: for ever. `node` is a position in the fleet."""

    kind: str
    at_ns: int
    end_ns: int | None
    node: int
    gpu: int | None = None
    port: int | None = None
    job_id: str | None = None
    params: Mapping[str, float] | None = None

    def param(self, name: str) -> float:
        """Return a parameter, its default where the script names none. Raises KeyError for one the kind lacks."""
        default = KINDS[self.kind].params[name]
        return (self.params or {}).get(name, default)

    def overlap(self, begin_ns: int, end_ns: int) -> float:
        """Return the share of a window in which the fault was there."""
        until = end_ns if self.end_ns is None else min(self.end_ns, end_ns)
        return max(0, until - max(self.at_ns, begin_ns)) / max(1, end_ns - begin_ns)

    def moments(self) -> list[int]:
        """Return the times at which something is written to the kernel log."""
        if self.kind == "gpu_lost":
            return [self.at_ns]
        if self.kind == "ecc":
            return [self.at_ns, self.at_ns + NS_PER_S // 100]
        if self.kind == "xid":
            return [self.at_ns + int(i * self.param("every_s") * NS_PER_S) for i in range(int(self.param("count")))]
        return []

    def flaps(self) -> list[tuple[int, int]]:
        """Return (down, up) times of an `ib_flap`."""
        if self.kind != "ib_flap":
            return []
        down, every = int(self.param("down_s") * NS_PER_S), int(self.param("every_s") * NS_PER_S)
        starts = [self.at_ns + i * every for i in range(int(self.param("count")))]
        return [
            (start, min(start + down, self.end_ns or start + down))
            for start in starts
            if self.end_ns is None or start < self.end_ns
        ]
