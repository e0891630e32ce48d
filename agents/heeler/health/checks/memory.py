"""Checks of memory: how much there is, whether it errs, and whether large pieces are left."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heeler.health.checks.files import maybe, maybe_int, maybe_names, read_bytes, read_text
from heeler.health.checks.findings import Findings
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

_MEMORY_DEVICE = 17  # the type of a DMI entry
_UNKNOWN_SIZE, _EXTENDED_SIZE, _KILOBYTES = 0xFFFF, 0x7FFF, 0x8000


@dataclass(frozen=True, slots=True)
class MemorySizeSettings:
    """How much memory there should be; at least one of both."""

    total_gib: float = 0.0  # 0: not checked
    dimms: int = 0  # modules that hold memory; 0: not checked
    tolerance: float = 0.06  # what firmware and kernel may take, where only what the kernel has is known


@dataclass(frozen=True, slots=True)
class BuddyinfoSettings:
    """Large pieces of free memory."""

    order: int = 8  # pieces of 2^order pages: 1 MiB
    min_blocks: int = 10  # of that size or larger, on each node of memory


@dataclass(frozen=True, slots=True)
class MemoryEccSettings:
    """Errors that the memory controllers have counted since boot."""

    max_uncorrected: int = 0
    warn_corrected: int = 100  # of one module or controller
    bad_corrected: int = 0  # 0: corrected ones are never bad


def read_memory_size(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/firmware/dmi/entries/17-* (needs root), /sys/devices/system/edac/mc, /proc/meminfo."""
    root = context.root
    entries = root / "sys/firmware/dmi/entries"
    modules: list[dict[str, Any]] | None = None
    denied = False
    try:
        names = [name for name in maybe_names(entries) or () if name.startswith(f"{_MEMORY_DEVICE}-")]
        modules = [found for name in names if (found := parse_module(read_bytes(entries / name / "raw")))] or None
    except (ProbeError, OSError):
        denied = True
    return {
        "modules": modules,
        "denied": denied,
        "edac": _edac_modules(root),
        "mem_total_kib": _mem_total_kib(read_text(root / "proc/meminfo")),
    }


def parse_module(raw: bytes) -> dict[str, Any] | None:
    """Return place and size (MiB; 0: an empty slot; None: not known) of a memory module's DMI entry, or None."""
    if len(raw) < 0x15 or raw[0] != _MEMORY_DEVICE or raw[1] > len(raw):
        return None
    size = int.from_bytes(raw[0x0C:0x0E], "little")
    mib: int | None = size
    if size == _UNKNOWN_SIZE:
        mib = None
    elif size == _EXTENDED_SIZE and raw[1] >= 0x20:
        mib = int.from_bytes(raw[0x1C:0x20], "little") & 0x7FFFFFFF
    elif size & _KILOBYTES:
        mib = (size & ~_KILOBYTES) // 1024
    texts = raw[raw[1] :].split(b"\0")
    number = raw[0x10]
    place = texts[number - 1].decode(errors="replace").strip() if 0 < number <= len(texts) else ""
    return {"place": place, "mib": mib}


def _edac_modules(root: Path) -> list[dict[str, Any]] | None:
    folder = root / "sys/devices/system/edac/mc"
    found = []
    for controller in _controllers(folder) or ():
        for name in maybe_names(folder / controller) or ():
            mib = maybe_int(folder / controller / name / "size") if name.startswith(("dimm", "rank")) else None
            if mib:
                found.append({"place": maybe(folder / controller / name / "dimm_label") or name, "mib": mib})
    return found or None


def _controllers(folder: Path) -> list[str] | None:
    names = maybe_names(folder)
    return None if names is None else [name for name in names if name.startswith("mc") and name[2:].isdigit()]


def _mem_total_kib(text: str) -> int | None:
    for line in text.splitlines():
        if line.startswith("MemTotal:"):
            words = line.split()
            return int(words[1]) if len(words) == 3 and words[1].isdigit() and words[2] == "kB" else None
    return None


def judge_memory_size(facts: Any, settings: MemorySizeSettings, _case: Case) -> Verdict:
    """Bad: fewer modules or less memory than there should be. Unknown: the modules can't be read."""
    found = Findings()
    source = facts["modules"] or facts["edac"]
    filled = [one for one in source or () if one["mib"] != 0]
    if settings.dimms:
        if source is None:
            why = "only root may read the modules" if facts["denied"] else "the firmware tells of no modules"
            found.unknown(why, Evidence("dimms", None, settings.dimms))
        elif len(filled) != settings.dimms:
            empty = ", ".join(one["place"] for one in source if one["mib"] == 0)
            add = found.bad if len(filled) < settings.dimms else found.warn
            add(f"{len(filled)} memory modules", Evidence("dimms", len(filled), settings.dimms, text=f"empty: {empty}"))
    if settings.total_gib:
        _judge_total(facts, settings, filled, found)
    if not settings.dimms and not settings.total_gib:
        return unknown("how much there should be is not said")
    return found.verdict("as much memory as there should be")


def _judge_total(facts: Any, settings: MemorySizeSettings, filled: list[dict[str, Any]], found: Findings) -> None:
    if filled and all(one["mib"] is not None for one in filled):
        gib, least, what = sum(one["mib"] for one in filled) / 1024, settings.total_gib, "installed"
    elif facts["mem_total_kib"] is not None:
        gib, what = facts["mem_total_kib"] / (1 << 20), "MemTotal"
        least = settings.total_gib * (1 - settings.tolerance)
    else:
        found.unknown("/proc/meminfo does not tell how much there is")
        return
    found.perf["memory_gib"] = round(gib, 2)
    if gib < least:
        found.bad(f"{gib:.1f} GiB of {settings.total_gib:g} ({what})", Evidence(what, round(gib, 2), least, "GiB"))


