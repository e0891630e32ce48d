"""What errors of NVLinks mean, from the parts of the line: registers of XID 74, unit and status of XID 144 to 150.

One number stands for everything from a corrected bit to a broken link, so the number alone decides nothing. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NVLINK4 = 74
NVLINK5 = range(144, 151)
SUBCODE_SHIFT, SUBCODE_MASK = 20, 0x3F  # of the first register of XID 149: why a link went down


@dataclass(frozen=True, slots=True)
class RegisterRule:
    """What some bits of one register of XID 74 mean."""

    register: int
    bits: tuple[int, ...]
    drain: str
    meaning: str = ""
    action: str = ""
    repeat: int = 0
    rma_after: int = 0


@dataclass(frozen=True, slots=True)
class Nvlink4:
    """How XID 74 is decided: the first rule counts of which a bit is set."""

    watched: tuple[int, ...] = (0, 2, 3, 4)  # registers that mean something
    quiet_bits: tuple[int, ...] = ()  # of the first register: they alone mean nothing
    other_drain: str = "repeat"  # bits that no rule knows
    rules: tuple[RegisterRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Nvlink5Rule:
    """One sub-rule of XID 144 to 150. What is empty fits everything."""

    codes: tuple[int, ...]
    drain: str
    units: tuple[str, ...] = ()  # the unit's name begins so
    status: tuple[int, ...] = ()  # the error status is one of these
    bits: tuple[int, ...] = ()  # the error status has one of these bits
    subcodes: tuple[int, ...] = ()
    meaning: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class Nvlink5:
    """How XID 144 to 150 are decided."""

    software_bit: int = 0x80000000
    fatal_drain: str = "yes"  # fatal, and nothing says of what kind
    fatal_other_drain: str = "recovery"  # fatal, with a status that no rule knows
    nonfatal_drain: str = "never"
    rules: tuple[Nvlink5Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a line amounts to. Empty words: those of the code."""

    drain: str
    meaning: str = ""
    action: str = ""
    repeat: int = 0
    rma_after: int = 0


def of_nvlink4(table: Nvlink4, detail: Mapping[str, Any]) -> Meaning:
    """Return what XID 74 says."""
    registers = registers_of(detail)
    if not registers:
        return Meaning("yes")
    bits = {at: {bit for bit in range(32) if registers[at] >> bit & 1} for at in table.watched if at < len(registers)}
    bits.get(0, set()).difference_update(table.quiet_bits)
    if not any(bits.values()):
        return Meaning("never", "NVLink event that means nothing by itself", "none")
    for rule in table.rules:
        if bits.get(rule.register, set()) & set(rule.bits):
            return Meaning(rule.drain, rule.meaning, rule.action, rule.repeat, rule.rma_after)
    return Meaning(table.other_drain, "NVLink error of an unknown kind", "ask the vendor")


def of_nvlink5(table: Nvlink5, code: int, detail: Mapping[str, Any], text: str) -> Meaning:
    """Return what XID 144 to 150 say."""
    unit, status, fatal = str(detail.get("unit") or ""), status_of(detail), is_fatal(detail, text)
    if status is not None and status & table.software_bit:
        return Meaning("never", "NVLink event made by software", "ask the vendor if it repeats")
    for rule in table.rules:
        if _fits(rule, code, unit, status, subcode_of(detail)):
            drain = rule.drain if fatal or rule.drain != "yes" else table.nonfatal_drain
            return Meaning(drain, rule.meaning, rule.action)
    if not fatal:
        return Meaning(table.nonfatal_drain)
    return Meaning(table.fatal_drain if status is None else table.fatal_other_drain)


def _fits(rule: Nvlink5Rule, code: int, unit: str, status: int | None, subcode: int | None) -> bool:
    return (
        code in rule.codes
        and (not rule.units or unit.startswith(rule.units))
        and (not rule.status or status in rule.status)
        and (not rule.bits or status is None or any(status & bit for bit in rule.bits))
        and (not rule.subcodes or subcode in rule.subcodes)
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


def subcode_of(detail: Mapping[str, Any]) -> int | None:
    """Return why a link went down, from the first register of an NVLink 5 error."""
    registers = registers_of(detail)
    return registers[0] >> SUBCODE_SHIFT & SUBCODE_MASK if registers else None


def link_of(detail: Mapping[str, Any]) -> int | None:
    """Return the link that an error is about; None for an error of no single link."""
    link = number(detail.get("link"))
    return link if link is not None and link >= 0 else None


def is_fatal(detail: Mapping[str, Any], text: str) -> bool:
    """Say whether an error calls itself fatal. "Nonfatal" does not."""
    if isinstance(detail.get("fatal"), bool):
        return bool(detail["fatal"])
    words = str(detail.get("severity") or text).lower().replace("-", "").replace("nonfatal", "")
    return "fatal" in words


def is_injected(detail: Mapping[str, Any]) -> bool:
    """Say whether an error was injected for a test."""
    return number(detail.get("injected")) not in (None, 0) or detail.get("injected") is True
