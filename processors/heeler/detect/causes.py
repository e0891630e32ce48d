"""The physical cause of a slow GPU, from what it says of itself: looked for before anyone is blamed.

The sign trap: in a synchronous job the victim is the busy one and its peers wait. A GPU at a low clock shows more
activity per cycle than its peers and a waiting one less, so activity alone never says who is slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heeler.detect.findings import Evidence
from heeler.detect.thresholds import LagThresholds
from heeler.detect.windows import (
    BRAKE_NS,
    CLOCK,
    CLOCK_MAX,
    ECC_BAD,
    ECC_FIXED,
    GEN,
    GEN_MAX,
    LIMIT,
    NVL_CRC,
    NVL_RECOVERY,
    POWER,
    REASONS,
    TEMP,
    THERMAL_NS,
    UTIL,
    WIDTH,
    WIDTH_MAX,
    Floats,
)

APP_CLOCKS, SW_POWER_CAP, HW_SLOWDOWN, SYNC_BOOST = 0x2, 0x4, 0x8, 0x10
SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x20, 0x40, 0x80
THERMAL = SW_THERMAL | HW_THERMAL
TROUBLE = HW_SLOWDOWN | THERMAL | POWER_BRAKE  # the power cap alone is normal at full load
REASON_NAMES: Mapping[int, str] = {
    0x1: "idle",
    APP_CLOCKS: "application clocks",
    SW_POWER_CAP: "power cap",
    HW_SLOWDOWN: "hardware slowdown",
    SYNC_BOOST: "sync boost",
    SW_THERMAL: "thermal (software)",
    HW_THERMAL: "thermal (hardware)",
    POWER_BRAKE: "power brake",
    0x100: "display clocks",
}
CORRECTED_STORM = 1000  # corrected ECC errors in one window that cost time

WORDS: Mapping[str, str] = {
    "thermal_slowdown": "thermal slowdown",
    "power_brake": "power brake",
    "hw_slowdown": "hardware slowdown",
    "power_limit_low": "a lower power limit than its peers'",
    "clocks_locked": "clocks set low",
    "low_clock": "a low clock without a stated reason",
    "pcie_degraded": "a PCIe link below its best",
    "nvlink_errors": "NVLink errors",
    "ecc_errors": "ECC errors",
    "host_starved": "a host that feeds its GPUs too slowly",
    "unknown": "no physical cause seen",
}

# Causes that act through the SM clock.
OF_CLOCK = frozenset(
    ("thermal_slowdown", "power_brake", "hw_slowdown", "power_limit_low", "clocks_locked", "low_clock")
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause, how sure it is, and the readings that say so. `strong`: a signal besides the lag itself."""

    name: str
    strong: bool
    evidence: list[Evidence]


def reasons_of(values: Floats) -> int:
    """Return the bit mask of one GPU; 0 where it was not read."""
    mask = values[REASONS]
    return 0 if np.isnan(mask) else int(mask)


@dataclass(frozen=True, slots=True)
class Case:
    """One GPU in one window. `now` is (rows,), `grown` by how much it grew since the window before, `peers` medians."""

    now: Floats
    grown: Floats | None
    peers: Floats
    window_ns: int
    t: LagThresholds

    def growth(self, row: int) -> float:
        """Return by how much a counter grew; 0 where that is not known, or it was reset."""
        if self.grown is None or not self.grown[row] > 0:
            return 0.0
        return float(self.grown[row])

    def compared(self, metric: str, row: int, unit: str) -> list[Evidence]:
        """Return a reading with the peers' median; nothing where it was not read."""
        if np.isnan(self.now[row]):
            return []
        found = evidence(metric, self.now[row], unit)
        if not np.isnan(self.peers[row]):
            found["peers_median"] = round(float(self.peers[row]), 4)
        return [found]


def find_cause(case: Case) -> Cause:
    """Return the cause for one GPU."""
    shown = own_evidence(case.now)
    for look in (_thermal, _brake, _limit, _clocks, _pcie, _links):
        cause = look(case)
        if cause is not None:
            return Cause(cause.name, cause.strong, shown + cause.evidence)
    return Cause("unknown", strong=False, evidence=shown)


def clock_low(now: Floats, peers: Floats, ratio: float) -> bool:
    """Say whether the SM clock is below a share of the peers' and the power cap does not explain it."""
    return bool(now[CLOCK] <= ratio * peers[CLOCK]) and not power_capped(now, peers)