def read_buddyinfo(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/proc/buddyinfo."""
    zones = []
    for line in read_text(context.root / "proc/buddyinfo").splitlines():
        words = line.replace(",", " ").split()
        if len(words) < 5 or words[0] != "Node" or words[2] != "zone" or not all(one.isdigit() for one in words[4:]):
            raise ProbeError("unreadable", f"/proc/buddyinfo: {line!r:.100}")
        zones.append({"node": words[1], "zone": words[3], "blocks": [int(one) for one in words[4:]]})
    return {"zones": zones}


def judge_buddyinfo(facts: Any, settings: BuddyinfoSettings, _case: Case) -> Verdict:
    """Bad: the free memory of a node's normal zone is in small pieces. Unknown: there is no normal zone."""
    found = Findings()
    normal = [one for one in facts["zones"] if one["zone"] == "Normal"]
    if not normal:
        return unknown("no normal zone of memory")
    for one in normal:
        blocks = sum(one["blocks"][settings.order :])
        found.perf[f"node{one['node']}_large_blocks"] = blocks
        if blocks < settings.min_blocks:
            found.bad(
                f"node {one['node']}: {blocks} free pieces of 2^{settings.order} pages or more",
                Evidence("large_blocks", blocks, settings.min_blocks, device=f"node{one['node']}"),
            )
    return found.verdict("large pieces of memory are free")


def read_memory_ecc(context: Context, _asked: Sequence[Any]) -> dict[str, Any]:
    """/sys/devices/system/edac/mc: errors of controllers and modules."""
    folder = context.root / "sys/devices/system/edac/mc"
    controllers = _controllers(folder)
    if not controllers:
        raise ProbeError("missing", f"{folder}: no memory controller is watched (no EDAC driver)")
    found = []
    for name in controllers:
        places = [
            name,
            *(f"{name}/{each}" for each in maybe_names(folder / name) or () if each.startswith(("dimm", "rank"))),
        ]
        for place in places:
            prefix = "dimm_" if "/" in place else ""
            found.append(
                {
                    "place": place,
                    "label": maybe(folder / place / "dimm_label") or None,
                    "uncorrected": maybe_int(folder / place / f"{prefix}ue_count"),
                    "corrected": maybe_int(folder / place / f"{prefix}ce_count"),
                }
            )
    return {"places": found}


def judge_memory_ecc(facts: Any, settings: MemoryEccSettings, _case: Case) -> Verdict:
    """Bad: memory had errors that could not be corrected. Warn: many that could. Unknown: no counter can be read."""
    found = Findings()
    controllers = [one for one in facts["places"] if "/" not in one["place"]]
    for one in controllers:
        if one["uncorrected"] is None or one["corrected"] is None:
            found.unknown(f"{one['place']}: its counters can't be read")
    for one in _worst(facts["places"]):
        name = one["label"] or one["place"]
        uncorrected, corrected = one["uncorrected"] or 0, one["corrected"] or 0
        if uncorrected > settings.max_uncorrected:
            shown = Evidence("uncorrected", uncorrected, settings.max_uncorrected, device=name)
            found.bad(f"{name}: {uncorrected} uncorrected memory errors", shown)
        if settings.bad_corrected and corrected >= settings.bad_corrected:
            shown = Evidence("corrected", corrected, settings.bad_corrected, device=name)
            found.bad(f"{name}: {corrected} corrected memory errors", shown)
        elif corrected >= settings.warn_corrected:
            shown = Evidence("corrected", corrected, settings.warn_corrected, device=name)
            found.warn(f"{name}: {corrected} corrected memory errors", shown)
    for what in ("uncorrected", "corrected"):
        found.perf[f"memory_{what}"] = sum(one[what] or 0 for one in controllers)
    return found.verdict(f"{len(controllers)} memory controllers without errors beyond the limits")


def _worst(places: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return modules, and the controllers whose errors stand with no module."""
    modules = [one for one in places if "/" in one["place"]]
    told = {
        controller: [
            sum(one[what] or 0 for one in modules if one["place"].startswith(f"{controller}/")) for what in _WHAT
        ]
        for controller in {one["place"] for one in places if "/" not in one["place"]}
    }
    rest = [
        one
        for one in places
        if "/" not in one["place"]
        and any((one[what] or 0) > count for what, count in zip(_WHAT, told[one["place"]], strict=True))
    ]
    return [*modules, *rest]


_WHAT = ("uncorrected", "corrected")
CHECKS = (
    Check(
        "memory_size",
        "The machine has all of its memory.",
        Probe("memory_size", read_memory_size, timeout_s=3.0),
        judge_memory_size,
        MemorySizeSettings,
        hardware=True,
        needs_settings=True,
    ),
    Check(
        "buddyinfo",
        "Free memory is not all in small pieces.",
        Probe("buddyinfo", read_buddyinfo, timeout_s=3.0),
        judge_buddyinfo,
        BuddyinfoSettings,
    ),
    Check(
        "memory_ecc",
        "The memory controllers count no errors.",
        Probe("memory_ecc", read_memory_ecc, timeout_s=3.0),
        judge_memory_ecc,
        MemoryEccSettings,
        hardware=True,
    ),
)
