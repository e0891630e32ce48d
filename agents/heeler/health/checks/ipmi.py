"""Checks of the board's own controller (BMC): its event log, its fans and power supplies."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heeler.bus import ConfigError
from heeler.health.checks.findings import Findings
from heeler.health.checks.tool import run_tool
from heeler.health.model import Case, Check, Context, Evidence, Probe, ProbeError, Verdict, unknown

BAD_EVENTS = (
    r"Power Supply.*AC lost",
    r"NVIDIA_MCA_Error",
    r"Uncorrectable (?:machine check|ECC|error)",
    r"Critical Interrupt.*Bus Fatal Error",
    r"Critical Interrupt.*PCI SERR",
    r"Processor.*Throttled",
    r"System Firmware.*BIOS corruption",
)


@dataclass(frozen=True, slots=True)
class IpmiSelSettings:
    """Events of the board's log."""

    tool: str = "ipmitool"  # or nvipmitool
    bad: tuple[str, ...] = BAD_EVENTS  # patterns for an event that holds, not one that has gone again
    warn: tuple[str, ...] = ()
    days: float = 0.0  # only events of so many days; 0: all. Those without a date always count
    clear_above: int = 0  # entries; 0: the log is never cleared. Before that it is saved
    save_to: str = "/var/lib/heeler/sel"  # a folder

    def validate(self) -> None:
        """Raise ConfigError for another tool, or a pattern that is none."""
        if self.tool not in ("ipmitool", "nvipmitool"):
            raise ConfigError(f"tool: {self.tool!r}: ipmitool or nvipmitool")
        for pattern in (*self.bad, *self.warn):
            try:
                re.compile(pattern)
            except re.error as err:
                raise ConfigError(f"{pattern!r}: {err}") from None


@dataclass(frozen=True, slots=True)
class IpmiSensorsSettings:
    """Sensors of fans and power supplies."""

    types: tuple[str, ...] = ("Fan", "Power_Supply")
    ignore: tuple[str, ...] = ()  # names of sensors


