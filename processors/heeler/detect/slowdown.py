"""GPUs that say that they are slowed down: for heat, or by a power brake. The power cap alone is normal."""

from collections.abc import Mapping, Sequence
from typing import Any

from heeler.detect.causes import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL, THERMAL, TROUBLE, reason_words
from heeler.detect.findings import Evidence
from heeler.detect.gpu_rule import DrainRule, Reading, Rule, Sight
from heeler.detect.marks import Patience
from heeler.detect.thresholds import SlowdownThresholds, Thresholds

HEAT_NS = ("clock_event_hw_thermal_ns", "clock_event_sw_thermal_ns", "violation_thermal_ns")
BRAKE_NS = ("clock_event_hw_power_brake_ns",)
LIMITS = (("temp_c", "temp_gpu_max_c"), ("temp_c", "temp_slowdown_c"), ("mem_temp_c", "temp_mem_max_c"))
MEANS = frozenset(("temp_c", "mem_temp_c", "sm_clock_mhz", "util_ratio"))
LASTS = frozenset(("clock_event_reasons", "sm_clock_max_mhz", *HEAT_NS, *BRAKE_NS, *(limit for _, limit in LIMITS)))
MOST_C = 200  # above, a reading is broken


def rules(t: Thresholds) -> tuple[Rule, ...]:
    """Return the rules of this file."""
    return Thermal(t.slowdown), Power(t.slowdown)


class _Slowdown(DrainRule):
    def __init__(self, t: SlowdownThresholds) -> None:
        super().__init__(Patience(t.after_s, t.clear_s, 2 * t.after_s), t.drain_after_s, t.few_share)
        self.t = t

    def _share(self, reading: Reading, names: Sequence[str], at: int) -> float | None:
        """Return the share of the time spent slowed down; None where no counter says."""
        grown = [g for name in names if (g := reading.growth(name, at)) is not None]
        return min(1.0, max(grown) / reading.passed_ns) if grown and reading.passed_ns > 0 else None

    def _sight(self, reading: Reading, at: int, cause: str, words: str, evidence: list[Evidence]) -> Sight:
        clock, most = reading.mean("sm_clock_mhz", at), reading.last("sm_clock_max_mhz", at)
        low = bool(clock and most and clock <= self.t.clock_ratio * most)
        for metric, value, unit in (("sm_clock_mhz", clock, "MHz"), ("temp_c", reading.mean("temp_c", at), "Cel")):
            if value is not None:
                evidence.append({"metric": metric, "value": round(float(value), 1), "unit": unit})
        return Sight(cause, words, evidence, confidence=0.9 if low else 0.7, drains=low)


class Thermal(_Slowdown):
    """Heat."""

    kind = "thermal"
    states = ("clock_event_reasons", *HEAT_NS)

    def hot(self, sample: Mapping[str, Any]) -> bool:
        """Say whether any temperature is so high that it must be compared with its limit."""
        mean = sample["mean"]
        return _above(mean.get("temp_c"), self.t.ask_c) or _above(mean.get("mem_temp_c"), self.t.ask_c)

    def odd(self, reading: Reading) -> bool:
        """Look for the bits, the counters and the temperatures of heat."""
        reasons = reading.sample["last"].get("clock_event_reasons")
        if reasons and _any_bit(reasons, THERMAL):
            return True
        return self.hot(reading.sample) or reading.grew(HEAT_NS)

    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Return what heat does to one GPU."""
        mask, share = reading.last("clock_event_reasons", at), self._share(reading, HEAT_NS, at)
        bits = int(mask or 0) & THERMAL
        if bits or (share or 0) >= self.t.time_share:
            found: list[Evidence] = [] if mask is None else [_mask(mask)]
            found += [] if share is None else [{"metric": "time_share", "value": round(share, 3), "unit": "1"}]
            hard = bits & HW_THERMAL or not bits & SW_THERMAL
            words = "slowed down by hardware for heat" if hard else "slowed down by software for heat"
            return self._sight(reading, at, "thermal_slowdown", words, found)
        for metric, name in LIMITS:
            value, limit = reading.mean(metric, at), reading.last(name, at)
            if value is not None and limit is not None and limit > 0 and limit <= value <= MOST_C:
                what = "memory" if metric == "mem_temp_c" else "temperature"
                found = [{"metric": name, "value": limit, "unit": "Cel"}]
                if metric != "temp_c":
                    found.append({"metric": metric, "value": round(float(value), 1), "unit": "Cel"})
                return self._sight(reading, at, "temperature_limit", f"{what} at its limit of {limit:g} °C", found)
        return None if mask is None and share is None else False


class Power(_Slowdown):
    """Power brake, or a slowdown by hardware that is not for heat."""

    kind = "power"
    states = ("clock_event_reasons", *BRAKE_NS)

    def odd(self, reading: Reading) -> bool:
        """Look for the bits and the counter of the brake."""
        reasons = reading.sample["last"].get("clock_event_reasons")
        return (bool(reasons) and _any_bit(reasons, POWER_BRAKE | HW_SLOWDOWN)) or reading.grew(BRAKE_NS)

    def look(self, reading: Reading, at: int) -> Sight | bool | None:
        """Return what brakes one GPU."""
        mask, share = reading.last("clock_event_reasons", at), self._share(reading, BRAKE_NS, at)
        bits = int(mask or 0) & TROUBLE
        braked = bits & POWER_BRAKE or (share or 0) >= self.t.time_share
        slowed = bits & HW_SLOWDOWN and not bits & THERMAL
        if not braked and not slowed:
            return None if mask is None and share is None else False
        found: list[Evidence] = [] if mask is None else [_mask(mask)]
        found += [] if share is None else [{"metric": "time_share", "value": round(share, 3), "unit": "1"}]
        cause, words = ("power_brake", "a power brake") if braked else ("hw_slowdown", "a slowdown by hardware")
        return self._sight(reading, at, cause, words, found)


def _any_bit(reasons: Sequence[Any], bits: int) -> bool:
    return any(mask and int(mask) & bits for mask in reasons)


def _above(column: Sequence[Any] | None, limit: float) -> bool:
    if not column:
        return False
    try:
        return bool(max(column) >= limit)
    except TypeError:  # some could not be read
        return any(value is not None and value >= limit for value in column)


def _mask(mask: float) -> Evidence:
    words = reason_words(int(mask))
    return {"metric": "clock_event_reasons", "value": int(mask), "unit": "1", "text": words}
