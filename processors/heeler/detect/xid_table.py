"""What XID and SXid numbers mean, from a table that the operator may replace."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heeler.bus import ConfigError
from heeler.detect.thresholds import shipped
from heeler.engine import config

CLASSES = ("INFO", "APP", "LINK", "RST", "HW")  # the later outranks the earlier
DRAINS = ("never", "recovery", "repeat", "pending", "yes")
ADVICE = ("none", "observe", "drain_after_job", "drain_now", "reset", "reboot", "rma", "person")


@dataclass(frozen=True, slots=True)
class Row:
    """What a code means."""

    codes: tuple[int, ...]
    meaning: str
    drain: str = "never"
    action: str = ""
    location: bool = False  # counts by place on the chip over distinct jobs
    follower: bool = False  # follows another error and is none of its own
    confirm: bool = False  # believed only with a second witness
    cancels: tuple[int, ...] = ()
    class_: str = "INFO"

    @property
    def rank(self) -> int:
        """Return how bad it is, to find the worst of an incident."""
        return CLASSES.index(self.class_) * 10 + DRAINS.index(self.drain) - 100 * self.follower


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery action of the driver asks for."""

    value: int
    advice: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Nvlink4:
    """Bits of the registers of XID 74."""

    quiet_bits: tuple[int, ...] = ()
    follower_bits: tuple[int, ...] = ()
    hardware_bits: tuple[int, ...] = ()
    hardware_bits_third: tuple[int, ...] = ()
    repeat_bits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Nvlink5Rule:
    """One sub-rule of XID 144 to 150."""

    codes: tuple[int, ...]
    drain: str
    units: tuple[str, ...] = ()
    status: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Nvlink5:
    """How XID 144 to 150 are decided."""

    software_bit: int = 0x80000000
    fatal_drain: str = "yes"
    nonfatal_drain: str = "never"
    rules: tuple[Nvlink5Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class XidTable:
    """The whole table."""

    source: str
    date: str
    xid: tuple[Row, ...] = ()
    sxid: tuple[Row, ...] = ()
    recovery: tuple[Recovery, ...] = ()
    nvlink4: Nvlink4 = field(default_factory=Nvlink4)
    nvlink5: Nvlink5 = field(default_factory=Nvlink5)

    def validate(self) -> None:
        """Raise ConfigError with everything that can't be used."""
        faults = []
        for name, rows in (("xid", self.xid), ("sxid", self.sxid)):
            seen: set[int] = set()
            for row in rows:
                faults += [f"{name}: code {code} stands twice" for code in row.codes if code in seen]
                seen.update(row.codes)
                if row.class_ not in CLASSES:
                    faults.append(f"{name} {row.codes}: class {row.class_!r}: one of {', '.join(CLASSES)}")
                if row.drain not in DRAINS:
                    faults.append(f"{name} {row.codes}: drain {row.drain!r}: one of {', '.join(DRAINS)}")
        faults += [f"recovery {r.value}: advice {r.advice!r}" for r in self.recovery if r.advice not in ADVICE]
        drains = [self.nvlink5.fatal_drain, self.nvlink5.nonfatal_drain, *(r.drain for r in self.nvlink5.rules)]
        faults += [f"nvlink5: drain {drain!r}" for drain in drains if drain not in DRAINS]
        if faults:
            raise ConfigError("; ".join(faults))

    def row(self, kind: str, code: int) -> Row | None:
        """Return the row of a code; None for a code that the table does not know."""
        rows = self.sxid if kind == "sxid" else self.xid
        return next((row for row in rows if code in row.codes), None)

    def judge(self, event: Mapping[str, Any]) -> Row:
        """Return what an event means, its details considered."""
        code, kind, detail = event.get("code", 0), event["kind"], event.get("detail", {})
        row = self.row(kind, code)
        if row is None:
            fatal = kind == "sxid" and is_fatal(detail, event.get("text", ""))
            words = "unknown code, said to be fatal" if fatal else "unknown code"
            return Row((code,), words, "recovery", "look at the line", class_="LINK" if fatal else "INFO")
        if kind == "xid" and code == 74:
            return _with_drain(row, self._nvlink4(detail))
        if kind == "xid" and 144 <= code <= 150:
            return _with_drain(row, self._nvlink5(code, detail, event.get("text", "")))
        return row

    def is_hard(self, event: Mapping[str, Any]) -> bool:
        """Say whether an XID is a fault of the hardware, trusted and not injected."""
        if event.get("trusted") is False or is_injected(event.get("detail", {})):
            return False
        row = self.judge(event)
        return row.class_ in ("HW", "RST", "LINK") and row.drain == "yes"

    def recovery_of(self, value: int) -> Recovery:
        """Return what a recovery action asks for; one that the table does not know is for a person."""
        found = next((r for r in self.recovery if r.value == value), None)
        return found or Recovery(value, "person", f"unknown recovery action {value}")

    def _nvlink4(self, detail: Mapping[str, Any]) -> str:
        registers = registers_of(detail)
        if not registers:
            return "yes"
        bits = self.nvlink4
        first = {bit for bit in range(32) if registers[0] >> bit & 1}
        third = {bit for bit in range(32) if len(registers) > 2 and registers[2] >> bit & 1}
        if first & set(bits.hardware_bits) or third & set(bits.hardware_bits_third):
            return "yes"
        if first & set(bits.repeat_bits):
            return "repeat"
        if first - set(bits.quiet_bits) - set(bits.follower_bits) or third:
            return "repeat"
        return "recovery" if first & set(bits.follower_bits) else "never"

    def _nvlink5(self, code: int, detail: Mapping[str, Any], text: str) -> str:
        unit = str(detail.get("unit") or "")
        status = status_of(detail)
        if status is not None and status & self.nvlink5.software_bit:
            return "never"
        fatal = is_fatal(detail, text)
        for rule in self.nvlink5.rules:
            fits = code in rule.codes and (not rule.units or unit.startswith(rule.units))
            if fits and (not rule.status or status in rule.status):
                return rule.drain if fatal or rule.drain != "yes" else self.nvlink5.nonfatal_drain
        return self.nvlink5.fatal_drain if fatal else self.nvlink5.nonfatal_drain


def _with_drain(row: Row, drain: str) -> Row:
    return Row(
        row.codes, row.meaning, drain, row.action, row.location, row.follower, row.confirm, row.cancels, row.class_
    )


def number(value: Any) -> int | None:
    """Return an integer that may be written as text, such as 0x10; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            return None
    return None


def registers_of(detail: Mapping[str, Any]) -> list[int]:
    """Return the registers of a link error; empty where any can't be read."""
    found = detail.get("registers")
    if not isinstance(found, list):
        return []
    numbers = [number(item) for item in found]
    return [n for n in numbers if n is not None] if None not in numbers else []


def status_of(detail: Mapping[str, Any]) -> int | None:
    """Return the error status of an NVLink 5 error: its own key, or the second register."""
    if "error_status" in detail:
        return number(detail["error_status"])
    registers = registers_of(detail)
    return registers[1] if len(registers) > 1 else None


def is_fatal(detail: Mapping[str, Any], text: str) -> bool:
    """Say whether an error calls itself fatal. "Nonfatal" does not."""
    if isinstance(detail.get("fatal"), bool):
        return bool(detail["fatal"])
    words = str(detail.get("severity") or text).lower().replace("-", "").replace("nonfatal", "")
    return "fatal" in words


def is_injected(detail: Mapping[str, Any]) -> bool:
    """Say whether an error was injected for a test."""
    return detail.get("injected") is True or detail.get("injected") == 1


def load_table(path: Path | str | None = None) -> XidTable:
    """Return the table of a TOML file, or the packaged one. Raises ConfigError with every fault."""
    if not path:
        return from_tables(tomllib.loads(shipped("xid.toml")), "xid.toml")
    return from_tables(config.read_toml(path), str(path))


def from_tables(tables: Mapping[str, Any], where: str) -> XidTable:
    """Return the table of a parsed file. Raises ConfigError with every fault."""

    def named(rows: Any) -> Any:
        # `class` is no name in Python.
        if not isinstance(rows, list):
            return rows
        return [
            {("class_" if key == "class" else key): value for key, value in row.items()}
            if isinstance(row, dict)
            else row
            for row in rows
        ]

    renamed = {key: named(value) if key in ("xid", "sxid") else value for key, value in tables.items()}
    return config.build(XidTable, renamed, where)
