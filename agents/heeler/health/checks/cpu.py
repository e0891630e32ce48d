"""Checks of processors and of the clock: frequency, governor, how many are online, source of time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heeler.health.checks.files import as_int, maybe, maybe_int, maybe_names, names_in, read_text
from heeler.health.checks.findings import Findings
from heeler.health.model import Case, Check, Context, Evidence, Probe, Verdict, bad, ok, unknown

_CPUS = "sys/devices/system/cpu"
_KHZ = 1000.0


@dataclass(frozen=True, slots=True)
class CpuFrequencySettings:
    """How fast processors should be."""

    min_mhz: float = 1498.0  # the mean of all
    busy_share: float = 0.5  # of processors, by the load of the last minute; idle ones may be slow


@dataclass(frozen=True, slots=True)
class CpuGovernorSettings:
    """How the clock of processors is governed."""

    governor: str = "performance"


@dataclass(frozen=True, slots=True)
class ClocksourceSettings:
    """Which clock the kernel uses."""

    expected: tuple[str, ...] = ("tsc", "arch_sys_counter")  # any of them


def read_cpus(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/devices/system/cpu/*/cpufreq, else /proc/cpuinfo; /proc/loadavg."""
    folder = context.root / _CPUS
    cpus = [name for name in maybe_names(folder) or () if name.startswith("cpu") and name[3:].isdigit()]
    current, highest, governors = [], [], []
    for name in cpus:
        freq = folder / name / "cpufreq"
        khz, top = maybe_int(freq / "scaling_cur_freq"), maybe_int(freq / "scaling_max_freq")
        governor = maybe(freq / "scaling_governor")
        current += [khz / _KHZ] if khz else []
        highest += [top / _KHZ] if top else []
        governors += [governor] if governor else []
    if not current:
        current = _cpuinfo(read_text(context.root / "proc/cpuinfo"))
    load = (maybe(context.root / "proc/loadavg") or "").split()
    return {
        "cpus": len(cpus) or len(current),
        "mhz": current,
        "max_mhz": highest,
        "governors": dict(Counter(governors)),
        "load": float(load[0]) if load and load[0].replace(".", "", 1).isdigit() else None,
    }


def _cpuinfo(text: str) -> list[float]:
    found = []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("cpu mhz", "clock"):
            number = value.strip().lower().removesuffix("mhz")
            if number.replace(".", "", 1).isdigit():
                found.append(float(number))
    return found


def judge_cpu_frequency(facts: Any, settings: CpuFrequencySettings, _case: Case) -> Verdict:
    """Bad: the highest allowed clock is too low, or the clock is while processors are busy or may not be slow.

    Unknown: no clock can be read, or they are slow and idle, which shows nothing.
    """
    mhz, limit = facts["mhz"], settings.min_mhz
    if facts["max_mhz"] and min(facts["max_mhz"]) < limit:
        top = min(facts["max_mhz"])
        return bad(f"processors may not exceed {top:.0f} MHz", Evidence("scaling_max_freq", top, limit, "MHz"))
    if not mhz:
        return unknown("the clock of no processor can be read")
    mean = sum(mhz) / len(mhz)
    shown = Evidence("cpu_mhz", round(mean, 1), limit, "MHz")
    if mean >= limit:
        return ok(f"{len(mhz)} processors, on the mean {mean:.0f} MHz", shown, cpu_mhz=mean)
    if set(facts["governors"]) == {"performance"}:
        return bad(f"{mean:.0f} MHz on the mean, by the governor performance", shown, cpu_mhz=mean)
    load = facts["load"]
    if load is not None and facts["cpus"] and load >= settings.busy_share * facts["cpus"]:
        return bad(f"{mean:.0f} MHz on the mean, at a load of {load:g}", shown, cpu_mhz=mean)
    return unknown(f"{mean:.0f} MHz on the mean, but idle processors may be slow", shown, cpu_mhz=mean)


def judge_cpu_governor(facts: Any, settings: CpuGovernorSettings, _case: Case) -> Verdict:
    """Bad: a processor has another governor. Unknown: none can be read, as on most virtual machines."""
    governors = facts["governors"]
    if not governors:
        return unknown("no processor has a governor that can be read")
    others = {name: count for name, count in governors.items() if name != settings.governor}
    if others:
        said = ", ".join(f"{count} {name}" for name, count in sorted(others.items()))
        return bad(
            f"not {settings.governor}: {said}",
            *(Evidence("scaling_governor", name, settings.governor, text=f"{n} CPUs") for name, n in others.items()),
        )
    return ok(f"{governors[settings.governor]} processors: {settings.governor}")


def read_clocksource(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/devices/system/clocksource: the current source and those there are."""
    folder = context.root / "sys/devices/system/clocksource/clocksource0"
    return {
        "current": read_text(folder / "current_clocksource").strip(),
        "available": (maybe(folder / "available_clocksource") or "").split(),
    }


def judge_clocksource(facts: Any, settings: ClocksourceSettings, _case: Case) -> Verdict:
    """Bad: the kernel uses another source of time: a slow one, mostly since it found the wanted one unstable."""
    current = facts["current"]
    if not current:
        return unknown("the file is empty")
    there = f"available: {' '.join(facts['available'])}"
    shown = Evidence("clocksource", current, " or ".join(settings.expected), text=there)
    if current not in settings.expected:
        return bad(f"{current}, not {' or '.join(settings.expected)} ({there})", shown)
    return ok(current, shown)


@dataclass(frozen=True, slots=True)
class CpuOnlineSettings:
    """How many processors there should be."""

    count: int = 0  # 0: as many as the machine has


def read_online(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/devices/system/cpu: online, present."""
    folder = context.root / _CPUS
    names_in(folder)
    return {"online": _cpu_list(read_text(folder / "online")), "present": _cpu_list(maybe(folder / "present") or "")}


def _cpu_list(text: str) -> int | None:
    """Return how many a list as `0-3,8` names; None where it is no list."""
    count = 0
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        low, high = as_int(first), as_int(last if dash else first)
        if low is None or high is None or high < low:
            return None
        count += high - low + 1
    return count


def judge_cpu_online(facts: Any, settings: CpuOnlineSettings, _case: Case) -> Verdict:
    """Bad: processors are offline."""
    found, online = Findings(), facts["online"]
    wanted = settings.count or facts["present"]
    if online is None or wanted is None:
        return unknown("how many processors there are can't be read")
    if online < wanted:
        found.bad(f"{online} of {wanted} processors are online", Evidence("cpus", online, wanted))
    found.perf["cpus"] = online
    return found.verdict(f"{online} processors")


CPUS = Probe("cpus", read_cpus, timeout_s=3.0)
CHECKS = (
    Check("cpu_frequency", "Processors are fast enough.", CPUS, judge_cpu_frequency, CpuFrequencySettings),
    Check("cpu_governor", "The processors' governor is the wanted one.", CPUS, judge_cpu_governor, CpuGovernorSettings),
    Check(
        "cpu_online",
        "All processors are online.",
        Probe("cpus_online", read_online, timeout_s=3.0),
        judge_cpu_online,
        CpuOnlineSettings,
        hardware=True,
    ),
    Check(
        "clocksource",
        "The kernel uses a good source of time.",
        Probe("clocksource", read_clocksource, timeout_s=3.0),
        judge_clocksource,
        ClocksourceSettings,
    ),
)