def read_sel(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Ipmitool (or nvipmitool) sel list; where the site wants that also sel save, and then sel clear."""
    logs: dict[str, dict[str, Any]] = {}
    for one in {one.tool: one for one in asked}.values():
        done = run_tool(context, (one.tool, "sel", "list")).checked()
        entries = parse_sel(done.stdout)
        if not entries and "SEL has no entries" not in f"{done.stdout}{done.stderr}":
            raise ProbeError("unreadable", f"{one.tool} sel list: {done.stdout!r:.100}")
        logs[one.tool] = {"entries": entries, "cleared": None}
        if one.clear_above and len(entries) > one.clear_above:
            logs[one.tool]["cleared"] = _save_and_clear(context, one)
    return {"logs": logs, "now_s": time.time()}


def _save_and_clear(context: Context, settings: IpmiSelSettings) -> str:
    """Clear the log, but only once it stands in a file. Return what was done, or why not."""
    folder = Path(settings.save_to)
    path = folder / f"sel-{time.strftime('%Y%m%dT%H%M%S')}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        run_tool(context, (settings.tool, "sel", "save", str(path))).checked()
        if not path.stat().st_size:
            return f"not cleared: {path} is empty"
        run_tool(context, (settings.tool, "sel", "clear")).checked()
    except (OSError, ProbeError) as err:
        return f"not cleared: {err}"
    return f"saved as {path} and cleared"


def parse_sel(text: str) -> list[list[str]]:
    """Return [id, time (or empty), sensor, event, asserted or deasserted (or empty)] of each entry.

    Raises ProbeError for a line that is none.
    """
    found = []
    for line in text.splitlines():
        if not line.strip() or "SEL has no entries" in line:
            continue
        parts = [part.strip() for part in line.split("|")]
        if len(parts) < 4 or not re.fullmatch(r"[0-9a-fA-F]+", parts[0]):
            raise ProbeError("unreadable", f"sel list: {line!r:.100}")
        dated = re.fullmatch(r"\d\d/\d\d/(?:\d\d){1,2}", parts[1])
        rest = parts[3:]  # of a Pre-Init entry and an OEM record the columns before are something else
        state = rest[-1] if rest and rest[-1] in ("Asserted", "Deasserted") else ""
        words = rest[:-1] if state else rest
        when = f"{parts[1]} {parts[2]}" if dated else ""
        found.append([parts[0], when, words[0] if words else "", " | ".join(words[1:]), state])
    return found


def holding(entries: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the entries whose event has not gone again: a later `Deasserted` of the same event takes it away."""
    found: dict[tuple[str, str], Sequence[str]] = {}
    for entry in entries:
        key = (entry[2], entry[3])
        if entry[4] == "Deasserted":
            found.pop(key, None)
        else:
            found[key] = entry
    return list(found.values())


def judge_ipmi_sel(facts: Any, settings: IpmiSelSettings, _case: Case) -> Verdict:
    """Bad or warn: an event of the lists holds. Unknown: the log can't be read. It is never cleared unless asked."""
    log, found = facts["logs"][settings.tool], Findings()
    for entry in holding(log["entries"]):
        if settings.days and (age_s := _age_s(entry[1], facts["now_s"])) is not None and age_s > settings.days * 86400:
            continue
        text = " ".join(part for part in entry[2:4] if part)
        shown = Evidence("sel", entry[0], device=entry[2] or None, text=f"{entry[1]} {text}".strip())
        for patterns, add in ((settings.bad, found.bad), (settings.warn, found.warn)):
            if any(re.search(pattern, text) for pattern in patterns):
                add(text, shown)
                break
    found.perf["sel_entries"] = len(log["entries"])
    done = Evidence("sel_clear", log["cleared"]) if log["cleared"] else None
    return found.verdict(f"{len(log['entries'])} entries, none of them alarming", *((done,) if done else ()))


def _age_s(when: str, now_s: float) -> float | None:
    words = when.split()
    for form in ("%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M:%S"):
        try:
            return now_s - time.mktime(time.strptime(" ".join(words[:2]), form))
        except (ValueError, OverflowError):
            continue
    return None


def read_sensors(context: Context, asked: Sequence[Any]) -> dict[str, Any]:
    """Ipmi-sensors (FreeIPMI) of the types."""
    types = list(dict.fromkeys(each for one in asked for each in one.types))
    argv = ("ipmi-sensors", "--comma-separated-output", "--output-sensor-state", f"--sensor-types={','.join(types)}")
    return {"sensors": parse_sensors(run_tool(context, argv).checked().stdout)}


_COLUMNS = ("ID", "Name", "Type", "State", "Reading", "Units", "Event")


def parse_sensors(text: str) -> list[dict[str, str]]:
    """Return the rows of ipmi-sensors' table. Raises ProbeError where that is no such table."""
    import csv  # noqa: PLC0415 - few sites have this check

    rows = list(csv.reader(line for line in text.splitlines() if line.strip()))
    if not rows or tuple(rows[0]) != _COLUMNS:
        raise ProbeError("unreadable", f"ipmi-sensors: {text!r:.100}")
    for row in rows[1:]:
        if len(row) != len(_COLUMNS) or not row[0].strip().isdigit():
            raise ProbeError("unreadable", f"ipmi-sensors: {','.join(row)!r:.100}")
    return [dict(zip(_COLUMNS, row, strict=True)) for row in rows[1:]]


def judge_ipmi_sensors(facts: Any, settings: IpmiSensorsSettings, _case: Case) -> Verdict:
    """Bad: a fan or power supply is not as it should be. Warn: less redundancy. Unknown: no sensor can be read."""
    found, told = Findings(), 0
    for one in facts["sensors"]:
        if one["Name"] in settings.ignore:
            continue
        events = re.findall(r"'([^']*)'", one["Event"])
        state = one["State"]
        shown = Evidence("sensor", state, "Nominal", device=one["Name"], text=one["Event"])
        said = f"{one['Name']}: {', '.join(events) or state}"
        if not events and state in ("N/A", ""):
            continue
        told += 1
        if any("Redundan" in event for event in events):
            if events != ["Fully Redundant"]:
                found.warn(said, shown)
        elif (
            (one["Type"].replace("_", " ") == "Power Supply" and events not in (["Presence detected"], ["OK"], []))
            or state == "Critical"
            or (one["Type"] == "Fan" and events not in (["OK"], []))
        ):
            found.bad(said, shown)
        elif state == "Warning":
            found.warn(said, shown)
    if not told:
        return unknown("no sensor of these types tells anything")
    return found.verdict(f"{told} sensors are as they should be")


CHECKS = (
    Check(
        "ipmi_sel",
        "The board's event log has nothing alarming.",
        Probe("ipmi_sel", read_sel, timeout_s=30.0),
        judge_ipmi_sel,
        IpmiSelSettings,
        hardware=True,
    ),
    Check(
        "ipmi_sensors",
        "Fans and power supplies are as they should be.",
        Probe("ipmi_sensors", read_sensors, timeout_s=30.0),
        judge_ipmi_sensors,
        IpmiSensorsSettings,
        hardware=True,
    ),
)