def power_capped(now: Floats, peers: Floats) -> bool:
    """Say whether a GPU is slow since it draws all the power that it and its peers may draw: that is normal."""
    if not reasons_of(now) & SW_POWER_CAP or reasons_of(now) & TROUBLE:
        return False
    limited = bool(now[POWER] >= 0.9 * now[LIMIT])
    return limited and not bool(now[LIMIT] < 0.95 * peers[LIMIT])


def own_evidence(now: Floats) -> list[Evidence]:
    """Return the clock and the temperature of a GPU; a temperature is never compared with the peers'."""
    found = []
    if not np.isnan(now[CLOCK_MAX]):
        found.append(evidence("sm_clock_max_mhz", now[CLOCK_MAX], "MHz"))
    if not np.isnan(now[TEMP]):
        found.append(evidence("temp_c", now[TEMP], "Cel"))
    if mask := reasons_of(now):
        found.append({"metric": "clock_event_reasons", "value": mask, "unit": "1", "text": reason_words(mask)})
    return found


def reason_words(mask: int) -> str:
    """Return the names of the bits of a clock event reason mask."""
    known = [name for bit, name in REASON_NAMES.items() if mask & bit]
    rest = mask & ~sum(REASON_NAMES)
    return ", ".join([*known, *([f"0x{rest:x}"] if rest else [])])


def evidence(metric: str, value: float, unit: str) -> Evidence:
    """Return a reading as evidence."""
    return {"metric": metric, "value": round(float(value), 4), "unit": unit}


def _thermal(case: Case) -> Cause | None:
    slowed = case.growth(THERMAL_NS)
    if not reasons_of(case.now) & THERMAL and slowed < case.t.violation_share * case.window_ns:
        return None
    found = [evidence("violation_thermal_ns", slowed, "ns")] if slowed else []
    return Cause("thermal_slowdown", strong=True, evidence=found)


def _brake(case: Case) -> Cause | None:
    mask = reasons_of(case.now)
    if not mask & (POWER_BRAKE | HW_SLOWDOWN):
        return None
    slowed = case.growth(BRAKE_NS)
    found = [evidence("violation_power_ns", slowed, "ns")] if slowed else []
    return Cause("power_brake" if mask & POWER_BRAKE else "hw_slowdown", strong=True, evidence=found)


def _limit(case: Case) -> Cause | None:
    if not case.now[LIMIT] < 0.95 * case.peers[LIMIT]:
        return None
    return Cause("power_limit_low", strong=True, evidence=case.compared("power_limit_w", LIMIT, "W"))


def _clocks(case: Case) -> Cause | None:
    if not clock_low(case.now, case.peers, 0.9):
        return None
    locked = bool(reasons_of(case.now) & APP_CLOCKS)
    return Cause("clocks_locked" if locked else "low_clock", strong=locked, evidence=[])


def pcie_low(case: Case) -> bool:
    """Say whether the link is below its own best while the peers' links are not as low.

    The link of a GPU that has nothing to do sleeps at a lower generation, never at a smaller width.
    """
    now, peers = case.now, case.peers
    narrow = bool(now[WIDTH] < now[WIDTH_MAX]) and bool(now[WIDTH] < peers[WIDTH])
    slow = bool(now[GEN] < now[GEN_MAX]) and bool(now[GEN] < peers[GEN])
    fell = case.grown is not None and bool(case.grown[GEN] < 0)
    sleeps = fell or bool(now[UTIL] < 0.5 * case.t.load_util_ratio)
    return narrow or (slow and not sleeps)


def _pcie(case: Case) -> Cause | None:
    if not pcie_low(case):
        return None
    found = case.compared("pcie_gen", GEN, "1") + case.compared("pcie_width", WIDTH, "{lane}")
    return Cause("pcie_degraded", strong=True, evidence=found)


def _links(case: Case) -> Cause | None:
    if bad := case.growth(ECC_BAD):
        return Cause("ecc_errors", strong=True, evidence=[evidence("ecc_uncorrected_volatile", bad, "{error}")])
    if (fixed := case.growth(ECC_FIXED)) >= CORRECTED_STORM:
        return Cause("ecc_errors", strong=True, evidence=[evidence("ecc_corrected_volatile", fixed, "{error}")])
    for metric, row in (("nvlink_recovery_errors", NVL_RECOVERY), ("nvlink_crc_errors", NVL_CRC)):
        if count := case.growth(row):
            return Cause("nvlink_errors", strong=True, evidence=[evidence(metric, count, "{error}")])
    return None
